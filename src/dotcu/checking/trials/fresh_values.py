"""`fresh-values`: each call computes; a result kept from an earlier one, by whatever key, must show.

One set of tensors is called with again and again, with other values written into the same memory: once so
that torch counts the write, once so that it does not, once with the first and last elements left alone.
Then come new tensors of the same shapes, another size, and the first tensors again. A result that is wrong
in memory too that no call has seen, and is none of an earlier call, is for numerics to report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import torch
from torch import Tensor

from dotcu.checking import numerics
from dotcu.checking.budget import LeftOut
from dotcu.checking.cases.derived import derived_cases, size_pattern
from dotcu.checking.cases.samples import Case, samples_of
from dotcu.checking.catalogue import Level
from dotcu.checking.memory import fresh, same_bits, without_repeats
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped, Trial, skipped, trial
from dotcu.checking.subject import Subject
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.operator import Sample
from dotcu.tracebacks import one_line

CHECK = "fresh-values"


def plan(subject: Subject) -> Iterator[Trial]:
    """A trial for each dtype; when quick, for the first floating and the first integer one."""
    seeded = subject.declares(torch.Tag.nondeterministic_seeded)
    if seeded or (subject.reference is None and not subject.is_deterministic):
        yield skipped(subject, CHECK, "declared to give other values at each call")
        return
    dtypes = subject.overload.dtypes
    if subject.level == Level.QUICK:
        dtypes = (floating(subject)[:1] or dtypes[:1]) + first_integer(subject)
    cases = [of_some_size(subject, dtype) for dtype in dict.fromkeys(dtypes)]
    if not any(cases):
        yield skipped(subject, CHECK, "no sample without empty tensors")
    for first, *others in filter(None, cases):
        derived = derived_cases(subject, first.dtype, (size_pattern(33),))
        sizes = chain(others, filter(subject.takes, derived))
        other = next((one for one in sizes if _shapes(one) != _shapes(first)), None)
        yield trial(subject, CHECK, _look, first, other)


def _shapes(case: Case) -> list[torch.Size]:
    return [tensor.shape for tensor in case.sample.tensors]


@dataclass(kw_only=True)
class _CallHistory:
    """The calls that were made, with copies of what they gave."""

    subject: Subject
    case: Case
    made: list[tuple[str, tuple[Tensor, ...], tuple[Tensor, ...]]] = field(default_factory=list)

    def call(self, when: str, sample: Sample) -> str:
        """Call, and say in words what is wrong with the result, if anything is."""
        expected = _expected(self.subject, self.case, sample)  # from copies, before the call
        with self.subject.place():
            results = self.subject.call(sample)
            self.made.append((when, results, tuple(tensor.detach().clone() for tensor in results)))
        return expected(self.made[-1][2])

    def is_kept(self, fresh_copy: Sample) -> bool:
        """Return whether the last result is wrong, and that of its call's copy in fresh memory is not."""
        *earlier, last = [copies for _, _, copies in self.made]
        if self.subject.reference is None or any(same_bits(last, copies) for copies in earlier):
            return True
        expected = _expected(self.subject, self.case, fresh_copy)
        with self.subject.place():
            return not expected(self.subject.call(fresh_copy))

    def spoiled(self) -> str:
        """Name the result that a later call has changed, or shares its memory with; written arguments may."""
        if self.subject.overload.signature.mutates:
            return ""
        for when, results, copies in self.made:
            if not same_bits(results, copies):
                return f"the result of the call {when} is changed by a later call"
        owners: dict[int, str] = {}
        for when, address in [(w, t.data_ptr()) for w, results, _ in self.made for t in results if t.numel()]:
            if owners.setdefault(address, when) != when:
                return f"the results of the calls {owners[address]} and {when} share memory"
        return ""


def _look(subject: Subject, case: Case, other: Case | None) -> CheckResult:
    """Call with several values, and at another case's size, until a result is not of its own arguments."""
    calls, sample = _CallHistory(subject=subject, case=case), case.make()
    if calls.call("with the first values", sample):
        return Skipped(reason="the first call gives a wrong result already, as another check says")
    for when, values in _calls_with_new_values(subject, case, other, sample):
        fresh_copy = fresh(values)
        wrong = calls.call(when, values)
        if wrong and not calls.is_kept(fresh_copy):
            return Skipped(reason="the same call on new tensors is wrong too, so no result was kept")
        if wrong:
            return Failed(reason=f"gives a wrong result {when}, after correct ones", evidence=wrong)
    count = len(calls.made)
    if count == 1:
        return Skipped(reason="no other values for its samples could be found")
    spoiled = calls.spoiled()
    return Failed(reason=spoiled) if spoiled else Passed(note=f"right in {count} calls with other values")


def _calls_with_new_values(
    subject: Subject, case: Case, other: Case | None, sample: Sample
) -> Iterator[tuple[str, Sample]]:
    """Yield the calls, one after the other; each is made once the call before it is done."""
    ways: dict[str, Callable[[Tensor, Tensor], None]] = {
        "with other values in the same memory": write,
        "with values in the same memory that torch did not count": lambda into, values: write(
            into.data, values
        ),
        "with other values between the same first and last ones": _write_between,
    }
    for variant, (when, way) in enumerate(ways.items(), 1):
        values = with_new_values(subject, case, variant)
        if values is None:
            return
        _write_each(way, subject, sample, values)
        yield when, sample
    values = with_new_values(subject, case, 4)
    if values is not None:
        yield "with other values in new memory", values
    if other is not None and _takes(subject, other):
        yield "at another size", other.make()
        values = with_new_values(subject, case, 5)
        if values is not None:
            _write_each(write, subject, sample, values)
            yield "at the first size again", sample


def _takes(subject: Subject, case: Case) -> bool:
    """Return whether operator and reference compute a case; what is derived they may refuse."""
    if not case.derived:
        return True
    sample = case.make()
    try:
        if subject.reference_error(sample) is not None:
            return False
        with subject.place():
            subject.call(sample)
    except (UsageError, EnvironmentFault):
        raise
    except Exception:  # if it must not fail, other checks say so
        return False
    return True


def _write_each(
    way: Callable[[Tensor, Tensor], None], subject: Subject, into: Sample, values: Sample
) -> None:
    """Write the inputs; what a call only writes stays as the last one left it, to be written again."""
    for target, value in zip(subject.inputs(into).tensors, subject.inputs(values).tensors, strict=True):
        way(target, value)


def _write_between(into: Tensor, values: Tensor) -> None:
    """Write floating-point values only: the ends of integers may have to fit the values between them."""
    if into.is_floating_point() and into.numel() > 2:
        values = values.clone()
        for end in (tuple([0] * into.dim()), tuple([-1] * into.dim())):
            values[end] = into[end]
    write(into, values)


def _expected(subject: Subject, case: Case, sample: Sample) -> Callable[[tuple[Tensor, ...]], str]:
    """Return a function that says how a result differs from the one that a sample should have."""
    if subject.reference is None:
        copies = sample.map_tensors(lambda tensor: tensor.detach().clone())
        with subject.place():
            own = tuple(tensor.detach().clone() for tensor in subject.call(copies))
        different = "it gives another result for copies of its arguments"
        return lambda results: "" if same_bits(own, results) else different
    try:
        oracle = subject.oracle(sample, case.dtype)
    except Exception as error:
        reason = f"the reference fails: {type(error).__name__}: {one_line(error)}"
        raise LeftOut(reason, for_time=False) from error
    return lambda results: str(numerics.judge(results, oracle))


# ------------ the same call with other values: what a kept result, a batch or a second run must be tried with

_ATTEMPTS = 3
"""A few integers that are drawn again may be the same."""

_SHRINK = 0.75
"""Keeps a sign, a zero, and what is to stay below 1."""


def with_new_values(subject: Subject, case: Case, variant: int) -> Sample | None:
    """A given case in new memory with other values; None if no other could be found.

    Args:
        variant: From 1 on: another one gives other values.
    """
    for attempt in range(_ATTEMPTS):
        drawn = _drawn(subject, case, variant, attempt)
        if drawn is not None and not same_bits(drawn.tensors, case.sample.tensors):
            return _poured(case, drawn)
    changed = _poured(case, moved(case, variant))
    return None if same_bits(changed.tensors, case.sample.tensors) else changed


def moved(case: Case, variant: int) -> Sample:
    """The case's call with its values in other places."""
    has_floats = any(tensor.is_floating_point() for tensor in case.sample.tensors)

    def move(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point():
            return (tensor.double() * _SHRINK**variant).roll(variant).to(tensor.dtype)
        return tensor if has_floats or tensor.dtype != case.dtype else tensor.roll(variant)

    return case.sample.map_tensors(move)


def _poured(case: Case, values: Sample) -> Sample:
    """Values in new memory that lies as the case's does."""
    sample = case.make()
    for into, value in zip(sample.tensors, values.tensors, strict=True):
        write(into, value)
    return sample


def doubled(case: Case) -> Sample | None:
    """The case's call at another size: every dimension of more than one element twice as long.

    None if a tensor is of another kind of dtype than the case: what it holds may have to fit a size.
    """
    if not all(tensor.is_floating_point() or tensor.dtype == case.dtype for tensor in case.sample.tensors):
        return None
    return case.sample.map_tensors(lambda t: t.detach().repeat([2 if size > 1 else 1 for size in t.shape]))


def _drawn(subject: Subject, case: Case, variant: int, attempt: int) -> Sample | None:
    """The sample that the author's function gives instead of the case's, with other random numbers.

    None if it gives one that differs in more than the values of tensors.
    """
    position = next((i for i, given in enumerate(subject.given(case.dtype)) if given is case), None)
    if position is None:
        return None
    with subject.seeded(f"{subject.name}/{case.name}/{variant}/{attempt}"):
        samples = list(samples_of(subject.overload, subject.device, case.dtype))
    if position >= len(samples) or repr(samples[position]) != repr(case.sample):
        return None
    return samples[position]


def write(into: Tensor, values: Tensor) -> None:
    """Copy values into a tensor, each element of memory once: a dimension of stride 0 has one."""
    target = without_repeats(into)
    target.copy_(values[tuple(map(slice, target.shape))])


# ------------ which of an operator's dtypes and given cases a trial takes, where it does not take all of them

COMPUTED = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128}
    | {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
)
"""The dtypes that torch adds and multiplies; others (bool, 8-bit floats, wide unsigned) it merely holds."""

FEW = 16
"""Elements below which a case shows little: layout and order hardly matter."""


def floating(subject: Subject) -> tuple[torch.dtype, ...]:
    """The operator's floating dtypes that a gradient can be of."""
    taken = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    return tuple(dtype for dtype in subject.overload.dtypes if dtype in taken)


def first_integer(subject: Subject) -> tuple[torch.dtype, ...]:
    """The first of the operator's integer dtypes, bool among them; none where it takes none."""
    whole = (dtype for dtype in subject.overload.dtypes if not (dtype.is_floating_point or dtype.is_complex))
    return tuple(whole)[:1]


def of_some_size(subject: Subject, dtype: torch.dtype) -> list[Case]:
    """The given cases without empty tensors, the smallest first, but those of very few elements last."""
    return sorted(subject.whole(dtype), key=lambda case: case.elements < FEW)
