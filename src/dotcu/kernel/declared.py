"""What a source and its own headers declare, told from their text alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dotcu import compile as compiler
from dotcu.compile import CompileOptions, Declaration, Source
from dotcu.compile.closure import closure
from dotcu.compile.headers import shelf
from dotcu.compile.lexing import macros, without_comments

# What the scan for variables passes over: static ones in functions, variable templates, macros.
_STATE = re.compile(
    r"\bstatic\b(?![^;={(\[]*\b(?:const|constexpr)\b)[^;={(\[]*[;={\[]"
    r"|\btemplate\s*<[^;{}()]*>\s*__(?:device|managed)__(?![^;={(\[]*\b(?:const|constexpr)\b)[^;={(\[]*[;={\[]"
    r"|#[ \t]*define\b[^\n]*__(?:device|managed)__(?![^\n]*[(])"
)


@dataclass(frozen=True, kw_only=True)
class Declared:
    """Kernels and variables by name.

    Attributes:
        kernels: Those with a name of their own: the source's in order, then its headers'. A
            header's have no line.
        overloads: The lines of each name that the source gives to several kernels.
        variables: Qualified names of `__constant__` and `__device__` variables.
        constants: Those of them that no kernel writes.
        has_state: Whether there may be variables that kernels write, in a macro or a function, say.
    """

    kernels: tuple[Declaration, ...]
    overloads: Mapping[str, tuple[int, ...]]
    variables: tuple[str, ...]
    constants: tuple[str, ...]
    has_state: bool


def declared(source: Source, options: CompileOptions) -> Declared:
    """Scan a source and the user's headers that it reaches, without their host part."""
    defined = options.defined
    texts = [file.text for file in closure(source, shelf(()), options=options).files]
    made = frozenset(name for text in texts for name in macros(text))
    own = compiler.kernels(texts[0], defined, made)
    lines: dict[str, tuple[int, ...]] = {}
    for kernel in own:
        lines[kernel.name] = (*lines.get(kernel.name, ()), kernel.line)
    kernels = {kernel.name: kernel for kernel in own if len(lines[kernel.name]) == 1}
    for text in texts[1:]:
        for kernel in compiler.kernels(text, defined, made):
            if kernel.name not in lines:
                kernels.setdefault(kernel.name, replace(kernel, line=0))
    found = tuple(dict.fromkeys(v for text in texts for v in compiler.variables(text, defined)))
    shared = {v for text in texts for v in compiler.shared_variables(text, defined)}
    return Declared(
        kernels=tuple(kernels.values()),
        overloads={name: found for name, found in lines.items() if len(found) > 1},
        variables=found,
        constants=tuple(name for name in found if name not in shared),
        has_state=bool(shared) or any(_STATE.search(without_comments(text)) for text in texts),
    )
