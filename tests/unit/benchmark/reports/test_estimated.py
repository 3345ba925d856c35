"""What is said where there is no GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from dotcu.benchmark.estimate import Estimate
from dotcu.benchmark.reports.report import BenchReport
from dotcu.benchmark.work import Work
from helpers.bench_reports import report


@dataclass(frozen=True)
class FakeLaunch:
    kernel: str = "add<float>"
    compile_s: float = 0.061
    cached: bool = False


def call(case: str = "float32-s0", **changes: Any) -> Any:
    """Return a stand-in for an `EstimatedCall`."""
    default: dict[str, Any] = {
        "op": "mylib::add",
        "case": case,
        "work": Work(read_bytes=8_000, written_bytes=4_000),
        "launches": (FakeLaunch(), FakeLaunch()),
        "asked_bytes": 24_000,
        "sector_efficiency": 0.5,
        "operations": {"f32": 1000, "s32": 0},
        "bound_us": 0.0025,
        "what": "memory, 4.8 TB/s",
        "notes": (),
        "compiles": True,
    }
    return SimpleNamespace(**default | changes)


def estimated(*calls: Any) -> BenchReport:
    sheet: Any = SimpleNamespace(name="H200", source="NVIDIA H200 datasheet")
    found = Estimate(sheet=sheet, calls=calls)
    return report(estimate=found)


def lines(*calls: Any) -> list[str]:
    return str(estimated(*calls)).splitlines()


def test_it_says_first_that_nothing_was_measured_and_whose_bounds_these_are() -> None:
    shown = lines(call())
    assert shown[1].startswith("bounds for H200, no measurements: the least time that its datasheet allows")
    assert shown[2] == "NVIDIA H200 datasheet"
    assert shown[-1] == "bounds only: no GPU was timed"


def test_a_call_has_what_it_moves_asks_for_computes_and_its_bound() -> None:
    (line,) = (line for line in lines(call()) if "float32-s0" in line)
    assert re.split(" {2,}", line.strip()) == [
        "float32-s0", "12.0 kB", "24.0 kB", "50 % full", "1.00k f32", "0.0025", "memory, 4.8 TB/s",
    ]  # fmt: skip


def test_a_call_that_was_not_simulated_has_its_bound_and_says_why() -> None:
    note = "the simulator cannot run it: x"
    shown = lines(call(asked_bytes=None, sector_efficiency=None, operations={}, notes=(note,)))
    assert next(line for line in shown if "float32-s0" in line).split() == [
        "float32-s0", "12.0", "kB", "0.0025", "memory,", "4.8", "TB/s",
    ]  # fmt: skip
    assert f"  {note}" in shown


def test_a_kernel_is_shown_once_with_its_compile_time() -> None:
    shown = lines(call(), call("float32-s1", launches=(FakeLaunch(cached=True),)))
    assert [line for line in shown if "add<float>" in line] == ["  add<float> took 61 ms to compile"]


def test_an_estimate_holds_and_is_no_row() -> None:
    found = estimated(call())
    assert found.passed
    plain = found.to_json()
    assert plain["rows"] == []
    assert plain["estimate"]["calls"][0]["work"]["read_bytes"] == 8_000
    assert plain["estimate"]["calls"][0]["kernels"] == [
        {"kernel": "add<float>", "seconds": 0.061, "cached": False, "launches": 2}
    ]


def test_an_estimate_of_code_that_does_not_compile_does_not_hold() -> None:
    found = estimated(call(), call("float32-s1", compiles=False, notes=("error: y is undefined",)))
    assert not found.passed
    assert "  error: y is undefined" in str(found).splitlines()
    assert str(found).splitlines()[-1] == "FAILED: 1 of 2 calls does not compile"
