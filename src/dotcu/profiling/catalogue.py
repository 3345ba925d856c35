"""What is asked of Nsight Compute and what its names mean: sections, metrics, units, stall reasons.

Source of sections, metrics and labels: the `.section` files of Nsight Compute 2025.1. Source of the stall
reasons: its Kernel Profiling Guide, "Warp Stall Reasons".
"""

from __future__ import annotations

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
"""That are collected. What each holds depends on the GPU, so a report may lack some of the figures below."""

Kind = Literal["percent", "time", "bytes", "rate", "frequency", "number"]
Group = Literal["speed of light", "memory", "occupancy"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure that is shown.

    Attributes:
        key: Its name in JSON.
        metrics: What Nsight Compute calls it; the first that a report has counts.
        minor: Left out without a word where a report lacks it, or where it is zero.
    """

    key: str
    label: str
    group: Group
    kind: Kind
    metrics: tuple[str, ...]
    minor: bool = False


def _figure(group: Group, key: str, label: str, kind: Kind, *metrics: str, minor: bool = False) -> Figure:
    return Figure(key=key, label=label, group=group, kind=kind, metrics=metrics, minor=minor)


COMPUTE, MEMORY = "compute_percent", "memory_percent"

FIGURES = (
    _figure("speed of light", "duration_us", "duration", "time", "gpu__time_duration.sum"),
    _figure("speed of light", COMPUTE, "compute (SM)", "percent",
            "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
    _figure("speed of light", MEMORY, "memory", "percent",
            "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"),
    _figure("speed of light", "dram_percent", "DRAM", "percent",
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
            "dram__throughput.avg.pct_of_peak_sustained_elapsed"),
    _figure("speed of light", "l2_percent", "L2", "percent",
            "lts__throughput.avg.pct_of_peak_sustained_elapsed"),
    _figure("speed of light", "l1_percent", "L1", "percent",
            "l1tex__throughput.avg.pct_of_peak_sustained_active"),
    _figure("speed of light", "sm_hz", "SM clock", "frequency",
            "gpc__cycles_elapsed.avg.per_second", "smsp__cycles_elapsed.avg.per_second"),
    _figure("speed of light", "dram_hz", "DRAM clock", "frequency", "dram__cycles_elapsed.avg.per_second"),
    _figure("memory", "dram_rate", "DRAM rate", "rate", "dram__bytes.sum.per_second"),
    _figure("memory", "dram_read_bytes", "DRAM read", "bytes", "dram__bytes_read.sum"),
    _figure("memory", "dram_written_bytes", "DRAM written", "bytes", "dram__bytes_write.sum"),
    _figure("memory", "l2_hit_percent", "L2 hits", "percent", "lts__t_sector_hit_rate.pct"),
    _figure("memory", "l1_hit_percent", "L1 hits", "percent", "l1tex__t_sector_hit_rate.pct"),
    _figure("memory", "sectors_per_load", "sectors a load", "number",
            "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio", minor=True),
    _figure("memory", "sectors_per_store", "sectors a store", "number",
            "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio", minor=True),
    _figure("memory", "bank_conflicts", "bank conflicts", "number",
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", minor=True),
    _figure("occupancy", "theoretical_percent", "theoretical", "percent",
            "sm__maximum_warps_per_active_cycle_pct"),
    _figure("occupancy", "achieved_percent", "achieved", "percent",
            "sm__warps_active.avg.pct_of_peak_sustained_active"),
    _figure("occupancy", "registers", "registers a thread", "number", "launch__registers_per_thread"),
    _figure("occupancy", "static_smem_bytes", "static shared memory", "bytes",
            "launch__shared_mem_per_block_static", minor=True),
    _figure("occupancy", "dynamic_smem_bytes", "dynamic shared memory", "bytes",
            "launch__shared_mem_per_block_dynamic", minor=True),
    _figure("occupancy", "waves", "waves", "number", "launch__waves_per_multiprocessor"),
)  # fmt: skip

LIMITS = {
    "launch__occupancy_limit_registers": "registers",
    "launch__occupancy_limit_shared_mem": "shared memory",
    "launch__occupancy_limit_warps": "warps",
    "launch__occupancy_limit_blocks": "blocks",
    "launch__occupancy_limit_barriers": "barriers",
}
"""How many blocks fit a multiprocessor by each of its resources; the lowest limits them."""

_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIMES_US = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6,
             "second": 1e6}  # fmt: skip

UNITS: dict[Kind, dict[str, float]] = {
    "time": _TIMES_US,
    "bytes": {f"{scale}byte{per}": by for scale, by in _SCALES.items() for per in ("", "/block")},
    "rate": {f"{scale}byte/{per}": by for scale, by in _SCALES.items() for per in ("s", "second")}
    | {"byte/ns": 1e9, "byte/nsecond": 1e9},
    "frequency": {f"{scale}hz": by for scale, by in _SCALES.items()}
    | {"cycle/second": 1.0, "cycle/s": 1.0, "cycle/usecond": 1e6, "cycle/nsecond": 1e9, "cycle/ns": 1e9},
}
"""What a unit, in small letters, is of ours: microseconds, bytes, bytes a second, hertz."""

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
