"""What one call shows is found: every operator that is wrong in one way falls short in the check for it."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch

import dotcu
from dotcu.checking.results import CheckResult, Failed
from dotcu.checking.running import run_here as run
from dotcu.checking.subject import Subject
from dotcu.checking.target import resolve
from dotcu.checking.trials import call
from dotcu.operator import Operator
from helpers.check_reports import bare

OPERATORS = Path(__file__).parent / "operators"
FOUND = {
    "one_call_values": {
        "by_a_factor": "numerics",
        "through_half": "numerics",
        "through_float": "numerics",
        "nan_everywhere": "numerics",
        "one_in_a_thousand": "numerics",
        "some_zeroed": "numerics",
        "biased": "numerics",
        "last_is_the_one_before": "numerics",
        "one_too_many": "numerics",
        "wrong_mask": "numerics",
        "saturated": "numerics",
        "nan_then_right": "numerics",
        "conjugated": "numerics",
        "judged_by_itself": "reference",
    },
    "one_call_memory": {
        "no_tail": "written",
        "even_ones": "written",
        "nothing_launched": "written",
        "partly_out": "written",
        "beside_its_input": "bounds",
        "zeroes_its_input": "inputs",
        "sorts_its_input": "inputs",
        "through_const": "inputs",
        "leaves_all": "mutation",
        "leaves_one": "mutation",
        "named": "result",
        "lazy": "result",
        "expanded": "result",
        "view_of_its_input": "result",
        "both_the_same": "result",
        "on_another_device": "result",
        "without_memory": "result",
        "kept_memory": "result",
    },
    "one_call_order": {
        "undeclared_atomics": "determinism",
        "undeclared_noise": "determinism",
        "counts_its_calls": "determinism",
        "every_other_time": "determinism",
        "past_its_end": "sanitizer-bounds",
        "by_fours": "sanitizer-bounds",
        "unwritten_scratch": "sanitizer-init",
        "without_a_barrier": "sanitizer-race",
        "barrier_for_some": "sanitizer-barrier",
        "ends_the_process": "call",
        "raises": "call",
    },
}
CASES = [(file, name, check) for file, found in FOUND.items() for name, check in found.items()]


@functools.cache
def operators(file: str) -> dict[str, Operator]:
    return dict(resolve(str(OPERATORS / f"{file}.py")))


@functools.cache
def failures_of(file: str, name: str) -> tuple[CheckResult, ...]:
    """What falls short where every overload is called with its own samples, and nothing else is done."""
    simulator = torch.device("cpu")
    subjects = [Subject(overload=each, device=simulator) for each in operators(file)[name].overloads.values()]
    trials = [
        trial
        for subject in subjects
        for dtype in subject.overload.dtypes
        for trial in call.plan(subject, subject.given(dtype))
    ]
    return tuple(result for result in run(trials) if isinstance(result, Failed))


@pytest.mark.parametrize(("file", "name", "check"), CASES)
def test_a_call_fails_in_the_check_for_its_fault_and_in_no_other(file: str, name: str, check: str) -> None:
    failures = failures_of(file, name)
    assert {failure.check for failure in failures} == {check}, failures


FIRST_OF_EACH = [case for case in CASES if case[2] not in {c[2] for c in CASES[: CASES.index(case)]}][::2]
"""The first case of every other check; the test before this one has all."""


@pytest.mark.parametrize(
    ("file", "name", "check"),
    [pytest.param(*case, marks=() if case in FIRST_OF_EACH else pytest.mark.slow) for case in CASES],
)
def test_the_quick_level_finds_it(file: str, name: str, check: str) -> None:
    """By its calls alone: other trials hand a result without memory to torch, which crashes."""
    operator = operators(file)[name]
    calls = [f"{overload.qualified_name}/call/" for overload in operator.overloads.values()]
    report = dotcu.check(operator, device="simulator", level="quick", only=calls)
    assert check in {failure.check for failure in report.failures}, str(report)


@pytest.mark.parametrize("file", FOUND)
def test_every_operator_is_tried(file: str) -> None:
    assert set(operators(file)) == set(FOUND[file])


SAID = [
    ("one_call_values", "one_in_a_thousand", "1 of 1000 elements are wrong", "output 0[617]: got "),
    ("one_call_values", "some_zeroed", "330 of 19800 elements are wrong", "0.0, expected "),
    ("one_call_values", "biased", "output 0 as a whole is wrong: its error is 1.", "output 0["),
    ("one_call_values", "nan_then_right", "1000 of 1000 elements are not finite", "output 0[0]: got nan"),
    ("one_call_values", "one_too_many", "1 of 40 elements are wrong", "output 0[3]: got "),
    ("one_call_memory", "no_tail", "leaves 1 of 40 elements of output 0 unwritten, the first at [39]", ""),
    ("one_call_memory", "even_ones", "leaves 20 of 40 elements of output 0 unwritten, the first at [1]", ""),
    ("one_call_memory", "beside_its_input", "writes outside of its memory: next to argument 0", ""),
    ("one_call_memory", "zeroes_its_input", "changes argument 0, which it does not declare as mutated", ""),
    ("one_call_memory", "through_const", "read-only in the simulator", "const_cast<float*>(x)[i] = 0"),
    ("one_call_memory", "leaves_one", "does not change argument 2, which it declares as mutated", ""),
    ("one_call_memory", "lazy", "output 0 is a Lazy, not a torch.Tensor", ""),
    ("one_call_memory", "expanded", "output 0 has elements that share memory: its strides are [0]", ""),
    (
        "one_call_memory",
        "view_of_its_input",
        "returns an invalid result",
        "returned memory of one of its inputs",
    ),
    (
        "one_call_memory",
        "both_the_same",
        "returns an invalid result",
        "returned memory of another of its results",
    ),
    ("one_call_memory", "on_another_device", "output 0 is on meta, its inputs on cpu", ""),
    (
        "one_call_memory",
        "without_memory",
        "returns an invalid result",
        "needs 160 bytes of memory, and has 0",
    ),
    ("one_call_memory", "kept_memory", "output 0 is memory of output 0 of an earlier call", ""),
    ("one_call_order", "undeclared_atomics", "different bits at a second call", "nondeterministic_bitwise"),
    (
        "one_call_order",
        "every_other_time",
        "a second call with equal arguments fails",
        "there was a call before",
    ),
    ("one_call_order", "past_its_end", "out-of-bounds in the simulator", "`out`"),
    ("one_call_order", "ends_the_process", "it raises SystemExit", "one_call_order.py:"),
    ("one_call_order", "raises", "it raises RuntimeError", "one_call_order.py:"),
]


@pytest.mark.parametrize(("file", "name", "reason", "evidence"), SAID)
def test_what_is_said_names_the_fault_and_its_place(file: str, name: str, reason: str, evidence: str) -> None:
    outcome = bare(failures_of(file, name)[0])
    assert isinstance(outcome, Failed)
    assert reason in outcome.reason
    assert evidence in outcome.evidence


def test_only_the_overload_that_is_wrong_fails() -> None:
    failures = failures_of("one_call_memory", "partly_out")
    assert {failure.trial.overload for failure in failures} == {"wrong_memory::partly_out.out"}
