"""The state for people and programs: the live page of a terminal, lines for a pipe, JSON."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from dotcu.checking.report import failure_text, result_json
from dotcu.checking.trial import Result
from dotcu.watching.state import Event, KernelResources, OperatorTiming, WatchState, results_of

_CARET = re.compile(r"^\s*\^\s*$")
_ERROR = re.compile(r"(?<=: )(catastrophic error|error): ")
_STYLES = {"faster": "green", "slower": "bold red", "unclear": "yellow"}
_GOOD, _BAD, _OPEN = "bold green", "bold red", "bold"

_SHOWN = 3
"""The number of failures that are shown, one for each check; `dotcu check` shows more."""

_RESOURCES = {
    "registers": "registers",
    "smem_bytes": "B shared",
    "stack_bytes": "B stack",
    "spill_bytes": "B spilled",
}


def lines(event: Event, state: WatchState, now: float) -> Iterator[str]:
    """Yield the lines of an event, each with its time; most events have none.

    Args:
        event: That has happened.
        state: After it.
        now: In seconds since the epoch.
    """
    stamp = time.strftime("%H:%M:%S", time.localtime(now))
    for text in _texts(event, state):
        first, *rest = text.splitlines() or [""]
        yield f"{stamp} {first}"
        yield from (f"    {line}".rstrip() for line in rest)


def _texts(event: Event, state: WatchState) -> Iterator[str]:
    kind = event["event"]
    if kind == "saved":
        yield _saved(event)
    elif kind == "tried":
        if state.tried == 1:
            yield f"{state.first} {_word(state.first_passed)} after {state.first_s:.2f} s"
        results = results_of(event)
        yield from (failure_text(result) for result in _distinct(state.failures) if result in results)
    elif kind == "checked":
        yield _verdict(state)
        yield from event["not_tried"]
    elif kind in ("unloadable", "crashed"):
        yield state.trouble
    elif kind == "compiled":
        yield from (_kernel(kernel, state.before(kernel)) for kernel in state.kernels)
    elif kind == "timed":
        yield from map(_timing, state.timings)


def event_json(event: Event) -> Event:
    """Return an event as `dotcu watch --json` prints it: results as in the JSON form of a check."""
    if event["event"] != "tried":
        return event
    return {**event, "results": list(map(result_json, results_of(event)))}


def page(state: WatchState, now: float) -> RenderableType:
    """Return the whole page.

    Args:
        state: What is known.
        now: In seconds since the epoch.
    """
    where = f" on {state.device}" if state.device else ""
    parts: list[RenderableType] = [
        Text.assemble((state.target, "bold"), where, ("   Ctrl-C ends", "dim")),
        Text(),
        *_verdicts(state, now),
    ]
    for block in _blocks(state):
        parts += [Text(), block]
    return Group(*parts)


def _verdicts(state: WatchState, now: float) -> Iterator[Text]:
    if state.saved is not None:
        stamp = time.strftime("%H:%M:%S", time.localtime(state.saved["at"]))
        yield Text(f"{_saved(dict(state.saved))} {stamp}")
    if state.first:
        since = "the start" if state.saved is None else "the save"
        style = _GOOD if state.first_passed else _BAD
        after = f"  {state.first}, {state.first_s:.2f} s after {since}"
        yield Text.assemble((_word(state.first_passed), style), after)
    if state.trials and not (state.trouble and state.passed is None):
        yield Text(_verdict(state), style=_OPEN if state.passed is None else _GOOD if state.passed else _BAD)
    if not state.is_settled:
        yield Text(f"{state.phase} {max(0.0, now - state.begun):.1f} s  {state.trying}".rstrip(), style="dim")


def _blocks(state: WatchState) -> Iterator[RenderableType]:
    if state.trouble:
        yield _error(state.trouble)
    for result in _distinct(state.failures):
        yield _error(failure_text(result))
    if state.not_tried:
        yield Text("\n".join(state.not_tried), style=_BAD)
    if state.kernels:
        texts = [_kernel(kernel, state.before(kernel)) for kernel in state.kernels]
        yield Group(*(Text(text, style="yellow" if "before)" in text else "") for text in texts))
    if state.timings:
        styles = [_STYLES.get(one.change["verdict"], "") if one.change else "" for one in state.timings]
        yield Group(
            *(Text(_timing(one), style=style) for one, style in zip(state.timings, styles, strict=True))
        )


def _distinct(failures: Sequence[Result]) -> list[Result]:
    """Return the first failure of each check of each overload, of the first few."""
    unlike: dict[tuple[str, str], Result] = {}
    for result in failures:
        unlike.setdefault((result.overload, result.check), result)
    return list(unlike.values())[:_SHOWN]


def _word(passed: bool) -> str:
    return "passed" if passed else "FAILED"


def _saved(event: Event) -> str:
    """Say what happened to which files: `a.cu, ops.py saved; b.cuh gone`."""
    gone = event["gone"]
    written = [file for file in event["files"] if file not in gone]
    return "; ".join(
        f"{', '.join(files)} {what}" for files, what in ((written, "saved"), (gone, "gone")) if files
    )


def _verdict(state: WatchState) -> str:
    """Say what came of the check, or how far it is."""
    failed = len({result.trial for result in state.failures})
    trials = f"{state.trials} trial{'' if state.trials == 1 else 's'}"
    if state.passed is None:
        return f"{state.tried} of {trials}" + (f", {failed} failed" if failed else "")
    word = "passed" if state.passed else "FAILED" if failed else "NOT TRIED"
    of = f"{failed} of {trials}" if failed else trials
    return f"quick check {word}: {of}, {state.seconds:.1f} s"


def _kernel(kernel: KernelResources, before: KernelResources | None) -> str:
    """Say what a kernel takes, and what it took before where that is another number."""
    parts = []
    for field, unit in _RESOURCES.items():
        now = getattr(kernel, field)
        then = now if before is None else getattr(before, field)
        if now or then or field == "registers":
            parts.append(f"{now} {unit}" + (f" ({then} before)" if then != now else ""))
    return f"{kernel.kernel} on {kernel.arch}: {', '.join(parts)}"


def _timing(timing: OperatorTiming) -> str:
    took = f"{timing.median_us:.2f} us" if timing.measured else ""
    change = ""
    if timing.change is not None:
        ratio = timing.change["ratio"]
        interval = f"{ratio['low']:.3f} to {ratio['high']:.3f}"
        change = f"{timing.change['verdict']}: {ratio['value']:.3f} times the last good one ({interval})"
    notes = timing.note, timing.change["note"] if timing.change else ""
    return f"{timing.op} {timing.case}: {'; '.join(filter(None, (took, change, *notes)))}"


def _error(text: str) -> RenderableType:
    """Return a message: its first line bold, carets and the word `error` in red."""
    first, *rest = text.splitlines()
    shown: list[RenderableType] = [Text(first, style="bold")]
    for line, following in zip_longest(rest, rest[1:], fillvalue=""):
        if _CARET.match(following):
            shown.append(PointedLine(line=line, caret=following))
        elif not _CARET.match(line):
            plain = Text(line)
            plain.highlight_regex(_ERROR, _BAD)
            shown.append(plain)
    return Padding(Group(*shown), 0)


@dataclass(frozen=True, kw_only=True)
class PointedLine:
    """A source line and the caret below it, of which a narrow terminal gets the part around the caret."""

    line: str
    caret: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, at = options.max_width, self.caret.index("^")
        start = 0 if at < width else at - width // 2
        yield Text(self.line[start:], no_wrap=True, overflow="crop")
        yield Text(self.caret[start:], style=_BAD, no_wrap=True, overflow="crop")


@dataclass(frozen=True, kw_only=True)
class FittedPage:
    """The part of a page that fits in the terminal, and the number of omitted lines."""

    page: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = options.height or options.max_height
        rendered = console.render_lines(self.page, options.update(height=None), pad=False)
        rest = len(rendered) - height
        for line in rendered if rest <= 0 else rendered[: height - 1]:
            yield from line
            yield Segment.line()
        if rest > 0:
            yield Text(f"... {rest + 1} more lines; Ctrl-C leaves all of them", style="dim", no_wrap=True)
