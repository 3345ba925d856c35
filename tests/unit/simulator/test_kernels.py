"""Kernels from CUDA C++: divergence, barriers, warps, shared memory, calls."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
import pytest
import torch

import dotcu
from dotcu.errors import FindingError
from dotcu.simulator import Finding, Run


def i32(value: int) -> np.int32:
    return np.int32(value)


def test_block_sum_with_shared_memory_shuffles_and_atomics(run_kernel: Any) -> None:
    source = r"""
    extern "C" __global__ void k(const float* x, float* out, long long n) {
        __shared__ float part[32];
        float v = 0;
        for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
            v += x[i];
        for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
        __syncthreads();
        if (threadIdx.x < 32) {
            v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
            for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
            if (threadIdx.x == 0) atomicAdd(out, v);
        }
    }"""
    x = np.random.default_rng(0).integers(-8, 9, 10007).astype("f4")
    out = np.zeros(1, "f4")
    result = run_kernel(source, {"x": x, "out": out, "n": np.int64(len(x))}, grid=7, block=256)
    assert out[0] == x.sum()
    assert result.findings == []


TILED = r"""
extern "C" __global__ void k(const float* a, const float* b, float* c, int m, int n, int p) {
    __shared__ float ta[16][16], tb[16][17];
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < p; t += 16) {
        ta[threadIdx.y][threadIdx.x] = row < m && t + threadIdx.x < p ? a[row * p + t + threadIdx.x] : 0;
        tb[threadIdx.y][threadIdx.x] = col < n && t + threadIdx.y < p ? b[(t + threadIdx.y) * n + col] : 0;
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += ta[threadIdx.y][i] * tb[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}"""


@pytest.mark.parametrize("shape", [(16, 16, 16), (33, 50, 47), (1, 1, 1)])
def test_tiled_matrix_product(run_kernel: Any, shape: tuple[int, int, int]) -> None:
    m, n, p = shape
    rng = np.random.default_rng(1)
    a, b = rng.integers(-3, 4, (m, p)).astype("f4"), rng.integers(-3, 4, (p, n)).astype("f4")
    c = np.full((m, n), np.nan, "f4")
    arguments = {"a": a, "b": b, "c": c, "m": i32(m), "n": i32(n), "p": i32(p)}
    grid = (-(-n // 16), -(-m // 16), 1)
    result = run_kernel(TILED, arguments, grid=grid, block=(16, 16, 1), unwritten=["c"])
    assert (c == a @ b).all()
    assert result.findings == []


def test_divergent_loops_and_early_returns_reconverge(run_kernel: Any) -> None:
    source = r"""
    extern "C" __global__ void k(int* out, int* meet, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        int steps = 0, v = i;
        while (v != 1 && v != 0) {
            if (v % 2) { v = 3 * v + 1; if (v % 5 == 0) { steps += 10; continue; } }
            else { v /= 2; if (v == 8) break; }
            ++steps;
        }
        meet[i] = __activemask();
        out[i] = steps;
    }"""

    def collatz(v: int) -> int:
        steps = 0
        while v not in (0, 1):
            if v % 2:
                v = 3 * v + 1
                if v % 5 == 0:
                    steps += 10
                    continue
            else:
                v //= 2
                if v == 8:
                    break
            steps += 1
        return steps

    out, meet = np.zeros(100, "i4"), np.zeros(100, "u4")
    run_kernel(source, {"out": out, "meet": meet, "n": i32(100)}, grid=3, block=40)
    assert out.tolist() == [collatz(i) for i in range(100)]
    threads = np.arange(100) % 40
    living = np.where(np.arange(100) < 80, 40, 20)
    whole = [
        0xFFFFFFFF if t < 32 and n >= 32 else (1 << (n % 32)) - 1
        for t, n in zip(threads, living, strict=False)
    ]
    assert meet.tolist() == whole


def test_switch_and_loops_with_different_trip_counts(run_kernel: Any) -> None:
    source = r"""
    extern "C" __global__ void k(int* out) {
        int i = threadIdx.x, r = 0;
        for (int j = 0; j < i % 7; ++j)
            for (int l = 0; l < j; ++l)
                switch ((i + j + l) % 6) {
                    case 0: r += 1; break;
                    case 1: r += 10;
                    case 2: r ^= 3; break;
                    case 3: r = r * 3 + 1; break;
                    case 4: goto done;
                    default: r -= 2;
                }
        done: out[i] = r;
    }"""

    def expected(i: int) -> int:
        r = 0
        for j in range(i % 7):
            for m in range(j):
                case = (i + j + m) % 6
                if case == 0:
                    r += 1
                elif case in (1, 2):
                    r = (r + 10 if case == 1 else r) ^ 3
                elif case == 3:
                    r = r * 3 + 1
                elif case == 4:
                    return r
                else:
                    r -= 2
        return r

    out = np.zeros(96, "i4")
    run_kernel(source, {"out": out}, block=96)
    assert out.tolist() == [expected(i) for i in range(96)]


def test_table_branch(run_kernel: Any) -> None:
    cases = "".join(f"case {n}: v = sqrtf(v) * {n}.5f + x[{n}]; x[{n} + 32] = v; break;" for n in range(20))
    source = f"""extern "C" __global__ void k(float* x, float* out, const int* which) {{
        float v = threadIdx.x;
        switch (which[threadIdx.x]) {{ {cases} default: v = -1; }}
        out[threadIdx.x] = v; }}"""
    x, out = np.arange(64, dtype="f4"), np.zeros(32, "f4")
    which = (np.arange(32) * 7 % 32).astype("i4")
    run_kernel(source, {"x": x.copy(), "out": out, "which": which})
    want = [
        -1.0 if w > 19 else np.float32(np.sqrt(np.float32(i))) * np.float32(w + 0.5) + np.float32(w)
        for i, w in enumerate(which.tolist())
    ]
    assert np.allclose(out, want, rtol=1e-6)


def test_device_functions_take_and_return_structs(run_kernel: Any) -> None:
    source = r"""
    struct V { double x; int n; float f[3]; };
    __noinline__ __device__ V twice(V v, int by) { v.x *= by; v.n += by; v.f[by] = 9; return v; }
    __noinline__ __device__ int fact(int a, V* v) { V w = twice(*v, 2); *v = w; return a + w.n; }
    extern "C" __global__ void k(double* x, int* n, float* f) {
        V v = {1.5 * threadIdx.x, (int)threadIdx.x, {1, 2, 3}};
        n[threadIdx.x] = fact(100, &v); v = twice(v, 1); x[threadIdx.x] = v.x;
        f[threadIdx.x] = v.f[0] + 10 * v.f[1] + 100 * v.f[2];
    }"""
    x, n, f = np.zeros(32), np.zeros(32, "i4"), np.zeros(32, "f4")
    run_kernel(source, {"x": x, "n": n, "f": f})
    assert x.tolist() == [3.0 * i for i in range(32)]
    assert n.tolist() == [102 + i for i in range(32)]
    assert f.tolist() == [1 + 90 + 900] * 32


def test_struct_parameters_constants_and_device_variables(run_kernel: Any) -> None:
    source = r"""
    struct P { char c; double d; int a[4]; };
    __constant__ float table[4] = {1, 2, 3, 4};
    __device__ int counter = 40;
    __device__ float* where = 0;
    __device__ const float* alias = table;
    extern "C" __global__ void k(P p, float* out) {
        int i = threadIdx.x;
        out[i] = table[i & 3] + p.a[i & 3] + p.c + (float)p.d + alias[1];
        atomicAdd(&counter, 1);
    }"""
    packed = np.zeros(1, np.dtype([("c", "i1"), ("d", "f8"), ("a", "i4", 4)], align=True))
    packed["c"], packed["d"], packed["a"] = 7, 0.5, [10, 20, 30, 40]
    out = np.zeros(32, "f4")
    result = run_kernel(source, {"p": packed[0].tobytes(), "out": out})
    want = [(i & 3) + 1 + 10 * ((i & 3) + 1) + 7 + 0.5 + 2 for i in range(32)]
    assert out.tolist() == want
    assert result.loaded.variables["counter"].view("i4")[0] == 72


def test_dynamic_and_static_shared_memory_do_not_overlap(run_kernel: Any) -> None:
    source = r"""
    extern "C" __global__ void k(int* out) {
        __shared__ short fixed[33];
        extern __shared__ int4 dyn[];
        int i = threadIdx.x;
        fixed[i] = i; dyn[i] = make_int4(i, i + 1, i + 2, i + 3);
        __syncthreads();
        int4 v = dyn[31 - i];
        out[i] = fixed[31 - i] * 1000 + v.x + v.y + v.z + v.w;
    }"""
    out = np.zeros(32, "i4")
    run_kernel(source, {"out": out}, smem_bytes=16 * 32)
    assert out.tolist() == [j * 1000 + 4 * j + 6 for j in range(31, -1, -1)]


def test_shared_address_is_narrow_in_assembly_and_generic_in_the_language(run_kernel: Any) -> None:
    source = r"""
    __device__ __noinline__ int through(int* p) { return *p; }
    extern "C" __global__ void k(int* out, int* g) {
        __shared__ int s[32];
        int i = threadIdx.x, v;
        unsigned at = (unsigned)__cvta_generic_to_shared(&s[i]);
        asm volatile("st.shared.u32 [%0], %1;" :: "r"(at), "r"(i * 3));
        __syncthreads();
        asm volatile("{ .reg .u32 t; ld.shared.u32 t, [%1+0]; add.u32 %0, t, 1; }" : "=r"(v) : "r"(at));
        out[i] = v + through(i % 2 ? &s[i] : &g[i]) + 1000 * (__isShared(i % 2 ? &s[i] : &g[i]) != 0);
    }"""
    out, g = np.zeros(32, "i4"), np.arange(32, dtype="i4")
    run_kernel(source, {"out": out, "g": g})
    assert out.tolist() == [3 * i + 1 + (3 * i + 1000 if i % 2 else i) for i in range(32)]


def test_expf_is_right_to_its_last_places(run_kernel: Any) -> None:
    source = (
        'extern "C" __global__ void k(const float* x, float* y) { y[threadIdx.x] = expf(x[threadIdx.x]); }'
    )
    x = np.linspace(-87, 88, 256).astype("f4")
    y = np.zeros(256, "f4")
    run_kernel(source, {"x": x, "y": y}, block=256)
    assert np.allclose(y, np.exp(x.astype("f8")), rtol=2.0**-22)


def test_mathematics_of_the_language(run_kernel: Any) -> None:
    source = r"""
    extern "C" __global__ void k(const float* x, const double* d, float* y, double* e) {
        int i = threadIdx.x;
        y[i] = sinf(x[i]) + logf(x[i]) + powf(x[i], 1.7f) + tanhf(x[i]) + erff(x[i]) + rsqrtf(x[i]);
        e[i] = exp(d[i]) + log(d[i]) + sin(d[i]) / sqrt(d[i]) + pow(d[i], 0.3) + tgamma(d[i]);
    }"""
    import math

    d = np.random.default_rng(4).uniform(0.1, 20, 64)
    x = d.astype("f4")
    y, e = np.zeros(64, "f4"), np.zeros(64)
    run_kernel(source, {"x": x, "d": d, "y": y, "e": e}, block=64)
    w = x.astype("f8")
    erf = np.array([math.erf(v) for v in w])
    gamma = np.array([math.gamma(v) for v in d])
    assert np.allclose(y, np.sin(w) + np.log(w) + w**1.7 + np.tanh(w) + erf + w**-0.5, rtol=1e-5)
    assert np.allclose(e, np.exp(d) + np.log(d) + np.sin(d) / np.sqrt(d) + d**0.3 + gamma, rtol=1e-14)


def test_half_kernels_from_the_toolkit_s_headers(run_kernel: Any) -> None:
    source = r"""
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    template <typename T> __device__ T axpy(T a, T x, T y) { return a * x + y; }
    extern "C" __global__ void k(const __half* a, const __half2* b, __nv_bfloat16* c, __half* h, __half2* p) {
        int i = threadIdx.x;
        h[i] = __float2half(__half2float(axpy(a[i], a[i + 1], a[2])) + 1.f);
        p[i] = __hfma2(b[i], b[i], __floats2half2_rn(1.f, 2.f));
        c[i] = __float2bfloat16(__bfloat162float(c[i]) * 3.f) + c[i];
    }"""
    import ml_dtypes

    rng = np.random.default_rng(5)
    a, b = rng.standard_normal(40).astype("f2"), rng.standard_normal(64).astype("f2")
    c = rng.standard_normal(32).astype(ml_dtypes.bfloat16)
    before = c.astype("f4")
    h, p = np.zeros(32, "f2"), np.zeros(64, "f2")
    run_kernel(source, {"a": a, "b": b, "c": c.view("u2"), "h": h, "p": p})
    want = (a[:32] * a[1:33]).astype("f2") + a[2]
    fused = (a[:32].astype("f8") * a[1:33] + a[2]).astype("f2")
    assert all(
        g in (np.float16(w + 1), np.float16(np.float32(f) + 1))
        for g, w, f in zip(h, want, fused, strict=False)
    )
    assert (p == (b.astype("f8") ** 2 + np.tile([1, 2], 32)).astype("f2")).all()
    tripled = (before * 3).astype(ml_dtypes.bfloat16).astype("f4")
    assert c.astype("f4").tolist() == (tripled + before).astype(ml_dtypes.bfloat16).astype("f4").tolist()


def test_printf_shows_block_and_thread(run_kernel: Any) -> None:
    source = r"""
    extern "C" __global__ void k(int n) {
        if (threadIdx.x == 3) printf("%d %5.2f|%s|%llu %c%% %x\n", n, 1.5, "text", 1ull << 40, 'z', 255u);
    }"""
    result = run_kernel(source, {"n": i32(-4)}, grid=2)
    line = "-4  1.50|text|1099511627776 z% ff\n"
    assert result.run.output == [
        f"block (0,0,0) thread (3,0,0): {line}",
        f"block (1,0,0) thread (3,0,0): {line}",
    ]


def test_barriers_with_numbers_and_counts(run_kernel: Any) -> None:
    source = r"""
    extern "C" __global__ void k(int* out) {
        __shared__ int box[64];
        int i = threadIdx.x;
        if (i < 64) { box[i] = i * 2; asm volatile("bar.arrive 1, 128;" ::: "memory"); }
        else { asm volatile("bar.sync 1, 128;" ::: "memory"); out[i - 64] = box[127 - i]; }
    }"""
    out = np.zeros(64, "i4")
    result = run_kernel(source, {"out": out}, grid=1, block=128)
    assert out.tolist() == [2 * (63 - i) for i in range(64)]
    assert result.findings == []


@pytest.mark.parametrize(("arrivals", "expected"), [(1, []), (2, ["deadlock"]), (3, [])])
def test_arrivals_alone_complete_a_barrier(arrivals: int, expected: list[str]) -> None:
    source = """
    __global__ void k(int* out, int arrivals) {
        __shared__ unsigned long long unused;
        unsigned at = __cvta_generic_to_shared(&unused);
        if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at));
        if (threadIdx.x >= 32) {
            for (int i = 0; i < arrivals; ++i) asm volatile("barrier.cta.arrive.aligned 1, 64;" ::: "memory");
            atomicAdd(out, 1);
        } else {
            while (atomicAdd(out, 0) < 32) { }
            asm volatile("barrier.cta.sync.aligned 1, 64;" ::: "memory");
        }
    }"""
    with dotcu.simulate(arch="sm_90", on_finding="collect") as run:
        dotcu.load_inline(source).k(torch.zeros(1, dtype=torch.int32), arrivals, grid=1, block=64)
    assert [finding.kind for finding in run.findings] == expected


@pytest.mark.parametrize(("barrier", "expected"), [("1 + threadIdx.x / 64", []), ("1", ["barrier"])])
def test_two_groups_that_wait_at_one_barrier_at_once_are_reported(barrier: str, expected: list[str]) -> None:
    source = f"""
    __global__ void k(int* out) {{
        asm volatile("bar.sync %0, 64;" ::"r"({barrier}) : "memory");
        out[threadIdx.x] = 1;
    }}"""
    with dotcu.simulate(on_finding="collect") as run:
        dotcu.load_inline(source).k(torch.zeros(128, dtype=torch.int32), grid=1, block=128)
    assert [finding.kind for finding in run.findings] == expected


def test_a_thread_that_exits_leaves_the_arrivals_at_other_barriers() -> None:
    source = """
    __global__ void k(int* out) {
        const int warp = threadIdx.x / 32;
        if (warp == 0) {
            atomicAdd(out, 1);
            asm volatile("barrier.cta.sync.aligned 2, 64;" ::: "memory");
            asm volatile("barrier.cta.sync.aligned 1, 96;" ::: "memory");
            atomicAdd(out, 1);
        } else {
            asm volatile("barrier.cta.arrive.aligned 1, 96;" ::: "memory");
            while (atomicAdd(out, 0) < 96 - 32 * warp) { }  // warp 2 goes on when warp 0 is here, then warp 1
            if (warp == 1) asm volatile("barrier.cta.sync.aligned 2, 64;" ::: "memory");
            else atomicAdd(out, 1);
        }
    }"""
    out = torch.zeros(1, dtype=torch.int32)
    with dotcu.simulate(arch="sm_90") as run:
        dotcu.load_inline(source).k(out, grid=1, block=96)
    assert (int(out), run.findings) == (96, [])


def test_barriers_that_reduce(run_kernel: Any) -> None:
    source = r"""
    extern "C" __global__ void k(int* out, int n) {
        int i = threadIdx.x;
        out[i] = __syncthreads_count(i % 3 == 0) + 1000 * __syncthreads_and(i < n)
               + 10000 * __syncthreads_or(i == n);
    }"""
    out = np.zeros(96, "i4")
    run_kernel(source, {"out": out, "n": i32(40)}, block=96)
    assert out.tolist() == [32 + 10000] * 96
    run_kernel(source, {"out": out, "n": i32(96)}, block=96)
    assert out.tolist() == [32 + 1000] * 96


def test_blocks_that_are_no_multiple_of_a_warp(run_kernel: Any) -> None:
    source = r"""
    extern "C" __global__ void k(int* out) {
        __shared__ int s[45];
        int i = threadIdx.x + 9 * threadIdx.y;
        s[i] = i; __syncthreads();
        int v = s[44 - i] + __popc(__ballot_sync(0xffffffffu, i & 1));
        out[blockIdx.x * 45 + i] = v + 100 * blockIdx.x + 1000 * threadIdx.y;
    }"""
    out = np.zeros(180, "i4")
    result = run_kernel(source, {"out": out}, grid=4, block=(9, 5, 1))
    i = np.arange(45)
    ballots = np.where(i < 32, 16, 6)
    want = [(44 - i + ballots + 100 * b + 1000 * (i // 9)).tolist() for b in range(4)]
    assert out.tolist() == functools.reduce(operator.iadd, want, [])
    assert result.findings == []


def test_chunks_cover_a_large_grid(run_kernel: Any) -> None:
    source = r"""
    extern "C" __global__ void k(unsigned* out, unsigned n) {
        unsigned i = (blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
        if (i < n) out[i] = i * 2654435761u;
    }"""
    n = 300_001
    out = np.zeros(n, "u4")
    run_kernel(source, {"out": out, "n": np.uint32(n)}, grid=(40, 30, 1), block=256, unwritten=["out"])
    assert (out == (np.arange(n, dtype="u8") * 2654435761).astype("u4")).all()


def test_a_spin_lock_gets_its_turns(run_kernel: Any) -> None:
    source = r"""
    __device__ int lock;
    extern "C" __global__ void k(volatile int* x) {
        bool done = false;
        while (!done) {
            if (atomicCAS(&lock, 0, 1) == 0) {
                x[0] = x[0] + 1; __threadfence(); atomicExch(&lock, 0); done = true;
            }
        }
    }"""
    x = np.zeros(1, "i4")
    result = run_kernel(source, {"x": x}, grid=2, block=32)
    assert x[0] == 64
    assert result.findings == []


def test_shuffles_in_segments(run_kernel: Any) -> None:
    source = r"""
    extern "C" __global__ void k(int* out) {
        int i = threadIdx.x, m = 0xffffffff;
        out[i] = __shfl_sync(m, i, 3, 8); out[32 + i] = __shfl_up_sync(m, i, 2, 16);
        out[64 + i] = __shfl_down_sync(m, i, 5, 16); out[96 + i] = __shfl_xor_sync(m, i, 9, 16);
        out[128 + i] = __shfl_sync(m, i, i + 1);
    }"""
    out = np.zeros(160, "i4")
    run_kernel(source, {"out": out})
    lanes = range(32)
    assert out[:32].tolist() == [i // 8 * 8 + 3 for i in lanes]
    assert out[32:64].tolist() == [i - 2 if i % 16 >= 2 else i for i in lanes]
    assert out[64:96].tolist() == [i + 5 if i % 16 + 5 < 16 else i for i in lanes]
    assert out[96:128].tolist() == [i ^ 9 for i in lanes]
    assert out[128:].tolist() == [(i + 1) % 32 for i in lanes]


def test_votes_matches_and_reductions_over_members(run_kernel: Any) -> None:
    source = r"""
    extern "C" __global__ void k(unsigned* out) {
        unsigned i = threadIdx.x;
        unsigned low = 0x0000ffffu, mask = i < 16 ? low : ~low;
        out[i] = __ballot_sync(~0u, i % 3 == 0);
        if (i < 16) out[32 + i] = __all_sync(low, i < 16) + 2 * __any_sync(low, i == 5);
        else out[32 + i] = __all_sync(~low, i < 20) + 2 * __any_sync(~low, i == 5);
        out[64 + i] = __match_any_sync(~0u, i & 3);
        int pred; out[96 + i] = __match_all_sync(mask, i / 16, &pred) + pred;
        out[128 + i] = __reduce_add_sync(mask, i); out[160 + i] = __reduce_max_sync(~0u, (int)i - 40);
        out[192 + i] = __reduce_xor_sync(~0u, i);
    }"""
    out = np.zeros(224, "u4")
    run_kernel(source, {"out": out})
    rows = out.reshape(7, 32)
    assert set(rows[0].tolist()) == {sum(1 << i for i in range(0, 32, 3))}
    assert rows[1].tolist() == [3] * 16 + [0] * 16
    assert rows[2].tolist() == [0x11111111 << (i & 3) for i in range(32)]
    assert rows[3].tolist() == [0x10000] * 16 + [(0xFFFF0000 + 1)] * 16
    assert rows[4].tolist() == [120] * 16 + [376] * 16
    assert rows[5].view("i4").tolist() == [-9] * 32
    assert rows[6].tolist() == [0] * 32


def test_a_warp_waits_for_members_that_come_by_another_way(run_kernel: Any) -> None:
    source = r"""
    extern "C" __global__ void k(int* out, int n) {
        int i = threadIdx.x, v = i;
        if (i % 2) { for (int j = 0; j < n; ++j) v = v * 3 + j; out[i + 32] = v; }
        __syncwarp();
        out[i] = __shfl_xor_sync(0xffffffffu, v, 1);
    }"""
    out = np.zeros(64, "i4")
    run_kernel(source, {"out": out, "n": i32(5)})

    def slow(v: int) -> int:
        for j in range(5):
            v = v * 3 + j
        return v

    assert out[:32].tolist() == [slow(i + 1) if i % 2 == 0 else i - 1 for i in range(32)]


def test_special_registers(run_kernel: Any) -> None:
    source = r"""
    extern "C" __global__ void k(unsigned* out, long long* t) {
        unsigned i = threadIdx.x, v;
        long long start = clock64();
        asm("mov.u32 %0, %laneid;" : "=r"(v)); out[i] = v;
        asm("mov.u32 %0, %warpid;" : "=r"(v)); out[64 + i] = v;
        asm("mov.u32 %0, %lanemask_lt;" : "=r"(v)); out[128 + i] = v;
        asm("mov.u32 %0, %dynamic_smem_size;" : "=r"(v)); out[192 + i] = v;
        t[i] = clock64() - start;
    }"""
    out, t = np.zeros(256, "u4"), np.zeros(64, "i8")
    run_kernel(source, {"out": out, "t": t}, block=64, smem_bytes=48)
    rows = out.reshape(4, 64)
    assert rows[0].tolist() == [i % 32 for i in range(64)]
    assert rows[1].tolist() == [i // 32 for i in range(64)]
    assert rows[2].tolist() == [(1 << i % 32) - 1 for i in range(64)]
    assert rows[3].tolist() == [48] * 64
    assert (t >= 0).all()


def test_vectors_of_two_and_four(run_kernel: Any) -> None:
    source = r"""
    extern "C" __global__ void k(const float4* a, float4* b, const double2* c, double2* d,
                                 const uchar4* e, short2* f) {
        int i = threadIdx.x; float4 v = __ldg(a + i);
        b[i] = make_float4(v.w, v.z, v.y, v.x);
        double2 w = c[i]; d[i] = make_double2(w.y, w.x);
        uchar4 u = e[i]; f[i] = make_short2(u.x - u.w, u.y - u.z);
    }"""
    a, b = np.arange(128, dtype="f4").reshape(32, 4), np.zeros((32, 4), "f4")
    c, d = np.arange(64.0).reshape(32, 2), np.zeros((32, 2))
    e, f = np.arange(128, dtype="u1").reshape(32, 4)[:, ::-1].copy(), np.zeros((32, 2), "i2")
    run_kernel(source, {"a": a, "b": b, "c": c, "d": d, "e": e, "f": f})
    assert (b == a[:, ::-1]).all()
    assert (d == c[:, ::-1]).all()
    assert (f == [3, 1]).all()


def test_counters_count_lanes_and_bytes_by_line(run_kernel: Any) -> None:
    source = (
        'extern "C" __global__ void k(const float* x, double* y) {\n  y[threadIdx.x] = x[threadIdx.x];\n}'
    )
    x, y = np.zeros(64, "f4"), np.zeros(64)
    counters = run_kernel(source, {"x": x, "y": y}, block=64).run.counters
    assert counters.loaded_bytes == 64 * 4
    assert counters.stored_bytes == 64 * 8
    assert counters.classes["convert"] == 64
    assert counters.lines["kernel.cu", 2].stored_bytes == 64 * 8
    assert counters.lane_instructions == sum(counters.classes.values())


def test_sm_90_code_runs_too(run_kernel: Any) -> None:
    x = np.zeros(64, "f4")
    source = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] += threadIdx.x; }'
    run_kernel(source, {"x": x}, block=64, arch="sm_90")
    assert x.tolist() == list(range(64))


def test_a_finding_is_raised_each_time_it_is_found() -> None:
    finding = Finding(
        kind="out-of-bounds",
        kernel="k",
        file="k.cu",
        line=1,
        block=(0, 0, 0),
        thread=(0, 0, 0),
        lanes=2,
        address_of="x",
        message="said",
    )
    run = Run()
    for _ in range(2):
        with pytest.raises(FindingError):
            run.report(finding)
    assert [(known.line, known.lanes) for known in run.findings] == [(1, 4)]


@pytest.mark.slow
def test_memory_that_the_system_keeps_lies_behind_what_the_block_has(run_kernel: Any) -> None:
    source = """#include <cooperative_groups.h>
    namespace cg = cooperative_groups;
    extern "C" __global__ void k(int* out) {
      __shared__ cg::block_tile_memory<128> memory;
      extern __shared__ int own[];
      own[threadIdx.x] = threadIdx.x;
      auto tile = cg::tiled_partition<64>(cg::this_thread_block(memory));
      tile.sync();
      out[threadIdx.x] = own[threadIdx.x ^ 63];
    }"""
    out = np.zeros(256, "i4")
    for seed in (None, 0, 1):
        run_kernel(source, {"out": out}, grid=2, block=128, smem_bytes=4 * 128, seed=seed)
        assert out[:128].tolist() == [i ^ 63 for i in range(128)]
