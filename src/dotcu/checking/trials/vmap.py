"""`vmap`: a batching rule gives what a loop over the batch gives, in every tensor and dimension."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from dotcu.checking import numerics
from dotcu.checking.cases.samples import Case
from dotcu.checking.catalogue import Level
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Failed, Outcome, Passed, Trial, Verdict
from dotcu.checking.trials import skipped
from dotcu.checking.trials.fresh_values import moved, without_empty
from dotcu.operator import Sample

CHECK = "vmap"
BATCH = 3


def plan(subject: Subject) -> Iterator[Trial]:
    """A trial for each tensor alone and for all, batched in the first and in the last dimension."""
    if not subject.overload.has_vmap:
        yield skipped(subject, CHECK, "no batching rule")
        return
    if subject.overload.signature.mutates:
        yield skipped(subject, CHECK, "it writes its arguments")
        return
    full = subject.level >= Level.FULL
    dtypes = subject.overload.dtypes if full else subject.overload.dtypes[:1]
    cases = [case for dtype in dtypes for case in without_empty(subject, dtype)[: 3 if full else 2]]
    if not cases:
        yield skipped(subject, CHECK, "no sample without empty tensors")
    for case in cases:
        for batched in _choices(case.sample):
            for dim in (0, -1):
                which = "all" if len(batched) > 1 else str(batched[0])
                run = partial(look, subject, case, batched, dim)
                name = f"{case.name}-{which}-dim{dim}"
                yield Trial(overload=subject.name, kind=CHECK, case=name, checks=(CHECK,), run=run)


def _choices(sample: Sample) -> list[tuple[int, ...]]:
    """Return the positional arguments to batch: each that has tensors alone, and all of them."""
    having = [i for i, value in enumerate(sample.args) if Sample(value).tensors]
    alone: list[tuple[int, ...]] = [(i,) for i in having]
    return [*alone, tuple(having)] if len(having) > 1 else alone


def look(subject: Subject, case: Case, batched: Sequence[int], dim: int) -> Iterator[Verdict]:
    """Call once under vmap, and once for each element of the batch.

    Args:
        subject: The overload under check.
        case: The call to begin with.
        batched: The positions of the batched arguments.
        dim: The batch dimension.
    """
    yield CHECK, _look(subject, case, batched, dim)


def _look(subject: Subject, case: Case, batched: Sequence[int], dim: int) -> Outcome:
    calls = _calls(case, batched)
    stacked = _stack(calls, batched, dim)
    in_dims = tuple(
        tree_map(lambda leaf: dim if isinstance(leaf, Tensor) else None, value) if i in batched else None
        for i, value in enumerate(stacked.args)
    )

    def call(*args: Any) -> tuple[Tensor, ...]:
        return numerics.outputs(subject.overload(*args, **stacked.kwargs))

    with subject.seeded(case.name), subject.place(), torch.no_grad():
        together = torch.func.vmap(call, in_dims=in_dims)(*stacked.args)
    for i, one in enumerate(calls):
        wrong = _wrong(subject, case, one, tuple(result[i] for result in together))
        if wrong:
            return Failed(reason=f"element {i} of a batch of {BATCH} is wrong", evidence=wrong)
    return Passed()


def _calls(case: Case, batched: Sequence[int]) -> list[Sample]:
    """The calls of a batch: what is batched has other values in each, and all else is the same."""
    calls = [case.make()]
    for turn in range(1, BATCH):
        other = moved(case, turn)
        args = [
            new if i in batched else old
            for i, (old, new) in enumerate(zip(calls[0].args, other.args, strict=True))
        ]
        calls.append(Sample(*args, **calls[0].kwargs))
    return calls


def _stack(calls: Sequence[Sample], batched: Sequence[int], dim: int) -> Sample:
    args = [
        tree_map(partial(_stacked, dim), *(call.args[i] for call in calls)) if i in batched else value
        for i, value in enumerate(calls[0].args)
    ]
    return Sample(*args, **calls[0].kwargs)


def _stacked(dim: int, first: Any, *others: Any) -> Any:
    return torch.stack([first, *others], dim) if isinstance(first, Tensor) else first


def _wrong(subject: Subject, case: Case, one: Sample, got: tuple[Tensor, ...]) -> str:
    """Say what is wrong with one element, compared with the reference, or else with a call of its own."""
    with subject.seeded(case.name), subject.place():
        own = subject.call(one)
    if [t.shape for t in own] != [t.shape for t in got] or [t.dtype for t in own] != [t.dtype for t in got]:
        return f"it gives {_shapes(got)}, a call for it alone {_shapes(own)}"
    if subject.reference is None:
        return _unlike(own, got)
    oracle = numerics.oracle(subject.reference, subject.for_reference(one), subject.tolerance(case.dtype))
    error = numerics.judge(got, oracle)
    return "" if error.passed else f"{error.what}\n{error.where}".strip()


def _shapes(tensors: Sequence[Tensor]) -> str:
    return ", ".join(f"{tensor.dtype}{list(tensor.shape)}" for tensor in tensors)


def _unlike(own: Sequence[Tensor], got: Sequence[Tensor]) -> str:
    try:
        torch.testing.assert_close(list(got), list(own), equal_nan=True)
    except AssertionError as error:
        return str(error)
    return ""


# Which of the derived cases a trial takes that needs but some of them: by what they end in.
