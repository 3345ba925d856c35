"""`vmap`: a batching rule gives what a loop over the batch gives, in every tensor and dimension."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from dotcu.checking import numerics
from dotcu.checking.cases.samples import Case
from dotcu.checking.catalogue import Level
from dotcu.checking.results import CheckResult, Failed, Passed, Trial, skipped, trial
from dotcu.checking.subject import Subject
from dotcu.checking.trials.fresh_values import moved
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
    cases = [case for dtype in dtypes for case in subject.whole(dtype)[: 3 if full else 2]]
    if not cases:
        yield skipped(subject, CHECK, "no sample without empty tensors")
    for case in cases:
        having = [i for i, value in enumerate(case.sample.args) if Sample(value).tensors]
        for batched in [*((i,) for i in having), *([having] if len(having) > 1 else [])]:
            which = "all" if len(batched) > 1 else str(batched[0])
            for dim in (0, -1):
                yield trial(subject, CHECK, _look, case, batched, dim, variant=f"{which}-dim{dim}")


def _look(subject: Subject, case: Case, batched: Sequence[int], dim: int) -> CheckResult:
    """Call once under vmap with the arguments at some positions batched, and once for each element."""
    calls = _calls(case, batched)
    keywords = calls[0].kwargs

    def stack(*leaves: Any) -> Any:
        return torch.stack(leaves, dim) if isinstance(leaves[0], Tensor) else leaves[0]

    args = [
        tree_map(stack, *values) if i in batched else values[0]
        for i, values in enumerate(zip(*(one.args for one in calls), strict=True))
    ]
    in_dims = tuple(
        tree_map(lambda leaf: dim if isinstance(leaf, Tensor) else None, value) if i in batched else None
        for i, value in enumerate(args)
    )

    def call(*args: Any) -> tuple[Tensor, ...]:
        return numerics.outputs(subject.overload(*args, **keywords))

    with subject.seeded(case.name), subject.place(), torch.no_grad():
        together = torch.func.vmap(call, in_dims=in_dims)(*args)
    for i, one in enumerate(calls):
        wrong = _wrong(subject, case, one, tuple(result[i] for result in together))
        if wrong:
            return Failed(reason=f"element {i} of a batch of {BATCH} is wrong", evidence=wrong)
    return Passed()


def _calls(case: Case, batched: Sequence[int]) -> list[Sample]:
    """The calls of a batch: what is batched has other values in each, and all else is the same."""
    first = case.make()
    others = [moved(case, variant).args for variant in range(1, BATCH)]
    args = ([other[i] if i in batched else old for i, old in enumerate(first.args)] for other in others)
    return [first, *(Sample(*values, **first.kwargs) for values in args)]


def _wrong(subject: Subject, case: Case, one: Sample, got: tuple[Tensor, ...]) -> str:
    """Say what is wrong with one element, compared with the reference, or else with a call of its own."""
    with subject.seeded(case.name), subject.place():
        own = subject.call(one)
    wanted, given = (", ".join(map(numerics.describe, tensors)) for tensors in (own, got))
    if given != wanted:
        return f"it gives {given}, a call for it alone {wanted}"
    if subject.declares(torch.Tag.nondeterministic_seeded):
        return ""  # each call draws other numbers
    if subject.reference is None:
        return numerics.unlike(got, own)
    return str(numerics.judge(got, subject.oracle(one, case.dtype)))
