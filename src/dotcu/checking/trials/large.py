"""More than 2^31 elements: the same call with one size so large that an index of 32 bits overflows.

The narrowest dtype is taken, so that the call needs least memory. What is right is what the reference gives
on the GPU in that dtype, within the wide bounds of `closeness`, since other checks look at precision: an
index that overflows misses whole elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dotcu.checking.cases.samples import Case
from dotcu.checking.numerics import CHUNK, difference, outputs
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Failed, Outcome, Passed, Skipped, Trial, Verdict
from dotcu.checking.trials import skipped
from dotcu.checking.trials.gpu import NEEDS_GPU, cannot_call, whole_cases
from dotcu.operator import Sample
from dotcu.tracebacks import describe

ELEMENTS = 2**31 + 33
"""The elements of the largest input, or slightly more."""

SHARE, COPIES = 0.6, 3
"""The share of free memory that a call may use, and the number of times its tensors are counted."""

NARROWEST = 3
"""The number of dtypes to try: torch may have no reference for the first."""

TRIES = 4
"""The number of calls to try if an operator or its reference refuses them."""


@dataclass(frozen=True, kw_only=True)
class GrownCase:
    """A given case in which every size `old` is to be `new`.

    Attributes:
        bytes: Of its tensors, the results among them.
    """

    case: Case
    old: int
    new: int
    bytes: int


def plan(subject: Subject) -> Iterator[Trial]:
    """One trial."""
    if not subject.on_gpu:
        yield skipped(subject, "large", NEEDS_GPU)
    elif subject.reference is None:
        yield skipped(subject, "large", "no reference")
    else:
        run = partial(look, subject)
        yield Trial(overload=subject.name, kind="large", case="", checks=("large",), run=run)


def look(subject: Subject) -> Iterator[Verdict]:
    """Try calls that can be made so large, the one that needs least memory first, until one can be judged."""
    with torch.cuda.device(subject.device):
        yield "large", _first(subject)


def _first(subject: Subject) -> Outcome:
    found = sorted(candidates(subject), key=lambda grown: grown.bytes)
    if not found:
        return Skipped(reason="no sample has a contiguous tensor with a size that could grow")
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    fitting = [grown for grown in found if grown.bytes * COPIES < SHARE * free]
    if not fitting:
        needed, has = found[0].bytes * COPIES / SHARE / 2**30, free / 2**30
        return Skipped(reason=f"needs {needed:.0f} GiB of free memory on the GPU, which has {has:.0f}")
    outcome: Outcome = Skipped(reason="")
    for grown in fitting[:TRIES]:
        try:
            outcome = _tried(subject, grown)
        except torch.OutOfMemoryError as error:
            outcome = Skipped(reason=f"the GPU has too little memory: {str(error).splitlines()[0]}")
        torch.cuda.empty_cache()
        if not isinstance(outcome, Skipped):
            break
    return outcome


def _tried(subject: Subject, grown: GrownCase) -> Outcome:
    """Call before the reference: no memory holds the right answer yet."""
    sample = enlarged(grown)
    called: tuple[Tensor, ...] | Exception
    try:
        called = subject.call(sample)
        torch.cuda.synchronize()
    except Exception as error:
        if not subject.refuses(error):
            raise
        called = error
    del sample  # inputs may have been written
    try:
        expected = _reference(subject)(enlarged(grown))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return Skipped(reason=f"the reference does not take {grown.new} for {grown.old}: {describe(error)}")
    if isinstance(called, Exception):
        return Passed.refused(called)
    largest = max(t.numel() for t in called + expected)
    reason = difference(called, expected, max(largest, ELEMENTS))
    if reason:
        evidence = f"{grown.case.name}: {grown.case.sample} with {grown.new} for {grown.old}"
        return Failed(
            reason=f"is wrong if an input has {ELEMENTS} elements or more",
            evidence=f"{reason}\n{evidence}",
        )
    return Passed(note=f"{grown.case.name} with {grown.new} for {grown.old}")


def _reference(subject: Subject) -> Callable[[Sample], tuple[Tensor, ...]]:
    """The reference on the sample's own device. It may write the sample."""
    outs = subject.overload.signature.outs if subject.overload.functional is not None else ()
    function: Any = subject.reference

    def call(sample: Sample) -> tuple[Tensor, ...]:
        with torch.no_grad():
            kwargs = {name: value for name, value in sample.kwargs.items() if name not in outs}
            return outputs(function(*sample.args, **kwargs))

    return call


# ------------------------------------------------------------------ larger calls


def candidates(subject: Subject) -> Iterator[GrownCase]:
    """The given cases of the narrowest dtypes that one size can make large enough."""
    for dtype in sorted(subject.overload.dtypes, key=lambda dtype: dtype.itemsize)[:NARROWEST]:
        for case in whole_cases(subject, dtype):
            sizes = growing(case.sample)
            if not sizes or cannot_call(subject, case) is not None:
                continue
            with suppress(Exception):  # reported by the trials of `call`
                results = subject.call(case.make())
                for old, new in sizes.items():
                    yield GrownCase(
                        case=case, old=old, new=new, bytes=_bytes([*case.sample.tensors, *results], old, new)
                    )


def growing(sample: Sample) -> dict[int, int]:
    """Yield the sizes of a sample's largest tensor that can grow, and to what. Equal sizes are one."""
    if not sample.tensors or not all(tensor.is_contiguous() for tensor in sample.tensors):
        return {}
    largest = max(sample.tensors, key=torch.numel)
    found = {}
    for old in set(largest.shape) - {0, 1}:
        times = list(largest.shape).count(old)
        rest = largest.numel() // old**times
        new = math.ceil((ELEMENTS / rest) ** (1 / times))
        found[old] = new + (rest * new**times < ELEMENTS)
    return found


def _bytes(tensors: list[Tensor], old: int, new: int) -> int:
    unique = {id(tensor): tensor for tensor in tensors}
    return sum(math.prod(_grow(t.shape, old, new)) * t.itemsize for t in unique.values())


def _grow(shape: torch.Size, old: int, new: int) -> list[int]:
    return [new if size == old else size for size in shape]


def enlarged(grown: GrownCase) -> Sample:
    """The call, its tensors filled with elements of the given ones, in no order: the same at each call.

    What repeats is rounded the same way each time, so that a sum of it in float32 drifts off.
    """
    made: dict[int, Tensor] = {}

    def enlarge(tensor: Tensor) -> Tensor:
        if id(tensor) not in made:
            made[id(tensor)] = _drawn(tensor, _grow(tensor.shape, grown.old, grown.new))
        return made[id(tensor)]

    return grown.case.sample.map_tensors(enlarge)


def _drawn(tensor: Tensor, shape: list[int]) -> Tensor:
    large = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
    source, generator = _bytes_of(tensor.detach()), torch.Generator(tensor.device).manual_seed(len(shape))
    for part in _bytes_of(large).split(CHUNK):
        at = torch.randint(len(source), (len(part),), device=tensor.device, generator=generator)
        part.copy_(source[at])
    return large


def _bytes_of(tensor: Tensor) -> Tensor:
    """A row of bytes for each element, which torch takes by index of every dtype. A view where it can be."""
    return tensor.reshape(-1, 1).view(torch.uint8)
