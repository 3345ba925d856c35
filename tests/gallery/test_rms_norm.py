"""rms_norm and add_rms_norm: rows of every length, on every way through the kernels, and their gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import make_tensor

import dotcu
from dotcu.gallery import add_rms_norm, rms_norm, rms_norm_backward
from dotcu.gallery.common import FEW_ROWS
from helpers.quick_cases import quick, quick_pairs

HALVES = [torch.float16, torch.bfloat16]
FLOATS = [torch.float32, *HALVES]

# Rows of a part of a warp, of a warp, of a block, with and without a rest, and longer than a block holds.
LENGTHS = [1, 2, 7, 8, 31, 32, 40, 64, 256, 257, 640, 768, 1023, 1024, 2560, 5000, 20_004]
# Each length and each dtype once; the rest is slow.
FORWARD = {
    *((n, torch.float32) for n in (2, 257)),
    *((n, torch.bfloat16) for n in (40, 20_004)),
    (1024, torch.float16),
}
BACKWARD = {(31, torch.float32), (1024, torch.bfloat16)}
SUMS = {(24, torch.float32), (1000, torch.bfloat16)}
VIEWS = {(torch.float16, 2)}


def random(device: torch.device, dtype: torch.dtype, *shape: int) -> Tensor:
    return make_tensor(shape, device=device, dtype=dtype, low=-3, high=3)


def exact(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """In 64 bits."""
    return torch.nn.functional.rms_norm(x.double(), x.shape[-1:], weight.double(), eps)


def exact_gradients(grad: Tensor, x: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    inputs = x.double().requires_grad_(), weight.double().requires_grad_()
    by_x, by_weight = torch.autograd.grad(exact(*inputs, eps), inputs, grad.double())
    return by_x, by_weight


def close(got: Tensor, wanted: Tensor, places: int = 4) -> None:
    """Some last places of 1 or of the largest element: sums of many products cancel."""
    scale = max(1.0, wanted.abs().max().item()) if wanted.numel() else 1.0
    bound = places * torch.finfo(got.dtype).eps
    torch.testing.assert_close(got.double(), wanted.double(), rtol=bound, atol=bound * scale)


@pytest.mark.parametrize(("n", "dtype"), quick_pairs(FORWARD, LENGTHS, FLOATS))
def test_rows_of_any_length_are_normalized(n: int, dtype: torch.dtype, device: torch.device) -> None:
    x, weight = random(device, dtype, 3, n), random(device, dtype, n)
    close(rms_norm(x, weight), exact(x, weight))


def test_a_row_has_more_threads_where_rows_are_few(device: torch.device) -> None:
    weight = random(device, torch.bfloat16, 2048)
    with (
        dotcu.simulate(arch="sm_87"),
        dotcu.kernel.launch_policy.watching_launches() as seen,
    ):  # 16 multiprocessors
        most = FEW_ROWS * dotcu.sm_count(device)
        for rows in (most, most + 1):
            x = random(device, torch.bfloat16, rows, 2048)
            close(rms_norm(x, weight), exact(x, weight))
            out, sum = add_rms_norm(x, x, weight)
            assert torch.equal(sum, 2 * x)
            close(out, exact(sum, weight))
    shares = [launch.kernel.split("float, ")[-1] for launch in seen]
    of_few, of_many = "8, 2, 128, true", "8, 4, 64, true"
    assert shares == [f"{of}, {adds}>" for of in (of_few, of_many) for adds in ("false", "true")]


@pytest.mark.parametrize(("n", "dtype"), quick_pairs(BACKWARD, LENGTHS, FLOATS))
def test_gradients_of_rows_of_any_length_are_right(n: int, dtype: torch.dtype, device: torch.device) -> None:
    grad, x, weight = (random(device, dtype, *shape) for shape in ((5, n), (5, n), (n,)))
    by_x, by_weight = rms_norm_backward(grad, x, weight)
    wanted_by_x, wanted_by_weight = exact_gradients(grad, x, weight)
    terms = grad.double() * weight.double() * x.double().square().mean(-1, keepdim=True).rsqrt()
    close(by_weight, wanted_by_weight, 8)
    size = max(1.0, terms.abs().max().item())  # of a row of 1 they cancel
    close(by_x / size, wanted_by_x / size, 8)


@pytest.mark.parametrize(("dtype", "offset"), quick_pairs(VIEWS, FLOATS, [1, 2, 3, 4]))
def test_a_view_that_starts_anywhere_is_right(dtype: torch.dtype, offset: int, device: torch.device) -> None:
    memory, weight = random(device, dtype, 6 * 128 + 4), random(device, dtype, 132)[offset : offset + 128]
    x = memory[offset : offset + 6 * 128].view(6, 128)
    close(rms_norm(x, weight), exact(x, weight))
    for got, wanted in zip(rms_norm_backward(x, x, weight), exact_gradients(x, x, weight), strict=True):
        close(got, wanted, 8)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", quick([torch.bfloat16], HALVES), ids=str)
def test_half_types_take_a_weight_of_float32(dtype: torch.dtype, device: torch.device) -> None:
    x, weight = random(device, dtype, 4, 96), random(device, torch.float32, 96)
    out = rms_norm(x, weight)
    assert out.dtype == dtype
    close(out, exact(x, weight))
    assert rms_norm_backward(x, x, weight)[1].dtype == torch.float32


@pytest.mark.parametrize(("n", "dtype"), quick_pairs(SUMS, [24, 1000, 1024, 20_004], FLOATS))
def test_the_sum_with_a_residual_is_what_is_normalized(
    n: int, dtype: torch.dtype, device: torch.device
) -> None:
    x, residual, weight = (random(device, dtype, *shape) for shape in ((3, n), (3, n), (n,)))
    out, sum = add_rms_norm(x, residual, weight)
    assert torch.equal(sum, x + residual)
    close(out, exact(sum, weight))


@pytest.mark.slow
@pytest.mark.parametrize("fast", quick([True], [True, False]))
def test_both_results_of_add_rms_norm_give_gradients(fast: bool, device: torch.device) -> None:
    tensors = [random(device, torch.float64, *shape).requires_grad_() for shape in ((3, 5), (3, 5), (5,))]
    assert torch.autograd.gradcheck(add_rms_norm, tensors, fast_mode=fast)


def test_many_rows_give_the_same_bits_each_time(device: torch.device) -> None:
    grad, x, weight = (random(device, torch.float32, *shape) for shape in ((700, 96), (700, 96), (96,)))
    first = rms_norm_backward(grad, x, weight)
    for got, wanted in zip(first, exact_gradients(grad, x, weight), strict=True):
        close(got, wanted, 16)
    for again, before in zip(rms_norm_backward(grad, x, weight), first, strict=True):
        assert torch.equal(again, before)


@pytest.mark.parametrize("n", quick([773], [516, 772, 773]))  # warps alone, blocks, rows that begin anywhere
def test_more_rows_than_blocks_keep_the_ring_turning(n: int, device: torch.device) -> None:
    grad, x, weight = (random(device, torch.float32, *shape) for shape in ((140, n), (140, n), (n,)))
    with dotcu.simulate(arch="sm_87"):  # 16 multiprocessors
        got = rms_norm_backward(grad, x, weight)
    for mine, wanted in zip(got, exact_gradients(grad, x, weight), strict=True):
        close(mine, wanted, 8)


@pytest.mark.parametrize("shape", quick([(0, 96)], [(0, 96), (3, 0), (0,), (2, 0, 4)]))
def test_nothing_to_normalize_gives_no_gradient_but_zero(
    shape: tuple[int, ...], device: torch.device
) -> None:
    x, weight = torch.ones(shape, device=device), torch.ones(shape[-1], device=device)
    assert rms_norm(x, weight).shape == shape
    by_x, by_weight = rms_norm_backward(x, x, weight)
    assert by_x.shape == shape
    assert torch.equal(by_weight, torch.zeros_like(weight))


def test_a_row_of_zeros_stays_one(device: torch.device) -> None:
    x, weight = torch.zeros(2, 96, device=device), torch.ones(96, device=device)
    assert torch.equal(rms_norm(x, weight), x)
    assert torch.equal(rms_norm_backward(torch.ones_like(x), x, weight)[0], torch.full_like(x, 1e3))


def test_weights_that_do_not_fit_are_refused(device: torch.device) -> None:
    x = torch.ones(3, 4, device=device)
    with pytest.raises(ValueError, match=r"\(3, 4\) and \(3,\)"):
        rms_norm(x, torch.ones(3, device=device))
    with pytest.raises(TypeError, match=r"torch.float16"):
        rms_norm(x, torch.ones(4, dtype=torch.float16, device=device))
    with pytest.raises(ValueError, match=r"residual .*\(4,\)"):
        add_rms_norm(x, x[0], x[0])
    with pytest.raises(ValueError, match="at least one dimension"):
        rms_norm(x[0, 0], x[0])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("n", [16_384, 24_576, 32_768, 65_536, 65_544, 131_072, 262_144, 262_147])
def test_rows_of_a_cluster_and_longer_are_right(n: int, dtype: torch.dtype) -> None:
    cuda = torch.device("cuda")
    grad, x, weight = (random(cuda, dtype, *shape) for shape in ((300, n), (300, n), (n,)))
    close(rms_norm(x, weight), exact(x, weight))
    for got, wanted in zip(rms_norm_backward(grad, x, weight), exact_gradients(grad, x, weight), strict=True):
        close(got, wanted, 16)
    out, sum = add_rms_norm(x, grad, weight)
    assert torch.equal(sum, x + grad)
    close(out, exact(sum, weight))


@pytest.mark.parametrize("n", quick([24], [24, 256, 1536]))
def test_gradients_whose_products_are_no_float_are_right(n: int, device: torch.device) -> None:
    grad, x, weight = (1e17 * random(device, torch.float32, *shape) for shape in ((5, n), (5, n), (n,)))
    of_x, _ = rms_norm_backward(grad, x, weight)[:2]
    torch.testing.assert_close(of_x.double(), exact_gradients(grad, x, weight)[0], rtol=1e-4, atol=1e13)
