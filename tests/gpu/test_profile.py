"""Profiling on a GPU: what is shown is what ncu says of the same report by another of its pages."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dotcu.profiling import ncu, profile
from dotcu.profiling.report import KernelProfile, OperatorProfile

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.usefixtures("alone")]

CASES = {"square": "2^26", "sum": "2^26", "matmul": "1024x1024:1024x1024"}
KERNELS = Path(__file__).parents[2] / "src" / "dotcu" / "gallery"

# Section and label on the page of details, and our key; what it prints in base units, in which ours are
# but for the time.
SHOWN = {
    ("GPU Speed Of Light Throughput", "Compute (SM) Throughput"): ("compute_percent", 1.0),
    ("GPU Speed Of Light Throughput", "Memory Throughput"): ("memory_percent", 1.0),
    ("GPU Speed Of Light Throughput", "DRAM Throughput"): ("dram_percent", 1.0),
    ("GPU Speed Of Light Throughput", "L2 Cache Throughput"): ("l2_percent", 1.0),
    ("GPU Speed Of Light Throughput", "Duration"): ("duration_us", 1e-3),
    ("Memory Workload Analysis", "L2 Hit Rate"): ("l2_hit_percent", 1.0),
    ("Memory Workload Analysis", "L1/TEX Hit Rate"): ("l1_hit_percent", 1.0),
    ("Occupancy", "Theoretical Occupancy"): ("theoretical_percent", 1.0),
    ("Occupancy", "Achieved Occupancy"): ("achieved_percent", 1.0),
    ("Launch Statistics", "Registers Per Thread"): ("registers", 1.0),
}
LIMITS = {
    "Block Limit Registers": "registers",
    "Block Limit Shared Mem": "shared memory",
    "Block Limit Warps": "warps",
    "Block Limit SM": "blocks",
}


def profiled(name: str, folder: Path) -> OperatorProfile:
    report = profile(f"dotcu.gallery:{name}", shapes=CASES[name], folder=folder)
    (found,) = report.profiles
    json.dumps(report.to_json())
    return found


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, OperatorProfile]:
    """The profile of each operator; skipped where counters cannot be read."""
    if ncu.find() is None:
        pytest.skip("Nsight Compute is not installed")
    folder = tmp_path_factory.mktemp("reports")
    found = {name: profiled(name, folder) for name in CASES}
    refusals = {
        each.missing_counters.reason
        for each in found.values()
        if each.missing_counters and each.missing_counters.kind == "refused"
    }
    if refusals:
        pytest.skip(f"counters are refused: {refusals}")
    return found


def own(found: OperatorProfile) -> KernelProfile:
    """The longest of dotcu's kernels in a profile."""
    kernels = [kernel for kernel in found.kernels if kernel.own]
    assert kernels, [kernel.name for kernel in found.kernels]
    return max(kernels, key=lambda kernel: kernel.figures["duration_us"] or 0.0)


def details(found: OperatorProfile) -> dict[str, dict[tuple[str, str], float]]:
    """What another reading of the report says, by the launch's number, section and label."""
    tool = ncu.find()
    assert tool is not None
    words = [tool, "--import", found.report, "--csv", "--page", "details", "--print-units", "base"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    lines = [line for line in said.splitlines() if not line.startswith("==")]
    values: dict[str, dict[tuple[str, str], float]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        text = (row.get("Metric Value") or "").replace(",", "")
        if text.replace(".", "", 1).isdecimal():
            values.setdefault(row["ID"], {})[row["Section Name"], row["Metric Name"]] = float(text)
    return values


@pytest.mark.parametrize("name", CASES)
def test_figures_are_those_of_another_reading(counted: dict[str, OperatorProfile], name: str) -> None:
    found = counted[name]
    assert found.missing_counters is None, found.missing_counters
    said = list(details(found).values())
    assert len(said) == len(found.kernels) > 0
    for kernel, values in zip(found.kernels, said, strict=True):
        compared = {
            key: (kernel.figures[key], pytest.approx(values[place] * scale, rel=2e-3, abs=0.02))
            for place, (key, scale) in SHOWN.items()
            if place in values
        }
        assert len(compared) >= 6, f"too little of {list(values)}"
        assert all(ours == theirs for ours, theirs in compared.values()), compared
        limits = {LIMITS[label]: value for (_, label), value in values.items() if label in LIMITS}
        assert limits
        assert {what: kernel.limits.get(what) for what in limits} == limits


@pytest.mark.parametrize("name", CASES)
def test_every_figure_of_speed_and_occupancy_is_there(counted: dict[str, OperatorProfile], name: str) -> None:
    figures = own(counted[name]).figures
    wanted = ("duration_us", "compute_percent", "memory_percent", "dram_percent", "l2_percent", "sm_hz",
              "dram_rate", "theoretical_percent", "achieved_percent", "registers", "waves")  # fmt: skip
    assert [key for key in wanted if figures[key] is None] == []


def test_a_large_square_is_bound_by_memory_and_moves_its_bytes(counted: dict[str, OperatorProfile]) -> None:
    kernel = own(counted["square"])
    assert kernel.bound == "memory"
    read = kernel.figures["dram_read_bytes"]
    assert read is not None
    assert 0.7 * 2**28 < read < 1.2 * 2**28


@pytest.mark.parametrize("name", CASES)
def test_warps_are_seen_at_lines_of_the_kernels_own_file(
    counted: dict[str, OperatorProfile], name: str
) -> None:
    kernel, path = own(counted[name]), KERNELS / name / "kernel.cu"
    assert kernel.samples > 0
    assert sum(line.samples for line in kernel.lines) == kernel.samples
    hot = [line for line in kernel.lines[:3] if line.file and Path(line.file).resolve() == path.resolve()]
    assert hot, (kernel.lines[:3], counted[name].notes)  # of matmul some are of dotcu/tensor.cuh
    for line in hot:
        assert line.text == path.read_text().splitlines()[line.line - 1].strip() != ""
        assert line.stalls


def test_the_line_that_loads_is_the_one_at_which_square_waits(counted: dict[str, OperatorProfile]) -> None:
    hot = own(counted["square"]).lines[0]
    assert "value[k]" in hot.text  # where what was loaded is used first
    assert next(iter(hot.stalls)) in ("long_sb", "lg", "wait")


def test_the_report_is_kept_and_named(counted: dict[str, OperatorProfile]) -> None:
    for name, found in counted.items():
        path = Path(found.report)
        assert path.name.startswith(f"dotcu-{name}-float")
        assert path.stat().st_size > 10_000


def test_clocks_are_left_alone(counted: dict[str, OperatorProfile], tmp_path: Path, without: Any) -> None:
    times = profiled("square", tmp_path).timings
    duration = own(counted["square"]).figures["duration_us"]
    assert duration is not None
    assert times[0].median_us == pytest.approx(duration, rel=0.25)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if ncu were not installed."""
    monkeypatch.setattr(ncu, "find", lambda: None)


@pytest.mark.parametrize("name", CASES)
def test_without_counters_there_are_times_and_a_trace(name: str, tmp_path: Path, without: None) -> None:
    found = profiled(name, tmp_path)
    assert found.missing_counters is not None
    assert found.missing_counters.kind == "missing"
    kernels = [each for each in found.timings if name in each.name]
    assert kernels
    assert all(0 < each.min_us <= each.median_us <= each.max_us for each in kernels)
    assert all(each.per_call == int(each.per_call) for each in kernels), "records are missing"
    trace = json.loads(Path(found.trace).read_text())
    assert any(name in str(event.get("name", "")) for event in trace["traceEvents"])
