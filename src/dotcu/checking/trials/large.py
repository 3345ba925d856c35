"""More than 2^31 elements: the same call with one size so large that an index of 32 bits overflows.

The narrowest dtype is taken, so that the call needs least memory. What is right is what the reference gives
on the GPU in that dtype, within the wide bounds of `closeness`, since other checks look at precision: an
index that overflows misses whole elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import Tensor

from dotcu.checking.cases.samples import Case
from dotcu.checking.memory import mapped
from dotcu.checking.numerics import CHUNK, difference, outputs
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped, Trial, skipped, trial
from dotcu.checking.subject import Subject
from dotcu.checking.trials.gpu import NEEDS_GPU, cannot_call
from dotcu.operator import Sample
from dotcu.tracebacks import describe, one_line

ELEMENTS = 2**31 + 33
"""The elements of the largest input, or slightly more."""

SHARE, COPIES = 0.6, 3
"""The share of free memory that a call may use, and the number of times its tensors are counted."""

NARROWEST = 3
"""The number of dtypes to try: torch may have no reference for the first."""

TRIES = 4
"""The number of calls to try if an operator or its reference refuses them."""


def plan(subject: Subject) -> Iterator[Trial]:
    """One trial."""
    if not subject.on_gpu:
        yield skipped(subject, "large", NEEDS_GPU)
    elif subject.reference is None:
        yield skipped(subject, "large", "no reference")
    else:
        yield trial(subject, "large", look)


def look(subject: Subject) -> CheckResult:
    """Try calls that can be made so large until one can be judged.

    The first are those that add up least for an element of a result: sums of millions of products show what
    an order of additions loses. Of these, the one that needs least memory.
    """
    outcome: CheckResult = Skipped(reason="no sample has a contiguous tensor with a size that could grow")
    with torch.cuda.device(subject.device):
        grown = sorted(candidates(subject), key=lambda each: each[:2])
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        fitting = [candidate for candidate in grown if candidate[1] * COPIES < SHARE * free]
        if grown and not fitting:
            needed, has = min(each[1] for each in grown) * COPIES / SHARE / 2**30, free / 2**30
            return Skipped(reason=f"needs {needed:.0f} GiB of free memory on the GPU, which has {has:.0f}")
        for _, _, case, old, new in fitting[:TRIES]:
            try:
                outcome = _tried(subject, case, old, new)
            except torch.OutOfMemoryError as error:
                outcome = Skipped(reason=f"the GPU has too little memory: {one_line(error)}")
            torch.cuda.empty_cache()
            if not isinstance(outcome, Skipped):
                break
    return outcome


def _tried(subject: Subject, case: Case, old: int, new: int) -> CheckResult:
    """Call before the reference: no memory holds the right answer yet."""
    sample = enlarged(case.sample, old, new)
    called: tuple[Tensor, ...] | Exception
    try:
        called = subject.call(sample)
        torch.cuda.synchronize()
    except Exception as error:
        if not subject.refuses(error):
            raise
        called = error
    del sample  # inputs may have been written
    inputs = subject.inputs(enlarged(case.sample, old, new))
    assert subject.reference is not None
    try:
        with torch.no_grad():
            expected = outputs(subject.reference(*inputs.args, **inputs.kwargs))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return Skipped(reason=f"the reference does not take {new} for {old}: {describe(error)}")
    del inputs
    if isinstance(called, Exception):
        return Passed.refused(called)
    largest = max(t.numel() for t in called + expected)
    reason = difference(called, expected, max(largest, ELEMENTS))
    if reason:
        return Failed(
            reason=f"is wrong if an input has {ELEMENTS} elements or more",
            evidence=f"{reason}\n{case.name}: {case.sample} with {new} for {old}",
        )
    return Passed(note=f"{case.name} with {new} for {old}")


def candidates(subject: Subject) -> Iterator[tuple[int, int, Case, int, int]]:
    """The given cases of the narrowest dtypes in which one size can grow enough, its old and its new value.

    Yields them behind the elements that are added up for one of the largest result, as far as sizes tell, and
    the bytes of the call's tensors, its results among them.
    """
    for dtype in sorted(subject.overload.dtypes, key=lambda dtype: dtype.itemsize)[:NARROWEST]:
        for case in subject.whole(dtype):
            sizes = growing(case.sample)
            if not sizes or cannot_call(subject, case) is not None:
                continue
            with suppress(Exception):  # reported by the trials of `call`
                results = subject.call(case.make())
                tensors = {id(t): t for t in (*case.sample.tensors, *results)}.values()
                for old, new in sizes.items():
                    needed = sum(math.prod(_grow(t.shape, old, new)) * t.itemsize for t in tensors)
                    largest = max((math.prod(_grow(t.shape, old, new)) for t in results), default=1)
                    yield ELEMENTS // max(largest, 1) // 1000, needed, case, old, new


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


def _grow(shape: torch.Size, old: int, new: int) -> list[int]:
    return [new if size == old else size for size in shape]


def enlarged(sample: Sample, old: int, new: int) -> Sample:
    """The call, its tensors filled with elements of the given ones, in no order: the same at each call.

    What repeats is rounded the same way each time, so that a sum of it in float32 drifts off.

    Args:
        new: The size that is to stand for the old one.
    """
    return mapped(sample, lambda tensor: _drawn(tensor, _grow(tensor.shape, old, new)))


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
