"""Several GPUs: an operator works on that of its tensors, whichever is current."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from dotcu.checking.blame import located
from dotcu.checking.cases.case import Case
from dotcu.checking.outcome import FellShort, Held, Outcome, Verdict
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Trial
from dotcu.checking.trials import skipped
from dotcu.checking.trials.gpu import NEEDS_GPU, cannot_call, chosen, judged, memory
from dotcu.operator import Sample


def plan(subject: Subject) -> Iterator[Trial]:
    """A trial for a small and for a large call."""
    if not subject.on_gpu:
        yield skipped(subject, "devices", NEEDS_GPU)
    elif torch.cuda.device_count() < 2:
        yield skipped(subject, "devices", "needs two GPUs")
    else:
        for case in chosen(subject):
            run = partial(look, subject, case)
            yield Trial(overload=subject.name, kind="devices", case=case.name, checks=("devices",), run=run)


def look(subject: Subject, case: Case) -> Iterator[Verdict]:
    """Call with tensors of one GPU while the other one is current, both ways round."""
    own = subject.device
    other = torch.device("cuda", ((own.index or 0) + 1) % torch.cuda.device_count())
    with torch.cuda.device(own):
        failed = cannot_call(subject, case)
    if failed:
        yield "devices", failed
        return
    outcome: Outcome = Held()
    for place, current in ((other, own), (own, other)):
        outcome = _one_way(subject, case, place, current)
        if isinstance(outcome, FellShort):
            break
    yield "devices", outcome


def _one_way(subject: Subject, case: Case, place: torch.device, current: torch.device) -> Outcome:
    where = f"with tensors on {place} while {current} is current"
    with torch.cuda.device(current):
        try:
            results = subject.call(moved(case.sample, place))
            torch.cuda.synchronize(place)
        except Exception as error:
            return FellShort(reason=f"fails {where}", evidence=located(error))
        if torch.cuda.current_device() != current.index:
            return FellShort(reason=f"leaves cuda:{torch.cuda.current_device()} current, called {where}")
    away = [tensor.device for tensor in results if tensor.device != place]
    if away:
        return FellShort(reason=f"gives a result on {away[0]}, called {where}")
    outcome = judged(subject, case.make(), tuple(tensor.to(subject.device) for tensor in results))
    if isinstance(outcome, FellShort):
        return FellShort(
            reason=f"gives wrong values {where}", evidence=f"{outcome.reason}\n{outcome.evidence}"
        )
    return outcome


def moved(sample: Sample, device: torch.device) -> Sample:
    """The same call on another device, in new memory of the same layout."""

    def move(tensor: Tensor) -> Tensor:
        there = memory(tensor).to(device, copy=True)
        return there.as_strided(tensor.shape, tensor.stride(), 0)

    return sample.map_tensors(move)
