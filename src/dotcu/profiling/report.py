"""A profile, as values and as text.

dotcu::square on NVIDIA H200 (cuda:0), float32-16777216
    Sample(float32[16777216]); Nsight Compute 2025.3.1, clocks untouched, caches warm

  square<float>  grid (1056, 1, 1), block (256, 1, 1)
    speed of light  memory 92.1 %, compute (SM) 23.0 %: bound by memory
                    duration 31.2 µs, DRAM 92.1 %, ...
    memory          DRAM rate 4.3 TB/s, ...
    occupancy       theoretical 100.0 %, achieved 91.2 %, ...; 8 blocks fit, limited by warps
    stalls          4210 samples: 88 % long_sb, waits for global or local memory; ...
       %  line                why                    source
    81.3  kernel.cu:16        long_sb 92 %, wait 5 %  out[i] = static_cast<T>(x[i] * x[i]);
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dotcu import report_base, serialize
from dotcu.profiling.kernel import (
    COMPUTE,
    FIGURES,
    MEMORY,
    MINOR,
    STALLS,
    FigureKind,
    HotLine,
    KernelProfile,
)
from dotcu.profiling.ncu import MissingCounters
from dotcu.profiling.worker import KernelTiming

VERSION = 2
"""The version of the JSON form; docs/reference/reports.md has its keys."""

LINES, REASONS = 10, 3
"""How many lines of a kernel are shown, and how many reasons of a line."""

_BOUNDS = {
    "memory": "bound by memory",
    "compute": "bound by compute",
    "both": "bound by memory and compute alike",
    "neither": "neither is near its limit: it waits, or has too little to do",
    "": "",
}
_LABEL = 14  # characters of the first column
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_UNITS: dict[FigureKind, str] = {"bytes": "B", "rate": "B/s", "frequency": "Hz"}


@dataclass(frozen=True, kw_only=True)
class OperatorProfile:
    """One call of one operator.

    Attributes:
        device: As torch names it.
        ncu: The version of Nsight Compute; empty if it is not used or does not print one.
        kernels: In the order of their launches; empty without counters.
        timings: Where there are no counters.
        report: The `.ncu-rep` file; empty without counters.
        trace: The Chrome trace; empty with counters.
        missing_counters: Why there are no counters; None if there are.
        notes: Remarks on the whole.
    """

    operator: str
    case: str
    sample: str
    gpu: str
    device: str
    ncu: str = ""
    kernels: tuple[KernelProfile, ...] = ()
    timings: tuple[KernelTiming, ...] = ()
    report: str = ""
    trace: str = ""
    missing_counters: MissingCounters | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ProfileReport(report_base.Report):
    """The result of `dotcu profile`. `str()` of it is what the command prints."""

    profiles: tuple[OperatorProfile, ...]

    @property
    def counted(self) -> bool:
        """True if every operator has figures of Nsight Compute's."""
        return all(profile.missing_counters is None for profile in self.profiles)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values; its `version` changes when their meaning does."""
        return {
            "version": VERSION,
            "counted": self.counted,
            "profiles": [
                serialize.plain(one)
                | {
                    "kernels": [
                        serialize.plain(kernel) | {"bound": kernel.bound, "limiters": list(kernel.limiters)}
                        for kernel in one.kernels
                    ]
                }
                for one in self.profiles
            ],
        }

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = []
        for profile in self.profiles:
            parts += [*([Text()] if parts else []), *_operator(profile)]
        return Group(*parts)


def _operator(profile: OperatorProfile) -> Iterator[RenderableType]:
    yield Text.assemble((profile.operator, "bold"), f" on {profile.gpu} ({profile.device}), {profile.case}")
    missing = profile.missing_counters
    how = f"Nsight Compute {profile.ncu}".strip() + ", clocks untouched, caches warm"
    yield _in(Text(f"{profile.sample}; {how if missing is None else 'timed by CUPTI'}"), 4)
    for kernel in profile.kernels:
        yield Text()
        yield _in(Group(*_kernel(kernel)), 2)
    if missing is not None:
        yield Text()
        yield _in(Text(f"no counters: {missing.reason}", style="bold yellow"), 2)
        yield from (_in(Text(remedy), 4) for remedy in missing.remedies)
    if profile.timings:
        yield Text()
        yield _in(_timings(profile.timings), 2)
    yield Text()
    yield from (_in(Text(note), 2) for note in profile.notes)
    if profile.report:
        yield _in(Text(f"report: {profile.report}; open it in ncu-ui"), 2)
    if profile.trace:
        yield _in(Text(f"trace: {profile.trace}; open it in https://ui.perfetto.dev"), 2)


def _kernel(kernel: KernelProfile) -> Iterator[RenderableType]:
    by = "" if kernel.own else ", launched by torch"
    yield Text.assemble((short(kernel.name), "bold"), f"  grid {kernel.grid}, block {kernel.block}{by}")
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(min_width=_LABEL)
    grid.add_column(overflow="fold")
    for label, text in _rows(kernel):
        grid.add_row(Text(label), Text(text))
    yield _in(grid, 2)
    if kernel.lines:
        yield _in(_lines(kernel), 2)


def short(name: str) -> str:
    """Return a kernel's name without its result and parameters: `square<float>`."""
    name, depth = name.removeprefix("void "), 0
    for at, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and at:
            return name[:at]
    return name


def _rows(kernel: KernelProfile) -> Iterator[tuple[str, str]]:
    bound = _BOUNDS[kernel.bound]
    yield "speed of light", _figures(kernel, only=(MEMORY, COMPUTE)) + (f": {bound}" if bound else "")
    yield "", _figures(kernel, "speed of light")
    yield "memory", _figures(kernel, "memory")
    yield "occupancy", _figures(kernel, "occupancy") + _limited(kernel)
    yield "stalls", _stalled(kernel)


def _figures(kernel: KernelProfile, group: str = "", only: tuple[str, ...] = ()) -> str:
    """Return the figures of a group but for those that have a row of their own, or these in their order."""
    keys = only or [key for key in FIGURES if FIGURES[key][0] == group and key not in (MEMORY, COMPUTE)]
    shown = []
    for key in keys:
        (_, label, kind, _), value = FIGURES[key], kernel.figures.get(key)
        if value or key not in MINOR:
            shown.append(f"{label} {'not in the report' if value is None else quantity(value, kind)}")
    return ", ".join(shown)


def quantity(value: float, kind: FigureKind) -> str:
    """Return a value with its unit: `92.1 %`, `31.2 µs`, `4.31 TB/s`."""
    if kind == "percent":
        return f"{value:.1f} %"
    if kind == "time":
        return f"{value / 1e3:.4g} ms" if value >= 1e3 else f"{value:.4g} µs"
    if kind == "number":
        return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"
    size, prefix = next(((size, prefix) for size, prefix in _PREFIXES if value >= size), (1.0, ""))
    return f"{value / size:.3g} {prefix}{_UNITS[kind]}"


def _limited(kernel: KernelProfile) -> str:
    if not kernel.limits:
        return "; what limits it is not in the report"
    least = min(kernel.limits.values())
    return f"; {least} block{'' if least == 1 else 's'} fit, limited by {' and '.join(kernel.limiters)}"


def _stalled(kernel: KernelProfile) -> str:
    if not kernel.listed:
        return "the report has no instructions"
    if not kernel.samples:
        return "no samples: the kernel is too short; use larger --shapes"
    reasons = [
        f"{100 * n / kernel.samples:.0f} % {why}{f', {STALLS[why]}' if why in STALLS else ''}"
        for why, n in list(kernel.stalls.items())[:REASONS]
    ]
    return f"{kernel.samples} samples: {'; '.join(reasons) or 'none of them stalled'}"


def _lines(kernel: KernelProfile) -> Table:
    table = _table("% of samples")
    for name in ("line", "why", "source"):
        table.add_column(name, overflow="fold")
    for line in kernel.lines[:LINES]:
        share = f"{100 * line.samples / kernel.samples:.1f}"
        reasons = list(line.stalls.items())[:REASONS]
        why = ", ".join(f"{reason} {100 * n / line.samples:.0f} %" for reason, n in reasons)
        table.add_row(Text(share), Text(where(line)), Text(why), Text(line.text))
    rest = len(kernel.lines) - LINES
    if rest > 0:
        table.add_row("", Text(f"and {rest} more lines"))
    return table


def where(line: HotLine) -> str:
    """Return a line as `kernel.cu:16`."""
    return f"{Path(line.file).name}:{line.line}" if line.line else "of no line"


def _timings(timings: tuple[KernelTiming, ...]) -> Table:
    table = _table("µs", "min", "max", "per call")
    table.add_column("kernel", overflow="fold")
    for each in timings:
        spans = (f"{us:.2f}" for us in (each.median_us, each.min_us, each.max_us))
        table.add_row(*spans, f"{each.per_call:g}", Text(short(each.name)))
    return table


def _table(*numbers: str) -> Table:
    """A table that begins with columns of numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _in(renderable: RenderableType, indent: int) -> Padding:
    return Padding(renderable, (0, 0, 0, indent))
