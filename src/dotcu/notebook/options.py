"""The line behind `%%cu`, read."""

from __future__ import annotations

import argparse
import keyword
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from dotcu.errors import UsageError

HOW = "%%cu [NAME] [-D MACRO[=VALUE]] [-I FOLDER] [--std c++20] [--debug] [compiler's options]"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a cell is to be compiled with.

    Attributes:
        name: Of the module in the notebook; empty where it is to have none.
        options: Passed on to the compiler as they are.
    """

    name: str = ""
    define: Mapping[str, str | None]
    include: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    std: str = "c++17"
    debug: bool = False


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _refused(message)


def _parser() -> _Parser:
    parser = _Parser(prog="%%cu", add_help=False, allow_abbrev=False)
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("-D", "--define", action="append", default=[])
    parser.add_argument("-I", "--include", action="append", default=[])
    parser.add_argument("--std", default="c++17")
    parser.add_argument("--debug", action="store_true")
    return parser


def parse(line: str) -> Asked:
    """Read the words behind `%%cu`; those that begin with `-` and are not known go to the compiler.

    Raises:
        UsageError: The name is none, an option lacks its value, or there is a word too many.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise _refused(f"{error}, in {line!r}") from error
    read, rest = _parser().parse_known_args(words)
    for word in rest:
        if not word.startswith("-"):
            raise _refused(f"got {word!r} beside {read.name!r}; write an option's value behind =")
    if read.name and (not read.name.isidentifier() or keyword.iskeyword(read.name)):
        raise _refused(f"{read.name!r} is no name that a variable can have")
    macros = (macro.partition("=") for macro in read.define)
    return Asked(
        name=read.name,
        define={macro: value if sign else None for macro, sign, value in macros},
        include=tuple(read.include),
        options=tuple(rest),
        std=read.std,
        debug=read.debug,
    )


def _refused(why: str) -> UsageError:
    return UsageError(f"%%cu: {why}.\nWrite {HOW}\nFor its help: %%cu?")
