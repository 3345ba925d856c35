"""A comparison with an earlier run, as people read it."""

from __future__ import annotations

from dotcu.benchmark.reports.comparison import RowComparison
from helpers.bench_reports import change, compared, report, row


def change_lines(*changes: RowComparison) -> list[str]:
    """The lines from the count of verdicts on, without the last."""
    shown = str(report(row(), changes=changes)).splitlines()
    start = next(n for n, line in enumerate(shown) if line.startswith("against the baseline: "))
    return shown[start:-2]


def test_verdicts_are_counted_and_only_what_is_not_the_same_is_listed() -> None:
    shown = change_lines(
        compared(row(), change("same")),
        compared(row(contender="eager"), change("same")),
        compared(row(l2="warm"), change("slower", 1.043)),
    )
    assert shown[0] == "against the baseline: 1 slower, 2 same"
    assert [line.split() for line in shown[2:]] == [
        ["mylib::add"],
        ["slower", "float32-4096x4096", "warm", "dotcu", "1.043", "1.039", "to", "1.047", "99%"],
    ]


def test_where_nothing_changed_one_line_says_so() -> None:
    assert change_lines(compared(row(), change("same"))) == ["against the baseline: 1 same"]


def test_what_only_one_run_has_is_reported_by_name() -> None:
    shown = change_lines(
        compared(row(), None, "it is not in the earlier run"), compared(row(l2="warm"), change("same"))
    )
    assert shown == [
        "against the baseline: 1 same, 1 not compared",
        "  mylib::add float32-4096x4096 dotcu cold: it is not in the earlier run",
    ]


def test_a_note_of_several_rows_is_reported_once() -> None:
    lost = "it is not in this run"
    shown = change_lines(
        compared(row(), None, lost),
        compared(row(l2="warm"), None, lost),
        compared(row(case="float32-64"), change("same")),
    )
    assert shown[1:] == [f"  mylib::add float32-4096x4096 dotcu cold and 1 more: {lost}"]


def test_a_note_of_all_rows_stands_alone() -> None:
    note = "driver 575.51 then, 580.95 now"
    shown = change_lines(
        compared(row(), change("same"), note), compared(row(l2="warm"), change("same"), note)
    )
    assert shown[1:] == [f"  {note}"]


def test_what_was_lost_is_counted_and_listed_whatever_the_reason() -> None:
    shown = change_lines(
        compared(row(), change("same")),
        compared(row(l2="warm"), None, "no figures now: failed", lost=True),
        compared(row(contender="eager"), None, "no figures now: failed"),
    )
    assert shown[0] == "against the baseline: 1 same, 1 lost, 1 not compared"
    assert shown[2].strip() == "mylib::add"
    assert shown[3].split() == ["lost", "float32-4096x4096", "warm", "dotcu"]
    assert shown[4] == "  mylib::add float32-4096x4096 dotcu warm and 1 more: no figures now: failed"
