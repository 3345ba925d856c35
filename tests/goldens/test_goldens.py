"""The simulator against Hopper GPUs: each golden kernel gives what the hardware gave, and no finding."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden_case import RECORDED, Case
from golden_cases import CASES
from golden_launch import simulated
from golden_recipes import CROSSED
from tile_case import files
from tile_cases import CASES as TILE_CASES

Array = np.ndarray[Any, Any]
SEEDS = (1, 2, 3, 4, 5)
NAMES = {case.name for case in CASES}
MANIFEST = RECORDED / "manifest.json"


def manifest() -> Mapping[str, Any]:
    if not MANIFEST.exists():
        return {"cases": {}}
    read: Mapping[str, Any] = json.loads(MANIFEST.read_text("utf-8"))
    return read


def recorded(case: Case) -> dict[str, Array]:
    """What the hardware gave."""
    return unpacked(case, RECORDED / f"{case.name}.npz")


def unpacked(case: Case, path: Path) -> dict[str, Array]:
    """The outputs of a recorded file, in which bytes lie plane by plane."""
    arrays = case.arrays()
    with np.load(path) as data:
        return {
            name: np.ascontiguousarray(data[name].T).view(arrays[name].dtype).reshape(arrays[name].shape)
            for name in data.files
        }


QUICK_PROGRAMS = {"real_look_back", "real_attention", "real_scan"}
COSTLY = {
    "cluster_group",
    "cooperative_grid",
    "cooperative_tiles",
    "wgmma_layouts_shifted",
    "wgmma_layouts_wide",
}
"""Cases that take a second to compile, or go over what a neighbour of theirs does in another layout."""


def _is_quick(case: Case, arch: str) -> bool:
    """Return True for the newest architecture of a case whose instructions no other quick case has."""
    of_program = case.name.startswith("real_") and case.name not in QUICK_PROGRAMS
    other_type = case.name.endswith("_bf16") and case.name.replace("bf16", "f16") in NAMES
    return arch == case.archs[-1] and not of_program and not other_type and case.name not in COSTLY


def _launches() -> list[Any]:
    """Return each case for its architectures."""
    return [
        pytest.param(
            case, arch, id=f"{case.name}-{arch}", marks=() if _is_quick(case, arch) else pytest.mark.slow
        )
        for case in CASES
        for arch in case.archs
    ]


@pytest.mark.parametrize(("case", "arch"), _launches())
def test_the_simulator_gives_what_the_hardware_gave(case: Case, arch: str) -> None:
    given = simulated(case, arch)  # a finding is raised
    expected = recorded(case)
    differences = [
        text
        for name in case.outputs
        if (text := case.compare.difference(case.inputs, name, given[name], expected[name]))
    ]
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_recording_is_of_this_source_and_these_inputs(case: Case) -> None:
    entry = manifest()["cases"].get(case.name)
    assert entry is not None, f"{case.name} was never recorded: run tests/goldens/record.py on an H100"
    assert entry["source"] == case.digest, f"{case.name} has changed since it was recorded"
    assert entry["inputs"] == case.inputs_digest, f"the inputs of {case.name} have changed"


def test_no_recording_is_without_its_kernel() -> None:
    names = NAMES | {"tile", "tile_ir"}  # of tile kernels, all in one: test_tile.py
    assert {path.stem for path in RECORDED.glob("*.npz")} <= names
    assert set(manifest()["cases"]) <= names


def test_the_guide_counts_what_was_recorded() -> None:
    by_gpu = Counter(manifest()["made"][entry["made"]]["gpu"] for entry in manifest()["cases"].values())
    h200, h100 = (by_gpu[gpu] for gpu in ("NVIDIA H200", "NVIDIA H100 80GB HBM3"))
    tiles = sum(map(len, files(TILE_CASES).values()))
    guide = (RECORDED.parents[2] / "docs" / "howto" / "simulator.md").read_text(encoding="utf-8")
    assert f"results of {h200} kernels on an H200, and of {h100} on an H100" in guide
    spelled = [case for case in CASES if case.spelled]
    names = {row.name for case in spelled for row in case.compare.rows}
    words = " ".join(guide.split())
    assert f"{len(spelled)} of them run {len(names)} instructions on {CROSSED} operands each" in words
    assert f"those of {tiles} kernels recorded on an H100" in words


def test_the_manifest_says_what_the_goldens_were_made_with() -> None:
    made = manifest()["made"]
    assert {entry["made"] for entry in manifest()["cases"].values()} == set(made)
    for machine in made.values():
        assert machine["capability"] == "9.0"
        assert all(machine[key] for key in ("gpu", "driver", "nvrtc", "torch", "command"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_shuffled_order_finds_nothing_and_changes_nothing(case: Case, seed: int) -> None:
    shuffled = simulated(case, case.archs[0], seed)
    if not case.same_for_any_seed:
        return
    in_order = simulated(case, case.archs[0])
    for name in case.outputs:
        assert case.compare.difference(case.inputs, name, shuffled[name], in_order[name]) == ""


@pytest.mark.parametrize("case", [c for c in CASES if c.spelled], ids=lambda case: case.name)
def test_a_flipped_bit_is_seen(case: Case) -> None:
    given = recorded(case)["out"]
    told = case.compare.difference(case.inputs, "out", given, given ^ np.uint64(1))
    exact = [row.name for row in case.compare.rows if not {"approx", "full"} & {*row.name.split(".")}]
    assert all(name in told for name in exact)
