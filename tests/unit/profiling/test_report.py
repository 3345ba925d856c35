"""What two pages say together of a launch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dotcu.profiling import ncu
from dotcu.profiling.report import FIGURES, KernelLaunch, KernelProfile, is_of, kernel_profiles, value_of
from helpers import ncu_reports

FILES = {"/dotcu/kernel.cu": "/home/me/kernel.cu"}


def profiled(raw: str = ncu_reports.raw(), source: str = ncu_reports.cuda_sass()) -> KernelProfile:
    (found,) = kernel_profiles(
        ncu.parse_launches(raw), ncu.parse_instructions(source), kernels=["square<float32>"], files=FILES,
        text_of=lambda file, line: f"{file}|{line}",
    )  # fmt: skip
    return found


def with_values(**values: Any) -> KernelProfile:
    kernel = profiled()
    return replace(kernel, figures={**kernel.figures, **values})


def test_figures_come_in_our_units() -> None:
    figures = profiled().figures
    assert figures["duration_us"] == pytest.approx(31.2)
    assert figures["memory_percent"] == 92.15
    assert figures["dram_rate"] == 4.31e12
    assert figures["sm_hz"] == 1.965e9
    assert figures["registers"] == 16


@pytest.mark.parametrize(
    ("key", "unit", "value", "expected"),
    [
        ("duration_us", "us", 3.0, 3.0),
        ("duration_us", "nsecond", 3000.0, 3.0),
        ("duration_us", "msecond", 3.0, 3000.0),
        ("dram_read_bytes", "Mbyte", 2.0, 2e6),
        ("dram_rate", "Tbyte/s", 4.3, 4.3e12),
        ("dram_rate", "Gbyte/second", 4.3, 4.3e9),
        ("sm_hz", "Ghz", 1.9, 1.9e9),
        ("sm_hz", "cycle/nsecond", 1.9, 1.9e9),
        ("static_smem_bytes", "Kbyte/block", 1.5, 1500.0),
        ("dram_percent", "", 50.0, 50.0),
        ("duration_us", "fortnight", 1.0, None),
    ],
)
def test_whatever_the_unit_a_figure_is_in_ours(
    key: str, unit: str, value: float, expected: float | None
) -> None:
    metrics = {FIGURES[key][3][-1]: (value, unit)}
    got = value_of(key, KernelLaunch(name="k", grid="", block="", metrics=metrics))
    assert got == (None if expected is None else pytest.approx(expected))


def test_what_the_report_lacks_is_none() -> None:
    few = {name: value for name, value in ncu_reports.METRICS.items() if not name.startswith("dram")}
    kernel = profiled(ncu_reports.raw(metrics=few))
    assert kernel.figures["dram_rate"] is None
    assert kernel.figures["dram_percent"] == 92.15


def test_the_lowest_limit_is_named() -> None:
    kernel = profiled()
    assert kernel.limits == {"registers": 16, "shared memory": 32, "warps": 8, "blocks": 32}
    assert kernel.limiters == ("warps",)
    assert replace(kernel, limits={"warps": 8, "registers": 8, "blocks": 32}).limiters == (
        "warps",
        "registers",
    )
    assert replace(kernel, limits={}).limiters == ()


@pytest.mark.parametrize(
    ("compute", "memory", "bound"),
    [(23, 92, "memory"), (90, 40, "compute"), (85, 80, "both"), (40, 59, "neither"), (None, 92, "")],
)
def test_what_bounds_a_kernel(compute: float | None, memory: float, bound: str) -> None:
    assert with_values(compute_percent=compute, memory_percent=memory).bound == bound


def test_samples_are_summed_by_line_and_the_hottest_comes_first() -> None:
    hot, cold = profiled().lines
    assert (hot.file, hot.line, hot.samples) == ("/home/me/kernel.cu", 15, 480)
    assert hot.text == "/home/me/kernel.cu|15"
    assert hot.executed == 2 * 8448
    assert (cold.line, cold.samples) == (11, 10)


def test_warps_that_issued_did_not_stall() -> None:
    kernel = profiled()
    assert kernel.samples == 490
    assert list(kernel.stalls.items()) == [("long_sb", 450), ("wait", 23)]
    assert kernel.lines[0].stalls == {"long_sb": 450, "wait": 15}


def test_instructions_of_no_line_are_one_row() -> None:
    (only,) = profiled(source=ncu_reports.sass()).lines
    assert (only.file, only.line, only.text, only.samples) == ("", 0, "", 490)


def test_without_the_source_page_there_are_figures_all_the_same() -> None:
    kernel = profiled(source="")
    assert not kernel.listed
    assert (kernel.samples, kernel.lines) == (0, ())
    assert kernel.figures["duration_us"] == pytest.approx(31.2)


def test_where_listings_are_missing_they_are_found_by_name() -> None:
    launches = ncu.parse_launches(ncu_reports.raw((ncu_reports.COPY, ncu_reports.SQUARE)))
    listings = ncu.parse_instructions(ncu_reports.sass((ncu_reports.SQUARE,)))
    copy, square = kernel_profiles(launches, listings, kernels=[], files={}, text_of=lambda *_: "")
    assert not copy.listed
    assert square.listed


@pytest.mark.parametrize(
    ("name", "own"),
    [
        (ncu_reports.SQUARE, True),
        ("square(const float *, float *, int)", True),
        ("void ::square<float>(const float *)", True),
        ("void <unnamed>::square<float>(const float *)", True),
        ("(anonymous namespace)::square(const float *)", True),
        ("void at::native::square<float>(const float *)", False),
        ("void square_of<float>(const float *)", False),
        ("(anonymous namespace)::other(int)", False),
        ("", False),
    ],
)
def test_dotcus_kernels_differ_from_torchs(name: str, own: bool) -> None:
    assert is_of(name, {"square"}) is own


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("scale_kernel(const float *, float *, float, long)", True),
        ("void at::native::vectorized_elementwise_kernel<4>(int)", False),
        ("void mine::scale<float>(at::PackedTensorAccessor32<float, 1>)", True),
    ],
)
def test_a_librarys_kernels_are_its_own_but_for_those_of_torch(name: str, own: bool) -> None:
    launched = [replace(each, name=name) for each in ncu.parse_launches(ncu_reports.raw())]
    (found,) = kernel_profiles(launched, [], kernels=[], files={}, text_of=lambda *_: "", native=True)
    assert found.own is own
