"""A first call on a GPU: its phases occur in the right processes, and later calls are cached."""

from __future__ import annotations

import pytest

from dotcu.benchmark.first_call import FirstCall, FirstCallRun, first_call

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def found() -> FirstCall:
    return first_call("dotcu.gallery", "add")


def ms(run: FirstCallRun, stage: str, name: str) -> float:
    phases = run.phases[stage]  # type: ignore[index]
    assert name in phases, f"{name} is not among {list(phases)}"
    return phases[name][0]


def test_a_gpu_is_started_before_the_call_and_loaded_in_it(found: FirstCall) -> None:
    assert not found.simulated
    for run in found.runs:
        assert ms(run, "start", "cuda") + ms(run, "start", "context") > 10
        for name in ("allocator", "inputs"):
            assert ms(run, "start", name) >= 0
        for name in ("bindings", "ptx", "launch", "replay", "wait"):
            assert ms(run, "call", name) >= 0
        assert "simulate" not in run.phases["call"]


def test_the_code_is_a_cubin_or_the_driver_compiles_it(found: FirstCall) -> None:
    for run in found.runs:
        loads = {name for name in ("library", "kernel", "jit") if name in run.phases["call"]}
        assert loads in ({"library", "kernel"}, {"jit"})


def test_a_filled_cache_saves_the_compiler(found: FirstCall) -> None:
    empty, filled = found.runs
    assert ms(empty, "call", "compile") > 5
    assert "compile" not in filled.phases["call"]
    assert "nvrtc" not in filled.phases["call"]
    assert filled.stage_ms("call") < empty.stage_ms("call")


def test_the_phases_account_for_the_whole(found: FirstCall) -> None:
    for run in found.runs:
        assert abs(run.remainder_ms) < 0.02 * run.whole_ms


def test_later_calls_are_cached(found: FirstCall) -> None:
    assert found.recorded
    for run in found.runs:
        assert min(run.later_ms[2:]) < run.later_ms[0] < run.stage_ms("call")
    assert "made by the call cache" in str(found)
