"""The sums over GPUs that benchmarks/several_gpus.py times, in the simulator's ranks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import dotcu
from quick import quick
from several_gpus import blocks, one_shot, two_shots

SIZES = ((2, 8), (3, 520), (4, 4104), (8, 1000))
"""Ranks and elements: one vector, parts of several sizes and none, more than a block."""


@pytest.mark.parametrize("size", quick([(2, 8), (3, 520)], SIZES))
def test_one_shot_and_two_shots_give_every_rank_the_same_sum(size: tuple[int, int]) -> None:
    ranks, n = size
    inputs = torch.randn(ranks, n, dtype=torch.bfloat16)

    def reduce(rank: int) -> tuple[Tensor, Tensor]:
        x = inputs[rank].clone()
        return one_shot(x, torch.empty_like(x)), two_shots(x)

    expected = inputs.float().sum(0).bfloat16()
    for results in dotcu.simulate_ranks(ranks, reduce):
        for got in results:
            torch.testing.assert_close(got, expected)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_they_have_no_race_in_any_order_of_warps(seed: int) -> None:
    def reduce(rank: int) -> None:
        x = torch.full((4104,), float(rank))
        one_shot(x, torch.empty_like(x))
        two_shots(x)

    dotcu.simulate_ranks(3, reduce, seed=seed)


def test_no_more_blocks_meet_than_a_pad_has_words_for() -> None:
    assert all(blocks(2**24, ranks) * ranks <= 512 for ranks in (1, 2, 3, 8, 72))
