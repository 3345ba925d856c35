"""What a source and its own headers declare, told from their text alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dotcu import compile as compiler
from dotcu.compile import CompileOptions, Declaration, Source
from dotcu.compile.closure import closure
from dotcu.compile.headers import shelf
from dotcu.compile.lexing import DEFINED


@dataclass(frozen=True, kw_only=True)
class Declared:
    """Kernels and variables by name.

    Attributes:
        kernels: Those with a name of their own: the source's in order, then its headers'. A
            header's have no line.
        overloads: The lines of each name that the source gives to several kernels.
        variables: Qualified names of `__constant__` and `__device__` variables.
        shared: Those of them that kernels may write.
    """

    kernels: tuple[Declaration, ...]
    overloads: Mapping[str, tuple[int, ...]]
    variables: tuple[str, ...]
    shared: tuple[str, ...]


def declared(source: Source, options: CompileOptions) -> Declared:
    """Scan a source and the user's headers that it reaches."""
    defined = {*DEFINED, *options.define}
    texts = [source.text, *_header_texts(source)]
    own = compiler.kernels(source.text, defined)
    lines: dict[str, tuple[int, ...]] = {}
    for kernel in own:
        lines[kernel.name] = (*lines.get(kernel.name, ()), kernel.line)
    kernels = {kernel.name: kernel for kernel in own if len(lines[kernel.name]) == 1}
    for text in texts[1:]:
        for kernel in compiler.kernels(text, defined):
            if kernel.name not in lines:
                kernels.setdefault(kernel.name, replace(kernel, line=0))
    return Declared(
        kernels=tuple(kernels.values()),
        overloads={name: found for name, found in lines.items() if len(found) > 1},
        variables=tuple(dict.fromkeys(v for text in texts for v in compiler.variables(text, defined))),
        shared=tuple(dict.fromkeys(v for text in texts for v in compiler.shared_variables(text, defined))),
    )


def _header_texts(source: Source) -> list[str]:
    if "#include" not in source.text.replace(" ", ""):
        return []
    reached = closure(source, shelf(()))
    return [file.text for file in reached.headers.values()]
