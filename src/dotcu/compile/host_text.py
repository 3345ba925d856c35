"""The text of what stays of a file, line by line where the file has it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

from dotcu.compile.lexing import directives

CONDITION = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b")
_INCLUDE = re.compile(r"[ \t]*#[ \t]*include\b")
REPLACED = 2
"""Of a character that is not kept itself, but something in its place."""


def drop_empty(stays: bytearray, text: str) -> None:
    """Leave out each `#if` in whose branches nothing stays, the innermost first."""
    open_chains: list[tuple[list[tuple[int, int]], int]] = []
    for start, end in directives(text):
        condition = CONDITION.match(text[start:end])
        if condition is None:
            continue
        if condition[1].startswith("if"):
            open_chains.append(([(start, end)], start))
        elif open_chains:
            chain, _ = open_chains[-1]
            chain.append((start, end))
            if condition[1] == "endif":
                open_chains.pop()
                _drop_if_empty(stays, text, chain)


def _drop_if_empty(stays: bytearray, text: str, chain: list[tuple[int, int]]) -> None:
    between = itertools.pairwise(chain)
    has_text = any(
        stays[position] and not text[position].isspace()
        for (_, after), (before, _) in between
        for position in range(after, before)
    )
    if not has_text:
        for start, end in chain:
            stays[start:end] = bytes(end - start)


def rendered(text: str, stays: bytearray, added: Mapping[int, str]) -> str:
    """The text of what stays; no line of it tells how long the rest of the line was.

    Args:
        added: What is written before the character of a position, or in its place.
    """
    lines, begin = [], 0
    for line in text.split("\n"):
        last = max((i for i in range(len(line)) if stays[begin + i]), default=-1)
        flags = stays[begin : begin + last + 1]
        own = {i: added[begin + i] for i in range(len(flags)) if begin + i in added}
        shown = _line(line, flags, own)
        lines.append(shown.rstrip(" ") if last < len(line) - 1 else shown)
        begin += len(line) + 1
    return "\n".join(_without_gap(lines)) + "\n"


def _line(text: str, flags: bytearray, added: Mapping[int, str]) -> str:
    """A line of what stays: what is added takes the place of blanks behind it, so that columns stay."""
    shown, debt = [], 0
    for index, flag in enumerate(flags):
        more = added.get(index, "")
        debt += len(more) - (flag == REPLACED)
        shown.append(more)
        if flag != REPLACED and (flag or text[index] == "\t"):
            shown.append(text[index])
        elif flag != REPLACED and debt > 0:
            debt -= 1
        elif flag != REPLACED:
            shown.append(" ")
    return "".join(shown)


def _without_gap(lines: list[str]) -> list[str]:
    """Lines without the blank ones behind the last that has code; a header may be included there."""
    last = max((i for i, line in enumerate(lines) if line.strip() and not _INCLUDE.match(line)), default=-1)
    return lines[: last + 1] + [line for line in lines[last + 1 :] if line.strip()]
