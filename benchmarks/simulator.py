"""How fast kernels run on the simulator, all its checks on, and how that compares with Numba's.

Run: python benchmarks/simulator.py [--save FILE] [--repeat N] [--only CASE ...]
     [--numba-python PYTHON]

Times are of one launch from the call to the results, compilation apart, medians of n launches
after one that does not count. Every case compares its results with PyTorch's first.

The peer is the CUDA simulator of Numba (NUMBA_ENABLE_CUDASIM=1), the one other that is
maintained: the same kernels in Python, on the same sizes, which are small since it runs every
thread of a block as a thread of the operating system. It is no dependency: install it with
`pip install numba`, into an environment of its own if you like, and name that one's Python.
Without it the rest is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import dotcu
from dotcu.errors import UnsupportedInstruction

RIGHT = Path(__file__).parent.parent / "tests" / "right"

# ---------------------------------------------------------------- kernels

SCALE = """
extern "C" __global__ void scale(const float* x, float* y, float a, float b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + b;
}
"""

TILED = """
constexpr int T = 16;

extern "C" __global__ void tiled(const float* a, const float* b, float* c, int n) {
    __shared__ float ta[T][T], tb[T][T];
    int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < n; t += T) {
        ta[threadIdx.y][threadIdx.x] = a[row * n + t + threadIdx.x];
        tb[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + col];
        __syncthreads();
        for (int k = 0; k < T; ++k) sum += ta[threadIdx.y][k] * tb[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + col] = sum;
}
"""

# A block makes 64 x 64 of c, its four warps 32 x 32 each; two stages of shared memory, whose rows
# are padded so that the eight rows of a matrix that ldmatrix reads lie in different banks.
TENSOR_CORES = """
#include <cuda_fp16.h>

constexpr int TILE = 64, DEPTH = 32, A_PITCH = DEPTH + 8, B_PITCH = TILE + 8;

__device__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void copy_16(half* to, const half* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
}

__device__ void load_a(unsigned (&r)[4], const half* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)));
}

__device__ void load_b(unsigned (&r)[4], const half* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)));
}

__device__ void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned* b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

extern "C" __global__ void __launch_bounds__(128)
tensor_cores(const half* a, const half* b, float* c, int n) {
    __shared__ __align__(16) half ta[2][TILE][A_PITCH], tb[2][DEPTH][B_PITCH];
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    int row = blockIdx.y * TILE, col = blockIdx.x * TILE;
    int warp_row = warp / 2 * 32, warp_col = warp % 2 * 32;

    auto fetch = [&](int stage, int k) {
        for (int i = thread; i < TILE * DEPTH / 8; i += 128) {
            int r = i / (DEPTH / 8), q = i % (DEPTH / 8) * 8;
            copy_16(&ta[stage][r][q], &a[(size_t)(row + r) * n + k + q]);
        }
        for (int i = thread; i < DEPTH * TILE / 8; i += 128) {
            int r = i / (TILE / 8), q = i % (TILE / 8) * 8;
            copy_16(&tb[stage][r][q], &b[(size_t)(k + r) * n + col + q]);
        }
        asm volatile("cp.async.commit_group;");
    };

    float sum[2][4][4] = {};
    fetch(0, 0);
    for (int k = 0, stage = 0; k < n; k += DEPTH, stage ^= 1) {
        if (k + DEPTH < n) {
            fetch(stage ^ 1, k + DEPTH);
            asm volatile("cp.async.wait_group 1;");
        } else {
            asm volatile("cp.async.wait_group 0;");
        }
        __syncthreads();
        for (int kk = 0; kk < DEPTH; kk += 16) {
            unsigned fa[2][4], fb[2][4];
            for (int i = 0; i < 2; ++i)
                load_a(fa[i], &ta[stage][warp_row + 16 * i + lane % 16][kk + lane / 16 * 8]);
            for (int j = 0; j < 2; ++j)
                load_b(fb[j], &tb[stage][kk + lane % 16][warp_col + 16 * j + lane / 16 * 8]);
            for (int i = 0; i < 2; ++i)
                for (int j = 0; j < 4; ++j) multiply(sum[i][j], fa[i], &fb[j / 2][j % 2 * 2]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j) {
            int r = row + warp_row + 16 * i + lane / 4, q = col + warp_col + 8 * j + lane % 4 * 2;
            c[(size_t)r * n + q] = sum[i][j][0];
            c[(size_t)r * n + q + 1] = sum[i][j][1];
            c[(size_t)(r + 8) * n + q] = sum[i][j][2];
            c[(size_t)(r + 8) * n + q + 1] = sum[i][j][3];
        }
}
"""

SOFTMAX = """
__device__ float wide_max(float v, float* part) {
    for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[threadIdx.x % 8];
    for (int d = 4; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

__device__ float wide_sum(float v, float* part) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[threadIdx.x % 8];
    for (int d = 4; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

extern "C" __global__ void softmax(const float* x, float* y, int n) {
    __shared__ float maxima[8], sums[8];
    x += (long long)blockIdx.x * n;
    y += (long long)blockIdx.x * n;
    float largest = -1e30f, sum = 0;
    for (int i = threadIdx.x; i < n; i += 256) largest = fmaxf(largest, x[i]);
    largest = wide_max(largest, maxima);
    for (int i = threadIdx.x; i < n; i += 256) sum += expf(x[i] - largest);
    sum = wide_sum(sum, sums);
    for (int i = threadIdx.x; i < n; i += 256) y[i] = expf(x[i] - largest) / sum;
}
"""

CHAIN = """
extern "C" __global__ void chain(unsigned* x, int n) {
    unsigned v = x[threadIdx.x];
    for (int i = 0; i < n; ++i) v = (v ^ (v >> 13)) * 1664525u + i;
    x[threadIdx.x] = v;
}
"""

BLOCK_SUM = """
extern "C" __global__ void block_sum(const float* x, float* out) {
    __shared__ float part[128];
    int t = threadIdx.x;
    part[t] = x[blockIdx.x * 128 + t];
    __syncthreads();
    for (int d = 64; d > 0; d /= 2) {
        if (t < d) part[t] += part[t + d];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}
"""

# The same three kernels for Numba's simulator: it prints a JSON object of lists of seconds.
PEER = """
import json, sys, time
import numpy as np
from numba import cuda, float32

@cuda.jit
def scale(x, y, a, b, n):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < n:
        y[i] = a * x[i] + b

@cuda.jit
def tiled(a, b, c, n):
    ta = cuda.shared.array((16, 16), float32)
    tb = cuda.shared.array((16, 16), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * 16 + ty, cuda.blockIdx.x * 16 + tx
    total = float32(0)
    for t in range(0, n, 16):
        ta[ty, tx] = a[row, t + tx]
        tb[ty, tx] = b[t + ty, col]
        cuda.syncthreads()
        for k in range(16):
            total += ta[ty, k] * tb[k, tx]
        cuda.syncthreads()
    c[row, col] = total

@cuda.jit
def block_sum(x, out):
    part = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    part[t] = x[cuda.blockIdx.x * 128 + t]
    cuda.syncthreads()
    d = 64
    while d > 0:
        if t < d:
            part[t] += part[t + d]
        cuda.syncthreads()
        d //= 2
    if t == 0:
        out[cuda.blockIdx.x] = part[0]

def timed(launch, check, repeat):
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        launch()
        seconds.append(time.perf_counter() - start)
        check()
    return seconds

elements, n, summed, repeat = map(int, sys.argv[1:])
generator = np.random.default_rng(0)
x = generator.standard_normal(elements).astype("f4")
y = np.zeros_like(x)
a, b = (generator.standard_normal((n, n)).astype("f4") for _ in range(2))
c = np.zeros_like(a)
s = generator.standard_normal(summed).astype("f4")
out = np.zeros(summed // 128, "f4")
two, three = np.float32(2), np.float32(3)
print(json.dumps({
    "scale": timed(lambda: scale[elements // 256, 256](x, y, two, three, elements),
                   lambda: np.testing.assert_allclose(y, 2 * x + 3, 1e-5, 1e-5), repeat),
    "tiled": timed(lambda: tiled[(n // 16, n // 16), (16, 16)](a, b, c, n),
                   lambda: np.testing.assert_allclose(c, a @ b, 1e-4, 1e-4), repeat),
    "block_sum": timed(lambda: block_sum[summed // 128, 128](s, out),
                       lambda: np.testing.assert_allclose(out, s.reshape(-1, 128).sum(1), 1e-4, 1e-4),
                       repeat),
}))
"""

# ---------------------------------------------------------------- cases


@dataclass(frozen=True, kw_only=True)
class Case:
    """A launch, and what its time is held to.

    Attributes:
        make: Gives a function that launches the kernel, and one that raises if the results are wrong.
        goal_s: Seconds that it is to take at most; None where it is only measured.
        goal_rate: Lane instructions a second that it is to reach.
        peer: The peer's kernel that does the same work.
    """

    name: str
    make: Callable[[], tuple[Callable[[], None], Callable[[], None]]]
    repeat: int = 5
    goal_s: float | None = None
    goal_rate: float | None = None
    peer: str = ""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What one case took.

    Attributes:
        median_s: Seconds of one launch: median, least and most of n.
        steps: Instructions issued, each for however many lanes stood there together.
        lane_instructions: Instructions, counted once for each lane that ran them.
        seeded: Times as long as that a launch with `seed=` takes, measured alternating; at most 2.5.
        peer_median_s: Seconds of the peer on the same work.
        goal: What was aimed at, and whether it holds.
    """

    case: str
    n: int
    median_s: float
    min_s: float
    max_s: float
    seeded: float
    steps: int
    lane_instructions: int
    peer_median_s: float | None = None
    peer_n: int = 0
    goal: str = ""
    reached: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A case, or the peer, that could not be run here."""

    case: str
    reason: str


def random(*shape: int) -> torch.Tensor:
    """Standard normal numbers, the same in each run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def scale(elements: int) -> Any:
    """y = a x + b over floats."""
    module = dotcu.load_inline(SCALE)
    x, y = random(elements), torch.zeros(elements)
    return (
        lambda: module.scale(x, y, 2.0, 3.0, elements, grid=dotcu.cdiv(elements, 256), block=256),
        lambda: torch.testing.assert_close(y, 2 * x + 3),
    )


def tiled(n: int) -> Any:
    """c = a b of n x n floats, tiles of 16 x 16 in shared memory."""
    module = dotcu.load_inline(TILED)
    a, b, c = random(n, n), random(n, n).flip(0).contiguous(), torch.zeros(n, n)
    return (
        lambda: module.tiled(a, b, c, n, grid=(n // 16, n // 16), block=(16, 16)),
        lambda: torch.testing.assert_close(c, a @ b, rtol=1e-4, atol=1e-4),
    )


def tensor_cores(n: int) -> Any:
    """c = a b of n x n halves, summed in floats by mma.sync."""
    module = dotcu.load_inline(TENSOR_CORES)
    a, b, c = random(n, n).half(), random(n, n).flip(0).contiguous().half(), torch.zeros(n, n)
    return (
        lambda: module.tensor_cores(a, b, c, n, grid=(n // 64, n // 64), block=128),
        lambda: torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-3, atol=1e-3),
    )


def hopper(kernel: str, n: int, **launch: Any) -> Any:
    """out = a b.T of n x n bf16 by TMA, mbarriers and wgmma, by a kernel of tests/right.

    Args:
        kernel: The file; it is persistent, on clusters of two blocks, if it is `cluster_matmul`.
        n: The size.
        launch: The grid, and the shared memory.
    """
    module = dotcu.load(RIGHT / f"{kernel}.cu")
    a, b = random(n, n).bfloat16(), random(n, n).flip(0).contiguous().bfloat16()
    out = torch.zeros(n, n, dtype=torch.bfloat16)
    in_clusters = kernel == "cluster_matmul"
    maps = [
        dotcu.tensor_map(x, box=(r, 64), swizzle=128) for x, r in ((a, 128), (b, 32 if in_clusters else 128))
    ]
    sizes = (n, n, n) if in_clusters else (n, n)
    return (
        lambda: module.matmul(*maps, out, *sizes, block=384, **launch),
        lambda: torch.testing.assert_close(out.float(), a.float() @ b.float().T, rtol=1e-2, atol=1e-1),
    )


def softmax(rows: int, columns: int) -> Any:
    """Softmax of each row, a block of 256 threads for each."""
    module = dotcu.load_inline(SOFTMAX)
    x, y = random(rows, columns), torch.zeros(rows, columns)
    return (
        lambda: module.softmax(x, y, columns, grid=rows, block=256),
        lambda: torch.testing.assert_close(y, x.softmax(1), rtol=1e-5, atol=1e-7),
    )


def chain(count: int) -> Any:
    """One warp that goes round a loop: what a step costs when there is little in it."""
    module = dotcu.load_inline(CHAIN)
    first = torch.arange(32, dtype=torch.int32)
    x = first.clone()

    def launch() -> None:
        x.copy_(first)
        module.chain(x, count, grid=1, block=32)

    def check() -> None:
        want = first.tolist()
        for i in range(count):
            want = [((v ^ (v >> 13)) * 1664525 + i) & 0xFFFFFFFF for v in want]
        assert [v & 0xFFFFFFFF for v in x.tolist()] == want

    return launch, check


def block_sum(elements: int) -> Any:
    """The sum of each 128 floats, by halves in shared memory."""
    module = dotcu.load_inline(BLOCK_SUM)
    x, out = random(elements), torch.zeros(elements // 128)
    return (
        lambda: module.block_sum(x, out, grid=elements // 128, block=128),
        lambda: torch.testing.assert_close(out, x.view(-1, 128).sum(1), rtol=1e-4, atol=1e-4),
    )


PEER_ELEMENTS, PEER_SIDE, PEER_SUMMED, PEER_REPEAT, PEER_GOAL = 1 << 14, 64, 1 << 12, 3, 100.0

CASES = (
    Case(name="elementwise a x + b, 2^20", make=lambda: scale(1 << 20), repeat=9, goal_rate=100e6),
    Case(name="tiled matmul f32, 512^3", make=lambda: tiled(512), repeat=3, goal_s=3.0),
    Case(name="tiled matmul f32, 256^3", make=lambda: tiled(256)),
    Case(name="mma.sync matmul f16, 256^3", make=lambda: tensor_cores(256), goal_s=0.2),
    Case(
        name="wgmma matmul bf16, 1024^3",
        make=lambda: hopper("warp_specialized_matmul", 1024, grid=(8, 8), smem_bytes=4 * 32768),
        repeat=3,
        goal_s=3.0,
    ),
    Case(
        name="persistent multicast matmul bf16, 512^3",
        make=lambda: hopper("cluster_matmul", 512, grid=8, smem_bytes=4 * 24576),
        repeat=3,
        goal_s=3.0,
    ),
    Case(name="softmax f32, 4096 x 1024", make=lambda: softmax(4096, 1024), repeat=3, goal_s=2.0),
    Case(name="one warp, 2000 turns", make=lambda: chain(2000)),
    Case(name="elementwise a x + b, 2^14", make=lambda: scale(PEER_ELEMENTS), repeat=9, peer="scale"),
    Case(name="tiled matmul f32, 64^3", make=lambda: tiled(PEER_SIDE), repeat=9, peer="tiled"),
    Case(name="block sum f32, 2^12", make=lambda: block_sum(PEER_SUMMED), repeat=9, peer="block_sum"),
)

# ---------------------------------------------------------------- measuring


def measure(case: Case, repeat: int | None, peers: dict[str, list[float]]) -> Timing | Skipped:
    """Time a case's launches, after one that does not count and that is checked."""
    n = repeat or case.repeat
    try:
        launch, check = case.make()
        with dotcu.simulate() as run:
            launch()
        check()
        seconds, seeded = [], []
        for seed in range(n):
            with dotcu.simulate():
                seconds.append(timed(launch))
            with dotcu.simulate(seed=seed):
                seeded.append(timed(launch))
    except UnsupportedInstruction as error:
        return Skipped(case=case.name, reason=str(error).splitlines()[0])
    median = statistics.median(seconds)
    lane_instructions = run.counters.lane_instructions
    peer = peers.get(case.peer)
    peer_median = statistics.median(peer) if peer else None
    goal, reached = judge(case, median, lane_instructions, peer_median)
    return Timing(
        case=case.name,
        n=n,
        median_s=median,
        min_s=min(seconds),
        max_s=max(seconds),
        seeded=statistics.median(seeded) / median,
        steps=run.counters.steps,
        lane_instructions=lane_instructions,
        peer_median_s=peer_median,
        peer_n=len(peer) if peer else 0,
        goal=goal,
        reached=reached,
    )


def judge(
    case: Case, median_s: float, lane_instructions: int, peer_s: float | None
) -> tuple[str, bool | None]:
    """A case's goal in words, and whether it was reached."""
    if case.goal_s is not None:
        return f"< {case.goal_s:g} s", median_s < case.goal_s
    if case.goal_rate is not None:
        return f"> {case.goal_rate / 1e6:g} M/s", lane_instructions / median_s > case.goal_rate
    if peer_s is not None:
        return f"> {PEER_GOAL:g} x the peer", peer_s / median_s > PEER_GOAL
    return "", None


def timed(launch: Callable[[], None]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    launch()
    return time.perf_counter() - start


def run_peer(python: str) -> dict[str, list[float]] | Skipped:
    """Seconds of each launch of the peer's kernels, the first ones left out."""
    sizes = (PEER_ELEMENTS, PEER_SIDE, PEER_SUMMED, PEER_REPEAT + 1)
    done = subprocess.run(
        [python, "-c", PEER, *map(str, sizes)],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return Skipped(case="Numba's simulator", reason=done.stderr.strip().splitlines()[-1])
    found: dict[str, list[float]] = json.loads(done.stdout)
    return {name: seconds[1:] for name, seconds in found.items()}


def machine() -> dict[str, Any]:
    """What the figures hold for."""
    import numpy as np

    return {
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
    }


def show(results: list[Timing | Skipped]) -> None:
    """Print a line for each case."""
    print(
        f"{'case':28} {'n':>2} {'median':>10} {'min':>10} {'max':>10} {'M lane/s':>9} {'us/step':>8} "
        f"{'x seeded':>8} {'x peer':>8}  goal"
    )
    for result in results:
        if isinstance(result, Skipped):
            print(f"{result.case:28} not measured: {result.reason}")
            continue
        times = " ".join(f"{s * 1000:7.1f} ms" for s in (result.median_s, result.min_s, result.max_s))
        rate = result.lane_instructions / result.median_s / 1e6
        step = result.median_s / result.steps * 1e6
        ratio = f"{result.peer_median_s / result.median_s:8.1f}" if result.peer_median_s else f"{'-':>8}"
        verdict = "" if result.reached is None else (", reached" if result.reached else ", missed")
        print(
            f"{result.case:28} {result.n:2} {times} {rate:9.1f} {step:8.1f} {result.seeded:8.2f} {ratio}  "
            f"{result.goal}{verdict}"
        )


def main() -> None:
    """Measure every case, print, and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", type=Path, help="write the figures as JSON, with the machine they hold for")
    parser.add_argument("--repeat", type=int, help="launches of each case, instead of a number for each")
    parser.add_argument("--only", nargs="+", help="cases whose names contain one of these words")
    parser.add_argument("--numba-python", default=sys.executable, help="the Python that has Numba")
    options = parser.parse_args()
    chosen = [c for c in CASES if not options.only or any(word in c.name for word in options.only)]
    results: list[Timing | Skipped] = []
    peers: dict[str, list[float]] = {}
    if any(case.peer for case in chosen):
        found = run_peer(options.numba_python)
        if isinstance(found, Skipped):
            results.append(found)
        else:
            peers = found
    results += [measure(case, options.repeat, peers) for case in chosen]
    show(results)
    if options.save:
        document = {
            "version": 1,
            "command": "python benchmarks/simulator.py",
            "machine": machine(),
            "results": [asdict(result) for result in results],
        }
        options.save.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
