"""The macros of a source: what each stands for, and which words they bring."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dotcu.compile.lexing import without_comments

WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)\n]*\))?((?:\\\r?\n|[^\n])*)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Macro:
    """All values of a macro: the names in them, and each as a text."""

    called: bool
    values: tuple[str, ...]

    @property
    def words(self) -> frozenset[str]:
        return frozenset(word for value in self.values for word in WORD.findall(value))


Macros = Mapping[str, Macro]


def macros_of(texts: tuple[str, ...]) -> dict[str, Macro]:
    """The macros that some texts define, in whatever `#if`."""
    found: dict[str, Macro] = {}
    for text in texts:
        for name, brackets, value in _DEFINE.findall(without_comments(text)):
            value = re.sub(r"\s*##\s*", "", re.sub(r"\\\r?\n", " ", value)).strip()
            before = found.get(name, Macro(called=bool(brackets), values=()))
            found[name] = replace(before, values=(*before.values, value))
    return found


def expanded(words: frozenset[str], macros: Macros) -> frozenset[str]:
    """Some words, and those of the macros among them, and of the macros among those."""
    found, waiting = set(words), [word for word in words if word in macros]
    while waiting:
        for word in macros[waiting.pop()].words - found:
            found.add(word)
            if word in macros:
                waiting.append(word)
    return frozenset(found)
