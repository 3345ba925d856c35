"""Atomic operations, also where many lanes hit one address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

OPERATIONS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "add": ("u32", lambda old, v: (old + v) & 0xFFFFFFFF),
    "min": ("u32", min),
    "max": ("u32", max),
    "and": ("b32", lambda old, v: old & v),
    "or": ("b32", lambda old, v: old | v),
    "xor": ("b32", lambda old, v: old ^ v),
    "exch": ("b32", lambda old, v: v),
    "inc": ("u32", lambda old, v: 0 if old >= v else old + 1),
    "dec": ("u32", lambda old, v: v if old == 0 or old > v else old - 1),
}


def source(statement: str, type_: str = "unsigned") -> str:
    return f"""extern "C" __global__
    void k({type_}* cells, {type_}* values, {type_}* seen, int cells_in_use) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        {type_}* p = cells + i % cells_in_use; {type_} v = values[i], old = 0;
        {statement}
        seen[i] = old; }}"""


@pytest.mark.parametrize("cells_in_use", [1, 5, 64])
@pytest.mark.parametrize("name", list(OPERATIONS))
@pytest.mark.parametrize("seed", [None, 3])
def test_results_come_from_one_order(run_kernel: Any, name: str, cells_in_use: int, seed: int | None) -> None:
    type_, function = OPERATIONS[name]
    text = source(f'asm volatile("atom.global.{name}.{type_} %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v));')
    cells = np.arange(1000, 1064, dtype="u4")
    values = np.random.default_rng(0).integers(0, 2**32, 64, dtype="u8").astype("u4")
    if name in ("inc", "dec"):
        values[:] = 1005
    seen = np.zeros(64, "u4")
    before = cells.copy()
    arguments = {"cells": cells, "values": values, "seen": seen, "n": np.int32(cells_in_use)}
    run_kernel(text, arguments, block=64, seed=seed)
    for cell in range(cells_in_use):
        lanes = list(range(cell, 64, cells_in_use))
        assert legal(int(before[cell]), lanes, values, seen, function) == cells[cell]
    assert cells[cells_in_use:].tolist() == before[cells_in_use:].tolist()


def legal(start: int, lanes: list[int], values: Any, seen: Any, function: Callable[[int, int], int]) -> int:
    """Follow the chain of values that lanes saw; each must have seen what another left."""
    current, left = start, set(lanes)
    while left:
        nexts = [lane for lane in left if int(seen[lane]) == current]
        assert nexts, f"no lane saw {current}"
        # Where several saw the same value, one whose update changes nothing goes first.
        nexts.sort(key=lambda lane: (function(current, int(values[lane])) != current, lane))
        left.remove(nexts[0])
        current = function(current, int(values[nexts[0]]))
    return current


def test_unused_results_give_the_same_memory(run_kernel: Any) -> None:
    text = source("atomicAdd(p, v); atomicMax(p + 64, v); atomicOr(p + 128, v);", "int")
    cells = np.zeros(192, "i4")
    values = np.random.default_rng(1).integers(0, 1000, 256).astype("i4")
    arguments = {"cells": cells, "values": values, "seen": np.zeros(256, "i4"), "n": np.int32(3)}
    run_kernel(text, arguments, grid=2, block=128)
    for cell in range(3):
        mine = values[cell::3]
        assert cells[cell] == mine.sum()
        assert cells[64 + cell] == mine.max()
        assert cells[128 + cell] == np.bitwise_or.reduce(mine)


@pytest.mark.parametrize(("type_", "kind"), [("float", "f4"), ("double", "f8")])
def test_float_sums_see_partial_sums(run_kernel: Any, type_: str, kind: str) -> None:
    cells, values = np.zeros(1, kind), np.arange(1, 65, dtype=kind)
    seen = np.zeros(64, kind)
    arguments = {"cells": cells, "values": values, "seen": seen, "n": np.int32(1)}
    run_kernel(source("old = atomicAdd(p, v);", type_), arguments, block=64)
    assert cells[0] == values.sum()
    assert sorted(seen.tolist()) == np.concatenate(([0], np.cumsum(values)[:-1])).tolist()


def test_compare_and_swap_lets_one_lane_win(run_kernel: Any) -> None:
    cells, seen = np.zeros(2, "u4"), np.full(64, 9, "u4")
    values = np.arange(1, 65, dtype="u4")
    arguments = {"cells": cells, "values": values, "seen": seen, "n": np.int32(2)}
    run_kernel(source("old = atomicCAS(p, 0u, v);"), arguments, block=64)
    for cell in range(2):
        mine = seen[cell::2]
        winners = np.flatnonzero(mine == 0)
        assert len(winners) == 1
        assert cells[cell] == values[cell::2][winners[0]]
        assert set(mine.tolist()) == {0, int(cells[cell])}


def test_a_loop_of_compare_and_swap_adds_up(run_kernel: Any) -> None:
    text = source(
        "unsigned assumed; old = *p; do { assumed = old; old = atomicCAS(p, assumed, assumed + v); }"
        " while (assumed != old);"
    )
    cells, values = np.zeros(3, "u4"), np.arange(96, dtype="u4")
    arguments = {"cells": cells, "values": values, "seen": np.zeros(96, "u4"), "n": np.int32(3)}
    run_kernel(text, arguments, block=96)
    assert cells.tolist() == [int(values[c::3].sum()) for c in range(3)]


def test_shared_memory_histogram(run_kernel: Any) -> None:
    text = r"""extern "C" __global__ void k(const unsigned char* x, unsigned* out) {
        __shared__ unsigned bins[16];
        if (threadIdx.x < 16) bins[threadIdx.x] = 0;
        __syncthreads();
        atomicAdd(&bins[x[blockIdx.x * blockDim.x + threadIdx.x] & 15], 1u);
        __syncthreads();
        if (threadIdx.x < 16) atomicAdd(&out[threadIdx.x], bins[threadIdx.x]); }"""
    x = np.random.default_rng(2).integers(0, 256, 1024).astype("u1")
    out = np.zeros(16, "u4")
    run_kernel(text, {"x": x, "out": out}, grid=4, block=256)
    assert out.tolist() == np.bincount(x & 15, minlength=16).tolist()


def test_wide_and_half_types(run_kernel: Any) -> None:
    text = r"""
    #include <cuda_fp16.h>
    extern "C" __global__ void k(unsigned long long* a, __half* h, __half2* p, long long* m) {
        atomicAdd(a, (unsigned long long)threadIdx.x << 32); atomicAdd(h, __float2half(1.f));
        atomicAdd(p, __floats2half2_rn(1.f, 2.f)); atomicMin(m, -(long long)threadIdx.x); }"""
    a, h, p, m = np.zeros(1, "u8"), np.zeros(1, "f2"), np.zeros(2, "f2"), np.zeros(1, "i8")
    run_kernel(text, {"a": a, "h": h, "p": p, "m": m})
    assert int(a[0]) == 496 << 32
    assert h[0] == 32
    assert p.tolist() == [32, 64]
    assert m[0] == -31


VECTOR = r"""
extern "C" __global__ void k({cell}* cells, {cell}* seen) {{
    {cell} *p = cells + {count} * (threadIdx.x % 3), *s = seen + {count} * threadIdx.x;
    {statement}
}}"""


@pytest.mark.parametrize("count", [2, 4])
def test_vectors_of_floats_are_updated_element_by_element(run_kernel: Any, count: int) -> None:
    braces = "{" + ", ".join(f"%{n}" for n in range(count)) + "}"
    given = "{" + ", ".join(f"%{count + n}" for n in range(count)) + "}"
    outs = ", ".join(f'"=f"(s[{n}])' for n in range(count))
    ins = ", ".join(f'"f"({n + 1}.f)' for n in range(count))
    spelled = f"atom.global.v{count}.f32.add {braces}, [%{2 * count}], {given};"
    text = f'asm volatile("{spelled}" : {outs} : {ins}, "l"(p));'
    source = VECTOR.format(cell="float", count=count, statement=text)
    cells, seen = np.zeros(3 * count + 4, "f4"), np.zeros(40 * count, "f4")
    cells = cells[(-cells.ctypes.data // 4) % 4 :][: 3 * count]
    run_kernel(source, {"cells": cells, "seen": seen}, block=40, arch="compute_90")
    hits = [len(range(cell, 40, 3)) for cell in range(3)]
    assert cells.tolist() == [hits[cell] * (n + 1) for cell in range(3) for n in range(count)]
    for cell in range(3):
        for n in range(count):
            mine = seen.reshape(40, count)[cell::3, n]
            assert sorted(mine.tolist()) == [turn * (n + 1) for turn in range(hits[cell])]
    red = f'asm volatile("red.global.add.v{count}.f32 [%{count}], {braces};" :: {ins}, "l"(p) : "memory");'
    run_kernel(
        VECTOR.format(cell="float", count=count, statement=red),
        {"cells": cells, "seen": seen},
        block=40,
        arch="compute_90",
    )
    assert cells.tolist() == [2 * hits[cell] * (n + 1) for cell in range(3) for n in range(count)]


def test_vectors_of_packed_halves(run_kernel: Any) -> None:
    text = (
        'asm volatile("red.global.v2.f16x2.max.noftz [%2], {%0, %1};" :: "r"(a), "r"(b), "l"(p) : "memory");'
    )
    statement = f"unsigned a = 0x3C004000u + threadIdx.x, b = 0x40003C00u; {text}"
    source = VECTOR.format(cell="unsigned", count=2, statement=statement)
    cells, seen = np.zeros(6, "u4"), np.zeros(64, "u4")
    run_kernel(source, {"cells": cells, "seen": seen}, block=32, arch="compute_90")
    assert cells.tolist() == [v for c in range(3) for v in (0x3C004000 + max(range(c, 32, 3)), 0x40003C00)]


@pytest.mark.parametrize("statement", ["atomicAdd(p, v);", "old = atomicAdd(p, v);"])
def test_a_sum_that_is_nan_is_the_canonical_one(run_kernel: Any, statement: str) -> None:
    cells = np.array([0xFFC12345, 0x7F800001, 0x3F800000, 0x3F800000], "u4")
    values = np.array([1.0, 1.0, np.nan, 1.0], "f4")
    arguments = {"cells": cells.view("f4"), "values": values, "seen": np.zeros(4, "f4"), "n": np.int32(4)}
    run_kernel(source(statement, "float"), arguments, block=4)
    assert cells.tolist() == [0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF, 0x40000000]


TINY, LEAST = 2.0**-126, 2.0**-149  # the smallest normal float, and the smallest of all


@pytest.mark.parametrize("statement", ["atomicAdd(p, v);", "old = atomicAdd(p, v);"])
def test_sums_in_global_memory_flush_subnormals(run_kernel: Any, statement: str) -> None:
    cells = np.array([LEAST, 0.0, TINY, 1.5 * TINY, -LEAST, 1.0, TINY], "f4")
    values = np.array([0.0, -LEAST, LEAST, -TINY, -0.0, LEAST, TINY], "f4")
    arguments = {"cells": cells, "values": values, "seen": np.zeros(7, "f4"), "n": np.int32(7)}
    run_kernel(source(statement, "float"), arguments, block=7)
    assert cells.tolist() == [0.0, 0.0, TINY, 0.0, 0.0, 1.0, 2 * TINY]
    assert np.signbit(cells).tolist() == [False, False, False, False, True, False, False]


@pytest.mark.parametrize("statement", ["atomicAdd(q, v);", "old = atomicAdd(q, v);"])
def test_sums_in_shared_memory_keep_subnormals(run_kernel: Any, statement: str) -> None:
    text = source(
        f"__shared__ float held[4]; float* q = held + i; *q = *p; {statement} *p = *q + 0 * old;", "float"
    )
    cells, values = (
        np.array([LEAST, 0.0, 1.5 * TINY, TINY], "f4"),
        np.array([0.0, -LEAST, -TINY, LEAST], "f4"),
    )
    arguments = {"cells": cells, "values": values, "seen": np.zeros(4, "f4"), "n": np.int32(4)}
    run_kernel(text, arguments, block=4)
    assert cells.tolist() == [LEAST, -LEAST, 0.5 * TINY, TINY + LEAST]


@pytest.mark.parametrize("statement", ["atomicAdd(p, v);", "old = atomicAdd(p, v);"])
@pytest.mark.parametrize("count", [3, 1000])
def test_many_sums_at_one_address_flush_each_sum(run_kernel: Any, statement: str, count: int) -> None:
    steps = np.array([1.5 * TINY, -TINY, 1.25 * TINY, -1.5 * TINY], "f4")  # each second sum is subnormal
    values, cells, seen = np.resize(steps, count), np.zeros(1, "f4"), np.zeros(count, "f4")
    arguments = {"cells": cells, "values": values, "seen": seen, "n": np.int32(1)}
    run_kernel(source(statement, "float"), arguments, block=count)
    expected = [np.float32(0.0)]
    for value in values:
        total = expected[-1] + value
        expected.append(total if abs(total) >= np.float32(TINY) else np.float32(0) * total)
    assert cells[0] == expected[-1]
    if "old" in statement:
        assert seen.tolist() == [float(e) for e in expected[:-1]]


NAN_BITS = [0x7FF0000000000001, 0xFFF8123456789ABC]


@pytest.mark.parametrize(
    ("place", "sums"),
    [
        ("p", [NAN_BITS[0], NAN_BITS[1], NAN_BITS[1]]),
        ("q", [0x7FF8000000000001, NAN_BITS[1], 0x7FF8000000000001]),
    ],
)
@pytest.mark.parametrize("old", ["", "old = "])
def test_which_nan_a_sum_of_doubles_is(run_kernel: Any, place: str, sums: list[int], old: str) -> None:
    """In global memory the value's before the cell's, as it is; in shared memory the cell's, made quiet."""
    text = source(
        "__shared__ double held[4]; double* q = held + i; *q = *p; "
        f"{old}atomicAdd({place}, v); if ({place} == q) *p = *q;",
        "double",
    )
    one = 0x3FF0000000000000
    cells = np.array([NAN_BITS[0], one, NAN_BITS[0], 0x7FF0000000000000], "u8")
    values = np.array([one, NAN_BITS[1], NAN_BITS[1], 0xFFF0000000000000], "u8")
    seen = np.zeros(4, "f8")
    arguments = {"cells": cells.view("f8"), "values": values.view("f8"), "seen": seen, "n": np.int32(4)}
    run_kernel(text, arguments, block=4)
    assert cells.tolist() == [*sums, 0xFFF8000000000000]


def test_a_cache_policy_changes_no_value(run_kernel: Any) -> None:
    text = source("""unsigned long long policy;
        asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("red.global.add.L2::cache_hint.u32 [%0], %1, %2;" :: "l"(p), "r"(v), "l"(policy));
        asm volatile("atom.global.add.L2::cache_hint.u32 %0, [%1], %2, %3;"
                     : "=r"(old) : "l"(p), "r"(v), "l"(policy));""")
    cells, values, seen = np.zeros(4, "u4"), np.arange(1, 5, dtype="u4"), np.zeros(4, "u4")
    run_kernel(text, {"cells": cells, "values": values, "seen": seen, "n": np.int32(4)}, block=4)
    assert cells.tolist() == [2, 4, 6, 8]
    assert seen.tolist() == [1, 2, 3, 4]
