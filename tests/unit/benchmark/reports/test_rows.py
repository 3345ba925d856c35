"""Rows as people read them: figures under each other, reasons in place, marks as notes."""

from __future__ import annotations

import dataclasses
import re

import pytest

from dotcu.benchmark.reports.report import BenchReport
from dotcu.benchmark.reports.table import NOTE_LINES
from dotcu.benchmark.results import BenchRow
from dotcu.benchmark.work import Work
from helpers.bench_reports import COPY_OF_TWO, measured, near, report, row, summary


def lines(found: BenchReport) -> list[str]:
    return str(found).splitlines()


def line_of(found: BenchReport, *words: str) -> str:
    """The first line that has all of these words."""
    return next(line for line in lines(found) if all(word in line.split() for word in words))


def test_a_row_has_median_noise_spread_samples_host_time_rate_and_percent_of_the_limit() -> None:
    one = row(46.02, time=summary(46.02, noise=0.0014, iqr=0.006))
    assert line_of(report(one), "cold", "dotcu").split() == [
        "cold", "dotcu", "46.02", "0.1", "0.6", "200", "4.1", "4.37", "TB/s", "99.7",
    ]  # fmt: skip


def test_the_heads_stand_over_their_figures() -> None:
    found = report(row(46.02), row(50.2, contender="eager", ratio=near(1.0908)))
    head, eager = line_of(found, "host"), line_of(found, "eager")
    for name, figure in (("µs", "50.20"), ("host µs", "4.1"), ("% limit", "91.4"), ("× dotcu", "1.09")):
        assert head.index(name) + len(name) == eager.index(figure) + len(figure), name


def test_contenders_of_one_state_stand_together_and_the_state_is_reported_once() -> None:
    pairs = [(l2, who) for l2 in ("cold", "warm") for who in ("dotcu", "eager")]
    found = report(*(row(40.0, l2=l2, contender=who) for l2, who in pairs))
    figures = [line.split() for line in lines(found) if "40.00" in line]
    assert [words[: words.index("40.00")] for words in figures] == [
        ["cold", "dotcu"], ["eager"], ["warm", "dotcu"], ["eager"],
    ]  # fmt: skip


def test_rows_are_grouped_by_operator_and_case_whatever_their_order() -> None:
    rows = [row(op=op, case=case) for case in ("float32-1", "float32-2") for op in ("a::b", "c::d")]
    names = [line.split()[0] for line in lines(report(*rows)) if re.match("(a::b|c::d|  float32)", line)]
    assert names == ["a::b", "float32-1", "float32-2", "c::d", "float32-1", "float32-2"]


class TestTheLimit:
    def test_a_case_has_its_bytes_operations_and_limits(self) -> None:
        work = Work(read_bytes=67_108_864, written_bytes=33_554_432, flops=2 * 4096**3)
        found = report(row(work=work, limit_us=45.861), row(l2="warm", work=work, limit_us=20.0))
        case = next(line for line in lines(found) if line.startswith("  float32-4096x4096"))
        assert case.split("  ")[-1] == "101 MB, 137 GFLOP, limit 45.86 µs cold, 20.00 µs warm"

    def test_a_limit_that_is_the_same_in_both_states_is_reported_once(self) -> None:
        found = report(row(), row(l2="warm"))
        assert f"  limit: {COPY_OF_TWO}" in lines(found)
        assert any(line.endswith("201 MB, limit 45.86 µs") for line in lines(found))

    def test_what_sets_it_is_reported_for_each_state_and_as_a_range_over_cases(self) -> None:
        found = report(
            row(),
            row(case="float32-64", what="memory, 2 reads to 1 write, 4.21 TB/s"),
            row(l2="warm", what="L2, 2 reads to 1 write, 9.10 TB/s"),
        )
        assert "  limit, cold: memory, 2 reads to 1 write, 4.21 to 4.39 TB/s" in lines(found)
        assert "  limit, warm: L2, 2 reads to 1 write, 9.10 TB/s" in lines(found)

    def test_without_one_there_is_no_percentage(self) -> None:
        found = report(row(limit_us=None))
        assert "% limit" in line_of(found, "host")  # the column is known
        assert line_of(found, "cold", "dotcu").endswith("TB/s")

    @pytest.mark.parametrize(
        ("declared", "expected"),
        [(True, "bytes and FLOPs: as its `work` says"), (False, "bytes: each tensor once")],
    )
    def test_the_source_of_the_bytes_is_reported(self, declared: bool, expected: str) -> None:
        work = Work(read_bytes=8, written_bytes=4, declared=declared)
        assert f"mylib::add  {expected}" in lines(report(row(work=work)))


class TestRowsWithoutFigures:
    @pytest.mark.parametrize("status", ["failed", "wrong", "refused", "throttled"])
    def test_they_say_in_place_why(self, status: str) -> None:
        found = report(row(), row(None, contender="eager", status=status, reason="it ran out of memory"))
        assert line_of(found, "eager").split("  ")[-1] == f"{status.upper()}: it ran out of memory"

    def test_what_was_skipped_is_no_alarm(self) -> None:
        found = report(row(), row(None, case="float32-2^40", status="skipped", reason="needs 12 TiB"))
        assert line_of(found, "skipped:").split("  ")[-1] == "skipped: needs 12 TiB"

    def test_a_reason_of_some_lines_stands_in_place_line_under_line(self) -> None:
        shown = lines(
            report(row(None, contender="eager", status="refused", reason="too fast.\nLook at `work`."))
        )
        place = next(n for n, line in enumerate(shown) if "REFUSED: too fast." in line)
        assert shown[place + 1] == " " * shown[place].index("REFUSED") + "Look at `work`."
        assert not any("[1]" in line for line in shown)

    def test_of_a_long_reason_the_first_line_stands_in_place_and_all_of_it_in_a_note_once(self) -> None:
        reason = "\n".join(["backend='inductor' raised:", *(f"line {n}" for n in range(50))])
        broken = [row(None, l2=l2, contender="compile", reason=reason) for l2 in ("cold", "warm")]
        shown = lines(report(*broken))
        assert sum("FAILED: backend='inductor' raised: [1]" in line for line in shown) == 2
        assert shown.count("  [1] backend='inductor' raised:") == 1
        assert f"      ... and {50 - NOTE_LINES + 1} lines more" in shown

    def test_only_rows_without_figures_have_no_heads(self) -> None:
        assert "% limit" not in str(report(row(None, reason="no")))


class TestNotes:
    @staticmethod
    def notes(*rows: BenchRow) -> list[str]:
        return [line.strip() for line in lines(report(*rows)) if line.startswith("  [")]

    def test_a_mark_is_a_note_and_the_row_has_its_number(self) -> None:
        found = report(row(marks=("104 % of the limit",)), row(contender="eager"))
        assert line_of(found, "cold", "dotcu").endswith("[1]")
        assert not line_of(found, "eager").endswith("]")
        assert "  [1] 104 % of the limit" in lines(found)

    def test_marks_that_differ_in_numbers_alone_share_a_note(self) -> None:
        rows = [row(case=f"float32-s{n}", marks=(f"power cap in {n} of 40 blocks",)) for n in (3, 12, 7)]
        assert self.notes(*rows) == ["[1] power cap in 3 to 12 of 40 blocks"]

    def test_each_operator_has_its_own(self) -> None:
        assert self.notes(row(op="a::b", marks=("x",)), row(op="c::d", marks=("y",))) == ["[1] x", "[1] y"]

    def test_dropped_samples_are_reported(self) -> None:
        assert self.notes(row(dropped=40)) == ["[1] 40 samples dropped: taken while the GPU was throttled"]

    def test_another_means_than_the_reports_is_reported(self) -> None:
        assert self.notes(row(measured=measured(by="cupti"))) == []
        assert self.notes(row(measured=measured(by="events"))) == [
            "[1] timed between CUDA events, launch included"
        ]

    def test_far_tails_are_reported(self) -> None:
        assert self.notes(row(time=summary(50.0, spread=0.09))) == []
        assert self.notes(row(time=summary(50.0, spread=0.4))) == ["[1] wide: p5 40.00 µs, p95 60.00 µs"]


def test_what_a_reason_has_in_brackets_is_no_markup() -> None:
    assert "got [bold]x[/bold]" in str(report(row(None, reason="got [bold]x[/bold]")))


def test_a_name_is_never_cut_in_a_pipe() -> None:
    long = "bfloat16-" + "x".join(["4096"] * 60)
    assert long in str(report(dataclasses.replace(row(), key=dataclasses.replace(row().key, case=long))))
