"""Who says whether results are right: by an oracle, piece by piece, or in the operator's own dtype."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.benchmark import referee as module
from dotcu.benchmark.referee import OverloadReferee, wrong
from dotcu.checking import numerics
from dotcu.checking.subject import ReferenceCalls
from dotcu.operator import Operator, Sample
from subjects import operator, subject


def body(x: Tensor) -> Tensor:
    return x * 3


def referee(of: Operator) -> OverloadReferee:
    return OverloadReferee(subject=subject(of), dtype=torch.float32)


@pytest.fixture(scope="module")
def tripling() -> OverloadReferee:
    return referee(operator(body, reference=body))


def test_all_results_of_one_call_are_judged_together(tripling: OverloadReferee) -> None:
    x = torch.randn(100)
    bad = 3 * x
    bad[41] *= 1.001
    found = tripling.judge(Sample(x), {"a": (3 * x,), "b": (bad,), "c": ()})
    assert found["a"] == ""
    assert "output 0[41]" in found["b"]
    assert found["c"] == "it gives 0 tensors, its reference 1"


class TestPieces:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "PIECE", 16)

    @pytest.mark.parametrize(
        "dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int32, torch.bool]
    )
    def test_they_say_what_the_whole_says(self, dtype: torch.dtype) -> None:
        x = (torch.randn(7, 15) * 9).to(dtype)
        oracle = numerics.oracle(torch.Tensor.clone, Sample(x))
        assert wrong((x.clone(),), oracle) == ""
        bad = x.clone()
        bad[5, 3] = ~bad[5, 3] if dtype == torch.bool else bad[5, 3] + 7
        assert f"1 of {32 if x.is_complex() else 16} elements are wrong" in wrong((bad,), oracle)
        assert "counted from element 64 of output 0 on" in wrong((bad,), oracle)

    def test_nan_is_only_right_where_it_is_expected(self) -> None:
        x = torch.randn(50)
        x[44] = torch.nan
        oracle = numerics.oracle(torch.Tensor.clone, Sample(x))
        assert wrong((x.clone(),), oracle) == ""
        bad = x.clone()
        bad[20] = torch.nan
        assert "are not finite where they must be" in wrong((bad,), oracle)

    def test_errors_that_each_element_is_allowed_are_not_allowed_to_all(self) -> None:
        x = torch.randn(4000)
        oracle = numerics.oracle(torch.Tensor.clone, Sample(x))
        each = (x.double() + 0.9 * oracle.bounds[0]).float()
        assert "as a whole" in wrong((each,), oracle)
        assert not numerics.judge(each, oracle).held


def test_where_float64_does_not_fit_the_reference_computes_in_the_operators_dtype() -> None:
    def reference(x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            raise torch.OutOfMemoryError("no memory")
        return x * 3

    judge = referee(operator(body, reference=reference))
    x = torch.randn(100)
    found = judge.judge(Sample(x), {"a": (3 * x,), "b": (3.001 * x,)})
    assert found["a"] == ""
    assert "output 0[0]: got" in found["b"]
    assert judge.told == "compared in float32 with wide bounds: memory does not reach for float64"


def test_what_a_reference_says_to_float64_is_told_and_nothing_where_it_takes_it(
    tripling: OverloadReferee,
) -> None:
    def reference(x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            raise TypeError("float32 only")
        return x * 3

    x = torch.randn(100)
    judge = referee(operator(body, reference=reference))
    judge.judge(Sample(x), {"a": (3 * x,)})
    assert judge.told == (
        "compared in float32 with wide bounds: the reference fails in float64, TypeError: float32 only"
    )
    tripling.judge(Sample(x), {"a": (3 * x,)})
    assert tripling.told == ""


def test_a_reference_that_takes_no_call_or_calls_the_operator_is_an_error() -> None:
    def fails(x: Tensor) -> Tensor:
        raise ValueError("takes nothing")

    with pytest.raises(ValueError, match="takes nothing"):
        referee(operator(body, reference=fails)).judge(Sample(torch.ones(2)), {"a": (torch.ones(2),)})
    made = operator(body)
    made.reference(lambda x: made(x))
    with pytest.raises(ReferenceCalls), referee(made).place():
        referee(made).judge(Sample(torch.ones(2)), {"a": (torch.ones(2),)})


def test_a_declared_tolerance_is_the_bound() -> None:
    @dotcu.op("referee_test::tolerant", tolerance=1e-2)
    def tolerant(x: Tensor) -> Tensor:
        return x * 3

    tolerant.reference(body)
    x = torch.rand(50) + 1
    found = referee(tolerant).judge(Sample(x), {"a": (3.005 * x,), "b": (3.2 * x,)})
    assert found["a"] == ""
    assert found["b"]


def test_what_cannot_be_compared_is_said() -> None:
    assert "no reference" in referee(operator(body)).why_not

    made = dotcu.op("referee_test::random", tags=(torch.Tag.nondeterministic_seeded,))(_random)
    made.reference(_random)
    assert "declared random" in referee(made).why_not
    assert referee(operator(body, reference=body)).why_not == ""


def _random(x: Tensor) -> Tensor:
    return torch.rand_like(x)


def test_what_a_call_wrote_is_among_its_results() -> None:
    def in_place(x: Tensor) -> None:
        x.mul_(3)

    judge = referee(operator(in_place, reference=in_place, mutates_args=("x",)))
    sample = Sample(torch.ones(3))
    assert judge.written(sample) == sample.tensors
    assert judge.results(sample, None) == sample.tensors
    before: Any = torch.randn(10)
    assert judge.judge(Sample(before.clone()), {"a": (3 * before,)}) == {"a": ""}
