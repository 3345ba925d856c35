"""`dotcu.check` and `dotcu check`: what they report of right and wrong operators."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu import errors
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

    def test_a_file_of_kernels_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "k.cu").write_text("")
        with pytest.raises(errors.UsageError, match="not a Python file"):
            resolve(str(tmp_path / "k.cu"))
