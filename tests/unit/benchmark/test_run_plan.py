"""What is planned, run: rows as they are done, and a report of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dotcu.benchmark.bencher import BenchPlan
from dotcu.benchmark.results import BenchKey, BenchRow, Measured, Protocol
from dotcu.benchmark.timing import TimedCase
from helpers.fake_device import FakeDevice


class Case(TimedCase):
    """Has rows that were made before; notes when it is begun."""

    def __init__(self, device: FakeDevice, *given: BenchRow) -> None:
        object.__setattr__(self, "device", device)
        object.__setattr__(self, "given", given)
        object.__setattr__(self, "contenders", ["a", "b"])

    def rows(self) -> Iterator[BenchRow]:
        self.device.log.append("inputs")  # type: ignore[attr-defined]
        yield from self.given  # type: ignore[attr-defined]


def row(**options: Any) -> BenchRow:
    return BenchRow(key=BenchKey(op="a::b", case="c", contender="dotcu", l2="cold"), **options)


def untimed() -> BenchRow:
    return row(status="skipped", reason="needs 4096 GiB")


def planned(device: FakeDevice, *cases: TimedCase | BenchRow) -> BenchPlan:
    return BenchPlan(
        device=device,
        protocol=Protocol(),
        states=("cold", "warm"),
        cases=cases,
        sources={},
        notes=("a note",),
    )


def test_the_gpus_limits_are_measured_once_before_the_first_inputs_are_made() -> None:
    device = FakeDevice()
    list(planned(device, untimed(), Case(device, row()), Case(device, row())).run())
    assert device.log == ["bandwidths", "inputs", "inputs"]


def test_nothing_is_measured_where_nothing_can_be_timed() -> None:
    device = FakeDevice()
    (found,) = planned(device, untimed()).run()
    assert device.log == []
    assert (found.status, found.reason) == ("skipped", "needs 4096 GiB")


def test_rows_to_come_are_counted() -> None:
    device = FakeDevice()
    assert planned(device, untimed(), Case(device)).total == 1 + 2 * 2


def test_a_report_shows_the_means_of_most_rows_and_what_holds_for_all() -> None:
    device = FakeDevice()
    by = [
        Measured(contender="dotcu", l2="cold", by=means, blocks=()) for means in ("events", "events", "cupti")
    ]
    report = planned(device).report([row(measured=one) for one in by], seconds=1.0, interrupted=True)
    assert report.by == "events"
    assert report.notes[0] == "a note"
    assert report.interrupted
    assert planned(device).report([], seconds=1.0, interrupted=False).by == "cupti"
