"""128-bit values: moves, memory, and exchanges. See load_store.py."""

from __future__ import annotations

from typing import Any

import numpy as np

LOW = np.random.default_rng(0).integers(0, 2**63, 70).astype("u8")
HIGH = ~LOW
Q = ".reg .b128 %q<4>; "


def test_mov_packs_the_first_element_low_and_unpacks_it_first(execute: Any) -> None:
    text = Q + "mov.b128 %q0, {%a, %b}; mov.b128 %q1, %q0; mov.b128 {%r1, %r0}, %q1;"
    high, low = execute(text, LOW, HIGH, results=["u8", "u8"])
    assert low.tolist() == LOW.tolist()
    assert high.tolist() == HIGH.tolist()
    text = Q + "mov.b128 %q0, {%a, 7}; mov.b128 {_, %r0}, %q0;"
    assert execute(text, LOW, result="u8").tolist() == [7] * len(LOW)


def test_a_copy_under_a_predicate_leaves_the_other_lanes(execute: Any) -> None:
    text = Q + (
        ".reg .pred %p; mov.b128 %q0, {%a, %a}; mov.b128 %q1, {%b, %b}; setp.lt.u64 %p, %a, %b;"
        "@%p mov.b128 %q0, %q1; mov.b128 {%r0, _}, %q0;"
    )
    assert execute(text, LOW, HIGH, result="u8").tolist() == np.maximum(LOW, HIGH).tolist()


SHARED = ".shared .align 16 .b8 tile[1024]; .reg .b64 %t; .reg .b32 %o; mov.u32 %o, %tid.x;"


def test_st_and_ld_move_sixteen_bytes(execute: Any) -> None:
    text = (
        Q + SHARED + "mov.u64 %t, tile; mad.wide.u32 %t, %o, 16, %t; mov.b128 %q0, {%a, %b};"
        "st.shared.b128 [%t], %q0; ld.shared.b128 %q1, [%t]; mov.b128 {%r0, %r1}, %q1;"
    )
    low, high = execute(text, LOW, HIGH, results=["u8", "u8"])
    assert low.tolist() == LOW.tolist()
    assert high.tolist() == HIGH.tolist()


COUNTER = r"""
extern "C" __global__ void k(unsigned long long* at, unsigned long long* old) {
    unsigned long long seen = 0, above = 0, next, lo, hi;
    do {  // adds 1 to a 128-bit number whose halves change together
        next = seen + 1;
        asm volatile("{ .reg .b128 c, n, d; mov.b128 c, {%2, %3}; mov.b128 n, {%4, %5};"
                     "atom.cas.b128 d, [%6], c, n; mov.b128 {%0, %1}, d; }"
                     : "=l"(lo), "=l"(hi) : "l"(seen), "l"(above), "l"(next), "l"(~next), "l"(at) : "memory");
        if (lo == seen && hi == above) break;
        seen = lo; above = hi;
    } while (true);
    old[threadIdx.x] = seen;
}"""


def test_compare_and_swap_is_one_step_for_both_halves(run_kernel: Any) -> None:
    at, old = np.zeros(4, "u8"), np.zeros(64, "u8")
    at = at[(at.ctypes.data // 8) % 2 :][:2]  # aligned to 16 bytes
    run_kernel(COUNTER, {"at": at, "old": old}, block=64, arch="compute_90")
    assert at.tolist() == [64, 2**64 - 1 - 64]
    assert sorted(old.tolist()) == list(range(64))
