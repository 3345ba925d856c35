"""What happens, as lines for a pipe: each says when it was, and stands for itself."""

from __future__ import annotations

import time
from collections.abc import Iterator

from dotcu.checking.rendering import shortfall
from dotcu.watching import events
from dotcu.watching.events import Event
from dotcu.watching.state import State
from dotcu.watching.words import distinct, kernel_words, saved_words, timing_words, verdict


def told(event: Event, state: State, now: float) -> Iterator[str]:
    """The lines of an event; of most there are none.

    Args:
        state: What is known after it.
        now: In seconds since the epoch.
    """
    stamp = time.strftime("%H:%M:%S", time.localtime(now))
    for words in _told(event, state):
        first, *rest = words.splitlines() or [""]
        yield f"{stamp} {first}"
        yield from (f"    {line}".rstrip() for line in rest)


def _told(event: Event, state: State) -> Iterator[str]:
    if isinstance(event, events.Saved):
        yield saved_words(event)
    elif isinstance(event, events.Tried):
        first = state.first
        if first is not None and state.tried == 1:
            yield f"{first.trial} {'held' if first.held else 'FELL SHORT'} after {first.seconds:.2f} s"
        new = [result for result in state.failures if result in event.results]
        known = distinct(state.failures)
        yield from (shortfall(result) for result in new if result in known)
    elif isinstance(event, events.Checked):
        yield verdict(state)
        yield from event.untried
    elif isinstance(event, (events.Unloadable, events.Broken)):
        yield state.trouble
    elif isinstance(event, events.Needed):
        yield from (kernel_words(kernel, state.before(kernel)) for kernel in event.kernels)
    elif isinstance(event, events.Timed):
        yield from map(timing_words, event.timings)
