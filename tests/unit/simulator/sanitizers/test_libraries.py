"""What CUDA's own libraries do inside is no finding: their tricks are theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

by_seed = pytest.mark.parametrize("seed", [None, 0, 1])

SORT = """#include <cub/block/block_merge_sort.cuh>
struct Less { __device__ bool operator()(int a, int b) { return a < b; } };
extern "C" __global__ void k(int* x) {
  using Sort = cub::BlockMergeSort<int, 128, 4>;
  __shared__ Sort::TempStorage storage;
  int keys[4];
  for (int i = 0; i < 4; ++i) keys[i] = x[threadIdx.x * 4 + i];
  Sort(storage).Sort(keys, Less());
  for (int i = 0; i < 4; ++i) x[threadIdx.x * 4 + i] = keys[i];
}"""

REDUCE = """#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(const int* x, int* out) {
  __shared__ cg::block_tile_memory<256> memory;
  auto tile = cg::tiled_partition<64>(cg::this_thread_block(memory));
  out[threadIdx.x] = cg::reduce(tile, x[threadIdx.x], cg::plus<int>());
}"""


@pytest.mark.slow  # two seconds of compiling
@by_seed
def test_a_key_that_cub_reads_and_drops(run_kernel: Any, seed: int | None) -> None:
    x = np.random.default_rng(0).integers(0, 1000, 512).astype("i4")
    sorted_x = np.sort(x)
    run_kernel(SORT, {"x": x}, block=128, seed=seed)
    assert x.tolist() == sorted_x.tolist()


@pytest.mark.slow
@by_seed
def test_what_one_lane_of_a_tile_acquired_holds_for_all(run_kernel: Any, seed: int | None) -> None:
    x, out = np.arange(256, dtype="i4"), np.zeros(256, "i4")
    run_kernel(REDUCE, {"x": x, "out": out}, block=256, seed=seed)
    assert out.tolist() == np.repeat(x.reshape(4, 64).sum(axis=1), 64).tolist()
