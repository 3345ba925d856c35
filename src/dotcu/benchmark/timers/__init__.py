"""Timers of device time: CUPTI's records, else events."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from dotcu.benchmark.results import Means
from dotcu.benchmark.timers.cupti import Cupti
from dotcu.benchmark.timers.timer import (
    Events,
    TimedCall,
    Timer,
    TimerFailed,
    TimingKernels,
)
from dotcu.errors import EnvironmentFault

__all__ = ["TimedCall", "Timer", "TimerFailed", "after", "choose"]

BEST_FIRST: tuple[type[Timer], ...] = (Cupti, Events)

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
    """Return the next best timer after one that failed for some reason, which is in the new one's `why`.

    Raises:
        EnvironmentFault: There is none.
    """
    worse = BEST_FIRST[[kind.name for kind in BEST_FIRST].index(timer.name) + 1 :]
    return _first_that_works(timer.helpers, worse, {**timer.why, timer.name: reason})


def _first_that_works(
    helpers: TimingKernels, kinds: Sequence[type[Timer]], reasons: dict[Means, str]
) -> Timer:
    for kind in kinds:
        numbers = torch.zeros(1 << 16, device=helpers.device)
        trial = TimedCall(name="trial", run=partial(numbers.add_, 1), hold_us=50.0)
        trial.run()  # what it loads, it loads now
        timer = kind(helpers, reasons)
        try:
            calls = timer.time([trial] * TRIED)
        except Exception as error:
            reasons[kind.name] = str(error).partition("\n")[0] or type(error).__name__
            continue
        wrong = [call for call in calls if call.time_us <= 0 or call.kernels not in (None, 1)]
        if not wrong:
            return timer
        reasons[kind.name] = f"a small addition was measured as {wrong[0]}"
    failures = "\n".join(f"    {name}: {reason}" for name, reason in reasons.items())
    raise EnvironmentFault(
        f"Device time cannot be taken on {helpers.device}:\n{failures}\n"
        "CUPTI or events must work there.\nSee what torch finds: dotcu doctor"
    )
