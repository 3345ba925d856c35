"""Operators that are right on their own samples are caught on a call that dotcu derives."""

from __future__ import annotations

from pathlib import Path

import pytest

import dotcu
from dotcu.checking.target import resolve
from helpers.quick_cases import quick

OPERATORS = dict(resolve(str(Path(__file__).parent / "operators" / "calls.py")))

CAUGHT = {
    # by name: the overload, the checks that it falls short in, and calls that show it
    "ignores_strides": ("", {"numerics"}, ["call/float32-s0-transposed"]),
    "loads_by_fours": ("", {"sanitizer-bounds"}, ["call/float32-s0-offset-1", "call/float32-s0-offset-3"]),
    "leaves_the_tail": ("", {"numerics", "errors"}, ["call/float32-s0-n257", "errors/float32-s0-a-wider"]),
    "knows_one_size": ("", {"numerics", "errors"}, ["call/float32-s0-n33", "errors/float32-s0-a-wider"]),
    "forgets_the_empty": ("", {"written", "errors"}, ["call/int32-s0-n0"]),
    "takes_any_bits": ("", {"errors", "sanitizer-bounds"}, ["errors/float32-s0-a-float64"]),
    "trusts_shapes": ("", {"errors", "sanitizer-bounds"}, ["errors/float32-s0-a-wider"]),
    "drops_nan": ("", {"numerics"}, ["call/float32-s0-nan"]),
    "loses_minus_zero": ("", {"numerics"}, ["call/float32-s0-minus-zero"]),
    "flushes_denormals": ("", {"numerics"}, ["call/float32-s0-tiny"]),
    "saturates": ("", {"numerics"}, ["call/int32-s0-extremes"]),
    "asserts": ("", {"errors"}, ["call/float32-s0-0d", "errors/float32-s0-a-unsqueezed"]),
    "checks_no_out": (".out", {"errors"}, ["errors/float32-s0-out-wider"]),
}


def test_every_operator_has_its_row() -> None:
    assert set(CAUGHT) == set(OPERATORS)


QUICK = {
    "ignores_strides",
    "loads_by_fours",
    "leaves_the_tail",
    "forgets_the_empty",
    "trusts_shapes",
    "drops_nan",
}
"""The faults that kernels have most often."""


@pytest.mark.parametrize("name", quick(QUICK, CAUGHT))
def test_it_is_caught_on_a_derived_call_alone(name: str) -> None:
    overload, checks, calls = CAUGHT[name]
    subject = f"wrong_calls::{name}{overload}"
    only = [f"{subject}/call/", f"{subject}/errors/"]
    report = dotcu.check(OPERATORS[name], device="simulator", level="quick", only=only)
    caught = {str(failure.trial) for failure in report.failures}
    assert {failure.check for failure in report.failures} == checks, str(report)
    assert {f"{subject}/{call}" for call in calls} <= caught
    assert not [trial for trial in caught if trial.endswith(("/float32-s0", "/int32-s0"))]
