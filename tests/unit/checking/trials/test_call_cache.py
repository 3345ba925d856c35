"""The trial of the call cache in the simulator: it tells a body that is no function of its arguments."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

import dotcu
from dotcu import settings
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Failed, Outcome, Passed, Skipped
from dotcu.checking.trials import call_cache
from dotcu.operator import Operator
from fake_launch import fake_launch

kernels = dotcu.load_inline("""
__global__ void twice(const float* x, float* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
""")
calls: list[int] = []
_names = (f"trials_call_cache_test::op{i}" for i in itertools.count())


def make(*, drifting: bool = False, wanted: bool = True) -> Operator:
    @dotcu.op(next(_names), cache_calls=wanted)
    def twice(x: Tensor) -> Tensor:
        calls.append(1)
        blocks = dotcu.cdiv(x.numel(), 32) + (len(calls) if drifting else 0)
        out = torch.empty_like(x)
        kernels.twice(x, out, x.numel(), grid=blocks, block=32)
        return out

    twice.reference(lambda x: 2 * x)

    @twice.samples
    def _(device: torch.device, dtype: torch.dtype) -> list[dotcu.Sample]:
        return [dotcu.Sample(torch.randn(n, device=device, dtype=dtype)) for n in (3, 40)]

    return twice


def outcome_of(operator: Operator) -> Outcome:
    subject = Subject(overload=operator, device=torch.device("cpu"))
    (trial,) = call_cache.plan(subject)
    ((check, outcome),) = trial.run()
    assert check == "call-cache"
    return outcome


def test_a_body_that_follows_its_arguments_holds() -> None:
    assert outcome_of(make()) == Passed()


def test_a_body_that_follows_something_else_fails_with_the_difference() -> None:
    outcome = outcome_of(make(drifting=True))
    assert isinstance(outcome, Failed)
    assert outcome.reason == "a recorded call differs from the body"
    assert "grid" in outcome.evidence


def test_an_operator_that_is_never_replayed_is_not_looked_at() -> None:
    assert outcome_of(make(drifting=True, wanted=False)) == Skipped(reason="declared cache_calls=False")


def test_a_call_that_fails_anyway_is_no_fault_of_a_plan() -> None:
    @dotcu.op(next(_names))
    def fails(x: Tensor) -> Tensor:
        raise ValueError("not today")

    fails.samples(lambda device, dtype: [dotcu.Sample(torch.ones(2))])
    assert outcome_of(fails) == Skipped(reason="a call fails: not today")


launched = dotcu.load_inline("""
__global__ void scale_add(const float* a, const float* b, float alpha, float* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + alpha * b[i];
}
""")


def test_what_is_compared_with_the_body_are_calls_by_plan() -> None:
    @dotcu.op(next(_names))
    def doubled(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        n = x.numel()
        launched.scale_add(x, x, 1.0, out, n, grid=dotcu.cdiv(n, 32), block=32)
        return out

    doubled.samples(lambda device, dtype: [dotcu.Sample(torch.ones(n)) for n in (3, 40)])
    subject = Subject(overload=doubled, device=torch.device("cpu"))
    with fake_launch() as driver, settings.override(simulate=True):
        doubled.install_entries(torch.device("cpu"))
        cases = subject.given(torch.float32)
        assert call_cache.repeated(subject, cases) == Passed()
    assert driver.launches >= (call_cache.CALLS - 1) * len(cases)
