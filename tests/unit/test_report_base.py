"""Reports as HTML: all that a terminal shows, escaped, and pictures."""

from __future__ import annotations

import html
import re
import sys

import pytest
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dotcu import report_base
from dotcu.report_base import Report
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
