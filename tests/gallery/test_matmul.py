"""matmul: the naive and the tiled kernel."""

from __future__ import annotations

import pytest
import torch

import dotcu
from dotcu.gallery import matmul
from quick import quick_pairs

SIZES = [(2, 2, 20), (20, 2, 2), (3, 7, 11), (1, 1, 1), (16, 16, 16), (17, 33, 15), (40, 1, 40), (1, 100, 1)]


@pytest.mark.parametrize("kernel", ["tiled", "naive"])
@pytest.mark.parametrize("dtype", matmul.dtypes, ids=str)
def test_it_agrees_with_a_product_in_float64(dtype: torch.dtype, kernel: str, device: torch.device) -> None:
    for m, k, n in SIZES:
        a = torch.randn(m, k, device=device).to(dtype)
        b = torch.randn(k, n, device=device).to(dtype)
        expected = (a.double() @ b.double()).to(dtype)
        torch.testing.assert_close(
            matmul(a, b, kernel=kernel), expected, msg=lambda t, s=(m, k, n): f"{s}: {t}"
        )


@pytest.mark.parametrize("kernel", ["tiled", "naive"])
@pytest.mark.parametrize(("m", "k", "n"), [(3, 0, 4), (0, 3, 4), (3, 4, 0), (0, 0, 0)])
def test_an_empty_side_gives_zeros_or_nothing(
    m: int, k: int, n: int, kernel: str, device: torch.device
) -> None:
    got = matmul(torch.ones(m, k, device=device), torch.ones(k, n, device=device), kernel=kernel)
    assert torch.equal(got, torch.zeros(m, n, device=device))


@pytest.mark.parametrize(
    ("kernel", "block_size"),
    quick_pairs({("tiled", 7), ("tiled", 32), ("naive", 8)}, ["tiled", "naive"], [1, 7, 8, 32]),
)
def test_any_tile_gives_the_same(block_size: int, kernel: str, device: torch.device) -> None:
    a = torch.randn(13, 21, dtype=torch.float64, device=device)
    b = torch.randn(21, 35, dtype=torch.float64, device=device)
    torch.testing.assert_close(matmul(a, b, kernel=kernel, block_size=block_size), a @ b)


@pytest.mark.parametrize("kernel", ["tiled", "naive"])
def test_strides_of_both_factors_are_followed(kernel: str, device: torch.device) -> None:
    a = torch.randn(40, 50, device=device).T[1::3, ::2]
    b = torch.randn(1, 9, device=device).expand(20, 9)
    torch.testing.assert_close(matmul(a, b, kernel=kernel), a @ b)
    torch.testing.assert_close(matmul(a, a.T, kernel=kernel), a @ a.T)


@pytest.mark.parametrize("kernel", ["tiled", "naive"])
def test_half_types_add_up_in_float32(kernel: str, device: torch.device) -> None:
    ones = torch.ones(1, 600, dtype=torch.bfloat16, device=device)  # bfloat16 counts to 256
    assert matmul(ones, ones.T, kernel=kernel).item() == 600


def test_more_tiles_than_blocks_are_all_computed(device: torch.device) -> None:
    a, b = torch.randn(20, 3, device=device), torch.randn(3, 21, device=device)
    with dotcu.simulate(arch="sm_87"):  # holds 256 blocks
        torch.testing.assert_close(matmul(a, b, block_size=1), a @ b)
        torch.testing.assert_close(matmul(a, b, block_size=1, kernel="naive"), a @ b)


def test_out_may_be_a_factor(device: torch.device) -> None:
    a, b = torch.randn(33, 33, device=device), torch.randn(33, 33, device=device)
    expected = a @ b
    torch.testing.assert_close(matmul(a, b, out=a), expected)


def test_gradients_flow_only_where_they_are_asked_for(device: torch.device) -> None:
    a = torch.randn(3, 4, dtype=torch.float64, device=device, requires_grad=True)
    b = torch.randn(4, 2, dtype=torch.float64, device=device)
    matmul(a, b, kernel="naive", block_size=4).sum().backward()
    assert b.grad is None
    torch.testing.assert_close(a.grad, torch.ones(3, 2, dtype=torch.float64, device=device) @ b.T)


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3,), (3, 4)), ((2, 3, 4), (4, 5)), ((), (1, 1))])
def test_shapes_that_do_not_fit_are_refused(
    shapes: tuple[tuple[int, ...], ...], device: torch.device
) -> None:
    a, b = (torch.ones(shape, device=device) for shape in shapes)
    with pytest.raises(ValueError, match=r"\(M, K\) and \(K, N\)"):
        matmul(a, b)


def test_two_dtypes_are_refused_by_name(device: torch.device) -> None:
    with pytest.raises(TypeError, match=r"float32 and torch.float64"):
        matmul(torch.ones(2, 2, device=device), torch.ones(2, 2, dtype=torch.float64, device=device))


def test_work_counts_multiplications_and_additions() -> None:
    sample = dotcu.Sample(torch.ones(3, 5), torch.ones(5, 7))
    assert matmul.work_of(sample, torch.ones(3, 7)) == ((15 + 35 + 21) * 4, 2 * 3 * 5 * 7)
