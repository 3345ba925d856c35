"""sum: all elements, to a tensor without dimensions."""

from __future__ import annotations

import pytest
import torch
from torch.testing import make_tensor

import dotcu
from dotcu.gallery import sum

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [dtype for dtype in sum.dtypes if dtype not in FLOATS]


@pytest.mark.parametrize("n", [0, 1, 2, 31, 32, 33, 63, 255, 256, 257, 1023, 1024, 1025, 4099])
def test_every_length_around_a_warp_and_a_block_is_added_up(n: int, device: torch.device) -> None:
    x = torch.arange(1.0, n + 1, dtype=torch.float64, device=device)
    assert sum(x).item() == n * (n + 1) / 2


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_add_up_in_64_bits(dtype: torch.dtype, device: torch.device) -> None:
    x = make_tensor((1000,), device=device, dtype=dtype)
    assert sum(x).dtype == torch.int64
    assert torch.equal(sum(x), torch.sum(x))


def test_64_bit_sums_wrap_around_as_in_torch(device: torch.device) -> None:
    x = torch.tensor([2**62, 2**62, 2**62, -5], device=device)
    assert torch.equal(sum(x), torch.sum(x))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_floats_agree_with_a_sum_in_float64(dtype: torch.dtype, device: torch.device) -> None:
    x = make_tensor((61, 83), device=device, dtype=dtype, low=-1, high=2)
    assert sum(x).dtype == dtype
    torch.testing.assert_close(sum(x), x.double().sum().to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types_add_up_in_float32(dtype: torch.dtype, device: torch.device) -> None:
    assert sum(torch.ones(4096, dtype=dtype, device=device)).item() == 4096


@pytest.mark.parametrize("shape", [(), (0,), (4, 0, 2), (1, 1), (3, 5, 7)])
def test_any_shape_gives_a_tensor_without_dimensions(shape: tuple[int, ...], device: torch.device) -> None:
    x = torch.ones(shape, device=device)
    assert sum(x).shape == ()
    assert sum(x).item() == x.numel()


def test_strides_are_followed(device: torch.device) -> None:
    x = torch.arange(60.0, device=device).view(6, 10)
    assert sum(x[1::2, ::3].T).item() == x[1::2, ::3].sum().item()
    assert sum(x[:1].expand(5, 10)).item() == 5 * 45


@pytest.mark.parametrize("block_size", [32, 64, 96, 512, 1024])
def test_any_number_of_warps_gives_the_same(block_size: int, device: torch.device) -> None:
    x = torch.arange(5000, device=device)
    assert sum(x, block_size=block_size).item() == 5000 * 4999 // 2


@pytest.mark.parametrize("block_size", [1, 48, 100])
def test_a_block_of_broken_warps_is_refused(block_size: int, device: torch.device) -> None:
    with pytest.raises(ValueError, match=f"multiple of 32 .got {block_size}"):
        sum(torch.ones(3, device=device), block_size=block_size)


def test_more_elements_than_threads_are_all_added_up(device: torch.device) -> None:
    x = torch.arange(50_000, device=device)
    with dotcu.simulate(arch="sm_87"):  # holds 8192 threads in blocks of 32
        assert sum(x, block_size=32).item() == 50_000 * 49_999 // 2


def test_nan_and_infinity_reach_the_sum(device: torch.device) -> None:
    x = torch.ones(1000, device=device)
    x[777] = torch.inf
    assert sum(x).item() == torch.inf
    x[3] = torch.nan
    assert sum(x).isnan()


def test_the_gradient_is_one_everywhere(device: torch.device) -> None:
    x = torch.randn(3, 4, device=device, requires_grad=True)
    sum(x).backward()
    assert torch.equal(x.grad, torch.ones(3, 4, device=device))


def test_subnormal_numbers_count(device: torch.device) -> None:
    """An atomic addition to a float in global memory takes them for zero."""
    x = torch.full((1000,), 1e-44, device=device)
    assert sum(x).item() == x.double().sum().float().item() > 0
