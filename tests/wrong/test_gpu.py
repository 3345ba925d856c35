"""What only a GPU shows is found there, by the check that it is the fault of, and by no other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import dotcu
from dotcu.checking import CheckReport
from dotcu.checking.results import Failed, Passed, Skipped
from dotcu.checking.target import resolve
from dotcu.compile import toolchain
from dotcu.operator import Operator
from helpers.check_reports import bare

pytestmark = pytest.mark.gpu

FILE = Path(__file__).parent / "operators" / "gpu.py"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


@pytest.fixture(scope="module")
def operators() -> dict[str, Operator]:
    return dict(resolve(str(FILE)))


def check(operator: Operator, kind: str, level: str = "full") -> CheckReport:
    """Run the trials of one kind."""
    return dotcu.check(operator, device="cuda", level=level, only=f"{operator.qualified_name}/{kind}")


def fallen(report: CheckReport) -> set[str]:
    return {result.check for result in report.failures}


def words(report: CheckReport) -> str:
    """What is said of every failure."""
    outcomes = [bare(r) for r in report.failures if isinstance(r, Failed)]
    return "\n".join(f"{outcome.reason}\n{outcome.evidence}" for outcome in outcomes)


CAUGHT = {
    "side_stream_that_waits": ("stream", "is not complete when"),
    "side_stream_that_is_waited_for": ("stream", "reads its inputs before"),
    "default_stream": ("stream", "reads its inputs before earlier work on a side stream"),
    "synchronizing": ("graph", "cannot be captured in a CUDA graph"),
    "index_of_32_bits": ("large", "is wrong if an input has 2147483681 elements or more"),
}


@pytest.mark.parametrize("name", CAUGHT)
def test_it_is_caught_by_the_check_of_its_fault(name: str, operators: dict[str, Operator]) -> None:
    kind, said = CAUGHT[name]
    report = check(operators[name], kind)
    assert fallen(report) == {kind}, str(report)
    assert said in words(report)


@pytest.mark.parametrize("kind", ["stream", "graph", "call", "simulated"])
def test_the_sound_one_holds(kind: str, operators: dict[str, Operator]) -> None:
    report = check(operators["sound"], kind)
    assert report.passed, str(report)
    assert any(isinstance(result, Passed) for result in report.results)


def test_an_index_of_64_bits_reaches_every_element(operators: dict[str, Operator]) -> None:
    report = check(operators["index_of_64_bits"], "large")
    (result,) = report.results
    assert isinstance(result, Passed), str(report)
    assert "2147483681 for" in result.note


@pytest.mark.parametrize("kind", ["stream", "graph"])
@pytest.mark.parametrize("name", ["one_beyond", "reads_unwritten"])
def test_faults_of_another_kind_are_not_blamed_on_it(
    name: str, kind: str, operators: dict[str, Operator]
) -> None:
    assert fallen(check(operators[name], kind)) == set()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_a_result_on_the_current_device_is_on_the_wrong_one(operators: dict[str, Operator]) -> None:
    assert fallen(check(operators["current_device"], "devices")) == {"devices"}
    assert check(operators["sound"], "devices").passed


def test_an_illegal_address_is_reported_and_every_other_operator_is_checked(
    operators: dict[str, Operator],
) -> None:
    both = [operators["illegal_address"], operators["sound"]]
    only = [f"{operator.qualified_name}/call" for operator in both]
    report = dotcu.check(both, device="cuda", level="quick", only=only)
    bad = [r for r in report.failures if r.trial.overload == "wrong_gpu::illegal_address"]
    assert bad
    assert "illegal memory access" in words(report)
    assert len(bad) == len({result.trial for result in bad}), "each trial is told once"
    assert not [r for r in report.failures if r.trial.overload == "wrong_gpu::sound"], str(report)
    sound = {r.check for r in report.results if r.trial.overload == "wrong_gpu::sound"}
    assert {"numerics", "written", "bounds"} <= sound
    torch.cuda.synchronize()  # this process's own context is as it was


def test_what_an_overload_that_ends_its_process_has_left_is_skipped(operators: dict[str, Operator]) -> None:
    report = dotcu.check(operators["illegal_address"], device="cuda", level="standard")
    assert not report.passed
    rest = [r for r in report.results if isinstance(r, Skipped) and "3 times" in r.reason]
    assert rest, str(report)


FOUND_BY = {
    "one_beyond": ("memcheck", "Invalid __global__ write"),
    "racing": ("racecheck", "Race reported"),
    "reads_unwritten": ("initcheck", "Uninitialized __global__ memory read"),
    "diverging": ("synccheck", "arrier"),
}


@pytest.mark.slow
@pytest.mark.skipif(toolchain.find_tool("compute-sanitizer") is None, reason="needs compute-sanitizer")
def test_compute_sanitizers_tools_find_each_its_own(operators: dict[str, Operator]) -> None:
    chosen = [operators[name] for name in ("sound", *FOUND_BY)]
    others = ["racing/memcheck", "one_beyond/racecheck"]
    names = [f"sound/{tool}" for tool in TOOLS] + [f"{name}/{tool}" for name, (tool, _) in FOUND_BY.items()]
    only = [f"wrong_gpu::{name}" for name in (*names, *others)]
    report = dotcu.check(chosen, device="cuda", level="full", only=only)
    found = {str(r.trial).removeprefix("wrong_gpu::"): bare(r) for r in report.results}
    for name, (tool, said) in FOUND_BY.items():
        outcome = found[f"{name}/{tool}"]
        assert isinstance(outcome, Failed), (name, tool, outcome)
        assert said in f"{outcome.reason}\n{outcome.evidence}"
    for name in (*(f"sound/{tool}" for tool in TOOLS), *others):
        assert isinstance(found[name], Passed), (name, found[name])
