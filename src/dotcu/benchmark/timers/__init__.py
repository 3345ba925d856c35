"""Timers of device time: CUPTI's records, else replay of a graph, else events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dotcu.benchmark.results import Means
from dotcu.benchmark.timers.cupti import Cupti
from dotcu.benchmark.timers.events import Events, Graph
from dotcu.benchmark.timers.timer import (
    LostRecords,
    NotCapturable,
    TimedCall,
    TimedCallFailed,
    Timer,
    TimerFailed,
    TimingKernels,
    host_times_us,
)
from dotcu.errors import EnvironmentFault

__all__ = [
    "LostRecords",
    "NotCapturable",
    "TimedCall",
    "TimedCallFailed",
    "Timer",
    "TimerFailed",
    "after",
    "choose",
    "host_times_us",
]

BEST_FIRST: tuple[type[Timer], ...] = (Cupti, Graph, Events)

TRIED = 3
"""Calls of the trial that a timer has to pass."""


def choose(device: torch.device, means: Means | None = None) -> Timer:
    """Return the best timer that works on a GPU, or the one asked for; tried on a small call.

    Note:
        Compiles and loads the code around timed calls. The first trial of CUPTI in a process takes seconds.

    Raises:
        EnvironmentFault: There is no GPU, or no timer works.
    """
    if device.type != "cuda":
        raise EnvironmentFault(
            f"Device time was asked for on {device}.\nIt can be taken on a CUDA GPU only.\n"
            "See what torch finds: dotcu doctor"
        )
    kinds = [kind for kind in BEST_FIRST if means in (None, kind.name)]
    return _first_that_works(TimingKernels(device), kinds, {})


def after(timer: Timer, reason: str) -> Timer:
    """Return the next best timer after one that failed.

    Args:
        timer: The timer that failed.
        reason: Why it failed, for the new one's `why`.

    Raises:
        EnvironmentFault: There is none.
    """
    at = [kind.name for kind in BEST_FIRST].index(timer.name)
    return _first_that_works(timer.helpers, BEST_FIRST[at + 1 :], {**timer.why, timer.name: reason})


def _first_that_works(
    helpers: TimingKernels, kinds: tuple[type[Timer], ...] | list[type[Timer]], why: Mapping[Means, str]
) -> Timer:
    reasons = dict(why)
    for kind in kinds:
        timer = kind(helpers, reasons)
        reason = _fails(timer, helpers.device)
        if not reason:
            return timer
        reasons[kind.name] = reason
    failures = "\n".join(f"    {name}: {reason}" for name, reason in reasons.items())
    raise EnvironmentFault(
        f"Device time cannot be taken on {helpers.device}:\n{failures}\n"
        "One of CUPTI, graph replay and events must work there.\nSee what torch finds: dotcu doctor"
    )


def _fails(timer: Timer, device: torch.device) -> str:
    """Return why a timer does not work here; empty if it does."""
    numbers = torch.zeros(1 << 16, device=device)

    def run() -> Any:
        return numbers.add_(1)

    run()  # what it loads, it loads now
    timed_calls = [TimedCall(name="trial", run=run, hold_us=50.0) for _ in range(TRIED)]
    try:
        calls = timer.time(timed_calls)
    except Exception as error:
        return str(error).partition("\n")[0] or type(error).__name__
    wrong = [call for call in calls if call.time_us <= 0 or call.kernels not in (None, 1)]
    return f"a small addition was measured as {wrong[0]}" if wrong else ""
