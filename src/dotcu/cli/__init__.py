"""The command line: one module a verb, the only place that prints; and options that several verbs have."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Optional, TypeVar

import typer

# typer reads annotations at run time, also on Python 3.10
Word = Optional[str]  # noqa: UP045
Strings = Optional[list[str]]  # noqa: UP045
Integer = Optional[int]  # noqa: UP045
Number = Optional[float]  # noqa: UP045
File = Optional[Path]  # noqa: UP045
Files = Optional[list[Path]]  # noqa: UP045

_N = TypeVar("_N", int, float)


def number(
    kind: Callable[[str], _N], allowed: str, fits: Callable[[_N], bool] = lambda _: True
) -> Callable[[str], _N]:
    """Return the parser of an option that takes a number; it refuses others by what is allowed."""

    def parse(text: str) -> _N:
        with suppress(ValueError):
            if fits(value := kind(text)):
                return value
        raise typer.BadParameter(f"{text} is not {allowed}.")

    return parse


TargetArg = Annotated[str, typer.Argument(help="ops.py or package.module; with :name for one operator")]
Device = Annotated[Word, typer.Option(help="cuda or simulator; default: a GPU, if any")]
Seed = Annotated[
    int,
    typer.Option(
        metavar="<int>",
        parser=number(int, "a whole number"),
        help="the seed of random numbers",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="print the report as JSON")]


def names(text: str | None) -> tuple[str, ...] | None:
    """Return the words between commas; None for no text."""
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())
