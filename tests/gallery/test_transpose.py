"""transpose and permute_copy: tiles, rows, and the choice between them."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import make_tensor

import dotcu
from dotcu.gallery import permute_copy, transpose
from helpers.quick_cases import quick_pairs

WORDS = [torch.bool, torch.float8_e4m3fn, torch.bfloat16, torch.float32, torch.complex64, torch.complex128]


def random(device: torch.device, dtype: torch.dtype, *shape: int) -> Tensor:
    if dtype == torch.float8_e4m3fn:
        return make_tensor(shape, device=device, dtype=torch.float32, low=-9, high=9).to(dtype)
    return make_tensor(shape, device=device, dtype=dtype)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors agree in shape and in every byte."""
    plain = (t.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8) for t in (a, b))
    return a.shape == b.shape and torch.equal(*plain)


SHAPES = [
    (64, 64), (136, 80), (67, 53), (300, 9), (3, 70), (13, 350), (1, 5), (600, 21), (3, 700), (1100, 3),
]  # fmt: skip
QUICK = {(WORDS[-1 - index % len(WORDS)], shape) for index, shape in enumerate(SHAPES)}


@pytest.mark.parametrize(("dtype", "shape"), quick_pairs(QUICK, WORDS, SHAPES))
def test_a_matrix_is_transposed_bit_for_bit(
    dtype: torch.dtype, shape: tuple[int, ...], device: torch.device
) -> None:
    x = random(device, dtype, *shape)
    got = transpose(x)
    assert got.is_contiguous()
    assert same_bits(got, x.T)


RUNS = [
    (torch.bfloat16, (2, 70, 3, 65), (0, 2, 1, 3)),
    (torch.bfloat16, (40, 2, 2, 17), (0, 2, 1, 3)),
    (torch.float32, (2, 3, 3001), (1, 0, 2)),
    (torch.float8_e4m3fn, (1, 260, 3, 65), (0, 2, 1, 3)),
    (torch.complex64, (9, 4, 7), (1, 0, 2)),
]


@pytest.mark.parametrize(("dtype", "shape", "dims"), RUNS)
def test_rows_that_stay_rows_and_begin_anywhere_are_copied_bit_for_bit(
    dtype: torch.dtype, shape: tuple[int, ...], dims: tuple[int, ...], device: torch.device
) -> None:
    x = random(device, dtype, math.prod(shape) + 1)[1:].view(shape)
    assert same_bits(permute_copy(x, list(dims)), x.permute(dims))


@pytest.mark.slow
def test_every_permutation_of_four_dimensions_is_right(device: torch.device) -> None:
    x = random(device, torch.float16, 3, 10, 2, 12)
    for dims in permutations(range(4)):
        assert torch.equal(permute_copy(x, list(dims)), x.permute(dims)), dims


def test_dimensions_count_from_the_end_too(device: torch.device) -> None:
    x = random(device, torch.float32, 2, 3, 4)
    assert torch.equal(transpose(x, 0, -1), x.transpose(0, -1))
    assert torch.equal(permute_copy(x, [-1, 0, -2]), x.permute(-1, 0, -2))


def test_many_dimensions_that_do_not_merge_are_right(device: torch.device) -> None:
    x = torch.arange(2**12, dtype=torch.int16, device=device).view([2] * 12)
    backwards = list(range(12))[::-1]
    assert torch.equal(permute_copy(x, backwards), x.permute(backwards))


@pytest.mark.parametrize(
    "cut",
    [
        lambda x: x.T,
        lambda x: x[1:, 3:],
        lambda x: x[:, ::2],
        lambda x: x[::3],
        lambda x: x[:1].expand(40, -1),
        lambda x: x[:, :1].expand(-1, 40),
        lambda x: x.view(8, 10, 96).transpose(0, 1)[..., 8:],
    ],
    ids=["transposed", "offset", "every other column", "every third row", "rows", "columns", "batch"],
)
def test_strides_are_followed_without_a_copy(cut: object, device: torch.device) -> None:
    assert callable(cut)
    x = cut(random(device, torch.bfloat16, 80, 96))
    assert torch.equal(transpose(x), x.transpose(-1, -2))


def test_nothing_is_written_beside_the_result(device: torch.device) -> None:
    if device.type == "cuda":
        pytest.skip("the simulator's sanitizers look at every access")
    for rows, columns in ((65, 63), (8, 128), (129, 8)):
        with dotcu.simulate() as run:
            transpose(random(device, torch.bfloat16, rows, columns))
        assert not run.findings


def test_an_aligned_matrix_is_moved_16_bytes_at_a_time(device: torch.device) -> None:
    if device.type == "cuda":
        pytest.skip("counts instructions, which the simulator does")
    with dotcu.simulate() as run:
        transpose(random(device, torch.bfloat16, 64, 64))
    by_vectors = run.counters.lane_instructions
    with dotcu.simulate() as run:
        transpose(random(device, torch.bfloat16, 65, 65))
    assert 3 * by_vectors < run.counters.lane_instructions


@pytest.mark.parametrize("dims", [(0, 2), (-3, 0)])
def test_a_dimension_that_is_not_there_is_refused(dims: tuple[int, int], device: torch.device) -> None:
    with pytest.raises(IndexError, match="Dimension out of range"):
        transpose(torch.ones(3, 4, device=device), *dims)


def test_a_dimension_given_twice_is_refused(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match=r"duplicate|unique"):
        permute_copy(torch.ones(3, 4, device=device), [0, 0])


def test_gradients_go_the_way_back(device: torch.device) -> None:
    x = torch.randn(3, 4, 5, dtype=torch.float64, device=device, requires_grad=True)
    weight = torch.randn(5, 3, 4, dtype=torch.float64, device=device)
    (permute_copy(x, [-1, 0, 1]) * weight).sum().backward()
    torch.testing.assert_close(x.grad, weight.permute(1, 2, 0))


def test_the_gradient_is_a_view_and_launches_nothing(device: torch.device) -> None:
    x = torch.randn(3, 4, 5, device=device, requires_grad=True)
    for result, wanted in (
        (transpose(x, 0, -1), lambda grad: grad.transpose(0, -1)),
        (permute_copy(x, [-1, 0, 1]), lambda grad: grad.permute(1, 2, 0)),
    ):
        grad = torch.randn(result.shape, device=device)
        with dotcu.kernel.launch_policy.watching_launches() as seen:
            (got,) = torch.autograd.grad(result, x, grad)
        assert not seen
        assert (got.data_ptr(), got.stride()) == (grad.data_ptr(), wanted(grad).stride())
        assert torch.equal(got, wanted(grad))


@pytest.mark.slow
def test_gradients_of_a_permutation_are_right_twice(device: torch.device) -> None:
    x = torch.randn(2, 3, 2, dtype=torch.float64, device=device, requires_grad=True)
    assert gradgradcheck(lambda t: permute_copy(t, [-1, 0, 1]) ** 2, x)
    assert gradgradcheck(lambda t: transpose(t, 0, -1) ** 2, x)
    number = torch.randn((), dtype=torch.float64, device=device, requires_grad=True)
    assert gradcheck(lambda t: transpose(t, 0, -1), number)
    assert gradcheck(lambda t: permute_copy(t, []), number)


def test_vmap_leaves_the_batch_where_it_is(device: torch.device) -> None:
    x = torch.randn(3, 4, 5, device=device)
    batched = torch.func.vmap(lambda t: transpose(t, 0, 1), in_dims=1)(x)
    assert torch.equal(batched, x.permute(1, 2, 0))
    assert torch.equal(torch.func.vmap(lambda t: permute_copy(t, [-1, 0]))(x), x.mT)


@pytest.mark.gpu
def test_more_than_two_to_the_31_elements_are_moved() -> None:
    x = torch.zeros(2**16 + 8, 2**15 + 24, dtype=torch.int8, device="cuda")
    x[-1] = 5
    x[:, -1] = 3
    got = transpose(x)
    assert got.shape == (2**15 + 24, 2**16 + 8)
    assert torch.equal(got[:, -1], x[-1])
    assert torch.equal(got[-1], x[:, -1])
    assert got[:-1, :-1].count_nonzero().item() == 0
