"""Kernels that hold one kind of instruction each, compiled for inspection; what its tests share."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest

from dotcu.compile import CompileOptions, Target, inline_source, toolchain
from dotcu.inspection import assembly
from dotcu.inspection.build import BuildRequest, build_all, kernels_in_source
from dotcu.inspection.report import InspectedKernel

needs_nvdisasm = pytest.mark.skipif(
    toolchain.find_tool("nvdisasm") is None, reason="needs nvdisasm: pip install nvidia-cuda-nvdisasm"
)
needs_cuobjdump = pytest.mark.skipif(
    toolchain.find_tool("cuobjdump") is None, reason="needs cuobjdump: pip install nvidia-cuda-cuobjdump"
)

GENERATIONS = [
    "sm_90a",
    *(
        pytest.param(arch, marks=pytest.mark.slow)
        for arch in ("sm_75", "sm_80", "sm_89", "sm_100a", "sm_120a")
    ),
]
"""Architectures whose machine code differs in form; one of them is tried in every run."""

KERNELS = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ unsigned shared_address(const void* p) { return __cvta_generic_to_shared(p); }

__global__ void copy_bytes(const char* x, char* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void copy_halves(const short* x, short* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void copy_words(const int* x, int* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void copy_pairs(const int2* x, int2* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void copy_vectors(const int4* x, int4* y) { y[threadIdx.x] = x[threadIdx.x]; }

__global__ void divide(int* y, int a, int b) {
    y[0] = a / b;
}
__global__ void divide_long(long long* y, long long a, long long b) {
    y[0] = a / b;
}
__global__ void divide_by_seven(int* y, int a) { y[0] = a / 7; }
__global__ void divide_floats(float* y, float a, float b) {
    y[0] = a / b;
}
__global__ void root(float* y, float a) { y[0] = sqrtf(a); }

__global__ void takes_doubles(double* y, double a) {
    y[0] = a * 2.1;
}

__global__ void local_array(int* y, const int* x, int n) {
    int counts[64];
    for (int i = 0; i < n; ++i) counts[(x[i] * 7) & 63] = i;
    int sum = 0;
    for (int i = 0; i < n; ++i) sum += counts[x[i] & 63] * counts[i & 63];
    y[0] = sum;
}
__global__ void __launch_bounds__(1024, 2) spill(float* y, const float* x) {
    float v[48];
#pragma unroll
    for (int i = 0; i < 48; ++i) v[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 48; ++i) {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < 48; ++j) sum += v[j] * v[(i * j) % 48];
        y[i * 1024 + threadIdx.x] = sum;
    }
}

__global__ void shared_float_atomic(float* y) {
    __shared__ float sum;
    sum = 0;
    __syncthreads();
    atomicAdd(&sum, y[threadIdx.x]);
    __syncthreads();
    y[threadIdx.x] = sum;
}
__global__ void global_atomic(float* y) { atomicAdd(y, 1.0f); }
__global__ void own_lock(int* y) { while (atomicCAS(y, 0, 1)) {} }

__device__ __noinline__ float callee(float x) { return x * x + 1; }
__global__ void calls(float* y) { y[threadIdx.x] = callee(y[threadIdx.x]) + callee(y[threadIdx.x + 1]); }

__global__ void warp(int* y) {
    int v = y[threadIdx.x];
    v += __shfl_xor_sync(~0u, v, 1);
    v += __ballot_sync(~0u, v);
    y[threadIdx.x] = v;
}
__global__ void halves(__half2* y, __half2 a) { y[0] = __hfma2(a, a, y[0]); }
__global__ void exponential(float* y, float a) { y[0] = __expf(a); }
__global__ void generic(int* y, int k) {
    __shared__ int s[32];
    s[threadIdx.x] = k;
    __syncthreads();
    int* p = k > 3 ? y : s;
    p[threadIdx.x] += 1;
    y[threadIdx.x] += s[threadIdx.x ^ 1];
}
__global__ void dynamic(float* y) {
    extern __shared__ float line[];
    line[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = line[threadIdx.x ^ 1];
}
__global__ void matrices(int* y) {
    __shared__ int s[256];
    s[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    int a, b, c, d;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(shared_address(s) + threadIdx.x * 16));
    y[threadIdx.x] = a + b + c + d;
}

#if __CUDA_ARCH__ >= 800
__global__ void async_copy(int4* y, const int4* x) {
    __shared__ int4 s[32];
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"(shared_address(&s[threadIdx.x])), "l"(x + threadIdx.x));
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;");
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x ^ 1];
}
__global__ void products(float* y, const unsigned* x) {
    float a = 0, b = 0, c = 0, d = 0;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},"
                 "{%0,%1,%2,%3};" : "+f"(a), "+f"(b), "+f"(c), "+f"(d)
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]));
    y[0] = a + b + c + d;
}
#endif
#if __CUDA_ARCH__ >= 890
__global__ void fp8_products(float* y, const unsigned* x) {
    float a = 0, b = 0, c = 0, d = 0;
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},"
                 "{%0,%1,%2,%3};" : "+f"(a), "+f"(b), "+f"(c), "+f"(d)
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]));
    y[0] = a + b + c + d;
}
#endif
#if __CUDA_ARCH__ >= 900
__global__ void bulk(int* y, const int* x) {
    __shared__ alignas(128) int s[256];
    __shared__ alignas(8) unsigned long long bar;
    unsigned b = shared_address(&bar), to = shared_address(s);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(b));
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 1024;" :: "r"(b));
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, "
                     "[%2];" :: "r"(to), "l"(x), "r"(b));
    }
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}
struct alignas(64) Map { char bytes[128]; };
__global__ void tensor_copy(int* y, const __grid_constant__ Map map) {
    __shared__ alignas(128) int s[256];
    __shared__ alignas(8) unsigned long long bar;
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                     "[%1, {%2, %2}], [%3];"
                     :: "r"(shared_address(s)), "l"(&map), "r"(0), "r"(shared_address(&bar)));
    }
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__global__ void group_products(float* y, unsigned long long a, unsigned long long b) {
    float p = 0, q = 0, r = 0, s = 0;
    asm volatile("wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3},"
                 "%4, %5, 1, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
                 : "+f"(p), "+f"(q), "+f"(r), "+f"(s) : "l"(a), "l"(b));
    y[threadIdx.x] = p + q + r + s;
}
#endif
#if __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1100
__global__ void copy_wide(const float* x, float* y) {
    float a, b, c, d, e, f, g, h;
    asm volatile("ld.global.v8.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8];"
                 : "=f"(a), "=f"(b), "=f"(c), "=f"(d), "=f"(e), "=f"(f), "=f"(g), "=f"(h)
                 : "l"(x + 8 * threadIdx.x));
    y[threadIdx.x] = a + b + c + d + e + f + g + h;
}
#endif
"""


def leave_out_sass(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nvdisasm print nothing where a test is not marked as needing it: it takes half a second a time."""
    if request.node.get_closest_marker("skipif") is None:
        monkeypatch.setattr(assembly, "_printed", lambda tool, cubin: "")


def line_of(text: str, kernels: str = KERNELS) -> int:
    """The line, from 1, on which a text first stands."""
    return kernels.count("\n", 0, kernels.index(text)) + 1


@functools.cache
def everything(arch: str, *, with_sass: bool = True) -> dict[str, InspectedKernel]:
    """Every kernel of `KERNELS` that there is for an architecture, by name."""
    found = inspected(KERNELS, arch)
    return found if with_sass else {name: replace(one, function=None) for name, one in found.items()}


@functools.cache
def inspected(text: str, arch: str = "sm_90", **options: Any) -> dict[str, InspectedKernel]:
    """The plain kernels of a text, by name."""
    unit, _, _ = kernels_in_source(inline_source(text), CompileOptions(**options))
    built = build_all([BuildRequest(unit=unit, target=Target.parse(arch))])
    assert not built.failed, built.failed
    return {code.name: InspectedKernel(code=code, function=function) for code, function in built.kernels}
