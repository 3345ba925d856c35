"""An error as IPython shows it: the lines of the notebook that led to it, then what it says."""

from __future__ import annotations

import linecache
import sys
import traceback
from pathlib import Path

from dotcu import settings
from dotcu.errors import DotcuError

_MAGIC = "get_ipython().run_cell_magic("
"""IPython's own line for a cell that begins with %%; the user did not write it."""

_NOT_THE_USERS = ("dotcu", "torch", "IPython", "ipykernel", "os")
"""Packages between the user's lines and the error, of which none is shown; `os` stands for Python's own."""


def lines(error: DotcuError) -> list[str]:
    """Return the lines to show; those of Python's own traceback under DOTCU_DEBUG=1."""
    shell = sys.modules["IPython"].get_ipython()
    if settings.current().debug:
        whole = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
        return [*whole]
    shown = []
    files = [sys.modules[name].__file__ for name in _NOT_THE_USERS if name in sys.modules]
    folders = [Path(file).parent for file in files if file]
    for frame, number in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        text = linecache.getline(file, number, frame.f_globals).strip()
        if text.startswith(_MAGIC) or any(Path(file).is_relative_to(folder) for folder in folders):
            continue
        cell = shell.compile.format_code_name(file)
        where = f"{cell[0]} {cell[1]}" if cell else file
        shown.append(f"{where}, line {number}" + (f"\n    {text}" if text else ""))
    plain = str(getattr(shell, "colors", "")).lower() == "nocolor"
    kind = type(error).__name__
    head = kind if plain else f"\x1b[1;31m{kind}\x1b[0m"
    return [*shown, f"{head}: {error}"]
