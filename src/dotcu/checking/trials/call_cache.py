"""The call cache: a cached call does what the body would do.

On a GPU, cached calls are compared with calls of the body by their results. In the debug mode of calls each
body runs, and its allocations and launches are compared with the recorded calls; so can the simulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from dotcu import settings
from dotcu.checking.cases.samples import Case, short
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Failed, Outcome, Passed, Skipped, Trial, skipped, trial
from dotcu.checking.trials.gpu import judged
from dotcu.errors import CallCacheMismatch, EnvironmentFault, FindingError, UsageError
from dotcu.tracebacks import one_line

CALLS = 3
"""Calls of each case: the first may be the one that is recorded."""


def plan(subject: Subject) -> Iterator[Trial]:
    """A trial for the given cases of each dtype, one after the other."""
    if subject.overload.uncacheable:
        yield skipped(subject, "call-cache", subject.overload.uncacheable)
        return
    for dtype in subject.overload.dtypes:
        if cases := subject.given(dtype):
            yield trial(subject, "call-cache", short(dtype), look, cases)


def look(subject: Subject, cases: Sequence[Case]) -> Outcome:
    """Compare the results of cached calls with those of the body, and recorded calls with what it does."""
    try:
        outcome = repeated(subject, cases) if subject.on_gpu else Passed()
        if not isinstance(outcome, Failed):
            with settings.override(check_replay=True):
                for case in (*cases, *cases):  # which raises if a recorded call differs from its body
                    with subject.seeded(case.name), subject.place():
                        subject.call(case.make())
            if subject.on_gpu:
                torch.cuda.synchronize(subject.device)
    except CallCacheMismatch as error:
        return Failed(reason="a recorded call differs from the body", evidence=str(error))
    except (FindingError, UsageError, EnvironmentFault):
        raise
    except Exception as error:  # which the trials of `call` report
        return Skipped(reason=f"a call fails: {one_line(error)}")
    return outcome


def repeated(subject: Subject, cases: Sequence[Case]) -> Outcome:
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
