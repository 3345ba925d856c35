"""A first call as people read it: a line a phase, with what takes the time and what avoids it.

mylib::scale_add, called for the first time in a new process, on NVIDIA H200 (cuda:0)
    Sample(float32[1], float32[1]); torch 2.11.0, CUDA 13.0, Python 3.12.3

  ms, by cache        empty   filled  what takes the time; what saves it
    import torch    1950.21  1948.70  its libraries are linked; ...
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dotcu.benchmark.first_call.catalogue import CALL, COMMON, COUNTED, START, Stage, about

if TYPE_CHECKING:
    from dotcu.benchmark.first_call.report import FirstCall, Run

SHOWN = 3
"""How many of the modules that the call imported are named."""

_HEADS = {"start": "before the call", "call": "the first call"}


class Row(NamedTuple):
    """A line of the table: its label, a cell for each run, and what to know."""

    label: str
    cells: tuple[str, ...]
    words: str = ""
    style: str = ""


def table(report: FirstCall) -> RenderableType:
    """The whole report."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    head = Text.assemble(
        (report.operator, "bold"), f", called for the first time in a new process, on {report.device}"
    )
    said = [f"{report.sample}; {versions}", *([report.note] if report.note else [])]
    lines = [Padding(Text(line), (0, 0, 0, 4)) for line in said]
    return Group(head, *lines, Text(), Padding(_grid(report), (0, 0, 0, 2)))


def _grid(report: FirstCall) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    grid.add_column("ms, by cache", no_wrap=True)
    for run in report.runs:
        grid.add_column(run.cache, justify="right", no_wrap=True)
    grid.add_column("what takes the time; what saves it", overflow="fold")
    for row in _rows(report):
        grid.add_row(Text(row.label), *map(Text, row.cells), Text(row.words), style=row.style)
    return grid


def _rows(report: FirstCall) -> Iterator[Row]:
    yield from _stage(report, "start")
    yield from _stage(report, "call")
    rest = tuple(_ms(run.remainder_ms) for run in report.runs)
    yield Row("not attributed", rest, "on the way from that process to the one that measured the whole")
    whole = tuple(_ms(run.whole_ms) for run in report.runs)
    yield Row("in all", whole, "from the start of the process; another clock", "bold")
    yield Row("", tuple("" for _ in report.runs))
    yield from _later(report)


def _stage(report: FirstCall, stage: Stage) -> Iterator[Row]:
    """The phases of a stage in the order of the catalogue, then their sum."""
    for name in (*START, *CALL):
        found = [run.find(stage, name) for run in report.runs]
        if not any(found):
            continue
        told = about(name, simulated=report.simulated)
        times = max(phase.times for phase in found if phase is not None)
        label = f"{told.label} x{times}" if times > 1 and name in COUNTED else told.label
        cells = tuple(_ms(phase.ms) if phase is not None else "-" for phase in found)
        names = f": {_names(report)}" if name == "imports" else ""
        avoid = f"; {told.avoid}" if told.avoid not in ("", COMMON[stage]) else ""
        yield Row(f"  {label}", cells, told.why + names + avoid)
    total = tuple(_ms(run.stage_ms(stage)) for run in report.runs)
    yield Row(_HEADS[stage], total, f"the sum of these; {COMMON[stage]}", "bold")


def _names(report: FirstCall) -> str:
    """The first few modules that the call imported."""
    names = list(dict.fromkeys(name for run in report.runs for name in run.imported))
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _later(report: FirstCall) -> Iterator[Row]:
    if report.simulated:
        second, third = "all is compiled, read and decoded", "the same"
    elif report.planned:
        second = "the body runs once more and is followed, to make a plan of what it does"
        third = "replayed by the plan, without the body"
    else:
        second, third = "all is loaded", "not replayed by a plan: op.replay says why"
    yield Row("second call", _of(report, lambda run: run.later_ms[0]), second)
    yield Row("third call", _of(report, lambda run: run.later_ms[1]), third)
    more = len(report.runs[0].later_ms) - 2
    words = f"the median of {more} more, each waited for"
    yield Row("a later call", _of(report, lambda run: statistics.median(run.later_ms[2:])), words)


def _of(report: FirstCall, figure: Callable[[Run], float]) -> tuple[str, ...]:
    return tuple(f"{figure(run):.3f}" for run in report.runs)


def _ms(value: float) -> str:
    return f"{value:.2f}"
