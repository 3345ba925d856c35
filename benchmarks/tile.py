"""How fast are the gallery's tile operators? Beside cuBLAS, cuDNN, torch.compile and kernels of threads.

    python benchmarks/tile.py [--budget SECONDS] [--save FILE] [--package NAME] [--only WORD ...]

Contenders of a case are called alternately, on a cold L2 and on random normal data, and device time
is taken by CUDA events; a ratio is the median of the rounds' ratios, the rival's time over dotcu's.
Each result is compared with the rival's before it is timed. Rows are printed, and written to FILE,
as they are done: what the budget cuts off is missing, and its goals count as missed.

`--package` names a package with the operators, by default `dotcu.gallery`: one that `dotcu build`
made serves a GPU machine without tile compilers, under DOTCU_JIT=0.

Exit codes: 0 every goal held, 1 one did not, 2 wrong usage, 3 no GPU.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import dotcu
from calls.host import machine

Call = Callable[[], Any]

SHAPES = (
    (2048, 2048, 2048, "nn"), (1024, 1024, 1024, "nn"), (512, 512, 512, "nn"), (6144, 6144, 6144, "nn"),
    (4096, 11008, 4096, "nn"), (16384, 1024, 4096, "nn"), (3072, 768, 8192, "nn"), (1000, 1000, 1000, "nn"),
    (4095, 4097, 4093, "nn"), (777, 1111, 999, "nn"), (4096, 4096, 4096, "nt"), (8192, 8192, 8192, "nt"),
    (8192, 4096, 14336, "nt"), (2048, 32000, 4096, "nt"), (128, 4096, 4096, "nt"), (4096, 4096, 1000, "nt"),
    (2050, 2050, 2050, "nt"), (3001, 3003, 3005, "nt"), (1536, 6144, 2048, "nt"), (4096, 4096, 4096, "tn"),
)  # fmt: skip
"""M, N and K of the 20 further products, and which factors are transposed."""

FLUSH_BYTES = 256 * 2**20
"""Written before each call: several times any L2."""

AHEAD_CYCLES = 1_500_000
"""What the GPU waits before each call, about a millisecond, so that no time of the host is in a call's."""

LAUNCHES = 2000

LIMITS = {"copy", "reading"}
"""Contenders that only move as many bytes."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of the table.

    Attributes:
        name: What is measured.
        goal: The least ratio of the rival's time to dotcu's; None where it is only reported.
        group: Cases whose geometric mean has the goal of the same name in `MEANS`.
        make: Gives dotcu's call, and the rivals' by name, the first of which is the one of the ratio.
        flops: Of one call.
        rtol: The largest difference, as a share of the largest result.
    """

    name: str
    make: Callable[[Any], tuple[Call, dict[str, Call]]]
    goal: float | None = None
    group: str | None = None
    flops: float = 0.0
    rtol: float = 2e-2
    host: bool = False


MEANS = {"20 further shapes": 0.92}
"""Goals of the geometric means of groups."""


def normal(*shape: int) -> Tensor:
    """Random normal numbers in bfloat16."""
    return torch.randn(*shape, device="cuda").to(torch.bfloat16)


def product(m: int, n: int, k: int, layout: str = "nn", **settings: Any) -> Case:
    """A product, beside cuBLAS."""

    def make(ops: Any) -> tuple[Call, dict[str, Call]]:
        a = normal(m, k) if layout[0] == "n" else normal(k, m).T
        b = normal(k, n) if layout[1] == "n" else normal(n, k).T
        return lambda: ops.matmul_tile(a, b), {"cuBLAS": lambda: a @ b}

    return Case(name=f"matmul {m}x{n}x{k} {layout}", make=make, flops=2.0 * m * n * k, **settings)


def with_gelu(m: int, n: int, k: int) -> Case:
    """A linear layer with bias and GELU, beside max-autotune."""

    def make(ops: Any) -> tuple[Call, dict[str, Call]]:
        x, weight, bias = normal(m, k), normal(n, k) / math.sqrt(k), normal(n)
        tuned = torch.compile(lambda x, w, b: F.gelu(F.linear(x, w, b)), mode="max-autotune-no-cudagraphs")
        eager = lambda: F.gelu(F.linear(x, weight, bias))  # noqa: E731
        rivals = {"max-autotune": lambda: tuned(x, weight, bias), "torch eager": eager}
        return lambda: ops.matmul_tile(x, weight.T, bias, gelu=True), rivals

    return Case(name=f"matmul + bias + GELU {m}x{n}x{k} nt", make=make, flops=2.0 * m * n * k, goal=1.10)


def swiglu(m: int, n: int, k: int) -> Case:
    """Both products of SwiGLU, beside torch.compile."""

    def make(ops: Any) -> tuple[Call, dict[str, Call]]:
        x, gate, up = normal(m, k), normal(n, k) / math.sqrt(k), normal(n, k) / math.sqrt(k)
        eager = lambda: F.silu(F.linear(x, gate)) * F.linear(x, up)  # noqa: E731
        return lambda: ops.matmul_swiglu_tile(x, gate.T, up.T), {"torch eager": eager}

    return Case(name=f"matmul SwiGLU {m}x{n}x{k} nt", make=make, flops=4.0 * m * n * k)


def attention(b: int, h: int, s: int, d: int, causal: bool, **settings: Any) -> Case:
    """Attention, beside cuDNN's."""

    def make(ops: Any) -> tuple[Call, dict[str, Call]]:
        q, k, v = (normal(b, h, s, d) for _ in range(3))

        def sdpa(backend: SDPBackend) -> Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        rivals: dict[str, Call] = {"cuDNN": lambda: sdpa(SDPBackend.CUDNN_ATTENTION)}
        rivals["FlashAttention"] = lambda: sdpa(SDPBackend.FLASH_ATTENTION)
        return lambda: ops.attention_tile(q, k, v, causal)[0], rivals

    flops = 4.0 * b * h * s * s * d / (2 if causal else 1)
    name = f"attention {b}x{h}x{s}x{d} {'causal' if causal else 'full'}"
    return Case(name=name, make=make, flops=flops, **settings)


def attention_backward(b: int, h: int, s: int, d: int, causal: bool) -> Case:
    """The backward of attention, beside cuDNN's."""

    def make(ops: Any) -> tuple[Call, dict[str, Call]]:
        inputs = [normal(b, h, s, d).requires_grad_() for _ in range(3)]
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            theirs = F.scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], is_causal=causal)
        ours, grad = ops.attention_tile(*inputs, causal)[0], normal(b, h, s, d)

        def differentiate(out: Tensor) -> Any:
            return torch.autograd.grad(out, inputs, grad, retain_graph=True)[0]

        return lambda: differentiate(ours), {"cuDNN": lambda: differentiate(theirs)}

    flops = 10.0 * b * h * s * s * d / (2 if causal else 1)
    name = f"attention backward {b}x{h}x{s}x{d} {'causal' if causal else 'full'}"
    return Case(name=name, make=make, flops=flops)


def softmax(rows: int, n: int) -> Case:
    """Softmax of rows, beside the gallery's kernel of threads, torch and a copy."""

    def make(ops: Any) -> tuple[Call, dict[str, Call]]:
        x = normal(rows, n)
        copied = torch.empty_like(x)
        rivals: dict[str, Call] = {"torch": lambda: torch.softmax(x, -1)}
        if hasattr(ops, "softmax"):
            rivals["dotcu threads"] = lambda: ops.softmax(x)
        rivals["copy"] = lambda: copied.copy_(x)
        return lambda: ops.softmax_tile(x), rivals

    return Case(name=f"softmax {rows}x{n}", make=make)


def host_time() -> Case:
    """What a launch of a tile kernel costs the host, beside an ordinary kernel's with the same arguments."""

    def make(ops: Any) -> tuple[Call, dict[str, Call]]:
        x = normal(4, 64)
        return lambda: ops.softmax_tile(x), {"dotcu threads": lambda: ops.softmax(x)}

    return Case(name="host time of a call, softmax 4x64", make=make, goal=0.95, host=True)


EDITED = """
#include "cuda_tile.h"
#include <cuda_bf16.h>
namespace ct = cuda::tiles;
__tile_global__ void matmul(const __nv_bfloat16* __restrict__ a, const __nv_bfloat16* __restrict__ b,
                            float* __restrict__ c, int size) {
    const int n = ct::assume_divisible<128>(size);
    const auto matrix = [&](auto* p, auto tile) {
        return ct::partition_view{ct::tensor_span{ct::assume_aligned<16>(p), ct::extents{n, n}}, tile};
    };
    const auto A = matrix(a, ct::shape<128, 64>{});
    const auto B = matrix(b, ct::shape<64, 128>{});
    auto sum = ct::zeros<ct::tile<float, ct::shape<128, 128>>>();
    for (auto s : ct::irange(0, n / 64))
        sum = ct::mma(A.load(ct::bid().x, s), B.load(s, ct::bid().y), sum);
    matrix(c, ct::shape<128, 128>{}).store(sum * %s, ct::bid().x, ct::bid().y);
}
"""


def edit_to_result(edits: int = 5) -> dict[str, Any]:
    """Seconds from an edited product of 512 x 512 elements to its values, in a warm process."""
    a, b, c = normal(512, 512), normal(512, 512), torch.empty(512, 512, device="cuda")
    product, seconds = a.float() @ b.float(), []
    with tempfile.TemporaryDirectory() as folder:
        for edit in range(edits + 1):
            factor = 1 + random.random()  # no cache has it
            start = time.perf_counter()
            path = Path(folder, f"edited{edit}.cu")
            path.write_text(EDITED % f"{factor:.9f}f", encoding="utf-8")
            dotcu.load(path).matmul(a, b, c, 512, grid=(4, 4))
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
            torch.testing.assert_close(c, product * factor, rtol=1e-3, atol=1e-2)
    median = statistics.median(seconds[1:])
    return {
        "case": EDIT,
        "us": {"dotcu": round(1e6 * median, 1)},
        "ratio": {"one second": round(1 / median, 3)},
    }


EDIT = "edit to result, warm"

CASES = (
    product(4096, 4096, 4096, goal=0.97),
    product(8192, 8192, 8192, goal=0.97),
    attention(2, 16, 8192, 128, True, goal=0.85),
    attention(1, 16, 16384, 128, False, goal=0.85),
    with_gelu(8192, 16384, 4096),
    host_time(),
    *(product(*shape, group="20 further shapes") for shape in SHAPES),
    softmax(16384, 4096),
    softmax(16384, 4095),
    softmax(32768, 1024),
    softmax(8192, 32768),
    attention(2, 8, 8192, 256, True),
    attention(2, 32, 8192, 64, True),
    swiglu(8192, 14336, 4096),
    attention_backward(2, 16, 8192, 128, True),
)


@dataclass(kw_only=True)
class Clock:
    """Times calls, until the budget is spent."""

    deadline: float
    flush: Tensor = field(default_factory=lambda: torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda"))

    def device_us(
        self, calls: dict[str, Call], rounds: int = 15, most_s: float = 2.5
    ) -> dict[str, list[float]]:
        """Microseconds of each round, by contender: called alternately, on a cold L2."""
        times: dict[str, list[float]] = {name: [] for name in calls}
        for call in calls.values():
            call()
        start = time.monotonic()
        for _ in range(rounds):
            events = {}
            for name, call in calls.items():
                torch.cuda._sleep(AHEAD_CYCLES)
                self.flush.zero_()
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                call()
                end.record()
                events[name] = begin, end
            torch.cuda.synchronize()
            for name, (begin, end) in events.items():
                times[name].append(1e3 * begin.elapsed_time(end))
            if time.monotonic() - start > most_s and len(times[name]) >= 5:
                break
        return times

    def host_us(self, calls: dict[str, Call], rounds: int = 7) -> dict[str, list[float]]:
        """Microseconds that the host needs for a call: many in a row, waited for outside of the time."""
        times: dict[str, list[float]] = {name: [] for name in calls}
        for call in calls.values():
            for _ in range(LAUNCHES // 4):
                call()
        for _ in range(rounds):
            for name, call in calls.items():
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(LAUNCHES // 4):
                    call()
                times[name].append(1e6 * (time.perf_counter() - start) / (LAUNCHES // 4))
        return times


def measure(case: Case, ops: Any, clock: Clock) -> dict[str, Any]:
    """The row of a case."""
    torch.manual_seed(0)
    own, rivals = case.make(ops)
    got, calls = own(), {"dotcu": own}
    for name, call in rivals.items():
        try:
            expected = call()
        except RuntimeError as error:
            print(f"    {name}: {str(error).splitlines()[0][:150]}")
            continue
        calls[name] = call
        if name in LIMITS:
            continue
        off = float((got.float() - expected.float()).abs().max() / expected.float().abs().max())
        if not off <= case.rtol:
            return {
                "case": case.name,
                "goal": case.goal,
                "group": case.group,
                "failed": f"{name}: differs by {off}",
            }
    times = clock.host_us(calls) if case.host else clock.device_us(calls)
    medians = {name: statistics.median(each) for name, each in times.items()}
    ratios = {
        name: statistics.median(b / a for a, b in zip(times["dotcu"], each, strict=True))
        for name, each in times.items()
        if name != "dotcu"
    }
    row: dict[str, Any] = {
        "case": case.name,
        "goal": case.goal,
        "group": case.group,
        "rounds": len(times["dotcu"]),
    }
    row |= {"us": {name: round(us, 3) for name, us in medians.items()}}
    row |= {"ratio": {name: round(ratio, 4) for name, ratio in ratios.items()}}
    return row | ({"tflops": round(case.flops / medians["dotcu"] / 1e6, 1)} if case.flops else {})


def line_of(row: dict[str, Any]) -> str:
    """A row as a line."""
    if "failed" in row:
        return f"{row['case']:44} {row['failed']}"
    ratios = "  ".join(f"{name} {ratio:.3f}" for name, ratio in row["ratio"].items())
    tflops = f"{row['tflops']:6.0f} TFLOP/s" if "tflops" in row else " " * 14
    return f"{row['case']:44} {row['us']['dotcu']:10.1f} µs {tflops}  {ratios}"


def goals(rows: list[dict[str, Any]]) -> Iterator[tuple[str, float, float | None]]:
    """Each goal with its name, and the figure; None where it was not measured."""
    done = {row["case"]: next(iter(row["ratio"].values())) for row in rows if row.get("ratio")}
    for case in CASES:
        if case.goal is not None:
            yield case.name, case.goal, done.get(case.name)
    yield EDIT, 1.0, done.get(EDIT)
    for group, goal in MEANS.items():
        names = [case.name for case in CASES if case.group == group]
        ratios = [done[name] for name in names if name in done]
        whole = len(ratios) == len(names)
        yield f"{group}, geometric mean", goal, statistics.geometric_mean(ratios) if whole else None


def save(rows: list[dict[str, Any]], path: Path | None) -> None:
    """Write the rows, if asked to."""
    if path is not None:
        figures = {"machine": machine(), "command": " ".join(sys.argv), "rows": rows}
        path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--budget", type=float, default=300.0, metavar="SECONDS", help="stop after as many")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--package", default="dotcu.gallery", help="where the operators are")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="cases whose names have one of these"
    )
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU: the figures are of a GPU")
        return 3
    ops, clock = importlib.import_module(options.package), Clock(deadline=time.monotonic() + options.budget)
    rows: list[dict[str, Any]] = []
    for case in CASES:
        if options.only and not any(word in case.name for word in options.only):
            continue
        if time.monotonic() > clock.deadline:
            print(f"{case.name:44} not measured: the budget of {options.budget:.0f} s is spent")
            continue
        try:
            rows.append(measure(case, ops, clock))
        except Exception as error:  # one that fails: the others are still worth having
            failed = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            rows.append({"case": case.name, "goal": case.goal, "group": case.group, "failed": failed})
        print(line_of(rows[-1]), flush=True)
        torch.cuda.empty_cache()
        save(rows, options.save)
    if not options.only or any(word in EDIT for word in options.only):
        try:
            rows.append(edit_to_result())
        except dotcu.DotcuError as error:  # no compiler of tile kernels here, or DOTCU_JIT=0
            rows.append({"case": EDIT, "failed": str(error).splitlines()[0]})
        print(line_of(rows[-1]))
        save(rows, options.save)
    missed = 0
    for name, goal, figure in goals(rows):
        held = figure is not None and figure >= goal
        missed += not held
        found = "not measured" if figure is None else f"{figure:.3f}"
        print(f"{'held  ' if held else 'MISSED'} {name}: {found}, goal {goal}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
