from __future__ import annotations

import torch

from dotcu.kernel import load_inline, simulate

SHUFFLED = """
__global__ void k(int* got, int* inside) {
    int lane = threadIdx.x, value, flag;
    asm volatile(
        "{ .reg .pred p, q; setp.lt.s32 q, %2, 16; shfl.sync.down.b32 %0|p, %2, 1, 31, 0xffffffff;"
        "  @q setp.eq.s32 p, %2, 3; selp.s32 %1, 1, 0, p; }"
        : "=r"(value), "=r"(flag) : "r"(lane));
    got[lane] = value;
    inside[lane] = flag;
}
"""


def test_a_part_of_the_warp_may_write_the_predicate_that_a_shuffle_gave() -> None:
    got, inside = torch.zeros(32, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    with simulate():
        load_inline(SHUFFLED).k(got, inside, grid=1, block=32)
    assert got.tolist() == [min(lane + 1, 31) for lane in range(32)]
    assert inside.tolist() == [int(lane == 3 if lane < 16 else lane < 31) for lane in range(32)]
