"""What a text may be, by the branches of its `#if`s that nobody but the compiler can choose.

A scan of a text in which both branches of an `#if` stand sees two opening brackets where the
compiler sees one. So it goes over variants, each with one branch of every `#if`, which together
show every branch.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dotcu.compile.lexing import DEFINED, Branch, blanks, branching

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
