"""What is planned, run: rows as they are done, and a report of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dotcu.benchmark.measured import Measured
from dotcu.benchmark.planned import Planned, Untimed
from dotcu.benchmark.protocol import Protocol
from dotcu.benchmark.row import Key, Row
from dotcu.benchmark.timing import Timed
from dotcu.benchmark.workloads.workload import Unfit
from fake_lab import FakeLab


class Case(Timed):
    """Has rows that were made before; notes when it is begun."""

    def __init__(self, lab: FakeLab, *given: Row) -> None:
        object.__setattr__(self, "lab", lab)
        object.__setattr__(self, "given", given)
        object.__setattr__(self, "contenders", ["a", "b"])

    def rows(self) -> Iterator[Row]:
        self.lab.log.append("inputs")  # type: ignore[attr-defined]
        yield from self.given  # type: ignore[attr-defined]


def row(**options: Any) -> Row:
    return Row(key=Key(op="a::b", case="c", contender="dotcu", l2="cold"), **options)


def unfit() -> Untimed:
    words = Unfit(name="float32-2^40", reason="needs 4096 GiB", status="skipped")
    return Untimed(op="a::b", dtype="float32", unfit=words)


def planned(lab: FakeLab, *cases: Timed | Untimed) -> Planned:
    return Planned(
        lab=lab, protocol=Protocol(), states=("cold", "warm"), cases=cases, sources={}, notes=("a note",)
    )


def test_the_gpus_limits_are_measured_once_before_the_first_inputs_are_made() -> None:
    lab = FakeLab()
    list(planned(lab, unfit(), Case(lab, row()), Case(lab, row())).run())
    assert lab.log == ["prepare", "inputs", "inputs"]


def test_nothing_is_measured_where_nothing_can_be_timed() -> None:
    lab = FakeLab()
    (found,) = planned(lab, unfit()).run()
    assert lab.log == []
    assert (found.key.case, found.status, found.reason) == ("float32-2^40", "skipped", "needs 4096 GiB")


def test_rows_to_come_are_counted() -> None:
    lab = FakeLab()
    assert planned(lab, unfit(), Case(lab)).total == 1 + 2 * 2


def test_a_report_tells_the_means_of_most_rows_and_what_holds_for_all() -> None:
    lab = FakeLab()
    by = [
        Measured(contender="dotcu", l2="cold", by=means, blocks=()) for means in ("events", "events", "cupti")
    ]
    report = planned(lab).report([row(measured=one) for one in by], interrupted=True)
    assert report.by == "events"
    assert report.notes[0] == "a note"
    assert report.interrupted
    assert planned(lab).report([]).by == "cupti"
