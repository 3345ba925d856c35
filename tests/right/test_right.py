"""Correct kernels that use legal tricks: no finding and the right result, in whatever order warps run."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.quick_cases import quick
from right.cases import CORPUS

HERE = Path(__file__).parent
COSTLY = {
    "atomic_ref",
    "barrier_object",
    "grid_barrier",
    "groups_of_groups",
    "pipeline_object",
    "steps_between_grid_barriers",
    "tiles_of_a_warp",
}
"""Kernels that include cooperative_groups.h or libcu++, two seconds of compiling."""
SEEDS = (None, 0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (-1, 1, 2, 3, 4)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", quick({*CORPUS.cases} - COSTLY, CORPUS.cases))
def test_kernel_is_clean(name: str, seed: int | None) -> None:
    CORPUS.launch(name, seed=seed).require_clean()


QUICK_IN_DEBUG = {"cluster_matmul", "wgmma_layouts"}


@pytest.mark.parametrize("name", quick(QUICK_IN_DEBUG, CORPUS.cases))
def test_kernel_is_clean_in_code_for_debugging(name: str) -> None:
    CORPUS.launch(name, seed=None, debug=True).require_clean()


def test_every_kernel_is_launched() -> None:
    assert sorted(CORPUS.cases) == sorted(path.stem for path in HERE.glob("*.cu"))
