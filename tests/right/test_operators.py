"""Sound operators hold, however odd: a false alarm would be a fault of the check."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

import dotcu
from dotcu.checking import CheckReport
from dotcu.checking.results import Passed, Skipped
from dotcu.checking.target import resolve
from dotcu.operator import Operator
from helpers.check_reports import bare

OPERATORS = Path(__file__).parent / "operators"
NAMES = {
    "arguments": (
        "shifted",
        "total",
        "power",
        "turned",
        "flipped",
        "half_polynomial",
        "transposed",
        "contiguous_only",
        "multiplied",
    ),
    "results": (
        "axpy_",
        "averaged",
        "added",
        "parts",
        "largest_at",
        "nothing",
        "dotted",
        "cast",
        "quantized",
        "to_fp8",
        "times_i",
    ),
    "gradients": (
        "saved_view",
        "saved_detached",
        "saved_copy",
        "rounded_often",
        "saved_result",
        "broadcast",
    ),
    "chance": ("summed", "dropped", "noisy", "sigmoid"),
}
QUICK = ("chance", "summed")  # the full level takes seconds: the others run with the slow tests
CASES = [
    pytest.param(file, name, marks=() if (file, name) == QUICK else pytest.mark.slow)
    for file, names in NAMES.items()
    for name in names
]


@functools.cache
def operators(file: str) -> dict[str, Operator]:
    return dict(resolve(str(OPERATORS / f"{file}.py")))


@functools.cache
def report_of(file: str, name: str) -> CheckReport:
    return dotcu.check(operators(file)[name], device="simulator", level="full")


@pytest.mark.parametrize(("file", "name"), CASES)
def test_a_sound_operator_holds(file: str, name: str) -> None:
    report = report_of(file, name)
    assert report.passed, str(report)


@pytest.mark.parametrize(("file", "name"), CASES)
def test_its_values_are_looked_at(file: str, name: str) -> None:
    calls = [r for r in report_of(file, name).results if r.trial.kind == "call"]
    for check in ("written", "bounds", "inputs", "result", "sanitizer-bounds"):
        assert all(isinstance(r, Passed) for r in calls if r.check == check)
    skipped = {bare(r) for r in calls if r.check == "numerics" and not isinstance(r, Passed)}
    random = {Skipped(reason="declared random, and so is its reference")}
    assert skipped == (random if name == "noisy" else set())


def test_what_is_declared_is_reported() -> None:
    outcomes = {bare(r) for r in report_of("chance", "summed").results if r.check == "determinism"}
    assert outcomes == {Skipped(reason="declared nondeterministic by a tag")}


@pytest.mark.parametrize("file", NAMES)
def test_every_operator_is_tried(file: str) -> None:
    assert set(operators(file)) == set(NAMES[file])
