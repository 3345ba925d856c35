"""The state for people and programs: the live page of a terminal, lines for a pipe, JSON."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.console import Console, Group, RenderableType
from rich.segment import Segment, Segments
from rich.text import Text

from dotcu.checking.report import cause_of, failure_text, result_json
from dotcu.checking.trial import Result
from dotcu.watching.state import Event, Row, WatchState, results_of

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
        state: After it.
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
        yield from _kernels(state)
    elif kind == "timed":
        yield from map(_timing, state.timings)


def event_json(event: Event) -> Event:
    """Return an event as `dotcu watch --json` prints it: results as in the JSON form of a check."""
    if event["event"] != "tried":
        return event
    return {**event, "results": list(map(result_json, results_of(event)))}


def page(state: WatchState, now: float, width: int) -> RenderableType:
    """Return the whole page.

    Args:
        width: Of the terminal, in columns.
    """
    where = f" on {state.device}" if state.device else ""
    parts: list[RenderableType] = [
        Text.assemble((state.target, "bold"), where, ("   Ctrl-C ends", "dim")),
        Text(),
        *_verdicts(state, now),
    ]
    errors = [state.trouble] if state.trouble else []
    errors += [failure_text(result) for result in _distinct(state.failures)]
    for error in errors:
        parts += [Text(), _error(error, width)]
    for rows in (
        [Text(line, style=_BAD) for line in state.not_tried],
        [Text(line, style="yellow" if "before)" in line else "") for line in _kernels(state)],
        [
            Text(_timing(row), style=_STYLES.get(row["change"]["verdict"], "") if row["change"] else "")
            for row in state.timings
        ],
    ):
        parts += [Text(), *rows] if rows else []
    return Group(*parts)


def _verdicts(state: WatchState, now: float) -> Iterator[Text]:
    if state.saved is not None:
        stamp = time.strftime("%H:%M:%S", time.localtime(state.saved["at"]))
        yield Text(f"{_saved(state.saved)} {stamp}")
    if state.first:
        since = "the start" if state.saved is None else "the save"
        style = _GOOD if state.first_passed else _BAD
        after = f"  {state.first}, {state.first_s:.2f} s after {since}"
        yield Text.assemble((_word(state.first_passed), style), after)
    if state.trials and not (state.trouble and state.passed is None):
        yield Text(_verdict(state), style=_OPEN if state.passed is None else _GOOD if state.passed else _BAD)
    if not state.is_settled:
        yield Text(f"{state.phase} {max(0.0, now - state.begun):.1f} s  {state.trying}".rstrip(), style="dim")


def _distinct(failures: Sequence[Result]) -> list[Result]:
    """Return the first failure of each cause, of the first few."""
    unlike: dict[tuple[str, ...], Result] = {}
    for result in failures:
        unlike.setdefault(cause_of(result), result)
    return list(unlike.values())[:_SHOWN]


def _word(passed: bool) -> str:
    return "passed" if passed else "FAILED"


def _saved(event: Event) -> str:
    """Say what happened to which files: `a.cu, ops.py saved; b.cuh gone`."""
    written = [file for file in event["files"] if file not in event["gone"]]
    parts = {"saved": written, "gone": event["gone"]}
    return "; ".join(f"{', '.join(files)} {happened}" for happened, files in parts.items() if files)


def _verdict(state: WatchState) -> str:
    """Say what came of the check, or how far it is."""
    failed = len({result.trial for result in state.failures})
    trials = f"{state.trials} trial{'' if state.trials == 1 else 's'}"
    if state.passed is None:
        return f"{state.tried} of {trials}" + (f", {failed} failed" if failed else "")
    word = "passed" if state.passed else "FAILED" if failed else "NOT TRIED"
    of = f"{failed} of {trials}" if failed else trials
    return f"quick check {word}: {of}, {state.seconds:.1f} s"


def _kernels(state: WatchState) -> Iterator[str]:
    """Say what each kernel takes, and what it took in the last good version where that is another number."""
    good = {(row["kernel"], row["arch"]): row for row in state.good_kernels}
    for row in state.kernels:
        before = good.get((row["kernel"], row["arch"]), row)
        parts = [
            f"{row[key]} {unit}" + (f" ({before[key]} before)" if before[key] != row[key] else "")
            for key, unit in _RESOURCES.items()
            if row[key] or before[key] or key == "registers"
        ]
        yield f"{row['kernel']} on {row['arch']}: {', '.join(parts)}"


def _timing(row: Row) -> str:
    change, parts = row["change"], [f"{row['median_us']:.2f} us"] if row["measured"] else []
    if change is not None:
        ratio = change["ratio"]
        interval = f"{ratio['low']:.3f} to {ratio['high']:.3f}"
        parts.append(f"{change['verdict']}: {ratio['value']:.3f} times the last good one ({interval})")
    parts += [row["note"], change["note"] if change else ""]
    return f"{row['op']} {row['case']}: {'; '.join(filter(None, parts))}"


def _error(text: str, width: int) -> RenderableType:
    """Return a message: its first line bold, carets and the word `error` in red.

    Of a source line with a caret below it, a narrow terminal gets the part around the caret.
    """
    first, *rest = text.splitlines()
    parts = [Text(first, style="bold")]
    for line, following in zip_longest(rest, rest[1:], fillvalue=""):
        if _CARET.match(following):
            at = following.index("^")
            start = 0 if at < width else at - width // 2
            parts.append(Text(line[start:], no_wrap=True, overflow="crop"))
            parts.append(Text(following[start:], style=_BAD, no_wrap=True, overflow="crop"))
        elif not _CARET.match(line):
            plain = Text(line)
            plain.highlight_regex(_ERROR, _BAD)
            parts.append(plain)
    return Group(*parts)


def fitted(whole: RenderableType, console: Console) -> RenderableType:
    """Return the part of a page that fits in the terminal, and the number of omitted lines."""
    rendered = console.render_lines(whole, pad=False)
    omitted = len(rendered) - console.height + 1
    if omitted <= 1:
        return whole
    kept = [segment for line in rendered[: console.height - 1] for segment in (*line, Segment.line())]
    note = f"... {omitted} more lines; Ctrl-C leaves all of them"
    return Group(Segments(kept), Text(note, style="dim", no_wrap=True))
