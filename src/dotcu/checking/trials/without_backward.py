"""Whether an operator without a backward says so: a gradient that is lost in silence is a wrong one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch

from dotcu.checking import numerics
from dotcu.checking.cases.case import Case
from dotcu.checking.outcome import FellShort, Held, Outcome, Skipped, Verdict
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Trial
from dotcu.checking.trials import skipped
from dotcu.checking.trials.choosing import without_empty
from dotcu.checking.trials.derivatives import requiring
from dotcu.errors import GradientError

FIRST, SECOND = "gradients", "second-gradients"

UNRECORDED = "no backward, the library's or one that was given: torch loses its gradient in silence"
"""Of an operator that a library computes, what becomes of gradients is torch's and the library's affair."""


def plan(subject: Subject, dtypes: Sequence[torch.dtype]) -> Iterator[Trial]:
    """A trial of the first of some floating dtypes that has a sample; none of what a library computes."""
    if not subject.has_body:
        yield from (skipped(subject, check, UNRECORDED) for check in (FIRST, SECOND))
        return
    case = next((case for dtype in dtypes for case in without_empty(subject, dtype)[:1]), None)
    if case is None:
        yield skipped(subject, FIRST, "no backward, and no sample without empty tensors")
    else:
        run = partial(look, subject, case)
        yield Trial(overload=subject.name, kind=FIRST, case=f"{case.name}-none", checks=(FIRST,), run=run)
    yield skipped(subject, SECOND, "no backward")


def look(subject: Subject, case: Case) -> Iterator[Verdict]:
    """Call on tensors that require a gradient, and differentiate."""
    yield FIRST, _refusal(subject, case)


def _refusal(subject: Subject, case: Case) -> Outcome:
    sample = case.make()
    places = [i for i, tensor in enumerate(sample.tensors) if tensor.is_floating_point()]
    call, leaves = requiring(sample, places)
    try:
        with subject.seeded(case.name), subject.place():
            results = numerics.outputs(subject.overload(*call.args, **call.kwargs))
            floats = [result for result in results if result.is_floating_point()]
            if not floats or not leaves:
                return Skipped(why="no backward, and no result that could have a gradient")
            torch.autograd.grad(floats, leaves, list(map(torch.empty_like, floats)), allow_unused=True)
    except GradientError:
        return Held(note="no backward, and it says so")
    except RuntimeError as error:
        if "does not require grad" not in str(error):
            raise
        return FellShort(reason="it has no backward, and its result loses the gradient in silence")
    return FellShort(reason="it has no backward, and yet gives a gradient")
