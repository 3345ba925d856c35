"""What is ready to be timed, and what comes of it: rows on a GPU, bounds without one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dotcu.benchmark.estimate import Estimate
from dotcu.benchmark.lab import Lab
from dotcu.benchmark.machine import machine
from dotcu.benchmark.measured import L2, Means
from dotcu.benchmark.protocol import Protocol
from dotcu.benchmark.report import BenchReport
from dotcu.benchmark.row import OWN, Key, Row
from dotcu.benchmark.timing import Timed
from dotcu.benchmark.workloads.workload import Unfit


@dataclass(frozen=True, kw_only=True)
class Untimed:
    """A case that is not timed, and why."""

    op: str
    dtype: str
    unfit: Unfit

    def row(self, l2: L2) -> Row:
        """The line that says so."""
        key = Key(op=self.op, case=self.unfit.name, contender=OWN, l2=l2)
        return Row(key=key, dtype=self.dtype, status=self.unfit.status, reason=self.unfit.reason)


@dataclass(frozen=True, kw_only=True, eq=False)
class Planned:
    """Cases that are ready to be timed on a GPU.

    Attributes:
        sources: The digest of each operator's source, by its name.
        notes: What holds for all rows.
    """

    lab: Lab
    protocol: Protocol
    states: Sequence[L2]
    cases: Sequence[Timed | Untimed]
    sources: Mapping[str, str]
    notes: Sequence[str] = ()

    @property
    def total(self) -> int:
        """The rows to come."""
        each = (len(c.contenders) * len(self.states) if isinstance(c, Timed) else 1 for c in self.cases)
        return sum(each)

    def run(self) -> Iterator[Row]:
        """The rows, as they are done.

        Raises:
            KeyboardInterrupt: The user's; the rows of what was measured until then came before.
        """
        is_ready = False
        with self.lab.current():
            for case in self.cases:
                if isinstance(case, Untimed):
                    yield case.row(self.states[0])
                    continue
                if not is_ready:
                    self.lab.prepare()  # before the first inputs take memory
                    is_ready = True
                yield from case.rows()

    def report(self, rows: Sequence[Row], *, interrupted: bool = False) -> BenchReport:
        """What the rows say together."""
        return BenchReport(
            machine=self.lab.machine,
            protocol=self.protocol,
            by=_by(rows) or self.lab.timer.name,
            rows=tuple(rows),
            notes=(*self.notes, *self.lab.notes),
            sources=self.sources,
            interrupted=interrupted,
        )


def _by(rows: Sequence[Row]) -> Means | None:
    """The means by which most rows were measured."""
    means = [row.measured.by for row in rows if row.measured is not None]
    return Counter(means).most_common(1)[0][0] if means else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Bounded:
    """What can be told without a GPU, once it was told."""

    lab: Lab
    protocol: Protocol
    estimate: Estimate
    total: int = 0
    notes: Sequence[str] = field(default=())

    def run(self) -> Iterator[Row]:
        """No row: nothing can be measured."""
        return iter(())

    def report(self, rows: Sequence[Row], *, interrupted: bool = False) -> BenchReport:
        """The bounds."""
        return BenchReport(
            machine=machine(self.lab.device), protocol=self.protocol, by="events", rows=(),
            notes=tuple(self.notes), estimate=self.estimate, interrupted=interrupted,
        )  # fmt: skip
