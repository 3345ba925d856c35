"""The head of a report: on what, how, and in which state of the GPU its figures were taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from dotcu.benchmark.measured import Clocks
from dotcu.benchmark.row import Machine

if TYPE_CHECKING:
    from dotcu.benchmark.report import BenchReport

_TOLD_OF_MEANS = {
    "cupti": "by CUPTI",
    "graph": "by replay of a CUDA graph",
    "events": "between CUDA events, launch included",
}

_CLOCKS: tuple[tuple[str, str, Callable[[Clocks], float | None]], ...] = (
    ("SM ", "MHz", lambda clocks: clocks.sm_mhz),
    ("memory ", "MHz", lambda clocks: clocks.memory_mhz),
    ("", "°C", lambda clocks: clocks.temperature_c),
    ("", "W", lambda clocks: clocks.power_w),
)

_VERSIONS = ("driver", "torch", "nvrtc", "dotcu")

_NAMES = {"sm": "SM"}  # of clocks, where they are written otherwise than NVML's keys


def lines(report: BenchReport) -> Iterator[Text]:
    """A few lines; without a GPU, only what the estimates were made with."""
    yield Text(machine(report.machine))
    if report.rows:
        yield Text(_protocol(report))
    if told := _state(report):
        yield Text(told)
    for note in report.notes:
        yield Text(note, style="yellow")


def machine(found: Machine) -> str:
    """What a run was made on and with, in a line; the versions that it leaves out are in the JSON."""
    told = [f"{name} {found.versions[name]}" for name in _VERSIONS if found.versions.get(name)]
    return ", ".join([found.gpu or "no GPU", *told])


def _protocol(report: BenchReport) -> str:
    p = report.protocol
    return (
        f"device time {_TOLD_OF_MEANS[report.by]}: median ± half its {p.confidence:.0%} interval; "
        f"{p.blocks} to {p.most_blocks} blocks of {p.calls} to {p.most_calls} calls by turns, "
        f"{p.sets} sets of inputs"
    )


def _state(report: BenchReport) -> str:
    """Clocks, temperature and power, from the least to the most that was seen between blocks."""
    blocks = [block for row in report.rows if row.measured for block in row.measured.blocks]
    seen = [clocks for block in blocks for clocks in (block.before, block.after)]
    told = []
    for name, unit, of in _CLOCKS:
        values = [value for clocks in seen if (value := of(clocks)) is not None]
        if values:
            low, high = f"{min(values):.0f}", f"{max(values):.0f}"
            told.append(f"{name}{low if low == high else f'{low} to {high}'} {unit}")
    most = ", ".join(f"{_NAMES.get(name, name)} {mhz} MHz" for name, mhz in report.machine.clocks.items())
    return ", ".join(told) + (f"; highest {most}" if most else "") if told else ""
