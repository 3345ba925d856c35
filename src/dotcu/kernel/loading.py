"""`load()` and `load_inline()`: a module from a file, or from text."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dotcu import compile as compiler
from dotcu.compile import CompileOptions
from dotcu.errors import UsageError
from dotcu.kernel.module import Instantiations, Module, is_prebuilt


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
        path: The `.cu` file; a relative one is taken from the caller's file.
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
        KernelNotFound: `instantiate` names a template that is not there.
    """
    source = compiler.read_source(path, include, base=_caller_folder(), is_compiled=is_prebuilt)
    return Module(source, CompileOptions(std=std, define=define, options=options, debug=debug), instantiate)


_PATH = re.compile(r"[^\n{};]+\.(cu|cuh|cpp|h)")


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


def _caller_folder() -> Path:
    """Return the folder of the file that called `load`; the working directory if there is no file."""
    file = sys._getframe(2).f_globals.get("__file__")
    return Path(file).absolute().parent if file else Path.cwd()
