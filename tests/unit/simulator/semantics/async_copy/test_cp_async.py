"""cp.async: what lands when, and what is said of those who do not wait."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dotcu.errors import FindingError

i32 = np.int32

COPY = """
#define ADDRESS(p) ((unsigned)__cvta_generic_to_shared(p))
template <int BYTES> __device__ void copy(void* to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(ADDRESS(to)), "l"(from), "n"(BYTES));
}
__device__ void commit() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N)); }
"""


def line_of(source: str, text: str) -> int:
    return next(n for n, line in enumerate(source.splitlines(), 1) if text in line)


def only(result: Any) -> Any:
    assert len(result.findings) == 1, [str(f) for f in result.findings]
    return result.findings[0]


PIPELINE = """
#include <cuda_pipeline.h>
extern "C" __global__ void k(const float4* in, float* out, int tiles) {
    __shared__ float4 tile[2][64];
    int t = threadIdx.x;
    const float4* mine = in + (size_t)blockIdx.x * tiles * 64;
    __pipeline_memcpy_async(&tile[0][t], &mine[t], 16);
    __pipeline_commit();
    float sum = 0;
    for (int i = 0; i < tiles; ++i) {
        if (i + 1 < tiles) __pipeline_memcpy_async(&tile[(i + 1) & 1][t], &mine[(i + 1) * 64 + t], 16);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        float4 v = tile[i & 1][63 - t];
        sum += v.x + 2 * v.y + 3 * v.z + 4 * v.w;
        __syncthreads();
    }
    out[blockIdx.x * 64 + t] = sum;
}"""


@pytest.mark.parametrize("arch", ["compute_80", "compute_90"])
def test_double_buffered_pipeline_adds_up(run_kernel: Any, arch: str) -> None:
    x = np.random.default_rng(0).integers(-50, 50, (3, 5, 64, 4)).astype("f4")
    out = np.zeros((3, 64), "f4")
    run_kernel(PIPELINE, {"in": x, "out": out, "tiles": i32(5)}, grid=3, block=64, arch=arch)
    assert out.tolist() == (x * [1, 2, 3, 4]).sum(axis=(1, 3))[:, ::-1].tolist()


FORGOTTEN = (
    COPY
    + """extern "C" __global__ void k(const float* in, float* out) {
    __shared__ float tile[64];
    tile[threadIdx.x] = -1;
    __syncthreads();
    copy<4>(&tile[threadIdx.x], in + threadIdx.x);
    commit();
    __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];
}"""
)


def test_forgotten_wait_names_the_copy_and_the_read(run_kernel: Any) -> None:
    out = np.zeros(64, "f4")
    result = run_kernel(FORGOTTEN, {"in": np.ones(64, "f4"), "out": out}, block=64, collect=True)
    finding = only(result)
    assert (finding.kind, finding.lanes, finding.address_of) == ("race", 64, "tile")
    assert finding.line == line_of(FORGOTTEN, "out[")
    helper, caller = line_of(FORGOTTEN, "asm volatile"), line_of(FORGOTTEN, "copy<4>(&")
    assert f"the copy at line {helper}, called from line {caller} (`cp.async" in finding.message
    assert "at `tile`[63] in shared memory" in finding.message
    assert "cp.async.wait_group (__pipeline_wait_prior), then __syncthreads()" in finding.message
    assert out.tolist() == [-1] * 64  # the copy has not landed


def test_forgotten_wait_is_one_finding_also_where_nothing_was_written(run_kernel: Any) -> None:
    source = FORGOTTEN.replace("tile[threadIdx.x] = -1;", "")
    arguments = {"in": np.ones(64, "f4"), "out": np.zeros(64, "f4")}
    assert only(run_kernel(source, arguments, block=64, collect=True)).kind == "race"


@pytest.mark.parametrize(
    ("access", "said"),
    [
        ("tile[threadIdx.x] = 1;", "write of 4 bytes"),
        ("atomicAdd(&tile[threadIdx.x], 1);", "atomic on 4 bytes"),
        ("((short*)tile)[2 * threadIdx.x + 1] = 1;", "write of 2 bytes"),
        ("copy<4>(&tile[threadIdx.x], in);", "write of 4 bytes"),
        ("out[threadIdx.x] = tile[threadIdx.x];", "read of 4 bytes"),
    ],
)
def test_whatever_touches_a_copy_in_flight_is_found(run_kernel: Any, access: str, said: str) -> None:
    source = COPY + (
        'extern "C" __global__ void k(const int* in, int* out) {\n__shared__ int tile[32];\n'
        f"copy<4>(&tile[threadIdx.x], in + threadIdx.x);\n{access} }}"
    )
    with pytest.raises(FindingError) as caught:
        run_kernel(source, {"in": np.ones(32, "i4"), "out": np.zeros(32, "i4")})
    assert caught.value.finding.kind == "race"
    assert said in caught.value.finding.message


TWO = (
    COPY
    + """extern "C" __global__ void k(const double* in, double* out, int which) {
    __shared__ double tile[2][32];
    int t = threadIdx.x;
    copy<8>(&tile[0][t], in + t);
    commit();
    copy<8>(&tile[1][t], in + 32 + t);
    commit();
    wait<1>();
    __syncthreads();
    out[t] = tile[which][31 - t];
}"""
)


def test_of_two_groups_the_older_has_landed(run_kernel: Any) -> None:
    x, out = np.arange(64, dtype="f8"), np.zeros(32, "f8")
    run_kernel(TWO, {"in": x, "out": out, "which": i32(0)})
    assert out.tolist() == x[31::-1].tolist()
    finding = only(run_kernel(TWO, {"in": x, "out": out, "which": i32(1)}, collect=True))
    assert finding.kind == "race"
    assert f"called from line {line_of(TWO, '&tile[1]')} " in finding.message


@pytest.mark.parametrize(("last", "lands"), [("wait<0>();", False), ('asm("cp.async.wait_all;");', True)])
def test_copies_that_were_not_committed(run_kernel: Any, last: str, lands: bool) -> None:
    source = COPY + (
        'extern "C" __global__ void k(const int* in, int* out) {\n__shared__ int tile[32];\n'
        f"copy<4>(&tile[threadIdx.x], in + threadIdx.x);\n{last}\n"
        "out[threadIdx.x] = tile[threadIdx.x]; }"
    ).replace("asm(", "asm volatile(")
    out = np.zeros(32, "i4")
    result = run_kernel(source, {"in": np.arange(32, dtype="i4"), "out": out}, collect=True)
    assert [f.kind for f in result.findings] == ([] if lands else ["race"])
    assert (out.tolist() == list(range(32))) == lands


DIVERGENT = (
    COPY
    + """extern "C" __global__ void k(const int* in, int* out) {
    __shared__ int tile[2][48];
    int t = threadIdx.x;
    if (t % 3 != 2) { copy<4>(&tile[0][t], in + t); commit(); }
    if (t % 3 == 0) { copy<4>(&tile[1][t], in + 48 + t); commit(); }
    wait<1>();
    if (t % 3 != 2) out[t] = tile[0][t];
}"""
)


def test_groups_are_each_lanes_own(run_kernel: Any) -> None:
    x, out = np.arange(100, 196, dtype="i4"), np.zeros(48, "i4")
    finding = only(run_kernel(DIVERGENT, {"in": x, "out": out}, block=48, collect=True))
    assert (finding.kind, finding.lanes, finding.thread) == ("race", 16, (1, 0, 0))
    assert out[::3].tolist() == x[:48:3].tolist()


FILL = """extern "C" __global__ void k(const char* in, const int* sizes, char* out) {
    __shared__ __align__(16) char tile[64 * SIZE];
    int t = threadIdx.x;
    asm volatile("cp.async.CACHE.shared.global.L2::128B [%0], [%1], SIZE, %2;" ::
        "r"((unsigned)__cvta_generic_to_shared(tile + t * SIZE)), "l"(in + t * SIZE), "r"(sizes[t]));
    asm volatile("cp.async.wait_all;");
    for (int i = 0; i < SIZE; ++i) out[t * SIZE + i] = tile[t * SIZE + i];
}"""


@pytest.mark.parametrize(("size", "cache"), [(4, "ca"), (8, "ca"), (16, "ca"), (16, "cg")])
def test_a_short_source_is_filled_with_zeros(run_kernel: Any, size: int, cache: str) -> None:
    """Bytes that are not read may lie anywhere: the last lanes have no source at all."""
    source = FILL.replace("SIZE", str(size)).replace("CACHE", cache)
    sizes = np.random.default_rng(size).integers(0, size + 1, 50, dtype="i4")
    sizes[40:] = 0
    x = np.arange(1, 40 * size + 1, dtype="u4").astype("u1") | 1
    out = np.full((50, size), 7, "u1")
    run_kernel(source, {"in": x, "sizes": sizes, "out": out}, block=50)
    for lane, taken in enumerate(sizes.tolist()):
        row = x[lane * size : lane * size + taken].tolist() if lane < 40 else []
        assert out[lane].tolist() == row + [0] * (size - len(row))


def test_a_source_past_the_end_is_found(run_kernel: Any) -> None:
    source = FILL.replace("SIZE", "16").replace("CACHE", "ca")
    arguments = {"in": np.ones(32 * 16 - 8, "u1"), "out": np.zeros(32 * 16, "u1")}
    good = np.full(32, 16, "i4")
    good[31] = 8
    run_kernel(source, {"in": arguments["in"], "sizes": good, "out": arguments["out"]})
    bad = np.full(32, 16, "i4")
    result = run_kernel(source, {"in": arguments["in"], "sizes": bad, "out": arguments["out"]}, collect=True)
    finding = only(result)
    assert (finding.kind, finding.thread, finding.address_of) == ("out-of-bounds", (31, 0, 0), "in")
    assert "read of 16 bytes" in finding.message


def test_a_source_longer_than_the_copy_is_found(run_kernel: Any) -> None:
    source = FILL.replace("SIZE", "4").replace("CACHE", "ca")
    arguments = {"in": np.ones(128, "u1"), "sizes": np.full(32, 5, "i4"), "out": np.zeros(128, "u1")}
    assert "a copy of 4 bytes is to read 5" in only(run_kernel(source, arguments, collect=True)).message


@pytest.mark.parametrize(("to", "source"), [("4 * %i + 2", "4 * %i"), ("4 * %i", "4 * %i + 2")])
def test_misaligned_copies_are_found(run_kernel: Any, to: str, source: str) -> None:
    text = COPY + (
        'extern "C" __global__ void k(const char* in, char* out) {\n__shared__ char tile[256];\n'
        f"copy<4>(tile + {to}, in + {source});\n}}"
    ).replace("%i", "threadIdx.x")
    finding = only(run_kernel(text, {"in": np.ones(256, "u1"), "out": np.ones(1, "u1")}, collect=True))
    assert (finding.kind, finding.lanes) == ("misaligned", 32)


def test_an_unwritten_source_is_found_where_it_is_read(run_kernel: Any) -> None:
    arguments = {"in": np.ones(64, "f4"), "out": np.zeros(64, "f4")}
    result = run_kernel(FORGOTTEN, arguments, block=64, unwritten=["in"], collect=True)
    assert ("uninitialized-read", "in") in [(f.kind, f.address_of) for f in result.findings]


SHARED = """
        .shared .align 16 .b8 tile[256];
        .reg .b32 %o, %t;
        .reg .b64 %from, %policy;
        .reg .pred %odd;
        shl.b32 %o, %i, 2;
        mov.b32 %t, tile;
        add.u32 %o, %o, %t;
        ld.param.u64 %from, [k_param_0];
        mad.wide.u32 %from, %i, 4, %from;
        and.b32 %t, %i, 1;
        setp.ne.u32 %odd, %t, 0;
        mov.u64 %policy, 0;
"""


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("@%odd cp.async.ca.shared::cta.global [%o], [%from], 4;", lambda i, a: a if i % 2 else 9),
        ("cp.async.ca.shared.global [%o], [%from], 4, %odd;", lambda i, a: 0 if i % 2 else a),
        ("cp.async.ca.shared.global [%o], [%from], 4, !%odd;", lambda i, a: a if i % 2 else 0),
        ("cp.async.ca.shared.global.L2::cache_hint [%o], [%from], 4, %policy;", lambda i, a: a),
        ("cp.async.ca.shared.global.L2::cache_hint.L2::64B [%o], [%from], 4, 0, %policy;", lambda i, a: 0),
    ],
)
def test_guards_ignored_sources_and_policies(execute: Any, instruction: str, expected: Any) -> None:
    a = np.arange(100, 164, dtype="u4")
    text = f"{SHARED} st.shared.u32 [%o], 9; {instruction} cp.async.wait_all; ld.shared.u32 %r0, [%o];"
    assert execute(text, a, result="u4").tolist() == [expected(i, int(v)) for i, v in enumerate(a)]


GROUP = """
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(const float* in, float* out, int n) {
    extern __shared__ float tile[];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, tile, in + blockIdx.x * n, sizeof(float) * n);
    cg::wait(block);
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[blockIdx.x * n + i] = tile[n - 1 - i];
}"""


@pytest.mark.slow
@pytest.mark.parametrize("n", [257, 32])
def test_cooperative_groups_memcpy_async(run_kernel: Any, n: int) -> None:
    x = np.random.default_rng(n).random((2, n)).astype("f4")
    out = np.zeros((2, n), "f4")
    run_kernel(GROUP, {"in": x, "out": out, "n": i32(n)}, grid=2, block=64, smem_bytes=4 * n)
    assert out.tolist() == x[:, ::-1].tolist()
    forgotten = GROUP.replace("cg::wait(block);", "block.sync();")
    with pytest.raises(FindingError, match="race"):
        run_kernel(forgotten, {"in": x, "out": out, "n": i32(n)}, grid=2, block=64, smem_bytes=4 * n)


def test_many_blocks_and_loops_leave_nothing_behind(run_kernel: Any) -> None:
    x = np.arange(40 * 3 * 64 * 4, dtype="f4").reshape(40, 3, 64, 4) % 17
    out = np.zeros((40, 64), "f4")
    run_kernel(PIPELINE, {"in": x, "out": out, "tiles": i32(3)}, grid=40, block=64, seed=1)
    assert out.tolist() == (x * [1, 2, 3, 4]).sum(axis=(1, 3))[:, ::-1].tolist()
