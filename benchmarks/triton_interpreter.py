"""Measure launches of Triton kernels in the simulator against the same launches in Triton's interpreter.

    python benchmarks/triton_interpreter.py [--arch sm_80] [--save FILE] [--rounds N]

The kernels are those that Triton's tutorials teach, at small sizes, in two processes of their own that
alternate: one in `dotcu.simulate()`, and one with TRITON_INTERPRET=1, which finds neither races nor reads of
unwritten memory. Each result is compared with torch's. A launch's time is the least of several after the
first. The overhead is what the first launch takes beyond that and beyond Triton's own compilation.
Exit codes: 0 every goal held, 1 one did not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

import dotcu

GOAL = 1.0
"""How long a launch takes at most, in times of the interpreter's: the geometric mean over the kernels."""
OVERHEAD_GOAL_S = 0.2
LAUNCHES = 3


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def softmax(x, out, rows, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        value = tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
        power = tl.exp(value - tl.max(value, 0))
        tl.store(out + row * n + at, power / tl.sum(power, 0), mask=at < n)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    tl.store(c + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_kept = tl.rand(seed, at) > p
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.where(is_kept, value / (1 - p), 0.0), mask=at < n)


@triton.jit
def layer_norm(x, weight, bias, out, n, epsilon, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=0.0)
    mean = tl.sum(value, 0) / n
    centred = tl.where(at < n, value - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / n + epsilon)
    w, b = tl.load(weight + at, mask=at < n), tl.load(bias + at, mask=at < n)
    tl.store(out + row * n + at, centred * scale * w + b, mask=at < n)


@triton.jit
def column_sums(x, out, rows, n, BM: tl.constexpr, BN: tl.constexpr):
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, rows, BM):
        row = start + tl.arange(0, BM)
        mask = (row[:, None] < rows) & (column[None, :] < n)
        total += tl.load(x + row[:, None] * n + column[None, :], mask=mask, other=0.0)
    tl.store(out + column, tl.sum(total, 0), mask=column < n)


@triton.jit
def attention(q, k, v, out, T, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    base = tl.program_id(1) * T * D
    m, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    query = tl.load(q + base + m[:, None] * D + d[None, :])
    total, largest = tl.zeros((BM, D), tl.float32), tl.full((BM,), -float("inf"), tl.float32)
    divisor = tl.zeros((BM,), tl.float32)
    for start in range(0, T, BN):
        n = start + tl.arange(0, BN)
        key = tl.load(k + base + n[None, :] * D + d[:, None])
        score = tl.dot(query, key) * scale
        now = tl.maximum(largest, tl.max(score, 1))
        power, factor = tl.exp(score - now[:, None]), tl.exp(largest - now)
        divisor = divisor * factor + tl.sum(power, 1)
        value = tl.load(v + base + n[:, None] * D + d[None, :])
        total = tl.dot(power.to(tl.float16), value, total * factor[:, None])
        largest = now
    tl.store(out + base + m[:, None] * D + d[None, :], (total / divisor[:, None]).to(tl.float16))


@triton.jit
def grouped_matmul(a_table, b_table, c_table, sizes, groups, BM: tl.constexpr, BN: tl.constexpr):
    tile, first = tl.program_id(0), 0
    for group in range(groups):
        n = tl.load(sizes + group)
        tiles = (n // BM) * (n // BN)
        a = tl.load(a_table + group).to(tl.pointer_type(tl.float16))
        b = tl.load(b_table + group).to(tl.pointer_type(tl.float16))
        c = tl.load(c_table + group).to(tl.pointer_type(tl.float16))
        while tile >= first and tile < first + tiles:
            row = (tile - first) // (n // BN) * BM + tl.arange(0, BM)
            column = (tile - first) % (n // BN) * BN + tl.arange(0, BN)
            total = tl.zeros((BM, BN), tl.float32)
            for start in range(0, n, BM):
                k = start + tl.arange(0, BM)
                x = tl.load(a + row[:, None] * n + k[None, :])
                total = tl.dot(x, tl.load(b + k[:, None] * n + column[None, :]), total)
            tl.store(c + row[:, None] * n + column[None, :], total.to(tl.float16))
            tile += tl.num_programs(0)
        first += tiles


def launches() -> dict[str, tuple[Callable[[], Any], Callable[[], bool]]]:
    """Return each launch, and what tells if its result is right, by the name of the kernel."""
    torch.manual_seed(0)
    x, y, sum_ = torch.rand(98432), torch.rand(98432), torch.empty(98432)
    rows, softmaxed = torch.randn(123, 781), torch.empty(123, 781)
    a, b = torch.randn(2, 128, 128).half()
    c, dropped = torch.empty(128, 128).half(), torch.empty(98432)
    batch, weight, bias = torch.randn(115, 512), torch.rand(512), torch.rand(512)
    normed, sums = torch.empty(115, 512), torch.empty(512)
    q, k, v = torch.randn(3, 2, 128, 64).half()
    attended = torch.empty(2, 128, 64).half()
    lefts, rights = ([torch.randn(n, n).half() for n in (128, 64)] for _ in range(2))
    products = [torch.empty_like(each) for each in lefts]
    tables = [torch.tensor([each.data_ptr() for each in group]) for group in (lefts, rights, products)]
    sizes = torch.tensor([128, 64], dtype=torch.int32)

    def near(left: torch.Tensor, right: torch.Tensor) -> bool:
        return torch.allclose(left.float(), right.float(), atol=0.05, rtol=0.01)

    def attends() -> bool:
        return near(attended, torch.softmax(q.float() @ k.float().mT * 0.125, -1) @ v.float())

    return {
        "add": (lambda: add[(97,)](x, y, sum_, 98432, BLOCK=1024), lambda: torch.equal(sum_, x + y)),
        "softmax": (
            lambda: softmax[(32,)](rows, softmaxed, 123, 781, BLOCK=1024, num_warps=8),
            lambda: near(softmaxed, rows.softmax(-1)),
        ),
        "matmul": (
            lambda: matmul[(2, 2)](a, b, c, 128, 128, 128, BM=64, BN=64, BK=32),
            lambda: near(c, a.float() @ b.float()),
        ),
        "dropout": (
            lambda: dropout[(97,)](x, dropped, 98432, 0.5, 123, BLOCK=1024),
            lambda: 0.49 < float((dropped > 0).float().mean()) < 0.51,
        ),
        "layer_norm": (
            lambda: layer_norm[(115,)](batch, weight, bias, normed, 512, 1e-5, BLOCK=512),
            lambda: near(normed, torch.nn.functional.layer_norm(batch, (512,), weight, bias)),
        ),
        "column_sums": (
            lambda: column_sums[(16,)](batch, sums, 115, 512, BM=32, BN=32),
            lambda: near(sums, batch.sum(0)),
        ),
        "attention": (
            lambda: attention[(2, 2)](q, k, v, attended, 128, 0.125, BM=64, BN=32, D=64),
            attends,
        ),
        "grouped_matmul": (
            lambda: grouped_matmul[(4,)](*tables, sizes, 2, BM=32, BN=32),
            lambda: all(
                map(near, products, (m.float() @ n.float() for m, n in zip(lefts, rights, strict=True)))
            ),
        ),
    }


def measure(arch: str) -> dict[str, dict[str, float]]:
    """Return the seconds of each launch, by name; with an architecture, in the simulator."""
    compiled: list[float] = []
    if not arch:
        return measured(compiled)
    triton.knobs.compilation.listener = lambda **event: compiled.append(event["times"].total / 1e6)
    with tempfile.TemporaryDirectory() as folder, dotcu.simulate(arch=arch):
        triton.knobs.cache.dir = folder
        return measured(compiled)


def measured(compiled: list[float]) -> dict[str, dict[str, float]]:
    found = {}
    for name, (launch, is_right) in launches().items():
        times = []
        compiled.clear()
        for _ in range(1 + LAUNCHES):
            start = time.perf_counter()
            launch()
            times.append(time.perf_counter() - start)
        if not is_right():
            raise AssertionError(f"{name} is wrong")
        found[name] = {"launch_s": min(times[1:]), "overhead_s": times[0] - sum(compiled) - min(times[1:])}
    return found


def in_a_process(arch: str) -> dict[str, dict[str, float]]:
    env = os.environ | ({} if arch else {"TRITON_INTERPRET": "1"})
    command = [sys.executable, __file__, "--one", "--arch", arch]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        sys.exit(done.stderr or done.returncode)
    found: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="sm_80", help="the architecture that is simulated (sm_80)")
    parser.add_argument("--save", type=Path, help="write the figures as JSON")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of both (3)")
    parser.add_argument("--one", action="store_true", help="one round of one of them, as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.arch)))
        return 0
    rounds = [(in_a_process(options.arch), in_a_process("")) for _ in range(options.rounds)]
    rows = []
    for name in rounds[0][0]:
        simulator, interpreter = (
            statistics.median(row[i][name]["launch_s"] for row in rounds) for i in (0, 1)
        )
        overhead = statistics.median(row[0][name]["overhead_s"] for row in rounds)
        rows.append({"kernel": name, "simulator_s": simulator, "interpreter_s": interpreter,
                     "ratio": simulator / interpreter, "overhead_s": overhead})  # fmt: skip
        print(f"{name:16} {simulator:8.4f} s, interpreter {interpreter:8.4f} s, "
              f"ratio {simulator / interpreter:6.3f}, overhead of the first {overhead:6.3f} s")  # fmt: skip
    ratio = statistics.geometric_mean(row["ratio"] for row in rows)
    overhead = max(row["overhead_s"] for row in rows)
    print(f"geometric mean at most {GOAL}: {ratio:.3f}, {'held' if ratio <= GOAL else 'MISSED'}")
    is_short = overhead <= OVERHEAD_GOAL_S
    print(f"overhead at most {OVERHEAD_GOAL_S} s: {overhead:.3f} s, {'held' if is_short else 'MISSED'}")
    if options.save:
        command = f"python benchmarks/triton_interpreter.py --arch {options.arch} --rounds {options.rounds}"
        text = json.dumps({"version": 1, "command": command, "triton": triton.__version__,
                           "torch": torch.__version__, "goal": GOAL, "geometric_mean": ratio,
                           "overhead_goal_s": OVERHEAD_GOAL_S, "results": rows}, indent=1)  # fmt: skip
        options.save.write_text(text + "\n", encoding="utf-8")
    return not (ratio <= GOAL and is_short)


if __name__ == "__main__":
    sys.exit(main())
