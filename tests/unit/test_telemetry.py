"""Steps tell of themselves: their times are disjoint, add up, and cost nobody else anything."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import get_args

import pytest
import torch

import dotcu
from dotcu import settings, telemetry
from dotcu.compile import cache
from dotcu.telemetry import Stopwatch


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The moment that it is now, as its only element."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_time_counts_to_the_innermost_step_and_all_of_it_to_one(clock: list[float]) -> None:
    watch = Stopwatch("call")
    clock[0] += 1
    with watch.within("build"):
        clock[0] += 2
        with watch.within("compile"):
            clock[0] += 4
        clock[0] += 8
    clock[0] += 16
    assert watch.read() == ({"call": 17, "build": 10, "compile": 4}, 131.0)
    assert watch.times == {"call": 1, "build": 1, "compile": 1}


def test_phases_may_begin_at_moments_that_have_been(clock: list[float]) -> None:
    watch = Stopwatch("interpreter", since=90.0)
    watch.switch("torch", at=92.0)
    watch.switch("dotcu", at=97.0)
    assert watch.read()[0] == {"interpreter": 2, "torch": 5, "dotcu": 3}


def test_a_step_within_the_same_step_came_once(clock: list[float]) -> None:
    watch = Stopwatch("call")
    with watch.within("ptx"), watch.within("ptx"):
        clock[0] += 1
    with watch.within("ptx"):
        clock[0] += 1
    assert (watch.read()[0]["ptx"], watch.times["ptx"]) == (2, 2)


def test_a_step_that_raises_has_ended(clock: list[float]) -> None:
    watch = Stopwatch("call")

    def fail() -> None:
        with watch.within("compile"):
            clock[0] += 1
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    clock[0] += 2
    assert watch.read()[0] == {"compile": 1, "call": 2}


def test_only_the_thread_that_listens_is_heard() -> None:
    def elsewhere() -> None:
        with telemetry.during("compile"):
            pass

    watch = Stopwatch("call")
    with telemetry.listening(watch):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert list(watch.times) == ["call"]
        with telemetry.during("compile"):
            assert watch.phase == "compile"
    with telemetry.during("store"):
        pass
    assert list(watch.times) == ["call", "compile"]


KERNEL = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'


def launch_anew() -> dict[str, float]:
    """The phases of a launch in the simulator, of a module that no memory holds."""
    cache.forget()
    kernels, watch = dotcu.load_inline(KERNEL), Stopwatch("call")
    with telemetry.listening(watch):
        kernels.twice(torch.ones(8), grid=1, block=8)
    return watch.read()[0]


def test_a_launch_reports_what_it_was_compiled_in_and_what_a_filled_cache_saved(tmp_path: Path) -> None:
    with settings.override(cache_dir=tmp_path):
        first, second = launch_anew(), launch_anew()
        cache.forget()
    saved = first.keys() - second.keys()
    assert (
        {"compile", "store"} <= saved <= {"compile", "store", "nvrtc"}
    )  # NVRTC is loaded by one of all tests
    assert second.keys() == {"call", "build", "cache", "ptx", "decode", "simulate"}
    assert first["compile"] > first["cache"] > 0


def test_every_step_is_one_that_the_source_reports() -> None:
    texts = [path.read_text(encoding="utf-8") for path in Path(dotcu.__file__).parent.rglob("*.py")]
    silent = [
        step
        for step in get_args(telemetry.TimedStep)
        if not any(
            f'"{step}"' in line for text in texts for line in text.splitlines() if "telemetry.during(" in line
        )
    ]
    assert silent == []


# -------------------------------- counters as an exporter takes them, and spans where nothing traces


def test_counts_of_all_threads_are_added_up() -> None:
    before = telemetry.metrics()
    threads = [threading.Thread(target=telemetry.count, args=("compiles",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    telemetry.count("cache_hits", place="disk")
    after = telemetry.metrics()
    assert after["dotcu_compiles_total"] == before["dotcu_compiles_total"] + 8
    hits = 'dotcu_cache_hits_total{place="disk"}'
    assert after[hits] == before[hits] + 1


def test_every_name_is_one_that_prometheus_reads() -> None:
    sample = re.compile(r'dotcu_\w+_total(\{place="\w+"\})?')
    assert [name for name in dotcu.metrics() if not sample.fullmatch(name)] == []


def test_a_block_runs_where_nothing_traces() -> None:
    with telemetry.span("compile", target="sm_90") as later:
        later["outcome"] = "miss"
    assert later == {"outcome": "miss"}
