"""swiglu: silu(gate) * up, and both of its gradients by one kernel."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dotcu.gallery import swiglu, swiglu_backward
from helpers.quick_cases import quick

HALVES = [torch.float16, torch.bfloat16]


def exact(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate.double()) * up.double()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_types_are_rounded_once(dtype: torch.dtype, device: torch.device) -> None:
    gate, up = (torch.randn(4099, device=device).mul(4).to(dtype) for _ in range(2))
    got, expected = swiglu(gate, up).double(), exact(gate, up)
    place = torch.finfo(dtype).eps * expected.abs().clamp_min(torch.finfo(dtype).tiny)
    assert ((got - expected).abs() <= 0.501 * place).all()


def test_float32_keeps_its_digits_where_the_exponential_is_huge_or_tiny(device: torch.device) -> None:
    gate = torch.linspace(-86, 86, 4001, device=device)
    up = torch.ones_like(gate)
    torch.testing.assert_close(swiglu(gate, up).double(), exact(gate, up), rtol=5e-7, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_gradients_at_large_values_are_those_of_a_straight_line(
    dtype: torch.dtype, device: torch.device
) -> None:
    gate = torch.tensor([1e4, -1e4, 100.0, -100.0, 0.0], device=device).to(dtype)
    grad, up = torch.full_like(gate, 2), torch.full_like(gate, 3)
    by_gate, by_up = swiglu_backward(grad, gate, up)
    assert by_gate.tolist() == pytest.approx([6, 0, 6, 0, 3], abs=1e-30)
    assert by_up.tolist() == pytest.approx([2 * gate[0].item(), 0, 2 * gate[2].item(), 0, 0], abs=1e-30)


@pytest.mark.parametrize("dtype", swiglu.dtypes, ids=str)
def test_infinity_and_nan_go_through_as_in_torch(dtype: torch.dtype, device: torch.device) -> None:
    special = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 3e4, -3e4], device=device).to(dtype)
    gate, up = (tensor.contiguous() for tensor in torch.broadcast_tensors(special[:, None], special))
    expected = (F.silu(gate.double()) * up.double()).to(dtype)
    torch.testing.assert_close(swiglu(gate, up), expected, equal_nan=True)


@pytest.mark.parametrize("dtype", quick([torch.bfloat16], swiglu.dtypes), ids=str)
def test_every_length_around_a_vector_has_its_tail(dtype: torch.dtype, device: torch.device) -> None:
    memory = [torch.randn(60, device=device).to(dtype) for _ in range(3)]
    for n, offset in [(n, 0) for n in range(20)] + [(33, 1), (33, 2), (33, 4)]:
        grad, gate, up = (tensor[offset : offset + n] for tensor in memory)
        torch.testing.assert_close(swiglu(gate, up), exact(gate, up).to(dtype))
        by_gate, by_up = swiglu_backward(grad, gate, up)
        torch.testing.assert_close(by_up, exact(gate, grad).to(dtype))
        slope = torch.ops.aten.silu_backward((grad.double() * up.double()), gate.double())
        torch.testing.assert_close(by_gate, slope.to(dtype))


def test_halves_of_a_projection_are_taken_as_they_are(device: torch.device) -> None:
    both = torch.randn(5, 7, 26, device=device, requires_grad=True)
    twin = both.detach().clone().requires_grad_()
    swiglu(*both.chunk(2, dim=-1)).square().sum().backward()
    gate, up = twin.chunk(2, dim=-1)
    (F.silu(gate) * up).square().sum().backward()
    torch.testing.assert_close(both.grad, twin.grad)


def test_vmap_takes_the_whole_batch_at_once(device: torch.device) -> None:
    gate, up = torch.randn(4, 3, 5, device=device), torch.randn(4, 5, device=device)
    got = torch.func.vmap(swiglu, in_dims=(1, None))(gate, up)
    torch.testing.assert_close(got, F.silu(gate.movedim(1, 0)) * up)


def test_shapes_that_differ_are_refused(device: torch.device) -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(3,\).*\n.*expand_as"):
        swiglu(torch.ones(2, 3, device=device), torch.ones(3, device=device))


def test_two_dtypes_are_refused_by_name(device: torch.device) -> None:
    with pytest.raises(TypeError, match=r"float32 and torch.float64"):
        swiglu(torch.ones(3, device=device), torch.ones(3, dtype=torch.float64, device=device))
