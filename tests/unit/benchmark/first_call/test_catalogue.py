"""What is known of each phase."""

from __future__ import annotations

from typing import get_args

from dotcu.benchmark.first_call.catalogue import CALL, COUNTED, IN_SIMULATOR, START, about
from dotcu.stopwatch import Step


def test_every_step_that_tells_of_itself_is_known() -> None:
    assert set(get_args(Step)) <= CALL.keys()


def test_a_phase_is_before_the_call_or_in_it() -> None:
    assert not START.keys() & CALL.keys()
    assert CALL.keys() >= COUNTED


def test_without_a_gpu_some_phases_are_told_otherwise() -> None:
    assert IN_SIMULATOR.keys() <= START.keys() | CALL.keys()
    assert "cubin" in about("compile", simulated=False).why
    assert "cubin" not in about("compile", simulated=True).why
    assert about("store", simulated=True) == about("store", simulated=False)


def test_no_two_phases_have_one_label() -> None:
    labels = [each.label for each in (*START.values(), *CALL.values())]
    assert len(set(labels)) == len(labels)
