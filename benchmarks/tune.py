"""What `dotcu tune` takes and finds: a template of plain CUDA with some 200 configurations.

    python benchmarks/tune.py                      # seconds, the file, equal files of two runs
    python benchmarks/tune.py --runs 20            # twenty files from the start, compared
    python benchmarks/tune.py --exhaustive         # the choice against that of a search of everything
    python benchmarks/tune.py --faults             # configurations that hang, fault, are wrong

Needs a GPU. Writes into a temporary folder.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dotcu.benchmark.device import BenchDevice
from dotcu.benchmark.results import Protocol
from dotcu.checking.target import resolve
from dotcu.operator import tuned
from dotcu.tuning import search, session, tune
from dotcu.tuning.tuner import prepare

SHAPES = "1024x1024:1024x1024,2048x2048:2048x2048,512x4096:4096x1024,256x256:256x256"

MATMUL = r'''
"""A product of float32 matrices, tiled: what a thread, a block and a step compute are configurations."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load("matmul.cu")


class Tile(NamedTuple):
    bm: int
    bn: int
    bk: int
    tm: int
    tn: int


@dotcu.op("tuned_example::matmul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = a.new_empty((m, n))
    t = matmul.configuration(m, n, k)
    grid = dotcu.cdiv(n, t.bn), dotcu.cdiv(m, t.bm)
    kernel = kernels.matmul[t.bm, t.bn, t.bk, t.tm, t.tn]
    kernel(a.contiguous(), b.contiguous(), out, m, n, k, grid=grid, block=t.bm // t.tm * (t.bn // t.tn))
    return out


@matmul.configurations
def _() -> Iterator[Tile]:
    yield Tile(64, 64, 16, 4, 4)
    for bm in (32, 64, 128):
        for bn in (32, 64, 128):
            for bk in (8, 16, 32):
                for tm in (2, 4, 8):
                    for tn in (2, 4, 8):
                        if 32 <= bm // tm * (bn // tn) <= 1024:
                            yield Tile(bm, bn, bk, tm, tn)


@matmul.reference
def _(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


@matmul.work
def _(a: Tensor, b: Tensor) -> tuple[int, int]:
    (m, k), n = a.shape, b.shape[1]
    return 4 * (m * k + k * n + m * n), 2 * m * n * k


@matmul.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for m, k, n in ((64, 48, 80), (70, 33, 65)):
        yield dotcu.Sample(torch.randn(m, k, device=device), torch.randn(k, n, device=device))
'''

KERNEL = r"""
template <int BM, int BN, int BK, int TM, int TN>
__global__ __launch_bounds__(BM / TM * (BN / TN)) void matmul(const float* a, const float* b, float* out,
                                                              int m, int n, int k) {
    constexpr int columns = BN / TN, threads = BM / TM * columns;
    __shared__ float as[BK][BM + 4], bs[BK][BN];
    const int top = blockIdx.y * BM, left = blockIdx.x * BN;
    const int row = threadIdx.x / columns * TM, column = threadIdx.x % columns * TN;
    float sum[TM][TN] = {};
    for (int at = 0; at < k; at += BK) {
        for (int i = threadIdx.x; i < BM * BK; i += threads) {
            const int r = top + i / BK, c = at + i % BK;
            as[i % BK][i / BK] = r < m && c < k ? a[(long long)r * k + c] : 0;
        }
        for (int i = threadIdx.x; i < BK * BN; i += threads) {
            const int r = at + i / BN, c = left + i % BN;
            bs[i / BN][i % BN] = r < k && c < n ? b[(long long)r * n + c] : 0;
        }
        __syncthreads();
#pragma unroll
        for (int p = 0; p < BK; ++p) {
            float x[TM], y[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) x[i] = as[p][row + i];
#pragma unroll
            for (int j = 0; j < TN; ++j) y[j] = bs[p][column + j];
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] += x[i] * y[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; ++j)
            if (top + row + i < m && left + column + j < n)
                out[(long long)(top + row + i) * n + left + column + j] = sum[i][j];
}
"""

FAULTS = r'''
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

import dotcu

kernels = dotcu.load_inline(r"""
template <int KIND>
__global__ void twice(const float* x, float* out, int n, volatile int* flag) {
    static_assert(KIND != 5, "this configuration does not compile");
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (KIND == 1) while (*flag == 0) {}
    if (KIND == 2 && i == 0) *(volatile float*)16 = 1;
    if (KIND == 3 && n % 32 && i == n) out[n] = 1;
    if (i < n) out[i] = KIND == 4 && n > 64 ? 0.f / 0.f : 2 * x[i];
}
""")


class Kind(NamedTuple):
    name: str


NAMES = ("good", "hangs", "faults", "writes beyond", "is NaN beyond 64", "does not compile", "good too")


@dotcu.op("tuned_example::twice")
def twice(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kind = NAMES.index(twice.configuration(x.numel()).name)
    flag = x.new_zeros((1,), dtype=torch.int32)
    kernels.twice[kind](x, out, x.numel(), flag, grid=dotcu.cdiv(x.numel(), 128), block=128)
    return out


@twice.configurations
def _() -> Iterator[Kind]:
    for name in NAMES:
        yield Kind(name)


@twice.reference
def _(x: Tensor) -> Tensor:
    return 2 * x


@twice.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    for n in (64, 100):
        yield dotcu.Sample(torch.randn(n, device=device))
'''


def write(folder: Path) -> Path:
    """Write the operators into a folder, and return the file of the product."""
    (folder / "matmul.cu").write_text(KERNEL)
    (folder / "matmul_ops.py").write_text(MATMUL)
    (folder / "fault_ops.py").write_text(FAULTS)
    return folder / "matmul_ops.py"


def chosen(file: Path) -> dict[Any, Any]:
    """Return the configuration of each key in a file."""
    of_file = tuned.read(file).operators.values()
    return {entry.key: entry.configuration for entries in of_file for entry in entries}


def tune_and_compare(op: Any, shapes: str, runs: int) -> None:
    """Tune several times from the start, and once more over the last file; print what differs."""
    file, seen, texts = op.tunable.file, Counter[str](), Counter[str]()
    for run in range(runs):
        file.unlink(missing_ok=True)
        op.tunable.forget()
        report = tune(op, shapes=shapes)
        if run == 0:
            print(report)
        print(f"run {run}: {report.seconds:.1f} s, {len(op.tunable.space)} configurations")
        for key, configuration in chosen(file).items():
            seen[f"{key}: {configuration}"] += 1
        texts[str(sorted(map(str, chosen(file).items())))] += 1
    for line, count in sorted(seen.items()):
        print(f"  {count}/{runs} {line}")
    print(f"equal choices: {max(texts.values())} of {runs} runs")
    before = file.read_bytes()
    tune(op, shapes=shapes)
    print(f"tuned again over the file: {'the same bytes' if file.read_bytes() == before else 'another file'}")
    print(file.read_text())


def compare_with_exhaustive(op: Any, shapes: str) -> None:
    """Time every configuration for long, and compare the choice with the best of them."""
    timer = BenchDevice(prepare(op, shapes=shapes).device).timer
    rounds, most = session.ROUNDS, search.MOST_ROUNDS
    quick = prepare(op, shapes=shapes, timer=timer)
    began = time.monotonic()
    rows = list(quick.run())
    quick_s = time.monotonic() - began
    session.ROUNDS, search.MOST_ROUNDS = (Protocol(blocks=8, most_blocks=8, calls=4, block_s=0.0),), 1
    op.tunable.file.unlink(missing_ok=True)
    op.tunable.forget()
    began = time.monotonic()
    full = list(prepare(op, shapes=shapes, timer=timer).run())
    full_s = time.monotonic() - began
    session.ROUNDS, search.MOST_ROUNDS = rounds, most
    print(f"halving {quick_s:.1f} s, exhaustive {full_s:.1f} s")
    for quickly, fully in zip(rows, full, strict=True):
        if quickly.median_us is None or fully.median_us is None:
            print(f"  {quickly.case}: {quickly.reason or fully.reason}")
            continue
        fastest_us = fully.median_us * min(1.0, fully.over_runner_up)  # whichever the ties are settled for
        print(
            f"  {quickly.case}: {quickly.median_us:.2f} us {dict(quickly.configuration)}, the fastest of all "
            f"{fastest_us:.2f} us: {quickly.median_us / fastest_us:.3f}"
        )


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--exhaustive", action="store_true")
    parser.add_argument("--faults", action="store_true")
    args = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        file = write(Path(folder))
        if args.faults:
            print(tune(resolve(str(file.with_name("fault_ops.py")))[0][1]))
            return
        op: Any = resolve(str(file))[0][1]
        if args.exhaustive:
            compare_with_exhaustive(op, args.shapes)
        else:
            tune_and_compare(op, args.shapes, args.runs)


if __name__ == "__main__":
    main()
