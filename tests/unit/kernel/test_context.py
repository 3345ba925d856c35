"""Who listens is told of every launch: of one that happens, and of one that is skipped."""

from __future__ import annotations

import pytest
import torch

from dotcu.errors import FindingError, LaunchConfigError
from dotcu.kernel import Module, load_inline
from dotcu.kernel.context import Intended, Place, entering, listening

SOURCE = """
template <typename T> __global__ void fill(T* x, int n) {
    extern __shared__ char unused[];
    if (threadIdx.x < n) x[threadIdx.x] = 1;
}
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return load_inline(SOURCE)


def launch(module: Module, n: int = 8) -> torch.Tensor:
    x = torch.zeros(8)
    module.fill[x.dtype](x, n, grid=2, block=(32, 2), smem_bytes=48)
    return x


@pytest.mark.parametrize("skipped", [False, True])
def test_a_listener_hears_what_is_launched_and_how(module: Module, skipped: bool) -> None:
    heard: list[Intended] = []
    with listening(heard.append), entering(Place.SKIP if skipped else Place.BODY):
        x = launch(module)
    (one,) = heard
    assert one.kernel == "fill<float>"
    assert one.unit.names == ("fill<float>",)
    assert (one.config.grid, one.config.block, one.config.smem_bytes) == ((2, 1, 1), (32, 2, 1), 48)
    assert x.eq(0 if skipped else 1).all()


def test_a_listener_hears_a_launch_before_it_fails(module: Module) -> None:
    heard: list[Intended] = []
    with listening(heard.append), pytest.raises(FindingError):
        launch(module, n=64)
    assert len(heard) == 1


def test_every_listener_hears_until_its_block_ends(module: Module) -> None:
    outer: list[Intended] = []
    inner: list[Intended] = []
    with listening(outer.append):
        with listening(inner.append):
            launch(module)
        launch(module)
    launch(module)
    assert (len(outer), len(inner)) == (2, 1)


def test_a_skipped_launch_that_nobody_hears_is_not_even_looked_at(module: Module) -> None:
    x = torch.zeros(8)
    with entering(Place.SKIP):
        module.fill[x.dtype](x, 8, grid="wrong", block=None)


def test_a_skipped_launch_that_somebody_hears_must_be_one(module: Module) -> None:
    x = torch.zeros(8)
    with listening(print), entering(Place.SKIP), pytest.raises(LaunchConfigError):
        module.fill[x.dtype](x, 8, grid="wrong", block=32)
