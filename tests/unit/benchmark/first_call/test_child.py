"""What runs in a process of its own, here in this one and then in its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dotcu import settings
from dotcu.benchmark.first_call import FirstCall, first_call
from dotcu.benchmark.first_call.catalogue import CALL, START
from dotcu.benchmark.first_call.child import LATER, measure
from dotcu.compile import cache
from dotcu.errors import OperatorError, UsageError
from dotcu.stopwatch import Stopwatch

OPS = '''
import sys
import torch
from torch import Tensor
import dotcu

print("said while it is imported")
kernels = dotcu.load_inline("""
extern "C" __global__ void twice(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
""")

@dotcu.op("first_calls::%(name)s")
def twice(x: Tensor) -> Tensor:
    print("said by the body")
    %(body)s
    out = torch.empty_like(x)
    kernels.twice(x, out, x.numel(), grid=1, block=64)
    return out

@twice.samples
def _(device, dtype):
    for n in (33, 7, 0):
        yield dotcu.Sample(torch.ones(n, device=device, dtype=dtype))

@dotcu.op("first_calls::%(name)s_idle")
def idle(x: Tensor) -> Tensor:
    return torch.empty_like(x)
'''


@pytest.fixture
def ops(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """A file with two operators, of which the second has no samples."""

    def write(body: str = "pass") -> str:
        name = f"{request.node.name.replace('-', '_')}"[-40:]
        (tmp_path / "ops.py").write_text(OPS % {"name": f"op_{name}", "body": body})
        return str(tmp_path / "ops.py")

    return write


def told(target: str, folder: Path) -> dict[str, Any]:
    """All that `measure` tells."""
    answers: dict[str, Any] = {}
    with settings.override(cache_dir=folder / "cache"):
        measure(target, Stopwatch("interpreter"), answers.update)
        cache.forget()
    return answers


def test_the_first_sample_that_has_elements_is_called(ops: Any, tmp_path: Path) -> None:
    found = told(ops() + ":twice", tmp_path)
    assert found["rest"]["sample"] == "Sample(float32[33])"
    assert len(found["rest"]["later"]) == LATER
    assert found["rest"]["note"] == ""


def test_of_several_operators_it_is_the_first_and_the_others_are_named(ops: Any, tmp_path: Path) -> None:
    found = told(ops(), tmp_path)
    assert found["rest"]["note"] == "the first of 2 operators there: twice, idle"


def test_compiling_counts_to_the_call_or_to_the_import_that_did_it(ops: Any, tmp_path: Path) -> None:
    during_call = told(ops(), tmp_path)
    assert _stages(during_call, "compile") == ["call"]
    file = Path(ops())
    eager = file.with_name("eager.py")
    text = file.read_text().replace("first_calls::", "first_calls::eager_").replace("2 * x[i]", "3 * x[i]")
    eager.write_text(text + "\nkernels.warm()\n")
    assert _stages(told(str(eager), tmp_path), "compile") == ["start"]


def _stages(found: dict[str, Any], phase: str) -> list[str]:
    return [stage for stage, name, _, _ in found["first"] if name == phase]


def test_an_operator_without_samples_is_refused_with_what_to_give_it(ops: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no sample with elements") as caught:
        told(ops() + ":idle", tmp_path)
    assert "@idle.samples" in str(caught.value)


def test_a_call_that_fails_shows_the_users_line(ops: Any, tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"failed, on Sample\(float32\[33\]\)") as caught:
        told(ops("raise ValueError('not today')"), tmp_path)
    assert "ValueError: not today" in str(caught.value)


def test_what_is_measured_with_imports_nothing_that_a_call_would_import() -> None:
    script = """
import sys, torch, dotcu.kernel, dotcu.operator
before = set(sys.modules)
import dotcu.benchmark.first_call.child
heavy = ("torch", "numpy", "cuda", "sympy", "matplotlib")
new = {name for name in set(sys.modules) - before if name.split(".")[0] in heavy}
assert not new, new
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> FirstCall:
    """A first call in processes of its own."""
    file = tmp_path_factory.mktemp("target") / "ops.py"
    file.write_text(OPS % {"name": "alone", "body": "pass"})
    return first_call(str(file), "twice")


@pytest.mark.slow
def test_the_first_process_compiles_and_the_second_finds_what_it_made(found: FirstCall) -> None:
    empty, filled = found.runs
    for step in ("nvrtc", "compile", "store"):
        assert empty.find("call", step) is not None
        assert filled.find("call", step) is None
    for run in found.runs:
        assert run.find("call", "cache") is not None
        assert run.find("call", "launch" if torch.cuda.is_available() else "simulate") is not None


@pytest.mark.slow
def test_phases_are_known_and_account_for_the_whole(found: FirstCall) -> None:
    for run in found.runs:
        assert {phase.name for phase in run.phases} <= START.keys() | CALL.keys()
        assert all(phase.ms >= 0 for phase in run.phases)
        assert abs(run.remainder_ms) < 0.05 * run.whole_ms
        assert run.find("start", "torch").ms > 50  # type: ignore[union-attr]
        assert run.stage_ms("call") > 0
        assert len(run.later_ms) == LATER


@pytest.mark.slow
def test_the_report_is_of_the_operator_that_was_named(found: FirstCall) -> None:
    assert found.operator == "first_calls::alone"
    assert found.sample == "Sample(float32[33])"
    assert found.simulated is not torch.cuda.is_available()
    assert "said" not in str(found)


@pytest.mark.slow
def test_an_operator_that_is_not_there_is_refused_by_the_process() -> None:
    with pytest.raises(UsageError, match="has no operator 'sqare'") as caught:
        first_call("dotcu.gallery", "sqare")
    assert "square" in str(caught.value)
