"""add: two tensors, or a tensor and a number."""

from __future__ import annotations

import pytest
import torch
from torch.testing import make_tensor

import dotcu
from dotcu.errors import DotcuError
from dotcu.gallery import add
from helpers.quick_cases import quick_pairs

REAL = add.dtypes


def random(device: torch.device, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return make_tensor(shape, device=device, dtype=dtype, low=-9, high=9)


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_it_gives_the_bits_that_torch_gives(dtype: torch.dtype, device: torch.device) -> None:
    a, b = random(device, dtype, 37, 29), random(device, dtype, 37, 29)
    assert torch.equal(add(a, b), a + b)
    assert torch.equal(add(a.T, b.T), (a + b).T)


def test_special_values_go_through(device: torch.device) -> None:
    special = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 1e-45, 3e38], device=device)
    a, b = special[:, None], special[None, :]
    got, expected = add(a, b), a + b
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    numbers = ~expected.isnan()
    assert torch.equal(got[numbers].signbit(), expected[numbers].signbit())


@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [((), ()), ((), (5,)), ((0,), (1,)), ((3, 1), (1, 4)), ((2, 1, 3), (4, 1)), ((1,), (1, 1, 1))],
)
def test_shapes_broadcast(a_shape: tuple[int, ...], b_shape: tuple[int, ...], device: torch.device) -> None:
    a, b = random(device, torch.float32, *a_shape), random(device, torch.float32, *b_shape)
    assert torch.equal(add(a, b), a + b)


def test_shapes_that_do_not_broadcast_are_refused(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match="match"):
        add(torch.ones(3, device=device), torch.ones(4, device=device))


QUICK = {(dtype, 2.5 if dtype.is_floating_point else 3) for dtype in REAL}
QUICK |= {(torch.int32, 2.5), (torch.float32, 3)}


@pytest.mark.parametrize(("dtype", "number"), quick_pairs(QUICK, REAL, [3, 2.5]))
def test_a_number_is_added_as_torch_adds_it(dtype: torch.dtype, number: float, device: torch.device) -> None:
    a = random(device, dtype, 41, 3)
    got = add(a, number)
    assert got.dtype == (a + number).dtype
    assert torch.equal(got, a + number)


def test_a_large_whole_number_keeps_every_bit(device: torch.device) -> None:
    a = torch.tensor([1, -1], device=device)
    assert add(a, 2**62 + 1).tolist() == [2**62 + 2, 2**62]


def test_a_number_is_added_into_out(device: torch.device) -> None:
    a, out = random(device, torch.float32, 4, 6), torch.zeros(6, 4, device=device).T
    assert add(a, 2, out=out) is out
    assert torch.equal(out, a + 2)


def test_a_complex_number_is_refused(device: torch.device) -> None:
    with pytest.raises((TypeError, RuntimeError)):
        add(torch.ones(3, device=device), 1j)


def test_the_gradient_by_a_tensor_with_a_number_is_one(device: torch.device) -> None:
    a = torch.randn(5, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: add(x, 1.5), a)


def test_the_gradient_of_tensors_of_one_shape_is_handed_on(device: torch.device) -> None:
    a, b = (torch.randn(4, 3, device=device, requires_grad=True) for _ in range(2))
    grad = torch.randn(4, 3, device=device)
    for got in torch.autograd.grad(add(a, b), (a, b), grad):
        assert got.data_ptr() == grad.data_ptr()
        assert torch.equal(got, grad)


@pytest.mark.parametrize(
    ("a_shape", "b_shape"), [((4, 3), (3,)), ((), (5,)), ((2, 1), (1, 4)), ((3,), (2, 4, 3)), ((0, 3), (3,))]
)
def test_the_gradient_of_what_was_broadcast_is_summed(
    a_shape: tuple[int, ...], b_shape: tuple[int, ...], device: torch.device
) -> None:
    a, b = (torch.randn(shape, device=device, requires_grad=True) for shape in (a_shape, b_shape))
    grad = torch.randn(torch.broadcast_shapes(a_shape, b_shape), device=device)
    wanted = torch.autograd.grad(a + b, (a, b), grad)
    torch.testing.assert_close(torch.autograd.grad(add(a, b), (a, b), grad), wanted)


def test_two_dtypes_are_refused_by_name(device: torch.device) -> None:
    with pytest.raises(TypeError, match=r"float32 and torch.int64.*\n.*b.to\(a.dtype\)"):
        add(torch.ones(3, device=device), torch.ones(3, dtype=torch.int64, device=device))


def test_an_input_may_be_out(device: torch.device) -> None:
    a, b = torch.randn(1000, device=device), torch.randn(1000, device=device)
    expected = a + b
    add(a, b, out=a)
    assert torch.equal(a, expected)


def test_an_out_that_meets_itself_is_refused(device: torch.device) -> None:
    out = torch.zeros(1, device=device).expand(3)
    with pytest.raises(RuntimeError, match="single memory location"):
        add(torch.ones(3, device=device), torch.ones(3, device=device), out=out)


@pytest.mark.gpu
def test_tensors_on_two_devices_are_refused() -> None:
    with pytest.raises((DotcuError, RuntimeError)):
        add(torch.ones(3), torch.ones(3, device="cuda"))


def test_more_elements_than_threads_are_all_added(device: torch.device) -> None:
    a, b = torch.randn(30_000, device=device), torch.randn(30_000, device=device)
    with dotcu.simulate(arch="sm_87"):  # holds 8192 threads in blocks of 32
        assert torch.equal(add(a, b, block_size=32), a + b)
