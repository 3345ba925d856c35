"""The rows of a report: by operator and case, contenders of one state of L2 under each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from rich.text import Text

from dotcu.benchmark.rendering.figures import claims, merged, rate, si, times, us
from dotcu.benchmark.rendering.grid import Column, Grid, Line
from dotcu.benchmark.rendering.notes import Notes, notes, reason
from dotcu.benchmark.row import OWN, Row
from dotcu.benchmark.statistics import Ratio, Summary

if TYPE_CHECKING:
    from dotcu.benchmark.report import BenchReport

_COLUMNS = (
    Column(right=False),  # state of L2
    Column(right=False),  # contender
    Column(head="µs"),
    Column(head="± %"),
    Column(head="IQR %", spare=2),
    Column(head="n", spare=3),
    Column(head="host µs", spare=1),
    Column(head="rate"),
    Column(head="% limit"),
    Column(head="× dotcu"),
    Column(right=False),  # numbers of notes
)

_CALM = {"skipped": "dim"}  # what came of a row that is no fault, with its style

_T = TypeVar("_T")


def grid(report: BenchReport) -> Grid:
    """All rows, in one grid, so that the figures of all operators stand under each other."""
    lines: list[Line] = []
    for op, rows in _grouped([(row.key.op, row) for row in report.rows]).items():
        lines += [Line(), *_operator(report, op, rows)]
    return Grid(columns=_COLUMNS, lines=lines)


def _operator(report: BenchReport, op: str, rows: Sequence[Row]) -> Iterator[Line]:
    claimed = claims(row.work for row in rows if row.work)
    yield Line(words=Text.assemble((op, "bold"), (f"  {claimed}" if claimed else "", "dim")))
    for limit in _limits(rows):
        yield Line(indent=2, words=Text(limit, style="dim"))
    if any(row.time for row in rows):
        yield Line(cells=tuple(Text(column.head, style="bold") for column in _COLUMNS))
    told = notes(report, rows)
    for case, some in _grouped([(row.key.case, row) for row in rows]).items():
        yield Line(indent=2, words=Text.assemble(case, (_facts(some), "dim")))
        for state in _grouped([(row.key.l2, row) for row in some]).values():
            for place, row in enumerate(state):
                yield _line(report, row, told, first=place == 0)
    yield from told.lines()


def _grouped(pairs: Sequence[tuple[str, _T]]) -> Mapping[str, list[_T]]:
    groups: dict[str, list[_T]] = {}
    for name, value in pairs:
        groups.setdefault(name, []).append(value)
    return groups


# ------------------------------------------------------------------ what is measured against


def _limits(rows: Sequence[Row]) -> Iterator[str]:
    """What sets the limits, in each state of L2; once where that makes no difference."""
    whats = [(row.key.l2, row.limit.what) for row in rows if row.limit]
    told = {state: tuple(dict.fromkeys(merged(some).values())) for state, some in _grouped(whats).items()}
    if len(set(told.values())) == 1:
        told = {"": next(iter(told.values()))}
    for state, some in told.items():
        for what in some:
            yield f"limit{f', {state}' if state else ''}: {what}"


def _facts(rows: Sequence[Row]) -> str:
    """The work of a case, and the least time that it takes."""
    work = next((row.work for row in rows if row.work), None)
    facts = [] if work is None or not work.bytes else [si(work.bytes, "B")]
    if work is not None and work.flops:
        facts.append(si(work.flops, "FLOP"))
    least = {row.key.l2: f"{us(row.limit.time_us)} µs" for row in rows if row.limit}
    if len(set(least.values())) == 1:
        facts.append(f"limit {next(iter(least.values()))}")
    elif least:
        facts.append(f"limit {', '.join(f'{time} {state}' for state, time in least.items())}")
    return f"  {', '.join(facts)}" if facts else ""


# ------------------------------------------------------------------ what came of it


def _line(report: BenchReport, row: Row, told: Notes, *, first: bool) -> Line:
    own = "bold" if row.key.contender == OWN else ""
    who = (Text(row.key.l2 if first else ""), Text(row.key.contender, style=own))
    marks = Text(told.references(row), style="yellow")
    if row.time is None:
        return Line(indent=4, cells=who, words=_without_figures(row, marks))
    time = Text(us(row.time.median_us), style=own)
    return Line(indent=4, cells=(*who, time, *_figures(report, row, row.time), marks))


def _figures(report: BenchReport, row: Row, time: Summary) -> tuple[Text, ...]:
    """What follows the median."""
    return (
        Text(f"{100 * time.noise:.1f}", style="yellow" if time.noise > report.protocol.noise else ""),
        Text(f"{100 * (time.p75_us - time.p25_us) / time.median_us:.1f}"),
        Text(str(time.n)),
        Text(f"{row.host.median_us:.1f}" if row.host else ""),
        Text(rate(row)),
        Text("" if row.percent is None else f"{row.percent:.1f}"),
        _against(row.ratio),
    )


def _against(ratio: Ratio | None) -> Text:
    if ratio is None:
        return Text()
    style = "green" if ratio.low > 1 else "red" if ratio.high < 1 else "dim"
    return Text(times(ratio), style=style)


def _without_figures(row: Row, marks: Text) -> Text:
    style = _CALM.get(row.status)
    status = Text(row.status, style=style) if style else Text(row.status.upper(), style="bold red")
    told = reason(row)
    return Text.assemble(status, f": {told}" if told else "", " " if marks else "", marks)
