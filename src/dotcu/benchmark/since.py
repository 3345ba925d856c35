"""What became of each row since a run that was saved, and which operators lost their comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from dotcu.benchmark import store
from dotcu.benchmark.comparing import Change, Incomparable, compare
from dotcu.benchmark.protocol import Protocol
from dotcu.benchmark.row import OWN, Key, Machine, Row
from dotcu.benchmark.store import Report, Run


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A row, and what became of it.

    Attributes:
        row: Of this run; of the earlier one where only that has it.
        change: None where nobody can tell.
        note: Why not, or what else differs.
        lost: Whether it is the operator's own, had figures then, was asked for now, and nobody can tell.
    """

    row: Row
    change: Change | None = None
    note: str = ""
    lost: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """All that is to be said of it."""
        return tuple(text for text in (self.note, self.change.note if self.change else "") if text)


def compare_runs(
    before: Path,
    report: Report,
    *,
    sources: Mapping[str, str] | None = None,
    whole: bool = False,
    confidence: float = 0.99,
    least: float = 0.01,
) -> list[Compared]:
    """What became of each row since an earlier run: in the order of this one, then what only that one has.

    Where the file has a row more than once, the latest with figures of this GPU's model counts.

    Args:
        sources: The digest of each operator's source, by its name.
        whole: Whether all operators were asked for: one that is not there any more is lost, then.

    Raises:
        UsageError: The file cannot be read.
    """
    then = _then(store.read(before), report.machine)
    names = sources or {}
    found: list[Compared] = []
    for row in report.rows:
        if row.key not in then:
            found.append(Compared(row=row, note=f"not in {before.name}"))
            continue
        run, old = then.pop(row.key)
        change = _change(run, old, report, row, confidence=confidence, least=least)
        found.append(_compared(row, old, change, _differences(run, report, row.key, names)))
    left = [row for _, row in then.values()]
    return found + [_only_then(row, before.name, report.rows, names, whole=whole) for row in left]


# ------------------------------------------------------------------ rows that both have


def _then(runs: Sequence[Run], machine: Machine) -> dict[Key, tuple[Run, Row]]:
    """The rows to compare with: a later one that cannot be does not hide an earlier one that can."""
    best: dict[Key, tuple[Run, Row]] = {}
    for run in runs:
        for row in run.rows:
            if row.key not in best or _use(run, row, machine) >= _use(*best[row.key], machine):
                best[row.key] = run, row
    return best


def _use(run: Run, row: Row, machine: Machine) -> int:
    return _has_figures(row) * (1 + (run.machine.gpu == machine.gpu))


def _has_figures(row: Row) -> bool:
    return row.status == "measured" and row.measured is not None


def _change(
    run: Run, old: Row, report: Report, row: Row, *, confidence: float, least: float
) -> Change | Incomparable:
    for when, one in (("then", old), ("now", row)):
        if not _has_figures(one):
            return Incomparable(f"no figures {when}: {one.status}")
    then, now = run.machine.gpu, report.machine.gpu
    if then != now:
        return Incomparable(
            f"gpu {then or 'unknown'} then, {now or 'unknown'} now: the code is not what differs; "
            "measure both on one model"
        )
    assert old.measured is not None
    assert row.measured is not None
    return compare(old.measured, row.measured, confidence=confidence, least=least)


def _compared(row: Row, old: Row, change: Change | Incomparable, differences: Iterator[str]) -> Compared:
    if isinstance(change, Change):
        return Compared(row=row, change=change, note="; ".join(differences))
    return Compared(row=row, note=change.reason, lost=row.key.contender == OWN and _has_figures(old))


def _differences(then: Run, now: Report, key: Key, sources: Mapping[str, str]) -> Iterator[str]:
    """What else differs between two runs of a row, and so may be why its time does."""
    before, after = ({"host": run.machine.host, **run.machine.versions} for run in (then, now))
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name) or "unknown", after.get(name) or "unknown"
        if old != new:
            yield f"{name} {old} then, {new} now"
    if then.machine.uuid != now.machine.uuid:
        yield f"another {now.machine.gpu or 'GPU'} than then"
    yield from _protocols(then.protocol, now.protocol)
    if key.op in sources and sources[key.op] == then.sources.get(key.op):
        yield "the source is the same"


def _protocols(then: Protocol, now: Protocol) -> Iterator[str]:
    for field in fields(Protocol):
        old, new = getattr(then, field.name), getattr(now, field.name)
        if old != new:
            yield f"protocol: {field.name} {old} then, {new} now"


# ------------------------------------------------------------------ rows that only the file has


def _only_then(
    old: Row, file: str, rows: Sequence[Row], sources: Mapping[str, str], *, whole: bool
) -> Compared:
    """A row of the file that this run lacks: lost where it should have it, else not asked for."""
    lost = old.key.contender == OWN and _has_figures(old)
    if whole and old.key.op not in {*sources, *(row.key.op for row in rows)}:
        return Compared(row=old, note=f"only in {file}: the operator is not there any more", lost=lost)
    cases, states = {(row.key.op, row.key.case) for row in rows}, {row.key.l2 for row in rows}
    asked = (old.key.op, old.key.case) in cases and old.key.l2 in states
    return Compared(row=old, note=f"only in {file}", lost=lost and asked)
