"""The profile of one kernel launch: figures, what limits it, and why its warps wait at which line.

Source of sections, metrics and labels: the `.section` files of Nsight Compute 2025.1. Source of the stall
reasons: its Kernel Profiling Guide, "Warp Stall Reasons".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

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
    "sectors_per_load": ("memory", "sectors a load", "number",
        ("l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",)),
    "sectors_per_store": ("memory", "sectors a store", "number",
        ("l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",)),
    "bank_conflicts": ("memory", "bank conflicts", "number",
        ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",)),
    "theoretical_percent": ("occupancy", "theoretical", "percent",
        ("sm__maximum_warps_per_active_cycle_pct",)),
    "achieved_percent": ("occupancy", "achieved", "percent",
        ("sm__warps_active.avg.pct_of_peak_sustained_active",)),
    "registers": ("occupancy", "registers a thread", "number", ("launch__registers_per_thread",)),
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
    "barrier": "waits for the others at a barrier",
    "branch_resolving": "waits for a branch's target",
    "dispatch": "the dispatcher holds it back",
    "drain": "ends, and waits for its stores",
    "gmma": "waits for the tensor cores",
    "imc": "waits for a constant that is not in the cache",
    "lg": "too many loads and stores are under way",
    "long_sb": "waits for global or local memory",
    "math": "the arithmetic unit that it needs is busy",
    "membar": "waits at a memory fence",
    "mio": "the queue of shared memory and special functions is full",
    "misc": "another reason",
    "no_inst": "waits for its instructions",
    "not_selected": "could issue, and another warp did",
    "short_sb": "waits for shared memory or a special function",
    "sleep": "sleeps",
    "sleeping": "sleeps",
    "tex": "the queue of the texture unit is full",
    "wait": "waits a fixed time for the instruction before",
    "warpgroup_arrive": "waits for its warp group",
}
"""Why a sampled warp did not issue, by the end of Nsight Compute's `stall_...`."""


BUSY, ALIKE = 60.0, 10.0
"""Percent of the peak from which a unit bounds a kernel, and the distance up to which two bound it alike.
Source: the rule SpeedOfLight of Nsight Compute."""

SourceText = Callable[[str, int], str]
"""Returns a source line by the file's real path and the line's number; empty if it is not known."""


@dataclass(frozen=True, kw_only=True)
class KernelLaunch:
    """A launch in a report of ncu.

    Attributes:
        metrics: Value and unit by name, as ncu prints them; None for a value that is not a number.
    """

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
        file: Its real path where that is known; empty for instructions of no line.
        samples: How often a sampled warp stood at one of its instructions.
        stalls: The same for those that did not issue, by reason, the most frequent first.
        executed: How many instructions of it warps executed.
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
        """The resources that limit how many blocks fit; several where they do alike."""
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


def kernel_profiles(
    launches: Sequence[KernelLaunch],
    listings: Sequence[Listing],
    *,
    kernels: Sequence[str],
    files: Mapping[str, str],
    text_of: SourceText,
    native: bool = False,
) -> tuple[KernelProfile, ...]:
    """Join two pages of a report, launch by launch.

    Args:
        launches: With their metrics.
        listings: Kernel name and instructions of each launch.
        kernels: Names of dotcu's kernels: `square<float>`.
        files: The real path of each file name in line tables.
        text_of: Returns a source line.
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
                lines=_lines(instructions, files, text_of),
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


def _lines(instructions: Instructions, files: Mapping[str, str], text_of: SourceText) -> tuple[HotLine, ...]:
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
