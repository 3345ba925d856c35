"""`dotcu.check` of operators that launch Triton kernels: each fault by its check, and its repair."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

import dotcu
from dotcu.checking.report import CheckReport
from dotcu.checking.results import Passed, Skipped
from dotcu.checking.trials.call import SANITIZERS

pytest.importorskip("triton", reason="Triton is not installed")
from helpers import triton_operators as ops

BITWISE = {"tags": (torch.Tag.nondeterministic_bitwise,)}


def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def contiguous(body: Any) -> Any:
    return lambda x: body(x.contiguous())


def checked(operator: Any) -> CheckReport:
    return dotcu.check(operator, device="simulator", level="quick")


right = contiguous(ops.doubled)
FAULTS: dict[str, tuple[str, Any, Any, dict[str, Any]]] = {
    "missing mask": ("sanitizer-bounds", contiguous(partial(ops.doubled, masked=False)), right, {}),
    "race": (
        "sanitizer-race", partial(ops.summed, atomic=False), ops.summed,
        {"reference": torch.sum, "fake": ops.scalar, **BITWISE},
    ),
    "unwritten output": ("written", contiguous(partial(ops.doubled, left_out=1)), right, {}),
    "not contiguous": ("numerics", ops.doubled, right, {}),
    "odd sizes": (
        "sanitizer-bounds", partial(ops.doubled_by_rows, even=True),
        partial(ops.doubled_by_rows, even=False), {},
    ),
    "input written": ("inputs", ops.doubled_in_place, right, {}),
    "32-bit sum": (
        "numerics", partial(ops.integers_summed, wide=False), partial(ops.integers_summed, wide=True),
        {"reference": torch.sum, "fake": lambda x: ops.scalar(x.long()), "dtype": torch.int32},
    ),
    "sum into empty": (
        "sanitizer-init", partial(ops.summed, zeroed=False), ops.summed,
        {"reference": torch.sum, "fake": ops.scalar, **BITWISE},
    ),
    "order of programs": (
        "determinism", partial(ops.sum_of_a_block, first=True), partial(ops.sum_of_a_block, first=False),
        {"reference": lambda x: x.flatten()[: ops.BLOCK].sum(), "fake": ops.scalar},
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_triton_operator_is_found(fault: str) -> None:
    check, body, _, how = FAULTS[fault]
    report = checked(ops.registered(body, **{"reference": twice, **how}))
    assert check in {failure.check for failure in report.failures}, str(report)


@pytest.mark.parametrize("fault", FAULTS)
def test_its_repair_passes(fault: str) -> None:
    _, _, body, how = FAULTS[fault]
    report = checked(ops.registered(body, **{"reference": twice, **how}))
    assert report.passed, str(report)
    assert report.device == "simulator"
    found = [result for result in report.results if result.check in SANITIZERS]
    assert sum(isinstance(result, Passed) for result in found) > 20


@pytest.mark.parametrize("make", [torch.library.custom_op, torch.library.triton_op])
@pytest.mark.parametrize("factor", [2, 3])
def test_gradients_of_a_triton_operator_are_compared(make: Any, factor: int) -> None:
    operator = ops.registered(right, twice, backward=lambda made, grad: made(grad) * (factor / 2), make=make)
    report = checked(operator)
    assert {failure.check for failure in report.failures} == ({"gradients"} if factor == 3 else set()), str(
        report
    )


def test_a_finding_is_in_the_words_of_triton() -> None:
    report = checked(ops.registered(contiguous(partial(ops.doubled, masked=False)), twice))
    (text,) = {f.evidence.splitlines()[0] for f in report.failures if str(f.trial).endswith("float32-s0")}
    assert "triton_operators.py:" in text
    assert "out-of-bounds read of 4 bytes at `x_ptr`[150]" in text
    assert "Pass mask=" in text


def test_an_operator_that_computes_without_a_kernel_on_the_cpu_is_not_said_to_be_sanitized() -> None:
    report = checked(ops.registered(lambda x: right(x) if x.is_cuda else 2 * x.contiguous(), twice))
    found = [result for result in report.results if result.check in SANITIZERS]
    assert all(isinstance(result, Skipped) for result in found)
    assert "launches no kernel that can run in the simulator" in str(report)


def test_a_call_that_launches_nothing_is_not_said_to_be_sanitized() -> None:
    report = checked(ops.registered(lambda x: right(x) if x.numel() % 2 == 0 else 2 * x.contiguous(), twice))
    assert report.passed, str(report)
    assert "the call launches no kernel, so there is nothing to run in the simulator" in str(report)


def test_inspect_says_where_the_ptx_of_its_kernels_is() -> None:
    report = dotcu.inspect(ops.registered(right, twice), arch="sm_80")
    assert 'kernel[grid](...).asm["ptx"]' in str(report)
    with dotcu.simulate():
        launched = ops.double[(1,)](torch.ones(9), torch.empty(9), 9, MASKED=True, BLOCK=ops.BLOCK)
    assert ".visible .entry double(" in launched.asm["ptx"]


def test_an_operator_for_cuda_tensors_alone_is_refused_in_the_simulator() -> None:
    torch.library.custom_op("triton_operators::cuda_only", right, mutates_args=(), device_types="cuda",
                            schema="(Tensor x) -> Tensor")  # fmt: skip
    operator = dotcu.op.existing("triton_operators::cuda_only")
    with pytest.raises(dotcu.errors.UsageError, match='remove device_types="cuda"'):
        checked(operator)
