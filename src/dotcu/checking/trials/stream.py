"""Streams: an operator reads after what was queued before it, and is read by what is queued after it.

In two ways an operator can be wrong. It does not wait for torch's current stream: then it reads inputs
that have not been written yet, which shows while that stream sleeps before they are. Or torch's current
stream does not wait for it: then its result is read too early, which shows while all other streams
sleep before they work for it. Both are tried on a side stream and on the default one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from dotcu.checking import streams
from dotcu.checking.cases.case import Case
from dotcu.checking.outcome import FellShort, Held, Outcome, Verdict
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Trial
from dotcu.checking.trials import skipped
from dotcu.checking.trials.gpu import NEEDS_GPU, cannot_call, chosen, judged, other_values, refill
from dotcu.operator import Sample

A_WHILE = 50_000_000
"""Clocks that a stream sleeps: some 30 ms. A call takes its thread less than one."""


def plan(subject: Subject) -> Iterator[Trial]:
    """A trial for a small and for a large call."""
    if not subject.on_gpu:
        yield skipped(subject, "stream", NEEDS_GPU)
        return
    for case in chosen(subject):
        run = partial(look, subject, case)
        yield Trial(overload=subject.name, kind="stream", case=case.name, checks=("stream",), run=run)


def look(subject: Subject, case: Case) -> Iterator[Verdict]:
    """Call on either stream, once while it sleeps and once while the others do."""
    with torch.cuda.device(subject.device):
        failed = cannot_call(subject, case)
        yield "stream", failed or _in_rounds(subject, case)


def _in_rounds(subject: Subject, case: Case) -> Outcome:
    """All four, since one fault may show in several: the one in whose round it must show is among them."""
    pool = streams.pool()
    outcome: Outcome = Held()
    faults: list[str] = []
    for name, stream in (("a side stream", pool[0]), ("the default stream", torch.cuda.default_stream())):
        others = [other for other in pool if other != stream]
        late = f"is not complete where {name} is, on which it was called"
        early = f"reads its inputs before what was queued on {name} has written them"
        for turn, (fault, asleep) in enumerate(((late, others), (early, [stream])), start=1):
            # Values of their own: memory that is left unwritten may hold what an earlier round gave.
            values = other_values(subject, case, turn + 2 * (stream == pool[0]))
            outcome = judged(subject, values, called(subject, case, values, stream, asleep))
            if isinstance(outcome, FellShort):
                faults.append(f"{fault}: {outcome.reason}. {outcome.evidence}".rstrip(". "))
    if faults:
        return FellShort(reason=faults[0].partition(":")[0], evidence="\n".join(faults))
    return outcome


def called(
    subject: Subject,
    case: Case,
    values: Sample,
    stream: torch.cuda.Stream,
    asleep: Sequence[torch.cuda.Stream],
) -> tuple[Tensor, ...]:
    """What a call on a stream gives, as that stream alone sees it; it writes the inputs just before."""
    sample = case.make()
    torch.cuda.synchronize()
    streams.sleep(asleep, A_WHILE)
    with torch.cuda.stream(stream):
        refill(sample, values)
        results = tuple(tensor.clone() for tensor in subject.call(sample))
        stream.synchronize()
        seen = tuple(tensor.cpu() for tensor in results)
    torch.cuda.synchronize()
    return tuple(tensor.to(subject.device) for tensor in seen)
