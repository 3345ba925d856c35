"""TileLang kernels run in the simulator as they are written, and their faults are named by line."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import dotcu
from dotcu.errors import ArgumentError

tilelang: Any = pytest.importorskip("tilelang", reason="TileLang is not installed")
import tilelang.language as T  # noqa: E402

ARCHITECTURES = ("sm_80", "sm_90")
UNGUARDED = {"tl.disable_safe_memory_legalize": True}
UNSYNCHRONIZED = {"tl.disable_thread_storage_sync": True}


@pytest.fixture(params=ARCHITECTURES)
def run(request: pytest.FixtureRequest) -> Iterator[Any]:
    with dotcu.simulate(arch=request.param, on_finding="collect") as run:
        yield run
    assert [str(finding) for finding in run.findings] == []


@tilelang.jit(out_idx=[-1])
def matmul(M, N, K, stages, threads):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=threads) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=stages):
                T.copy(A[by * 64, k * 32], a)
                T.copy(B[k * 32, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])

    return main


@pytest.mark.parametrize(("stages", "threads"), [(0, 128), (2, 128), (3, 256)])
def test_matmul(run: Any, stages: int, threads: int) -> None:
    a, b = torch.randn(128, 96).half(), torch.randn(96, 64).half()
    c = matmul(128, 64, 96, stages, threads)(a, b)
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-3, atol=1e-3)


@tilelang.jit(out_idx=[-1])
def attention(T_, D):
    scale = 1.4426950408889634 / D**0.5

    @T.prim_func
    def main(
        Q: T.Tensor((T_, D), "float16"),
        K: T.Tensor((T_, D), "float16"),
        V: T.Tensor((T_, D), "float16"),
        Out: T.Tensor((T_, D), "float16"),
    ):
        with T.Kernel(T.ceildiv(T_, 64), threads=128) as bx:
            q = T.alloc_shared((64, D), "float16")
            k = T.alloc_shared((64, D), "float16")
            v = T.alloc_shared((64, D), "float16")
            s = T.alloc_fragment((64, 64), "float32")
            p = T.alloc_fragment((64, 64), "float16")
            o = T.alloc_fragment((64, D), "float32")
            highest = T.alloc_fragment((64,), "float32")
            before = T.alloc_fragment((64,), "float32")
            factor = T.alloc_fragment((64,), "float32")
            part = T.alloc_fragment((64,), "float32")
            total = T.alloc_fragment((64,), "float32")
            T.copy(Q[bx * 64, 0], q)
            T.fill(o, 0)
            T.fill(total, 0)
            T.fill(highest, -T.infinity("float32"))
            for at in T.Pipelined(T.ceildiv(T_, 64), num_stages=1):
                T.copy(K[at * 64, 0], k)
                T.clear(s)
                T.gemm(q, k, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(V[at * 64, 0], v)
                T.copy(highest, before)
                T.reduce_max(s, highest, dim=1, clear=False)
                for i in T.Parallel(64):
                    factor[i] = T.exp2((before[i] - highest[i]) * scale)
                for i, j in T.Parallel(64, 64):
                    s[i, j] = T.exp2((s[i, j] - highest[i]) * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(64):
                    total[i] = total[i] * factor[i] + part[i]
                for i, j in T.Parallel(64, D):
                    o[i, j] = o[i, j] * factor[i]
                T.copy(s, p)
                T.gemm(p, v, o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(64, D):
                o[i, j] = o[i, j] / total[i]
            T.copy(o, Out[bx * 64, 0])

    return main


def test_attention(run: Any) -> None:
    q, k, v = (torch.randn(128, 64).half() for _ in range(3))
    want = torch.softmax(q.float() @ k.float().T / 8, -1) @ v.float()
    torch.testing.assert_close(attention(128, 64)(q, k, v).float(), want, rtol=1e-2, atol=1e-2)


@tilelang.jit
def add(A, B):
    N = T.dynamic("N")
    A: T.Tensor((N,), "float32")
    B: T.Tensor((N,), "float32")
    C = T.empty((N,), "float32")
    with T.Kernel(T.ceildiv(N, 256), threads=128) as bx:
        for i in T.Parallel(256):
            C[bx * 256 + i] = A[bx * 256 + i] + B[bx * 256 + i]
    return C


def test_open_sizes_and_an_output_of_the_kernel(run: Any) -> None:
    for n in (1000, 77):
        a, b = torch.randn(n), torch.randn(n)
        assert torch.equal(add(a, b), a + b)


@tilelang.jit(out_idx=[-1])
def softmax(M, N):
    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=128) as bx:
            x = T.alloc_fragment((1, N), "float32")
            high = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[bx, 0], x)
            T.reduce_max(x, high, dim=1)
            for i, j in T.Parallel(1, N):
                x[i, j] = T.exp(x[i, j] - high[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(1, N):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx, 0])

    return main


def test_softmax(run: Any) -> None:
    x = torch.randn(5, 512)
    torch.testing.assert_close(softmax(5, 512)(x), torch.softmax(x, -1))


@tilelang.jit
def histogram(N):
    @T.prim_func
    def main(X: T.Tensor((N,), "int32"), H: T.Tensor((16,), "int32")):
        with T.Kernel(N // 128, threads=128) as bx:
            t = T.get_thread_binding()
            T.atomic_add(H[X[bx * 128 + t]], 1)

    return main


def test_atomics(run: Any) -> None:
    x, h = torch.randint(0, 16, (512,), dtype=torch.int32), torch.zeros(16, dtype=torch.int32)
    histogram(512)(x, h)
    assert torch.equal(h.long(), torch.bincount(x, minlength=16))


def test_tensor_of_another_shape_is_refused() -> None:
    with dotcu.simulate(), pytest.raises(ArgumentError, match=r"X of main got shape \(4, 512\)"):
        softmax(5, 512)(torch.randn(4, 512))


def test_source_is_kept_where_it_can_be_opened() -> None:
    with dotcu.simulate():
        assert "__global__" in softmax(5, 512).get_kernel_source()


N = 512


def load_past_the_end(ok):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(4, threads=128) as bx:
            t = T.get_thread_binding()
            at = bx * 128 + t
            Y[at] = X[T.min(at + 1, N - 1) if ok else at + 1]  # out-of-bounds

    return main


def store_past_the_end(ok):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(4 if ok else 5, threads=128) as bx:
            t = T.get_thread_binding()
            Y[bx * 128 + t] = 1.0  # out-of-bounds

    return main


def blocks_that_write_one_place(ok):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(4, threads=128) as bx:
            t = T.get_thread_binding()
            Y[bx * 128 + t if ok else t] = X[bx * 128 + t]  # race

    return main


def sum_without_an_atomic(ok):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(4, threads=128) as bx:
            t = T.get_thread_binding()
            if ok:
                T.atomic_add(Y[t], X[bx * 128 + t])
            else:
                Y[t] = Y[t] + X[bx * 128 + t]  # race

    return main


def reversed_through_shared(ok):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(4, threads=128) as bx:
            t = T.get_thread_binding()
            s = T.alloc_shared((128,), "float32")
            s[t] = 0.0
            T.sync_threads()
            s[t] = X[bx * 128 + t]  # race
            if ok:
                T.sync_threads()
            Y[bx * 128 + t] = s[127 - t]  # race

    return main


def shared_that_is_used_again(ok):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128):
            t = T.get_thread_binding()
            s = T.alloc_shared((128,), "float32")
            for k in T.serial(4):
                if ok:
                    T.sync_threads()
                s[t] = X[k * 128 + t]  # race
                T.sync_threads()
                Y[k * 128 + t] = s[127 - t]

    return main


def stencil_in_place(ok):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(4, threads=128) as bx:
            t = T.get_thread_binding()
            at = bx * 128 + t
            if ok:
                Y[at] = X[(at + 128) % N]
            else:
                X[at] = X[(at + 128) % N]  # race

    return main


def shared_that_nothing_filled(ok):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128):
            t = T.get_thread_binding()
            s = T.alloc_shared((128,), "float32")
            if t < (128 if ok else 64):
                s[t] = X[t]
            T.sync_threads()
            Y[t] = s[127 - t]  # uninitialized-read

    return main


def output_that_is_read(ok):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(4, threads=128) as bx:
            t = T.get_thread_binding()
            at = bx * 128 + t
            if ok:
                Y[at] = X[at]
            else:
                Y[at] = Y[at] + X[at]  # uninitialized-read

    return main


FAULTS = [
    load_past_the_end,
    store_past_the_end,
    blocks_that_write_one_place,
    sum_without_an_atomic,
    reversed_through_shared,
    shared_that_is_used_again,
    stencil_in_place,
    shared_that_nothing_filled,
    output_that_is_read,
]


def launch(fault: Any, ok: bool, seed: int | None, arch: str) -> list[Any]:
    with dotcu.simulate(arch=arch, on_finding="collect", seed=seed) as run:
        kernel = tilelang.compile(fault(ok), pass_configs={**UNGUARDED, **UNSYNCHRONIZED})
        y = torch.empty(N) if fault is output_that_is_read else torch.zeros(N)
        kernel(torch.rand(N), y)
    return list(run.findings)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_fault_is_found_by_line(fault: Any, arch: str) -> None:
    lines, first = inspect.getsourcelines(fault)
    marked = {(text.split("  # ")[1].strip(), first + i) for i, text in enumerate(lines) if "  # " in text}
    for seed in (None, 0, 1):
        found = launch(fault, False, seed, arch)
        assert {f.file for f in found} == {__file__}
        assert {(f.kind, f.line) for f in found} <= marked  # a race is named by its later access
        assert launch(fault, True, seed, arch) == []
