"""`reference`: it computes, the same twice, and leaves its inputs alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from dotcu import settings
from dotcu.checking.cases.samples import Case
from dotcu.checking.catalogue import Level
from dotcu.checking.memory import bits, fresh, same_bits
from dotcu.checking.numerics import outputs, values_at
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped, Trial, skipped, trial
from dotcu.checking.subject import ReferenceCalls, Subject
from dotcu.checking.trials.fresh_values import of_some_size
from dotcu.tracebacks import one_line

CHECK = "reference"


def plan(subject: Subject) -> Iterator[Trial]:
    """A trial for each given case of the first dtype, and for one of each other; at full for every one."""
    if subject.reference is None:
        why = (
            "no reference, so the right values are unknown: of numerics nothing is checked, and of gradients "
            "only gradcheck in float64; every other check runs"
        )
        yield skipped(subject, CHECK, why)
        return
    first, *others = subject.overload.dtypes
    cases = subject.given(first)
    if subject.level >= Level.FULL:
        cases = [case for dtype in subject.overload.dtypes for case in subject.given(dtype)]
    elif subject.level >= Level.STANDARD:
        cases = [*cases, *(case for dtype in others for case in of_some_size(subject, dtype)[:1])]
    if not cases:
        yield skipped(subject, CHECK, "no samples")
    for case in cases:
        yield trial(subject, CHECK, look, case)
    smallest = subject.smallest(first)
    if subject.has_body and smallest is not None:
        yield trial(subject, CHECK, _called, smallest, variant="called")


def look(subject: Subject, case: Case) -> CheckResult:
    """Run the reference twice, each time on inputs of its own."""
    try:
        first, changed = _run(subject, case, "")
        draws = subject.declares(torch.Tag.nondeterministic_seeded)
        second, _ = _run(subject, case, "" if draws else "/again")
    except ReferenceCalls:
        raise
    except (Exception, SystemExit) as error:
        return Failed.raised("the reference fails on a sample", error)
    if changed:
        return Failed(
            reason=f"the reference changes the tensor at position {changed[0]} of its arguments",
            evidence="It may write only what the operator declares as mutated.",
        )
    if len(first) == len(second) and all(map(equal, first, second)):
        return Passed()
    where = (_difference(i, a, b) for i, (a, b) in enumerate(zip(first, second, strict=False)))
    evidence = next(filter(None, where), f"{len(first)} and {len(second)} tensors")
    return Failed(
        reason="the reference gives different values at a second call with equal inputs", evidence=evidence
    )


def _called(subject: Subject, case: Case) -> CheckResult:
    """Call the operator on CPU tensors as a program does, without the simulator: the reference computes."""
    sample = case.make().map_tensors(Tensor.cpu)
    try:
        expected, _ = _run(subject, case, "")
    except Exception as error:  # which the trial of the case itself reports
        return Skipped(reason=f"the reference fails: {one_line(error)}")
    try:
        with settings.override(simulate=False), subject.seeded(case.name):
            got = subject.call(sample)
    except ReferenceCalls:
        raise
    except Exception as error:
        return Failed.raised("a call on CPU tensors, outside of the simulator, fails", error)
    if all(map(equal, got, expected)) and len(got) == len(expected):
        return Passed()
    if subject.declares(torch.Tag.nondeterministic_seeded):
        return Passed(note="declared random")  # the body has drawn numbers before, for its shapes
    where = (_difference(i, a, b) for i, (a, b) in enumerate(zip(expected, got, strict=False)))
    return Failed(
        reason="a call on CPU tensors, outside of the simulator, gives another result than the reference",
        evidence=next(filter(None, where), f"{len(expected)} and {len(got)} tensors"),
    )


def _run(subject: Subject, case: Case, seed: str) -> tuple[tuple[Tensor, ...], list[int]]:
    """Return the reference's results, and the tensors that it changed and the call is not to write."""
    assert subject.reference is not None
    inputs = subject.for_reference(case.make())
    before = fresh(inputs)
    with subject.seeded(case.name + seed), torch.no_grad():
        results = outputs(subject.reference(*inputs.args, **inputs.kwargs))
        kept = tuple(tensor.detach().clone() for tensor in results)
    written = set() if subject.overload.functional is not None else set(map(id, subject.written(inputs)))
    pairs = enumerate(zip(inputs.tensors, before.tensors, strict=True))
    return kept, [i for i, (now, was) in pairs if id(now) not in written and not equal(now, was)]


def equal(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have the same bits; any NaN is like another."""
    return same_bits([a], [b]) or (
        a.shape == b.shape and a.dtype == b.dtype and not bool(_differs(a, b).any())
    )


def _differs(a: Tensor, b: Tensor) -> Tensor:
    other = (bits(a) != bits(b)).any(dim=1).reshape(a.shape)
    return other & ~(a.double().isnan() & b.double().isnan()) if a.is_floating_point() else other


def _difference(position: int, a: Tensor, b: Tensor) -> str:
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"output {position}: first {a.dtype}{list(a.shape)}, then {b.dtype}{list(b.shape)}"
    differs = _differs(a, b)
    if not bool(differs.any()):
        return ""
    return f"output {position}{values_at(int(differs.flatten().int().argmax()), first=a, then=b)}"
