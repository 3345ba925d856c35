"""Numba's kernels run in the simulator as they are written, and their faults are named by line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dotcu
from dotcu.errors import SimulationError

pytest.importorskip("numba", reason="Numba is not installed")
with suppress(ImportError):
    import_module("_numba_cuda_redirector")  # as pip's .pth does: this folder may be on PYTHONPATH alone
cuda: Any = pytest.importorskip("numba.cuda", reason="numba-cuda is not installed")
from numba import float32, int32, types  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*under-utilization", "ignore:.*debug=True")

ARCHITECTURES = ("sm_75", "sm_80", "sm_90")


@pytest.fixture(params=ARCHITECTURES)
def run(request: pytest.FixtureRequest) -> Iterator[Any]:
    with dotcu.simulate(arch=request.param, on_finding="collect") as run:
        yield run
    assert [str(finding) for finding in run.findings] == []
    assert run.launches


@cuda.jit
def saxpy(a, x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = a * x[i] + y[i]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.complex64, np.uint8])
def test_arrays_of_numpy(run: Any, dtype: Any) -> None:
    x, y = np.arange(300).astype(dtype), np.ones(300, dtype)
    expected = (2 * x + y).astype(dtype)
    saxpy[3, 128](2, x, y, 300)
    np.testing.assert_allclose(y, expected)


def test_tensors_and_forall(run: Any) -> None:
    x, y = torch.rand(300), torch.rand(300)
    expected = 2 * x + y
    saxpy.forall(300)(np.float32(2), x, y, 300)
    torch.testing.assert_close(y, expected)


def test_strides_also_negative_ones(run: Any) -> None:
    x, y = np.arange(20.0)[::-2], np.zeros((10, 3))
    saxpy[1, 32](1.0, x, y[:, 1], 10)
    assert y[:, 1].tolist() == x.tolist()
    assert not y[:, 0].any()


@cuda.jit
def matmul(a, b, c):
    sa = cuda.shared.array((8, 8), float32)
    sb = cuda.shared.array((8, 8), float32)
    i, j = cuda.grid(2)
    ti, tj = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for k in range((a.shape[1] + 7) // 8):
        sa[ti, tj] = 0
        sb[ti, tj] = 0
        if i < a.shape[0] and k * 8 + tj < a.shape[1]:
            sa[ti, tj] = a[i, k * 8 + tj]
        if j < b.shape[1] and k * 8 + ti < b.shape[0]:
            sb[ti, tj] = b[k * 8 + ti, j]
        cuda.syncthreads()
        for m in range(8):
            total += sa[ti, m] * sb[m, tj]
        cuda.syncthreads()
    if i < c.shape[0] and j < c.shape[1]:
        c[i, j] = total


def test_matmul(run: Any) -> None:
    a, b, c = torch.rand(20, 30), torch.rand(30, 18), torch.empty(20, 18)
    matmul[(3, 3), (8, 8)](a, b, c)
    torch.testing.assert_close(c, a @ b)


@cuda.jit
def reduce_shared(x, out):
    s = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    s[t] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    step = cuda.blockDim.x // 2
    while step > 0:
        if t < step:
            s[t] += s[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        cuda.atomic.add(out, 0, s[0])


def test_reduction_in_dynamic_shared_memory(run: Any) -> None:
    x, out = np.random.rand(1000).astype(np.float32), np.zeros(1, np.float32)
    reduce_shared[8, 128, 0, 512](x, out)
    np.testing.assert_allclose(out[0], x.sum(), rtol=1e-5)


@cuda.jit
def reduce_warp(x, out):
    value = x[cuda.grid(1)]
    offset = 16
    while offset:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
        offset //= 2
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, value)
    if cuda.all_sync(0xFFFFFFFF, value >= 0) and cuda.popc(cuda.ballot_sync(0xFFFFFFFF, True)) == 32:
        cuda.atomic.max(out, 1, float(cuda.popc(cuda.activemask())))


def test_warp_functions(run: Any) -> None:
    x, out = np.random.rand(128).astype(np.float32), np.zeros(2, np.float32)
    reduce_warp[2, 64](x, out)
    np.testing.assert_allclose(out, [x.sum(), 32], rtol=1e-5)


@cuda.jit
def scan(x, out):
    s = cuda.shared.array(128, int32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    step = 1
    while step < 128:
        add = s[t - step] if t >= step else 0
        cuda.syncthreads()
        s[t] += add
        cuda.syncthreads()
        step *= 2
    out[t] = s[t]


def test_scan(run: Any) -> None:
    x, out = np.arange(128, dtype=np.int32), np.zeros(128, np.int32)
    scan[1, 128](x, out)
    assert (out == np.cumsum(x)).all()


@cuda.jit
def histogram(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(out, x[i], 1)


def test_histogram(run: Any) -> None:
    x, out = np.random.randint(0, 16, 500), np.zeros(16, np.int64)
    histogram[2, 64](x, out)
    assert (out == np.bincount(x, minlength=16)).all()


@cuda.jit
def transpose(x, out):
    tile = cuda.shared.array((16, 17), float32)
    x0, y0 = cuda.blockIdx.x * 16, cuda.blockIdx.y * 16
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    tile[ty, tx] = x[y0 + ty, x0 + tx]
    cuda.syncthreads()
    out[x0 + ty, y0 + tx] = tile[tx, ty]


def test_transpose(run: Any) -> None:
    x, out = torch.rand(32, 48), torch.empty(48, 32)
    transpose[(3, 2), (16, 16)](x, out)
    assert torch.equal(out, x.T)


@cuda.jit
def stencil(x, out):
    i, j = cuda.grid(2)
    if 0 < i < x.shape[0] - 1 and 0 < j < x.shape[1] - 1:
        out[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])


def test_stencil(run: Any) -> None:
    x, out = np.random.rand(20, 20), np.zeros((20, 20))
    stencil[(2, 2), (16, 16)](x, out)
    expected = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
    np.testing.assert_allclose(out[1:-1, 1:-1], expected)


@cuda.jit(device=True)
def square(x):
    return x * x


@cuda.jit(fastmath=True)
def mathematics(x, out):
    i = cuda.grid(1)
    local = cuda.local.array(4, types.float64)
    for k in range(4):
        local[k] = square(x[i]) + k
    out[i, 0] = math.sin(x[i]) + math.exp(x[i]) + math.log(x[i]) + math.sqrt(x[i])
    out[i, 1] = math.pow(x[i], 1.5) + math.erf(x[i]) + math.tanh(x[i])
    out[i, 2] = local[i % 4]
    out[i, 3] = math.floor(x[i] * 7) % 3 + cuda.fma(x[i], 2.0, 1.0)


def test_functions_of_mathematics(run: Any) -> None:
    x, out = np.random.rand(64) + 0.1, np.zeros((64, 4))
    mathematics[1, 64](x, out)
    np.testing.assert_allclose(out[:, 0], np.sin(x) + np.exp(x) + np.log(x) + np.sqrt(x), rtol=1e-6)
    erf = torch.erf(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(out[:, 1], x**1.5 + erf + np.tanh(x), rtol=1e-6)
    np.testing.assert_allclose(out[:, 2], x * x + np.arange(64) % 4)
    np.testing.assert_allclose(out[:, 3], np.floor(x * 7) % 3 + 2 * x + 1)


@cuda.jit
def neighbours(x, out):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    x[i] *= 2
    grid.sync()
    out[i] = x[(i + 40) % x.size]
    grid.sync()
    x[i] = 0


def test_a_barrier_of_the_grid(run: Any) -> None:
    x, out = np.arange(128.0), np.zeros(128)
    neighbours[4, 32](x, out)
    assert (out == 2 * np.roll(np.arange(128.0), -40)).all()


@cuda.jit
def structures(points, scale, out):
    i = cuda.grid(1)
    if i < points.size:
        out[i] = (points[i].x * scale[0] + points[i].n) * scale[1][0]


def test_structures_and_tuples(run: Any) -> None:
    points = np.zeros(10, np.dtype([("x", np.float32), ("n", np.int32)], align=True))
    points["x"], points["n"] = np.arange(10), 3
    out = np.zeros(10)
    structures[1, 32](points, (2.0, (5, 1)), out)
    assert out.tolist() == [(2.0 * i + 3) * 5 for i in range(10)]


@cuda.jit
def many_atomics(x, counts):
    i = cuda.grid(1)
    cuda.atomic.add(counts, 0, x[i])
    cuda.atomic.sub(counts, 1, x[i])
    cuda.atomic.max(counts, 2, x[i])
    cuda.atomic.min(counts, 3, x[i])
    cuda.atomic.or_(counts, 4, x[i])
    cuda.atomic.xor(counts, 5, x[i])
    cuda.atomic.cas(counts, 6, 0, 7)


def test_atomics(run: Any) -> None:
    x, counts = np.arange(64), np.zeros(7, np.int64)
    many_atomics[2, 32](x, counts)
    assert counts.tolist() == [2016, -2016, 63, 0, 63, 0, 7]


@cuda.jit
def says(x):
    if cuda.grid(1) == 3:
        print("the third is", x[3], 7)  # noqa: T201


def test_printing(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    says[1, 32](np.full(32, 0.5))
    assert capsys.readouterr().out == "block (0,0,0) thread (3,0,0): the third is 0.500000 7\n"


def test_a_signature_that_is_declared(run: Any) -> None:
    @cuda.jit("void(float64[::1], int32)")
    def fill(x, n):
        x[cuda.grid(1)] = n

    x = np.zeros(32)
    fill[1, 32](x, 4)
    assert (x == 4).all()


@cuda.jit(debug=True, opt=False)
def divides(x, y):
    i = cuda.grid(1)
    if i >= x.size:
        raise ValueError("too many threads")
    x[i] = x[i] // y[i]


def test_an_exception_of_debugging() -> None:
    with dotcu.simulate():
        x = np.full(32, 6)
        divides[1, 32](x, np.full(32, 2))
        assert (x == 3).all()
        with pytest.raises(SimulationError, match=r"divides raised an exception in thread \(3[2-9], 0, 0\)"):
            divides[1, 40](x, np.full(40, 2))


# Faults, and right kernels that differ from them in little ------------------------------------------------


@cuda.jit
def past_the_end(x, y):
    i = cuda.grid(1)
    y[i] = x[i] * 2  # out-of-bounds


@cuda.jit
def within(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i] * 2


@cuda.jit
def no_barrier(x, y):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    if t < 64:
        s[t] = x[t % x.size]
    if t < y.size:
        y[t] = s[63 - t]  # race


@cuda.jit
def a_barrier(x, y):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    if t < 64:
        s[t] = x[t % x.size]
    cuda.syncthreads()
    if t < y.size:
        y[t] = s[63 - t]


@cuda.jit
def no_atomic(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[0] += x[i]  # race


@cuda.jit
def an_atomic(x, y):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(y, 0, x[i])


@cuda.jit
def unwritten_shared(x, y):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    if t < x.size and t < 63:
        s[t] = x[t]
    cuda.syncthreads()
    if t < y.size:
        y[t] = s[t + 4]  # uninitialized-read


@cuda.jit
def written_shared(x, y):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    if t < 64:
        s[t] = x[t % x.size]
    cuda.syncthreads()
    if t < y.size:
        y[t] = s[t + 4]


@cuda.jit
def other_block(x, y):
    i = cuda.threadIdx.x * 2 + cuda.blockIdx.x
    if i < x.size:
        y[i] = y[i] + x[x.size - 1 - i]
    cuda.syncthreads()
    if i < x.size:
        x[i] = y[i]  # race


@cuda.jit
def own_element(x, y):
    i = cuda.threadIdx.x * 2 + cuda.blockIdx.x
    if i < x.size:
        y[i] = y[i] + x[i]
    cuda.syncthreads()
    if i < x.size:
        x[i] = y[i]


@cuda.jit
def shared_too_small(x, y):
    s = cuda.shared.array(16, float32)
    t = cuda.threadIdx.x
    if t < 17:
        s[t] = x[t]  # out-of-bounds
    cuda.syncthreads()
    if t < 16:
        y[t] = s[t]


@cuda.jit
def shared_large_enough(x, y):
    s = cuda.shared.array(17, float32)
    t = cuda.threadIdx.x
    if t < 17:
        s[t] = x[t]
    cuda.syncthreads()
    if t < 16:
        y[t] = s[t]


@cuda.jit
def before_the_beginning(x, y):
    i = cuda.grid(1)
    p = i + x.size + 1
    if i < x.size:
        y[i] = x[i - p]  # out-of-bounds


@cuda.jit
def wraps_around(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i - x.size]


@cuda.jit
def no_syncwarp(x, y):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    if cuda.blockIdx.x == 0 and t < 32:
        s[t] = x[t]
        y[t] = s[31 - t]  # race


@cuda.jit
def a_syncwarp(x, y):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    if cuda.blockIdx.x == 0 and t < 32:
        s[t] = x[t]
        cuda.syncwarp()
        y[t] = s[31 - t]


@cuda.jit
def same_element(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i // 2] = x[i]  # race


@cuda.jit
def different_elements(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i]


FAULTS = [
    (past_the_end, within),
    (no_barrier, a_barrier),
    (no_atomic, an_atomic),
    (unwritten_shared, written_shared),
    (other_block, own_element),
    (shared_too_small, shared_large_enough),
    (before_the_beginning, wraps_around),
    (no_syncwarp, a_syncwarp),
    (same_element, different_elements),
]


def findings(kernel: Any, seed: int | None, arch: str) -> list[Any]:
    x, y = np.arange(50, dtype=np.float32), np.zeros(50, np.float32)
    with dotcu.simulate(arch=arch, seed=seed, on_finding="collect") as run:
        kernel[2, 64](x, y)
    assert run.launches
    return list(run.findings)


def marked(function: Callable[..., Any]) -> tuple[str, int]:
    """Return the fault that a comment in a kernel announces, and its line."""
    code = function.__code__
    lines = Path(code.co_filename).read_text().splitlines()
    for line in range(code.co_firstlineno, len(lines) + 1):
        _, found, kind = lines[line - 1].partition("  # ")
        if found:
            return kind.strip(), line
    raise AssertionError(function)


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize(("wrong", "right"), FAULTS, ids=[wrong.py_func.__name__ for wrong, _ in FAULTS])
def test_faults_are_found_by_kind_and_line(wrong: Any, right: Any, seed: int | None) -> None:
    found = findings(wrong, seed, "sm_80")
    assert marked(wrong.py_func) in {(finding.kind, finding.line) for finding in found}, found
    assert all(finding.file == __file__ for finding in found)
    assert [str(finding) for finding in findings(right, seed, "sm_80")] == []


def test_advice_is_in_words_of_numba() -> None:
    assert "Put cuda.syncthreads() between them" in str(findings(no_barrier, None, "sm_80")[0])
    assert "cuda.atomic.add" in " ".join(map(str, findings(no_atomic, None, "sm_80")))
    assert "`x`[50]" in str(findings(past_the_end, None, "sm_80")[0])
    assert "if i < x.size" in str(findings(past_the_end, None, "sm_80")[0])
