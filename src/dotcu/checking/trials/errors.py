"""Calls that an operator may refuse, and must not get wrong.

Where the reference raises, the operator raises. Where it computes, the operator gives the same, or
refuses with an error that says so. Nothing of it may end in a fault of a kernel.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dotcu.checking import numerics
from dotcu.checking.cases.derived import bases
from dotcu.checking.cases.samples import Case
from dotcu.checking.cases.wrong import wrong
from dotcu.checking.subject import ReferenceCalls, Subject
from dotcu.checking.trial import Failed, Outcome, Passed, Skipped, Trial, Verdict
from dotcu.checking.trials import skipped
from dotcu.checking.trials.call import SANITIZERS
from dotcu.errors import FindingError
from dotcu.operator import Sample
from dotcu.tracebacks import describe, one_line

CallResult = tuple[Tensor, ...] | Exception
"""The results of a call, or its error."""


def plan(subject: Subject) -> Iterator[Trial]:
    """A trial for each wrong call, in the first of the operator's dtypes."""
    dtype = subject.overload.dtypes[0]
    case = next(iter(bases(subject, dtype)), subject.smallest(dtype))
    if case is None:
        yield skipped(subject, "errors", "no sample whose tensors have elements")
        return
    checks = ("errors", *SANITIZERS, "numerics") if subject.simulated else ("errors",)
    for each in wrong(subject, case):
        run = partial(look, subject, each)
        yield Trial(overload=subject.name, kind="errors", case=each.name, checks=checks, run=run)


def look(subject: Subject, case: Case) -> Iterator[Verdict]:
    """Make a wrong call, and say whether the operator took it as it must."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of casts and of sizes
        yield "errors", _outcome(subject, case, _call(subject, case))


def _call(subject: Subject, case: Case) -> CallResult:
    sample = case.sample
    with subject.seeded(case.name), subject.place():
        try:
            if case.never:  # of this overload: another may take it
                results = numerics.outputs(subject.overload.torch_op(*sample.args, **sample.kwargs))
            else:
                results = subject.call(sample)
            if subject.on_gpu:
                torch.cuda.synchronize(subject.device)
        except FindingError:
            raise
        except Exception as error:
            return error
    return results


def _outcome(subject: Subject, case: Case, called: CallResult) -> Outcome:
    how = "in the body with a TypeError or ValueError" if subject.has_body else "in C++ by TORCH_CHECK"
    remedy = f"Refuse such a call {how} that says what is required, or compute it."
    if isinstance(called, Exception) and subject.refuses(called):
        return Passed.refused(called)
    expected = _expected(subject, case)
    if expected is None:
        return Skipped(reason="no reference")
    if isinstance(called, Exception):
        if isinstance(expected, str):
            return Passed.refused(called)
        reason = f"it fails with {type(called).__name__}, and its reference accepts the call"
        return Failed(reason=reason, evidence=f"{describe(called)}\n{remedy}")
    if isinstance(expected, str):
        gave = ", ".join(map(_kind, called)) or "nothing"
        evidence = f"{expected}\nThe call gave {gave}.\n{remedy}"
        return Failed(reason="it accepts arguments that it must refuse", evidence=evidence)
    outcome = _compared(subject, case, called, expected)
    if isinstance(outcome, Failed):
        return Failed(reason=outcome.reason, evidence=f"{outcome.evidence}\n{remedy}".lstrip())
    return outcome


def _expected(subject: Subject, case: Case) -> tuple[Tensor, ...] | str | None:
    """Return the reference's results, on one device or on several; as text, why the call must raise.

    None if nothing says which it is.
    """
    if case.never:
        return "it has no such arguments"
    if subject.reference is None:
        return None
    inputs = subject.inputs(case.sample)
    try:
        with torch.no_grad():
            results = numerics.outputs(subject.reference(*inputs.args, **inputs.kwargs))
    except ReferenceCalls:
        raise
    except Exception as error:
        return f"the reference raises {type(error).__name__}: {one_line(error)}"
    return _unfit(subject, case.sample, results) or results


def _unfit(subject: Subject, sample: Sample, results: tuple[Tensor, ...]) -> str:
    """Say what is wrong with a tensor that is only written: it must be as the result is."""
    if subject.overload.functional is None:
        return ""
    for name, result in zip(subject.overload.signature.outs, results, strict=False):
        out: Any = sample.kwargs.get(name)
        if not isinstance(out, Tensor) or _kind(out) != _kind(result):
            given = _kind(out) if isinstance(out, Tensor) else repr(out)
            return f"the result is {_kind(result)}, and {name}= is {given}"
    return ""


def _kind(tensor: Tensor) -> str:
    return f"{tensor.dtype}{list(tensor.shape)} on {tensor.device.type}"


def _compared(
    subject: Subject, case: Case, results: tuple[Tensor, ...], expected: tuple[Tensor, ...]
) -> Outcome:
    """Return whether results are the reference's: by kind, and by value where there are any."""
    got, wanted = [_kind(t) for t in results], [_kind(t) for t in expected]
    if got != wanted:
        return Failed(reason=f"it gives {', '.join(got)}, its reference {', '.join(wanted)}")
    if any(tensor.is_meta for tensor in (*expected, *case.sample.tensors)):
        return Passed(note="agrees in shape")
    if any(tensor.is_complex() for tensor in expected):  # which have no oracle
        if all(torch.allclose(a, b, equal_nan=True) for a, b in zip(results, expected, strict=True)):
            return Passed(note="agrees")
        return Failed(reason="it computes other complex numbers than its reference")
    assert subject.reference is not None
    inputs = subject.for_reference(case.sample)
    error = numerics.judge(results, numerics.oracle(subject.reference, inputs, subject.tolerance(case.dtype)))
    return Passed(ratio=error.ratio) if error.passed else Failed(reason=error.what, evidence=error.where)
