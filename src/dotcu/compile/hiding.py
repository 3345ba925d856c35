"""A source with some of its kernels alone: what is to be compiled without the others beside it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from dotcu.compile.declarations import spans
from dotcu.compile.failure import base
from dotcu.compile.lexing import blanks
from dotcu.compile.options import CompileOptions
from dotcu.compile.source import Source


def alone(source: Source, options: CompileOptions, names: Collection[str]) -> Source:
    """A source whose other kernels are blanked, so that every line keeps its number.

    Kernels of headers stay, and those that a macro makes.

    Args:
        names: Name expressions of the kernels that stay: `scale<float>`, `ns::plain`.
    """
    kept = {base(name).rsplit("::")[-1] for name in names}
    text = source.text
    for name, start, end in spans(text, options.defined):
        if name not in kept:
            text = text[:start] + blanks(text[start:end]) + text[end:]
    return replace(source, text=text)
