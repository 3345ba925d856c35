"""square: x * x."""

from __future__ import annotations

import pytest
import torch
from torch.testing import make_tensor

import dotcu
from dotcu.gallery import square


@pytest.mark.parametrize("dtype", square.dtypes, ids=str)
def test_it_gives_the_bits_that_torch_gives(dtype: torch.dtype, device: torch.device) -> None:
    x = make_tensor((37, 29), device=device, dtype=dtype)
    assert torch.equal(square(x), x * x)
    assert torch.equal(square(x[:, ::3].T), x[:, ::3].T * x[:, ::3].T)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (31,), (2, 3, 4, 5)])
def test_any_shape_is_taken(shape: tuple[int, ...], device: torch.device) -> None:
    x = torch.randn(shape, device=device)
    assert torch.equal(square(x), x * x)


def test_x_may_be_out(device: torch.device) -> None:
    x = torch.randn(1000, device=device)
    expected = x * x
    square(x, out=x)
    assert torch.equal(x, expected)


def test_the_second_derivative_is_two(device: torch.device) -> None:
    x = torch.randn(50, dtype=torch.float64, device=device, requires_grad=True)
    (slope,) = torch.autograd.grad(square(x).sum(), x, create_graph=True)
    assert torch.equal(slope, 2 * x)
    (bend,) = torch.autograd.grad(slope.sum(), x)
    assert torch.equal(bend, torch.full_like(x, 2))


def test_vmap_squares_the_whole_batch_at_once(device: torch.device) -> None:
    x = torch.randn(3, 4, 5, device=device)
    assert torch.equal(torch.func.vmap(square)(x), x * x)
    assert torch.equal(torch.func.vmap(square, in_dims=1, out_dims=1)(x), x * x)


def test_torch_func_differentiates_twice(device: torch.device) -> None:
    x = torch.randn(4, dtype=torch.float64, device=device)
    hessian = torch.func.jacrev(torch.func.grad(lambda x: square(x).sum()))(x)
    assert torch.equal(hessian, 2 * torch.eye(4, dtype=torch.float64, device=device))


def test_a_thread_takes_16_bytes_as_wide_as_the_address_allows(device: torch.device) -> None:
    x = torch.randn(1003, device=device)
    with dotcu.kernel.launch_policy.watching_launches() as seen:
        for view in (x, x[2:], x[1:]):
            assert torch.equal(square(view), view * view)
    names = [launch.kernel for launch in seen]
    assert names == ["square<float, 4, 1>", "square<float, 2, 2>", "square<float, 1, 4>"]


def test_any_block_leaves_no_element(device: torch.device) -> None:
    x = torch.arange(1003, dtype=torch.int32, device=device).to(torch.int8)
    for block_size in (1, 3, 8, 1024):
        assert torch.equal(square(x, block_size=block_size), x * x)
