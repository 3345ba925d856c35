"""Just enough of C++'s lexical rules: what is comment, literal, directive, and certainly not compiled.

Everything here keeps positions: text that is taken out becomes blanks, newlines stay.

A scan of a text in which both branches of an `#if` stand sees two opening brackets where the
compiler sees one. So it goes over `variants()`, each with one branch of every `#if`, which together
show every branch.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

_COMMENT = r"//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z)"
_LITERAL = (
    r'\b(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f_])'(?:\\.|[^'\\\n])*'"
)
_COMMENT_OR_LITERAL = re.compile(f"(?P<comment>{_COMMENT})|{_LITERAL}", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\r?\n|[^\n])*", re.MULTILINE)
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(ifdef|ifndef|if|elif|else|endif)\b((?:\\\r?\n|[^\n])*)")
_DEFINED = re.compile(r"(!?)\s*defined\s*(?:\(\s*(\w+)\s*\)|(\w+))\s*")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)


def blanks(text: str) -> str:
    """As many blanks as a text has characters; its newlines stay."""
    return "\n".join(" " * len(line) for line in text.split("\n"))


@functools.lru_cache(maxsize=256)
def without_comments(text: str) -> str:
    """The text with comments blanked; literals stand. Of a file that is asked for again, at once."""
    return _COMMENT_OR_LITERAL.sub(lambda m: blanks(m[0]) if m["comment"] else m[0], text)


def code(text: str) -> str:
    """The text with comments, literals and directives blanked: what a scan for names may look at."""
    bare = _COMMENT_OR_LITERAL.sub(lambda match: blanks(match[0]), text)
    return _DIRECTIVE.sub(lambda match: blanks(match[0]), bare)


def directives(text: str) -> tuple[tuple[int, int], ...]:
    """Where the preprocessor's lines stand, continuations included."""
    bare = _COMMENT_OR_LITERAL.sub(lambda match: blanks(match[0]), text)
    return tuple(match.span() for match in _DIRECTIVE.finditer(bare))


def without_directives(text: str) -> str:
    """The text with the preprocessor's lines blanked; literals stand."""
    for start, end in directives(text):
        text = text[:start] + blanks(text[start:end]) + text[end:]
    return text


def macros(text: str) -> frozenset[str]:
    """The names that a text defines as macros."""
    return frozenset(_MACRO.findall(without_comments(text)))


DEFINED = frozenset({"__CUDACC_RTC__", "__CUDACC__", "__CUDA__", "__cplusplus", "__NVCC__"})
"""Macros that are defined whenever NVRTC compiles. Source: NVRTC documentation, "Predefined Macros"."""


def active(text: str, defined: Container[str] = DEFINED, *, undefined: Container[str] = ()) -> str:
    """Blank the branches of `#if` that NVRTC certainly does not see.

    Only conditions that ask for one macro are decided: `#ifdef X`, `#ifndef X`, `#if defined(X)`,
    `#if !defined(X)`, `#if 0` and `#if 1`. Where a condition cannot be decided every branch stands.

    Args:
        defined: Macros known to be defined.
        undefined: Macros known not to be.
    """
    return "".join(
        raw if all(branch.taken is not False for branch in stack) else blanks(raw)
        for raw, stack in branching(text, defined, undefined=undefined)
    )


class Branch:
    """An open `#if`: what is known of its present branch, and whether an earlier one was surely taken.

    Attributes:
        chain: Which `#if` of the text it is.
        number: Which of its branches, counted from 0.
    """

    def __init__(self, taken: bool | None, chain: int) -> None:
        self.taken = taken
        self.done = taken is True
        self.chain = chain
        self.number = 0


def branching(
    text: str, defined: Container[str] = DEFINED, *, undefined: Container[str] = ()
) -> Iterator[tuple[str, list[Branch]]]:
    """Each logical line with the branches that it stands in; an `#if` or `#else` stands outside its own.

    Note:
        The list changes as the iteration goes on.
    """
    stack: list[Branch] = []
    chains = 0
    for stripped, raw in _logical_lines(without_comments(text), text):
        condition = _CONDITION.match(stripped)
        if condition:
            decided = _decide(condition[1], condition[2], defined, undefined)
            _step(stack, condition[1], decided, chains)
            chains += 1
        yield raw, [] if condition else stack


def _step(stack: list[Branch], directive: str, decided: bool | None, chain: int) -> None:
    if directive in ("if", "ifdef", "ifndef"):
        stack.append(Branch(decided, chain))
    elif not stack:
        return
    elif directive == "endif":
        stack.pop()
    else:
        branch = stack[-1]
        branch.number += 1
        otherwise = decided if directive == "elif" else _otherwise(branch)
        branch.taken = False if branch.done else otherwise
        branch.done = branch.done or branch.taken is True


def _otherwise(branch: Branch) -> bool | None:
    return True if branch.taken is False and not branch.done else None


def _decide(directive: str, rest: str, defined: Container[str], undefined: Container[str]) -> bool | None:
    rest = rest.strip()
    if directive in ("ifdef", "ifndef"):
        return _known(rest.split()[0] if rest else "", directive == "ifndef", defined, undefined)
    if rest in ("0", "1"):
        return rest == "1"
    match = _DEFINED.fullmatch(rest)
    return _known(match[2] or match[3], bool(match[1]), defined, undefined) if match else None


def _known(name: str, negated: bool, defined: Container[str], undefined: Container[str]) -> bool | None:
    if name in defined:
        return not negated
    return negated if name in undefined else None


def _logical_lines(stripped: str, raw: str) -> Iterator[tuple[str, str]]:
    """Lines with their continuations, without and with comments."""
    start = 0
    for match in re.finditer(r"(?:\\\r?\n|[^\n])*(?:\n|\Z)", stripped):
        if match.end() > start:
            yield stripped[start : match.end()], raw[start : match.end()]
            start = match.end()


_Path = tuple[tuple[int, int], ...]
"""The branches that a line stands in: (which `#if`, which of its branches), the outermost first."""


@dataclass(frozen=True)
class _Line:
    text: str
    path: _Path


def variants(text: str, defined: Container[str] = DEFINED) -> Iterator[str]:
    """The text with one branch of each `#if` and the others blanked, until each was seen once.

    Branches that NVRTC certainly does not see are in none. Neighbouring `#if`s advance together,
    so that `#else` goes with `#else`.

    Args:
        defined: Macros known to be defined.
    """
    lines = [
        _Line(raw if _seen(stack) else blanks(raw), _path(stack)) for raw, stack in branching(text, defined)
    ]
    waiting = list(dict.fromkeys(line.path for line in lines if line.text.strip()))
    first: dict[int, int] = {}
    for path in waiting:
        for chain, branch in path:
            first.setdefault(chain, branch)
    while waiting:
        chosen = _choose(waiting, first)
        yield "".join(line.text if _fits(line.path, chosen) else blanks(line.text) for line in lines)
        waiting = [path for path in waiting if not _fits(path, chosen)]


def _seen(stack: Sequence[Branch]) -> bool:
    return all(branch.taken is not False for branch in stack)


def _path(stack: Sequence[Branch]) -> _Path:
    return tuple((branch.chain, branch.number) for branch in stack)


def _choose(waiting: Sequence[_Path], first: Mapping[int, int]) -> dict[int, int]:
    """A branch of each `#if`: of those not seen yet as many as go together, else the first."""
    chosen: dict[int, int] = {}
    for path in waiting:
        if all(chosen.get(chain, branch) == branch for chain, branch in path):
            chosen.update(path)
    return {**first, **chosen}


def _fits(path: _Path, chosen: Mapping[int, int]) -> bool:
    return all(chosen[chain] == branch for chain, branch in path if chain in chosen)
