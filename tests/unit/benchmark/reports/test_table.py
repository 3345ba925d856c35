"""The head and the last line of a report."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dotcu.benchmark.reports.report import BenchReport
from dotcu.benchmark.results import Clocks
from helpers.bench_reports import change, compared, measured, report, row, sweep


def head(found: BenchReport) -> list[str]:
    return str(found).partition("\n\n")[0].splitlines()


def last(found: BenchReport) -> str:
    return str(found).splitlines()[-1]


def test_the_head_has_the_gpu_and_the_versions_that_matter_most() -> None:
    expected = "NVIDIA H200, driver 580.95.05, torch 2.11.0+cu130, nvrtc 13.0, dotcu 0.1.0"
    assert head(report(row()))[0] == expected


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("cupti", "by CUPTI:"),
        ("events", "between CUDA events, launch included:"),
    ],
)
def test_the_head_says_how_it_was_timed(by: str, expected: str) -> None:
    line = head(report(row(), by=by))[1]
    assert line.startswith(f"device time {expected} median ± half its 99% interval; ")
    assert line.endswith("10 to 40 blocks of 10 to 100 interleaved calls, 4 sets of inputs")


def test_the_head_has_the_range_of_clocks_temperature_and_power_that_was_seen() -> None:
    cool = Clocks(sm_mhz=1980, memory_mhz=3201, temperature_c=41, power_w=310.4)
    hot = Clocks(sm_mhz=1755, memory_mhz=3201, temperature_c=63)
    found = report(row(measured=measured(cool)), row(l2="warm", measured=measured(hot)))
    assert head(found)[2] == (
        "SM 1755 to 1980 MHz, memory 3201 MHz, 41 to 63 °C, 310 W; highest SM 1980 MHz, memory 3201 MHz"
    )


def test_without_clocks_nothing_is_made_up() -> None:
    assert len(head(report(row(measured=measured(Clocks()))))) == 2


def test_notes_are_in_the_head() -> None:
    assert head(report(row(), notes=("no CUPTI: permission denied",)))[-1] == "no CUPTI: permission denied"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (report(row(), row(l2="warm")), "passed: 2 of 2 rows measured"),
        (report(row(), row(None, status="skipped")), "passed: 1 of 2 rows measured, 1 skipped"),
        (report(row(), row(None, status="wrong")), "FAILED: 1 of 2 rows measured, 1 wrong"),
        (report(row(), interrupted=True), "interrupted: 1 of 1 row measured"),
        (
            report(row(), changes=(compared(row(), change("slower", 1.1)),)),
            "FAILED: 1 of 1 row measured, 1 slower",
        ),
        (
            report(row(), changes=(compared(row(), None, lost=True),)),
            "FAILED: 1 of 1 row measured, 1 lost, nothing compared",
        ),
    ],
    ids=["passed", "skipped", "wrong", "interrupted", "slower", "lost"],
)
def test_the_last_line_says_how_it_ended(found: BenchReport, expected: str) -> None:
    assert last(found) == expected


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_large_sweep_fits_a_terminal(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(report(*sweep()))
    shown = captured.get().splitlines()
    assert max(map(len, shown)) <= width
    figures = [line for line in shown if "B/s" in line and "limit" not in line]
    assert len(figures) == 80, "a row was folded"
    assert len({len(line[: line.index("B/s")]) for line in figures}) == 1, "a row is out of line"
