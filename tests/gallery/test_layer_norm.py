"""layer_norm: rows of every length, on every way through the kernels, and their gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import make_tensor

import dotcu
from dotcu.gallery import layer_norm, layer_norm_backward
from dotcu.gallery.common import FEW_ROWS
from helpers.quick_cases import quick, quick_pairs

HALVES = [torch.float16, torch.bfloat16]
FLOATS = [torch.float32, *HALVES]

# Rows of a part of a warp, of a warp, of a block, with and without a rest, and longer than a block holds.
LENGTHS = [2, 7, 8, 31, 32, 40, 64, 256, 257, 640, 768, 1023, 1024, 2560, 5000, 20_004]
# Each way through the kernels and each dtype once; the rest is slow.
FORWARD = {
    *((n, torch.float32) for n in (2, 40, 5000)),
    (31, torch.bfloat16),
    (640, torch.float16),
}
BACKWARD = {(5000, torch.float32)}


def random(device: torch.device, dtype: torch.dtype, *shape: int) -> Tensor:
    return make_tensor(shape, device=device, dtype=dtype, low=-3, high=3)


def exact(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """In 64 bits."""
    return torch.nn.functional.layer_norm(x.double(), x.shape[-1:], weight.double(), bias.double(), eps)


def exact_gradients(grad: Tensor, x: Tensor, weight: Tensor, eps: float = 1e-5) -> tuple[Tensor, ...]:
    inputs = [tensor.double().requires_grad_() for tensor in (x, weight, torch.zeros_like(weight))]
    return torch.autograd.grad(exact(*inputs, eps), inputs, grad.double())


def close(got: Tensor, wanted: Tensor, places: int = 8, terms: float = 1.0) -> None:
    """Some last places of the largest element, or of the terms that it is the difference of."""
    scale = max(terms, wanted.abs().max().item()) if wanted.numel() else 1.0
    bound = places * torch.finfo(got.dtype).eps
    torch.testing.assert_close(got.double(), wanted.double(), rtol=bound, atol=bound * scale)


@pytest.mark.parametrize(("n", "dtype"), quick_pairs(FORWARD, LENGTHS, FLOATS))
def test_rows_of_any_length_are_normalized(n: int, dtype: torch.dtype, device: torch.device) -> None:
    x, weight, bias = (random(device, dtype, *shape) for shape in ((3, n), (n,), (n,)))
    close(layer_norm(x, weight, bias), exact(x, weight, bias))


@pytest.mark.parametrize(
    ("n", "dtype", "few", "many"),
    [
        (2048, torch.bfloat16, "8, 2, 128, true", "8, 4, 64, true"),
        (768, torch.bfloat16, "8, 3, 32, false", "8, 3, 32, false"),  # more threads would leave a rest
        pytest.param(4096, torch.float16, "8, 2, 256, true", "8, 8, 64, true", marks=pytest.mark.slow),
        pytest.param(2048, torch.float32, "4, 4, 128, true", "4, 8, 64, true", marks=pytest.mark.slow),
        pytest.param(1024, torch.float32, "4, 4, 64, true", "4, 4, 64, true", marks=pytest.mark.slow),
    ],
)
def test_a_row_has_more_threads_where_rows_are_few(
    n: int, dtype: torch.dtype, few: str, many: str, device: torch.device
) -> None:
    weight, bias = random(device, dtype, n), random(device, dtype, n)
    with (
        dotcu.simulate(arch="sm_87"),
        dotcu.kernel.launch_policy.watching_launches() as seen,
    ):  # 16 multiprocessors
        most = FEW_ROWS * dotcu.sm_count(device)
        for rows in (3, most, most + 1):
            x = random(device, dtype, rows, n)
            close(layer_norm(x, weight, bias), exact(x, weight, bias))
    shares = [launch.kernel.split("float, ")[-1].rstrip(">") for launch in seen]
    assert shares == [few, few.replace("false", "true"), many]


@pytest.mark.parametrize(("n", "dtype"), quick_pairs(BACKWARD, LENGTHS, FLOATS))
def test_gradients_of_rows_of_any_length_are_right(n: int, dtype: torch.dtype, device: torch.device) -> None:
    grad, x, weight = (random(device, dtype, *shape) for shape in ((5, n), (5, n), (n,)))
    of_x, *of_parameters = layer_norm_backward(grad, x, weight)
    wanted_of_x, *wanted = exact_gradients(grad, x, weight)
    close(of_x, wanted_of_x, 16, terms=largest_term(grad, x, weight))
    terms = (grad.double() * condition(x)).abs().max().item()
    for got, exactly in zip(of_parameters, wanted, strict=True):
        close(got, exactly, 32, terms)


def largest_term(grad: Tensor, x: Tensor, weight: Tensor) -> float:
    """Of a gradient by x: grad * weight / deviation. In rows of two elements nearly nothing is left of it."""
    return max(1.0, (grad.double() * weight * condition(x) / deviation(x)).abs().max().item())


def deviation(x: Tensor) -> Tensor:
    return (x.double().var(-1, correction=0, keepdim=True) + 1e-5).sqrt()


def condition(x: Tensor) -> Tensor:
    """How much less exact than x its deviations from the mean are, where those are a few last places."""
    return (x.double().abs() / deviation(x) / 16).clamp(min=1)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "offset"), quick_pairs((), FLOATS, [1, 2, 3, 4]))
def test_a_view_that_starts_anywhere_is_right(dtype: torch.dtype, offset: int, device: torch.device) -> None:
    memory, weight = random(device, dtype, 6 * 128 + 4), random(device, dtype, 132)[offset : offset + 128]
    x = memory[offset : offset + 6 * 128].view(6, 128)
    close(layer_norm(x, weight, weight), exact(x, weight, weight))
    for got, wanted in zip(layer_norm_backward(x, x, weight), exact_gradients(x, x, weight), strict=True):
        close(got, wanted, 32)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", quick([torch.bfloat16], HALVES), ids=str)
def test_half_types_take_weights_of_float32(dtype: torch.dtype, device: torch.device) -> None:
    x, weight = random(device, dtype, 4, 96), random(device, torch.float32, 96)
    out = layer_norm(x, weight, weight)
    assert out.dtype == dtype
    close(out, exact(x, weight, weight))
    _, by_weight, by_bias = layer_norm_backward(x, x, weight)
    assert by_weight.dtype == by_bias.dtype == torch.float32


@pytest.mark.slow
@pytest.mark.parametrize("n", quick([1000], [64, 1000, 20_004]))
def test_a_large_mean_costs_no_places(n: int, device: torch.device) -> None:
    x = torch.randn(4, n, device=device) + 1000
    weight, bias = torch.ones(n, device=device), torch.zeros(n, device=device)
    wanted = exact(x, weight, bias)
    close(layer_norm(x, weight, bias), wanted, 4)  # a mean of float32 alone is off by 500 such places
    grad = torch.randn_like(x)
    for got, right in zip(
        layer_norm_backward(grad, x, weight), exact_gradients(grad, x, weight), strict=True
    ):
        assert (got - right).norm() <= 1e-3 * right.norm()


@pytest.mark.parametrize("dtype", quick([torch.float32], [torch.float32, torch.float64]), ids=str)
def test_a_row_of_one_element_has_no_gradient(dtype: torch.dtype, device: torch.device) -> None:
    grad, x, weight = (random(device, dtype, *shape) for shape in ((256, 1), (256, 1), (1,)))
    of_x, _, _ = layer_norm_backward(grad, x, weight)
    assert not of_x.any()  # not even a rounding error, times 1 / sqrt(eps)


@pytest.mark.slow
def test_many_rows_give_the_same_bits_each_time(device: torch.device) -> None:
    grad, x, weight = (random(device, torch.float32, *shape) for shape in ((700, 96), (700, 96), (96,)))
    first = layer_norm_backward(grad, x, weight)
    for got, wanted in zip(first, exact_gradients(grad, x, weight), strict=True):
        close(got, wanted, 32)
    for again, before in zip(layer_norm_backward(grad, x, weight), first, strict=True):
        assert torch.equal(again, before)


@pytest.mark.slow
@pytest.mark.parametrize("n", quick([773], [516, 772, 773]))  # warps alone, blocks, rows that begin anywhere
def test_more_rows_than_blocks_keep_the_ring_turning(n: int, device: torch.device) -> None:
    grad, x, weight = (random(device, torch.float32, *shape) for shape in ((140, n), (140, n), (n,)))
    with dotcu.simulate(arch="sm_87"):  # 16 multiprocessors
        got = layer_norm_backward(grad, x, weight)
    for mine, wanted in zip(got, exact_gradients(grad, x, weight), strict=True):
        close(mine, wanted, 32)


@pytest.mark.slow
@pytest.mark.parametrize("shape", quick([(0, 8), (0,)], [(0, 8), (3, 0), (0,), (2, 0, 4)]))
def test_nothing_to_normalize_gives_no_gradient_but_zero(
    shape: tuple[int, ...], device: torch.device
) -> None:
    x, weight = torch.ones(shape, device=device), torch.ones(shape[-1], device=device)
    assert layer_norm(x, weight, weight).shape == shape
    by_x, by_weight, by_bias = layer_norm_backward(x, x, weight)
    assert by_x.shape == shape
    assert torch.equal(by_weight, torch.zeros_like(weight))
    assert torch.equal(by_bias, torch.zeros_like(weight))


def test_a_row_of_equal_elements_is_the_bias(device: torch.device) -> None:
    x, bias = torch.full((2, 64), 3.0, device=device), torch.arange(64.0, device=device)
    assert torch.equal(layer_norm(x, bias, bias), bias.expand(2, 64))


def test_weights_that_do_not_fit_are_refused(device: torch.device) -> None:
    x = torch.ones(3, 4, device=device)
    with pytest.raises(ValueError, match=r"\(3, 4\) and \(3,\)"):
        layer_norm(x, x[:, 0], x[:, 0])
    with pytest.raises(ValueError, match=r"bias .*\(3,\)"):
        layer_norm(x, x[0], x[:, 0])
    with pytest.raises(TypeError, match=r"torch.float16"):
        layer_norm(x, x[0].half(), x[0].half())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("n", [16_384, 24_576, 32_768, 65_536, 65_544, 131_072, 262_144, 262_147])
def test_rows_of_a_cluster_and_longer_are_right(n: int, dtype: torch.dtype) -> None:
    cuda = torch.device("cuda")
    grad, x, weight = (random(cuda, dtype, *shape) for shape in ((300, n), (300, n), (n,)))
    close(layer_norm(x, weight, weight), exact(x, weight, weight))
    for got, wanted in zip(
        layer_norm_backward(grad, x, weight), exact_gradients(grad, x, weight), strict=True
    ):
        close(got, wanted, 32)


@pytest.mark.slow
@pytest.mark.parametrize("n", quick([24], [24, 256, 1536]))
def test_gradients_whose_products_are_no_float_are_right(n: int, device: torch.device) -> None:
    grad, x, weight = (1e17 * random(device, torch.float32, *shape) for shape in ((5, n), (5, n), (n,)))
    of_x, _ = layer_norm_backward(grad, x, weight)[:2]
    torch.testing.assert_close(of_x.double(), exact_gradients(grad, x, weight)[0], rtol=1e-4, atol=1e13)
