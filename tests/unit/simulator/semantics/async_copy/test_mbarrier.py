"""mbarrier: phases, arrivals, transactions, and what is said of their misuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dotcu.errors import FindingError
from dotcu.simulator.semantics.async_copy.mbarrier import advance, fresh, unpack

i32 = np.int32

HELPERS = """
#define ADDRESS(p) ((unsigned)__cvta_generic_to_shared(p))
typedef unsigned long long u64;
#define INIT(b, n) asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(ADDRESS(b)), "r"(n) : "memory")
#define AT(text, b) asm volatile("{ .reg .b64 s; mbarrier." text "; }" :: "r"(ADDRESS(b)) : "memory")
__device__ u64 arrive(u64* b) { u64 s;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(s) : "r"(ADDRESS(b)) : "memory"); return s; }
__device__ void wait(u64* b, unsigned parity) {
    asm volatile("{ .reg .pred done; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, 1000;"
        " @!done bra AGAIN; }" :: "r"(ADDRESS(b)), "r"(parity) : "memory"); }
__device__ int test(u64* b, unsigned parity) { int r;
    asm volatile("{ .reg .pred done; mbarrier.test_wait.parity.shared.b64 done, [%1], %2;"
        " selp.u32 %0, 1, 0, done; }"
        : "=r"(r) : "r"(ADDRESS(b)), "r"(parity) : "memory"); return r; }
"""


def kernel(body: str) -> str:
    return HELPERS + (
        'extern "C" __global__ void k(int* out, int n) {\n'
        "__shared__ u64 bar[4]; int t = threadIdx.x; (void)t;\n" + body + "\n}"
    )


def only(result: Any) -> Any:
    assert len(result.findings) == 1, [str(f) for f in result.findings]
    return result.findings[0]


# Phases, against a model that takes one lane after the other


def model(expected: int, changes: list[tuple[int, int, int]]) -> tuple[list[int], tuple[int, ...]]:
    """The pending count that each lane finds, and the state after all: parity, expected, pending, tx."""
    parity, pending, tx = 0, expected, 0
    found = []
    for arrive, drop, bytes_ in changes:
        found.append(pending)
        if arrive > pending:
            continue
        pending, expected, tx = pending - arrive, expected - drop, tx + bytes_
        if pending == 0 and tx == 0:
            parity, pending = parity ^ 1, expected
    return found, (parity, expected, pending, tx)


@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    lanes=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.booleans()), max_size=40),
)
def test_arrivals_in_one_step_are_as_one_after_the_other(
    counts: list[int], lanes: list[tuple[int, int, bool]]
) -> None:
    lanes = [(cell % len(counts), arrive, drop) for cell, arrive, drop in lanes]
    words = fresh(np.array(counts))
    index = np.array([lane[0] for lane in lanes], np.int64)
    drops = [arrive if drop else 0 for _, arrive, drop in lanes]
    arrivals = np.array([a for _, a, _ in lanes], np.int64)
    seen, _ = advance(words, index, arrive=arrivals, drop=np.array(drops, np.int64))
    for cell, count in enumerate(counts):
        here = [i for i, lane in enumerate(lanes) if lane[0] == cell]
        found, after = model(count, [(lanes[i][1], drops[i], 0) for i in here])
        assert unpack(seen).pending[here].tolist() == found
        assert tuple(int(field[cell]) for field in unpack(words)) == after


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12))
def test_transactions_hold_the_phase_open(amounts: list[int]) -> None:
    words = fresh(np.array([1]))
    zero = np.zeros(len(amounts), np.int64)
    advance(words, zero, tx=np.array(amounts))
    advance(words, zero[:1], arrive=1)
    total = sum(amounts)
    assert [int(f[0]) for f in unpack(words)] == ([1, 1, 1, 0] if total == 0 else [0, 1, 0, total])
    advance(words, zero[:1], tx=-total)
    assert int(unpack(words).parity[0]) == 1


# Instructions


def test_states_count_what_is_pending(execute: Any) -> None:
    text = """
        .shared .align 8 .b64 bar;
        .reg .b64 %state; .reg .b32 %t, %two;
        mbarrier.init.shared::cta.b64 [bar], 128;
        bar.sync 0;
        mbarrier.arrive.noComplete.release.cta.shared.b64 %state, [bar], 1;
        mbarrier.pending_count.b64 %r0, %state;
        mbarrier.arrive.shared.b64 _, [bar];
        bar.sync 0;
        mbarrier.test_wait.acquire.cta.shared.b64 %r1, [bar], %state;"""
    pending, done = execute(text, np.zeros(64, "u4"), results=["u4", "b1"])
    assert sorted(pending.tolist()) == list(range(65, 129))
    assert done.all()


COUNTED = kernel("""
    if (t == 0) INIT(bar, 6);
    __syncthreads();
    if (t == 1) asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], 2;" :: "r"(ADDRESS(bar)));
    __syncthreads();
    out[0] = test(bar, 0);
    __syncthreads();
    if (t < 2) asm volatile("{ .reg .b64 s; mbarrier.arrive_drop.shared.b64 s, [%0]; }" :: "r"(ADDRESS(bar)));
    __syncthreads();
    out[1] = test(bar, 0);
    __syncthreads();
    if (t < 2) arrive(bar);
    __syncthreads();
    out[2] = test(bar, 0);
    out[3] = test(bar, 1);
    __syncthreads();
    if (t < 4) arrive(bar);
    __syncthreads();
    out[4] = test(bar, 0);
    out[5] = test(bar, 1);""")


def test_counted_and_dropped_arrivals(run_kernel: Any) -> None:
    """Six are expected in the first phase; two of them drop out of the second."""
    out = np.zeros(6, "i4")
    run_kernel(COUNTED, {"out": out, "n": i32(0)}, block=32, arch="compute_90")
    assert out.tolist() == [0, 0, 1, 0, 0, 1]


TRANSACTIONS = kernel("""
    if (t == 0) INIT(bar, 1);
    __syncthreads();
    if (t == 0) {
        asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 24;" :: "r"(ADDRESS(bar)));
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 8;" :: "r"(ADDRESS(bar)));
        out[0] = test(bar, 0);
        asm volatile("mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%0], 30;" ::
            "r"(ADDRESS(bar)));
        out[1] = test(bar, 0);
        asm volatile("mbarrier.complete_tx.shared::cta.b64 [%0], 2;" :: "r"(ADDRESS(bar)));
        out[2] = test(bar, 0);
    }""")


def test_a_phase_waits_for_its_transactions(run_kernel: Any) -> None:
    out = np.zeros(3, "i4")
    run_kernel(TRANSACTIONS, {"out": out, "n": i32(0)}, arch="compute_90")
    assert out.tolist() == [0, 0, 1]


ROUNDS = kernel("""
    __shared__ int box[32];
    if (t == 0) { INIT(&bar[0], 32); INIT(&bar[1], 32); }
    __syncthreads();
    int lane = t % 32;
    if (t < 32) {
        for (int i = 0; i < n; ++i) {
            wait(&bar[1], (i & 1) ^ 1);
            box[lane] = blockIdx.x * 1000 + i * lane;
            arrive(&bar[0]);
        }
    } else {
        int sum = 0;
        for (int i = 0; i < n; ++i) {
            wait(&bar[0], i & 1);
            sum += box[31 - lane];
            arrive(&bar[1]);
        }
        out[blockIdx.x * 32 + lane] = sum;
    }""")


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_producer_and_consumer_warps_take_turns(run_kernel: Any, rounds: int) -> None:
    """A fresh barrier's previous phase counts as over: the producer's first wait passes."""
    out = np.zeros((3, 32), "i4")
    run_kernel(ROUNDS, {"out": out, "n": i32(rounds)}, grid=3, block=64, arch="compute_90")
    for block in range(3):
        for lane in range(32):
            expected = sum(block * 1000 + i * (31 - lane) for i in range(rounds))
            assert out[block, lane] == expected


TRACKED = kernel("""
    __shared__ int tile[2][64];
    if (t == 0) INIT(bar, ARRIVALS);
    __syncthreads();
    int* in = out + 64;
    for (int i = 0; i < n; ++i) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::
            "r"(ADDRESS(&tile[i & 1][t])), "l"(in + i * 64 + t));
        asm volatile("cp.async.mbarrier.arrive.MODE.b64 [%0];" :: "r"(ADDRESS(bar)));
        OWN
        wait(bar, i & 1);
        out[t] += tile[i & 1][63 - t];
    }""")


@pytest.mark.parametrize(
    ("mode", "arrivals", "own"),
    [("noinc.shared", 64, ""), ("shared", 64, "arrive(bar);"), ("noinc.shared", 128, "arrive(bar);")],
)
def test_an_mbarrier_tracks_copies(run_kernel: Any, mode: str, arrivals: int, own: str) -> None:
    source = TRACKED.replace("MODE", mode).replace("ARRIVALS", str(arrivals)).replace("OWN", own)
    data = np.concatenate((np.zeros(64, "i4"), np.arange(320, dtype="i4") ** 2))
    out = data.copy()
    run_kernel(source, {"out": out, "n": i32(5)}, block=64, arch="compute_90")
    assert out[:64].tolist() == data[64:].reshape(5, 64).sum(axis=0)[::-1].tolist()


def test_not_waiting_for_what_tracks_a_copy_is_found(run_kernel: Any) -> None:
    source = TRACKED.replace("MODE", "noinc.shared").replace("ARRIVALS", "64").replace("OWN", "")
    source = source.replace("wait(bar, i & 1);", "__syncthreads();")
    arguments = {"out": np.zeros(128, "i4"), "n": i32(1)}
    assert only(run_kernel(source, arguments, block=64, collect=True)).kind == "race"


# Misuse


@pytest.mark.parametrize(
    ("prepare", "use"),
    [
        ("", "arrive(bar);"),
        ("", "test(bar, 0);"),
        ("bar[0] = 0; __syncthreads();", "arrive(bar);"),
        (
            'if (t == 0) { INIT(bar, 1); AT("inval.shared.b64 [%0]", bar); } __syncthreads();',
            "wait(bar, 0);",
        ),
    ],
)
def test_what_is_no_mbarrier_is_found(run_kernel: Any, prepare: str, use: str) -> None:
    source = kernel(f"{prepare}\n{use}")
    finding = only(
        run_kernel(source, {"out": np.zeros(1, "i4"), "n": i32(0)}, arch="compute_90", collect=True)
    )
    assert (finding.kind, finding.lanes, finding.address_of) == ("uninitialized-read", 32, "bar")
    assert "no mbarrier.init" in finding.message


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("if (t == 0) INIT(bar, 0);", "is to wait for 0 arrivals"),
        ("if (t == 0) INIT(bar, 1 << 20);", "is to wait for 1048576 arrivals"),
        (
            'if (t == 0) { INIT(bar, 2); AT("arrive.noComplete.shared.b64 s, [%0], 2", bar); }',
            ".noComplete",
        ),
        (
            'if (t == 0) { INIT(bar, 2); AT("arrive.shared::cta.b64 _, [%0], 3", bar); }',
            "more arrivals",
        ),
        ('if (t == 0) asm volatile("mbarrier.init.b64 [%0], 1;" :: "l"(out));', "is not in shared memory"),
    ],
)
def test_misuse_is_a_barrier_finding(run_kernel: Any, body: str, said: str) -> None:
    arguments = {"out": np.zeros(2, "i4"), "n": i32(0)}
    finding = only(run_kernel(kernel(body), arguments, arch="compute_90", collect=True))
    assert (finding.kind, finding.lanes) == ("barrier", 1)
    assert said in finding.message


def test_a_misaligned_mbarrier_is_found(run_kernel: Any) -> None:
    source = kernel("if (t == 0) INIT((char*)bar + 4, 1);")
    finding = only(run_kernel(source, {"out": np.zeros(1, "i4"), "n": i32(0)}, collect=True))
    assert finding.kind == "misaligned"


def test_a_deadlock_says_what_the_phase_lacks(run_kernel: Any) -> None:
    expect = 'asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 48;" :: "r"(ADDRESS(bar)));'
    body = f"if (t == 0) {{ INIT(bar, 34); {expect} }}\n__syncthreads();\narrive(bar);\nwait(bar, 0);"
    arguments = {"out": np.zeros(1, "i4"), "n": i32(0)}
    finding = only(run_kernel(kernel(body), arguments, arch="compute_90", collect=True))
    assert finding.kind == "deadlock"
    assert "(`bar`), in its phase of parity 0, lacks 2 arrivals and 48 bytes of copies" in finding.message


def test_a_phase_that_never_ends_ends_the_launch(run_kernel: Any) -> None:
    source = kernel("if (t == 0) INIT(bar, 33);\n__syncthreads();\narrive(bar);\nwait(bar, 0);\nout[t] = 1;")
    out = np.zeros(32, "i4")
    arguments = {"out": out, "n": i32(0)}
    result = run_kernel(source, arguments, arch="compute_90", collect=True, step_limit=20_000)
    assert only(result).kind in ("deadlock", "step-limit")
    assert not out.any()


# Libraries

BARRIER = """
#include <cuda/barrier>
extern "C" __global__ void k(const float* in, float* out, int n) {
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    #pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ barrier bar;
    __shared__ alignas(16) float tile[2][128];
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < n; ++i) {
        if (threadIdx.x == 0)
            cuda::memcpy_async(tile[i & 1], in + i * 128, cuda::aligned_size_t<16>(512), bar);
        bar.arrive_and_wait();
        sum += tile[i & 1][127 - threadIdx.x];
    }
    out[threadIdx.x] = sum;
}"""
SHARED_PIPELINE = """
#include <cooperative_groups.h>
#include <cuda/pipeline>
extern "C" __global__ void k(const float* in, float* out, int n) {
    __shared__ float tile[2][128];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cooperative_groups::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    float sum = 0;
    for (int i = 0, filled = 0; i < n; ++i) {
        for (; filled < n && filled < i + 2; ++filled) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, tile[filled % 2], in + filled * 128, sizeof(float) * 128, pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        sum += tile[i % 2][127 - threadIdx.x];
        pipe.consumer_release();
    }
    out[threadIdx.x] = sum;
}"""
ROLES = SHARED_PIPELINE.replace(
    "make_pipeline(block, &state)",
    "make_pipeline(block, &state, threadIdx.x < 32 ? cuda::pipeline_role::producer : "
    "cuda::pipeline_role::consumer)",
)
ROLES = (
    ROLES[: ROLES.index("    float sum")]
    + """
    if (threadIdx.x < 32) {
        for (int i = 0; i < n; ++i) {
            pipe.producer_acquire();
            for (int j = threadIdx.x; j < 128; j += 32)
                cuda::memcpy_async(&tile[i % 2][j], in + i * 128 + j, sizeof(float), pipe);
            pipe.producer_commit();
        }
    } else {
        float sum = 0;
        for (int i = 0; i < n; ++i) {
            pipe.consumer_wait();
            sum += tile[i % 2][127 - (threadIdx.x - 32)];
            pipe.consumer_release();
        }
        out[threadIdx.x - 32] = sum;
    }
}"""
)


@pytest.mark.parametrize(
    ("source", "block", "arch"),
    [
        pytest.param(BARRIER, 128, "compute_90", id="barrier-90", marks=pytest.mark.slow),
        pytest.param(SHARED_PIPELINE, 128, "compute_80", id="pipeline-80", marks=pytest.mark.slow),
        pytest.param(ROLES, 160, "compute_80", id="roles-80", marks=pytest.mark.slow),
        pytest.param(ROLES, 160, "compute_90", id="roles-90", marks=pytest.mark.slow),
    ],
)
def test_barriers_and_pipelines_of_libcu(run_kernel: Any, source: str, block: int, arch: str) -> None:
    x = np.random.default_rng(5).integers(-9, 9, (6, 128)).astype("f4")
    out = np.zeros(128, "f4")
    run_kernel(source, {"in": x, "out": out, "n": i32(6)}, block=block, arch=arch)
    assert out.tolist() == x.sum(axis=0)[::-1].tolist()


@pytest.mark.slow
def test_a_shared_barrier_without_init_is_found(run_kernel: Any) -> None:
    source = BARRIER.replace("init(&bar, blockDim.x);", ";")
    arguments = {"in": np.zeros(128, "f4"), "out": np.zeros(128, "f4"), "n": i32(1)}
    with pytest.raises(FindingError) as caught:
        run_kernel(source, arguments, block=128, arch="compute_90")
    assert (caught.value.finding.kind, caught.value.finding.address_of) == ("uninitialized-read", "bar")
