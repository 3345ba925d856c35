"""Kernels and variables that the compiler sees and the scan of the text does not: macros make them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dotcu.compile import Declaration
from dotcu.compile.failure import is_unchosen
from dotcu.errors import CompileError, KernelNotFound
from dotcu.kernel.mangling import qualified_name
from dotcu.kernel.units import Code

_NAME = re.compile(r"(?:[A-Za-z_]\w*::)*[A-Za-z_]\w*")
_UNNAMED = "(anonymous namespace)::"


def entries(code: Code) -> Iterator[str]:
    """The names of the kernels that code holds, as a source would write them; no instantiations."""
    for symbol in code.outline.entries:
        name, is_template = qualified_name(symbol)
        if not is_template:
            yield name.replace(_UNNAMED, "")


def kernel(code: Code, name: str) -> Declaration | None:
    """Ask the compiler for a kernel, or a template of kernels, of a qualified name."""
    if not _NAME.fullmatch(name):
        return None
    try:
        symbol = code.alone(name).lowered[name]
    except KernelNotFound:
        return None
    except CompileError as error:
        return Declaration(name, ("...",), (), 0) if is_unchosen(error) else None
    return Declaration(name, (), (), 0) if symbol in code.outline.entries else None


def variable(code: Code, name: str) -> bool:
    """Ask the compiler whether there is a variable of a qualified name."""
    if not _NAME.fullmatch(name):
        return False
    try:
        code.alone("&" + name)
    except (KernelNotFound, CompileError):
        return False
    return True
