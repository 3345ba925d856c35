"""`registration`: torch's own `opcheck` of schema, autograd, fake kernel and AOT dispatch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from dotcu.checking.cases.samples import Case
from dotcu.checking.catalogue import Level
from dotcu.checking.results import CheckResult, Failed, Passed, Trial, skipped, trial
from dotcu.checking.subject import Subject
from dotcu.checking.trials.fresh_values import COMPUTED, first_integer, floating
from dotcu.checking.trials.gradients import UNIMPLEMENTED
from dotcu.errors import FindingError
from dotcu.tracebacks import brief

CHECK = "registration"

# What each part of opcheck says when it fails.
_PARTS = {
    "test_schema": "the schema does not say what it mutates or aliases",
    "test_autograd_registration": "autograd does not see it",
    "test_faketensor": "the fake kernel disagrees with it",
    "test_aot_dispatch_dynamic": "it changes or fails under AOT dispatch",
}


def plan(subject: Subject) -> Iterator[Trial]:
    """A trial for the first dtype; at full for every floating one, and an integer one."""
    known = tuple(dtype for dtype in subject.overload.dtypes if dtype in COMPUTED or dtype == torch.bool)
    if not known:
        yield skipped(subject, CHECK, f"opcheck cannot compare results of {subject.overload.dtypes[0]}")
        return
    dtypes = known[:1]
    if subject.level >= Level.FULL:
        others = (dtype for dtype in (*floating(subject), *first_integer(subject)) if dtype in known)
        dtypes = tuple(dict.fromkeys((*dtypes, *others)))
    cases = list(filter(None, map(subject.smallest, dtypes)))
    if not cases:
        yield skipped(subject, CHECK, "no sample without empty tensors")
    for case in cases:
        yield trial(subject, CHECK, look, case)


def look(subject: Subject, case: Case) -> CheckResult:
    """Put one call through every part of opcheck."""
    failed = _failed(subject, case, with_gradients=subject.overload.has_backward)
    if any(UNIMPLEMENTED.search(str(error)) for error in failed.values()):
        failed = _failed(subject, case, with_gradients=False)
    if not failed:
        return Passed()
    for error in failed.values():
        if isinstance(error, FindingError):
            raise error
    with subject.seeded(case.name), subject.place():
        subject.call(case.make())  # what fails by itself too is no fault of the registration, and is raised
    reason = "; ".join(f"{_PARTS[part]} (opcheck's {part})" for part in failed)
    return Failed(reason=reason, evidence="\n".join(dict.fromkeys(map(brief, failed.values()))))


def _failed(subject: Subject, case: Case, *, with_gradients: bool) -> Mapping[str, BaseException]:
    """Return the parts of opcheck that fail, with their errors."""
    sample = case.make()
    if with_gradients:
        sample = sample.map_tensors(lambda t: t.requires_grad_() if t.is_floating_point() else t)
    with subject.seeded(case.name), subject.place(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results: Mapping[str, Any] = torch.library.opcheck(
            subject.overload.torch_op,
            sample.args,
            dict(sample.kwargs),
            test_utils=tuple(_PARTS),
            raise_exception=False,
        )
    return {part: error for part, error in results.items() if isinstance(error, BaseException)}
