"""cp.async.bulk: many bytes at once, in by an mbarrier and out by groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dotcu.errors import FindingError
from dotcu.simulator.sanitizers.shadow import EventLog

i32 = np.int32

HELPERS = """
#define ADDRESS(p) ((unsigned)__cvta_generic_to_shared(p))
typedef unsigned long long u64;
#define INIT(b, n) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" \\
    :: "r"(ADDRESS(b)), "r"(n) : "memory")
#define EXPECT(b, n) asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" \\
    :: "r"(ADDRESS(b)), "r"(n) : "memory")
#define IN(to, from, n, b) asm volatile( \\
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" \\
    :: "r"(ADDRESS(to)), "l"(from), "r"(n), "r"(ADDRESS(b)) : "memory")
#define OUT(to, from, n) asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" \\
    :: "l"(to), "r"(ADDRESS(from)), "r"(n) : "memory")
#define ADD(to, from, n, type) asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add." type \\
    " [%0], [%1], %2;" :: "l"(to), "r"(ADDRESS(from)), "r"(n) : "memory")
#define COMMIT() asm volatile("cp.async.bulk.commit_group;" ::: "memory")
#define WAIT_GROUP(n) asm volatile("cp.async.bulk.wait_group.read " #n ";" ::: "memory")
#define FENCE() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
__device__ void wait(u64* b, unsigned parity) {
    asm volatile("{ .reg .pred done; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;"
        " @!done bra AGAIN; }" :: "r"(ADDRESS(b)), "r"(parity) : "memory"); }
"""


def kernel(body: str) -> str:
    return HELPERS + (
        'extern "C" __global__ void k(const float* in, float* out, int n) {\n'
        "__shared__ __align__(128) float tile[2][256]; __shared__ u64 bar; int t = threadIdx.x;\n"
        'if (t == 0) { INIT(&bar, 1); asm volatile("fence.mbarrier_init.release.cluster;"); }\n'
        "__syncthreads();\n" + body + "\n}"
    )


def line_of(source: str, text: str) -> int:
    return next(n for n, line in enumerate(source.splitlines(), 1) if text in line)


def run(run_kernel: Any, source: str, x: Any, out: Any, n: int = 1024, **options: Any) -> Any:
    return run_kernel(source, {"in": x, "out": out, "n": i32(n)}, arch="compute_90", **options)


def only(result: Any) -> Any:
    assert len(result.findings) == 1, [str(f) for f in result.findings]
    return result.findings[0]


THROUGH = kernel("""
    in += blockIdx.x * 4 * 256; out += blockIdx.x * 4 * 256;
    for (int i = 0; i < 4; ++i) {
        if (t == 0) {
            EXPECT(&bar, n);
            IN(tile[0], in + i * 256, n, &bar);
        }
        wait(&bar, i & 1);
        for (int j = t; j < n / 4; j += blockDim.x) tile[1][j] = 2 * tile[0][j];
        FENCE();
        __syncthreads();
        if (t == 0) {
            OUT(out + i * 256, tile[1], n);
            COMMIT();
            WAIT_GROUP(0);
        }
        __syncthreads();
    }""")


@pytest.mark.parametrize("n", [1024, 16, 944])
def test_tiles_go_in_and_out(run_kernel: Any, n: int) -> None:
    x = np.random.default_rng(n).random((3, 4, 256)).astype("f4")
    out = np.full((3, 4, 256), 7, "f4")
    run(run_kernel, THROUGH, x, out, n, grid=3, block=64, unwritten=["out"])
    assert out[..., : n // 4].tolist() == (2 * x[..., : n // 4]).tolist()
    assert (out[..., n // 4 :] == 7).all()


def test_reading_before_the_mbarrier_is_found(run_kernel: Any) -> None:
    source = kernel(
        "if (t == 0) { EXPECT(&bar, n);\nIN(tile[0], in, n, &bar); }\n__syncthreads();\nout[t] = tile[0][t];"
    )
    finding = only(run(run_kernel, source, np.ones(256, "f4"), np.ones(32, "f4"), collect=True))
    assert (finding.kind, finding.lanes, finding.line) == ("proxy-fence", 32, line_of(source, "out[t]"))
    assert f"the copy at line {line_of(source, 'IN(tile')} " in finding.message
    assert "mbarrier.try_wait" in finding.message


def test_writing_over_a_source_that_is_still_read_is_found(run_kernel: Any) -> None:
    body = "tile[0][t] = t;\nFENCE(); __syncthreads();\nif (t == 0) { OUT(out, tile[0], 128);\nCOMMIT(); }\n"
    body += "WAIT\n"
    source = kernel(body + "__syncthreads();\nout[32 + t] = tile[0][t];\ntile[0][t] = 5;")
    out = np.zeros(64, "f4")
    finding = only(run(run_kernel, source.replace("WAIT\n", "\n"), np.ones(1, "f4"), out, collect=True))
    assert (finding.kind, finding.lanes, finding.line) == ("proxy-fence", 32, line_of(source, "= 5"))
    assert f"line {line_of(source, 'OUT(out')} " in finding.message
    assert "cp.async.bulk.wait_group" in finding.message
    assert out.tolist() == [*range(32), *range(32)]
    run(run_kernel, source.replace("WAIT\n", "if (t == 0) WAIT_GROUP(0);\n"), np.ones(1, "f4"), out)


PROXY = """tile[0][t] = t;
BEFORE
__syncthreads();
if (t == 0) { AFTER OUT(out, tile[0], 128); COMMIT(); WAIT_GROUP(0); }"""


@pytest.mark.parametrize(("before", "after"), [("FENCE();", ""), ("", "FENCE();")])
def test_a_copy_of_what_threads_wrote_needs_a_proxy_fence(run_kernel: Any, before: str, after: str) -> None:
    right = kernel(PROXY.replace("BEFORE", before).replace("AFTER", after))
    run(run_kernel, right, np.ones(1, "f4"), np.zeros(32, "f4"))


@pytest.mark.parametrize("fence", ["", "__threadfence();", "if (t >= 16) FENCE();"])
def test_a_copy_without_a_proxy_fence_is_found(run_kernel: Any, fence: str) -> None:
    wrong = kernel(PROXY.replace("BEFORE", fence).replace("AFTER", "if (n == 0) FENCE();\n"))
    finding = only(run(run_kernel, wrong, np.ones(1, "f4"), np.zeros(32, "f4"), collect=True))
    assert (finding.kind, finding.line) == ("proxy-fence", line_of(wrong, "OUT(out"))
    assert f"writes at line {line_of(wrong, '= t;')}" in finding.message
    assert "fence.proxy.async" in finding.message


def test_a_proxy_fence_of_long_ago_hides_nothing(run_kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventLog, "LIMIT", 64)
    spin = "for (int i = 0; i < 60; ++i) { tile[1][t] = i; __syncthreads(); }\n"
    wrong = kernel(
        spin + "FENCE();\n" + spin.replace("60", "30") + PROXY.replace("BEFORE", "").replace("AFTER", "")
    )
    finding = only(run(run_kernel, wrong, np.ones(1, "f4"), np.zeros(32, "f4"), collect=True))
    assert (finding.kind, finding.line) == ("proxy-fence", line_of(wrong, "OUT(out"))


def test_of_two_groups_out_the_older_is_read(run_kernel: Any) -> None:
    source = kernel(
        "tile[0][t] = tile[1][t] = t; FENCE(); __syncthreads();\n"
        "if (t == 0) { OUT(out, tile[0], 128); COMMIT();\n"
        "OUT(out + 32, tile[1], 128); COMMIT(); WAIT_GROUP(1); }\n"
        "__syncthreads(); tile[WHICH][t] = 5;"
    )
    run(run_kernel, source.replace("WHICH", "0"), np.ones(1, "f4"), np.zeros(64, "f4"))
    with pytest.raises(FindingError, match="proxy-fence"):
        run(run_kernel, source.replace("WHICH", "1"), np.ones(1, "f4"), np.zeros(64, "f4"))


@pytest.mark.parametrize(
    ("copy", "said"),
    [
        ("IN(tile[0] + 1, in, 16, &bar)", "misaligned write of 16 bytes"),
        ("IN(tile[0], in + 2, 16, &bar)", "misaligned read of 16 bytes"),
        ("IN(tile[0], in, 20, &bar)", "misaligned size of 20 bytes"),
        ("IN(tile[0], in, 16, (char*)&bar + 4)", "misaligned atomic on 8 bytes"),
        ("IN(tile[0], in + 252, 32, &bar)", "out-of-bounds read of 32 bytes at `in`[252]"),
        ("IN(tile[1] + 240, in, 128, &bar)", "out-of-bounds write of 128 bytes"),
    ],
)
def test_what_a_bulk_copy_may_not_do(run_kernel: Any, copy: str, said: str) -> None:
    source = kernel(f"if (t == 0) {copy};")
    finding = only(run(run_kernel, source, np.ones(256, "f4"), np.ones(1, "f4"), collect=True))
    assert finding.lanes == 1
    assert str(finding).startswith(f"kernel.cu:{line_of(source, copy)}: {said}")


def test_an_unwritten_source_is_found(run_kernel: Any) -> None:
    source = kernel(
        "if (t < 16) tile[0][t] = 1;\nFENCE(); __syncthreads();\nif (t == 0) OUT(out, tile[0], 128);"
    )
    finding = only(run(run_kernel, source, np.ones(1, "f4"), np.ones(32, "f4"), collect=True))
    assert (finding.kind, finding.line) == ("uninitialized-read", line_of(source, "OUT(out"))
    assert "at `tile`[8] in shared memory" in finding.message


def test_bytes_that_never_come_end_the_launch(run_kernel: Any) -> None:
    source = kernel("if (t == 0) { EXPECT(&bar, n + 16); IN(tile[0], in, n, &bar); }\nwait(&bar, 0);")
    x, out = np.ones(256, "f4"), np.ones(1, "f4")
    finding = only(run(run_kernel, source, x, out, collect=True, step_limit=20_000))
    assert finding.kind in ("deadlock", "step-limit")


def test_lanes_may_ask_for_different_sizes(run_kernel: Any) -> None:
    """Each of four lanes copies its own piece, of 16 bytes more than the last lane's."""
    source = kernel(
        "if (t < 4) { IN(tile[0] + 16 * t, in + 16 * t, 16 * t, &bar); }\n"
        "__syncthreads(); if (t == 0) EXPECT(&bar, 96);\nwait(&bar, 0);\n"
        "if (t % 16 < 4 * (t / 16)) out[t] = tile[0][t];"
    )
    x, out = np.arange(1, 65, dtype="f4"), np.zeros(64, "f4")
    run(run_kernel, source, x, out, block=64)
    assert out.tolist() == [v if i % 16 < 4 * (i // 16) else 0 for i, v in enumerate(x.tolist())]


@pytest.mark.parametrize(("type_", "dtype"), [("u32", "u4"), ("f32", "f4")])
def test_reductions_of_many_blocks_add_up(run_kernel: Any, type_: str, dtype: str) -> None:
    source = kernel(
        "tile[0][t] = in[blockIdx.x * 32 + t]; FENCE(); __syncthreads();\n"
        f'if (t == 0) {{ ADD(out, tile[0], 128, "{type_}"); COMMIT(); WAIT_GROUP(0); }}'
    )
    x = np.random.default_rng(1).integers(1, 1000, (5, 32)).astype(dtype)
    out = np.full(32, 3, dtype)
    run(run_kernel, source, x.view("f4"), out.view("f4"), grid=5)
    assert out.tolist() == (3 + x.sum(axis=0)).tolist()


def test_float_reductions_keep_subnormals(run_kernel: Any) -> None:
    """As an H200 does, though `atom` and `red` flush them."""
    source = kernel(
        "tile[0][t] = in[t]; FENCE(); __syncthreads();\n"
        'if (t == 0) { ADD(out, tile[0], 128, "f32"); COMMIT(); WAIT_GROUP(0); }'
    )
    x = np.full(32, 1e-40, "f4")
    x[1] = -1e-40
    out = np.array([1, -0.0] + [1e-40] * 30, "f4")
    run(run_kernel, source, x, out)
    assert out[0] == 1
    assert out[1] == x[1]
    assert (out[2:] == x[2:] + x[2:]).all()


def test_prefetches_are_hints(run_kernel: Any) -> None:
    source = kernel('asm volatile("cp.async.bulk.prefetch.L2.global [%0], 16;" :: "l"(in)); out[t] = 1;')
    out = np.zeros(32, "f4")
    run(run_kernel, source, np.ones(4, "f4"), out)
    assert out.all()


def test_a_cluster_of_one_block_maps_addresses_to_themselves(run_kernel: Any) -> None:
    source = kernel("""
    unsigned there, rank;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(ADDRESS(&tile[0][t])), "r"(0));
    asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank) : "r"(there));
    asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(there), "f"(t + 1.0f + rank) : "memory");
    out[t] = tile[0][t];""")
    out = np.zeros(32, "f4")
    run(run_kernel, source, np.ones(1, "f4"), out)
    assert out.tolist() == list(range(1, 33))
    with pytest.raises(FindingError, match="cluster of one block"):
        run(run_kernel, source.replace('"r"(0)', '"r"(1)'), np.ones(1, "f4"), out)


LIBRARY = """
#include <cuda/barrier>
#include <cuda/ptx>
namespace ptx = cuda::ptx;
extern "C" __global__ void k(const float* in, float* out, int n) {
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    #pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ barrier bar;
    __shared__ alignas(128) float tile[256];
    if (threadIdx.x == 0) { init(&bar, blockDim.x); ptx::fence_proxy_async(ptx::space_shared); }
    __syncthreads();
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::device::memcpy_async_tx(tile, in, cuda::aligned_size_t<16>(sizeof(tile)), bar);
        token = cuda::device::barrier_arrive_tx(bar, 1, sizeof(tile));
    } else {
        token = bar.arrive();
    }
    bar.wait(std::move(token));
    for (int i = threadIdx.x; i < 256; i += blockDim.x) tile[i] += 1;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out, tile, sizeof(tile));
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
}"""


@pytest.mark.slow
def test_bulk_copies_of_libcu(run_kernel: Any) -> None:
    x, out = np.arange(256, dtype="f4"), np.zeros(256, "f4")
    run(run_kernel, LIBRARY, x, out, block=96)
    assert out.tolist() == (x + 1).tolist()
