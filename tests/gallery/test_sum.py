"""sum: all elements, or those along a dimension, in an order that never changes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import make_tensor

import dotcu
from dotcu.gallery import sum
from dotcu.gallery.sum import op
from helpers.quick_cases import quick, quick_pairs

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [dtype for dtype in sum.dtypes if dtype not in FLOATS]


def exact(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The sum in 64 bits, rounded once."""
    wide = torch.sum(x.double() if x.is_floating_point() else x, dim, keepdim)
    return wide.to(x.dtype) if x.is_floating_point() else wide


LENGTHS = [0, 1, 2, 31, 32, 33, 63, 255, 256, 257, 1023, 1024, 1025, 4099]


@pytest.mark.parametrize("n", quick([0, 1, 33, 1024, 4099], LENGTHS))
def test_every_length_around_a_warp_and_a_block_is_added_up(n: int, device: torch.device) -> None:
    x = torch.arange(1.0, n + 1, dtype=torch.float64, device=device)
    assert sum(x).item() == n * (n + 1) / 2


@pytest.mark.parametrize("dtype", quick([torch.bool, torch.int8, torch.int64], INTEGERS), ids=str)
def test_integers_add_up_in_64_bits(dtype: torch.dtype, device: torch.device) -> None:
    x = make_tensor((1000,), device=device, dtype=dtype)
    assert sum(x).dtype == torch.int64
    assert torch.equal(sum(x), torch.sum(x))


SMALL = [torch.uint8, torch.int8, torch.int16]


@pytest.mark.parametrize(
    ("dim", "dtype"),
    quick_pairs({(0, torch.int8)}, [None, 0, 1], SMALL),
)
def test_small_integers_do_not_overflow_within_a_batch(
    dim: int | None, dtype: torch.dtype, device: torch.device
) -> None:
    for value in (torch.iinfo(dtype).min, torch.iinfo(dtype).max):
        x = torch.full((600, 600), value, dtype=dtype, device=device)
        assert torch.equal(sum(x, dim), torch.sum(x, dim))


def test_64_bit_sums_wrap_around_as_in_torch(device: torch.device) -> None:
    x = torch.tensor([2**62, 2**62, 2**62, -5], device=device)
    assert torch.equal(sum(x), torch.sum(x))


@pytest.mark.parametrize("dtype", quick([torch.bfloat16], FLOATS), ids=str)
def test_floats_agree_with_a_sum_in_float64(dtype: torch.dtype, device: torch.device) -> None:
    x = make_tensor((61, 83), device=device, dtype=dtype, low=-1, high=2)
    for dim in (None, 0, 1):
        assert sum(x, dim).dtype == dtype
        torch.testing.assert_close(sum(x, dim), exact(x, dim))


@pytest.mark.parametrize("dtype", quick([torch.bfloat16], [torch.float16, torch.bfloat16]), ids=str)
def test_half_types_add_up_in_float32(dtype: torch.dtype, device: torch.device) -> None:
    assert sum(torch.ones(4096, dtype=dtype, device=device)).item() == 4096
    assert (sum(torch.ones(4096, 3, dtype=dtype, device=device), 0) == 4096).all()


@pytest.mark.parametrize(
    "dtype", quick([torch.bfloat16], [torch.bfloat16, torch.float32, torch.int64]), ids=str
)
def test_columns_of_rows_that_begin_anywhere_are_added_up(dtype: torch.dtype, device: torch.device) -> None:
    x = make_tensor((2100, 517), device=device, dtype=dtype, low=-1, high=2)
    torch.testing.assert_close(sum(x, 0), exact(x, 0))


@pytest.mark.parametrize("shape", quick([(34003, 2)], [(34003, 2), (70002, 3), (70003, 5)]), ids=str)
def test_no_word_of_the_last_rows_is_read_past_the_end(shape: tuple[int, int]) -> None:
    with dotcu.simulate():
        assert sum(torch.ones(shape, dtype=torch.int16), 0).tolist() == [shape[0]] * shape[1]


@pytest.mark.parametrize("dim", quick([None], [None, 0, 1]))
def test_float32_keeps_what_a_running_sum_would_lose(dim: int | None, device: torch.device) -> None:
    x = torch.full((3000, 3000), 0.1, device=device)
    wanted = exact(x, dim)
    assert ((sum(x, dim) - wanted).abs() <= 2 * torch.finfo(x.dtype).eps * wanted).all()


SHAPES = [
    (), (0,), (4, 0, 2), (1, 1), (3, 5, 7), (1100, 5), (5, 1100), (2, 40_000), (40_000, 2), (3, 2500, 6),
    (2, 3, 4, 5), (300, 1, 4), (1030, 129), (70, 3, 3),
]  # fmt: skip
LARGE = {(40_000, 2), (2, 40_000), (3, 2500, 6), (1030, 129)}


@pytest.mark.parametrize("shape", quick({*SHAPES} - LARGE, SHAPES), ids=str)
def test_any_dimension_of_any_shape_goes_away(shape: tuple[int, ...], device: torch.device) -> None:
    x = make_tensor(shape, device=device, dtype=torch.float32, low=-1, high=2)
    for dim in (None, *range(-max(len(shape), 1), max(len(shape), 1))):
        for keepdim in (False, True):
            wanted = exact(x, dim, keepdim)
            torch.testing.assert_close(sum(x, dim, keepdim), wanted, msg=lambda m, d=dim: f"dim={d}: {m}")


def test_strides_are_followed(device: torch.device) -> None:
    x = torch.arange(60.0, device=device).view(6, 10)
    assert sum(x[1::2, ::3].T).item() == x[1::2, ::3].sum().item()
    assert sum(x[:1].expand(5, 10)).item() == 5 * 45
    assert torch.equal(sum(x[:, ::3], 0), x[:, ::3].sum(0))


@pytest.mark.parametrize(
    "dtype", quick([torch.bfloat16], [torch.float32, torch.bfloat16, torch.int8]), ids=str
)
def test_views_off_a_16_byte_boundary_are_added_up(dtype: torch.dtype, device: torch.device) -> None:
    memory = make_tensor((17 + 40 * 33,), device=device, dtype=dtype, low=-3, high=4)
    for begin in range(16 // dtype.itemsize + 1):
        x = memory[begin:][: 40 * 33].view(40, 33)
        for dim in (None, 0, 1):
            torch.testing.assert_close(sum(x, dim), exact(x, dim), msg=lambda m, b=begin: f"from {b}: {m}")


def test_a_permuted_tensor_without_gaps_is_not_copied(device: torch.device) -> None:
    x = make_tensor((3, 4, 5, 6), device=device, dtype=torch.float32).permute(0, 3, 1, 2)
    assert op._order(x, None) == op._order(x, 1) == [0, 2, 3, 1]
    assert op._order(x, 2) == [0, 1, 2, 3]  # copied: channels would come last in the result
    for dim in (None, 0, 1, 2, 3):
        torch.testing.assert_close(sum(x, dim), exact(x, dim))


@pytest.mark.parametrize("block_size", quick([32, 96], [32, 64, 96, 512, 1024]))
def test_any_number_of_warps_gives_the_same(block_size: int, device: torch.device) -> None:
    x = torch.arange(5000, device=device)
    assert sum(x, block_size=block_size).item() == 5000 * 4999 // 2
    for dim in (0, 1):
        assert torch.equal(sum(x.view(50, 100), dim, block_size=block_size), x.view(50, 100).sum(dim))


@pytest.mark.parametrize("block_size", [1, 48, 100])
def test_a_block_of_broken_warps_is_refused(block_size: int, device: torch.device) -> None:
    with pytest.raises(ValueError, match=f"multiple of 32 .*got {block_size}"):
        sum(torch.ones(3, device=device), block_size=block_size)


@pytest.mark.parametrize(("shape", "dim"), [((2, 3), 2), ((2, 3), -3), ((), 1)])
def test_a_dimension_that_x_has_not_is_refused(
    shape: tuple[int, ...], dim: int, device: torch.device
) -> None:
    with pytest.raises(ValueError, match=f"got {dim}"):
        sum(torch.ones(shape, device=device), dim)


@pytest.mark.slow
def test_more_elements_than_threads_are_all_added_up(device: torch.device) -> None:
    x = torch.arange(200_000, device=device)
    with dotcu.simulate(arch="sm_87"):  # holds 8192 threads in blocks of 32
        assert sum(x, block_size=32).item() == 200_000 * 199_999 // 2
        assert torch.equal(sum(x.view(-1, 2), 0, block_size=32), x.view(-1, 2).sum(0))


def test_nan_and_infinity_reach_the_sum(device: torch.device) -> None:
    x = torch.ones(1000, device=device)
    x[777] = torch.inf
    assert sum(x).item() == torch.inf
    assert sum(x.view(500, 2), 0).tolist() == [500, torch.inf]
    x[3] = torch.nan
    assert sum(x).isnan()
    x[3] = -torch.inf
    assert sum(x).isnan()


def test_equal_calls_give_equal_bits(device: torch.device) -> None:
    x = torch.randn(120_000, device=device)
    assert len({sum(x).item() for _ in range(3)}) == 1
    assert torch.equal(sum(x.view(-1, 3), 0), sum(x.view(-1, 3), 0))


@pytest.mark.parametrize(
    ("dim", "keepdim"), [(None, False), (None, True), (0, False), (-1, True), (1, False)]
)
def test_the_gradient_is_one_everywhere(dim: int | None, keepdim: bool, device: torch.device) -> None:
    x = torch.randn(3, 4, 5, device=device, requires_grad=True)
    result = sum(x, dim, keepdim)
    weight = torch.randn(result.shape, device=device)
    (result * weight).sum().backward()
    (expected,) = torch.autograd.grad((torch.sum(x, dim, keepdim) * weight).sum(), x)
    assert torch.equal(x.grad, expected)


@pytest.mark.parametrize("dim", [None, 0, 1, -1])
@pytest.mark.parametrize("keepdim", [False, True])
def test_vmap_is_a_sum_of_each(dim: int | None, keepdim: bool, device: torch.device) -> None:
    x = torch.randn(3, 4, 5, device=device)
    for batch in (0, 1, 2):
        got = torch.func.vmap(lambda each: sum(each, dim, keepdim), in_dims=batch)(x)
        wanted = torch.stack([torch.sum(each, dim, keepdim) for each in x.unbind(batch)])
        torch.testing.assert_close(got, wanted)


def test_out_takes_a_sum_along_a_dimension(device: torch.device) -> None:
    x, memory = torch.randn(20, 30, device=device), torch.zeros(30, 2, device=device)
    assert sum(x, 0, out=memory[:, 0]).data_ptr() == memory.data_ptr()
    torch.testing.assert_close(memory[:, 0], x.sum(0))
    assert not memory[:, 1].any()
    with pytest.raises(ValueError, match=r"shape \(1, 30\)"):
        sum(x, 0, True, out=torch.empty(30, device=device))


def test_work_counts_what_is_read_and_what_is_written() -> None:
    sample = dotcu.Sample(torch.ones(3, 5, dtype=torch.float16), 0)
    assert sum.work_of(sample, torch.ones(5)) == (15 * 2 + 5 * 2, 15)


def test_subnormal_numbers_count(device: torch.device) -> None:
    x = torch.full((1000,), 1e-44, device=device)
    assert sum(x).item() == x.double().sum().float().item() > 0


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [None, 0, 1])
def test_more_than_two_to_the_31_elements_are_added_up_along_a_dimension(dim: int | None) -> None:
    x = torch.ones(2**20 + 1, 2**11, dtype=torch.int8, device="cuda")
    x[-1, -1] = 5
    got = sum(x, dim)
    assert got.view(-1)[-1].item() == {None: x.numel() + 4, 0: 2**20 + 5, 1: 2**11 + 4}[dim]
    assert got.sum().item() == x.numel() + 4
