"""Replay: what a call by a plan does is what the body would do.

On a GPU, calls by plan give what a call by the body gives. And in the debug mode of calls each body runs,
and what it allocates and launches is compared with what its plans say; the simulator can do that too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch

from dotcu import settings
from dotcu.checking.cases.case import Case, short
from dotcu.checking.outcome import FellShort, Held, Outcome, Skipped, Verdict
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Trial
from dotcu.checking.trials import skipped
from dotcu.checking.trials.gpu import judged
from dotcu.errors import EnvironmentFault, ReplayMismatch, UsageError

CALLS = 3
"""Of each case: the first may be the one that makes the plan."""


def plan(subject: Subject) -> Iterator[Trial]:
    """A trial for the given cases of each dtype, one after the other."""
    if subject.overload.unreplayed:
        yield skipped(subject, "replay", subject.overload.unreplayed)
        return
    for dtype in subject.overload.dtypes:
        cases = subject.given(dtype)
        if cases:
            name, run = short(dtype), partial(look, subject, cases)
            yield Trial(overload=subject.name, kind="replay", case=name, checks=("replay",), run=run)


def look(subject: Subject, cases: Sequence[Case]) -> Iterator[Verdict]:
    """Compare what comes of plans with what comes of the body, and what they say with what it does."""
    try:
        outcome = _repeated(subject, cases) if subject.on_gpu else Held()
        if not isinstance(outcome, FellShort):
            _compare(subject, cases)
    except ReplayMismatch as error:
        outcome = FellShort(reason="a plan says another thing than the body", evidence=str(error))
    except (UsageError, EnvironmentFault):
        raise
    except Exception as error:  # which the trials of `call` tell
        outcome = Skipped(why=f"a call fails: {str(error).strip().splitlines()[0]}")
    yield "replay", outcome


def _repeated(subject: Subject, cases: Sequence[Case]) -> Outcome:
    """Call by plan, the cases in turns, and compare with calls by the body."""
    for case in list(cases) * CALLS:
        results = subject.call(case.make())
        with settings.override(replay=False):
            outcome = judged(subject, case.make(), results)
        if isinstance(outcome, FellShort):
            evidence = f"{case.name}: {case.sample}\n{outcome.reason}\n{subject.overload.replay}"
            return FellShort(reason="a call by plan gives other values than the body", evidence=evidence)
    replay = subject.overload.replay
    why = "; ".join(replay.reasons) or replay.path
    return Held() if replay.plans else Held(note=f"no call is by plan: {why}")


def _compare(subject: Subject, cases: Sequence[Case]) -> None:
    """Run every body twice in the debug mode.

    Raises:
        ReplayMismatch: A plan says another thing.
    """
    with settings.override(check_replay=True):
        for case in (*cases, *cases):
            with subject.seeded(case.name), subject.place():
                subject.call(case.make())
    if subject.on_gpu:
        torch.cuda.synchronize(subject.device)
