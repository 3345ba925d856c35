"""What the trials that need a GPU have in common: calls that are tried, other values, and what is right."""

from __future__ import annotations

from itertools import islice

import torch
from torch import Tensor

from dotcu.checking import numerics
from dotcu.checking.blame import located
from dotcu.checking.cases.case import Case
from dotcu.checking.cases.given import samples_of
from dotcu.checking.memory import fresh, same_bits
from dotcu.checking.outcome import FellShort, Held, Outcome, Skipped
from dotcu.checking.subject import Subject
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.kernel.allocations import extent
from dotcu.operator import Sample

NEEDS_GPU = "needs a CUDA GPU"


def chosen(subject: Subject) -> list[Case]:
    """The smallest and the largest given case of the first dtype that has some; none may be empty."""
    for dtype in subject.overload.dtypes:
        smallest = subject.smallest(dtype)
        if smallest is not None:
            largest = max(whole_cases(subject, dtype), key=_elements)
            return [smallest] if largest is smallest else [smallest, largest]
    return []


def whole_cases(subject: Subject, dtype: torch.dtype) -> list[Case]:
    """The given cases in which no tensor is empty."""
    return [case for case in subject.given(dtype) if all(t.numel() for t in case.sample.tensors)]


def _elements(case: Case) -> int:
    return sum(tensor.numel() for tensor in case.sample.tensors)


def cannot_call(subject: Subject, case: Case) -> Skipped | None:
    """Why a plain call fails, which the trials of `call` tell; None where it does not. Loads the kernels."""
    try:
        for _ in range(2):  # the second one may go by a plan
            subject.call(case.make())
        torch.cuda.synchronize(subject.device)
    except (UsageError, EnvironmentFault):
        raise
    except Exception as error:
        return Skipped(why=f"a plain call fails: {str(error).strip().splitlines()[0]}")
    return None


# ------------------------------------------------------------------ other values


def other_values(subject: Subject, case: Case, turn: int) -> Sample:
    """The same call with other values: the author's from another seed, else the same ones elsewhere.

    Args:
        turn: Each gives values of its own, 1 and up.
    """
    position = [one.name for one in subject.given(case.dtype)].index(case.name)
    with subject.seeded(f"{subject.name}/{case.name}/{turn}"):
        samples = list(islice(samples_of(subject.overload, subject.device, case.dtype), position + 1))
    sample = samples[position] if len(samples) > position else case.sample
    if _is_alike(sample, case.sample) and not same_bits(sample.tensors, case.sample.tensors):
        return fresh(sample)
    return fresh(case.sample).map_tensors(lambda tensor: _turned(tensor, turn))


def _is_alike(a: Sample, b: Sample) -> bool:
    """Whether two samples differ in the values of their tensors at most."""
    return _form(a) == _form(b)


def _form(sample: Sample) -> str:
    shapes = [(tensor.dtype, tensor.shape, tensor.stride()) for tensor in sample.tensors]
    return f"{shapes} {sample.map_tensors(lambda tensor: torch.empty(0))}"


def _turned(tensor: Tensor, turn: int) -> Tensor:
    """Numbers moved on by some places. Integers stay: they may be indices that must rise."""
    repeats = any(
        stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    if tensor.is_floating_point() and not repeats:
        tensor.copy_(tensor.roll(turn))
    return tensor


def refill(into: Sample, values: Sample) -> None:
    """Give the tensors of a call the values of another one of the same form, on torch's current stream."""
    for target, source in zip(into.tensors, values.tensors, strict=True):
        memory(target).copy_(memory(source))


def memory(tensor: Tensor) -> Tensor:
    """A tensor's memory from its first element to its last, flat."""
    return tensor.as_strided((extent(tensor),), (1,), tensor.storage_offset())


# ------------------------------------------------------------------ what is right


def judged(subject: Subject, sample: Sample, results: tuple[Tensor, ...]) -> Outcome:
    """Whether results are those of an ordinary call, or at least right.

    The ordinary call is made here and now: one made before may have left its results in memory that a
    later one gets, and leaves unwritten.

    Args:
        sample: The values that the call was made with, untouched.
    """
    if subject.is_deterministic:
        ordinary = tuple(tensor.clone() for tensor in _waited(subject, fresh(sample)))
        if same_bits(results, ordinary):
            return Held()
        if subject.reference is None:
            return FellShort(reason="it gives other bits than an ordinary call")
    if subject.reference is None:
        return Skipped(why="no reference, and declared nondeterministic by a tag")
    return _against_reference(subject, sample, results)


def _waited(subject: Subject, sample: Sample) -> tuple[Tensor, ...]:
    results = subject.call(sample)
    for device in {tensor.device for tensor in results if tensor.is_cuda}:
        torch.cuda.synchronize(device)
    return results


def _against_reference(subject: Subject, sample: Sample, results: tuple[Tensor, ...]) -> Outcome:
    assert subject.reference is not None
    dtype = next((t.dtype for t in sample.tensors if t.dtype in subject.overload.dtypes), torch.float32)
    try:
        inputs = subject.for_reference(sample)
        expected = numerics.oracle(subject.reference, inputs, subject.tolerance(dtype))
    except Exception as error:
        return Skipped(why=f"the reference fails: {located(error)}")
    worst = numerics.judge(results, expected)
    return Held(ratio=worst.ratio) if worst.held else FellShort(reason=worst.what, evidence=worst.where)
