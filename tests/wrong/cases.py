"""The launch of each kernel here: the smallest at which its fault shows."""

from __future__ import annotations

from dataclasses import replace
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


# Bounds and alignment


@case
def off_by_one_at_the_end() -> Launch:
    x, out = torch.arange(100.0), torch.empty(100)
    return Launch(args=(x, out, 100), out=out, want=2 * x, grid=2, block=64)


@case
def left_edge_of_a_stencil() -> Launch:
    x, out = torch.arange(64.0), torch.empty(64)
    want = torch.cat((x[1:], torch.zeros(1))) + torch.cat((torch.zeros(1), x[:-1]))
    return Launch(args=(x, out, 64), out=out, want=want, grid=2, block=32)


@case
def grid_without_a_guard() -> Launch:
    x = ints(100)
    return Launch(args=(x, 100), out=x, want=-x, grid=2, block=64)


@case
def stride_into_the_neighbour() -> Launch:
    a, b = ints(64).split(32)
    out = zeros(32)
    return Launch(args=(a, b, out, 4, 8), out=out, want=a + b, block=(8, 4))


@case
def past_the_histogram() -> Launch:
    x, bins = torch.arange(256, dtype=torch.uint8), zeros(8)
    return Launch(args=(x, bins, 256), out=bins, want=zeros(8) + 32, grid=2, block=128)


@case
def past_a_shared_array() -> Launch:
    x, w, out = torch.arange(66.0), torch.arange(64.0) + 1, torch.empty(64)
    return Launch(args=(x, w, out, 66), out=out, want=x[:64].flip(0) * w, block=64)


@case
def past_dynamic_shared_memory() -> Launch:
    x, out = torch.arange(48.0), torch.empty(48)
    return Launch(args=(x, out), out=out, want=x.flip(0), block=48, smem_bytes=4 * 48)


@case
def past_a_local_array() -> Launch:
    x, out = torch.arange(32 * 5, dtype=i32) % 7, zeros(128)
    want = torch.stack([torch.bincount(row & 3, minlength=4) for row in x.view(32, 5)]).to(i32)
    return Launch(args=(x, out, 5), out=out, want=want.view(-1))


@case
def misaligned_float4() -> Launch:
    x, out = torch.arange(140.0), torch.empty(128)
    return Launch(args=(x, out, 3), out=out, want=2 * x[3:131])


@case
def misaligned_shared_word() -> Launch:
    x, out = torch.arange(64, dtype=torch.int16), zeros(32)
    want = x[1::2].to(i32) | torch.cat((x[2::2], x.new_zeros(1))).to(i32) << 16
    return Launch(args=(x, out), out=out, want=want)


@case
def tensor_map_one_column_on() -> Launch:
    x, out = torch.arange(8 * 64.0).view(8, 64), torch.zeros(8, 64)
    made = dotcu.tensor_map(out, box=(8, 32))
    want = torch.cat((torch.zeros(8, 1), x[:, :-1]), 1)
    return Launch(args=(x, made, 64), out=out, want=want, grid=2, arch="sm_90")


@case
def copy_that_nobody_awaits() -> Launch:
    x, out = torch.arange(32 * 32.0).view(32, 32), torch.zeros(32, 32)
    made = dotcu.tensor_map(x, box=(8, 32))
    return Launch(args=(made, out, 4), out=out, want=2 * x, arch="sm_90")


@case
def stage_released_by_one_lane() -> Launch:
    return replace(copy_that_nobody_awaits(), block=64)


@case
def tile_handed_on_by_one_lane() -> Launch:
    x, out = ints(128).view(4, 32), torch.zeros(4, 32, dtype=i32)
    return Launch(args=(x, out, 4), out=out, want=x.flip(1), block=64, arch="sm_90")


@case
def past_a_tensor_of_a_list() -> Launch:
    parts, out = [torch.ones(32), torch.ones(20), torch.ones(32)], torch.empty(32)
    want = 3 - (torch.arange(32) >= 20).float()
    return Launch(args=(parts, torch.tensor([32, 20, 32], dtype=i32), 3, out), out=out, want=want)


@case
def state_of_a_struct_races() -> Launch:
    x, total = ints(64), zeros(1)
    want = x.sum(dtype=i32).view(1)
    return Launch(args=({"x": x, "total": total, "n": 64},), out=total, want=want, grid=2)


@case
def null_bias() -> Launch:
    x, out = torch.arange(32.0), torch.empty(32)
    return Launch(args=(x, None, out), out=out, want=x.clone())


@case
def write_through_const() -> Launch:
    x, out = torch.arange(32.0), torch.empty(32)
    return Launch(args=(x, out), out=out, want=x / 2)


# Initialisation


@case
def tile_edge_not_zeroed() -> Launch:
    x, out = torch.arange(32.0), torch.empty(32)
    rim = torch.zeros(1)
    return Launch(args=(x, out), out=out, want=x + torch.cat((rim, x[:-1])) + torch.cat((x[1:], rim)))


@case
def local_array_half_filled() -> Launch:
    x, out = ints(40), zeros(32)
    return Launch(args=(x, out, 5), out=out, want=x[4:36].clone())


@case
def accumulate_into_empty() -> Launch:
    x, out = torch.arange(96.0), torch.empty(32)
    return Launch(args=(x, out, 3), out=out, want=x.view(32, 3).sum(1))


@case
def some_threads_do_not_store() -> Launch:
    x, out = torch.arange(64.0), torch.empty(64)
    return Launch(args=(x, torch.empty(64), out, 64), out=out, want=3 * x.flip(0), block=64)


# Races in shared memory


@case
def missing_barrier_after_the_fill() -> Launch:
    x, out = torch.arange(128.0), torch.empty(128)
    return Launch(args=(x, out), out=out, want=x.flip(0), block=128)


@case
def missing_barrier_at_the_loops_end() -> Launch:
    a, x, out = torch.arange(64 * 128.0).view(64, 128) % 5, torch.arange(128.0) % 3, torch.empty(64)
    return Launch(args=(a, x, out, 128), out=out, want=a @ x, block=64)


@case
def missing_barrier_in_a_tree() -> Launch:
    x, out = ints(256), zeros(1)
    return Launch(args=(x, out), out=out, want=x.sum(dtype=i32).view(1), block=256)


@case
def missing_warp_sync() -> Launch:
    x, out = ints(64), zeros(64)
    return Launch(args=(x, out), out=out, want=x.view(2, 32).roll(-1, 1).reshape(-1), block=64)


@case
def warp_synchronous_reduction() -> Launch:
    x, out = ints(64), zeros(1)
    return Launch(args=(x, out), out=out, want=x.sum(dtype=i32).view(1))


@case
def warp_volatile_without_sync() -> Launch:
    x, out = ints(64), zeros(1)
    return Launch(args=(x, out), out=out, want=x.sum(dtype=i32).view(1))


@case
def warp_sync_of_each_half() -> Launch:
    x, out = ints(32), zeros(32)
    return Launch(args=(x, out), out=out, want=x.roll(16))


@case
def warp_sync_of_one_half() -> Launch:
    x, out = ints(32), zeros(32)
    return Launch(args=(x, out), out=out, want=torch.cat((zeros(16), x[:16])))


@case
def two_values_in_one_cell() -> Launch:
    x, place = torch.ones(64), zeros(1)
    x[[9, 40, 41]] = -1.0
    return Launch(args=(x, place), out=place, want=zeros(1) + 41, block=64)


@case
def shared_histogram() -> Launch:
    x, bins = ints(96).to(torch.uint8), zeros(16)
    want = torch.bincount(x % 16, minlength=16).to(i32)
    return Launch(args=(x, bins), out=bins, want=want, block=96)


@case
def counter_reset_beside_atomics() -> Launch:
    x, out = torch.arange(96.0) - 40, zeros(1)
    return Launch(args=(x, out), out=out, want=zeros(1) + 55, block=96)


@case
def double_buffer_of_one() -> Launch:
    x, out = ints(64), zeros(64)
    return Launch(args=(x, out), out=out, want=x.cumsum(0).to(i32), block=64)


@case
def flag_by_a_plain_store() -> Launch:
    x, out = ints(32), zeros(32)
    return Launch(args=(x, out), out=out, want=2 * x.flip(0), block=64)


@case
def async_copy_without_wait() -> Launch:
    x, out = torch.arange(64.0), torch.empty(64)
    return Launch(args=(x, out), out=out, want=x.flip(0), block=64)


@case
def ldmatrix_of_an_unfinished_tile() -> Launch:
    x, out = ints(32), zeros(32)
    return Launch(args=(x, out), out=out, want=x.clone(), block=64)


# Races in global memory


@case
def global_histogram() -> Launch:
    x, bins = ints(128).to(torch.uint8), zeros(16)
    want = torch.bincount(x % 16, minlength=16).to(i32)
    return Launch(args=(x, bins, 128), out=bins, want=want, grid=4, block=32)


@case
def block_reads_the_next_block() -> Launch:
    x, out = ints(128), zeros(128)
    square = x * x
    return Launch(args=(x, zeros(128), out, 128), out=out, want=square.roll(-1) - square, grid=4, block=32)


@case
def stencil_in_place() -> Launch:
    x, out, rim = torch.arange(128.0) % 9, torch.empty(128), torch.zeros(1)
    want = (torch.cat((rim, x[:-1])) + torch.cat((x[1:], rim))) / 2
    return Launch(args=(x, out, 128), out=out, want=want, grid=2, block=64)


@case
def transpose_in_place() -> Launch:
    x = torch.arange(256.0).view(16, 16)
    return Launch(args=(x, 16), out=x, want=x.t().contiguous(), grid=(2, 2), block=(8, 8))


@case
def look_back_without_fence() -> Launch:
    x, total = ints(8), zeros(8)
    return Launch(args=(x, total, zeros(8), zeros(1)), out=total, want=x.cumsum(0).to(i32), grid=8)


@case
def last_block_without_fence() -> Launch:
    x, out, done = ints(8), zeros(1), torch.zeros(1, dtype=torch.uint32)
    return Launch(args=(x, zeros(8), done, out), out=out, want=2 * x.sum(dtype=i32).view(1), grid=8)


@case
def fence_on_one_side() -> Launch:
    x, out = ints(2), zeros(1)
    return Launch(args=(x, zeros(1), zeros(1), out), out=out, want=x.sum(dtype=i32).view(1), grid=2, block=1)


@case
def block_scope_across_blocks() -> Launch:
    x, count = ints(128), zeros(1)
    return Launch(args=(x, count, 128), out=count, want=(x % 2).sum(dtype=i32).view(1), grid=4, block=32)


# Barriers and masks


@case
def shuffle_mask_omits_a_caller() -> Launch:
    x, out = ints(32), zeros(32)
    return Launch(args=(x, out), out=out, want=x[0].expand(32).clone())


@case
def shuffle_mask_names_absent_lanes() -> Launch:
    x, out = ints(32), zeros(32)
    want = torch.cat((x[:16].sum(dtype=i32).expand(16), x[16:]))
    return Launch(args=(x, out), out=out, want=want)


@case
def barrier_in_a_branch() -> Launch:
    x, out = ints(64), zeros(64)
    return Launch(args=(x, out), out=out, want=torch.cat((x[:32] + x[32:], x[32:])), block=64)


@case
def barrier_in_a_loop_of_its_own_length() -> Launch:
    length, out = torch.arange(64, dtype=i32) // 32 + 2, zeros(64)
    return Launch(args=(length, out), out=out, want=length.flip(0), block=64)


@case
def named_barrier_of_the_wrong_count() -> Launch:
    x, out = ints(96), zeros(96)
    return Launch(args=(x, out), out=out, want=x.view(3, 32).roll(-1, 1).reshape(-1), block=96)


# Proxies: TMA and bulk copies


def square(rows: int = 8) -> torch.Tensor:
    """Rows of 32 small floats in no order."""
    return (torch.arange(rows * 32, dtype=torch.float32) * 7 % 23).view(rows, 32)


def stored(scale: float, *, rows: int = 8, block: int = 32, plus: float = 0) -> Launch:
    """A kernel of a tensor and of a map of its result."""
    x, out = square(rows), torch.zeros(rows, 32)
    made = dotcu.tensor_map(out, box=(8, 32))
    return Launch(args=(x, made), out=out, want=scale * x + plus, block=block, arch="sm_90")


def loaded(rows: int, want: torch.Tensor, *more: int, box: int = 8, block: int = 32) -> Launch:
    """A kernel of a map of a tensor, and of its result."""
    out = torch.zeros(len(want))
    made = dotcu.tensor_map(square(rows), box=(box, 32))
    return Launch(args=(made, out, *more), out=out, want=want, block=block, arch="sm_90")


@case
def tma_store_without_a_fence() -> Launch:
    return stored(2, block=64)


@case
def fence_of_the_copying_thread_alone() -> Launch:
    return stored(-1)


@case
def fence_after_the_barrier() -> Launch:
    return stored(1, plus=1, block=64)


@case
def fence_of_another_space() -> Launch:
    return stored(0.5)


@case
def tile_of_cp_async_stored_without_a_fence() -> Launch:
    return stored(1)


@case
def load_of_what_the_block_wrote() -> Launch:
    x, out = square(1).view(-1), torch.zeros(32)
    return Launch(args=(x, torch.zeros(32), out), out=out, want=3 * x.flip(0), arch="sm_90")


@case
def source_overwritten_before_it_is_read() -> Launch:
    return stored(-1, rows=16)


@case
def wait_of_a_thread_that_copied_nothing() -> Launch:
    return stored(4, rows=16, block=64)


@case
def group_that_is_not_committed() -> Launch:
    return stored(-1, rows=16, plus=1)


@case
def one_group_too_many_left_open() -> Launch:
    return stored(5, rows=32)


@case
def result_read_before_it_is_written() -> Launch:
    x, y, out = square(), torch.zeros(8, 32), torch.zeros(32)
    made = dotcu.tensor_map(y, box=(8, 32))
    return Launch(args=(x, y, made, out), out=out, want=2 * (x[0] + x[7]), arch="sm_90")


@case
def tile_read_by_those_who_did_not_wait() -> Launch:
    return loaded(8, torch.cat((square()[::2].sum(0), square()[1::2].sum(0))), block=64)


@case
def barrier_used_before_its_init_is_seen() -> Launch:
    x, out = square(2).view(-1), torch.zeros(64)
    return Launch(args=(x, out), out=out, want=x, block=64, arch="sm_90")


@case
def stage_loaded_again_too_early() -> Launch:
    return loaded(48, square(48).sum(0), 6, block=64)


@case
def phase_that_is_not_flipped() -> Launch:
    return loaded(16, square(16).sum(0))


@case
def wait_that_tries_once() -> Launch:
    return loaded(8, square().sum(0))


@case
def zeros_then_a_load_over_them() -> Launch:
    return loaded(8, square()[:4].sum(0), box=4)


@case
def more_bytes_expected_than_come() -> Launch:
    return loaded(8, square()[0] + square()[3], box=4)


def changed_map() -> Launch:
    """A kernel that points a map at another tensor."""
    y, place, out = 1 + square(), torch.zeros(16, dtype=torch.int64), torch.zeros(32)
    made = dotcu.tensor_map(torch.ones(8, 32), box=(8, 32))
    return Launch(args=(y, place, out, made), out=out, want=y[0] - y[7], arch="sm_90a")


@case
def tensor_map_without_its_acquire() -> Launch:
    return changed_map()


@case
def tensor_map_without_its_release() -> Launch:
    return changed_map()


# Kernels that do not end, and kernels that stop


@case
def lock_that_is_not_released() -> Launch:
    total = zeros(1)
    return Launch(args=(zeros(1), total), out=total, want=zeros(1) + 4, grid=4, block=1)


@case
def flag_that_nobody_sets() -> Launch:
    out = zeros(2)
    return Launch(args=(zeros(3), out), out=out, want=zeros(2) + 1, grid=2, block=1)


@case
def mbarrier_of_the_wrong_parity() -> Launch:
    x, out = ints(32), zeros(32)
    return Launch(args=(x, out), out=out, want=x.flip(0))


@case
def loop_without_end() -> Launch:
    x = torch.tensor([1, 4, 10, 99], dtype=torch.uint32)
    out = torch.zeros(4, dtype=torch.uint32)
    return Launch(
        args=(x, out),
        out=out,
        want=torch.tensor([1, 2, 3, 9], dtype=torch.uint32),
        block=4,
        step_limit=20_000,
    )


@case
def trap_on_bad_input() -> Launch:
    x, out = torch.arange(20.0), torch.empty(32)
    index = torch.arange(32, dtype=i32)
    return Launch(args=(x, index, out, 20), out=out, want=x[index.clamp(max=19)])


@case
def assertion_that_fails() -> Launch:
    x, out = torch.arange(32.0), torch.empty(32)
    return Launch(args=(x, out), out=out, want=torch.where(x == 0, x, 1 / x))


# Clusters


def clustered(x: torch.Tensor, want: torch.Tensor, *more: int, block: int, cluster: int = 2) -> Launch:
    """A launch of one cluster or more, a row of `want` for each block."""
    out = torch.zeros_like(want)
    size = {"grid": len(want), "block": block, "cluster": cluster}
    return Launch(args=(x, out, *more), out=out, want=want, arch="sm_90", **size)


@case
def cluster_read_before_the_sync() -> Launch:
    x = ints(256).view(4, 64)
    return clustered(x, x.roll(-1, 0).flip(1), block=64, cluster=4)


@case
def cluster_block_exits_early() -> Launch:
    x = ints(256).view(4, 64)
    return clustered(x, x + x[[1, 0, 3, 2]], block=64)


@case
def cluster_relaxed_arrival() -> Launch:
    x = ints(128).view(2, 64)
    return clustered(x, x.flip(0), block=64)


@case
def cluster_tile_refilled_too_early() -> Launch:
    x = ints(256).view(2, 4, 32)
    weights = torch.arange(1, 5, dtype=i32)[:, None]
    return clustered(x, (x * weights).sum(1, dtype=i32).flip(0, 1), 4, block=32)


@case
def cluster_rank_beyond_the_last() -> Launch:
    x = ints(8).view(8, 1)
    return clustered(x, x.view(2, 4).roll(-1, 1).reshape(8, 1), block=32, cluster=4)


@case
def cluster_histogram_not_zeroed_in_time() -> Launch:
    x = torch.arange(300, dtype=i32).mul(11).remainder(251).to(torch.uint8)
    want = torch.bincount(x.to(torch.long) % 64, minlength=64).to(i32).view(4, 16)
    return clustered(x, want, 300, block=64, cluster=4)


@case
def cluster_barrier_entered_twice() -> Launch:
    x = ints(64).view(2, 32)
    return clustered(x, x.flip(0), block=32)


@case
def cluster_wait_without_arrival() -> Launch:
    x = ints(2)
    return clustered(x, x[:, None] + torch.arange(64, dtype=i32), block=64)


@case
def cluster_load_of_the_own_space() -> Launch:
    x = ints(64).view(2, 32)
    return clustered(x, x.flip(0, 1), block=32)


@case
def cluster_arrival_that_releases_nothing() -> Launch:
    x = ints(64).view(2, 32)
    return clustered(x, x.flip(0, 1), block=32)


@case
def cluster_stage_released_by_one_block() -> Launch:
    x = ints(160).view(5, 32)
    return clustered(x, x.flip(1).expand(2, 5, 32), 5, block=64)


@case
def cluster_multicast_beyond_the_last() -> Launch:
    x = ints(32)
    return clustered(x, x.flip(0).expand(2, 32), block=32)


@case
def cluster_half_of_the_bytes_awaited() -> Launch:
    x = ints(64)
    return clustered(x, x.flip(0).expand(2, 64), block=64)


@case
def cluster_receiver_awaits_nothing() -> Launch:
    x = ints(64).view(2, 32)
    return clustered(x, x.flip(0, 1), block=32)


@case
def cluster_mbarrier_of_the_sender() -> Launch:
    x = ints(64).view(2, 32)
    return clustered(x, x.flip(0, 1), block=32)


@case
def cluster_copy_without_a_proxy_fence() -> Launch:
    x = ints(128).view(2, 64)
    return clustered(x, x.flip(0, 1), block=64)


@case
def cluster_proxy_fence_of_the_own_block() -> Launch:
    x = ints(64).view(2, 32)
    return clustered(x, x.flip(0, 1), block=32)


@case
def cluster_mbarrier_before_its_init() -> Launch:
    x = ints(64).view(2, 32)
    return clustered(x, x.flip(0, 1), block=32)


@case
def cluster_arrival_at_an_exited_block() -> Launch:
    x = ints(96).view(3, 32)
    out = torch.zeros_like(x)
    want = torch.stack([x.roll(-k, 1) for k in range(400)]).sum(0, dtype=i32)
    return Launch(args=(x, out, 3), out=out, want=want, grid=2, cluster=2, arch="sm_90")


@case
def cluster_block_leaves_before_the_last_tile() -> Launch:
    x = ints(256).view(8, 32)
    out = torch.zeros_like(x)
    return Launch(args=(x, out, 8), out=out, want=x.flip(1), grid=2, cluster=2, arch="sm_90")


@case
def cluster_wait_of_another_block() -> Launch:
    x = ints(64).view(2, 32)
    return clustered(x, x.flip(0, 1), block=32)


# Warpgroups


def halves(rows: int, columns: int) -> torch.Tensor:
    """Small whole numbers in no order, as f16."""
    return ((torch.arange(rows * columns) * 7 % 23) - 11).view(rows, columns).half()


def by_thread(sums: torch.Tensor) -> torch.Tensor:
    """The four sums of each thread of a product of 64 by 8."""
    return sums.float().view(4, 2, 8, 4, 2).permute(0, 2, 3, 1, 4).reshape(-1)


def product(*, times: float = 1, rows: int = 64, steps: tuple[int, ...] = ()) -> Launch:
    """The product of 64 by 16 and 16 by 8, or the sum of several."""
    a, b, out = halves(rows, 16), halves(8, 16), torch.zeros(512)
    want = times * (a.float().view(-1, 64, 16).sum(0) @ b.float().T)
    return Launch(args=(a, b, out, *steps), out=out, want=by_thread(want), block=128, arch="sm_90a")


def product_by_tma(*more: int, rows: int = 64, block: int = 128) -> Launch:
    """The same of boxes of 64 by 64, of which the first 16 columns count."""
    a, b, out = halves(rows, 64), halves(8, 16), torch.zeros(512)
    made = dotcu.tensor_map(a, box=(64, 64), swizzle=128)
    want = a.float().view(-1, 64, 64).sum(0)[:, :16] @ b.float().T
    return Launch(args=(made, b, out, *more), out=out, want=by_thread(want), block=block, arch="sm_90a")


@case
def metadata_of_one_place_twice() -> Launch:
    ones, out = torch.ones(128, dtype=torch.float16).view(torch.uint32), torch.zeros(128)
    return Launch(args=(ones, ones, out), out=out, want=torch.full((128,), 8.0))


@case
def accumulator_read_before_the_wait() -> Launch:
    return product()


@case
def accumulator_scaled_in_flight() -> Launch:
    return product(times=2)


@case
def accumulator_shuffled_in_flight() -> Launch:
    launch = product()
    sums = launch.want.view(4, 4, 2, 4, 4).clone()  # thread xor 4: the other row
    sums[..., 0] += launch.want.view(4, 4, 2, 4, 4).flip(2)[..., 0]
    return replace(launch, want=sums.view(-1))


@case
def wait_that_leaves_a_group() -> Launch:
    return product(times=2)


@case
def first_wgmma_without_a_fence() -> Launch:
    return product()


@case
def accumulator_changed_without_a_fence() -> Launch:
    return product(times=3)


@case
def fragment_changed_in_flight() -> Launch:
    launch = product(rows=128, steps=(2,))
    a = launch.args[0].view(2, 4, 2, 8, 2, 4, 2).permute(0, 1, 3, 5, 4, 2, 6)
    words = a.contiguous().view(-1).view(torch.uint32)
    return replace(launch, args=(words, *launch.args[1:]))


@case
def wgmma_that_is_not_committed() -> Launch:
    return product()


@case
def tile_overwritten_in_flight() -> Launch:
    return product(rows=192, steps=(3,))


@case
def stage_freed_before_the_wait() -> Launch:
    return product_by_tma(5, rows=320, block=256)


@case
def tile_awaited_by_one_warp() -> Launch:
    return product_by_tma()


@case
def tile_for_wgmma_without_a_proxy_fence() -> Launch:
    return product()


@case
def descriptor_in_bytes() -> Launch:
    return product()


@case
def descriptor_past_its_array() -> Launch:
    return product()


@case
def stride_of_overlapping_rows() -> Launch:
    return product()


@case
def leading_offset_of_zero() -> Launch:
    return product()


@case
def address_of_a_descriptor_unshifted() -> Launch:
    return product()


@case
def descriptor_with_the_rank_of_its_block() -> Launch:
    return replace(product(), grid=2)


@case
def swizzle_of_another_width() -> Launch:
    return product_by_tma()


@case
def half_a_warpgroup() -> Launch:
    return product()


@case
def descriptor_of_each_warp() -> Launch:
    return product()


@case
def more_registers_than_the_block_has() -> Launch:
    x, out = ints(384), zeros(384)
    return Launch(args=(x, out), out=out, want=torch.cat((2 * x[:256], -x[256:])), block=384, arch="sm_90a")


@case
def registers_of_one_warp() -> Launch:
    x, out = ints(256), zeros(256)
    return Launch(args=(x, out), out=out, want=x + 1, block=256, arch="sm_90a")


@case
def inc_that_takes_registers_away() -> Launch:
    x, out = ints(256), zeros(256)
    return Launch(args=(x, out), out=out, want=x + 1, block=256, arch="sm_90a")


# Values that nothing wrote, on their way


@case
def moved_load_of_one_too_many() -> Launch:
    out = zeros(32)
    return Launch(args=(out, 3), out=out, want=torch.full((32,), 3, dtype=i32))


@case
def member_that_nothing_set() -> Launch:
    out = zeros(32)
    return Launch(args=(out,), out=out, want=1 + torch.arange(32, dtype=i32))


# One thread publishes what others did


@case
def last_block_without_a_barrier() -> Launch:
    x, out = ints(256), zeros(64)
    want = 2 * x.view(4, 64).sum(0, dtype=i32).flip(0)
    return Launch(args=(x, zeros(256), zeros(1), out), out=out, want=want, grid=4, block=64)


@case
def mailbox_without_a_warp_sync() -> Launch:
    x, out = ints(32), zeros(32)
    return Launch(args=(x, out), out=out, want=x.flip(0), block=64)


@case
def acquired_from_one_block_of_two() -> Launch:
    x, out = ints(32), zeros(32)
    return Launch(args=(x, zeros(64), zeros(2), out), out=out, want=2 * x.flip(0) + 1, grid=3)


@case
def acquired_from_the_last_block_alone() -> Launch:
    x, out = ints(32), zeros(32)
    return Launch(args=(x, zeros(128), zeros(4), out), out=out, want=4 * x + 6, grid=5)


@case
def look_back_at_every_other_block() -> Launch:
    x, out = ints(6), zeros(6)
    return Launch(args=(x, zeros(6), zeros(6), out), out=out, want=x.cumsum(0).to(i32), grid=6)


@case
def one_of_two_counters() -> Launch:
    x, out = ints(32), zeros(128)
    want = torch.cat([x.flip(0) * (b + 1) for b in range(4)])
    return Launch(args=(x, zeros(128), zeros(2), out), out=out, want=want, grid=5)


@case
def reader_that_was_not_awaited() -> Launch:
    data, out = ints(32), zeros(160)
    want = torch.cat((zeros(32), data.repeat(4)))
    return Launch(args=(data, zeros(5), out), out=out, want=want, grid=5)


@case
def named_barrier_without_a_reader() -> Launch:
    x, out = ints(128), zeros(128)
    want = torch.cat((x[:96] + x[0], zeros(32)))
    return Launch(args=(x, out), out=out, want=want, block=128)


@case
def grid_barrier_without_block_barriers() -> Launch:
    x, out = ints(64), zeros(64)
    return Launch(args=(x, zeros(64), zeros(1), out), out=out, want=x.flip(0), grid=2, block=32)


@case
def guard_that_a_named_lane_fails() -> Launch:
    out = zeros(32)
    want = torch.full((32,), 496, dtype=i32)
    want[0] = -1
    return Launch(args=(out,), out=out, want=want)


@case
def source_of_a_pending_copy_overwritten() -> Launch:
    data, out = ints(64), zeros(64)
    return Launch(args=(data, out), out=out, want=data.flip(0), block=64)


@case
def volatile_between_warps() -> Launch:
    x, out = ints(64), zeros(1)
    return Launch(args=(x, out), out=out, want=x.sum(dtype=i32).view(1), block=64)


@case
def read_only_load_of_what_was_written() -> Launch:
    x, out = ints(64), zeros(64)
    return Launch(args=(x, zeros(64), out), out=out, want=x.flip(0), block=64)


@case
def restrict_called_in_place() -> Launch:
    x, out = ints(64), zeros(64)
    want = 2 * x.flip(0)
    return Launch(args=(x, x, out), out=out, want=want, block=64)


@case
def masks_that_differ() -> Launch:
    x, out = ints(32), zeros(32)
    return Launch(args=(x, out), out=out, want=x.sum(dtype=i32).expand(32).clone())


@case
def collective_of_half_a_tile() -> Launch:
    x, out = ints(32), zeros(32)
    want = torch.cat((x.sum(dtype=i32).expand(16), zeros(16)))
    return Launch(args=(x, out), out=out, want=want)


@case
def grid_sync_of_an_ordinary_launch() -> Launch:
    out = zeros(64)
    return Launch(args=(out,), out=out, want=torch.ones(64, dtype=i32), grid=2)
