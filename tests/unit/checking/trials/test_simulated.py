"""The simulator's sanitizers beside a GPU; the trial itself needs none."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking.catalogue import Level
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped
from dotcu.checking.running import run_one
from dotcu.checking.subject import Subject
from dotcu.checking.trials import call
from dotcu.checking.trials.call import SANITIZERS
from dotcu.operator import Operator
from dotcu.simulator.machine.schedule import Scheduler
from helpers.check_reports import bare
from helpers.trial_operators import bug_of_dotcu

kernels = dotcu.load_inline("""
__global__ void twice(const float* x, float* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}

__global__ void through_a_surface(const float* x, float* out, long long n) {
    asm volatile("sust.b.1d.b32.trap [%0, {%1}], {%1};" ::"l"(1LL), "r"(0));
}
""")
_names = (f"trials_simulated_test::op{i}" for i in itertools.count())


def make(*, beyond: int = 0, kernel: str = "twice") -> Operator:
    @dotcu.op(next(_names), dtypes=(torch.float32, torch.float64))
    def twice(x: Tensor) -> Tensor:
        x = x.float()
        out = torch.empty_like(x)
        kernels.kernels[kernel](x, out, x.numel() + beyond, grid=2, block=32)
        return out

    twice.reference(lambda x: 2 * x.float())

    @twice.samples
    def _(device: torch.device, dtype: torch.dtype) -> list[dotcu.Sample]:
        return [dotcu.Sample(torch.randn(n, device=device, dtype=dtype)) for n in (40, 3)]

    return twice


def verdicts_of(operator: Operator, level: Level) -> list[list[CheckResult]]:
    """Of each trial that is planned beside a GPU."""
    subject = Subject(overload=operator, device=torch.device("cuda", 0), level=level)
    trials = list(call.plan_simulated(subject))
    assert all(trial.id.case.endswith("-s1") for trial in trials), "the smallest"
    return [[(result.check, bare(result)) for result in run_one(trial)] for trial in trials]


def test_a_sound_kernel_holds_by_all_four() -> None:
    (verdicts,) = verdicts_of(make(), Level.STANDARD)
    assert verdicts == [(name, Passed()) for name in SANITIZERS]


def test_at_the_full_level_each_dtype_is_tried() -> None:
    assert len(verdicts_of(make(), Level.FULL)) == 2


def test_a_finding_is_of_its_sanitizer() -> None:
    (((check, outcome),),) = verdicts_of(make(beyond=1), Level.QUICK)
    assert check == "sanitizer-bounds"
    assert isinstance(outcome, Failed)
    assert "out-of-bounds" in outcome.reason


def test_what_the_simulator_does_not_run_is_not_looked_at() -> None:
    (verdicts,) = verdicts_of(make(kernel="through_a_surface"), Level.QUICK)
    assert [check for check, _ in verdicts] == list(SANITIZERS)
    assert all(isinstance(outcome, Skipped) and "cannot run it" in outcome.reason for _, outcome in verdicts)


def test_on_the_cpu_every_call_is_simulated_already() -> None:
    assert list(call.plan_simulated(Subject(overload=make(), device=torch.device("cpu")))) == []


def test_a_bug_of_the_simulator_is_no_reason_to_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "run", bug_of_dotcu)
    (((_, failed),),) = verdicts_of(make(), Level.STANDARD)
    assert isinstance(failed, Failed)
    assert failed.reason == "dotcu itself is at fault: KeyError"
