"""Reports as a terminal and as a notebook shows them: grids at any width, escaped text, and pictures."""

from __future__ import annotations

import html
import io
import re
import sys

import pytest
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dotcu import report_base
from dotcu.report_base import Grid, Line, Report
from helpers import bench_reports, check_reports


def words(page: str) -> list[str]:
    """The words that a page shows, in order."""
    visible = re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)
    return html.unescape(visible).split()


CHECKED = check_reports.report(
    check_reports.passed("numerics", cases=2), check_reports.failed("written", reason="<b>not</b> & 'whole'")
)
MEASURED = bench_reports.report(*bench_reports.sweep(exponents=(10, 14)))
ONE_SIZE = bench_reports.report(*bench_reports.sweep(exponents=(10,)))


@pytest.mark.parametrize("report", [CHECKED, ONE_SIZE], ids=["check", "bench"])
def test_a_page_shows_the_words_of_the_terminal_in_their_order(report: Report) -> None:
    assert words(report._repr_html_()) == str(report).split()


def test_a_notebook_shows_what_a_name_would_hide() -> None:
    shown = report_base.html_of(Group(Text("\x1b]0;owned"), Padding("\u202ename", 1)))
    assert r"\x1b]0;owned" in shown
    assert r"\u202ename" in shown


def test_what_a_report_says_is_escaped() -> None:
    page = CHECKED._repr_html_()
    assert "&lt;b&gt;not&lt;/b&gt; &amp; &#x27;whole&#x27;" in page
    assert "<b>not</b>" not in page


def test_a_report_is_one_element_that_loads_nothing() -> None:
    page = ONE_SIZE._repr_html_()
    assert page.startswith('<div class="dotcu">')
    assert page.count("<div") == page.count("</div>")
    assert page.count("<tr>") == page.count("</tr>")
    assert "<script" not in page
    assert "http" not in page


def test_a_failure_is_red_and_what_passed_is_green() -> None:
    assert '<b><span class="red">FAILED' in CHECKED._repr_html_()
    assert (
        '<b><span class="green">passed'
        in check_reports.report(check_reports.passed("numerics"))._repr_html_()
    )


def test_figures_stand_in_cells_of_their_own_on_the_right() -> None:
    page = ONE_SIZE._repr_html_()
    assert re.search(r'<td class="right"><b>\d+\.\d\d</b></td><td class="right">\d\.\d</td>', page)


def test_what_markup_does_not_know_is_shown_as_its_lines() -> None:
    class Odd:
        def __rich_console__(self, console: object, options: object) -> list[str]:
            return ["a < b"]

    assert (
        report_base.html_of(Group(Odd(), Text("x", style="bold"))) == "<pre>a &lt; b</pre><div><b>x</b></div>"
    )


def test_a_table_has_its_head_and_its_sides() -> None:
    table = Table("name", "µs")
    table.columns[1].justify = "right"
    table.add_row("a<b", Text("1.5", style="dim"))
    assert report_base.html_of(table) == (
        '<table><tr><th>name</th><th class="right">µs</th></tr>'
        '<tr><td>a&lt;b</td><td class="right"><span class="dim">1.5</span></td></tr></table>'
    )


# ------------------------------------------------------------------ pictures


def test_times_of_several_sizes_have_a_plot() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib draws the plots")
    assert '<img alt="time of a call against size" src="data:image/svg+xml;base64,' in MEASURED._repr_html_()


def test_times_of_one_size_have_no_plot() -> None:
    assert "<img" not in ONE_SIZE._repr_html_()


def test_without_matplotlib_there_is_the_table_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = MEASURED._repr_html_()
    assert "<img" not in page
    assert "<table>" in page


# ------------------------------------------------------------------ lines of cells and of words


COLUMNS = (("", False, 0), ("µs", True, 0), ("n", True, 2), ("host", True, 1))


def cells(*words: str, **options: object) -> Line:
    return Line(cells=tuple(map(Text, words)), **options)  # type: ignore[arg-type]


def printed(*lines: Line, width: int = 100_000) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(Grid(columns=COLUMNS, lines=lines))
    return captured.get().splitlines()


def test_cells_stand_under_each_other_numbers_flush_right() -> None:
    assert printed(cells("dotcu", "9.50"), cells("max-autotune", "10.25")) == [
        "dotcu          9.50",
        "max-autotune  10.25",
    ]


def test_words_run_across_columns_and_widen_none() -> None:
    lines = printed(cells("a", "1"), Line(words=Text("a long sentence across"), indent=2), cells("b", "22"))
    assert lines == ["a   1", "  a long sentence across", "b  22"]


def test_words_stand_behind_cells_and_are_folded_under_themselves() -> None:
    line = cells("eager", indent=2, words=Text("FAILED: " + "word " * 8))
    assert printed(line, width=42) == [
        "  eager  FAILED: word word word word word",
        "         word word word",
    ]


def test_in_a_pipe_nothing_is_folded() -> None:
    (line,) = printed(cells("eager", words=Text("word " * 100)))
    assert line.count("word") == 100


def test_an_indent_is_part_of_the_first_column() -> None:
    assert printed(cells("a", "1", indent=4), cells("eager", "2")) == ["    a  1", "eager  2"]


def test_where_it_is_narrow_the_columns_that_can_be_spared_are_omitted_in_order() -> None:
    line = cells("dotcu", "46.02", "200", "4.1")
    assert printed(line) == ["dotcu  46.02  200  4.1"]
    assert printed(line, width=21) == ["dotcu  46.02  4.1"]
    assert printed(line, width=16) == ["dotcu  46.02"]


def test_a_column_without_cells_takes_no_room() -> None:
    assert printed(cells("dotcu", "", "", "4.1")) == ["dotcu  4.1"]


def test_empty_words_are_an_empty_line() -> None:
    assert printed(Line(words=Text(), indent=6), Line()) == ["", ""]
