"""Kernels and variables that the compiler sees and the scan of the text does not: macros make them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from dotcu.compile import Declaration
from dotcu.compile.failure import is_unchosen
from dotcu.errors import CompileError, KernelNotFound
from dotcu.kernel import templates
from dotcu.kernel.mangling import qualified_name
from dotcu.kernel.units import Code

_NAME = re.compile(r"(?:[A-Za-z_]\w*::)*[A-Za-z_]\w*")
_UNNAMED = "(anonymous namespace)::"


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


def entries(code: Code) -> Iterator[str]:
    """The names of the kernels that code holds, as a source would write them; no instantiations."""
    for symbol in code.program.headers:
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
    return Declaration(name, (), (), 0) if symbol in code.program.headers else None


def variable(code: Code, name: str) -> bool:
    """Ask the compiler whether there is a variable of a qualified name."""
    if not _NAME.fullmatch(name):
        return False
    try:
        code.alone("&" + name)
    except (KernelNotFound, CompileError):
        return False
    return True


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
