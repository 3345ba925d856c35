"""The call cache: a cached call does what the body would do.

On a GPU, cached calls are compared with calls of the body by their results. In the debug mode of calls each
body runs, and its allocations and launches are compared with the recorded calls; so can the simulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch

from dotcu import settings
from dotcu.checking.cases.samples import Case, short
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Failed, Outcome, Passed, Skipped, Trial, Verdict
from dotcu.checking.trials import skipped
from dotcu.checking.trials.gpu import judged
from dotcu.errors import CallCacheMismatch, EnvironmentFault, FindingError, UsageError

CALLS = 3
"""Calls of each case: the first may be the one that is recorded."""


def plan(subject: Subject) -> Iterator[Trial]:
    """A trial for the given cases of each dtype, one after the other."""
    if subject.overload.uncacheable:
        yield skipped(subject, "call_cache", subject.overload.uncacheable)
        return
    for dtype in subject.overload.dtypes:
        cases = subject.given(dtype)
        if cases:
            name, run = short(dtype), partial(look, subject, cases)
            yield Trial(overload=subject.name, kind="call_cache", case=name, checks=("call_cache",), run=run)


def look(subject: Subject, cases: Sequence[Case]) -> Iterator[Verdict]:
    """Compare the results of cached calls with those of the body, and recorded calls with what it does."""
    try:
        outcome = _repeated(subject, cases) if subject.on_gpu else Passed()
        if not isinstance(outcome, Failed):
            _compare(subject, cases)
    except CallCacheMismatch as error:
        outcome = Failed(reason="a recorded call differs from the body", evidence=str(error))
    except (FindingError, UsageError, EnvironmentFault):
        raise
    except Exception as error:  # which the trials of `call` report
        outcome = Skipped(reason=f"a call fails: {str(error).strip().splitlines()[0]}")
    yield "call_cache", outcome


def _repeated(subject: Subject, cases: Sequence[Case]) -> Outcome:
    """Call each case several times, alternating, and compare with calls of the body."""
    for case in list(cases) * CALLS:
        results = subject.call(case.make())
        with settings.override(replay=False):
            outcome = judged(subject, case.make(), results)
        if isinstance(outcome, Failed):
            evidence = f"{case.name}: {case.sample}\n{outcome.reason}\n{subject.overload.call_cache}"
            return Failed(reason="a cached call gives other values than the body", evidence=evidence)
    cache = subject.overload.call_cache
    why = "; ".join(cache.reasons) or cache.status
    return Passed() if cache.recorded else Passed(note=f"no call is cached: {why}")


def _compare(subject: Subject, cases: Sequence[Case]) -> None:
    """Run every body twice in the debug mode.

    Raises:
        CallCacheMismatch: A recorded call differs from its body.
    """
    with settings.override(check_replay=True):
        for case in (*cases, *cases):
            with subject.seeded(case.name), subject.place():
                subject.call(case.make())
    if subject.on_gpu:
        torch.cuda.synchronize(subject.device)
