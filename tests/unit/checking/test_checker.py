"""`dotcu.check` and `dotcu check`: what they report of right and wrong operators."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu import errors
from dotcu.checking import checker
from dotcu.checking.target import resolve

kernels = dotcu.load_inline("""
template <typename T>
__global__ void negate(const T* a, T* out, long long n, long long stop) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < stop) out[i] = -a[i];
}
""")
_names = (f"check_test::op{i}" for i in itertools.count())


def negate(*, miss: int = 0) -> dotcu.operator.Operator:
    @dotcu.op(next(_names), dtypes=(torch.float32, torch.float64))
    def negate(a: Tensor) -> Tensor:
        out = torch.zeros_like(a)
        n = a.numel()
        kernels.negate[a.dtype](a, out, n, n - miss, grid=dotcu.cdiv(n, 64) + 1, block=64)
        return out

    negate.reference(lambda a: -a)
    negate.setup_context(lambda ctx, inputs, output: None)
    negate.backward(lambda ctx, grad: negate(grad))

    @negate.samples
    def _(device: torch.device, dtype: torch.dtype) -> Any:
        for n in (0, 1, 100):
            yield dotcu.Sample(torch.randn(n, device=device, dtype=dtype))

    @negate.overload("out", mutates_args=("out",))
    def _(a: Tensor, *, out: Tensor) -> None:
        out.copy_(negate(a))

    return negate


def test_a_kernels_fault_that_torch_finds_is_told_with_the_suspects(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = negate()

    @operator.reference
    def _(a: Tensor) -> Tensor:
        raise torch.AcceleratorError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(checker, "fault_story", lambda error: f"the story of {type(error).__name__}")
    report = dotcu.check(operator)
    assert "the story of AcceleratorError" in report.operators[0].failures[0].reason


def test_a_right_operator_holds() -> None:
    report = dotcu.check(negate())
    assert report.held, str(report)
    first, out = report.operators
    assert (first.cases, out.cases) == (6, 6)
    assert first.kernels == ("negate<float>", "negate<double>")
    assert first.where == ("cuda:0" if torch.cuda.is_available() else "simulator",)
    assert (first.opcheck, out.opcheck) == ("passed", "passed")
    assert 0 < first.compile_s < 60


def test_an_element_that_is_not_written_falls_short() -> None:
    report = dotcu.check(negate(miss=1))
    assert not report.held
    assert [failure.case for failure in report.operators[0].failures][:1] == ["float32 Sample(float32[1])"]
    assert "FELL SHORT" in str(report)


def test_a_finding_falls_short_with_its_line() -> None:
    if torch.cuda.is_available():
        pytest.skip("a fault on the GPU ends the process's context; the simulator names it")
    report = dotcu.check(negate(miss=-1))
    assert not report.held
    reason = report.operators[0].failures[0].reason
    assert "out-of-bounds" in reason
    assert ":5" in reason


def test_an_operator_without_samples_does_not_pass() -> None:
    @dotcu.op(next(_names))
    def untried(a: Tensor) -> Tensor:
        return a.clone()

    untried.reference(torch.clone)
    report = dotcu.check(untried)
    assert not report.held
    assert "give the operator samples" in str(report)


def test_an_operator_without_a_reference_does_not_pass() -> None:
    operator = negate()
    operator.reference(None)  # type: ignore[arg-type]
    report = dotcu.check(operator)
    assert not report.held
    assert "has no reference" in report.operators[0].failures[0].reason


def test_the_json_form_has_a_version_and_every_entry() -> None:
    report = dotcu.check(negate()).to_json()
    assert json.loads(json.dumps(report)) == report
    assert (report["version"], report["held"], len(report["operators"])) == (1, True, 2)


@pytest.mark.parametrize(("step", "held"), [(1.0, True), (-1.0, False)])
def test_what_an_operator_writes_is_compared(step: float, held: bool) -> None:
    @dotcu.op(next(_names), mutates_args=("y",))
    def increment(y: Tensor) -> None:
        y.add_(step)

    increment.reference(lambda y: [y.add_(1.0)][1:] or None)
    increment.samples(lambda device, dtype: [dotcu.Sample(torch.randn(5, device=device))])
    report = dotcu.check(increment)
    assert report.held is held, str(report)


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(errors.UsageError, match="'cuda' or in the 'simulator'"):
        dotcu.check(negate(), device="meta")


@pytest.mark.parametrize("device", ["bogus", "", "cuda:x"])
def test_a_device_that_torch_does_not_know_is_wrong_usage(device: str) -> None:
    with pytest.raises(errors.UsageError, match="'cuda' or 'simulator'"):
        dotcu.check(negate(), device=device)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("good", r"got 'good'(.|\n)*dotcu check good"),
        (5, "got 5"),
        ([], "got none"),
        ([torch.add], "got <built-in"),
    ],
)
def test_what_is_no_operator_is_wrong_usage(given: Any, said: str) -> None:
    with pytest.raises(errors.UsageError, match=said):
        dotcu.check(given)


@pytest.mark.parametrize("kind", [errors.UsageError, errors.ToolchainError, errors.JitDisabled])
@pytest.mark.parametrize("shapes_only", [False, True])
def test_what_no_operator_can_do_without_is_no_finding(
    kind: type[errors.DotcuError], shapes_only: bool
) -> None:
    @dotcu.op(next(_names))
    def lacking(a: Tensor) -> Tensor:
        if shapes_only <= (type(a) is not Tensor):
            raise kind("the machine lacks it")
        return a.clone()

    lacking.reference(torch.clone)
    lacking.samples(lambda device, dtype: [dotcu.Sample(torch.ones(3, device=device))])
    with pytest.raises(kind, match="the machine lacks it"):
        dotcu.check(lacking)


def test_code_that_does_not_compile_is_shown_once() -> None:
    broken = dotcu.load_inline("__global__ void broken(float* out) { out[0] = nonsense; }")

    @dotcu.op(next(_names))
    def uncompiled(a: Tensor) -> Tensor:
        out = torch.empty_like(a)
        broken.broken(out, grid=1, block=1)
        return out

    uncompiled.reference(torch.clone)
    uncompiled.samples(lambda device, dtype: [dotcu.Sample(torch.ones(1, device=device))])
    (entry,) = dotcu.check(uncompiled).operators
    assert entry.opcheck == "not run"
    assert len(entry.failures) == 1
    assert entry.failures[0].reason.startswith("CompileError: ")


def test_a_body_that_ends_the_process_is_a_finding() -> None:
    @dotcu.op(next(_names))
    def leaving(a: Tensor) -> Tensor:
        sys.exit(0)

    leaving.reference(torch.clone)
    leaving.samples(lambda device, dtype: [dotcu.Sample(torch.ones(3, device=device))])
    report = dotcu.check(leaving)
    assert not report.held
    assert report.operators[0].failures[0].reason == "SystemExit: 0"


def test_a_reference_that_fails_is_a_finding_of_each_overload() -> None:
    operator = negate()
    operator.reference(lambda a: 1 / 0)
    first, out = dotcu.check(operator).operators
    assert first.failures[0].reason == out.failures[0].reason == "ZeroDivisionError: division by zero"
    assert (out.opcheck, len(out.failures)) == ("no sample", 6)


def _raising(device: torch.device, dtype: torch.dtype) -> Any:
    yield dotcu.Sample(torch.ones(3, device=device, dtype=dtype))
    raise KeyError("shape")


def _forgetful(device: torch.device, dtype: torch.dtype) -> Any:
    return None


def _yielding_a_tensor(device: torch.device, dtype: torch.dtype) -> Any:
    yield dotcu.Sample(torch.ones(3, device=device, dtype=dtype))
    yield torch.ones(3)


def _listing_a_number(device: torch.device, dtype: torch.dtype) -> Any:
    return [5]


@pytest.mark.parametrize(
    ("function", "line", "said"),
    [
        (_raising, 2, "KeyError: 'shape'"),
        (_forgetful, 0, "the samples of .* are None"),
        (_yielding_a_tensor, 2, r"the samples .* have float32\[3\], which is no dotcu\.Sample"),
        (_listing_a_number, 0, r"the samples .* have 5, which is no dotcu\.Sample"),
        (lambda device, dtype: sys.exit(3), 0, "SystemExit: 3"),
    ],
)
def test_samples_that_are_none_are_named_with_their_line(function: Any, line: int, said: str) -> None:
    operator = negate()
    operator.samples(function)
    line += function.__code__.co_firstlineno
    with pytest.raises(errors.OperatorError, match=rf"test_checker\.py:{line}: {said}"):
        dotcu.check(operator)


OPS = """
import torch
import dotcu
from torch import Tensor

@dotcu.op("check_target::one")
def one(a: Tensor) -> Tensor:
    return a + 1

@dotcu.op("check_target::two")
def two(a: Tensor) -> Tensor:
    return a + 2
"""


class TestTarget:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "my_ops.py"
        path.write_text(OPS)
        return path

    def test_a_file_gives_its_operators_in_order(self, file: Path) -> None:
        assert [name for name, _ in resolve(str(file))] == ["one", "two"]

    def test_a_name_picks_one(self, file: Path) -> None:
        assert [name for name, _ in resolve(f"{file}:two")] == ["two"]

    def test_an_unknown_name_is_answered_with_the_nearest(self, file: Path) -> None:
        with pytest.raises(
            errors.UsageError, match=r"no operator .twoo.; it has one, two\.\n.*my_ops\.py:two"
        ):
            resolve(f"{file}:twoo")

    def test_a_missing_file_is_answered_with_the_nearest(self, file: Path) -> None:
        with pytest.raises(errors.UsageError, match=r"Did you mean .*my_ops\.py"):
            resolve(str(file.with_name("my_op.py")))

    def test_a_module_is_found(self) -> None:
        assert "add" in [name for name, _ in resolve("dotcu.gallery")]

    def test_an_unknown_module_is_named(self) -> None:
        with pytest.raises(errors.UsageError, match=r"'no\.such\.module'"):
            resolve("no.such.module")

    @pytest.mark.parametrize(
        ("text", "line", "said"),
        [
            ("x = 1\ny = (\n", 2, "SyntaxError"),
            ("x = 1\n1 / 0\n", 2, "ZeroDivisionError: division by zero"),
            ("\n\nimport no_such_module_here\n", 3, "ModuleNotFoundError: No module named 'no_such_mod"),
            ("import sys\nsys.exit(0)\n", 2, "SystemExit: 0"),
            ("import json\njson.loads('{')\n", 2, "JSONDecodeError"),
        ],
    )
    def test_a_file_that_cannot_be_imported_is_named_with_its_line(
        self, tmp_path: Path, text: str, line: int, said: str
    ) -> None:
        before = set(sys.modules)
        (tmp_path / "broken_ops.py").write_text(text)
        with pytest.raises(errors.UsageError, match=rf"broken_ops\.py:{line}: {said}"):
            resolve(str(tmp_path / "broken_ops.py"))
        assert not [name for name in set(sys.modules) - before if "broken_ops" in name]

    @pytest.mark.parametrize("target", ["broken_package.ops", "broken_package"])
    def test_a_module_that_cannot_be_imported_is_named_with_its_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
    ) -> None:
        (tmp_path / "broken_package").mkdir()
        (tmp_path / "broken_package" / "__init__.py").write_text("\nimport no_such_module_here\n")
        (tmp_path / "broken_package" / "ops.py").write_text("")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(errors.UsageError, match=r"__init__\.py:2: ModuleNotFoundError"):
            resolve(target)

    def test_a_file_named_like_another_module_is_the_one_that_is_loaded(self, tmp_path: Path) -> None:
        (tmp_path / "json.py").write_text(OPS.replace("check_target", "check_target_json"))
        ((_, one), _) = resolve(str(tmp_path / "json.py"))
        assert sys.modules["json"] is json
        assert sys.modules[one.__module__].one is one

    def test_a_file_imports_those_beside_it(self, tmp_path: Path) -> None:
        (tmp_path / "beside_my_ops.py").write_text(OPS.replace("check_target", "check_target_beside"))
        (tmp_path / "front.py").write_text("from beside_my_ops import one\n")
        path = list(sys.path)
        assert [name for name, _ in resolve(str(tmp_path / "front.py"))] == ["one"]
        assert sys.path == path

    def test_a_file_of_kernels_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "k.cu").write_text("")
        with pytest.raises(errors.UsageError, match="not a Python file"):
            resolve(str(tmp_path / "k.cu"))


def test_a_check_is_seeded_and_leaves_the_random_numbers_as_they_were(device: torch.device) -> None:
    drawn = []

    @dotcu.op(next(_names))
    def copied(a: Tensor) -> Tensor:
        drawn.append(a.tolist())
        return a.clone()

    copied.reference(torch.clone)
    copied.samples(lambda device, dtype: [dotcu.Sample(torch.randn(2, device=device))])
    before = torch.get_rng_state()
    for _ in range(2):
        dotcu.check(copied)
    assert torch.equal(torch.get_rng_state(), before)
    assert drawn[0] == drawn[len(drawn) // 2]
