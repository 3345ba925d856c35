"""`dotcu watch TARGET`: at each save, check it and show what it changed."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.live import Live

from dotcu.cli import Device, Seed, TargetArg, console
from dotcu.errors import without_torch

if TYPE_CHECKING:
    from dotcu.watching.watcher import WatchEvent, WatchState

_REFRESH = 10  # times a second


def command(
    target: TargetArg,
    device: Device = None,
    seed: Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="print each event as a line of JSON")] = False,
) -> None:
    """Check a target at each save, until Ctrl-C."""
    if importlib.util.find_spec("torch") is None:
        raise without_torch("dotcu watch")
    from dotcu.watching.watcher import WatchState, event_json, lines, watch

    with _interrupted_once(), contextlib.closing(watch(target, device=device, seed=seed)) as steps:
        before = WatchState(target=target, begun=time.time())
        if not as_json and console.out().is_terminal:
            _live(before, steps)
            return
        for event, state in steps:
            if as_json:
                console.as_json_line(event_json(event))
                continue
            for line in lines(state, before):
                console.print_line(line)
            before = state


@contextlib.contextmanager
def _interrupted_once() -> Iterator[None]:
    """Let one Ctrl-C end the block, and none after it disturb the ending, which leaves nothing running."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else a shell has it ignored
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception:
        signal.signal(signal.SIGINT, before)
        raise


def _live(first: WatchState, steps: Iterator[tuple[WatchEvent, WatchState]]) -> None:
    """Show the page on a screen of its own, and leave the last one behind."""
    from dotcu.watching.watcher import page

    state, out = first, console.out()
    try:
        with Live(
            get_renderable=lambda: page(state, out.width), console=out, screen=True,
            refresh_per_second=_REFRESH,
        ) as live:  # fmt: skip
            for _, state in steps:  # noqa: B007  (the page reads it)
                live.refresh()
    finally:
        out.print(page(state, out.width))
