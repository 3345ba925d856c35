"""What `check`, `bench` and `inspect` say of operators that a library computes, right ones and wrong ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import dotcu
from dotcu.benchmark.bencher import source_digests
from dotcu.checking.planning import subjects_of
from dotcu.checking.report import CheckReport
from dotcu.checking.results import Failed, Passed, Skipped
from dotcu.checking.trials.call import SANITIZERS
from dotcu.operator import ExistingOperator
from helpers.check_reports import bare
from helpers.foreign_operators import CPP, foreign, scaled

with_compiler = pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler; c++ is not on PATH")


def described(name: str, *, fake: bool = True) -> ExistingOperator:
    """An operator like `SCALE`, with all that a check needs."""
    operator = dotcu.op.existing(name)
    operator.reference(lambda x, by: x * by)
    operator.samples(lambda device, dtype: [dotcu.Sample(torch.randn(3, 5, dtype=dtype, device=device), 2.5)])
    if fake:
        operator.fake(lambda x, by: torch.empty_like(x))
    return operator


def outcomes(report: CheckReport, check: str) -> list[Any]:
    return [bare(result) for result in report.results if result.check == check]


def short(report: CheckReport) -> set[str]:
    """The checks that found something."""
    return {result.check for result in report.failures}


# ------------------------------------------------------------------ what holds, and what was not tried


@pytest.fixture(scope="module")
def right() -> CheckReport:
    return dotcu.check(described(foreign(CPU=scaled)), device="cpu", level="quick")


def test_a_right_operator_holds_on_the_cpu(right: CheckReport) -> None:
    assert right.passed, str(right)
    assert right.device == "cpu"
    assert any(
        isinstance(outcome, Passed) and outcome.ratio is not None for outcome in outcomes(right, "numerics")
    )


@pytest.mark.parametrize("check", SANITIZERS)
def test_what_needs_a_body_is_not_applicable_and_says_so(right: CheckReport, check: str) -> None:
    assert outcomes(right, check) == [
        Skipped(reason="a library computes it, and launches no kernel that can run in the simulator")
    ]


def test_without_a_backward_of_its_own_or_a_given_one_it_says_what_becomes_of_gradients(
    right: CheckReport,
) -> None:
    (outcome,) = outcomes(right, "gradients")
    assert isinstance(outcome, Skipped)
    assert "torch drops its gradient silently" in outcome.reason


def test_a_library_that_refuses_gradients_says_so() -> None:
    def refuse(*args: Any) -> Any:
        class Refusing(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor, by: float) -> torch.Tensor:
                return x * by

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                raise RuntimeError("derivative for foreign::scale is not implemented")

        return Refusing.apply(*args)

    name = foreign(Autograd=refuse, CPU=scaled)
    report = dotcu.check(described(name), device="cpu", level="quick", only=f"{name}/gradients")
    assert report.failures == ()
    assert outcomes(report, "gradients")[0] == Passed(note="no backward, so differentiating raises an error")


def test_without_a_fake_it_fails_once_and_names_the_remedy() -> None:
    name = foreign(CPU=scaled)
    report = dotcu.check(described(name, fake=False), device="cpu", only=[f"{name}/fake", f"{name}/compile"])
    (outcome,) = outcomes(report, "fake")
    assert isinstance(outcome, Failed)
    assert "it has no fake kernel" in outcome.reason
    assert "@scale.fake" in outcome.evidence
    assert outcome.reproduce.startswith('dotcu.check(scale, device="cpu"')
    assert [type(one) for one in outcomes(report, "compile")] == [Skipped]


def test_without_a_reference_it_says_so() -> None:
    name = foreign(CPU=scaled)
    operator = dotcu.op.existing(name)
    operator.samples(lambda device, dtype: [dotcu.Sample(torch.randn(3), 2.0)])
    report = dotcu.check(operator, device="cpu", level="quick", only=f"{name}/reference")
    (outcome,) = outcomes(report, "reference")
    assert isinstance(outcome, Skipped)
    assert outcome.reason.startswith("no reference, so the right values are unknown")


@pytest.mark.parametrize("packet", [True, False])
def test_a_reference_that_calls_the_operator_judges_nothing(packet: bool) -> None:
    name = foreign(CPU=scaled)
    operator = described(name)
    called = getattr(torch.ops, operator.signature.namespace).scale if packet else operator
    operator.reference(lambda x, by: called(x, by))
    report = dotcu.check(operator, device="cpu", only=[f"{name}/reference", f"{name}/call/float32-s0"])
    assert not report.passed
    assert f"the reference of {name} calls the operator {name}" in str(report)
    assert not any(isinstance(outcome, Passed) for outcome in outcomes(report, "numerics"))


def test_a_refusal_in_c_plus_plus_is_a_runtime_error_and_counts_as_one() -> None:
    def picky(x: torch.Tensor, by: float) -> torch.Tensor:
        if not x.is_contiguous():
            raise RuntimeError("scale takes contiguous tensors")
        return scaled(x, by)

    name = foreign(CPU=picky)
    report = dotcu.check(described(name), device="cpu", level="quick", only=f"{name}/call")
    assert report.passed
    assert Passed(refusal="RuntimeError: scale takes contiguous tensors") in outcomes(report, "errors")


def test_a_written_argument_that_is_given_back_is_compared_once() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    name = foreign("double_(Tensor(a!) x) -> Tensor(a!)", CPU=double)
    operator = dotcu.op.existing(name)
    operator.reference(lambda x: x.mul_(2))
    operator.samples(lambda device, dtype: [dotcu.Sample(torch.randn(3, 5))])
    report = dotcu.check(operator, device="cpu", level="quick", only=f"{name}/call/float32-s0")
    assert [type(one) for one in outcomes(report, "numerics")] == [Passed]


# ------------------------------------------------------------------ what C++ gets wrong


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The namespace of a library in C++."""
    path = tmp_path_factory.mktemp("cpp") / "existing_cpp.cpp"
    path.write_text(CPP.replace("@NAME@", "existing_cpp"))
    library = dotcu.load_cpp(path, flags=["-O0"])
    assert isinstance(library, dotcu.CppLibrary)
    return "existing_cpp"


def doubling(name: str) -> ExistingOperator:
    operator = dotcu.op.existing(name)
    operator.reference(lambda x: x * 2)
    operator.fake(lambda x: torch.empty_like(x))
    operator.samples(lambda device, dtype: [dotcu.Sample(torch.randn(7, 33, dtype=dtype, device=device))])
    return operator


@with_compiler
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("right", set()),
        ("last_one_wrong", {"numerics"}),
        ("last_one_unwritten", {"written"}),
        ("one_too_many", {"bounds"}),
        ("changes_its_input", {"inputs"}),
        ("kept", {"result"}),
    ],
)
def test_one_call_shows_what_a_kernel_in_c_plus_plus_does_wrong(
    native: str, name: str, found: set[str]
) -> None:
    operator = doubling(f"{native}::{name}")
    report = dotcu.check(operator, device="cpu", level="quick", only=f"{native}::{name}/call/float32-s0")
    assert short(report) == found, str(report)


@with_compiler
def test_inspect_shows_what_the_library_holds(native: str) -> None:
    operator = doubling(f"{native}::right")
    assert operator.library is not None
    report = dotcu.inspect(operator)
    assert [one.path for one in report.libraries] == [str(operator.library)]
    assert report.to_json()["libraries"][0]["kind"] == "elf"
    assert "there is no source, PTX or line to show, but what its file holds" in str(report)
    assert "shared library" in str(report)


@with_compiler
def test_a_figure_is_of_the_librarys_file(native: str) -> None:
    operator = doubling(f"{native}::right")
    subjects = subjects_of(operator, device="cpu", level="quick", seed=0)
    digests = source_digests(subjects)
    assert digests[operator.qualified_name]
    unknown = described(foreign(CPU=scaled))
    assert source_digests(subjects_of(unknown, device="cpu", level="quick", seed=0)) == {}


def test_inspect_of_a_library_that_nobody_knows_the_file_of() -> None:
    report = dotcu.inspect(described(foreign(CPU=scaled)))
    assert report.libraries == ()
    assert "its file is not known, since dotcu.load_cpp did not load it" in str(report)


def test_bench_without_a_gpu_bounds_a_call_and_says_that_nothing_was_counted() -> None:
    operator = described(foreign(CPU=scaled))
    operator.work(lambda x, by: (8 * x.numel(), x.numel()))
    told = str(dotcu.bench(operator, device="cpu"))
    assert "a library computes it, and launches no kernel that can run in the simulator" in told
    assert "120 B" in told  # 15 elements read, 15 written


CRASHING = """
import dotcu
import torch

dotcu.load_cpp("crashing.cpp")
crashes = dotcu.op.existing("crashing::crashes")
right = dotcu.op.existing("crashing::right")
for each in (crashes, right):
    each.reference(lambda x: x * 2)
    each.samples(lambda device, dtype: [dotcu.Sample(torch.randn(7, 33, dtype=dtype, device=device))])
"""


@pytest.mark.slow
@with_compiler
def test_a_crash_in_c_plus_plus_ends_a_worker_and_not_the_check(tmp_path: Path) -> None:
    (tmp_path / "crashing.cpp").write_text(CPP.replace("@NAME@", "crashing"))
    (tmp_path / "ops.py").write_text(CRASHING)
    words = ["check", "ops.py", "--quick", "--only", "crashing::crashes/call/float32-s0"]
    done = subprocess.run(
        [sys.executable, "-m", "dotcu", *words, "--only", "crashing::right/call/float32-s0"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "the process died: SIGSEGV" in done.stdout
    assert "dotcu check ops.py:crashes --device cpu" in done.stdout
    assert "crashing::right/" not in done.stdout  # it FAILED nothing
