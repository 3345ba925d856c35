"""Lines of cells and of words, at any width."""

from __future__ import annotations

import io

from rich.console import Console
from rich.text import Text

from dotcu.report_base import Grid, Line

COLUMNS = (("", False, 0), ("µs", True, 0), ("n", True, 2), ("host", True, 1))


def cells(*words: str, **options: object) -> Line:
    return Line(cells=tuple(map(Text, words)), **options)  # type: ignore[arg-type]


def shown(*lines: Line, width: int = 100_000) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(Grid(columns=COLUMNS, lines=lines))
    return captured.get().splitlines()


def test_cells_stand_under_each_other_numbers_flush_right() -> None:
    assert shown(cells("dotcu", "9.50"), cells("max-autotune", "10.25")) == [
        "dotcu          9.50",
        "max-autotune  10.25",
    ]


def test_words_run_across_columns_and_widen_none() -> None:
    lines = shown(cells("a", "1"), Line(words=Text("a long sentence across"), indent=2), cells("b", "22"))
    assert lines == ["a   1", "  a long sentence across", "b  22"]


def test_words_stand_behind_cells_and_are_folded_under_themselves() -> None:
    line = cells("eager", indent=2, words=Text("FAILED: " + "word " * 8))
    assert shown(line, width=42) == [
        "  eager  FAILED: word word word word word",
        "         word word word",
    ]


def test_in_a_pipe_nothing_is_folded() -> None:
    (line,) = shown(cells("eager", words=Text("word " * 100)))
    assert line.count("word") == 100


def test_an_indent_is_part_of_the_first_column() -> None:
    assert shown(cells("a", "1", indent=4), cells("eager", "2")) == ["    a  1", "eager  2"]


def test_where_it_is_narrow_the_columns_that_can_be_spared_are_omitted_in_order() -> None:
    line = cells("dotcu", "46.02", "200", "4.1")
    assert shown(line) == ["dotcu  46.02  200  4.1"]
    assert shown(line, width=21) == ["dotcu  46.02  4.1"]
    assert shown(line, width=16) == ["dotcu  46.02"]


def test_a_column_without_cells_takes_no_room() -> None:
    assert shown(cells("dotcu", "", "", "4.1")) == ["dotcu  4.1"]


def test_empty_words_are_an_empty_line() -> None:
    assert shown(Line(words=Text(), indent=6), Line()) == ["", ""]
