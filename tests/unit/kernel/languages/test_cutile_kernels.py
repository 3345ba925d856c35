"""cuTile Python kernels run in the simulator as they are written, and their faults are named by line."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import dotcu
from dotcu.errors import UsageError

ct: Any = pytest.importorskip("cuda.tile", reason="cuTile Python is not installed")
Size = ct.Constant[int]


@pytest.fixture(params=["sm_80", "sm_90"])
def run(request: pytest.FixtureRequest) -> Iterator[Any]:
    with dotcu.simulate(arch=request.param, on_finding="collect") as run:
        yield run
    assert [str(finding) for finding in run.findings] == []


@ct.kernel
def add(a, b, c, SIZE: Size):
    at = ct.bid(0)
    x = ct.load(a, index=(at,), shape=(SIZE,)) + ct.load(b, index=(at,), shape=(SIZE,))
    ct.store(c, index=(at,), tile=x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.float64])
def test_elementwise(run: Any, dtype: torch.dtype) -> None:
    a, b = torch.randn(100).mul(9).to(dtype), torch.randn(100).mul(9).to(dtype)
    c = torch.empty_like(a)
    ct.launch(None, (7,), add, (a, b, c, 16))
    assert torch.equal(c, a + b)


def test_view_with_strides(run: Any) -> None:
    a, b = torch.randn(100, 2)[:, 0], torch.randn(100)
    c = torch.empty_like(b)
    ct.launch(None, (7, 1, 1), add, (a, b, c, 16))
    assert torch.equal(c, a + b)


@ct.kernel
def matmul(A, B, C, M: Size, N: Size, K: Size):
    row, column = ct.bid(0), ct.bid(1)
    total = ct.full((M, N), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(A, axis=1, shape=(M, K))):
        a = ct.load(A, index=(row, k), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(B, index=(k, column), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(a, b, total)
    ct.store(C, index=(row, column), tile=ct.astype(total, C.dtype))


def test_matmul(run: Any) -> None:
    a, b, c = torch.randn(60, 40).half(), torch.randn(40, 50).half(), torch.empty(60, 50)
    ct.launch(None, (2, 2), matmul, (a, b, c, 32, 32, 16))
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-3, atol=1e-3)


@ct.kernel
def softmax(x, out, SIZE: Size):
    row = ct.bid(0)
    tile = ct.load(x, index=(row, 0), shape=(1, SIZE), padding_mode=ct.PaddingMode.NEG_INF)
    e = ct.exp(tile - ct.max(tile, axis=1, keepdims=True))
    ct.store(out, index=(row, 0), tile=e / ct.sum(e, axis=1, keepdims=True))


def test_softmax(run: Any) -> None:
    x = torch.randn(5, 50)
    out = torch.empty_like(x)
    ct.launch(None, (5,), softmax, (x, out, 64))
    torch.testing.assert_close(out, torch.softmax(x, -1))


@ct.kernel
def layer_norm(x, weight, bias, out, eps, SIZE: Size):
    row = ct.bid(0)
    tile = ct.load(x, index=(row, 0), shape=(1, SIZE))
    mean = ct.sum(tile, axis=1, keepdims=True) / SIZE
    centred = tile - mean
    scale = ct.rsqrt(ct.sum(centred * centred, axis=1, keepdims=True) / SIZE + eps)
    w = ct.load(weight, index=(0,), shape=(SIZE,))
    b = ct.load(bias, index=(0,), shape=(SIZE,))
    ct.store(out, index=(row, 0), tile=centred * scale * w + b)


def test_layer_norm(run: Any) -> None:
    x, w, b = torch.randn(5, 64), torch.randn(64), torch.randn(64)
    out = torch.empty_like(x)
    ct.launch(None, (5,), layer_norm, (x, w, b, out, 1e-5, 64))
    torch.testing.assert_close(out, torch.nn.functional.layer_norm(x, (64,), w, b), rtol=1e-4, atol=1e-5)


@ct.kernel
def attention(Q, K, V, out, scale: ct.Constant[float], M: Size, N: Size, D: Size):
    at = ct.bid(0)
    q = ct.load(Q, index=(at, 0), shape=(M, D))
    high = ct.full((M, 1), -1e30, dtype=ct.float32)
    total = ct.full((M, 1), 0.0, dtype=ct.float32)
    sums = ct.full((M, D), 0.0, dtype=ct.float32)
    for n in range(ct.num_tiles(K, axis=0, shape=(N, D))):
        k = ct.load(K, index=(n, 0), shape=(N, D))
        s = ct.mma(q, ct.transpose(k), ct.full((M, N), 0.0, dtype=ct.float32)) * scale
        higher = ct.maximum(high, ct.max(s, axis=1, keepdims=True))
        p = ct.exp(s - higher)
        factor = ct.exp(high - higher)
        total = total * factor + ct.sum(p, axis=1, keepdims=True)
        v = ct.load(V, index=(n, 0), shape=(N, D))
        sums = ct.mma(ct.astype(p, ct.float16), v, sums * factor)
        high = higher
    ct.store(out, index=(at, 0), tile=sums / total)


def test_attention(run: Any) -> None:
    q, k, v = (torch.randn(64, 32).half() for _ in range(3))
    out = torch.empty(64, 32)
    ct.launch(None, (2,), attention, (q, k, v, out, 32**-0.5, 32, 32, 32))
    want = torch.softmax(q.float() @ k.float().T * 32**-0.5, -1) @ v.float()
    torch.testing.assert_close(out, want, rtol=1e-2, atol=1e-2)


@ct.kernel
def permuted(x, index, out, SIZE: Size):
    at = ct.bid(0) * SIZE + ct.arange(SIZE, dtype=ct.int32)
    ct.scatter(out, at, ct.gather(x, ct.gather(index, at)))


def test_gather_and_scatter(run: Any) -> None:
    x, index, out = torch.randn(100), torch.randperm(100).int(), torch.empty(100)
    ct.launch(None, (7,), permuted, (x, index, out, 16))
    assert torch.equal(out, x[index.long()])


@ct.kernel
def histogram(x, out, SIZE: Size):
    ct.atomic_add(out, ct.gather(x, ct.bid(0) * SIZE + ct.arange(SIZE, dtype=ct.int32)), 1)


def test_atomics(run: Any) -> None:
    x, out = torch.randint(0, 10, (64,)).int(), torch.zeros(10, dtype=torch.int32)
    ct.launch(None, (4,), histogram, (x, out, 16))
    assert torch.equal(out.long(), torch.bincount(x, minlength=10))


def test_too_few_arguments_are_refused() -> None:
    with dotcu.simulate(), pytest.raises(UsageError, match="softmax was launched with 1 arguments"):
        ct.launch(None, (1,), softmax, (torch.zeros(1),))


@ct.kernel
def gather_past_the_end(x, out, OK: Size):
    at = ct.bid(0) * 16 + ct.arange(16, dtype=ct.int32)
    from_ = ct.minimum(at + 1, 63) if OK else at + 1
    ct.scatter(out, at, ct.gather(x, from_, check_bounds=False))  # out-of-bounds


@ct.kernel
def gather_before_the_start(x, out, OK: Size):
    at = ct.bid(0) * 16 + ct.arange(16, dtype=ct.int32)
    from_ = ct.maximum(at - 1, 0) if OK else at - 1
    ct.scatter(out, at, ct.gather(x, from_, check_bounds=False))  # out-of-bounds


@ct.kernel
def scatter_past_the_end(x, out, OK: Size):
    at = ct.bid(0) * 16 + ct.arange(16, dtype=ct.int32)
    to = at if OK else at * 2
    ct.scatter(out, to, ct.gather(x, at), check_bounds=False)  # out-of-bounds


@ct.kernel
def blocks_that_write_one_place(x, out, OK: Size):
    at = ct.bid(0)
    ct.store(out, index=(at if OK else 0,), tile=ct.load(x, index=(at,), shape=(16,)))  # race


@ct.kernel
def sum_without_an_atomic(x, out, OK: Size):
    part = ct.load(x, index=(ct.bid(0),), shape=(16,))
    if OK:
        ct.atomic_add(out, ct.arange(16, dtype=ct.int32), part)
    else:
        ct.store(out, index=(0,), tile=part + ct.load(out, index=(0,), shape=(16,)))  # race


@ct.kernel
def neighbour_in_place(x, out, OK: Size):
    at = ct.bid(0)
    tile = ct.load(x, index=((at + 1) % 4,), shape=(16,))  # race
    if OK:
        ct.store(out, index=(at,), tile=tile)
    else:
        ct.store(x, index=(at,), tile=tile)  # race


@ct.kernel
def scatter_of_blocks_that_overlap(x, out, OK: Size):
    at = ct.bid(0) * 16 + ct.arange(16, dtype=ct.int32)
    to = at if OK else ct.minimum(at, 31)
    ct.scatter(out, to, ct.gather(x, at))  # race


@ct.kernel
def output_that_is_read(x, out, OK: Size):
    at = ct.bid(0)
    tile = ct.load(x, index=(at,), shape=(16,))
    if not OK:
        tile = tile + ct.load(out, index=(at,), shape=(16,))  # uninitialized-read
    ct.store(out, index=(at,), tile=tile)


@ct.kernel
def table_that_is_half_written(x, out, OK: Size):
    at = ct.bid(0) * 16 + ct.arange(16, dtype=ct.int32)
    if OK:
        ct.scatter(out, at, ct.gather(x, at))
    else:
        ct.scatter(x, at, ct.gather(out, at))  # uninitialized-read


FAULTS = [
    gather_past_the_end,
    gather_before_the_start,
    scatter_past_the_end,
    blocks_that_write_one_place,
    sum_without_an_atomic,
    neighbour_in_place,
    scatter_of_blocks_that_overlap,
    output_that_is_read,
    table_that_is_half_written,
]


def launch(fault: Any, ok: bool, seed: int | None) -> list[Any]:
    with dotcu.simulate(arch="sm_90", on_finding="collect", seed=seed) as run:
        out = torch.empty(64) if "read" in fault._pyfunc.__name__ else torch.zeros(64)
        if "half" in fault._pyfunc.__name__:
            out = torch.empty(64)
            out[:32] = 1
        ct.launch(None, (4,), fault, (torch.rand(64), out, int(ok)))
    return list(run.findings)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault._pyfunc.__name__)
def test_fault_is_found_by_line(fault: Any) -> None:
    lines, first = inspect.getsourcelines(fault._pyfunc)
    marked = {(text.split("  # ")[1].strip(), first + i) for i, text in enumerate(lines) if "  # " in text}
    for seed in (None, 0, 1):
        found = launch(fault, False, seed)
        assert {f.file for f in found} == {__file__}
        assert {(f.kind, f.line) for f in found} == marked
        assert launch(fault, True, seed) == []
