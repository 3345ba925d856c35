from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from dotcu.errors import ArgumentError
from dotcu.kernel import cdiv, is_aligned, simulate, sm_count
from dotcu.kernel.context import Place, entering


@given(st.integers(0, 2**70), st.integers(1, 2**40))
def test_cdiv_is_the_quotient_rounded_up(a: int, b: int) -> None:
    assert (cdiv(a, b) - 1) * b < a <= cdiv(a, b) * b


def test_queries_put_no_guard_on_symbolic_sizes() -> None:
    environment = ShapeEnv()
    with FakeTensorMode(shape_env=environment):
        x = torch.empty(environment.create_unbacked_symint())  # a guard on its size would raise
        blocks = cdiv(x.numel(), 256)
        assert isinstance(blocks, torch.SymInt)
        assert is_aligned(x, 16)
        assert sm_count(x) == 108
    assert environment.guards == []


def test_alignment_is_that_of_the_first_element() -> None:
    x = torch.zeros(8)
    assert is_aligned(x, 16)
    assert not is_aligned(x[1:], 16)
    assert is_aligned(x[1:], 4)


def test_alignment_of_what_has_no_memory_is_assumed() -> None:
    with entering(Place.SKIP):
        assert is_aligned(torch.zeros(8, device="meta")[1:], 16)


def test_alignment_of_memory_is_told_where_launches_are_skipped_too() -> None:
    with entering(Place.SKIP):  # dotcu build asks so which kernels the samples reach
        assert not is_aligned(torch.zeros(8)[1:], 16)


def test_multiprocessors_on_the_cpu_are_those_of_the_simulated_gpu() -> None:
    x = torch.zeros(1)
    assert sm_count(x) == 108
    with simulate(arch="sm_90"):
        assert sm_count(x) == 132


@pytest.mark.gpu
def test_multiprocessors_are_those_of_the_device() -> None:
    x = torch.zeros(1, device="cuda")
    assert sm_count(x) == torch.cuda.get_device_properties(x.device).multi_processor_count


@pytest.mark.parametrize("numbers", [(5.5, 2), (5, 2.0)])
def test_cdiv_refuses_floats(numbers: tuple[Any, Any]) -> None:
    with pytest.raises(ArgumentError, match="cdiv takes two whole numbers, got 5"):
        cdiv(*numbers)


@pytest.mark.parametrize("device", ["foo", object(), 1.5])
def test_multiprocessors_of_no_device_are_refused(device: Any) -> None:
    with pytest.raises(ArgumentError, match="sm_count takes a tensor or a device"):
        sm_count(device)
