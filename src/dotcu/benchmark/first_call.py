"""The time of an operator's first call, from the start of its process, by phase.

Two new processes make the call: the first finds the cache empty, the second what the first wrote to it. What
runs in them is in `first_call_child`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, get_args

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dotcu import report_base
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

SHOWN_IMPORTS = 3
"""Modules imported by the call that the table names."""


# ------------------------------------------------------------------ the phases


class PhaseInfo(NamedTuple):
    """A phase of the catalogue.

    Attributes:
        label: Its name in the table.
        why: What takes the time.
        avoid: What saves the time; empty where nothing does.
    """

    label: str
    why: str
    avoid: str = ""


_WARM = "op.warm() does it earlier"
_FILLED = "a filled cache saves it: keep or ship DOTCU_CACHE_DIR"
_STAY = "a process that stays pays for it once"

COMMON: Mapping[Stage, str] = {"start": _STAY, "call": _WARM}
"""What saves nearly all of a stage: the table says it once."""

START: Mapping[str, PhaseInfo] = {
    "interpreter": PhaseInfo("Python", "a process and its interpreter start", _STAY),
    "torch": PhaseInfo(
        "import torch",
        "its libraries are linked; read from disk the first time after a while",
        _STAY,
    ),
    "dotcu": PhaseInfo("import dotcu", "its modules, the simulator's among them", _STAY),
    "measuring": PhaseInfo(
        "this measurement", "modules that only --first-call needs: your programs do not pay for it"
    ),
    "target": PhaseInfo(
        "import target", "operators are registered, .cu files are read; none is compiled by that"
    ),
    "cuda": PhaseInfo(
        "CUDA start", "the driver starts and finds its GPUs", "nvidia-smi -pm 1 keeps them awake"
    ),
    "context": PhaseInfo("CUDA context", "the GPU gets memory and page tables for this process", _STAY),
    "allocator": PhaseInfo(
        "first allocation", "torch asks the driver for a block, to cut later tensors from"
    ),
    "inputs": PhaseInfo(
        "inputs", "all samples are made, to take the first; torch loads kernels of its own for that"
    ),
}
"""The phases before the call, in order."""

CALL: Mapping[str, PhaseInfo] = {
    "call": PhaseInfo(
        "the rest of it", "dispatcher, checks of arguments, and the body, with torch's operators in it", _WARM
    ),
    "imports": PhaseInfo("imports", "modules that are imported when they are needed", _WARM),
    "replay": PhaseInfo("call cache", "it is set up, so that later calls bypass torch's dispatcher", _WARM),
    "bindings": PhaseInfo("driver bindings", "cuda.bindings is imported", _WARM),
    "build": PhaseInfo(
        "plan of the build", "a compiler is chosen, headers are read, the cache key is computed", _WARM
    ),
    "cache": PhaseInfo("look in the cache", "what is there is read and checked", _WARM),
    "nvrtc": PhaseInfo("load NVRTC", "the compiler's libraries are mapped and linked", _FILLED),
    "compile": PhaseInfo("compile", "NVRTC makes a cubin and PTX of the source", _FILLED),
    "store": PhaseInfo("fill the cache", "an entry is written whole and synced to disk", _FILLED),
    "ptx": PhaseInfo("read the PTX", "for the kernel's parameters and limits", _WARM),
    "library": PhaseInfo(
        "load library", "the driver takes the cubin; by lazy loading the GPU has nothing of it yet", _WARM
    ),
    "kernel": PhaseInfo("get kernel", "the kernel is loaded onto the GPU, its attributes are set", _WARM),
    "jit": PhaseInfo(
        "PTX JIT", "the driver compiles PTX and loads it: NVRTC has no code for this GPU",
        "a newer one saves it: dotcu doctor",
    ),
    "launch": PhaseInfo("launch", "the driver's first launch of it, without waiting for its end", _WARM),
    "decode": PhaseInfo("decode the PTX", "instructions become operations of NumPy", _WARM),
    "simulate": PhaseInfo("simulate", "the kernel runs on the CPU, with all checks"),
    "wait": PhaseInfo("wait for the GPU", "the call has returned, its result was not there yet"),
}  # fmt: skip
"""The phases in the call. A step that reports itself (`dotcu.stopwatch.Step`) may also come before the call:
in a file that compiles when it is imported."""

COUNTED = frozenset({"compile", "library", "kernel", "jit", "launch", "decode", "simulate"})
"""Phases whose count the table shows if it is more than one."""

IN_SIMULATOR: Mapping[str, PhaseInfo] = {
    "cuda": PhaseInfo("CUDA start", "torch looks for a GPU, and finds none"),
    "inputs": PhaseInfo("inputs", "all samples are made, to take the first"),
    "compile": PhaseInfo("compile", "NVRTC makes PTX of the source", _FILLED),
}
"""Phases that differ without a GPU."""


def phase_info(phase: str, *, simulated: bool) -> PhaseInfo:
    """Return the description of a phase."""
    return IN_SIMULATOR[phase] if simulated and phase in IN_SIMULATOR else {**START, **CALL}[phase]


# ------------------------------------------------------------------ the report


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of the time, disjoint with all others.

    Attributes:
        name: A key of `START` or `CALL`.
        times: How often it occurred.
    """

    stage: Stage
    name: str
    ms: float
    times: int


@dataclass(frozen=True, kw_only=True)
class FirstCallRun:
    """A process that made the call for the first time, and some more calls.

    Attributes:
        whole_ms: From the start of the process to its first result, by a clock of the other process.
        imported: The modules that the call imported, without those that they import in turn.
        later_ms: The calls after the first, each with the wait for its result.
    """

    cache: Cache
    phases: tuple[Phase, ...]
    whole_ms: float
    imported: tuple[str, ...] = ()
    later_ms: tuple[float, ...]

    def stage_ms(self, stage: Stage) -> float:
        """Return the sum of the phases of a stage."""
        return sum(phase.ms for phase in self.phases if phase.stage == stage)

    @property
    def remainder_ms(self) -> float:
        """The time of no phase. Two clocks differ: it may be slightly negative."""
        return self.whole_ms - sum(phase.ms for phase in self.phases)

    def find(self, stage: Stage, name: str) -> Phase | None:
        """Return a phase; None if it did not occur."""
        return next((p for p in self.phases if (p.stage, p.name) == (stage, name)), None)


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

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values, with a `version` that changes when their meaning does."""
        return {
            "version": VERSION,
            "operator": self.operator,
            "sample": self.sample,
            "device": self.device,
            "recorded": self.recorded,
            "versions": dict(self.versions),
            "note": self.note,
            "runs": [self._run_json(run) for run in self.runs],
        }

    def _run_json(self, run: FirstCallRun) -> dict[str, Any]:
        return {
            "cache": run.cache,
            "whole_ms": run.whole_ms,
            "start_ms": run.stage_ms("start"),
            "call_ms": run.stage_ms("call"),
            "remainder_ms": run.remainder_ms,
            "imported": list(run.imported),
            "later_ms": list(run.later_ms),
            "phases": [
                {**asdict(phase), **phase_info(phase.name, simulated=self.simulated)._asdict()}
                for phase in run.phases
            ],
        }

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
        for label, cells, words, style in _rows(self):
            table.add_row(Text(label), *map(Text, cells), Text(words), style=style)
        return Group(head, *lines, Text(), Padding(table, (0, 0, 0, 2)))


# ------------------------------------------------------------------ the table

_Row = tuple[str, tuple[str, ...], str, str]
"""A label, a cell for each run, a remark and a style."""


def _rows(report: FirstCall) -> Iterator[_Row]:
    def of_runs(figure: Callable[[FirstCallRun], float], digits: int = 2) -> tuple[str, ...]:
        return tuple(f"{figure(run):.{digits}f}" for run in report.runs)

    for stage, title in (("start", "before the call"), ("call", "the first call")):
        yield from _phase_rows(report, stage)  # type: ignore[arg-type]
        total = of_runs(lambda run: run.stage_ms(stage))  # type: ignore[arg-type]  # noqa: B023
        yield title, total, f"the sum of these; {COMMON[stage]}", "bold"  # type: ignore[index]
    words = "on the way from that process to the one that measured the whole"
    yield "not attributed", of_runs(lambda run: run.remainder_ms), words, ""
    yield "in all", of_runs(lambda run: run.whole_ms), "from the start of the process; another clock", "bold"
    yield "", tuple("" for _ in report.runs), "", ""
    if report.simulated:
        second, third = "all is compiled, read and decoded", "the same"
    elif report.recorded:
        second = "the body runs once more and is traced, to record it in the call cache"
        third = "made by the call cache, without the body"
    else:
        second, third = "all is loaded", "not recorded in the call cache: op.call_cache says why"
    yield "second call", of_runs(lambda run: run.later_ms[0], 3), second, ""
    yield "third call", of_runs(lambda run: run.later_ms[1], 3), third, ""
    more = len(report.runs[0].later_ms) - 2
    medians = of_runs(lambda run: statistics.median(run.later_ms[2:]), 3)
    yield "a later call", medians, f"the median of {more} more, each waited for", ""


def _phase_rows(report: FirstCall, stage: Stage) -> Iterator[_Row]:
    """Yield the phases of a stage in the order of the catalogue."""
    for name in (*START, *CALL):
        found = [run.find(stage, name) for run in report.runs]
        if not any(found):
            continue
        info = phase_info(name, simulated=report.simulated)
        times = max(phase.times for phase in found if phase is not None)
        label = f"{info.label} x{times}" if times > 1 and name in COUNTED else info.label
        cells = tuple(f"{phase.ms:.2f}" if phase is not None else "-" for phase in found)
        imported = f": {_imported(report)}" if name == "imports" else ""
        avoid = f"; {info.avoid}" if info.avoid not in ("", COMMON[stage]) else ""
        yield f"  {label}", cells, info.why + imported + avoid, ""


def _imported(report: FirstCall) -> str:
    """Return the first few modules that the call imported."""
    names = list(dict.fromkeys(name for run in report.runs for name in run.imported))
    more = f" and {len(names) - SHOWN_IMPORTS} more" if len(names) > SHOWN_IMPORTS else ""
    return ", ".join(names[:SHOWN_IMPORTS]) + more


# ------------------------------------------------------------------ the processes

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
            run, facts = _run(whole, folder, cache)
            runs.append(run)
    return FirstCall(**facts, runs=tuple(runs))


def _run(target: str, folder: str, cache: Cache) -> tuple[FirstCallRun, dict[str, Any]]:
    """Run one process, and return its times and facts about the call."""
    worker = Worker(ENTRY, prelude=PRELUDE)
    try:
        begun_ms = _clock_ms()
        worker.send({"target": target, "folder": folder, "started": time.perf_counter()})
        first = worker.receive(LIMIT_S)
        whole_ms = _clock_ms() - begun_ms
        facts = worker.receive(LIMIT_S)
    except WorkerCrash as error:
        evidence = "".join(f"\n    {line}" for line in error.evidence.splitlines()[-5:])
        raise OperatorError(
            f"the first call of {target} failed: {error.reason}.{evidence}\n"
            f"A first call is timed if it returns a result.\nSee what is wrong: dotcu check {target}"
        ) from error
    finally:
        worker.close()
    phases = tuple(Phase(stage=s, name=name, ms=ms, times=times) for s, name, ms, times in first["phases"])
    later_ms = tuple(facts.pop("later_ms"))
    imported = tuple(first["imported"])
    run = FirstCallRun(cache=cache, phases=phases, whole_ms=whole_ms, imported=imported, later_ms=later_ms)
    return run, facts


def _clock_ms() -> float:
    """Return the time of another clock than that of the phases, which nothing sets or slews."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) / 1e6
