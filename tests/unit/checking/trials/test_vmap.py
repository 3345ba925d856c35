"""Batching rules beside a loop."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import dotcu
from dotcu.checking.catalogue import Level
from dotcu.checking.results import Failed, Passed, Skipped
from dotcu.checking.trials.vmap import plan
from dotcu.operator import Operator
from helpers.trial_operators import multiply, name, said, squaring


def products(reference: bool = True) -> Operator:
    """The products of the tensors of a list and a tensor."""

    @dotcu.op(name())
    def products(factors: list[Tensor], x: Tensor) -> Tensor:
        out = x.contiguous()
        for factor in factors:
            out = multiply(factor.expand_as(x), out)
        return out if factors else out.clone()

    if reference:
        products.reference(lambda factors, x: factors[0] * factors[1] * x)

    @products.samples
    def _(place: torch.device, dtype: torch.dtype) -> Any:
        a, b, x = (torch.randn(4, 5, device=place, dtype=dtype) for _ in range(3))
        yield dotcu.Sample([a, b], x)

    return products


def to_front(value: Tensor, dim: int | None, size: int) -> Tensor:
    return value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)


def test_without_a_rule_it_is_skipped() -> None:
    assert said(plan, squaring()) == {("vmap", ""): Skipped(reason="no batching rule")}


def test_a_right_rule_holds_in_both_dimensions() -> None:
    operator = squaring()
    operator.vmap(lambda info, in_dims, x: (operator(x), in_dims[0]))
    outcomes = said(plan, operator)
    assert [case for _, case in outcomes] == [
        "float32-s0-0-dim0",
        "float32-s0-0-dim-1",
        "float32-s1-0-dim0",
        "float32-s1-0-dim-1",
    ]
    assert set(outcomes.values()) == {Passed()}


def test_a_rule_that_takes_one_dimension_for_granted_fails_in_the_other() -> None:
    operator = squaring()
    operator.vmap(lambda info, in_dims, x: (operator(x), 0))
    outcomes = said(plan, operator)
    assert outcomes["vmap", "float32-s0-0-dim0"] == Passed()
    wrong = outcomes["vmap", "float32-s0-0-dim-1"]
    assert isinstance(wrong, Failed)
    assert wrong.reason == "element 0 of a batch of 3 is wrong"
    assert "it gives float32[3], a call for it alone float32[20]" in wrong.evidence


def test_lists_are_batched_alone_and_with_the_rest() -> None:
    operator = products()

    @operator.vmap
    def _(info: Any, in_dims: Any, factors: list[Tensor], x: Tensor) -> Any:
        dims, dim = in_dims
        front = [to_front(f, d, info.batch_size) for f, d in zip(factors, dims, strict=True)]
        return operator(front, to_front(x, dim, info.batch_size)), 0

    outcomes = said(plan, operator)
    assert len(outcomes) == 6
    assert set(outcomes.values()) == {Passed()}, outcomes


def test_a_rule_that_forgets_a_tensor_fails_where_that_is_batched() -> None:
    operator = products(reference=False)

    @operator.vmap
    def _(info: Any, in_dims: Any, factors: list[Tensor], x: Tensor) -> Any:
        front = [f if d is None else f.movedim(d, 0)[0] for f, d in zip(factors, in_dims[0], strict=True)]
        return operator(front, to_front(x, in_dims[1], info.batch_size)), 0

    outcomes = said(plan, operator)
    assert outcomes["vmap", "float32-s0-1-dim0"] == Passed()
    wrong = outcomes["vmap", "float32-s0-0-dim0"]
    assert isinstance(wrong, Failed)
    assert wrong.reason == "element 1 of a batch of 3 is wrong"


def test_every_dtype_is_tried_at_full() -> None:
    operator = squaring(dtypes=(torch.float32, torch.int32))
    operator.vmap(lambda info, in_dims, x: (operator(x), in_dims[0]))
    outcomes = said(plan, operator, Level.FULL)
    assert len(outcomes) == 8
    assert set(outcomes.values()) == {Passed()}


def test_an_operator_that_writes_its_argument_is_skipped() -> None:
    @dotcu.op(name(), mutates_args=("x",))
    def square_(x: Tensor) -> None:
        x.copy_(multiply(x, x))

    square_.vmap(lambda info, in_dims, x: (square_(x), None))
    assert said(plan, square_) == {("vmap", ""): Skipped(reason="it writes its arguments")}
