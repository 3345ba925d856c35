"""The time of an operator's first call by phase, from the start of its process: see `first_call_child`."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dotcu import report_base, serialize
from dotcu.errors import OperatorError, quoted
from dotcu.workers import Worker, WorkerCrash

VERSION = 2  # of the JSON form; docs/reference/reports.md has its keys
CallPhase = Literal["start", "call"]
LIMIT_S = 600.0  # that a process has for its first call, and again for the calls after it

STAGES: Mapping[CallPhase, tuple[str, str]] = {
    "start": ("before the call", "a process that stays pays for it once"),
    "call": ("the first call", "op.warm() does it earlier"),
}
"""The title of each stage, and what saves nearly all of it."""

PHASES: Mapping[str, tuple[str, str]] = {
    "interpreter": ("Python", "a process and its interpreter start"),
    "torch": ("import torch", "its libraries are linked; read from disk the first time after a while"),
    "dotcu": ("import dotcu", "its modules, the simulator's among them"),
    "measuring": ("this measurement", "modules that only --first-call needs"),
    "target": ("import target", "operators are registered, .cu files are read"),
    "cuda": ("CUDA start", "torch looks for GPUs, and starts the driver"),
    "context": ("CUDA context", "the GPU gets memory and page tables for this process"),
    "allocator": ("first allocation", "torch asks the driver for a block, to cut later tensors from"),
    "inputs": ("inputs", "all samples are made, to take the first; torch may load kernels for them"),
    "call": ("the rest of it", "dispatcher, checks of arguments, the body with torch's operators"),
    "imports": ("imports", "modules that are imported when they are needed"),
    "bindings": ("driver bindings", "cuda.bindings is imported"),
    "build": ("plan of the build", "a compiler is chosen, headers are read, the cache key is computed"),
    "cache": ("look in the cache", "what is there is read and checked"),
    "nvrtc": ("load NVRTC", "the compiler's libraries are mapped and linked"),
    "compile": ("compile", "NVRTC makes PTX of the source, and machine code for a GPU"),
    "store": ("fill the cache", "an entry is written whole and synced to disk"),
    "ptx": ("read the PTX", "for the kernel's parameters and limits"),
    "library": ("load library", "the driver takes the cubin; the GPU has nothing of it yet"),
    "kernel": ("get kernel", "the kernel is loaded onto the GPU, its attributes are set"),
    "jit": ("PTX JIT", "the driver compiles PTX: NVRTC has no code for this GPU"),
    "launch": ("launch", "the driver's first launch of it, without waiting for its end"),
    "decode": ("decode the PTX", "instructions become operations of NumPy"),
    "simulate": ("simulate", "the kernel runs on the CPU, with all checks"),
    "wait": ("wait for the GPU", "the call has returned, its result was not there yet"),
}
"""The label of each phase, and what takes the time; in the order of the table."""

AVOID = {
    "cuda": "nvidia-smi -pm 1 keeps GPUs awake",
    "jit": "a newer NVRTC saves it: dotcu doctor",
    **dict.fromkeys(("nvrtc", "compile", "store"), "a filled cache saves it: keep or ship DOTCU_CACHE_DIR"),
    **dict.fromkeys(("measuring", "target", "allocator", "inputs", "simulate", "wait"), ""),
}
"""What saves the time of a phase, where that is not what saves the whole stage."""


@dataclass(frozen=True, kw_only=True)
class FirstCall(report_base.Report):
    """The time of a first call by phase, with the cache empty and then filled. `str()` of it is a table."""

    operator: str
    sample: str
    device: str
    versions: Mapping[str, str]
    note: str = ""
    runs: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values, with a `version` that changes when their meaning does."""
        return {"version": VERSION, **serialize.plain(self)}

    def __rich__(self) -> RenderableType:
        table = Table("ms, by cache", box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for run in self.runs:
            table.add_column(run["cache"], justify="right", no_wrap=True)
        table.add_column("what takes the time; what saves it", overflow="fold")
        for stage, (title, avoid) in STAGES.items():
            spent = [{p["name"]: p for p in run["phases"] if p["stage"] == stage} for run in self.runs]
            for name in PHASES:
                if found := [phases[name] for phases in spent if name in phases]:
                    times = max(phase["times"] for phase in found)
                    label = f"  {found[0]['label']}" + f" x{times}" * (times > 1)
                    figures = [f"{p[name]['ms']:.2f}" if name in p else "-" for p in spent]
                    saved = "" if found[0]["avoid"] in ("", avoid) else f"; {found[0]['avoid']}"
                    table.add_row(label, *figures, found[0]["why"] + saved)
            sums = [f"{run[f'{stage}_ms']:.2f}" for run in self.runs]
            table.add_row(title, *sums, f"the sum of these; {avoid}", style="bold")
        later = [run["later_ms"] for run in self.runs]
        medians = [statistics.median(ms[2:]) for ms in later]
        for label, figures_ms, remark in (
            ("not attributed", [run["remainder_ms"] for run in self.runs], "between two processes"),
            (
                "in all",
                [run["whole_ms"] for run in self.runs],
                "from the start of the process; another clock",
            ),
            ("second call", [ms[0] for ms in later], ""),
            ("third call", [ms[1] for ms in later], ""),
            ("a later call", medians, f"the median of {len(later[0]) - 2} more, each waited for"),
        ):
            table.add_row(label, *(f"{ms:.3f}" for ms in figures_ms), remark)
        head = Text.assemble((self.operator, "bold"), ", called for the first time in a new process, on ")
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        facts = "\n".join(filter(None, (f"{self.sample}; {versions}", self.note)))
        return Group(head + Text(self.device), Padding(facts, (0, 0, 1, 4)), Padding(table, (0, 0, 0, 2)))


ENTRY = "dotcu.benchmark.first_call_child:handle"

_MARK = "marks.append(time.perf_counter())"
PRELUDE = (
    f"import time; marks = []; {_MARK}; import torch; {_MARK}; import dotcu.kernel, dotcu.operator; {_MARK}"
)
"""Runs first in the process: takes the first times before any module of dotcu is there."""


def first_call(target: str, name: str | None = None) -> FirstCall:
    """Call an operator in two new processes, on its first sample, and return the time of each phase.

    Raises:
        DotcuError: There is no such operator, it has no samples, or the call failed.
    """
    whole = target if name is None else f"{target.partition(':')[0]}:{name}"
    with tempfile.TemporaryDirectory(prefix="dotcu-first-call-") as folder:
        (empty, _), (filled, facts) = (_run(whole, folder) for _ in range(2))
    runs = {"cache": "empty", **empty}, {"cache": "filled", **filled}
    return FirstCall(runs=runs, **facts)


def _run(target: str, folder: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run one process; return its run, and the fields of the report."""
    worker = Worker(ENTRY, prelude=PRELUDE)
    try:
        # Not the clock of the phases, and one that nothing sets or slews.
        begun_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        worker.send({"target": target, "folder": folder, "started": time.perf_counter()})
        phases = worker.receive(LIMIT_S)
        whole_ms = (time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - begun_ns) / 1e6
        facts = worker.receive(LIMIT_S)
    except WorkerCrash as error:
        evidence = "".join(f"\n    {line}" for line in error.evidence.splitlines()[-5:])
        raise OperatorError(
            f"the first call of {target} failed: {error.reason}.{evidence}\n"
            f"A first call is timed if it returns a result.\nSee what is wrong: dotcu check {quoted(target)}"
        ) from error
    finally:
        worker.close()
    found = {name: facts.pop(name) for name in ("imported", "later_ms")}
    return run_of(phases, whole_ms, found["imported"]) | found, facts


def run_of(
    phases: Mapping[CallPhase, Mapping[str, tuple[float, int]]], whole_ms: float, imported: Sequence[str]
) -> dict[str, Any]:
    """Return the JSON form of a run, with its phases described, and their sums.

    Args:
        phases, whole_ms: Milliseconds and the count of each phase; and of the whole, to the first result.
        imported: The modules that the call imported, without those that they import in turn.
    """
    keys = ("stage", "name", "ms", "times", "label", "why", "avoid")
    sums = {f"{stage}_ms": sum(ms for ms, _ in spent.values()) for stage, spent in phases.items()}
    rows = []
    for stage, name in ((stage, name) for stage, spent in phases.items() for name in spent):
        label, why = PHASES[name]
        why += f": {', '.join(imported[:3])}{', ...' * (len(imported) > 3)}" if name == "imports" else ""
        avoid = AVOID.get(name, STAGES[stage][1])
        rows.append(dict(zip(keys, (stage, name, *phases[stage][name], label, why, avoid), strict=True)))
    return {"phases": rows, **sums, "whole_ms": whole_ms, "remainder_ms": whole_ms - sum(sums.values())}
