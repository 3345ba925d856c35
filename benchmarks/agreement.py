"""Do dotcu's figures agree with others', with themselves, and is the same thing called the same?

    python benchmarks/agreement.py [--save FILE] [--rounds N] [--processes N] [--runs N]

Three questions, on one GPU:

- Do `dotcu.bench`, `triton.testing.do_bench` and plain CUDA events give the same time for a copy, an add and
  a matrix product of cuBLAS's? Each in turn, again and again; what is compared are the medians over the
  rounds. The goal is 3 %. At its power cap a GPU has no one time, so figures are reported there, not judged.
- Do two runs of the same thing agree within the intervals that they state? Some processes run everything some
  times; of all pairs of runs, the share in which the medians differ by no more than their intervals allow:
  the root of the sum of the squares of half of each. At 99 % confidence the goal is 99 %. (That intervals
  overlap says less: it lets medians differ by the sum of both halves.)
- Is the same thing called changed? Every run is compared with every other of the same thing, in its own
  process and in others, as `dotcu bench --compare` does. The goal is at most once in 100 of the pairs
  that can be compared; the others are counted.

Exit codes: 0 every goal held, 1 one did not, 3 no GPU, or no Triton.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import dotcu
from dotcu.benchmark import BenchReport
from dotcu.benchmark.reports import saved_runs
from dotcu.benchmark.reports.comparison import compare
from dotcu.benchmark.results import Measured
from dotcu.benchmark.statistics import Summary

WITHIN = 0.03
AGREE = 0.99
CHANGED = 0.01
INCOMPARABLE = "incomparable"

FLUSH_BYTES = 256 * 2**20
"""What do_bench writes before each call, and so the events here."""

WARMUP_MS = 500
"""Of do_bench and of the events. By default do_bench warms up for 25 ms and measures for 100: for so long an
H200 settles at its power cap, and shows a product of matrices up to 6 % slower than it goes on to be."""


@dotcu.op("agreement::copy")
def copy(a: Tensor) -> Tensor:
    """torch's copy."""
    return a.clone()


@dotcu.op("agreement::add")
def add(a: Tensor, b: Tensor) -> Tensor:
    """torch's sum, element by element."""
    return a + b


@dotcu.op("agreement::product", dtypes=(torch.bfloat16, torch.float32))
def product(a: Tensor, b: Tensor) -> Tensor:
    """cuBLAS's product of matrices."""
    return a @ b


copy.reference(lambda a: a.clone())
add.reference(lambda a, b: a + b)
product.reference(lambda a, b: a @ b)
product.work(lambda a, b: (3 * a.numel() * a.element_size(), 2 * a.shape[0] ** 3))


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Something to time.

    Attributes:
        shape: Of each of its tensors.
        tensors: How many it takes.
        large: Whether others can time it as well: of a small call events count the launch, CUPTI does not.
        capped: Whether it drives the GPU to its power cap. Then a call is the faster the longer the GPU rests
            between two, and do_bench and events differ from each other by as much as from dotcu.
    """

    name: str
    op: Any
    shape: tuple[int, ...]
    tensors: int = 2
    dtype: torch.dtype = torch.float32
    large: bool = False
    capped: bool = False

    def sample(self) -> dotcu.Sample:
        """A call."""
        return dotcu.Sample(
            *(torch.randn(self.shape, device="cuda", dtype=self.dtype) for _ in range(self.tensors))
        )


def subjects() -> Iterator[Subject]:
    """A copy, an add and a product, large; and smaller, down to where a launch is all."""
    for log2 in (28, 24, 20, 16, 12):
        large = log2 == 28
        yield Subject(name=f"copy 2^{log2}", op=copy, shape=(2**log2,), tensors=1, large=large)
        yield Subject(name=f"add 2^{log2}", op=add, shape=(2**log2,), large=large)
    yield Subject(name="cuBLAS float32 4096^3", op=product, shape=(4096, 4096), large=True)
    for n in (4096, 1024):
        large = n == 4096
        yield Subject(
            name=f"cuBLAS bf16 {n}^3",
            op=product,
            shape=(n, n),
            dtype=torch.bfloat16,
            large=large,
            capped=large,
        )


def by_dotcu(subject: Subject) -> BenchReport:
    """One run of dotcu's own, L2 cold."""
    return dotcu.bench(subject.op, samples=[subject.sample()], dtypes=[subject.dtype], against=(), l2="cold")


def by_do_bench(subject: Subject) -> float:
    """Triton's do_bench, in us."""
    from triton.testing import do_bench

    run = partial(subject.op, *subject.sample().args)
    return 1e3 * float(do_bench(run, warmup=WARMUP_MS, rep=WARMUP_MS, return_mode="median"))


def by_events(subject: Subject, calls: int = 300) -> float:
    """Events around each call, L2 overwritten before it, in us; warm as above."""
    run = partial(subject.op, *subject.sample().args)
    flush, times = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda"), []
    until = time.perf_counter() + WARMUP_MS / 1e3
    while time.perf_counter() < until:
        flush.zero_()
        run()
        torch.cuda.synchronize()
    for _ in range(calls):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        times.append((start, end))
    torch.cuda.synchronize()
    return 1e3 * statistics.median(start.elapsed_time(end) for start, end in times)


def agreement(subject: Subject, rounds: int) -> dict[str, Any]:
    """The medians of the three, over rounds in which each has its turn."""
    times: dict[str, list[float]] = {"dotcu": [], "do_bench": [], "events": []}
    for _ in range(rounds):
        times["dotcu"].append(figure(by_dotcu(subject)))
        times["do_bench"].append(by_do_bench(subject))
        times["events"].append(by_events(subject))
    us = {name: statistics.median(values) for name, values in times.items()}
    off = {name: us["dotcu"] / us[name] - 1 for name in ("do_bench", "events")}
    held = all(abs(o) <= WITHIN for o in off.values())
    return {"name": subject.name, "us": us, "off": off, "capped": subject.capped, "held": held}


def figure(report: BenchReport) -> float:
    """The median of a report's only row."""
    (row,) = report.rows
    assert row.time is not None, row.reason
    return row.time.median_us


def in_processes(count: int, runs: int, folder: Path) -> list[list[Path]]:
    """Run everything some times in each of some processes; the files that they saved there, by process."""
    found = []
    for process in range(count):
        place = folder / str(process)
        place.mkdir()
        command = [sys.executable, __file__, "--runs", str(runs), "--into", str(place)]
        subprocess.run(command, check=True)
        found.append(sorted(place.iterdir()))
    return found


def save_runs(runs: int, into: Path) -> None:
    """Run everything some times, and save each run as `dotcu bench --save` does."""
    every = list(subjects())
    for run in range(runs):
        for one in every:
            by_dotcu(one).save(into / f"{one.name.replace(' ', '-')}.{run}.jsonl")


def repeated(name: str, processes: Sequence[Sequence[Path]]) -> dict[str, Any]:
    """How runs of the same thing agree with each other, every one with every other."""
    rows = [
        (process, saved_runs.read_runs(path)[0].row)
        for process, paths in enumerate(processes)
        for path in paths
        if path.name.startswith(f"{name.replace(' ', '-')}.")
    ]
    pairs = list(itertools.combinations(rows, 2))
    apart = [verdict(a.measured, b.measured) for (p, a), (q, b) in pairs if p != q]
    within = [verdict(a.measured, b.measured) for (p, a), (q, b) in pairs if p == q]
    medians = [row.time.median_us for _, row in rows]
    return {
        "name": name,
        "runs": len(rows),
        "pairs": len(pairs),
        "agree": sum(agree(a.time, b.time) for (_, a), (_, b) in pairs),
        "within a process": dict(Counter(within)),
        "between processes": dict(Counter(apart)),
        "median_us": statistics.median(medians),
        "spread": max(medians) / min(medians) - 1,
        "noise": statistics.median(row.time.noise for _, row in rows),
    }


def agree(a: Summary, b: Summary) -> bool:
    """Whether two medians differ by no more than the interval of their difference, at the same confidence."""
    allowed_us = math.hypot((a.high_us - a.low_us) / 2, (b.high_us - b.low_us) / 2)
    return abs(a.median_us - b.median_us) <= allowed_us


def verdict(a: Measured, b: Measured) -> str:
    """What `--compare` says of two runs: a verdict, or that they cannot be compared."""
    found = compare(a, b)
    return INCOMPARABLE if isinstance(found, str) else found.verdict


def judge(agreements: list[dict[str, Any]], repeats: list[dict[str, Any]]) -> dict[str, Any]:
    """The goals, and whether each held."""
    pairs = sum(one["pairs"] for one in repeats)
    verdicts = sum(
        (Counter(one["within a process"]) + Counter(one["between processes"]) for one in repeats), Counter()
    )
    compared = verdicts.total() - verdicts[INCOMPARABLE]
    changed = verdicts["faster"] + verdicts["slower"]
    share = sum(one["agree"] for one in repeats) / pairs
    return {
        "agreement within 3 %": all(one["held"] for one in agreements if not one["capped"]),
        "agree within their intervals": {"share": share, "held": share >= AGREE},
        "called changed": {
            "share": changed / compared if compared else None,
            "compared": compared,
            "held": compared > 0 and changed <= CHANGED * compared,
        },
    }


def held(goals: dict[str, Any]) -> bool:
    """Whether every goal held."""
    return all(goal if isinstance(goal, bool) else goal["held"] for goal in goals.values())


def machine() -> dict[str, Any]:
    """What the figures hold for."""
    return {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "dotcu": dotcu.__version__,
    }


def show(agreements: list[dict[str, Any]], repeats: list[dict[str, Any]], goals: dict[str, Any]) -> None:
    """Print three tables."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table("what", "dotcu us", "do_bench us", "off", "events us", "off", title="agreement")
    for one in agreements:
        us, off = one["us"], one["off"]
        words = [f"{us['dotcu']:.2f}", f"{us['do_bench']:.2f}", f"{off['do_bench']:+.2%}"]
        table.add_row(one["name"], *words, f"{us['events']:.2f}", f"{off['events']:+.2%}")
    console.print(table)
    heads = ("what", "median us", "spread", "noise", "agree")
    table = Table(*heads, "within a process", "between processes", title="repeated runs")
    for one in repeats:
        figures = [f"{one['median_us']:.2f}", f"{one['spread']:.2%}", f"{one['noise']:.2%}"]
        verdicts = (str(one["within a process"]), str(one["between processes"]))
        table.add_row(one["name"], *figures, f"{one['agree']}/{one['pairs']}", *verdicts)
    console.print(table)
    console.print(goals)


def main(words: Sequence[str] | None = None) -> int:
    """Run everything; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", type=Path, help="write the figures as JSON, with the machine they hold for")
    parser.add_argument("--rounds", type=int, default=5, help="rounds over the three means (5)")
    parser.add_argument("--processes", type=int, default=4, help="processes that repeat everything (4)")
    parser.add_argument("--runs", type=int, default=3, help="runs of everything in each process (3)")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)  # for a process that repeats
    options = parser.parse_args(words)
    if not torch.cuda.is_available():
        print("agreement.py needs a CUDA GPU.", file=sys.stderr)
        return 3
    if options.into:
        save_runs(options.runs, options.into)
        return 0
    every = list(subjects())
    agreements = [agreement(one, options.rounds) for one in every if one.large]
    names = [one.name for one in every]
    del every
    torch.cuda.empty_cache()
    with tempfile.TemporaryDirectory() as folder:
        saved = in_processes(options.processes, options.runs, Path(folder))
        repeats = [repeated(name, saved) for name in names]
    goals = judge(agreements, repeats)
    show(agreements, repeats, goals)
    if options.save:
        figures = {"machine": machine(), "agreement": agreements, "repeated": repeats, "goals": goals}
        options.save.write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if held(goals) else 1


if __name__ == "__main__":
    sys.exit(main())
