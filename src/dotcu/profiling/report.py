"""Profiles of kernels: figures, what limits them, and why warps wait at which line; as values and as text.

dotcu::square on NVIDIA H200 (cuda:0), float32-16777216
    Sample(float32[16777216]); Nsight Compute 2025.3.1, clocks not locked, caches warm

  square<float>  grid (1056, 1, 1), block (256, 1, 1)
    speed of light  memory 92.1 %, compute (SM) 23.0 %: bound by memory
                    duration 31.2 µs, DRAM 92.1 %, ...
    memory          DRAM rate 4.3 TB/s, ...
    occupancy       theoretical 100.0 %, achieved 91.2 %, ...; 8 blocks fit, limited by warps
    stalls          4210 samples: 88 % long_sb, waits for global or local memory; ...
       %  line                why                    source
    81.3  kernel.cu:16        long_sb 92 %, wait 5 %  out[i] = static_cast<T>(x[i] * x[i]);

Source of sections, metrics and labels: the `.section` files of Nsight Compute 2025.1. Source of the stall
reasons: its Kernel Profiling Guide, "Warp Stall Reasons".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dotcu import report_base, serialize

SECTIONS = (
    "SpeedOfLight",
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Chart",
    "MemoryWorkloadAnalysis_Tables",
    "Occupancy",
    "LaunchStats",
    "SchedulerStats",
    "WarpStateStats",
    "SourceCounters",
)
"""The sections to collect. Their contents depend on the GPU: a report may lack some of the figures below."""

FigureKind = Literal["percent", "time", "bytes", "rate", "frequency", "number"]

Figure = tuple[Literal["speed of light", "memory", "occupancy"], str, FigureKind, tuple[str, ...]]
"""A figure's group, label and kind, and its metrics in Nsight Compute: the first that a report has counts."""

COMPUTE, MEMORY = "compute_percent", "memory_percent"

FIGURES: Mapping[str, Figure] = {
    "duration_us": ("speed of light", "duration", "time", ("gpu__time_duration.sum",)),
    COMPUTE: ("speed of light", "compute (SM)", "percent",
        ("sm__throughput.avg.pct_of_peak_sustained_elapsed",)),
    MEMORY: ("speed of light", "memory", "percent",
        ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",)),
    "dram_percent": ("speed of light", "DRAM", "percent",
        ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
         "dram__throughput.avg.pct_of_peak_sustained_elapsed")),
    "l2_percent": ("speed of light", "L2", "percent", ("lts__throughput.avg.pct_of_peak_sustained_elapsed",)),
    "l1_percent": ("speed of light", "L1", "percent",
        ("l1tex__throughput.avg.pct_of_peak_sustained_active",)),
    "sm_hz": ("speed of light", "SM clock", "frequency",
        ("gpc__cycles_elapsed.avg.per_second",
         "smsp__cycles_elapsed.avg.per_second")),
    "dram_hz": ("speed of light", "DRAM clock", "frequency", ("dram__cycles_elapsed.avg.per_second",)),
    "dram_rate": ("memory", "DRAM rate", "rate", ("dram__bytes.sum.per_second",)),
    "dram_read_bytes": ("memory", "DRAM read", "bytes", ("dram__bytes_read.sum",)),
    "dram_written_bytes": ("memory", "DRAM written", "bytes", ("dram__bytes_write.sum",)),
    "l2_hit_percent": ("memory", "L2 hits", "percent", ("lts__t_sector_hit_rate.pct",)),
    "l1_hit_percent": ("memory", "L1 hits", "percent", ("l1tex__t_sector_hit_rate.pct",)),
    "sectors_per_load": ("memory", "sectors per load", "number",
        ("l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",)),
    "sectors_per_store": ("memory", "sectors per store", "number",
        ("l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",)),
    "bank_conflicts": ("memory", "bank conflicts", "number",
        ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",)),
    "theoretical_percent": ("occupancy", "theoretical", "percent",
        ("sm__maximum_warps_per_active_cycle_pct",)),
    "achieved_percent": ("occupancy", "achieved", "percent",
        ("sm__warps_active.avg.pct_of_peak_sustained_active",)),
    "registers": ("occupancy", "registers per thread", "number", ("launch__registers_per_thread",)),
    "static_smem_bytes": ("occupancy", "static shared memory", "bytes",
        ("launch__shared_mem_per_block_static",)),
    "dynamic_smem_bytes": ("occupancy", "dynamic shared memory", "bytes",
        ("launch__shared_mem_per_block_dynamic",)),
    "waves": ("occupancy", "waves", "number", ("launch__waves_per_multiprocessor",)),
}  # fmt: skip
"""The figures of a profile, by their names in JSON."""

MINOR = {"sectors_per_load", "sectors_per_store", "bank_conflicts", "static_smem_bytes", "dynamic_smem_bytes"}
"""Figures that are left out of the text where a report lacks them, or where they are zero."""

LIMITS = {
    "launch__occupancy_limit_registers": "registers",
    "launch__occupancy_limit_shared_mem": "shared memory",
    "launch__occupancy_limit_warps": "warps",
    "launch__occupancy_limit_blocks": "blocks",
    "launch__occupancy_limit_barriers": "barriers",
}
"""Metrics of how many blocks fit a multiprocessor, each by one resource; the lowest limits them."""

_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIMES_US = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6,
             "second": 1e6}  # fmt: skip

UNITS: dict[FigureKind, dict[str, float]] = {
    "time": _TIMES_US,
    "bytes": {f"{scale}byte{per}": by for scale, by in _SCALES.items() for per in ("", "/block")},
    "rate": {f"{scale}byte/{per}": by for scale, by in _SCALES.items() for per in ("s", "second")}
    | {"byte/ns": 1e9, "byte/nsecond": 1e9},
    "frequency": {f"{scale}hz": by for scale, by in _SCALES.items()}
    | {"cycle/second": 1.0, "cycle/s": 1.0, "cycle/usecond": 1e6, "cycle/nsecond": 1e9, "cycle/ns": 1e9},
}
"""The factor from a unit, in small letters, to microseconds, bytes, bytes a second or hertz."""

SELECTED = "selected"
"""Samples of warps that did issue."""

STALLS = {
    "barrier": "waits for other warps at a barrier",
    "branch_resolving": "waits for the target of a branch",
    "dispatch": "the dispatcher is not ready",
    "drain": "waits for its stores before it exits",
    "gmma": "waits for the tensor cores",
    "imc": "waits for a constant that missed the cache",
    "lg": "the queue of local and global memory is full",
    "long_sb": "waits for global or local memory",
    "math": "the arithmetic unit is busy",
    "membar": "waits at a memory fence",
    "mio": "the queue of shared memory and special functions is full",
    "misc": "another reason",
    "no_inst": "waits for instructions to be fetched",
    "not_selected": "was ready, but another warp was chosen",
    "short_sb": "waits for shared memory or a special function",
    "sleep": "sleeps",
    "sleeping": "sleeps",
    "tex": "the queue of the texture unit is full",
    "wait": "waits for the fixed latency of the previous instruction",
    "warpgroup_arrive": "waits for the other warps of its warp group",
}
"""Why a sampled warp did not issue, by the end of Nsight Compute's `stall_...`."""


BUSY, ALIKE = 60.0, 10.0
"""Percent of the peak from which a unit bounds a kernel, and the distance up to which both units do.
Source: the rule SpeedOfLight of Nsight Compute."""


@dataclass(frozen=True, kw_only=True)
class KernelLaunch:
    """A launch in a report of ncu, with value and unit of each metric; None for a value that is no number."""

    name: str
    grid: str
    block: str
    metrics: Mapping[str, tuple[float | None, str]]


@dataclass(frozen=True, kw_only=True)
class SampledInstruction:
    """A machine instruction in a report of ncu.

    Attributes:
        samples: How often a sampled warp stood at it.
        stalls: The same by reason, without reasons that no sample had.
        executed: By how many warps it was executed.
        location: File and line, where the report has them.
    """

    address: int
    text: str
    samples: int
    stalls: Mapping[str, int]
    executed: int
    location: tuple[str, int] | None = None


Instructions = tuple[SampledInstruction, ...]
Listing = tuple[str, Instructions]
"""The name of a launched kernel, and its instructions."""


@dataclass(frozen=True, kw_only=True)
class HotLine:
    """A source line at which warps were seen.

    Attributes:
        file: Its real path where that is known; empty for instructions without a line.
        samples: How often a sampled warp stood at one of its instructions.
        stalls: Samples that did not issue, by reason, the most frequent first.
        executed: The number of its instructions that warps executed.
    """

    file: str
    line: int
    text: str
    samples: int
    stalls: Mapping[str, int]
    executed: int


@dataclass(frozen=True, kw_only=True)
class KernelProfile:
    """One launch of a kernel.

    Attributes:
        name: As ncu prints it, with its parameters.
        own: Whether dotcu or the operator's library launched it; else torch did, for one of them.
        figures: By the key of `FIGURES`; None for what the report lacks.
        limits: How many blocks fit a multiprocessor by each resource.
        samples: Of all its instructions.
        stalls: Of all its instructions, as a `HotLine` has them.
        lines: The one with the most samples first.
        listed: Whether the report has its instructions.
    """

    name: str
    own: bool
    grid: str
    block: str
    figures: Mapping[str, float | None]
    limits: Mapping[str, int]
    samples: int
    stalls: Mapping[str, int]
    lines: tuple[HotLine, ...]
    listed: bool

    @property
    def limiters(self) -> tuple[str, ...]:
        """The resources that limit how many blocks fit."""
        least = min(self.limits.values(), default=0)
        return tuple(name for name, blocks in self.limits.items() if blocks == least)

    @property
    def bound(self) -> str:
        """The bound: memory, compute, both, or neither; empty if the report lacks the figures."""
        compute, memory = self.figures.get(COMPUTE), self.figures.get(MEMORY)
        if compute is None or memory is None:
            return ""
        if max(compute, memory) < BUSY:
            return "neither"
        if abs(compute - memory) < ALIKE:
            return "both"
        return "memory" if memory > compute else "compute"


@dataclass(frozen=True, kw_only=True)
class KernelTiming:
    """The times of a kernel, copy or fill by CUPTI's records, and how often one call runs it."""

    name: str
    per_call: float
    median_us: float
    min_us: float
    max_us: float


@dataclass(frozen=True, kw_only=True)
class MissingCounters:
    """A reason for which there are no counters.

    Attributes:
        kind: `refused`, the system does not permit them; `missing`, there is no ncu; `failed`, it failed.
        reason: In words.
        remedies: What to do, each in a line or more.
    """

    kind: Literal["refused", "missing", "failed"]
    reason: str
    remedies: tuple[str, ...] = ()


def kernel_profiles(
    launches: Sequence[KernelLaunch],
    listings: Sequence[Listing],
    *,
    kernels: Sequence[str],
    files: Mapping[str, str],
    text_of: Callable[[str, int], str],
    native: bool = False,
) -> tuple[KernelProfile, ...]:
    """Join two pages of a report, launch by launch.

    Args:
        launches, listings: The pages.
        kernels: Names of dotcu's kernels: `square<float>`.
        files: The real path of each file name in line tables.
        text_of: Returns a line of a file; empty if it is not known.
        native: Whether a library launched them: then all are its own but those with a name of torch's.
    """
    names = {kernel.partition("<")[0] for kernel in kernels}
    profiles = []
    for launch, instructions in _joined(launches, listings):
        limits = {words: launch.metrics.get(name, (None, ""))[0] for name, words in LIMITS.items()}
        profiles.append(
            KernelProfile(
                name=launch.name,
                own=not _OF_TORCH.match(launch.name) if native else is_of(launch.name, names),
                grid=launch.grid,
                block=launch.block,
                figures={key: value_of(key, launch) for key in FIGURES},
                limits={words: int(value) for words, value in limits.items() if value is not None},
                samples=sum(instruction.samples for instruction in instructions),
                stalls=_stalls(instructions),
                lines=_hot_lines(instructions, files, text_of),
                listed=bool(instructions),
            )
        )
    return tuple(profiles)


_OF_TORCH = re.compile(r"(?:void )?at::")
"""How the names of torch's kernels begin."""

_UNNAMED = re.compile(r"<unnamed>::|\(anonymous namespace\)::|_GLOBAL__N__\w+::")
"""How tools spell a namespace without a name, in which dotcu knows a kernel by its own name."""


def is_of(name: str, kernels: set[str]) -> bool:
    """Return whether a name with template arguments and parameters is that of one of some kernels."""
    name = _UNNAMED.sub("", name)
    plain = re.split(r"[<(]", name, maxsplit=1)[0].split()[-1:]  # `void` may be before it
    return bool(plain) and plain[0].removeprefix("::") in kernels


def _joined(
    launches: Sequence[KernelLaunch], listings: Sequence[Listing]
) -> Iterator[tuple[KernelLaunch, Instructions]]:
    """Yield each launch with its instructions: in order where there are as many, else by name."""
    left = list(listings)
    for launch in launches:
        is_next = len(launches) == len(listings)
        match = next((listing for listing in left if is_next or listing[0] == launch.name), None)
        if match is not None:
            left.remove(match)
        yield launch, match[1] if match is not None else ()


def value_of(key: str, launch: KernelLaunch) -> float | None:
    """Return a figure in microseconds, bytes, bytes a second, hertz or percent; None if it is missing."""
    _, _, kind, metrics = FIGURES[key]
    for name in metrics:
        value, unit = launch.metrics.get(name, (None, ""))
        scale = UNITS[kind].get(unit.lower()) if kind in UNITS else 1.0
        if value is not None and scale is not None:
            return value * scale
    return None


def _stalls(instructions: Sequence[SampledInstruction]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for instruction in instructions:
        counts.update({why: n for why, n in instruction.stalls.items() if why != SELECTED})
    return dict(counts.most_common())


def _hot_lines(
    instructions: Instructions, files: Mapping[str, str], text_of: Callable[[str, int], str]
) -> tuple[HotLine, ...]:
    groups: dict[tuple[str, int], list[SampledInstruction]] = {}
    for instruction in instructions:
        file, line = instruction.location or ("", 0)
        groups.setdefault((files.get(file, file), line), []).append(instruction)
    lines = [
        HotLine(
            file=file,
            line=line,
            text=text_of(file, line) if line else "",
            samples=sum(each.samples for each in group),
            stalls=_stalls(group),
            executed=sum(each.executed for each in group),
        )
        for (file, line), group in groups.items()
    ]
    return tuple(sorted((line for line in lines if line.samples), key=lambda line: -line.samples))


VERSION = 2
"""The version of the JSON form; docs/reference/reports.md has its keys."""

LINES, REASONS = 10, 3
"""How many lines of a kernel are shown, and how many reasons of a line."""

_BOUNDS = {
    "memory": "bound by memory",
    "compute": "bound by compute",
    "both": "bound by both memory and compute",
    "neither": "far from both limits: it mostly waits, or has too little work",
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
    how = f"Nsight Compute {profile.ncu}".strip() + ", clocks not locked, caches warm"
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
        yield _in(_line_table(kernel), 2)


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
        return "; the report does not say what limits it"
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


def _line_table(kernel: KernelProfile) -> Table:
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
    return f"{Path(line.file).name}:{line.line}" if line.line else "no line"


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
