"""One case from its inputs to its rows, in the simulator, on a timer that makes its figures up."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from dotcu.benchmark import measuring, timing
from dotcu.benchmark.results import L2, OWN, BenchRow, Protocol
from dotcu.benchmark.targets import BareTarget, Baseline, OperatorTarget, bare_contenders, contenders
from dotcu.benchmark.timers import TimerFailed
from dotcu.benchmark.timing import CONSTANT_INPUTS, NOT_VERIFIED, TOO_LITTLE, TimedCase
from dotcu.benchmark.verify import TimedResults
from dotcu.benchmark.workloads import Workload, workloads
from dotcu.errors import EnvironmentFault
from dotcu.operator import Operator, Sample
from helpers.derivable_operators import operator, subject
from helpers.fake_device import FakeDevice

QUICK = Protocol(
    warmup_s=0.0, warmup_most_s=0.1, block_s=0.0, calls=4, blocks=4, most_blocks=6, least_s=0.0, sets=2
)


def triple(x: Tensor) -> Tensor:
    return x * 3


def case(
    op: Operator,
    *,
    against: Sequence[Baseline] = (),
    states: Sequence[L2] = ("cold",),
    device: FakeDevice | None = None,
    protocol: Protocol = QUICK,
) -> TimedCase:
    of = subject(op)
    workload = workloads(of)[0]
    assert isinstance(workload, Workload)
    return TimedCase(
        target=OperatorTarget(of, torch.float32), dtype="float32", workload=workload,
        contenders=contenders(of, against), states=states, device=device or FakeDevice(), protocol=protocol,
    )  # fmt: skip


def rows(of: TimedCase) -> list[BenchRow]:
    with of.target.context():
        return list(of.rows())


def until_interrupted(of: TimedCase) -> list[BenchRow]:
    """The rows that came before the interrupt."""
    found: list[BenchRow] = []
    with of.target.context(), pytest.raises(KeyboardInterrupt):
        found.extend(of.rows())
    return found


def out_of_memory(*args: object, **kwargs: object) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.fixture(autouse=True)
def _no_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip garbage collections between cases: each takes as long as the rest of a test."""
    monkeypatch.setattr(timing.gc, "collect", lambda: 0)


@pytest.fixture
def op() -> Operator:
    return operator(triple, Sample(torch.randn(100)), reference=triple)


def test_a_case_has_a_row_for_each_contender_and_state_of_l2(op: Operator) -> None:
    device = FakeDevice({OWN: 10.0, "eager": 20.0})
    found = rows(case(op, against=("eager",), states=("cold", "warm"), device=device))
    assert [(row.key.l2, row.key.contender, row.status) for row in found] == [
        ("cold", "dotcu", "measured"),
        ("cold", "eager", "measured"),
        ("warm", "dotcu", "measured"),
        ("warm", "eager", "measured"),
    ]
    assert [row.time.median_us for row in found if row.time] == [10.0, 20.0, 10.0, 20.0]
    assert found[0].marks == ()
    assert found[1].ratio is not None
    assert found[1].ratio.value == pytest.approx(2.0, rel=0.01)


# -------------------------------------------------------------- what fails ends no run


def test_new_values_that_do_not_fit_memory_skip_the_case(
    op: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dotcu.benchmark.targets.InputValues", out_of_memory)
    found = rows(case(op, against=("eager",), states=("cold", "warm")))
    assert [row.status for row in found] == ["skipped"] * 4
    assert found[0].reason.startswith("the GPU has too little memory: ")
    assert "CUDA out of memory" in found[0].reason


def test_a_cache_that_cannot_be_emptied_after_a_fault_loses_no_row(
    op: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "empty_cache", faulty)
    assert [row.status for row in rows(case(op))] == ["measured"]


def test_where_no_timer_works_rows_say_so(op: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    def after(timer: object, reason: str) -> Any:
        raise EnvironmentFault("Device time cannot be taken")

    monkeypatch.setattr(measuring, "after", after)
    found = rows(case(op, device=FakeDevice(failures=[TimerFailed("time went backwards")])))
    assert [(row.status, "Device time cannot be taken" in row.reason) for row in found] == [("failed", True)]


def test_states_that_were_measured_remain_where_a_later_one_fails(
    op: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm, calls = timing.measure, itertools.count()

    def measure(*args: Any, **kwargs: Any) -> Any:
        if next(calls):
            raise RuntimeError("the driver is gone")
        return calm(*args, **kwargs)

    monkeypatch.setattr(timing, "measure", measure)
    found = rows(case(op, against=("eager",), states=("cold", "warm")))
    assert [row.status for row in found] == ["measured", "measured", "failed", "failed"]
    assert "the driver is gone" in found[3].reason


def test_a_probe_without_memory_fails_no_contender(op: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dotcu.benchmark.verify.free_bytes", lambda device: 0)
    found = rows(case(op, against=("eager",)))
    assert [row.status for row in found] == ["measured", "measured"]
    assert found[0].marks == (TOO_LITTLE,)


# -------------------------------------------------------------- what is looked at


def test_a_contender_that_turns_wrong_in_a_late_block_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "MAX_BETWEEN", 0)
    calls = itertools.count()

    def turns_wrong(x: Tensor) -> Tensor:
        return x * 3 if next(calls) < limit else torch.zeros_like(x)

    limit = 10**9
    made = operator(turns_wrong, Sample(torch.randn(100)), reference=triple)
    long = replace(QUICK, blocks=30, most_blocks=30)
    assert rows(case(made, protocol=long))[0].status == "measured"
    limit, calls = next(calls) - 10 * QUICK.calls, itertools.count()
    found = rows(case(made, protocol=long))
    assert found[0].status == "wrong"
    assert "is wrong where it is timed" in found[0].reason


def test_inputs_that_do_not_vary_are_reported_on_the_operators_own_row() -> None:
    made = operator(triple, Sample(torch.arange(100)), reference=triple, dtypes=(torch.int64,))
    of = case(made, against=("eager",))
    found = rows(of)
    assert [row.status for row in found] == ["measured", "measured"]
    assert [CONSTANT_INPUTS in row.marks for row in found] == [True, False]


def test_a_bare_kernel_is_marked_too_since_what_it_reads_is_unknown() -> None:
    x, out = torch.randn(100), torch.empty(100)
    bare = BareTarget(
        name="triple", function=lambda: torch.mul(x, 3, out=out), device=torch.device("cpu"),
        reference=lambda: x * 3, outputs=(out,),
    )  # fmt: skip
    of = TimedCase(
        target=bare, dtype="", workload=bare.workload, contenders=bare_contenders(bare), states=("cold",),
        device=FakeDevice(), protocol=QUICK,
    )  # fmt: skip
    (row,) = rows(of)
    assert (row.status, row.marks) == ("measured", (CONSTANT_INPUTS,))


def test_calls_that_change_their_inputs_find_them_as_they_need_them() -> None:
    def append(cache: Tensor, place: Tensor, x: Tensor) -> None:
        cache[int(place)] = x
        place.add_(1)

    cache, place, x = torch.zeros(8, 16), torch.zeros((), dtype=torch.int64), torch.randn(16)
    made = operator(append, Sample(cache, place, x), reference=append, mutates_args=("cache", "place"))
    found = rows(case(made, against=("eager",)))
    assert [(row.status, row.reason) for row in found] == [("measured", ""), ("measured", "")]


# -------------------------------------------------------------- the operator's own row is not measured


def test_no_contender_is_compared_with_an_operator_that_is_wrong_where_it_is_timed(
    op: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimedResults, "verify", lambda self: self.wrong.update({OWN: "is wrong"}))
    own, eager = rows(case(op, against=("eager",)))
    assert (own.status, eager.status, eager.ratio) == ("wrong", "measured", None)


# -------------------------------------------------------------- interrupts


def test_an_interrupt_while_results_are_judged_keeps_what_was_measured(
    op: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: TimedResults) -> dict[str, str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(TimedResults, "verify", fails)
    found = until_interrupted(case(op, against=("eager",), states=("cold", "warm")))
    assert [(row.key.l2, row.status) for row in found] == [("cold", "measured")] * 2
    assert all(NOT_VERIFIED in row.marks for row in found)


def test_an_interrupt_while_a_limit_is_measured_keeps_what_was_measured(op: Operator) -> None:
    asked: list[object] = []

    def limit(work: object, l2: L2) -> None:
        asked.append(work)
        raise KeyboardInterrupt

    found = until_interrupted(case(op, against=("eager",), device=FakeDevice(limit=limit)))
    assert [(row.status, row.limit) for row in found] == [("measured", None)] * 2
    assert len(asked) == 1, "no limit is looked for any more"
