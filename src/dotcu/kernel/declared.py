"""What a source and its own headers declare, told from their text alone, and how it is found by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dotcu import compile as compiler
from dotcu.compile import CompileOptions, Declaration, Source
from dotcu.compile.closure import closure
from dotcu.compile.headers import shelf
from dotcu.compile.lexing import macros, without_comments
from dotcu.kernel import templates

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


def by_name(name: str, names: Sequence[str]) -> str | None:
    """A qualified name, or the only one that ends in a plain one."""
    if name in names:
        return name
    matches = _ending_in(name, names)
    return matches[0] if len(matches) == 1 else None


def is_unknown(name: str, names: Sequence[str]) -> bool:
    """Whether no name is this one or ends in it, so that the compiler may be asked for it."""
    return name not in names and not _ending_in(name, names)


def _ending_in(name: str, names: Sequence[str]) -> list[str]:
    return [other for other in names if other.rsplit("::")[-1] == name]


def not_found(file: str, name: str, kind: str, names: Sequence[str]) -> str:
    """The message for a name that is not there, or that is not enough to tell several apart."""
    several = _ending_in(name, names)
    if len(several) > 1:
        which = f"{len(several)} {kind}s named {name}: {', '.join(several)}"
        return f"{file} has {which}.\nSay which: {_python(kind, several[0])}"
    near = difflib.get_close_matches(name, names, n=max(1, len(names)), cutoff=0.0)
    listed = ", ".join(near) if near else f"no {kind} at all"
    remedy = f"Did you mean {_python(kind, near[0])}?" if near else _NONE[kind]
    return f"{file} has no {kind} named {name!r}; it has {listed}.\n{remedy}"


_NONE = {
    "kernel": "A kernel is a __global__ void function.",
    "template": "A template of kernels begins: template <typename T> __global__ void",
    "variable": "Declare one outside any function, as __constant__ or __device__.",
}


def _python(kind: str, name: str) -> str:
    return f'module.variable("{name}")' if kind == "variable" else templates.access(name)
