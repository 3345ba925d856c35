"""`checks()`: what pytest makes of three lines. A pytest of its own runs them, in a folder of its own."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from dotcu import errors
from dotcu.checking import checks, planning, pytest_plugin
from dotcu.gallery import add, square
from helpers import forked_scripts

PLUGIN = "dotcu.checking.pytest_plugin"
INSTALLED = any(entry.value == PLUGIN for entry in entry_points(group="pytest11"))
"""Whether pytest finds the plugin by itself: a checkout that was installed before there was one lacks it."""

OPS = """
import torch
from torch import Tensor

import dotcu
from dotcu.checking import planning
from dotcu.checking.results import skipped


def samples(device, dtype):
    return [dotcu.Sample(torch.zeros(n, device=device, dtype=dtype)) for n in (1, 2)]


@dotcu.op("theirs::right", dtypes=(torch.float32, torch.float64))
def right(a: Tensor) -> Tensor:
    return a + 1


@dotcu.op("theirs::wrong")
def wrong(a: Tensor) -> Tensor:
    return a + 2


@wrong.overload("out", mutates_args=("out",))
def _(a: Tensor, *, out: Tensor) -> None:
    out.copy_(a + 1)


for operator in (right, wrong):
    operator.reference(lambda a: a + 1)
    operator.samples(samples)


@dotcu.op("theirs::unready")
def unready(a: Tensor) -> Tensor:
    return a + 1


@unready.samples
def _(device, dtype):
    return [dotcu.Sample(torch.zeros(int("n")))]


@dotcu.op("theirs::untried")
def untried(a: Tensor) -> Tensor:
    return a + 1


def plan(subject, plan=planning.plan):
    yield from plan(subject)
    if subject.name == "theirs::right":
        yield skipped(subject, "graph", "for the test")


planning.plan = plan
"""
FILE = """
import theirs
from dotcu.checking import checks

test_ops = checks(theirs, device="simulator")
"""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A run of pytest.

    Attributes:
        outcomes: What became of each test, by what stands in the brackets of its name.
        properties: Of each of these tests, what JUnit has.
    """

    output: str
    outcomes: Mapping[str, str]
    properties: Mapping[str, Mapping[str, str]]


def run(folder: Path, *words: str) -> Ran:
    plugin = () if INSTALLED else ("-p", PLUGIN)
    given = ("-v", "-rs", "-p", "no:cacheprovider", "--junitxml=junit.xml", *plugin, *words)
    script = f"import sys, pytest; sys.exit(pytest.main({[*given]}))"
    done = forked_scripts.run(script, folder=folder)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    outcomes, properties = {}, {}
    for case in ElementTree.parse(folder / "junit.xml").iter("testcase"):
        name = str(case.get("name")).removeprefix("test_ops[").removesuffix("]")
        found = {child.tag for child in case} - {"properties"}
        outcomes[name] = found.pop() if found else "passed"
        properties[name] = {str(one.get("name")): str(one.get("value")) for one in case.iter("property")}
    return Ran(output=done.stdout, outcomes=outcomes, properties=properties)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("theirs")
    (folder / "theirs.py").write_text(OPS)
    (folder / "test_ops.py").write_text(FILE)
    return folder


PICKED = ".call.float32-s0 or .call.float64-s1 or theirs.right.graph or .plan"


@pytest.fixture(scope="module")
def ran(folder: Path) -> Ran:
    """One run for many tests."""
    return run(folder, "-k", PICKED)


def test_each_trial_is_a_test_with_its_own_name(ran: Ran) -> None:
    names = [name for name in ran.outcomes if ".call.float32-s0" in name or ".call.float64-s1" in name]
    assert {name: ran.outcomes[name] for name in names if name.endswith(("-s0", "-s1"))} == {
        "theirs.right.call.float32-s0": "passed",
        "theirs.right.call.float64-s1": "passed",
        "theirs.wrong.call.float32-s0": "failure",
        "theirs.wrong.out.call.float32-s0": "passed",
    }


def test_a_failure_has_reason_and_evidence_and_no_traceback(ran: Ran) -> None:
    assert "theirs::wrong/call/float32-s0 FAILED numerics: 1 of 1 elements are wrong; " in ran.output
    assert "\n    output 0[0]: got 2.0, expected 1.0\n" in ran.output
    assert (
        "pytest_plugin.py:" not in ran.output.partition("= FAILURES =")[2].partition("short test summary")[0]
    )


def test_what_was_not_looked_at_is_skipped_with_the_reason(ran: Ran) -> None:
    assert ran.outcomes["theirs.right.graph"] == "skipped"
    assert "graph: for the test" in ran.output.partition("short test summary")[2]


def test_samples_that_fail_are_a_failing_test(ran: Ran) -> None:
    assert ran.outcomes["theirs.unready.plan"] == "failure"
    assert "the samples of theirs::unready failed for torch.float32" in ran.output
    assert "ValueError: invalid literal for int() with base 10: 'n'" in ran.output


def test_an_operator_without_samples_is_a_failing_test(ran: Ran) -> None:
    assert ran.outcomes["theirs.untried.plan"] == "failure"
    assert "give the operator samples, with @untried.samples" in ran.output


def test_junit_has_what_each_check_came_to(ran: Ran) -> None:
    wrong = ran.properties["theirs.wrong.call.float32-s0"]
    assert wrong["trial"] == "theirs::wrong/call/float32-s0"
    assert wrong["written"] == "passed"
    assert wrong["numerics"].startswith("failed: 1 of 1 elements are wrong; ")
    assert ran.properties["theirs.right.call.float32-s0"]["numerics"] == "passed, error: 0 % of the tolerance"
    assert ran.properties["theirs.right.graph"]["graph"] == "skipped: for the test"


def test_tests_stand_in_the_users_file(ran: Ran) -> None:
    lines = [line for line in ran.output.splitlines() if line.startswith("test_ops.py::")]
    assert lines
    assert not [line for line in lines if "<-" in line]


@pytest.mark.slow
def test_the_line_that_runs_a_test_again_runs_that_test_with_the_options_given(folder: Path) -> None:
    node = "test_ops.py::test_ops[theirs.wrong.call.float32-s0]"
    again = run(folder, "--dotcu-seed", "3", node)
    assert again.outcomes == {"theirs.wrong.call.float32-s0": "failure"}
    assert f"    again: pytest --dotcu-seed 3 '{node}'\n" in again.output


@pytest.mark.slow
def test_two_workers_find_the_same_tests(folder: Path, ran: Ran) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    assert run(folder, "-n2", "-k", PICKED).outcomes == ran.outcomes


class Collecting:
    """A `Metafunc`, as far as the plugin looks at it."""

    def __init__(self, function: Any, **given: Any) -> None:
        self.function, self.config, self._given = function, self, given
        self.cases: list[Any] = []
        self.ids: list[str] = []
        pytest_plugin.pytest_generate_tests(self)  # type: ignore[arg-type]

    def getoption(self, name: str) -> Any:
        return self._given.get(name)

    def parametrize(self, name: str, cases: list[Any], ids: list[str]) -> None:
        self.cases, self.ids = cases, ids


def test_a_function_of_others_is_left_alone() -> None:
    assert Collecting(shlex.split).ids == []


def test_an_operator_several_or_a_module_may_be_given() -> None:
    module = ModuleType("theirs")
    vars(module).update(add=add, square=square, other=5)
    one, several, all_of_it = (
        Collecting(checks(target, device="simulator")).ids  # type: ignore[arg-type]
        for target in (square, [add, square], module)
    )
    assert one[0] == "dotcu.square.reference.float32-s0"
    assert several == all_of_it
    assert set(one) < set(several)
    assert len(set(several)) == len(several)


def test_the_level_is_quick_and_the_command_line_goes_before_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[str, int]] = []

    def plan(subject: Any) -> list[Any]:
        seen.append((subject.level.name, subject.seed))
        return []

    monkeypatch.setattr(planning, "plan", plan)
    Collecting(checks(square, device="simulator"))
    Collecting(checks(square, device="simulator", level="standard", seed=2))
    Collecting(checks(square, device="bogus", seed=2), dotcu_level="full", dotcu_device="simulator")
    Collecting(checks(square, seed=2), dotcu_seed=0, dotcu_device="simulator")
    assert seen[::2] == [("QUICK", 0), ("STANDARD", 2), ("FULL", 2), ("QUICK", 0)]  # of two overloads each


def test_a_device_that_is_not_there_is_a_failing_test() -> None:
    found = Collecting(checks(square), dotcu_device="bogus")
    assert found.ids == ["plan"]
    assert str(found.cases[0]) == "device='bogus': give 'cuda' or 'simulator'."


def test_a_module_without_operators_is_wrong_usage() -> None:
    with pytest.raises(errors.UsageError, match=r"no_ops defines no operator\.\nA function becomes one"):
        checks(ModuleType("no_ops"))


def test_what_is_no_operator_is_wrong_usage() -> None:
    with pytest.raises(errors.UsageError, match="got 5"):
        checks([square, 5, add])  # type: ignore[list-item]


def test_a_level_that_there_is_not_is_wrong_usage() -> None:
    with pytest.raises(errors.UsageError, match="use one of quick, standard, full"):
        checks(square, level="fast")


def test_the_plugin_itself_loads_no_torch() -> None:
    script = f"import sys, {PLUGIN}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"torch", "numpy", "rich"}.isdisjoint(done.stdout.split())
