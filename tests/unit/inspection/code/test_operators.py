from __future__ import annotations

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.compile import Target
from dotcu.inspection.code.operators import kernels_of
from helpers.derivable_operators import operator

OLD, NEW = Target.parse("sm_80"), Target.parse("sm_90")
kernels = dotcu.load_inline("""
__global__ void hopper(float* y) {
#if __CUDA_ARCH__ < 900
#error "for Hopper"
#endif
    y[0] = 1;
}
""")


def asks(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    kernels.hopper(y, grid=kernels.hopper.occupancy(32), block=32)
    return y


def launches(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    kernels.hopper(y, grid=1, block=32)
    return y


@pytest.mark.slow
def test_an_architecture_that_fails_leaves_the_others() -> None:
    for body in (asks, launches):
        built, _ = kernels_of([operator(body, dotcu.Sample(torch.ones(3)))], [OLD, NEW], counts=True)
        (failure,) = built.failed
        assert (failure.arch, failure.names) == (OLD, ("hopper",))
        assert "for Hopper" in failure.message
        assert [code.name for code, _ in built.kernels] == ["hopper"]
        assert [code.arch for code, _ in built.kernels] == [NEW]


def test_where_no_architecture_works_the_compilers_messages_are_kept() -> None:
    built, _ = kernels_of([operator(asks, dotcu.Sample(torch.ones(3)))], [OLD], counts=True)
    assert built.kernels == ()
    (failure,) = built.failed
    assert (failure.arch, failure.names) == (OLD, ())
    assert "for Hopper" in failure.message


def test_counting_is_done_for_an_architecture_that_works() -> None:
    _, counts = kernels_of([operator(asks, dotcu.Sample(torch.ones(3)))], [OLD, NEW], counts=True)
    assert "hopper" in counts


def test_counting_can_be_left_out() -> None:
    _, counts = kernels_of([operator(launches, dotcu.Sample(torch.ones(3)))], [NEW], counts=False)
    assert counts == {}
