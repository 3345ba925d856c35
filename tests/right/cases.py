"""The launch of each kernel here: tiny, and with more than one warp or block where they meet."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

import dotcu
from helpers.kernel_cases import Corpus, Launch

CORPUS = Corpus(Path(__file__).parent)
case = CORPUS.case

i32 = torch.int32


def ints(count: int) -> torch.Tensor:
    """Small numbers in no order: 0, 7, 14, ... modulo 23."""
    return torch.arange(count, dtype=i32) * 7 % 23


def zeros(count: int) -> torch.Tensor:
    """Integers that are 0."""
    return torch.zeros(count, dtype=i32)


def total(x: torch.Tensor) -> torch.Tensor:
    """The sum, as a tensor of one element."""
    return x.sum(dtype=i32).view(1)


# Within a warp


@case
def warp_synchronous_reduction() -> Launch:
    x, out = ints(128), zeros(4)
    return Launch(args=(x, out), out=out, want=x.view(4, 32).sum(1, dtype=i32), block=128)


@case
def warp_sync_of_subgroups() -> Launch:
    x, out = ints(32), zeros(32)
    low = x[:16].flip(0)
    high = 2 * x[16:].roll(-1)
    return Launch(args=(x, out), out=out, want=torch.cat((low + low.roll(8), high.flip(0))))


@case
def shuffle_of_width_8() -> Launch:
    x, out = torch.arange(64.0), torch.empty(8)
    return Launch(args=(x, out), out=out, want=x.view(8, 8).sum(1), block=64)


@case
def threads_without_work() -> Launch:
    x, out = ints(50), zeros(50)
    first = torch.tensor([0, 32], dtype=torch.long).repeat_interleave(32)[:50]
    return Launch(args=(x, out, 50), out=out, want=x + x[first], block=64)


@case
def warp_aggregated_atomics() -> Launch:
    x, kept = torch.arange(1, 61, dtype=i32), zeros(20)
    x = x.roll(7)
    # one warp, so the order is that of the lanes
    first = x[:32]
    return Launch(
        args=(x, kept, zeros(1), 32), out=kept, want=torch.cat((first[first % 3 == 0], zeros(20)))[:20]
    )


@case
def tiles_of_a_warp() -> Launch:
    x, tiles = ints(64), zeros(8)
    return Launch(args=(x, tiles, zeros(1)), out=tiles, want=x.view(8, 8).sum(1, dtype=i32), block=64)


# Within a block


@case
def double_buffer() -> Launch:
    x, out = ints(64), zeros(64)
    return Launch(args=(x, out), out=out, want=x.cumsum(0).to(i32), block=64)


@case
def padded_transpose() -> Launch:
    x, out = torch.arange(20.0 * 20).view(20, 20), torch.empty(20, 20)
    return Launch(args=(x, out, 20), out=out, want=x.t().contiguous(), grid=(2, 2), block=(16, 16))


@case
def two_sided_stencil() -> Launch:
    x, out = torch.arange(100.0) % 11, torch.empty(100)
    wide = torch.cat((torch.zeros(2), x, torch.zeros(2)))
    return Launch(args=(x, out, 100), out=out, want=wide.unfold(0, 5, 1).sum(1), grid=2, block=64)


@case
def flag_by_atomics() -> Launch:
    x, out = ints(32), zeros(32)
    return Launch(args=(x, out), out=out, want=2 * x.flip(0), block=64)


@case
def named_barriers() -> Launch:
    x, out = ints(96), zeros(96)
    want = (x.view(3, 32) + torch.arange(3, dtype=i32)[:, None]).flip(1).reshape(-1)
    return Launch(args=(x, out, 3), out=out, want=want, block=64)


@case
def ring_buffer() -> Launch:
    x, out = ints(320), zeros(320)
    return Launch(args=(x, out, 10), out=out, want=2 * x.view(10, 32).flip(1).reshape(-1), block=64)


@case
def bytes_of_a_word() -> Launch:
    x, out = torch.arange(64, dtype=torch.uint8) * 3, torch.zeros(16, dtype=torch.uint32)
    return Launch(args=(x, out), out=out, want=x.view(torch.uint32), block=64)


@case
def same_value_in_one_cell() -> Launch:
    x, out = torch.ones(128), zeros(128)
    x[[70, 75, 110]] = -1.0
    want = torch.cat((zeros(64), zeros(64) + 1))
    return Launch(args=(x, out), out=out, want=want, grid=2, block=64)


@case
def shared_memory_reused() -> Launch:
    x, out = torch.randperm(64, generator=torch.Generator().manual_seed(0)).float(), zeros(64)
    return Launch(args=(x, out), out=out, want=x.argsort().to(i32), block=64)


@case
def dynamic_shared_carved() -> Launch:
    x, out = torch.arange(48.0), torch.empty(48, dtype=torch.float64)
    want = (1.5 * x + torch.arange(48) % 3).flip(0).double()
    return Launch(args=(x, out), out=out, want=want, block=48, smem_bytes=48 * 13)


@case
def warps_that_leave_early() -> Launch:
    x, out = ints(128), zeros(128)
    return Launch(args=(x, out), out=out, want=torch.cat((x[:64].flip(0), x[64:])), block=128)


@case
def early_return_before_a_barrier() -> Launch:
    x, out = ints(50), zeros(50)
    return Launch(args=(x, out, 50), out=out, want=x.flip(0), block=64)


@case
def loops_that_end_at_a_barrier() -> Launch:
    length, out = torch.arange(64, dtype=i32) // 32 + 2, zeros(64)
    return Launch(args=(length, out), out=out, want=length.clone(), block=64)


@case
def barrier_of_each_half() -> Launch:
    x, out = ints(64), zeros(64)
    return Launch(args=(x, out), out=out, want=2 * x.flip(0), block=128)


@case
def barriers_that_vote() -> Launch:
    x, out = ints(96), zeros(96)
    want = (x < 10).sum(dtype=i32).expand(96) + 11000
    return Launch(args=(x, out), out=out, want=want, block=96)


@case
def async_double_buffer() -> Launch:
    x, out = torch.arange(512.0) % 7, torch.empty(32)
    places = (4 * torch.arange(32)[:, None] + 5 * torch.arange(4)) % 128
    return Launch(args=(x, out, 4), out=out, want=x.view(4, 128)[:, places].sum((0, 2)))


@case
def mbarrier_pipeline() -> Launch:
    x, out = ints(160), zeros(160)
    return Launch(args=(x, out, 5), out=out, want=x.view(5, 32).flip(1).reshape(-1), block=64)


@case
def barrier_object() -> Launch:
    x, out = ints(64), zeros(64)
    return Launch(args=(x, out), out=out, want=x.flip(0).roll(1), block=64)


# Between blocks


@case
def volatile_flag_with_fences() -> Launch:
    x, out = ints(64), zeros(192)
    return Launch(args=(x, zeros(1), zeros(64), out), out=out, want=3 * x.flip(0).repeat(3), grid=3, block=64)


@case
def look_back_scan() -> Launch:
    x, out = ints(256), zeros(256)
    args = (x, out, zeros(1), zeros(4), zeros(4), zeros(4))
    return Launch(args=args, out=out, want=x.cumsum(0).to(i32), grid=4, block=64)


@case
def look_back_packed() -> Launch:
    x, out = ints(6), zeros(6)
    state = torch.zeros(6, dtype=torch.uint64)
    return Launch(args=(x, out, zeros(1), state), out=out, want=x.cumsum(0).to(i32), grid=6)


@case
def acquire_and_release() -> Launch:
    x, out = ints(6), zeros(6)
    return Launch(args=(x, out, zeros(6), zeros(1)), out=out, want=x.cumsum(0).to(i32), grid=6)


@case
def atomic_ref() -> Launch:
    x, out = ints(6), zeros(6)
    return Launch(args=(x, out, zeros(6)), out=out, want=x.cumsum(0).to(i32), grid=6)


@case
def last_block_reduction() -> Launch:
    x, out, done = ints(200), zeros(1), torch.zeros(1, dtype=torch.uint32)
    return Launch(args=(x, zeros(4), done, out, 200), out=out, want=total(x), grid=4, block=64)


@case
def spin_lock() -> Launch:
    count = zeros(1)
    return Launch(args=(zeros(1), count, zeros(48)), out=count, want=zeros(1) + 48, grid=3, block=16)


@case
def grid_barrier() -> Launch:
    x, out = ints(96), zeros(96)
    square = x * x
    want = square[::17].sum(dtype=i32) + square.flip(0)
    return Launch(args=(x, zeros(96), out, 96), out=out, want=want, grid=3, cooperative=True)


@case
def work_queue() -> Launch:
    x, out = ints(7 * 64), zeros(7)
    want = x.view(7, 64).sum(1, dtype=i32)
    return Launch(args=(x, out, zeros(1), 7), out=out, want=want, grid=3, block=64)


@case
def scratch_of_a_block() -> Launch:
    x, out = ints(128), zeros(128)
    want = x.view(2, 64).flip(1).roll(1, 1).reshape(-1)
    return Launch(args=(x, torch.empty(128, dtype=i32), out), out=out, want=want, grid=2, block=64)


@case
def float_maximum_by_bits() -> Launch:
    x, out = torch.arange(90.0) * 37 % 101, torch.zeros(1)
    return Launch(args=(x, out, 90), out=out, want=x.max().view(1), grid=3)


# Addresses


@case
def vector_loads() -> Launch:
    x, h, out = torch.arange(126.0), torch.arange(126).half() / 4, torch.empty(126)
    return Launch(args=(x, h, out, 126), out=out, want=x + h.float())


@case
def local_array() -> Launch:
    x, out = ints(32 * 9), zeros(32 * 9)
    return Launch(args=(x, out, 9), out=out, want=x.view(32, 9).sort(1).values.reshape(-1))


class Table(ctypes.Structure):
    """The struct of struct_by_value.cu."""

    _fields_ = (
        ("offset", ctypes.c_short * 5),
        ("scale", ctypes.c_float * 4),
        ("sign", ctypes.c_byte),
    )


@case
def struct_by_value() -> Launch:
    x, out = ints(32), torch.empty(32)
    offset, scale = (5, -4, 3, -2, 1), (0.5, 1.5, 2.5, 3.5)
    table = Table((ctypes.c_short * 5)(*offset), (ctypes.c_float * 4)(*scale), -1)
    want = torch.tensor(offset)[x % 5] - torch.tensor(scale)[x % 4]
    return Launch(args=(x, table, out), out=out, want=want)


@case
def tensors_in_a_struct() -> Launch:
    gradients = [torch.arange(float(n)) for n in (40, 7, 90)]
    weights = [torch.ones_like(x) for x in gradients]
    blocks = [(i, part) for i, x in enumerate(weights) for part in range(-(-x.numel() // 32))]
    tensors = {
        "addresses": [gradients, weights],
        "sizes": [x.numel() for x in weights],
        "block_to_tensor": [i for i, _ in blocks],
        "block_to_chunk": [part for _, part in blocks],
    }
    return Launch(args=(32, tensors, 0.5), out=weights[2], want=1 - gradients[2] / 2, grid=len(blocks))


@case
def list_of_tensors() -> Launch:
    parts = [torch.arange(float(n)) for n in (5, 0, 70, 1)]
    starts = torch.tensor([0, 5, 5, 75, 76], dtype=i32)
    out = torch.empty(76)
    return Launch(args=(parts, starts, out), out=out, want=torch.cat(parts), grid=4)


@case
def words_by_memcpy() -> Launch:
    x, out = (torch.arange(161) * 5 % 256).to(torch.uint8), zeros(32)
    rows = torch.stack([x[1 + 5 * i : 5 + 5 * i] for i in range(32)])
    return Launch(args=(x, out), out=out, want=rows.view(i32).view(-1))


# Warpgroups


@case
def warp_specialized_matmul() -> Launch:
    first, b = (torch.arange(256 * 320) * 7 % 23 - 11).view(2, 128, 320).bfloat16()
    a, out = torch.cat((first, b)), torch.zeros(256, 128, dtype=torch.bfloat16)
    maps = [dotcu.tensor_map(x, box=(128, 64), swizzle=128) for x in (a, b)]
    return Launch(
        args=(*maps, out, 128, 320),
        out=out,
        want=(a.float() @ b.float().T).bfloat16(),
        grid=(1, 2),
        block=384,
        smem_bytes=4 * 32768,
        arch="sm_90a",
    )


@case
def wgmma_layouts() -> Launch:
    a, b = (torch.arange(256 * 64) * 7 % 23 - 11).bfloat16().split((64 * 64, 64 * 192))
    a, b, out = a.view(64, 64), b.view(64, 192), torch.zeros(64, 192)
    made = dotcu.tensor_map(b, box=(64, 64), swizzle=128)
    want = a.float() @ b.float()
    return Launch(args=(a, made, out), out=out, want=want, block=128, arch="sm_90a")


@case
def persistent_mma() -> Launch:
    a, b = (torch.arange(96 * 16) * 7 % 23 - 11).bfloat16().split((48 * 16, 16 * 48))
    a, b, out = a.view(48, 16), b.view(16, 48), torch.zeros(48, 48)
    want = a.float() @ b.float()
    return Launch(args=(a, b, out, 48, 48), out=out, want=want, grid=4, block=32)


@case
def pipeline_of_stages() -> Launch:
    x, out = ints(56 * 64).view(56, 64).float(), torch.zeros(64)
    made = dotcu.tensor_map(x, box=(8, 64))
    return Launch(args=(made, out, 56), out=out, want=x.sum(0), block=96, arch="sm_90a")


# Clusters


@case
def cluster_matmul() -> Launch:
    a, b = (torch.arange(448 * 320) * 7 % 23 - 11).view(448, 320).bfloat16().split((256, 192))
    out = torch.zeros(256, 192, dtype=torch.bfloat16)
    maps = [dotcu.tensor_map(x, box=(rows, 64), swizzle=128) for x, rows in ((a, 128), (b, 32))]
    return Launch(
        args=(*maps, out, 256, 192, 320),
        out=out,
        want=(a.float() @ b.float().T).bfloat16(),
        grid=4,
        block=384,
        smem_bytes=4 * 24576,
        arch="sm_90a",
    )


@case
def store_of_a_whole_warp() -> Launch:
    x, out = torch.arange(512.0).view(16, 32), torch.zeros(16, 32)
    made = dotcu.tensor_map(out, box=(8, 32))
    return Launch(args=(x, made), out=out, want=2 * x, block=64, arch="sm_90")


# Values that nothing depends on


@case
def loads_moved_out_of_their_guards() -> Launch:
    out = zeros(64)
    want = torch.cat((torch.full((32,), 10, dtype=i32), zeros(32)))
    return Launch(args=(out, 3), out=out, want=want, block=64)


@case
def structs_with_padding() -> Launch:
    out = zeros(64)
    return Launch(args=(out, 40), out=out, want=39 + torch.arange(64, dtype=i32), block=64)


@case
def half_of_a_pair_behind_an_if() -> Launch:
    out = torch.zeros(32)
    want = torch.zeros(32)
    want[:17] = torch.tensor([*range(3, 67, 4), 33.0])
    return Launch(args=(out, 33), out=out, want=want, block=64)


@case
def rows_of_a_product_that_are_dropped() -> Launch:
    out = torch.zeros(16, 8)
    want = torch.zeros(16, 8)
    want[:5] = 16 * torch.arange(5.0)[:, None]
    return Launch(args=(out, 5), out=out, want=want)


@case
def shuffle_from_lanes_that_left() -> Launch:
    x, out = ints(32), zeros(32)
    want = torch.cat((x[:20].flip(0).cumsum(0).flip(0).to(i32), zeros(12)))
    return Launch(args=(x, out, 20), out=out, want=want)


@case
def guarded_warp_instructions() -> Launch:
    out = zeros(64)
    want = torch.full((64,), 496 + 31 + 1, dtype=i32)
    want[::32] = -1
    return Launch(args=(out,), out=out, want=want, block=64)


@case
def volatile_head_of_a_queue() -> Launch:
    x, out = ints(20), zeros(20)
    return Launch(args=(x, out, 20), out=out, want=x, block=64)


@case
def grid_barrier_between_rounds() -> Launch:
    x = ints(500)
    want = x.roll(-2)
    return Launch(args=(x, zeros(500), 500, 2), out=x, want=want, grid=4, block=128, cooperative=True)


@case
def block_barrier_behind_a_fence() -> Launch:
    x = ints(40)
    want = x.roll(-2)
    return Launch(args=(x, zeros(40), 40, 2), out=x, want=want, block=64)


# Protocols as public code has them


@case
def steps_between_grid_barriers() -> Launch:
    x = torch.arange(500.0) % 13
    want = x
    for _ in range(4):
        wide = torch.nn.functional.pad(want, (1, 1))
        want = 0.5 * (wide[:-2] + wide[2:])
    args = (x, torch.empty(500), 500, 4)
    return Launch(args=args, out=x, want=want, grid=3, block=64, cooperative=True)


@case
def last_block_of_two_results() -> Launch:
    x, out = torch.arange(1000.0) % 17, torch.zeros(2)
    return Launch(args=(x, out, 1000), out=out, want=torch.stack((x.sum(), x.max())), grid=7, block=64)


@case
def look_back_of_a_warp() -> Launch:
    x, out = ints(40 * 32), zeros(40 * 32)
    args = (x, out, zeros(1), zeros(40), zeros(40), zeros(40))
    return Launch(args=args, out=out, want=x.cumsum(0).to(i32), grid=40)


@case
def buffers_between_named_barriers() -> Launch:
    x, out = ints(7 * 64), zeros(7 * 64)
    return Launch(args=(x, out, 7), out=out, want=x.view(7, 64).flip(1).reshape(-1), block=96)


@case
def one_warp_copies_for_all() -> Launch:
    x, out = ints(5 * 128), zeros(5 * 128)
    return Launch(args=(x, out, 5), out=out, want=x.view(5, 128).flip(1).reshape(-1), block=128)


@case
def scheduler_warp() -> Launch:
    x, out = ints(11 * 64), zeros(11 * 64)
    want = x.view(11, 64).flip(1).reshape(-1)
    return Launch(args=(x, out, zeros(1), 11), out=out, want=want, grid=3, block=96)


@case
def split_k_in_turn() -> Launch:
    x, out = torch.arange(4.0 * 128) % 19, torch.zeros(128)
    return Launch(args=(x, out, zeros(2), 4), out=out, want=x.view(4, 128).sum(0), grid=(2, 4), block=64)


@case
def split_k_by_the_last() -> Launch:
    x, out = torch.arange(4.0 * 128) % 19, torch.zeros(128)
    args = (x, torch.empty(512), out, zeros(2))
    return Launch(args=args, out=out, want=x.view(4, 128).sum(0), grid=(2, 4), block=64)


@case
def butterflies_of_some_lanes() -> Launch:
    x, out = ints(32), zeros(96)
    some, lane = x[:24], torch.arange(32)
    alike = (some[:, None] & 3 == some & 3).sum(1)
    first = some.view(3, 8).sum(1).repeat_interleave(8) + alike
    second = x.view(2, 16).amax(1).repeat_interleave(16)
    other = (lane + 2) % 32
    third = second[other] + torch.where(lane % 2 == 1, other, -other)
    want = torch.cat((first, zeros(8), second, third)).to(i32)
    return Launch(args=(x, out, 24), out=out, want=want)


@case
def words_of_a_padded_struct() -> Launch:
    x, out, t = ints(64), zeros(64), torch.arange(64)
    of = t ^ 5
    want = 5 * of + x[of] + (of & 7) + (2 * of & 1023)
    return Launch(args=(x, out), out=out, want=want.to(i32), block=64)


@case
def groups_of_groups() -> Launch:
    x, out = ints(64), zeros(64)
    of_warp, of_tile = x.view(2, 32), x.view(16, 4)
    alike = of_warp[:, :, None] % 3 == of_warp[:, None] % 3
    total = (alike * of_warp[:, None]).sum(2).view(-1)
    alike = (of_tile[:, :, None] > 10) == (of_tile[:, None] > 10)
    most = (alike * of_tile[:, None]).amax(2).view(-1)
    want = of_tile.cumsum(1).view(-1) + 1000 * total + most + 1000000 * (x[0] + x[32])
    return Launch(args=(x, out), out=out, want=want.to(i32), block=64)


@case
def pipeline_object() -> Launch:
    x, out = ints(5 * 64), zeros(5 * 64)
    return Launch(args=(x, out, 5), out=out, want=x.view(5, 64).flip(1).reshape(-1), block=64)


@case
def frontier_of_a_search() -> Launch:
    level = zeros(100)
    want = torch.tensor([i.bit_length() for i in range(1, 101)], dtype=i32)
    args = (level, zeros(100), zeros(100), zeros(16), zeros(1), 100)
    return Launch(args=args, out=level, want=want, grid=3)


@case
def barrier_of_warps_by_atomics() -> Launch:
    x, out = ints(96), zeros(96)
    want = x
    for _ in range(4):
        want = want + want.flip(0)
    return Launch(args=(x, out), out=out, want=want, block=96)


@case
def flag_of_each_block() -> Launch:
    x, out = ints(32), zeros(9 * 32)
    want = torch.cat((zeros(32), *(x.roll(-b) for b in range(1, 9))))
    return Launch(args=(x, zeros(9), out), out=out, want=want, grid=9)


@case
def ticket_lock() -> Launch:
    out = zeros(128)
    want = torch.tensor([4, 15], dtype=i32).repeat_interleave(64)
    return Launch(args=(zeros(2), out, 64), out=out, want=want, grid=4, block=64)


@case
def barrier_in_a_tree() -> Launch:
    x = ints(7 * 32)
    want = x
    for _ in range(4):
        want = want.roll(-37) + want.flip(0)
    return Launch(args=(x, zeros(7 * 32), zeros(7), zeros(7), 4), out=x, want=want, grid=7)


@case
def chain_of_blocks() -> Launch:
    x, out = ints(32), zeros(6 * 32)
    want = torch.cat([(b + 1) * x.flip(0) + b * (b + 1) // 2 for b in range(6)])
    return Launch(args=(x, zeros(6 * 32), zeros(6), out), out=out, want=want, grid=6)


@case
def readers_and_writers() -> Launch:
    out = zeros(7)
    want = torch.tensor([0, 1, 1, 0, 1, 1, 0], dtype=i32)
    return Launch(args=(zeros(1), zeros(8), out, 8), out=out, want=want, grid=7)


@case
def met_in_turn() -> Launch:
    x, out = ints(32), zeros(160)
    sums = torch.stack([(x.roll(-lane) * torch.arange(32)).sum() for lane in range(32)])
    return Launch(args=(x, out), out=out, want=sums.to(i32).repeat(5), block=160)


@case
def counters_of_two_levels() -> Launch:
    x, out = ints(12 * 32), zeros(4)
    parts = x.view(4, 3, 32).sum(2)
    args = (x, zeros(12), zeros(4), zeros(4), zeros(1), out)
    return Launch(args=args, out=out, want=(parts.sum(1) + parts[:, 0]).to(i32), grid=(3, 4))
