"""Operators without a backward, and what they say when they are differentiated."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dotcu.checking.results import Failed, Passed, Skipped
from dotcu.checking.running import run_here as run
from dotcu.checking.subject import Subject
from dotcu.checking.trials.gradients import plan
from helpers.trial_operators import differentiable, multiply, said, squaring


def test_an_operator_without_backward_must_say_so_when_it_is_differentiated() -> None:
    outcomes = said(plan, squaring())
    held = outcomes["gradients", "float32-s0-none"]
    assert isinstance(held, Passed)
    assert held.note == "no backward, so differentiating raises an error"
    assert outcomes["second-gradients", ""] == Skipped(reason="no backward")


def test_a_gradient_that_is_lost_in_silence_fails() -> None:
    operator = squaring()

    def lose(x: Tensor) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator.torch_op(x)

    library = torch.library.Library("trying", "IMPL")
    library.impl(operator.signature.name, lose, "AutogradCPU")
    on_cpu = Subject(overload=operator, device=torch.device("cpu"))
    (lost, _) = run(plan(on_cpu))
    library._destroy()
    assert isinstance(lost, Failed)
    assert "drops the gradient silently" in lost.reason


def test_an_overload_that_writes_refuses_gradients() -> None:
    operator = differentiable(squaring())

    @operator.overload("out", mutates_args=("out",))
    def _(x: Tensor, *, out: Tensor) -> None:
        multiply(x, x, out)

    outcome = said(plan, operator, overload="out")["gradients", "float32-s0-none"]
    assert isinstance(outcome, Passed)


def test_a_result_of_whole_numbers_needs_no_gradient() -> None:
    operator = squaring(lambda x: multiply(x, x).to(torch.int64))
    outcome = said(plan, operator)["gradients", "float32-s0-none"]
    assert outcome == Skipped(reason="no backward, and no result that could have a gradient")
