"""The live page of a terminal: the last save, what came of it, and what it changed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from dotcu.checking.rendering import shortfall
from dotcu.watching.state import State
from dotcu.watching.words import distinct, kernel_words, saved_words, timing_words, verdict

_CARET = re.compile(r"^\s*\^\s*$")
_ERROR = re.compile(r"(?<=: )(catastrophic error|error): ")
_STYLES = {"faster": "green", "slower": "bold red", "unclear": "yellow"}
_GOOD, _BAD, _OPEN = "bold green", "bold red", "bold"


def page(state: State, now: float) -> RenderableType:
    """The whole page.

    Args:
        now: In seconds since the epoch.
    """
    parts: list[RenderableType] = [_head(state), Text(), *_verdicts(state, now)]
    for block in _blocks(state):
        parts += [Text(), block]
    return Group(*parts)


def _head(state: State) -> Text:
    where = f" on {state.device}" if state.device else ""
    return Text.assemble((state.target, "bold"), where, ("   Ctrl-C ends", "dim"))


def _verdicts(state: State, now: float) -> Iterator[Text]:
    saved = state.saved
    if saved is not None:
        stamp = time.strftime("%H:%M:%S", time.localtime(saved.at))
        yield Text(f"{saved_words(saved)} {stamp}")
    first = state.first
    if first is not None:
        word, style = ("held", _GOOD) if first.held else ("FELL SHORT", _BAD)
        since = "the save" if saved is not None else "the start"
        yield Text.assemble((word, style), f"  {first.trial}, {first.seconds:.2f} s after {since}")
    if state.trials and not (state.trouble and state.held is None):
        style = _OPEN if state.held is None else _GOOD if state.held else _BAD
        yield Text.assemble((verdict(state), style))
    if not state.is_settled:
        yield Text(f"{state.phase} {max(0.0, now - state.begun):.1f} s  {state.trying}".rstrip(), style="dim")


def _blocks(state: State) -> Iterator[RenderableType]:
    if state.trouble:
        yield _error(state.trouble)
    for result in distinct(state.failures):
        yield _error(shortfall(result))
    if state.untried:
        yield Text("\n".join(state.untried), style=_BAD)
    if state.kernels:
        lines = [kernel_words(kernel, state.before(kernel)) for kernel in state.kernels]
        yield Group(*(Text(line, style="yellow" if "before)" in line else "") for line in lines))
    if state.timings:
        yield Group(*(_timing(state, place) for place in range(len(state.timings))))


def _timing(state: State, place: int) -> Text:
    timing = state.timings[place]
    return Text(timing_words(timing), style=_STYLES.get(timing.change.verdict, "") if timing.change else "")


def _error(words: str) -> RenderableType:
    """A message: its first line bold, carets and the word `error` in red."""
    first, *rest = words.splitlines()
    lines: list[RenderableType] = [Text(first, style="bold")]
    for line, following in zip_longest(rest, rest[1:], fillvalue=""):
        if _CARET.match(following):
            lines.append(Pointed(line=line, caret=following))
        elif not _CARET.match(line):
            text = Text(line)
            text.highlight_regex(_ERROR, _BAD)
            lines.append(text)
    return Padding(Group(*lines), 0)


@dataclass(frozen=True, kw_only=True)
class Pointed:
    """A source line and the caret below it, of which a narrow terminal gets the part around the caret."""

    line: str
    caret: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, at = options.max_width, self.caret.index("^")
        start = 0 if at < width else at - width // 2
        yield Text(self.line[start:], no_wrap=True, overflow="crop")
        yield Text(self.caret[start:], style=_BAD, no_wrap=True, overflow="crop")


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """As much of a page as a terminal has lines for, and how many are left out."""

    page: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = options.height or options.max_height
        lines = console.render_lines(self.page, options.update(height=None), pad=False)
        rest = len(lines) - height
        for line in lines if rest <= 0 else lines[: height - 1]:
            yield from line
            yield Segment.line()
        if rest > 0:
            yield Text(f"... {rest + 1} more lines; Ctrl-C leaves all of them", style="dim", no_wrap=True)
