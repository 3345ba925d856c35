"""A first call on a GPU: its phases occur in the right processes, and later calls are cached."""

from __future__ import annotations

from typing import Any

import pytest

from dotcu.benchmark.first_call import FirstCall, first_call
from helpers.first_call_reports import stage

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def found() -> FirstCall:
    return first_call("dotcu.gallery", "add")


def ms(run: Any, of: str, name: str) -> float:
    phases = stage(run, of)
    assert name in phases, f"{name} is not among {list(phases)}"
    return phases[name]


def test_a_gpu_is_started_before_the_call_and_loaded_in_it(found: FirstCall) -> None:
    assert found.device != "simulator"
    for run in found.runs:
        assert ms(run, "start", "cuda") + ms(run, "start", "context") > 10
        for name in ("allocator", "inputs"):
            assert ms(run, "start", name) >= 0
        for name in ("bindings", "ptx", "launch", "wait"):
            assert ms(run, "call", name) >= 0
        assert "simulate" not in stage(run, "call")


def test_the_code_is_a_cubin_or_the_driver_compiles_it(found: FirstCall) -> None:
    for run in found.runs:
        loads = {name for name in ("library", "kernel", "jit") if name in stage(run, "call")}
        assert loads in ({"library", "kernel"}, {"jit"})


def test_a_filled_cache_saves_the_compiler(found: FirstCall) -> None:
    empty, filled = found.runs
    assert ms(empty, "call", "compile") > 5
    assert not {"compile", "nvrtc"} & stage(filled, "call").keys()
    assert filled["call_ms"] < empty["call_ms"]


def test_the_phases_account_for_the_whole(found: FirstCall) -> None:
    for run in found.runs:
        assert abs(run["remainder_ms"]) < 0.02 * run["whole_ms"]


def test_later_calls_take_less(found: FirstCall) -> None:
    for run in found.runs:
        assert min(run["later_ms"][2:]) < run["later_ms"][0] < run["call_ms"]
