"""The base of reports: each has a `__rich__`, and from that its text and its form in a notebook.

Its JSON form is `to_json`, which begins from `dotcu.serialize.plain`.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.control import Control
from rich.segment import Segment

from dotcu.errors import escaped


class Visible(RenderHook):
    """A hook of a console: whatever is printed, its texts are shown with escapes for what could hide them."""

    def __init__(self, *shown: RenderableType) -> None:
        self.shown = shown

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [each if isinstance(each, Control) else Visible(each) for each in renderables]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for each in self.shown:
            for segment in console.render(each, options):
                yield segment if segment.control else Segment(escaped(segment.text), segment.style)


_WIDE = 100_000  # characters: no line of a report is folded in its text


class Report(ABC):
    """A value that shows itself: in a terminal as `__rich__` has it, as a str, and in a notebook."""

    @abstractmethod
    def __rich__(self) -> RenderableType: ...

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        page: str = import_module("dotcu.notebook.page").html(self)
        return page

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the text that IPython shows in a terminal, in place of a dataclass's repr."""
        return {"text/plain": str(self)}


def text(renderable: RenderableType) -> str:
    """Return the text that is shown, without colours, nothing folded, no blanks at the ends of lines."""
    console = Console(
        file=io.StringIO(), width=_WIDE, color_system=None, highlight=False, emoji=False,
        markup=False, force_jupyter=False,
    )  # fmt: skip
    console.push_render_hook(Visible())
    with console.capture() as captured:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())
