"""opcheck, part by part."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking.catalogue import Level
from dotcu.checking.results import Failed, Passed, Skipped
from dotcu.checking.running import run_one
from dotcu.checking.trials.registration import plan
from helpers.check_reports import bare
from helpers.trial_operators import differentiable, multiply, name, said, squaring, subject


def test_a_right_operator_holds_in_its_first_dtype() -> None:
    operator = squaring(dtypes=(torch.float32, torch.int32))
    assert said(plan, operator) == {("registration", "float32-s0"): Passed()}


def test_at_full_every_floating_dtype_and_one_integer_are_tried() -> None:
    operator = squaring(dtypes=(torch.int32, torch.int64, torch.float32, torch.float64))
    cases = [case for _, case in said(plan, operator, Level.FULL)]
    assert cases == ["int32-s0", "float32-s0", "float64-s0"]


def test_the_part_that_fails_is_named_with_what_it_says() -> None:
    operator = squaring()
    operator.fake(lambda x: x.new_empty(x.shape, dtype=torch.float64))
    (outcome,) = said(plan, operator).values()
    assert isinstance(outcome, Failed)
    assert outcome.reason == "the fake kernel disagrees with it (opcheck's test_faketensor)"
    assert "torch.float64" in outcome.evidence
    assert len(outcome.evidence.splitlines()) < 15


def test_a_call_that_fails_by_itself_is_no_fault_of_the_registration() -> None:
    def body(x: Tensor) -> Tensor:
        return x.new_empty(x.shape[5])

    (trial,) = plan(subject(squaring(body)))
    (result,) = run_one(trial)
    assert isinstance(result, Failed)
    assert result.reason == "it raises IndexError"
    assert "opcheck" not in str(bare(result))
    assert result.evidence.endswith("IndexError: tuple index out of range")


def test_torch_logs_no_traceback_of_fake_tensors(caplog: pytest.LogCaptureFixture) -> None:
    def body(x: Tensor) -> Tensor:
        return x.reshape(-1, 2) @ x.reshape(-1, 2)

    logger = logging.getLogger("torch._subclasses.fake_tensor")
    logger.addHandler(caplog.handler)
    try:
        (trial,) = plan(subject(squaring(body)))
        (result,) = run_one(trial)
    finally:
        logger.removeHandler(caplog.handler)
    assert isinstance(result, Failed)
    assert len(result.evidence.splitlines()) <= 6
    assert "failed while attempting to run meta" not in caplog.text


def test_a_backward_that_cannot_be_traced_is_seen_for_inputs_require_a_gradient() -> None:
    operator = differentiable(squaring(), lambda grad, x: grad * float(x.sum()))
    (outcome,) = said(plan, operator).values()
    assert isinstance(outcome, Failed)
    assert "test_aot_dispatch_dynamic" in outcome.reason


def test_a_dtype_that_torch_does_not_compute_in_is_passed_over() -> None:
    def body(x: Tensor) -> Tensor:
        return multiply(x.float(), x.float()).to(x.dtype)

    both = squaring(body, dtypes=(torch.float8_e4m3fn, torch.float32))
    assert said(plan, both) == {("registration", "float32-s0"): Passed()}
    (outcome,) = said(plan, squaring(body, dtypes=(torch.float8_e4m3fn,))).values()
    assert outcome == Skipped(reason="opcheck cannot compare results of torch.float8_e4m3fn")


def test_an_overload_that_writes_holds() -> None:
    operator = squaring()

    @operator.overload("out", mutates_args=("out",))
    def _(x: Tensor, *, out: Tensor) -> None:
        multiply(x, x, out)

    assert set(said(plan, operator, overload="out").values()) == {Passed()}


def test_without_a_sample_that_has_elements_it_is_skipped() -> None:
    @dotcu.op(name())
    def square(x: Tensor) -> Tensor:
        return multiply(x, x)

    @square.samples
    def _(device: torch.device, dtype: torch.dtype) -> Any:
        yield dotcu.Sample(torch.empty(0, 3, device=device, dtype=dtype))

    assert said(plan, square) == {("registration", ""): Skipped(reason="no sample without empty tensors")}
