"""Calls that an operator may refuse, and must not get wrong.

Where the reference raises, the operator raises. Where it computes, the operator gives the same, or
refuses with an error that says so. Nothing of it may end in a fault of a kernel.

The calls have other dtypes, devices, ranks and shapes, numbers out of range, or none: each differs from a
call that works in one argument.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from operator import methodcaller
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from dotcu.checking import numerics
from dotcu.checking.cases.derived import (
    arguments,
    bases,
    generator_for,
    has_indices,
    has_integers,
    is_integer,
    with_arguments,
)
from dotcu.checking.cases.samples import Case, short
from dotcu.checking.memory import NAN_BYTE
from dotcu.checking.results import (
    WRONG_VALUES,
    CheckResult,
    Failed,
    Passed,
    Skipped,
    Trial,
    skipped,
    trial_id,
)
from dotcu.checking.subject import ReferenceCalls, Subject
from dotcu.checking.trials.call import SANITIZERS
from dotcu.errors import BodyError, FindingError
from dotcu.operator import Sample
from dotcu.tracebacks import describe, one_line, own_fault


def plan(subject: Subject) -> Iterator[Trial]:
    """A trial for each wrong call, in the first of the operator's dtypes."""
    dtype = subject.overload.dtypes[0]
    case = next(iter(bases(subject, dtype)), subject.smallest(dtype))
    if case is None:
        yield skipped(subject, "errors", "no sample whose tensors have elements")
        return
    checks = ("errors", *SANITIZERS, "call") if subject.simulated else ("errors",)
    for each in wrong_calls(subject, case):
        run = partial(look, subject, each, case)
        yield Trial(id=trial_id(subject, "errors", each), checks=checks, run=run)


def look(subject: Subject, case: Case, good: Case) -> Iterator[CheckResult]:
    """Make a wrong call, and say whether the operator took it as it must.

    Args:
        good: The call that it differs from in one argument.
    """
    if has_integers(good.sample) and _refused_by_values(subject, case, good):
        yield _OF_VALUES  # without a call: where an index fits no more, it may read anywhere
        return
    sample = case.sample
    called: tuple[Tensor, ...] | Exception
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of casts and of sizes
        try:
            # What nobody writes must not be right by chance.
            with subject.seeded(case.name), subject.place(), subject.poisoning(NAN_BYTE):
                if case.never:  # of this overload: another may take it
                    called = numerics.outputs(subject.overload.torch_op(*sample.args, **sample.kwargs))
                else:
                    called = subject.call(sample)
                if subject.on_gpu:
                    torch.cuda.synchronize(subject.device)
        except FindingError:
            raise
        except Exception as error:
            if own_fault(error):
                raise
            called = error
        yield _judged(subject, case, good, called)


def _judged(subject: Subject, case: Case, good: Case, called: tuple[Tensor, ...] | Exception) -> CheckResult:
    in_python = subject.has_body or subject.launches
    how = "in the body with a TypeError or ValueError" if in_python else "in C++ by TORCH_CHECK"
    remedy = f"Refuse such a call {how} that says what is required, or compute it."
    if isinstance(called, Exception) and subject.refuses(called) and not isinstance(called, BodyError):
        return Passed.refused(called)
    expected = _expected(subject, case)
    if expected is None:
        without = "no reference" if subject.reference is None else "the reference computes no tensors on meta"
        return Skipped(reason=without)
    if isinstance(called, Exception):
        if isinstance(expected, str):
            return Passed.refused(called)
        if isinstance(called, BodyError):
            return Failed.raised("the body returns an invalid result", called)
        if case.sample.tensors and case.sample.tensors[0].is_meta and str(called) == _no_region_on_meta():
            return Skipped(reason="torch has no regions of autocast on meta, and the body enters one")
        reason = f"it fails with {type(called).__name__}, and its reference accepts the call"
        return Failed.raised(reason, called, f"{describe(called)}\n{remedy}")
    if isinstance(expected, str) and _refused_by_values(subject, case, good):
        return _OF_VALUES
    if isinstance(expected, str):
        gave = ", ".join(map(_kind, called)) or "nothing"
        evidence = f"{expected}\nThe call gave {gave}.\n{remedy}"
        return Failed(reason="it accepts arguments that it must refuse", evidence=evidence)
    outcome = _compared(subject, case, called, expected)
    if isinstance(outcome, Failed):
        return msgspec.structs.replace(outcome, evidence=f"{outcome.evidence}\n{remedy}".lstrip())
    return outcome


@functools.cache
def _no_region_on_meta() -> str:
    """Return what torch says of `torch.autocast(x.device.type, enabled=False)` for a meta tensor."""
    try:
        torch.autocast("meta", enabled=False)
    except RuntimeError as error:
        return str(error)
    return ""


def _expected(subject: Subject, case: Case) -> tuple[Tensor, ...] | str | None:
    """Return the reference's results, on one device or on several; as text, why the call must raise.

    None if nothing says which it is.
    """
    if case.never:
        return "it has no such arguments"
    if subject.reference is None:
        return None
    inputs = subject.inputs(case.sample)
    given = _computed(subject, case, inputs)
    devices = {tensor.device for tensor in inputs.tensors}
    if isinstance(given, Exception) and len(devices) == 1:  # it may compute on the CPU alone, with NumPy say
        if inputs.tensors[0].is_meta:
            return None
        given = _computed(subject, case, subject.for_reference(case.sample))
        if not isinstance(given, Exception):
            given = tuple(tensor.to(inputs.tensors[0].device) for tensor in given)
    elif isinstance(given, Exception) and any(tensor.is_meta for tensor in inputs.tensors):
        on_meta = inputs.map_tensors(lambda tensor: tensor.to("meta"))
        if isinstance(_computed(subject, case, on_meta), Exception):  # so not for the devices that differ
            return None
    if isinstance(given, Exception):
        return f"the reference raises {type(given).__name__}: {one_line(given)}"
    return _unfit(subject, case.sample, given) or given


def _computed(subject: Subject, case: Case, inputs: Sample) -> tuple[Tensor, ...] | Exception:
    """Return what the reference gives, or the error that it raises.

    Raises:
        ReferenceCalls: It has an operator compute.
    """
    assert subject.reference is not None
    try:
        with subject.seeded(case.name), torch.no_grad():
            return numerics.outputs(subject.reference(*inputs.args, **inputs.kwargs))
    except ReferenceCalls:
        raise
    except Exception as error:
        return error


_OF_VALUES = Skipped(reason="the reference refuses values, which a body does not read")


def _refused_by_values(subject: Subject, case: Case, good: Case) -> bool:
    """Return whether the reference refuses a call for its values: an index beyond the end, say.

    Only another size or number makes values unfit. A reference that refuses it on tensors without values too
    does so for shapes. One that cannot compute the good call without values may have refused indices.
    """
    if case.never or subject.reference is None or _amounts(case.sample) == _amounts(good.sample):
        return False
    if subject.reference_error(case.sample) is None:
        return False
    if _computes_without_values(subject, good):
        return _computes_without_values(subject, case)
    return has_integers(good.sample)


def _amounts(sample: Sample) -> tuple[object, ...]:
    """The numbers of elements, and the other arguments of a call."""
    counted = sample.map_tensors(lambda tensor: torch.empty(tensor.numel(), device="meta"))
    return tuple(map(repr, (counted.args, dict(counted.kwargs))))


def _computes_without_values(subject: Subject, case: Case) -> bool:
    """Return whether the reference computes on fake tensors, which have no values."""
    mode = FakeTensorMode()
    with suppress(Exception), mode:
        fakes = subject.inputs(case.sample).map_tensors(lambda t: mode.from_tensor(t.detach().cpu()))
        return not isinstance(_computed(subject, case, fakes), Exception)
    return False


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
) -> CheckResult:
    """Return whether results are the reference's: by kind, and by value where there are any."""
    got, wanted = [_kind(t) for t in results], [_kind(t) for t in expected]
    if got != wanted:
        return Failed(reason=f"it gives {', '.join(got)}, its reference {', '.join(wanted)}")
    if any(tensor.is_meta for tensor in (*expected, *case.sample.tensors)):
        return Passed(note="compared by dtype and shape: meta tensors have no values")
    if subject.reference_draws(subject.for_reference(case.sample)):
        return Passed(note="compared by dtype and shape: both draw random numbers")
    if any(tensor.is_complex() for tensor in expected):  # which have no oracle
        if all(torch.allclose(a, b, equal_nan=True) for a, b in zip(results, expected, strict=True)):
            return Passed()
        return Failed(reason="it computes other complex numbers than its reference")
    error = numerics.judge(results, subject.oracle(case.sample, case.dtype))
    if error.passed:
        return Passed(ratio=error.ratio)
    return Failed(reason=error.what, evidence=error.where, kind=WRONG_VALUES)


DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
)

SHAPES: Mapping[str, Callable[[Tensor], Tensor | None]] = {
    "unsqueezed": lambda t: t.unsqueeze(0),
    "flattened": lambda t: t.flatten() if t.dim() > 1 else None,
    "0d": lambda t: t.flatten()[0] if t.dim() and t.numel() else None,
    "wider": lambda t: _one_more(t, t.dim() - 1) if t.dim() else None,
    "taller": lambda t: _one_more(t, 0) if t.dim() > 1 else None,
    "emptied": lambda t: t[:0] if t.dim() and t.shape[0] else None,
}
"""Changes of a tensor's rank or shape by the trial's name; None if a change is not possible."""

NUMBERS = (0, -1)
FAR = 2**40
"""Beyond 32 bits. Only for what a reference ignores, the size of a block say: else it may allocate that."""


def wrong_calls(subject: Subject, case: Case) -> Iterator[Case]:
    """Every wrong call that differs from a case in one argument."""
    types = {argument.name: str(argument.type) for argument in subject.overload.torch_op._schema.arguments}
    for name, value in arguments(subject.overload.signature, case.sample).items():
        for word, change in _instead(subject, name, value):
            if word == "emptied" and not is_integer(value.dtype) and has_indices(case.sample, case.dtype):
                continue  # no index fits it, and a body reads none
            build = partial(_replaced, subject, case, name, change)
            never = word == "none" and types[name] == "Tensor"  # and not one that may be None
            yield case.derive(f"{name}-{word}", build, never=never)
    for name, default in _omitted(subject, case.sample).items():
        for word, change in _instead(subject, name, default):
            build = partial(_added, case, name, change(default))
            yield case.derive(f"{name}-{word}", build)
        for word, value in _given(subject, case, name) if default is None else ():
            build = partial(_added, case, name, value)
            yield case.derive(f"{name}-{word}", build)
    for word, reform in _CALLS.items():
        if reform(subject, case.sample) is not None:
            again = partial(_reformed, subject, case, reform)
            yield case.derive(word, again, never=True)


def _omitted(subject: Subject, sample: Sample) -> dict[str, Any]:
    """Return the defaults of the arguments that a call leaves out, by name: a kernel may know these alone."""
    given = arguments(subject.overload.signature, sample)
    schema = subject.overload.torch_op._schema.arguments
    return {a.name: a.default_value for a in schema if a.has_default_value() and a.name not in given}


_VALUES: Mapping[str, Mapping[str, Any]] = {
    "int": {"given": 1},
    "float": {"given": 0.75},
    "bool": {"true": True, "false": False},
    "ScalarType": {short(dtype): dtype for dtype in (torch.float64, torch.float16)},
}
"""Values for an argument that may be None and is left out, by the name of its type in torch and a word."""


def _given(subject: Subject, case: Case, name: str) -> Iterator[tuple[str, Any]]:
    """Yield values of an argument that is None where it is left out, if the reference computes with them."""
    schema = subject.overload.torch_op._schema.arguments
    kind = next(str(a.real_type) for a in schema if a.name == name)
    kind = kind.removeprefix("Optional[").removesuffix("]").removesuffix("?")
    tensors = [tensor for tensor in case.sample.tensors if tensor.is_floating_point() and tensor.dim()]
    values = dict(_VALUES.get(kind, {}))
    if kind == "Tensor" and tensors:
        shapes = dict.fromkeys(shape for t in tensors for shape in (t.shape[-1:], t.shape, t.shape[:1]))
        generator = generator_for(f"{case.name}-{name}", subject.seed)
        values = {"x".join(map(str, shape)): _alike(tensors[0], shape, generator) for shape in shapes}
    fitting = (pair for pair in values.items() if _computes_with(subject, case, name, pair[1]))
    yield from itertools.islice(fitting, 1 if kind == "Tensor" else None)


def _computes_with(subject: Subject, case: Case, name: str, value: Any) -> bool:
    if subject.reference is None:
        return False
    inputs = subject.for_reference(_added(case, name, value))
    return not isinstance(_computed(subject, case, inputs), Exception)


def _alike(tensor: Tensor, shape: torch.Size, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator).to(tensor.device, tensor.dtype)


def _texts(subject: Subject) -> list[str]:
    """The words that the code of the reference compares with, among which those of an argument are."""
    code = getattr(subject.overload.reference_function, "__code__", None)
    constants = code.co_consts if code is not None else ()
    flat = [item for each in constants for item in (each if isinstance(each, (tuple, frozenset)) else [each])]
    return [item for item in dict.fromkeys(flat) if isinstance(item, str) and item.isidentifier()]


def _added(case: Case, name: str, value: Any) -> Sample:
    sample = case.make()
    return Sample(*sample.args, **{**sample.kwargs, name: value})


def _instead(subject: Subject, name: str, value: Any) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield what makes wrong values of an argument, each with a word for it."""
    if isinstance(value, Tensor):
        yield from _other_tensors(value)
        signature = subject.overload.signature
        if name in signature.mutates and name not in signature.outs and value.dim() and value.shape[0] > 1:
            yield "expanded", lambda t: t[:1].expand(t.shape)  # of which a write would meet others
        yield "none", partial(_always, None)
        return
    others: dict[str, Any] = {}
    if isinstance(value, bool):
        others = {"negated": not value}
    elif isinstance(value, int):
        reference = subject.overload.reference_function
        ignored = reference is not None and name not in inspect.signature(reference).parameters  # **launch
        others = {str(number): number for number in (*NUMBERS, *([FAR] if ignored else []))}
        if not ignored:
            others |= {"one-more": value + 1, "threefold": 3 * value}
    elif isinstance(value, (list, tuple)) and value and all(type(item) is int for item in value):
        others = {"each-one-more": [n + 1 for n in value], "last-one-more": [*value[:-1], value[-1] + 1]}
    elif isinstance(value, float):
        others = {"more": 1.5 * value + 0.25, "opposite": -value, "zero": 0.0, "one": 1.0}
    elif isinstance(value, str):
        words = _texts(subject)
        others = {other: other for other in words} if value in words else {}  # else of other arguments
    yield from ((word, partial(_always, other)) for word, other in others.items() if other != value)


def _other_tensors(value: Tensor) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    for dtype in DTYPES:
        if dtype != value.dtype:
            yield short(dtype), partial(_cast, dtype)
    for device in ("meta", "cpu", *(["cuda"] if torch.cuda.is_available() else [])):
        if device != value.device.type:
            yield f"on-{device}", methodcaller("to", device)
    for word, change in SHAPES.items():
        if change(value.detach()) is not None:
            yield word, change


def _cast(dtype: torch.dtype, tensor: Tensor) -> Tensor:
    """Cast a tensor to a dtype; the bits differ, so that code that reads them as the old dtype shows."""
    return (tensor.real if tensor.is_complex() and not dtype.is_complex else tensor).to(dtype)


def _always(other: Any, given: object) -> Any:
    return other


def _one_more(tensor: Tensor, axis: int) -> Tensor | None:
    """The tensor with its last slice along an axis twice: offsets still ascend, and end where they did."""
    return torch.cat([tensor, tensor.narrow(axis, -1, 1)], axis) if tensor.shape[axis] else None


def _replaced(subject: Subject, case: Case, name: str, change: Callable[[Any], Any]) -> Sample:
    sample, signature = case.make(), subject.overload.signature
    return with_arguments(signature, sample, {name: change(arguments(signature, sample)[name])})


_Reform = Callable[[Subject, Sample], Sample | None]


def _reformed(subject: Subject, case: Case, reform: _Reform) -> Sample | None:
    return reform(subject, case.make())


def _without_one(subject: Subject, sample: Sample) -> Sample | None:
    """Without the last of the arguments that have no default."""
    schema = subject.overload.torch_op._schema
    needed = [a.name for a in schema.arguments if not a.has_default_value()]
    given = arguments(subject.overload.signature, sample)
    if not needed or needed[-1] not in given:
        return None
    return Sample(**{name: value for name, value in given.items() if name != needed[-1]})


def _with_one_more(subject: Subject, sample: Sample) -> Sample | None:
    signature = subject.overload.signature
    given = arguments(signature, sample)
    positional = [name for name in signature.arguments if name not in signature.keyword_only]
    if any(name not in given for name in positional):
        return None  # one more would be the next
    rest = {name: value for name, value in given.items() if name in signature.keyword_only}
    return Sample(*(given[name] for name in positional), 1, **rest)


def _with_text(subject: Subject, sample: Sample) -> Sample | None:
    """Return a sample with text instead of its first number."""
    signature = subject.overload.signature
    for name, value in arguments(signature, sample).items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return with_arguments(signature, sample, {name: "1"})
    return None


_CALLS: Mapping[str, _Reform] = {
    "one-missing": _without_one,
    "one-too-many": _with_one_more,
    "unknown-keyword": lambda subject, sample: Sample(*sample.args, **sample.kwargs, no_such_argument=1),
    "text-for-a-number": _with_text,
}
