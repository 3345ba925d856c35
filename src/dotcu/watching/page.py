"""The live page of a terminal: the last save, what came of it, and what it changed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from dotcu.checking.rendering import shortfall
from dotcu.watching.state import State
from dotcu.watching.words import distinct, kernel_words, timing_words, verdict

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
        yield Text.assemble((f"{', '.join(saved.files)} saved {stamp}", ""))
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
    lines = [Text(first, style="bold")]
    for line in rest:
        text = Text(line, style=_BAD if _CARET.match(line) else "")
        text.highlight_regex(_ERROR, _BAD)
        lines.append(text)
    return Padding(Group(*lines), 0)
