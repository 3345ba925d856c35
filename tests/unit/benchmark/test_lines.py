"""Dataclasses to plain values and back."""

from __future__ import annotations

import math

import pytest

from dotcu.benchmark import lines
from dotcu.benchmark.measured import Block, Call, Clocks
from dotcu.benchmark.row import Machine
from dotcu.benchmark.statistics import Ratio


def test_calls_are_written_by_column_those_of_equal_numbers_as_one_and_come_back() -> None:
    block = Block(calls=(Call(time_us=1.5, kernels=2), Call(time_us=2.5)), before=Clocks(sm_mhz=1980))
    written = lines.encode(block)
    assert (written["time_us"], written["kernels"], written["late"]) == ([1.5, 2.5], [2, None], 0)
    assert lines.decode(Block, written, "block") == block


def test_a_column_that_is_not_there_has_its_default() -> None:
    block = lines.decode(Block, {"time_us": [1, 2]}, "block")
    assert block == Block(calls=(Call(time_us=1.0), Call(time_us=2.0)))


def test_blocks_that_were_written_before_calls_had_all_their_columns_still_read() -> None:
    older = {"time_us": [1.5, 2.5], "kernels": [2, 1], "late": 0, "stray": [0, 1]}
    first, second = lines.decode(Block, older, "block").calls
    assert (first.kernels, second.stray) == (2, 1)
    assert [(call.early, call.elsewhere) for call in (first, second)] == [(0, 0)] * 2
    found = Block(calls=(Call(time_us=1.0, early=1), Call(time_us=2.0, elsewhere=3)))
    assert lines.decode(Block, lines.encode(found), "block") == found


def test_a_number_that_is_not_finite_is_null_and_comes_back_as_nan() -> None:
    written = lines.encode(Ratio(value=math.nan, low=-math.inf, high=2.0))
    assert written == {"value": None, "low": None, "high": 2.0}
    assert math.isnan(lines.decode(Ratio, written, "ratio").low)


def test_mappings_keep_their_names() -> None:
    machine = Machine(versions={"torch": "2.13"}, clocks={"sm": 1980})
    assert lines.decode(Machine, lines.encode(machine), "machine") == machine
    with pytest.raises(lines.Misfit, match=r"machine.clocks.sm: a whole number is required \(got 'fast'\)"):
        lines.decode(Machine, {"versions": {}, "clocks": {"sm": "fast"}}, "machine")
