"""Reports for those who see no terminal: a string of what is shown, and values that JSON has.

A report itself knows only what it shows, as `__rich__` gives it; what follows from that is here.
"""

from __future__ import annotations

import io
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from rich.console import Console, RenderableType

_WIDE = 100_000  # characters: no line of a report is folded where it is made a string


class Report(ABC):
    """A value that shows itself: in a terminal as `__rich__` has it, as a str, and in a notebook."""

    @abstractmethod
    def __rich__(self) -> RenderableType: ...

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        page: str = import_module("dotcu.notebook.page").html(self)
        return page

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What IPython shows of it in a terminal, in place of a dataclass's repr."""
        return {"text/plain": str(self)}


def text(renderable: RenderableType) -> str:
    """What is shown, without colours, nothing folded, no blanks at the ends of lines."""
    console = Console(
        file=io.StringIO(), width=_WIDE, color_system=None, highlight=False, emoji=False,
        force_jupyter=False,
    )  # fmt: skip
    with console.capture() as captured:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())


def values(value: Any) -> Any:
    """A value, however nested, with None for every number that is not finite, and lists for tuples."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): values(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [values(item) for item in value]
    return value
