"""dotcu/reduce.cuh, dotcu/cluster.cuh and dotcu/grid.cuh: one value out of many threads', and their order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

import dotcu

PAGE = Path(__file__).parent / "vectors.cu"

kernels = dotcu.load(PAGE)


@pytest.fixture(autouse=True)
def _simulated(device: torch.device) -> Iterator[None]:
    with nullcontext() if device.type == "cuda" else dotcu.simulate():
        yield


def numbers(n: int, device: torch.device) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randint(-99, 99, (n,), device=device).float()


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 32])
def test_each_lane_gets_the_result_of_its_group(lanes: int, device: torch.device) -> None:
    x = numbers(32, device)
    sums, most = torch.zeros_like(x), torch.zeros_like(x)
    kernels.reduce_lanes[lanes](x, sums, most, grid=1, block=32)
    groups = x.view(-1, lanes)
    assert torch.equal(sums.view(-1, lanes), groups.sum(1, keepdim=True).expand_as(groups))
    assert torch.equal(most.view(-1, lanes), groups.amax(1, keepdim=True).expand_as(groups))


@pytest.mark.parametrize("threads", [32, 64, 256, 1024])
def test_each_thread_gets_the_result_of_its_block(threads: int, device: torch.device) -> None:
    x = numbers(threads, device)
    sums, most = torch.zeros_like(x), torch.zeros_like(x)
    kernels.reduce_threads[threads](x, sums, most, grid=1, block=threads)
    assert (sums == x.sum()).all()
    assert (most == x.max()).all()


def test_a_nan_is_the_maximum_wherever_it_is(device: torch.device) -> None:
    for place in (0, 17, 255):
        x = numbers(256, device)
        x[place] = torch.nan
        sums, most = torch.zeros_like(x), torch.zeros_like(x)
        kernels.reduce_threads[256](x, sums, most, grid=1, block=256)
        assert most.isnan().all()


def test_a_block_without_a_cluster_is_one_of_its_own(device: torch.device) -> None:
    x = numbers(6, device)
    sums, ranks, blocks = torch.zeros_like(x), x.int(), x.int()
    kernels.reduce_blocks(x, sums, ranks, blocks, grid=6, block=32)
    assert torch.equal(sums, x)
    assert (ranks.tolist(), blocks.tolist()) == ([0] * 6, [1] * 6)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_each_block_gets_the_result_of_its_cluster(size: int) -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters need compute capability 9.0")
    x = numbers(16, torch.device("cuda"))
    sums, ranks, blocks = torch.zeros_like(x), x.int(), x.int()
    kernels.reduce_blocks(x, sums, ranks, blocks, grid=16, block=64, cluster=size)
    assert torch.equal(sums, x.view(-1, size).sum(1).repeat_interleave(size))
    assert ranks.tolist() == [*range(size)] * (16 // size)
    assert blocks.tolist() == [size] * 16


def test_a_block_without_a_cluster_gets_its_own_mail(device: torch.device) -> None:
    x, sums = numbers(6, device), torch.zeros(6 * 32, device=device)
    kernels.sum_of_mail[1](x, sums, grid=6, block=32)
    assert torch.equal(sums, x.repeat_interleave(32))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [2, 4, 8])
def test_each_block_gets_the_mail_of_its_cluster(size: int) -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters need compute capability 9.0")
    x, sums = numbers(800, torch.device("cuda")), torch.zeros(800 * 64, device="cuda")
    kernels.sum_of_mail[size](x, sums, grid=800, block=64, cluster=size)
    assert torch.equal(sums, x.view(-1, size).sum(1).repeat_interleave(64 * size))


def test_kernels_that_overlap_see_what_the_one_before_wrote(device: torch.device) -> None:
    x = torch.zeros(5000, device=device)
    for _ in range(20):
        kernels.add_one(x, len(x), grid=20, block=256, programmatic=True)
    assert (x == 20).all()
