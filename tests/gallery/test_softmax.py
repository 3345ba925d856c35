"""softmax: exponentials over their sum, and its backward."""

from __future__ import annotations

import math

import pytest
import torch

import dotcu
from dotcu.gallery import softmax, softmax_backward
from dotcu.gallery.common import FEW_ROWS
from helpers.quick_cases import quick, quick_pairs

INF = math.inf
HALVES = [torch.float16, torch.bfloat16]


LENGTHS = [1, 2, 31, 33, 64, 128, 257, 1024, 2049, 4096, 8200, 16384, 32771, 65544]
SLOW = {2, 64, 128, 257, 2049, 4096, 16384, 32771, 65544}
QUICK = {(n, (torch.float32, torch.bfloat16)[index % 2]) for index, n in enumerate(LENGTHS) if n not in SLOW}
QUICK_SPECIAL = {(4, torch.float32), (400, torch.bfloat16)}


@pytest.mark.parametrize(("n", "dtype"), quick_pairs(QUICK, LENGTHS, [torch.float32, torch.bfloat16]))
def test_rows_of_every_length_agree_with_torch(n: int, dtype: torch.dtype, device: torch.device) -> None:
    x = (3 * torch.randn(3, n, device=device)).to(dtype)
    expected = torch.softmax(x.double(), -1).to(dtype)
    torch.testing.assert_close(softmax(x), expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-7)


@pytest.mark.parametrize(
    ("n", "dtype", "few", "many"),
    [
        (1024, torch.bfloat16, "8, 2, 64, 1", "8, 4, 32, 1"),
        pytest.param(2048, torch.float16, "8, 2, 128, 1", "8, 4, 64, 1", marks=pytest.mark.slow),
        pytest.param(4096, torch.bfloat16, "8, 2, 256, 1", "8, 4, 128, 1", marks=pytest.mark.slow),
        pytest.param(1024, torch.float32, "4, 4, 64, 1", "4, 4, 64, 1", marks=pytest.mark.slow),
    ],
)
def test_a_row_has_more_threads_where_rows_are_few(
    n: int, dtype: torch.dtype, few: str, many: str, device: torch.device
) -> None:
    with (
        dotcu.simulate(arch="sm_87"),
        dotcu.kernel.launch_policy.watching_launches() as seen,
    ):  # 16 multiprocessors
        most = FEW_ROWS * dotcu.sm_count(device)
        for rows in (most, most + 1):
            x = (3 * torch.randn(rows, n, device=device)).to(dtype)
            expected = torch.softmax(x.double(), -1).to(dtype)
            torch.testing.assert_close(softmax(x), expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-7)
    assert [launch.kernel.split("aligned, ")[1] for launch in seen] == [f"{few}>", f"{many}>"]


@pytest.mark.parametrize("n", quick([33, 1024], [1, 33, 64, 257, 1024, 8200, 16384, 40_004]))
def test_gradients_of_every_length_agree_with_torch(n: int, device: torch.device) -> None:
    x, grad = torch.randn(2, 3, n, device=device)
    y = torch.softmax(x, -1)
    expected = y.double() * (grad.double() - (grad.double() * y.double()).sum(-1, keepdim=True))
    torch.testing.assert_close(softmax_backward(grad, y), expected.float(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 31, 33, 130])
def test_any_number_of_rows_shares_warps(rows: int, device: torch.device) -> None:
    x = torch.randn(rows, 20, device=device)
    torch.testing.assert_close(softmax(x), torch.softmax(x, -1))


@pytest.mark.slow
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_every_dimension_is_taken(dim: int, device: torch.device) -> None:
    x = torch.randn(5, 6, 7, dtype=torch.float64, device=device, requires_grad=True)
    torch.testing.assert_close(softmax(x, dim), torch.softmax(x, dim))
    assert torch.autograd.gradcheck(lambda x: softmax(x, dim), x)


@pytest.mark.parametrize(("n", "dtype"), quick_pairs(QUICK_SPECIAL, [4, 400, 5000], [torch.float32, *HALVES]))
def test_infinities_and_nan_come_out_as_in_torch(n: int, dtype: torch.dtype, device: torch.device) -> None:
    starts = [[-INF, -INF], [INF, 1], [-INF, 2], [math.nan, 1], [INF, math.nan], [0, -200]]
    x = torch.full((len(starts) + 1, n), -INF, dtype=dtype)
    x[:-1, :2] = torch.tensor(starts, dtype=dtype)
    x[-1, -1] = 3
    x = x.to(device)
    torch.testing.assert_close(softmax(x), torch.softmax(x, -1), equal_nan=True)


def test_the_largest_numbers_do_not_overflow(device: torch.device) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        most = torch.finfo(dtype).max
        x = torch.tensor([[most, most, 0, -most]], dtype=dtype, device=device)
        assert softmax(x).tolist() == [[0.5, 0.5, 0, 0]]


def test_bfloat16_keeps_results_that_are_subnormal(device: torch.device) -> None:
    x = torch.tensor([0.0, -88.0, -90.0, -91.0], dtype=torch.bfloat16, device=device)
    expected = torch.softmax(x.double(), 0).to(torch.bfloat16)
    assert expected[1:].min() > 0
    torch.testing.assert_close(softmax(x), expected, rtol=2e-2, atol=0)


@pytest.mark.parametrize("offset", quick([1], [1, 2, 4]))
def test_rows_off_any_alignment_are_right(offset: int, device: torch.device) -> None:
    x = torch.randn(4 * 96 + offset, device=device).to(torch.bfloat16)[offset:].view(4, 96)
    torch.testing.assert_close(softmax(x), torch.softmax(x, -1))


def test_a_scalar_is_one(device: torch.device) -> None:
    assert softmax(torch.tensor(5.0, device=device)).item() == 1
    assert softmax(torch.tensor(5.0, device=device), 0).shape == ()


def test_vmap_goes_along_any_dimension(device: torch.device) -> None:
    x = torch.randn(3, 4, 5, device=device)
    for in_dim in range(3):
        got = torch.func.vmap(lambda x: softmax(x, 0), in_dims=in_dim)(x)
        torch.testing.assert_close(got, torch.func.vmap(lambda x: torch.softmax(x, 0), in_dims=in_dim)(x))
    assert torch.func.vmap(softmax)(x[0, 0]).tolist() == [1.0] * 5


@pytest.mark.parametrize("dim", [2, -3, 7])
def test_a_dimension_that_is_not_there_is_refused(dim: int, device: torch.device) -> None:
    with pytest.raises(ValueError, match=f"-2 to 1 .got {dim}."):
        softmax(torch.ones(2, 3, device=device), dim)


def test_a_gradient_of_another_shape_is_refused(device: torch.device) -> None:
    with pytest.raises(ValueError, match=r"one dtype and shape .*\(2, 3\) and .*\(3, 2\)"):
        softmax_backward(torch.ones(2, 3, device=device), torch.ones(3, 2, device=device))


@pytest.mark.gpu
@pytest.mark.parametrize("n", [65536, 131072, 262144, 524288, 600_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_over_a_cluster_agree_with_torch(n: int, dtype: torch.dtype) -> None:
    x = (3 * torch.randn(5, n, device="cuda")).to(dtype)
    y, grad = softmax(x), torch.randn(5, n, device="cuda").to(dtype)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(y, torch.softmax(x.double(), -1).to(dtype), rtol=4 * eps, atol=1e-9)
    expected = y.double() * (grad.double() - (grad.double() * y.double()).sum(-1, keepdim=True))
    torch.testing.assert_close(softmax_backward(grad, y).double(), expected, rtol=1e-2, atol=1e-7)
