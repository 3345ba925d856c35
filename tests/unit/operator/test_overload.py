"""An overload: `warm()` calls everything once, and leaves torch as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu import gallery
from dotcu.errors import CaptureError, UsageError
from dotcu.kernel import cuda
from helpers import sample_operators

ALL = {"times<float>", "plus<float>", "times<double>", "plus<double>"}


@pytest.fixture
def kernels() -> dotcu.Module:
    return sample_operators.fresh_module()


@pytest.fixture
def axpy(kernels: dotcu.Module) -> dotcu.operator.Operator:
    return sample_operators.make_axpy(kernels)


def compiled(kernels: dotcu.Module) -> set[str]:
    return {name for unit in kernels.units() if unit.codes() for name in unit.names if "<" in name}


def test_every_kernel_of_body_and_backward_is_compiled_in_every_dtype(axpy, kernels) -> None:
    assert compiled(kernels) == set()
    axpy.warm()
    assert compiled(kernels) == ALL


def test_random_numbers_and_the_grad_mode_stay_as_they_were(axpy, device) -> None:
    def drawn() -> tuple[float, float]:
        return torch.rand(()).item(), torch.rand((), device=device).item()

    torch.manual_seed(3)
    expected = drawn()
    torch.manual_seed(3)
    with torch.no_grad():
        axpy.warm()
        assert not torch.is_grad_enabled()
    assert drawn() == expected
    axpy.warm()
    assert torch.is_grad_enabled()


def test_samples_are_made_once_and_not_written_and_get_no_gradient(axpy) -> None:
    kept: list[Tensor] = []

    @axpy.samples
    def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
        kept.append(torch.ones(4, device=device, dtype=dtype))
        yield dotcu.Sample(kept[-1], kept[-1], 2.0)

    axpy.warm()
    assert len(kept) == len(axpy.dtypes) * max(1, torch.cuda.device_count())
    assert all(not tensor.requires_grad and tensor.grad is None for tensor in kept)
    assert all(tensor.tolist() == [1.0] * 4 for tensor in kept)


@pytest.fixture
def calls(axpy: dotcu.operator.Operator) -> list[str]:
    """Calls of two overloads, which this adds; only one of them can have the operator's samples."""
    seen: list[str] = []

    @axpy.overload("out", mutates_args=("out",))
    def _(a: Tensor, b: Tensor, alpha: float = 1.0, *, out: Tensor) -> None:
        seen.append(f"out {out.dtype} {tuple(out.shape)}")
        out.copy_(axpy(a, b, alpha))

    @axpy.overload("Scalar")
    def _(a: Tensor, number: float) -> Tensor:
        seen.append("Scalar")
        return a + number

    return seen


def test_all_overloads_are_warmed_and_out_on_the_samples_of_the_operator(axpy, calls) -> None:
    axpy.overloads["Scalar"].samples(lambda device, dtype: [dotcu.Sample(torch.ones(2), 3.0)])
    axpy.warm()
    assert {"Scalar", "out torch.float32 (300,)", "out torch.float64 (1,)"} <= set(calls)


def test_an_overload_without_samples_is_named_after_the_others_are_warm(axpy, calls, kernels) -> None:
    with pytest.raises(UsageError, match=r"axpy\d+\.Scalar(.|\n)*axpy\d+\.samples(.|\n)*kernels\.warm\(\)"):
        axpy.warm()
    assert compiled(kernels) == ALL
    assert "Scalar" not in calls


def test_an_overload_can_be_warmed_alone(axpy, calls) -> None:
    axpy.overloads["out"].warm()
    assert any(call.startswith("out") for call in calls)


def test_samples_that_are_none_count_as_no_samples(axpy) -> None:
    axpy.samples(lambda device, dtype: ())
    with pytest.raises(UsageError, match="there are none of"):
        axpy.warm()


def test_an_operator_that_writes_its_argument_is_warmed(device) -> None:
    @dotcu.op("warming_test::increment", mutates_args=("x",))
    def increment(x: Tensor) -> None:
        x.add_(1)

    seen: list[Any] = []
    increment.samples(lambda device, dtype: seen.append(torch.zeros(2)) or [dotcu.Sample(seen[-1])])
    increment.warm()
    assert seen[-1].tolist() == [1.0, 1.0]


def test_warming_during_a_capture_is_refused(axpy, monkeypatch) -> None:
    monkeypatch.setattr(cuda, "capturing", lambda: True)
    with pytest.raises(CaptureError, match=r"axpy\d+\.warm\(\) was called while(.|\n)*Before the capture"):
        axpy.warm()


@pytest.mark.parametrize("name", ["square", pytest.param("sum", marks=pytest.mark.slow)])
def test_operators_of_the_gallery_can_be_warmed(name: str) -> None:
    getattr(gallery, name).warm()


def test_samples_that_are_given_are_compiled_ahead_with_progress(axpy, kernels, cache_dir, device) -> None:
    done: list[tuple[int, int]] = []
    x = torch.ones(4, device=device, dtype=torch.float64)
    axpy.warm([dotcu.Sample(x, x, 2.0)], progress=lambda *counts: done.append(counts))
    assert compiled(kernels) == {"times<double>", "plus<double>"}
    assert done[0][0] == 0
    assert done[-1][0] == done[-1][1] > 0
    assert x.tolist() == [1.0] * 4
    done.clear()
    axpy.warm([dotcu.Sample(x, x, 2.0)], progress=lambda *counts: done.append(counts))
    assert done == []


@pytest.mark.parametrize("wrong", [[torch.ones(2)], [(torch.ones(2), 1.0)], [None]], ids=str)
def test_what_is_no_sample_is_refused(axpy, wrong) -> None:
    with pytest.raises(UsageError, match=r"takes samples, got .*\n.*dotcu\.Sample"):
        axpy.warm(wrong)
