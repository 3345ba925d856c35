"""The check `ranks`: operators that are right alone, or on two ranks, and wrong in a group."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking import planning
from dotcu.checking.results import CheckResult, Passed, trial
from dotcu.checking.subject import Subject
from dotcu.checking.trials import ranks
from dotcu.workers import WorkerCrash

kernels = dotcu.load_inline(r"""
#include <dotcu/peers.cuh>

__global__ void add_up(const float* const* xs, unsigned* const* pads, int rank, int ranks, int added,
                       bool meets, float* out, int n) {
    if (meets) dotcu::meet_ranks<0>(pads, rank, ranks);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        out[i] = 0;
        for (int r = 0; r < added; ++r) out[i] += xs[r][i];
    }
    if (meets) dotcu::meet_ranks<1>(pads, rank, ranks);
}

__global__ void pass_on(float* const* xs, int rank, int ranks, float* out, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        xs[(rank + 1) % ranks][i] = 1;
        out[i] = xs[rank][i];
    }
}
""")


def launch(x: Tensor, group_name: str, most: int) -> Tensor:
    peers, out = dotcu.peers(x, group_name), torch.empty_like(x)
    pointers = (peers.pointers, peers.signals, peers.rank, peers.size)
    kernels.add_up(*pointers, min(most, peers.size), True, out, x.numel(), grid=1, block=32)
    return out


@dotcu.op("checked_ranks::add_all")
def add_all(x: Tensor, group_name: str = "") -> Tensor:
    return launch(x, group_name, 99)


@dotcu.op("checked_ranks::add_two")
def add_two(x: Tensor, group_name: str = "") -> Tensor:
    return launch(x, group_name, 2)


@dotcu.op("checked_ranks::unmet")
def unmet(x: Tensor, group_name: str = "") -> Tensor:
    peers, out = dotcu.peers(x.clone(), group_name), torch.empty_like(x)
    kernels.pass_on(peers.pointers, peers.rank, peers.size, out, x.numel(), grid=1, block=32)
    return out


for operator in (add_all, add_two, unmet):

    @operator.reference
    def _(x: Tensor, group_name: str = "") -> Tensor:
        return torch.stack(dotcu.all_gather(x, group_name)[0]).sum(0)

    @operator.samples
    def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
        yield dotcu.Sample(torch.randn(40, device=device))


def tried(operator: dotcu.Operator) -> list[tuple[str, str]]:
    report = dotcu.check(operator, only=f"{operator.qualified_name}/ranks", device="simulator")
    return [(result.check, result.reason) for result in report.failures]


def test_what_is_right_on_every_rank_passes() -> None:
    assert tried(add_all) == []


def test_what_is_right_on_two_ranks_alone_fails_with_rank_and_values() -> None:
    ((check, reason),) = tried(add_two)
    assert check == "ranks"
    assert reason.startswith("rank 0 of 3: the first call: output 0 has")


def test_ranks_that_race_fail_the_check_of_races() -> None:
    assert [check for check, _ in tried(unmet)] == ["sanitizer-race"]


@pytest.mark.parametrize("operator", [add_all, add_two], ids=lambda operator: operator.qualified_name)
def test_alone_both_are_right(operator: dotcu.Operator) -> None:
    report = dotcu.check(operator, only=f"{operator.qualified_name}/call/float32-s0", device="simulator")
    assert report.passed, str(report)


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> Subject:
    """add_all as a GPU's, without one."""
    monkeypatch.setattr(Subject, "given", lambda self, dtype: [])
    (overload,) = add_all.overloads.values()
    return Subject(overload=overload, device=torch.device("cuda"))


def in_a_group(subject: Subject) -> bool:
    """Run a trial, and say whether it was in a process group."""
    seen: list[bool] = []

    def look(subject: Subject) -> CheckResult:
        seen.append(torch.distributed.is_initialized())
        return Passed()

    assert list(planning._in_group(subject, trial(subject, "ranks", look)).run()) == [Passed()]
    return seen == [True]


def test_a_process_has_a_group_while_a_trial_runs_and_none_after_it(on_gpu: Subject) -> None:
    list(ranks.plan(on_gpu))
    assert not torch.distributed.is_initialized()
    assert in_a_group(on_gpu)
    assert not torch.distributed.is_initialized()


def test_a_group_of_ones_own_is_used_and_stays(on_gpu: Subject) -> None:
    ranks.join(0, 1, "")
    try:
        own = torch.distributed.group.WORLD
        assert in_a_group(on_gpu)
        assert torch.distributed.group.WORLD is own
    finally:
        torch.distributed.destroy_process_group()


def test_a_build_of_torch_that_has_nccl_needs_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    with ranks.alone():
        assert torch.distributed.get_backend() == "gloo"


def test_a_trial_that_fails_leaves_the_group(on_gpu: Subject) -> None:
    def look(subject: Subject) -> CheckResult:
        raise ValueError("of the operator")

    with pytest.raises(ValueError, match="of the operator"):
        list(planning._in_group(on_gpu, trial(on_gpu, "ranks", look)).run())
    assert not torch.distributed.is_initialized()


def test_of_ranks_in_processes_the_first_that_ends_is_blamed_and_not_one_that_waits_for_it() -> None:
    start = time.monotonic()
    with pytest.raises(WorkerCrash, match=r"^rank 1 of 2: the process died: SIGSEGV$") as raised:
        list(ranks.replies("helpers.fake_workers:echo", [["hang"], ["segfault"]], 30.0))
    assert "the last words" in raised.value.evidence
    assert time.monotonic() - start < 25.0, "nobody waits for the other"


def test_the_replies_of_ranks_in_processes_come_with_the_rank() -> None:
    told = list(ranks.replies("helpers.fake_workers:echo", [["a"], ["b"]], 30.0))
    assert sorted((rank, reply[0]) for rank, reply in told) == [(0, "a"), (1, "b")]
