"""`load()`, `load_inline()` and `load_ptx()`: a module from a file, or from text."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dotcu import compile as compiler
from dotcu.compile import CompileOptions, Source
from dotcu.compile.source.source import PTX
from dotcu.errors import DotcuError, UsageError
from dotcu.kernel.module import Instantiations, Module, is_prebuilt
from dotcu.tracebacks import shorten


def load(
    path: str | Path,
    *,
    include: Sequence[str | Path] = (),
    define: Mapping[str, Any] = {},
    options: Sequence[str] = (),
    std: str = "c++17",
    debug: bool = False,
    instantiate: Instantiations = {},  # noqa: B006 - never changed
) -> Module:
    """Read a file of kernels. Nothing is compiled yet.

    Args:
        path: The `.cu` file, or one of PTX or machine code that another compiler has written: `.ptx`,
            `.cubin`. A relative one is taken from the caller's file. What follows is for `.cu` files.
        include: Folders for its headers; relative ones are taken from the caller's file too.
        define: Macros; None defines one without a value.
        options: More options for the compiler.
        std: The C++ standard.
        debug: Compile for cuda-gdb, without optimization.
        instantiate: For each template the arguments that a wheel must hold:
            `{"scale_add": [(torch.float32,), (torch.bfloat16,)]}`. Where kernels write a
            `__device__` variable, these are compiled together with the plain kernels and share it.

    Raises:
        SourceNotFound: There is no file that can be read.
        KernelNotFound: `instantiate` names a template that is not there; PTX or a cubin has no kernel.
        SourceError: The PTX is not well formed.
    """
    base = _caller_folder()
    try:
        source = compiler.read_source(path, include, base=base, is_compiled=is_prebuilt)
        if source.is_compiled:
            given = {"include": include, "define": define, "options": options, "instantiate": instantiate}
            _refuse_options(source, [name for name, value in given.items() if value])
            return Module(source, CompileOptions(), {})
    except DotcuError as error:
        __tracebackhide__ = True
        shorten(error)
        raise error
    return Module(source, CompileOptions(std=std, define=define, options=options, debug=debug), instantiate)


def _refuse_options(source: Source, given: Sequence[str]) -> None:
    if given:
        raise UsageError(
            f"{source.display} is compiled already, and {given[0]}= was passed, which is for the compiler.\n"
            f"Leave it out: dotcu.load({source.name!r})"
        )


_PATH = re.compile(r"[^\n{};]+\.(cu|cuh|cpp|h|ptx|cubin)")


def load_inline(
    source: str,
    *,
    include: Sequence[str | Path] = (),
    define: Mapping[str, Any] = {},
    options: Sequence[str] = (),
    std: str = "c++17",
    debug: bool = False,
    instantiate: Instantiations = {},  # noqa: B006 - never changed
) -> Module:
    """Take kernels from a str.

    Args:
        source: The text.
        include, define, options, std, debug, instantiate: As `load` takes them.
    """
    given: object = source
    if isinstance(given, str) and _PATH.fullmatch(given):
        raise UsageError(
            f"load_inline takes the text of a source, got {source!r}, which is a file's name.\n"
            f"Type: dotcu.load({source!r})"
        )
    text = compiler.inline_source(source, include=include, base=_caller_folder())
    return Module(text, CompileOptions(std=std, define=define, options=options, debug=debug), instantiate)


def load_ptx(text: str | bytes, *, name: str = "inline.ptx") -> Module:
    """Take kernels from PTX, which any compiler may have written.

    Each `.entry` is a kernel, under its name in C++ or its symbol: `module.kernels["scale<float>"]`.
    Arguments are checked by the size and kind of each `.param`: a tensor for a pointer, a number for a
    number, bytes or a ctypes.Structure for an array of bytes, a `tensor_map` for one of 128 bytes that is
    aligned to 64.

    Args:
        text: The PTX.
        name: What messages call it. Findings name the file and line of `.loc`; where there is none, this
            name and the line of the PTX.

    Raises:
        SourceError: The text is not PTX, or not well formed.
        KernelNotFound: It has no kernel.
    """
    given: object = text
    try:
        if isinstance(given, (bytes, bytearray)):
            given = bytes(given).rstrip(b"\0").decode("utf-8", "replace")
        if not isinstance(given, str) or _PATH.fullmatch(given):
            remedy = (
                f"dotcu.load({str(given)!r})" if isinstance(given, (str, Path)) else "dotcu.load_ptx(text)"
            )
            got = f"{type(given).__name__} {str(given)[:80]!r}"
            raise UsageError(f"load_ptx takes the text of PTX, got {got}.\nType: {remedy}")
        name = name if name.endswith(PTX) else f"{name}{PTX}"
        return Module(Source(name, given), CompileOptions(), {})
    except DotcuError as error:
        __tracebackhide__ = True
        shorten(error)
        raise error


def _caller_folder() -> Path:
    """Return the folder of the file that called `load`; the working directory if there is no file."""
    file = sys._getframe(2).f_globals.get("__file__")
    return Path(file).absolute().parent if file else Path.cwd()
