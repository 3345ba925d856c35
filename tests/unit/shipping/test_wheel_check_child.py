"""The calls of an installed package's operators."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.shipping import wheel_check_child
from helpers import forked_scripts

kernels = dotcu.load_inline("""
__global__ void copy(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i];
}
""")
aligned: list[bool] = []


@dotcu.op("test_trial::copied")
def copied(x: Tensor) -> Tensor:
    """As x; notes whether that is aligned, by which a body may choose its kernel."""
    out = torch.empty_like(x)
    aligned.append(dotcu.is_aligned(x, 16))
    kernels.copy(x, out, x.numel(), grid=1, block=32)
    return out


@copied.reference
def _(x: Tensor) -> Tensor:
    return x.clone()


@copied.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.ones(8, device=device, dtype=dtype))
    yield dotcu.Sample(torch.ones(9, device=device, dtype=dtype)[1:])


@dotcu.op("test_trial::shifted")
def shifted(x: Tensor) -> Tensor:
    """Said to be x + 1, and as x: on a GPU, too, the check asks the reference and not the kernel."""
    out = torch.empty_like(x)
    kernels.copy(x, out, x.numel(), grid=1, block=32)
    return out


@shifted.reference
def _(x: Tensor) -> Tensor:
    return x + 1


@shifted.samples
def _(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
    yield dotcu.Sample(torch.ones(8, device=device, dtype=dtype))


def _hide() -> dict[str, Any]:
    @dotcu.op("test_trial::hidden")
    def hidden(x: Tensor) -> Tensor:
        return x.clone()

    hidden.samples(lambda device, dtype: [dotcu.Sample(torch.ones(8, device=device, dtype=dtype))])
    return {"hidden": hidden}


_hidden = _hide()


@dotcu.op("test_trial::refused")
def refused(x: Tensor) -> Tensor:
    """As x; its reference raises an error that is not dotcu's."""
    return x.clone()


@refused.reference
def _(x: Tensor) -> Tensor:
    raise ValueError("no such size")


refused.samples(lambda device, dtype: [dotcu.Sample(torch.ones(8, device=device, dtype=dtype))])


@dotcu.op("test_trial::left")
def left(x: Tensor) -> Tensor:
    """As x; its reference ends the process, as if all were well."""
    return x.clone()


@left.reference
def _(x: Tensor) -> Tensor:
    sys.exit(0)


left.samples(lambda device, dtype: [dotcu.Sample(torch.ones(8, device=device, dtype=dtype))])


@dotcu.op("test_trial::differentiated")
def differentiated(x: Tensor) -> Tensor:
    """As x; its backward calls an operator that fails."""
    out = torch.empty_like(x)
    kernels.copy(x, out, x.numel(), grid=1, block=32)
    return out


differentiated.reference(torch.clone)
differentiated.samples(lambda device, dtype: [dotcu.Sample(torch.ones(8, device=device, dtype=dtype))])


@differentiated.backward
def _(ctx: Any, grad: Tensor) -> Tensor:
    return copied(grad.double())


def test_a_gradient_that_cannot_be_computed_is_reported() -> None:
    (row,) = wheel_check_child.rows([f"{__name__}:differentiated"])
    assert "takes a contiguous float32 tensor" in row["fault"]


def test_every_operator_that_a_package_registers_is_tried() -> None:
    script = (  # in a process of its own: other tests of this package register more
        "from dotcu.shipping.wheel_check_child import rows\n"
        f"for row in rows([{__name__!r}]): print(row['operator'])"
    )
    assert sorted(forked_scripts.run(script).stdout.split()) == [
        "test_trial::copied",
        "test_trial::differentiated",
        "test_trial::hidden",
        "test_trial::left",
        "test_trial::refused",
        "test_trial::shifted",
    ]


@pytest.mark.parametrize(
    ("name", "fault"), [("refused", "ValueError: no such size"), ("left", "SystemExit: 0")]
)
def test_an_error_of_the_package_itself_is_reported(name: str, fault: str) -> None:
    (row,) = wheel_check_child.rows([f"{__name__}:{name}"])
    assert fault in row["fault"]


def test_a_kernel_that_is_wrong_is_reported() -> None:
    (row,) = wheel_check_child.rows([f"{__name__}:shifted"])
    assert "values differ from the reference's" in row["fault"]


def test_samples_begin_where_they_begin() -> None:
    aligned.clear()
    (row,) = wheel_check_child.rows([f"{__name__}:copied"])
    assert (row["samples"], row["fault"]) == (2, "")
    assert {True, False} == set(aligned)
