"""The line behind `%%cu`, read."""

from __future__ import annotations

import argparse
import builtins
import keyword
import re
import shlex
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

from dotcu import compile as compiler
from dotcu.compile import CompileOptions
from dotcu.errors import UsageError
from dotcu.kernel.launch import default_device
from dotcu.kernel.module import Kernel, Module

HOW = "%%cu [NAME] [-D MACRO[=VALUE]] [-I FOLDER] [--std c++20] [--debug] [compiler's options]"


def parse(line: str) -> tuple[str, tuple[str, ...], CompileOptions]:
    """Read the words behind `%%cu`; those that begin with `-` and are not known go to the compiler.

    Returns:
        The name of the module in the notebook, empty if it is to have none; folders of headers; the options.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise _refused(f"{error}, in {line!r}") from error
    parser = argparse.ArgumentParser(prog="%%cu", add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("-D", "--define", action="append", default=[])
    parser.add_argument("-I", "--include", action="append", default=[])
    parser.add_argument("--std", default="c++17")
    parser.add_argument("--debug", action="store_true")
    try:
        read, rest = parser.parse_known_args(words)
    except argparse.ArgumentError as error:
        raise _refused(str(error)) from error
    for word in rest:
        if not word.startswith("-"):
            raise _refused(f"got {word!r} after {read.name!r}; write an option's value after =")
    if read.name and (not read.name.isidentifier() or keyword.iskeyword(read.name)):
        raise _refused(f"{read.name!r} is not a valid name of a variable")
    macros = (macro.partition("=") for macro in read.define)
    define = {macro: value if sign else None for macro, sign, value in macros}
    options = CompileOptions(std=read.std, define=define, options=tuple(rest), debug=read.debug)
    return read.name, tuple(read.include), options


def _refused(why: str) -> UsageError:
    return UsageError(f"%%cu: {why}.\nWrite {HOW}\nFor its help: %%cu?")


# Which names a cell's kernels get in the notebook.


_of_cells: WeakSet[Kernel | Module] = WeakSet()
"""What cells have defined so far, and may define again. It outlives `%reload_ext`."""


def choose(module: Module, name: str, known: Mapping[str, Any]) -> dict[str, Kernel | Module]:
    """Choose which kernels of a cell's module the notebook gets, and by which names.

    Args:
        name: Of the module itself; empty without one.
        known: The notebook's variables.

    Raises:
        UsageError: A name is taken by something that no cell of kernels defined; names the way out.
    """
    kernels = {kernel.name.rpartition("::")[2]: kernel for kernel in module.kernels.values()}
    taken = {each: why for each in kernels if (why := _taken(each, known))}
    if name and (why := _taken(name, known)):
        raise UsageError(f"%%cu {name}: {name} is {why}.\nTake another name, or first type: del {name}")
    if taken and not name:
        one, why = next(iter(taken.items()))
        raise UsageError(
            f"{module.name} has a kernel {one}, but {one} is {why}, which dotcu does not replace.\n"
            f"Name the module, and call kernels.{one}: %%cu kernels"
        )
    free: dict[str, Kernel | Module] = {each: kernels[each] for each in kernels if each not in taken}
    return free | ({name: module} if name else {})


def _taken(name: str, known: Mapping[str, Any]) -> str:
    """Describe what a name means already; empty if a cell may have it."""
    if keyword.iskeyword(name):
        return "a Python keyword"
    if name in known:
        value = known[name]
        is_of_cell = isinstance(value, (Kernel, Module)) and value in _of_cells
        return "" if is_of_cell else f"a variable of yours, of type {type(value).__name__}"
    return "a Python built-in" if hasattr(builtins, name) else ""


# `%load_ext dotcu`, and the `%%cu` that it defines.


FILE = "cell.cu"
"""What the compiler calls every cell, so that running one again finds its code in the cache."""

_QUOTED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"', re.MULTILINE)


def load_ipython_extension(shell: Any) -> None:
    """Add `%%cu` to a running IPython, as `%load_ext dotcu` asks."""

    def cu(line: str, cell: str) -> None:
        """Define the kernels of a cell.

            %%cu [NAME] [-D MACRO[=VALUE]] [-I FOLDER] [--std c++20] [--debug] [compiler's options]

        dotcu compiles the cell at once, for the GPU or else for the simulator, and defines each kernel as
        a variable; with NAME, also the module that has them all. Run the cell again to replace them.
        A variable of yours is never replaced: the cell is refused, and with NAME the kernel is
        NAME.kernel alone.

        The options are those of `dotcu.load_inline`. Relative folders and headers in quotes start at the
        working directory.

            %%cu kernels -D BLOCK=256 --use_fast_math
        """
        name, include, options = parse(line)
        module = define(cell, f"<cell {label(shell)}>", include, options)
        if not module.kernels and not name:
            raise UsageError(
                f"{module.source.shown} has no kernel: no function in it is __global__.\n"
                "If a macro defines one, name the module and look it up there: %%cu kernels"
            )
        bound = choose(module, name, shell.user_ns)
        default_device().code(module.units()[0])
        shell.push(dict(bound))
        _of_cells.update(bound.values())

    shell.register_magic_function(cu, magic_kind="cell", magic_name="cu")


def label(shell: Any) -> str:
    """Return `In[3]` of the cell that is running.

    Taken from the code that runs: releases of IPython differ in when they count a cell.
    """
    frames = (frame.f_code.co_filename for frame, _ in traceback.walk_stack(None))
    known = (shell.compile.format_code_name(file) for file in frames)
    return next((cell[1] for cell in known if cell), f"In[{shell.execution_count}]")


def define(cell: str, shown: str, include: tuple[str, ...], options: CompileOptions) -> Module:
    """Return a cell's text as a module, which messages call `shown`."""
    text = "\n" + cell  # the magic is line 1, as a notebook counts
    here = (".",) if _QUOTED.search(cell) else ()
    source = compiler.inline_source(text, FILE, (*include, *here), base=Path.cwd())
    return Module(replace(source, shown=shown), options, {})
