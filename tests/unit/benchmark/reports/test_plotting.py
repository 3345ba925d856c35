"""Plots: what is in them, and what keeps one from being drawn."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dotcu.benchmark.reports import plotting
from dotcu.benchmark.reports.report import BenchReport
from dotcu.errors import EnvironmentFault, UsageError
from helpers.bench_reports import report, row, sweep

pytest.importorskip("matplotlib", reason="matplotlib draws the plots")

FIVE = ("dotcu", "eager", "compile", "max-autotune", "best.py:mine")


def texts(found: BenchReport, folder: Path) -> list[str]:
    """Every text of the plot as SVG, in the order in which it is drawn."""
    path = folder / "plot.svg"
    found.plot(path)
    return re.findall(r"<text[^>]*>([^<]+)</text>", path.read_text(encoding="utf-8"))


def test_a_plot_names_operator_state_axes_machine_and_each_contender_once(tmp_path: Path) -> None:
    shown = texts(report(*sweep(contenders=FIVE, states=("cold",))), tmp_path)
    assert "mylib::add, float32, L2 cold" in shown
    assert {"time of a call, µs", "percent of the limit", "elements of the largest tensor"} <= set(shown)
    assert [shown.count(name) for name in ("limit", *FIVE)] == [1] * 6
    assert {"10", "100", "1000"} <= set(shown), "times are plain numbers"
    assert any(text.startswith("NVIDIA H200, driver 580.95.05, torch 2.11.0+cu130") for text in shown)


def test_cold_and_warm_operators_and_dtypes_have_panels_of_their_own(tmp_path: Path) -> None:
    rows = [
        *sweep(exponents=(10,), contenders=("dotcu",)),
        *sweep("mylib::scale", dtype="bfloat16", states=("cold",), exponents=(10,), contenders=("dotcu",)),
    ]
    titles = [text for text in texts(report(*rows), tmp_path) if ", L2 " in text]
    assert titles == [
        "mylib::add, float32, L2 cold",
        "mylib::add, float32, L2 warm",
        "mylib::scale, bfloat16, L2 cold",
    ]


@pytest.mark.slow
def test_calls_of_equal_shapes_with_other_scalars_have_panels_of_their_own(tmp_path: Path) -> None:
    rows = [
        replace(one, key=replace(one.key, case=f"{one.key.case}-causal={causal}"))
        for causal in (False, True)
        for one in sweep(states=("cold",), exponents=(10,), contenders=("dotcu",))
    ]
    titles = [text for text in texts(report(*rows), tmp_path) if ", L2 " in text]
    assert titles == [f"mylib::add, float32, causal={causal}, L2 cold" for causal in (False, True)]


def test_colours_and_markers_differ_and_dashes_of_the_first_four() -> None:
    styles = plotting._STYLES
    for name in ("color", "marker"):
        assert len({style[name] for style in styles}) == len(styles)
    assert len({style["linestyle"] for style in styles[:4]}) == 4


@pytest.mark.parametrize(
    "rows",
    [
        [
            row(limit_us=None),
            row(60.0, contender="eager", limit_us=None),
            row(None, contender="mine", elements=5),
        ],
        pytest.param([row(contender=f"contender {n}") for n in range(12)], marks=pytest.mark.slow),
    ],
    ids=["no limit, and a row that failed", "more contenders than colours"],
)
def test_odd_reports_are_drawn_too(tmp_path: Path, rows: list[object]) -> None:
    report(*rows).plot(tmp_path / "plot.svg")  # type: ignore[arg-type]
    assert (tmp_path / "plot.svg").read_bytes().startswith(b"<?xml")


def test_the_suffix_decides_the_format(tmp_path: Path) -> None:
    report(row()).plot(tmp_path / "plot.PNG")
    assert (tmp_path / "plot.PNG").read_bytes().startswith(b"\x89PNG\r")


def test_equal_reports_give_equal_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    for path in (first, second):
        report(row()).plot(path)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    ("name", "expected"), [("plot.pdf", "it has the suffix .pdf"), ("plot", "it has no suffix")]
)
def test_another_suffix_is_answered_with_one_that_will_do(tmp_path: Path, name: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        report(row()).plot(tmp_path / name)
    assert expected in str(caught.value)
    assert str(caught.value).endswith(f"Type: --plot {tmp_path / 'plot.svg'}")


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no folder .*nowhere"):
        plotting.require(tmp_path / "nowhere" / "plot.svg")


@pytest.mark.parametrize("rows", [(), (row(None),), (row(elements=0),)], ids=["none", "failed", "no size"])
def test_nothing_to_draw_is_reported(tmp_path: Path, rows: tuple[object, ...]) -> None:
    with pytest.raises(UsageError, match="nothing to draw"):
        report(*rows).plot(tmp_path / "plot.svg")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_remedy_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(EnvironmentFault, match=r"pip install 'dotcu\[tools\]'"):
        plotting.require(tmp_path / "plot.svg")
