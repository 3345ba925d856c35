"""`%load_ext dotcu`, and the `%%cu` that it brings."""

from __future__ import annotations

import re
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from dotcu import compile as compiler
from dotcu.compile import CompileOptions
from dotcu.errors import UsageError
from dotcu.kernel.launch import default_place
from dotcu.kernel.module import Module
from dotcu.notebook import names, options

FILE = "cell.cu"
"""What the compiler calls every cell, so that running one again finds its code in the cache."""

_QUOTED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"', re.MULTILINE)


def load_ipython_extension(shell: Any) -> None:
    """Add `%%cu` to a running IPython, as `%load_ext dotcu` asks."""
    shell.register_magic_function(Magic(shell).cu, magic_kind="cell", magic_name="cu")


class Magic:
    """`%%cu` of one IPython."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def cu(self, line: str, cell: str) -> None:
        """Define the kernels of a cell.

            %%cu [NAME] [-D MACRO[=VALUE]] [-I FOLDER] [--std c++20] [--debug] [compiler's options]

        The cell is compiled at once, for the GPU or else for the simulator. Each kernel is then there
        by its name, to be called; with NAME, so is the module of them all. Running the cell again replaces
        them. A name that means something else already is refused; with NAME it is left as it was, and
        the kernel is NAME.kernel.

        Options are those of `dotcu.load_inline`. Relative folders are taken from the working directory;
        headers in quotes are looked for there, too.

            %%cu kernels -D BLOCK=256 --use_fast_math
        """
        asked = options.parse(line)
        module = define(cell, asked, f"<cell {label(self._shell)}>")
        bound = names.choose(module, asked.name, self._shell.user_ns)
        default_place().code(module.units()[0])
        names.bind(bound, self._shell)


def label(shell: Any) -> str:
    """`In[3]` of the cell that is running.

    Taken from the code that runs: releases of IPython differ in when they count a cell.
    """
    frames = (frame.f_code.co_filename for frame, _ in traceback.walk_stack(None))
    known = (shell.compile.format_code_name(file) for file in frames)
    return next((cell[1] for cell in known if cell), f"In[{shell.execution_count}]")


def define(cell: str, asked: options.Asked, shown: str) -> Module:
    """A cell's text as a module.

    Args:
        shown: What messages call the cell.

    Raises:
        UsageError: It has no kernel, and the module has no name to be asked for one that a macro makes.
    """
    text = "\n" + cell  # the magic is line 1, as a notebook counts
    here = (".",) if _QUOTED.search(cell) else ()
    source = compiler.inline_source(text, FILE, (*asked.include, *here), beside=Path.cwd())
    how = CompileOptions(std=asked.std, define=asked.define, options=asked.options, debug=asked.debug)
    module = Module(replace(source, shown=shown), how, {})
    if not module.kernels and not asked.name:
        raise UsageError(
            f"{shown} has no kernel: no function in it is __global__.\n"
            "If a macro makes one, name the module, and ask it: %%cu kernels"
        )
    return module
