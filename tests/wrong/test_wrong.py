"""Every planted fault is found, as what it is and where it is; without the fault nothing is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from helpers.kernel_cases import Marks, read_marks
from helpers.quick_cases import quick
from wrong.cases import CORPUS

HERE = Path(__file__).parent
SEEDS = (None, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 1)))

COSTLY = {
    "cluster_block_exits_early",
    "cluster_histogram_not_zeroed_in_time",
    "cluster_read_before_the_sync",
    "cluster_tile_refilled_too_early",
    "collective_of_half_a_tile",
    "grid_sync_of_an_ordinary_launch",
}
"""Kernels that include cooperative_groups.h, a second of compiling."""
PLANTED = {name: read_marks(CORPUS.path(name)).kind for name in CORPUS.cases if name not in COSTLY}
FIRST_OF_ITS_KIND = {kind: name for name, kind in reversed(PLANTED.items())}.values()

by_seed = pytest.mark.parametrize("seed", SEEDS)
every_kernel = pytest.mark.parametrize("name", CORPUS.cases)


@by_seed
@pytest.mark.parametrize("name", quick(PLANTED, CORPUS.cases))
def test_fault_is_found(name: str, seed: int | None) -> None:
    marks = read_marks(CORPUS.path(name))
    findings = CORPUS.launch(name, seed=seed).findings
    assert findings
    for finding in findings:
        assert finding.kind in kinds(marks, seed), str(finding)
        assert Path(finding.file) == CORPUS.path(name)
    if marks.others:
        own = [f for f in findings if f.kind == marks.kind and f.line not in marks.consequences]
        require_two_sides(own, marks)
    else:
        assert {f.line for f in findings} == marks.faults, [str(f) for f in findings]


def kinds(marks: Marks, seed: int | None) -> set[str]:
    """What the fault may be called: who reads before the racing write finds nothing written there."""
    racing_read = marks.kind in ("race", "proxy-fence") and seed is not None
    return {marks.kind, "uninitialized-read"} if racing_read else {marks.kind}


def require_two_sides(findings: list[Any], marks: Marks) -> None:
    """A fault between two lines is found at one of them, and the message names the other."""
    assert findings
    for finding in findings:
        assert finding.line in marks.faults | marks.others, str(finding)
        named = {int(line) for line in re.findall(r"\bline (\d+)", finding.message)}
        if "the same line" in finding.message or "in this instruction" in finding.message:
            named.add(finding.line)
        others = marks.others if finding.line in marks.faults else marks.faults
        assert named & others, str(finding)


@by_seed
@pytest.mark.parametrize("name", quick(FIRST_OF_ITS_KIND, CORPUS.cases))
def test_twin_is_clean(name: str, seed: int | None) -> None:
    CORPUS.launch(name, seed=seed, define={"FIXED": None}).require_clean()


def test_every_kernel_is_launched() -> None:
    assert sorted(CORPUS.cases) == sorted(path.stem for path in HERE.glob("*.cu"))


@every_kernel
def test_every_race_has_two_sides(name: str) -> None:
    marks = read_marks(CORPUS.path(name))
    assert marks.faults
    assert marks.others or marks.kind not in ("race", "proxy-fence")
