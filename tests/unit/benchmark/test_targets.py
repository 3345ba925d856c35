"""Verification of an operator's results: by an oracle, or in the operator's own dtype."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.benchmark.targets import OperatorTarget
from dotcu.checking.subject import ReferenceCalls
from dotcu.operator import Operator, Sample
from helpers.derivable_operators import operator, subject


def body(x: Tensor) -> Tensor:
    return x * 3


def target(of: Operator) -> OperatorTarget:
    return OperatorTarget(subject(of), torch.float32)


@pytest.fixture(scope="module")
def tripling() -> OperatorTarget:
    return target(operator(body, reference=body))


def test_all_results_of_one_call_are_judged_together(tripling: OperatorTarget) -> None:
    x = torch.randn(100)
    bad = 3 * x
    bad[41] *= 1.001
    found = tripling.find_errors(Sample(x), {"a": (3 * x,), "b": (bad,), "c": ()})
    assert found["a"] == ""
    assert "output 0[41]" in found["b"]
    assert found["c"] == "it gives 0 tensors, its reference 1"


def test_where_float64_does_not_fit_the_reference_computes_in_the_operators_dtype() -> None:
    def reference(x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            raise torch.OutOfMemoryError("no memory")
        return x * 3

    judge = target(operator(body, reference=reference))
    x = torch.randn(100)
    found = judge.find_errors(Sample(x), {"a": (3 * x,), "b": (3.001 * x,)})
    assert found["a"] == ""
    assert "output 0[0]: got" in found["b"]
    assert judge.caveat == "compared in float32 with wide bounds: too little memory for float64"


def test_what_a_reference_says_to_float64_is_reported_and_nothing_where_it_takes_it(
    tripling: OperatorTarget,
) -> None:
    def reference(x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            raise TypeError("float32 only")
        return x * 3

    x = torch.randn(100)
    judge = target(operator(body, reference=reference))
    judge.find_errors(Sample(x), {"a": (3 * x,)})
    assert judge.caveat == (
        "compared in float32 with wide bounds: the reference fails in float64, TypeError: float32 only"
    )
    tripling.find_errors(Sample(x), {"a": (3 * x,)})
    assert tripling.caveat == ""


def test_a_reference_that_takes_no_call_or_calls_the_operator_is_an_error() -> None:
    def fails(x: Tensor) -> Tensor:
        raise ValueError("takes nothing")

    with pytest.raises(ValueError, match="takes nothing"):
        target(operator(body, reference=fails)).find_errors(Sample(torch.ones(2)), {"a": (torch.ones(2),)})
    made = operator(body)
    made.reference(lambda x: made(x))
    with pytest.raises(ReferenceCalls), target(made).context():
        target(made).find_errors(Sample(torch.ones(2)), {"a": (torch.ones(2),)})


def test_a_declared_tolerance_is_the_bound() -> None:
    @dotcu.op("referee_test::tolerant", tolerance=1e-2)
    def tolerant(x: Tensor) -> Tensor:
        return x * 3

    tolerant.reference(body)
    x = torch.rand(50) + 1
    found = target(tolerant).find_errors(Sample(x), {"a": (3.005 * x,), "b": (3.2 * x,)})
    assert found["a"] == ""
    assert found["b"]


def test_what_cannot_be_compared_is_said() -> None:
    assert "no reference" in target(operator(body)).unverified

    made = dotcu.op("referee_test::random", tags=(torch.Tag.nondeterministic_seeded,))(_random)
    made.reference(_random)
    assert "declared random" in target(made).unverified
    assert target(operator(body, reference=body)).unverified == ""


def _random(x: Tensor) -> Tensor:
    return torch.rand_like(x)


def test_what_a_call_wrote_is_among_its_results() -> None:
    def in_place(x: Tensor) -> None:
        x.mul_(3)

    judge = target(operator(in_place, reference=in_place, mutates_args=("x",)))
    sample = Sample(torch.ones(3))
    assert judge.written(sample) == sample.tensors
    assert judge.results(sample, None) == sample.tensors
    before: Any = torch.randn(10)
    assert judge.find_errors(Sample(before.clone()), {"a": (3 * before,)}) == {"a": ""}
