"""The time of an operator's first call, from the start of its process, by phase.

Two new processes make the call: the first finds the cache empty, the second what the first wrote to it. What
runs in them is in `first_call_child`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dotcu import report_base, serialize
from dotcu.errors import OperatorError
from dotcu.workers import Worker, WorkerCrash

VERSION = 2
"""The version of the JSON form; docs/reference/reports.md has its keys."""

Stage = Literal["start", "call"]
"""Before the call, or in it."""

Cache = Literal["empty", "filled"]
"""The cache that the call finds: empty, or filled by an earlier process."""

LIMIT_S = 600.0
"""Seconds that a process has for its first call, and again for the calls after it."""

_SHOWN_IMPORTS = 3


_STAY = "a process that stays pays for it once"
_WARM = "op.warm() does it earlier"
_FILLED = "a filled cache saves it: keep or ship DOTCU_CACHE_DIR"

STAGES: Mapping[Stage, tuple[str, str]] = {
    "start": ("before the call", _STAY),
    "call": ("the first call", _WARM),
}
"""The title of each stage, and what saves nearly all of it: the table has that once."""

PHASES: Mapping[str, tuple[str, str, str]] = {
    # before the call, unless it is in a step that reports itself
    "interpreter": ("Python", "a process and its interpreter start", _STAY),
    "torch": ("import torch", "its libraries are linked; read from disk the first time after a while", _STAY),
    "dotcu": ("import dotcu", "its modules, the simulator's among them", _STAY),
    "measuring": (
        "this measurement", "modules that only --first-call needs: your programs do not pay for it", "",
    ),
    "target": (
        "import target", "operators are registered, .cu files are read; none is compiled by that", "",
    ),
    "cuda": ("CUDA start", "the driver starts and finds its GPUs", "nvidia-smi -pm 1 keeps them awake"),
    "context": ("CUDA context", "the GPU gets memory and page tables for this process", _STAY),
    "allocator": ("first allocation", "torch asks the driver for a block, to cut later tensors from", ""),
    "inputs": (
        "inputs", "all samples are made, to take the first; torch loads kernels of its own for that", "",
    ),
    # in the call, or in the import of a file that compiles then
    "call": (
        "the rest of it", "dispatcher, checks of arguments, and the body, with torch's operators in it",
        _WARM,
    ),
    "imports": ("imports", "modules that are imported when they are needed", _WARM),
    "replay": ("call cache", "it is set up, so that later calls bypass torch's dispatcher", _WARM),
    "bindings": ("driver bindings", "cuda.bindings is imported", _WARM),
    "build": (
        "plan of the build", "a compiler is chosen, headers are read, the cache key is computed", _WARM,
    ),
    "cache": ("look in the cache", "what is there is read and checked", _WARM),
    "nvrtc": ("load NVRTC", "the compiler's libraries are mapped and linked", _FILLED),
    "compile": ("compile", "NVRTC makes a cubin and PTX of the source", _FILLED),
    "store": ("fill the cache", "an entry is written whole and synced to disk", _FILLED),
    "ptx": ("read the PTX", "for the kernel's parameters and limits", _WARM),
    "library": (
        "load library", "the driver takes the cubin; by lazy loading the GPU has nothing of it yet", _WARM,
    ),
    "kernel": ("get kernel", "the kernel is loaded onto the GPU, its attributes are set", _WARM),
    "jit": (
        "PTX JIT", "the driver compiles PTX and loads it: NVRTC has no code for this GPU",
        "a newer one saves it: dotcu doctor",
    ),
    "launch": ("launch", "the driver's first launch of it, without waiting for its end", _WARM),
    "decode": ("decode the PTX", "instructions become operations of NumPy", _WARM),
    "simulate": ("simulate", "the kernel runs on the CPU, with all checks", ""),
    "wait": ("wait for the GPU", "the call has returned, its result was not there yet", ""),
}  # fmt: skip
"""The label of each phase, what takes the time, and what saves it; in the order of the table."""

IN_SIMULATOR: Mapping[str, tuple[str, str, str]] = {
    "cuda": ("CUDA start", "torch looks for a GPU, and finds none", ""),
    "inputs": ("inputs", "all samples are made, to take the first", ""),
    "compile": ("compile", "NVRTC makes PTX of the source", _FILLED),
}
"""Phases that differ without a GPU."""

COUNTED = frozenset({"compile", "library", "kernel", "jit", "launch", "decode", "simulate"})
"""Phases whose count the table shows if it is more than one."""


@dataclass(frozen=True, kw_only=True)
class FirstCallRun:
    """A process that made the call for the first time, and some more calls.

    Attributes:
        phases: For each stage its phases, which are disjoint: milliseconds, and how often each occurred.
        whole_ms: From the start of the process to its first result, by a clock of the other process.
        imported: The modules that the call imported, without those that they import in turn.
        later_ms: The calls after the first, each with the wait for its result.
    """

    cache: Cache
    phases: Mapping[Stage, Mapping[str, tuple[float, int]]]
    whole_ms: float
    imported: tuple[str, ...] = ()
    later_ms: tuple[float, ...]

    def stage_ms(self, stage: Stage) -> float:
        """Return the sum of the phases of a stage."""
        return sum(ms for ms, _ in self.phases[stage].values())

    @property
    def remainder_ms(self) -> float:
        """The time of no phase. Two clocks differ: it may be slightly negative."""
        return self.whole_ms - sum(map(self.stage_ms, STAGES))


@dataclass(frozen=True, kw_only=True)
class FirstCall(report_base.Report):
    """The time of a first call by phase. `str()` of it is a table.

    Attributes:
        operator: The qualified name.
        sample: The arguments of the call: the first sample that has elements.
        device: `simulator`, or the GPU's name and number.
        recorded: True if the call cache made the calls from the third on.
        note: A remark; empty where there is none.
        runs: With the cache empty, then with it filled.
    """

    operator: str
    sample: str
    device: str
    recorded: bool
    versions: Mapping[str, str]
    note: str = ""
    runs: tuple[FirstCallRun, ...]

    @property
    def simulated(self) -> bool:
        """True if the kernels ran in the simulator, without a GPU."""
        return self.device == "simulator"

    @property
    def phases(self) -> Mapping[str, tuple[str, str, str]]:
        """The descriptions of phases that hold for its device."""
        return {**PHASES, **(IN_SIMULATOR if self.simulated else {})}

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values, with a `version` that changes when their meaning does."""
        report = {"version": VERSION, **serialize.plain(self)}
        for run, values in zip(self.runs, report["runs"], strict=True):
            values |= {f"{stage}_ms": run.stage_ms(stage) for stage in STAGES}
            values["remainder_ms"] = run.remainder_ms
            keys = ("stage", "name", "ms", "times", "label", "why", "avoid")
            values["phases"] = [
                dict(zip(keys, (stage, name, ms, times, *self.phases[name]), strict=True))
                for stage, phases in run.phases.items()
                for name, (ms, times) in phases.items()
            ]
        return report

    def __rich__(self) -> RenderableType:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        head = Text.assemble(
            (self.operator, "bold"), f", called for the first time in a new process, on {self.device}"
        )
        facts = [f"{self.sample}; {versions}", *([self.note] if self.note else [])]
        lines = [Padding(Text(line), (0, 0, 0, 4)) for line in facts]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("ms, by cache", no_wrap=True)
        for run in self.runs:
            table.add_column(run.cache, justify="right", no_wrap=True)
        table.add_column("what takes the time; what saves it", overflow="fold")
        for stage, (title, avoid) in STAGES.items():
            for label, cells, remark in self._phase_rows(stage):
                table.add_row(f"  {label}", *cells, remark)
            sums = [f"{run.stage_ms(stage):.2f}" for run in self.runs]
            table.add_row(title, *sums, f"the sum of these; {avoid}", style="bold")
        for label, figures, digits, remark in self._last_rows():
            cells = [f"{ms:.{digits}f}" for ms in figures]
            table.add_row(label, *cells, remark, style="bold" if label == "in all" else "")
        return Group(head, *lines, Text(), Padding(table, (0, 0, 0, 2)))

    def _phase_rows(self, stage: Stage) -> Iterator[tuple[str, list[str], str]]:
        """Yield the label of each phase of a stage, its time in each run, and a remark."""
        for name, (label, why, avoid) in self.phases.items():
            phases = [run.phases[stage].get(name) for run in self.runs]
            if not any(phases):
                continue
            times = max(phase[1] for phase in phases if phase)
            if times > 1 and name in COUNTED:
                label += f" x{times}"
            if name == "imports":
                imported = list(dict.fromkeys(module for run in self.runs for module in run.imported))
                more = len(imported) - _SHOWN_IMPORTS
                why += f": {', '.join(imported[:_SHOWN_IMPORTS])}" + (f" and {more} more" if more > 0 else "")
            if avoid not in ("", STAGES[stage][1]):
                why += f"; {avoid}"
            yield label, [f"{phase[0]:.2f}" if phase else "-" for phase in phases], why

    def _last_rows(self) -> list[tuple[str, list[float], int, str]]:
        """Return the rows below the stages, the whole and later calls: label, times, digits, a remark."""
        if self.simulated:
            second, third = "all is compiled, read and decoded", "the same"
        elif self.recorded:
            second = "the body runs once more and is traced, to record it in the call cache"
            third = "made by the call cache, without the body"
        else:
            second, third = "all is loaded", "not recorded in the call cache: op.call_cache says why"
        later = [run.later_ms for run in self.runs]
        whole = [run.whole_ms for run in self.runs]
        unattributed = "on the way from that process to the one that measured the whole"
        return [
            ("not attributed", [run.remainder_ms for run in self.runs], 2, unattributed),
            ("in all", whole, 2, "from the start of the process; another clock"),
            ("", [], 0, ""),
            ("second call", [ms[0] for ms in later], 3, second),
            ("third call", [ms[1] for ms in later], 3, third),
            (
                "a later call", [statistics.median(ms[2:]) for ms in later], 3,
                f"the median of {len(later[0]) - 2} more, each waited for",
            ),
        ]  # fmt: skip


ENTRY = "dotcu.benchmark.first_call_child:handle"

PRELUDE = """
import time
marks = [time.perf_counter()]
import torch
marks.append(time.perf_counter())
import dotcu.kernel, dotcu.operator
marks.append(time.perf_counter())
"""
"""Runs first in the process: takes the first times before any module of dotcu is there."""


def first_call(target: str, name: str | None = None) -> FirstCall:
    """Call an operator for the first time, in two processes of its own, and return the time of each phase.

    The operator is called on the first of its samples in its first dtype, on the GPU where there is one,
    else in the simulator. Compiled code comes from a temporary cache, not from the user's.

    Args:
        target: `ops.py` or `package.module`, which may have `:name`.
        name: The Python name of one operator in it; by default the first.

    Raises:
        UsageError: There is no such file, module or operator, or it has no samples.
        OperatorError: The call failed, or ended its process.
        DotcuError: Any other error of dotcu that the call raises.
    """
    whole = target if name is None else f"{target.partition(':')[0]}:{name}"
    facts: dict[str, Any] = {}
    runs = []
    with tempfile.TemporaryDirectory(prefix="dotcu-first-call-") as folder:
        for cache in get_args(Cache):
            run, facts = _run(whole, folder)
            runs.append({"cache": cache, **run})
    return serialize.from_plain(FirstCall, {**facts, "runs": runs})


def _run(target: str, folder: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run one process; return the fields of its run, and those of the report."""
    worker = Worker(ENTRY, prelude=PRELUDE)
    try:
        # Not the clock of the phases, and one that nothing sets or slews.
        begun_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        worker.send({"target": target, "folder": folder, "started": time.perf_counter()})
        run = worker.receive(LIMIT_S)
        whole_ms = (time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - begun_ns) / 1e6
        facts = worker.receive(LIMIT_S)
    except WorkerCrash as error:
        evidence = "".join(f"\n    {line}" for line in error.evidence.splitlines()[-5:])
        raise OperatorError(
            f"the first call of {target} failed: {error.reason}.{evidence}\n"
            f"A first call is timed if it returns a result.\nSee what is wrong: dotcu check {target}"
        ) from error
    finally:
        worker.close()
    return {**run, "whole_ms": whole_ms, "later_ms": facts.pop("later_ms")}, facts
