"""What is printed into a pipe is whole: no colour, no wrapping, no markup, no padding."""

from __future__ import annotations

import json

import pytest
from rich.table import Table

from dotcu import errors, report_base
from dotcu.cli import console


def test_a_long_line_is_not_wrapped_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_line("x" * 500)
    assert capsys.readouterr().out == "x" * 500 + "\n"


def test_brackets_are_text_and_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_line("scale[torch.float32] [red]", style="bold red")
    assert capsys.readouterr().out == "scale[torch.float32] [red]\n"


def test_a_table_has_one_line_a_row_and_ends_no_line_with_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    path = "/a" * 200
    console.show(
        console.table(("name", "size", "where"), [("k", "7", path), ("long", "12", "")], right=("size",))
    )
    assert capsys.readouterr().out == f"name  size  where\nk        7  {path}\nlong    12\n"


def test_a_report_as_json_has_a_version(capsys: pytest.CaptureFixture[str]) -> None:
    console.as_json({"passed": True})
    assert json.loads(capsys.readouterr().out) == {"version": 1, "passed": True}


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        (1 << 30, "1.0 GiB"),
        (3 << 40, "3072.0 GiB"),
    ],
)
def test_size_for_people(count: int, text: str) -> None:
    assert console.size(count) == text


@pytest.mark.parametrize(
    "name", ["\x1b]0;owned\x1b\\", "\u202ename", "[red]name[/red]", "[link=file:///x]name"]
)
def test_a_name_is_shown_as_text_wherever_it_comes_from(capfd: pytest.CaptureFixture[str], name: str) -> None:
    grid = Table.grid()
    grid.add_row(name)
    for show in (console.print_line, console.print_error, console.note):
        show(name)
    console.show(console.table(("name",), [(name,)]))
    console.show(grid)
    console.show(name)
    captured = capfd.readouterr()
    shown = captured.out + captured.err
    assert shown.count(errors.escaped(name)) == 6
    assert "\x1b" not in shown
    assert report_base.text(grid) == errors.escaped(name)
