"""Nothing is timed before it is right, on the very inputs that are timed.

Each contender is called twice on one set of inputs, with other values in the same memory the second time,
so that what was kept from the first call is wrong. Copies of the results are taken on torch's current
stream right after the call; the second time all other streams sleep, so that work on them comes too late.
The operator is called before its reference computes: no memory holds the right answer yet. Nor does it
for the next contender: what a call returned is overwritten once it is copied.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dotcu.benchmark.referee import Referee, Results
from dotcu.benchmark.row import OWN
from dotcu.benchmark.workloads.contenders import Compute
from dotcu.benchmark.workloads.refresh import Refreshing
from dotcu.checking import streams
from dotcu.checking.memory import same_bits, snapshot, span
from dotcu.checking.returned import opaque, require_memory, shared
from dotcu.checking.trials.telling import first_lines
from dotcu.errors import BodyError
from dotcu.operator import Sample

NAP = 20_000_000
"""Clocks that other streams sleep: some 10 ms. A call that was made before takes its thread less than one."""

BLOCKS = 3
"""So many blocks of memory of each size are overwritten: what a call left may be in any of them."""

_POISON = 0xFF
"""A byte that makes NaN of every floating-point type."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a contender may be timed.

    Attributes:
        status: As a row has it: "failed" where it raised, "wrong" where its result is; empty where neither.
        reason: Of that.
        mark: What a reader has to know of one that may be timed.
    """

    status: Literal["", "failed", "wrong"] = ""
    reason: str = ""
    mark: str = ""


def verify(
    referee: Referee, calls: Mapping[str, Compute], sample: Sample, refresh: Refreshing
) -> dict[str, Verdict]:
    """What may be said of each contender before it is timed, by name.

    Args:
        calls: The operator itself first.
        sample: One of the sets of inputs that are timed; it has other values afterwards.

    Note:
        Synchronizes. The first call of each is made here, so this is where torch.compile compiles.
    """
    verdicts: dict[str, Verdict] = {}
    for turn, when in enumerate(("", _AGAIN), 1):
        left = {name: call for name, call in calls.items() if name not in verdicts}
        verdicts |= _Turn(referee=referee, sample=sample, refresh=refresh, number=turn).verdicts(left, when)
    held = Verdict(mark=referee.why_not or referee.told)
    return {name: verdicts.get(name, held) for name in calls}


_AGAIN = ", called again with other values in the same memory, after it was right at first"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Turn:
    """A call of each contender with the same values."""

    referee: Referee
    sample: Sample
    refresh: Refreshing
    number: int

    def verdicts(self, calls: Mapping[str, Compute], when: str) -> dict[str, Verdict]:
        """Those on contenders that fail or are wrong."""
        try:
            inputs = self.refresh.inputs(self.number)
        except Exception as error:  # too little memory, or a kernel has left the GPU unusable
            failed = Verdict(status="failed", reason=f"no inputs could be made: {first_lines(error)}")
            return dict.fromkeys(calls, failed)
        given = {name: self._called(name, call, inputs) for name, call in calls.items()}
        made = {name: one for name, one in given.items() if not isinstance(one, Verdict)}
        sizes = [tensor.nbytes for results in made.values() for tensor in results]
        found = {name: one for name, one in given.items() if isinstance(one, Verdict)}
        found |= self._judged(made, inputs, when)
        del inputs, given, made
        _overwrite(sizes, self.referee.device)
        return found

    def _called(self, name: str, call: Compute, inputs: Sample) -> Results | Verdict:
        """What a call gives, as torch's current stream has it, or what is wrong with how it gives that."""
        referee, sample = self.referee, self.sample
        try:
            self.refresh(sample, self.number)
            with _on(referee.device, asleep=self.number > 1), referee.place(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch's compiler gives advice
                result = call(sample)
                got = referee.results(sample, result)
                what = unreadable(referee, got)
                copies = () if what else tuple(map(snapshot, got))
            if referee.device.type == "cuda":
                torch.cuda.synchronize(referee.device)  # a fault of the kernel shows here
            what = what or _misused(referee, name, got, sample, inputs)
        except (Exception, SystemExit) as error:
            return Verdict(status="failed", reason=first_lines(error))
        del result, got
        _overwrite([copy.nbytes for copy in copies], referee.device)
        return Verdict(status="wrong", reason=what) if what else copies

    def _judged(self, made: Mapping[str, Results], inputs: Sample, when: str) -> dict[str, Verdict]:
        """The verdicts on those that are wrong."""
        if self.referee.why_not or not made:
            return {}
        try:
            found = self.referee.judge(inputs, made)
        except Exception as error:
            reason = f"the reference fails, so nothing can be verified: {first_lines(error)}"
            return dict.fromkeys(made, Verdict(status="failed", reason=reason))
        wrong = {name: f"is wrong{when}: {what}" for name, what in found.items() if what}
        return {name: Verdict(status="wrong", reason=reason) for name, reason in wrong.items()}


@contextmanager
def _on(device: torch.device, asleep: bool) -> Iterator[None]:
    """Make a GPU the current one, and let all of its side streams sleep."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device):
        if asleep:
            torch.cuda.synchronize()
            here = torch.cuda.current_stream()
            streams.sleep([stream for stream in streams.pool() if stream != here], NAP)
        yield


def unreadable(referee: Referee, got: Sequence[Tensor]) -> str:
    """Why results cannot be read as what they seem to be, in words; empty where they can."""
    try:
        require_memory(got)
    except BodyError as error:
        return str(error)
    return "; ".join(opaque(got, referee.device))


def _misused(referee: Referee, name: str, got: Sequence[Tensor], sample: Sample, inputs: Sample) -> str:
    """What a call did to memory that is not its own, in words; empty where nothing."""
    may_change = {id(tensor) for tensor in referee.written(sample)}
    for i, (now, before) in enumerate(zip(sample.tensors, inputs.tensors, strict=True)):
        if id(now) not in may_change and not same_bits([now], [before]):
            return f"changes tensor {i} of its arguments, which it must not"
    if name != OWN or may_change:
        return ""
    taken = [(span(tensor), f"tensor {i} of its arguments") for i, tensor in enumerate(sample.tensors)]
    return "; ".join(shared(got, taken)) if sample.tensors else ""


def _overwrite(sizes: Sequence[int], device: torch.device) -> None:
    """Leave nothing right in memory that torch's allocator could hand out for tensors of some sizes."""
    if device.type != "cuda":
        return
    try:
        blocks = [
            torch.empty(size, dtype=torch.uint8, device=device).fill_(_POISON)
            for size in sizes
            for _ in range(BLOCKS)
        ]
    except RuntimeError:  # too little memory; or the GPU is unusable, which the next call tells
        return
    del blocks
