"""How fast is the gallery's matmul, beside cuBLAS, torch.compile and torch._scaled_mm? And each step?

    python benchmarks/matmul.py [--budget SECONDS] [--save FILE] [--only WORD ...] [--write]

Contenders of a case are called alternately, on a cold L2 and on random normal data, and device time
is taken by CUDA events; a ratio is the median of the rounds' ratios, the rival's time over dotcu's.
Each result is compared with the rival's before it is timed. Rows are printed, and written to FILE,
as they are done: what the budget cuts off is missing, and its goals count as missed. `--write` puts the
committed figures into matmul's README, and needs no GPU.

Exit codes: 0 every goal held, 1 one did not, 2 wrong usage, 3 no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from calls.host import machine
from dotcu.gallery import grouped_matmul, matmul, matmul_fp8, matmul_swiglu
from rivals import pages
from tile import AHEAD_CYCLES, FLUSH_BYTES, normal

Call = Callable[[], Tensor]
Made = tuple[dict[str, Call], dict[str, Call]]

LADDER = ("naive", "tiled", "mma", "wgmma", "specialized", "clusters", "persistent")

SHAPES = (
    (1, 1024, 1024, 1024, "nn"), (1, 2048, 2048, 2048, "nn"), (1, 3072, 3072, 3072, "nt"),
    (1, 6144, 6144, 6144, "nn"), (1, 4096, 11008, 4096, "nn"), (1, 4096, 4096, 11008, "nt"),
    (1, 16384, 1024, 4096, "nn"), (1, 16384, 4096, 1024, "nt"), (1, 8192, 8192, 1024, "nt"),
    (1, 8192, 4096, 14336, "nt"), (1, 2048, 32000, 4096, "nt"), (1, 1536, 6144, 2048, "nt"),
    (1, 4096, 4096, 4096, "nt"), (1, 4096, 4096, 4096, "tn"), (1, 4096, 4096, 4096, "tt"),
    (1, 8192, 1024, 8192, "tn"), (1, 1024, 8192, 8192, "tn"), (1, 5120, 5120, 5120, "nt"),
    (1, 16384, 16384, 2048, "nt"), (1, 12288, 3072, 3072, "nt"), (4, 1024, 1024, 1024, "nt"),
    (16, 1024, 2048, 512, "nn"), (8, 2048, 2048, 2048, "nt"), (1, 4095, 4097, 4093, "nn"),
    (1, 2050, 2050, 2050, "nt"), (1, 3001, 3003, 3005, "nt"), (1, 4096, 4096, 1000, "nt"),
    (1, 1000, 1000, 1000, "nn"), (3, 1023, 2047, 1025, "nt"), (1, 4096, 50257, 1024, "nt"),
)  # fmt: skip
"""Batches, M, N and K of the 30 shapes, and which factors are transposed."""


LONG = (
    (1, 256, 256, 8192, "nn"), (1, 128, 128, 16384, "nn"), (1, 384, 384, 32768, "nn"),
    (1, 512, 512, 4096, "nn"), (1, 256, 1024, 4096, "nt"), (1, 768, 768, 8192, "tn"),
    (1, 768, 768, 16384, "tn"), (1, 2304, 768, 16384, "tn"), (1, 768, 3072, 16384, "tn"),
    (1, 1000, 1000, 4096, "nt"), (1, 2048, 64, 4096, "nt"), (1, 64, 4096, 4096, "nt"),
    (1, 16, 4096, 14336, "nt"), (1, 4096, 16, 8192, "tn"),
)  # fmt: skip
"""Those of few tiles and a long K, such as gradients of weights (tn)."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A product to time.

    Attributes:
        make: Gives dotcu's calls and the rivals', of which the fastest is the one of the ratio.
        goal: The least ratio of the rival's time to dotcu's; None where it is only reported.
        group: Whether the row is one of the 30 shapes.
    """

    name: str
    flops: float
    make: Callable[[], Made]
    goal: float | None = None
    group: bool = False


def factors(batches: int, m: int, n: int, k: int, layout: str) -> tuple[Tensor, Tensor]:
    """Random matrices, the transposed ones as views."""
    outer = (batches,) if batches > 1 else ()
    a = normal(*outer, m, k) if layout[0] == "n" else normal(*outer, k, m).mT
    b = normal(*outer, k, n) if layout[1] == "n" else normal(*outer, n, k).mT
    return a, b


def product(batches: int, m: int, n: int, k: int, layout: str, **settings: Any) -> Row:
    """A product beside cuBLAS."""

    def make() -> Made:
        a, b = factors(batches, m, n, k, layout)
        return {"dotcu": lambda: matmul(a, b)}, {"cuBLAS": lambda: a @ b}

    name = f"{f'{batches}x' if batches > 1 else ''}{m}x{n}x{k} {layout}"
    return Row(name=name, flops=2.0 * batches * m * n * k, make=make, **settings)


def ladder(size: int) -> Row:
    """Every step beside cuBLAS."""

    def make() -> Made:
        a, b = factors(1, size, size, size, "nt")

        def step(name: str) -> Call:
            return lambda: matmul(a, b, algorithm=name)

        return {name: step(name) for name in LADDER}, {"cuBLAS": lambda: a @ b}

    return Row(name=f"ladder {size}", flops=2.0 * size**3, make=make)


def with_gelu(m: int, n: int, k: int) -> Row:
    """A linear layer with bias and GELU, beside max-autotune."""

    def make() -> Made:
        x, weight, bias = normal(m, k), normal(n, k) / math.sqrt(k), normal(n)
        tuned = torch.compile(lambda x, w, b: F.gelu(F.linear(x, w, b)), mode="max-autotune-no-cudagraphs")
        rivals: dict[str, Call] = {"max-autotune": lambda: tuned(x, weight, bias)}
        rivals["eager"] = lambda: F.gelu(F.linear(x, weight, bias))
        return {"dotcu": lambda: matmul(x, weight.T, bias, activation="gelu")}, rivals

    return Row(name=f"bias + GELU {m}x{n}x{k} nt", flops=2.0 * m * n * k, make=make, goal=1.10)


def swiglu(m: int, n: int, k: int) -> Row:
    """Both products of SwiGLU, beside max-autotune."""

    def make() -> Made:
        x, gate, up = normal(m, k), normal(n, k) / math.sqrt(k), normal(n, k) / math.sqrt(k)

        def both(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
            return F.silu(F.linear(x, gate)) * F.linear(x, up)

        tuned = torch.compile(both, mode="max-autotune-no-cudagraphs")
        rivals: dict[str, Call] = {"max-autotune": lambda: tuned(x, gate, up)}
        rivals["eager"] = lambda: both(x, gate, up)
        return {"dotcu": lambda: matmul_swiglu(x, gate.T, up.T)}, rivals

    return Row(name=f"SwiGLU {m}x{n}x{k} nt", flops=4.0 * m * n * k, make=make, goal=1.10)


def fp8(m: int, n: int, k: int, by_row: bool) -> Row:
    """A product in e4m3, beside torch._scaled_mm in both of its ways to add up."""

    def make() -> Made:
        a, b = normal(m, k).to(torch.float8_e4m3fn), normal(n, k).to(torch.float8_e4m3fn).T
        shapes = ((m, 1), (1, n)) if by_row else ((1,), (1,))
        scales = [torch.rand(shape, device="cuda") for shape in shapes]

        def scaled(fast: bool) -> Tensor:
            return torch._scaled_mm(a, b, scales[0], scales[1], out_dtype=torch.bfloat16, use_fast_accum=fast)

        rivals: dict[str, Call] = {"_scaled_mm": lambda: scaled(False), "fast": lambda: scaled(True)}
        return {"dotcu": lambda: matmul_fp8(a, b, *scales)}, rivals

    name = f"fp8 by {'row' if by_row else 'tensor'} {m}x{n}x{k}"
    return Row(name=name, flops=2.0 * m * n * k, make=make, goal=1.0)


def grouped(m: int, n: int, k: int, experts: int, even: bool) -> Row:
    """Rows of experts, as many of each or of random counts, beside torch's product of groups."""

    def make() -> Made:
        a, b = normal(m, k), normal(experts, n, k).mT
        share = (
            torch.ones(experts) if even else torch.rand(experts, generator=torch.Generator().manual_seed(0))
        )
        ends = (share.cumsum(0) / share.sum() * m).round().to("cuda", torch.int32)
        rival = getattr(F, "grouped_mm", None) or torch._grouped_mm
        rivals: dict[str, Call] = {"torch": lambda: rival(a, b, offs=ends)}
        return {"dotcu": lambda: grouped_matmul(a, b, ends)}, rivals

    name = f"{experts} {'even' if even else 'uneven'} groups {m}x{n}x{k} nt"
    return Row(name=name, flops=2.0 * m * n * k, make=make)


def tf32(size: int) -> Row:
    """A product of float32 in tf32, beside cuBLAS."""

    def make() -> Made:
        a, b = (torch.randn(size, size, device="cuda") for _ in range(2))
        torch.backends.cuda.matmul.allow_tf32 = True
        return {"dotcu": lambda: matmul(a, b.T, tf32=True)}, {"cuBLAS": lambda: a @ b.T}

    return Row(name=f"tf32 {size} nt", flops=2.0 * size**3, make=make)


ROWS = (
    product(1, 4096, 4096, 4096, "nn", goal=1.0),
    product(1, 8192, 8192, 8192, "nn", goal=0.99),
    product(1, 8192, 8192, 8192, "nt", goal=1.08),
    *(product(*shape, group=True) for shape in SHAPES), *(product(*shape) for shape in LONG),
    fp8(4096, 7168, 2048, False), fp8(8192, 8192, 8192, False),
    fp8(4096, 7168, 2048, True), fp8(8192, 8192, 8192, True),
    grouped(8192, 14336, 4096, 8, True), grouped(8192, 14336, 4096, 8, False),
    grouped(16384, 1408, 2048, 64, False), grouped(512, 4096, 4096, 64, False),
    tf32(4096), ladder(4096), swiglu(8192, 11008, 4096), with_gelu(8192, 4096, 4096),
)  # fmt: skip

WARM_UP = 4
"""Calls of each contender before the first round: dotcu compiles and records its calls in the first ones."""

MEAN_GOAL, WORST_GOAL = 1.0, 0.93


def times(calls: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    """Device milliseconds of each call in each round, on a cold L2; each is first equally often."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(WARM_UP):
            call()
        torch.cuda.synchronize()
    order = list(calls.items())
    for round in range(rounds):
        for name, call in order[round % len(order) :] + order[: round % len(order)]:
            torch.cuda._sleep(AHEAD_CYCLES)
            flush.zero_()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            events[name].append((begin, end))
        torch.cuda.synchronize()
    return {name: [b.elapsed_time(e) for b, e in pairs] for name, pairs in events.items()}


def measure(row: Row, rounds: int) -> dict[str, Any]:
    """Compare the results, then time the calls."""
    mine, rivals = row.make()
    want = next(iter(rivals.values()))().float()
    for name, call in mine.items():
        error = ((call().float() - want).norm() / want.norm()).item()
        if not error < 1e-2:
            raise AssertionError(f"{name} is off by {error}")
    found = times(mine | rivals, rounds)
    medians = {name: statistics.median(taken) for name, taken in found.items()}
    rival, last = min(rivals, key=medians.__getitem__), list(mine)[-1]
    return {
        "case": row.name,
        "goal": row.goal,
        "group": row.group,
        "rival": rival,
        "ratio": statistics.median(r / t for r, t in zip(found[rival], found[last], strict=True)),
        "tflops": {name: row.flops / 1e9 / median for name, median in medians.items()},
    }


def goals(rows: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """What was aimed at, and what was reached; 0 where nothing was measured."""
    ratios = {row["case"]: row["ratio"] for row in rows if "ratio" in row}
    found = [(row.name, row.goal, ratios.get(row.name, 0.0)) for row in ROWS if row.goal is not None]
    group = [row["ratio"] for row in rows if row["group"] and "ratio" in row]
    mean = statistics.geometric_mean(group) if group else 0.0
    found.append((f"{len(group)} of 30 shapes, geometric mean", MEAN_GOAL, mean))
    return [*found, ("the worst of them", WORST_GOAL, min(group, default=0.0))]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", type=float, default=600.0, help="seconds in all (600)")
    parser.add_argument("--rounds", type=int, default=14, help="rounds of each case (14)")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="cases with one of these words")
    parser.add_argument("--write", action="store_true", help="put the committed figures into the README")
    options = parser.parse_args()
    if options.write:
        page = pages.FOLDERS / "matmul" / "README.md"
        runs = (json.loads(path.read_text(encoding="utf-8")) for path in pages.PRODUCTS)
        page.write_text(
            pages.filled(page.read_text(encoding="utf-8"), pages.of_products(*runs), "matmul"),
            encoding="utf-8",
        )
        return 0
    if not torch.cuda.is_available():
        print("no GPU: the figures are of a GPU")
        return 3
    rows: list[dict[str, Any]] = []
    deadline = time.monotonic() + options.budget
    for row in ROWS:
        if options.only and not any(word in row.name for word in options.only):
            continue
        if time.monotonic() > deadline:
            print(f"{row.name:32} not measured: the budget of {options.budget:.0f} s is spent")
            continue
        try:
            rows.append(measure(row, options.rounds))
            shown = "  ".join(f"{name} {value:.0f}" for name, value in rows[-1]["tflops"].items())
            print(f"{row.name:32} {rows[-1]['ratio']:.3f}  {shown}", flush=True)
        except Exception as error:  # one that fails: the others are still worth having
            failed = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            rows.append({"case": row.name, "goal": row.goal, "group": row.group, "failed": failed})
            print(f"{row.name:32} {failed}", flush=True)
        if options.save:
            told = {"machine": machine(), "torch": torch.__version__, "rows": rows}
            options.save.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    missed = 0
    for name, goal, figure in goals(rows):
        missed += figure < goal
        print(f"{'held  ' if figure >= goal else 'MISSED'} {name}: {figure:.3f}, goal {goal}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
