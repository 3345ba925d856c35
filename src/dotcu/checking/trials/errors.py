"""Calls that an operator may refuse, and must not get wrong.

Where the reference raises, the operator raises. Where it computes, the operator gives the same, or
refuses with an error that says so. Nothing of it may end in a fault of a kernel.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dotcu.checking import numerics
from dotcu.checking.cases.derived import bases
from dotcu.checking.cases.wrong import WrongCall, wrong
from dotcu.checking.subject import ReferenceCalls, Subject
from dotcu.checking.trial import REFUSED, Failed, Outcome, Passed, Skipped, Trial, Verdict
from dotcu.checking.trials import skipped
from dotcu.checking.trials.call import SANITIZERS
from dotcu.errors import FindingError
from dotcu.operator import Sample
from dotcu.tracebacks import describe


@dataclass(frozen=True, kw_only=True)
class CallResult:
    """The results of a call, or its error."""

    results: tuple[Tensor, ...] = ()
    error: Exception | None = None


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


def look(subject: Subject, case: WrongCall) -> Iterator[Verdict]:
    """Make a wrong call, and say whether the operator took it as it must."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of casts and of sizes
        yield "errors", _outcome(subject, case, _call(subject, case))


def _call(subject: Subject, case: WrongCall) -> CallResult:
    sample = case.build()
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
            return CallResult(error=error)
    return CallResult(results=tuple(results))


def _outcome(subject: Subject, case: WrongCall, made: CallResult) -> Outcome:
    if made.error is not None and subject.refuses(made.error):
        return _refused(made.error)
    if case.never:
        return _must_raise(subject, made, "it has no such arguments")
    if subject.reference is None:
        return Skipped(reason="no reference")
    expected = _refer(subject, case.build())
    if expected.error is not None:
        return _must_raise(subject, made, f"the reference raises {_words(expected.error)}")
    unfit = _unfit(subject, case.build(), expected.results)
    if unfit:
        return _must_raise(subject, made, unfit)
    if made.error is not None:
        reason = f"it fails with {type(made.error).__name__}, and its reference accepts the call"
        return Failed(reason=reason, evidence=f"{describe(made.error)}\n{_remedy(subject)}")
    return _compared(subject, case, made.results, expected.results)


def _remedy(subject: Subject) -> str:
    how = "in the body with a TypeError or ValueError" if subject.has_body else "in C++ by TORCH_CHECK"
    return f"Refuse such a call {how} that says what is required, or compute it."


def _refused(error: Exception) -> Passed:
    return Passed(note=f"{REFUSED}{_words(error)}")


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _must_raise(subject: Subject, made: CallResult, why: str) -> Outcome:
    if made.error is not None:
        return _refused(made.error)
    evidence = f"{why}\nThe call gave {', '.join(map(_kind, made.results)) or 'nothing'}.\n{_remedy(subject)}"
    return Failed(reason="it accepts arguments that it must refuse", evidence=evidence)


def _refer(subject: Subject, sample: Sample) -> CallResult:
    """Call the reference on the arguments where they are: on one device or on several."""
    assert subject.reference is not None
    inputs = subject.inputs(sample)
    try:
        with torch.no_grad():
            return CallResult(results=numerics.outputs(subject.reference(*inputs.args, **inputs.kwargs)))
    except ReferenceCalls:
        raise
    except Exception as error:
        return CallResult(error=error)


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
    subject: Subject, case: WrongCall, results: tuple[Tensor, ...], expected: tuple[Tensor, ...]
) -> Outcome:
    """Return whether results are the reference's: by kind, and by value where there are any."""
    got, wanted = [_kind(t) for t in results], [_kind(t) for t in expected]
    if got != wanted:
        reason = f"it gives {', '.join(got)}, its reference {', '.join(wanted)}"
        return Failed(reason=reason, evidence=_remedy(subject))
    if any(tensor.is_meta for tensor in (*expected, *case.build().tensors)):
        return Passed(note="agrees in shape")
    if any(tensor.is_complex() for tensor in expected):
        return _alike(subject, results, expected)
    oracle = numerics.oracle(
        _reference(subject), subject.for_reference(case.build()), subject.tolerance(case.dtype)
    )
    error = numerics.judge(results, oracle)
    if error.passed:
        return Passed(ratio=error.ratio)
    return Failed(reason=error.what, evidence=f"{error.where}\n{_remedy(subject)}")


def _alike(subject: Subject, results: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> Outcome:
    """Compare complex results, which have no oracle, with torch's own."""
    if all(torch.allclose(a, b, equal_nan=True) for a, b in zip(results, expected, strict=True)):
        return Passed(note="agrees")
    return Failed(reason="it computes other complex numbers than its reference", evidence=_remedy(subject))


def _reference(subject: Subject) -> numerics.Reference:
    assert subject.reference is not None
    return subject.reference
