"""Printing: tables that look right on a terminal and in a pipe.

On a terminal a table folds what does not fit; in a pipe or a file nothing is coloured,
wrapped or cut, one row a line.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dotcu.errors import EXIT_FAILED
from dotcu.report_base import Visible

_PIPE_WIDTH = 100_000  # characters: wider than any row, so that nothing is folded


def never_fail_on_letters() -> None:
    """Have standard output write what its encoding lacks, such as a µ in ASCII, as an escape."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def out() -> Console:
    """The console on standard output."""
    return _console(stderr=False)


def err() -> Console:
    """The console on standard error."""
    return _console(stderr=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> Table:
    """A table without lines: a bold head, two spaces between columns.

    Args:
        columns: The heads.
        rows: The cells, as plain text.
        right: The heads of the columns that are set flush right: numbers.
    """
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        grid.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    return grid


def show(renderable: RenderableType) -> None:
    """Print a table or a report; in a pipe, without the blanks that pad its lines."""
    console = out()
    if console.is_terminal:
        console.print(renderable, crop=False)  # what must not wrap is longer than the terminal is wide
        return
    with console.capture() as captured:
        console.print(renderable)
    for line in captured.get().splitlines():
        print_line(line.rstrip())


def print_line(text: str = "", *, style: str = "") -> None:
    """Print a line as it is: no markup, no wrapping."""
    out().print(Text(text, style=style), soft_wrap=True)


def print_error(text: str) -> None:
    """Print an error, as it is, on standard error."""
    err().print(Text.assemble(("error: ", "bold red"), text), soft_wrap=True)


def note(text: str) -> None:
    """Print what is worth knowing and no error, on standard error."""
    err().print(Text.assemble(("note: ", "bold"), text), soft_wrap=True)


def as_json(report: Mapping[str, Any]) -> None:
    """Print a report as JSON, with the version of its form first."""
    sys.stdout.write(json.dumps({"version": 1, **report}, indent=2) + "\n")
    sys.stdout.flush()  # a full device or a closed pipe has to show here


def report(value: Any, wants_json: bool) -> None:
    """Print a report: as JSON, or for people."""
    if wants_json:
        as_json(value.to_json())
    else:
        show(value)


def finish(value: Any, wants_json: bool) -> None:
    """Print the report of a job, and end with the exit code that it has."""
    report(value, wants_json)
    leave_with(value)


def leave_with(value: Any) -> None:
    """End with the exit code that a report has, unless it passed."""
    if getattr(value, "interrupted", False):
        raise KeyboardInterrupt
    if not value.passed:
        raise typer.Exit(EXIT_FAILED)


def as_json_line(event: Mapping[str, Any]) -> None:
    """Print one of many events as a line of JSON, with the version of its form first."""
    sys.stdout.write(json.dumps({"version": 3, **event}) + "\n")
    sys.stdout.flush()


def hang_up() -> None:
    """Send the rest of standard output nowhere: its reader is gone, or its device full."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def size(count_bytes: int) -> str:
    """A number of bytes for people: 1536 is `1.5 KiB`."""
    value = float(count_bytes)
    if value < 1024:
        return f"{count_bytes} B"
    for unit in ("KiB", "MiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} GiB"


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    console.push_render_hook(Visible())
    return console
