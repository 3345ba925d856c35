"""Arguments that an operator may refuse: other dtypes, devices, ranks and shapes, numbers out of range, none.

Each differs from a call that works in one argument.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dotcu.checking.cases.derived import arguments, with_arguments
from dotcu.checking.cases.samples import Case, short
from dotcu.checking.subject import Subject
from dotcu.operator import Sample

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


def wrong(subject: Subject, case: Case) -> Iterator[Case]:
    """Every wrong call that differs from a case in one argument."""
    types = {argument.name: str(argument.type) for argument in subject.overload.torch_op._schema.arguments}
    for name, value in arguments(subject.overload.signature, case.sample).items():
        for word, change in _instead(subject, name, value):
            build = partial(_replaced, subject, case, name, change)
            never = word == "none" and types[name] == "Tensor"  # and not one that may be None
            yield Case(name=f"{case.name}-{name}-{word}", dtype=case.dtype, build=build, never=never)
    for word, reform in _CALLS.items():
        if reform(subject, case.sample) is not None:
            build = partial(_reformed, subject, case, reform)
            yield Case(name=f"{case.name}-{word}", dtype=case.dtype, build=build, never=True)


def _instead(subject: Subject, name: str, value: Any) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield what makes wrong values of an argument, each with a word for it."""
    if isinstance(value, Tensor):
        yield from _other_tensors(value)
        yield "none", partial(_always, None)
        return
    others: dict[str, Any] = {}
    if isinstance(value, bool):
        others = {"negated": not value}
    elif isinstance(value, int):
        reference = subject.overload.reference_function
        ignored = reference is not None and name not in inspect.signature(reference).parameters  # **launch
        others = {str(number): number for number in (*NUMBERS, *([FAR] if ignored else []))}
    elif isinstance(value, float):
        others = {"more": 1.5 * value + 0.25, "opposite": -value, "zero": 0.0}
    yield from ((word, partial(_always, other)) for word, other in others.items() if other != value)


def _other_tensors(value: Tensor) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    for dtype in DTYPES:
        if dtype != value.dtype:
            yield short(dtype), partial(_cast, dtype)
    for device in ("meta", "cpu", *(["cuda"] if torch.cuda.is_available() else [])):
        if device != value.device.type:
            yield f"on-{device}", partial(_moved, device)
    for word, change in SHAPES.items():
        if change(value.detach()) is not None:
            yield word, change


def _cast(dtype: torch.dtype, tensor: Tensor) -> Tensor:
    """Cast a tensor to a dtype; the bits differ, so that code that reads them as the old dtype shows."""
    return (tensor.real if tensor.is_complex() and not dtype.is_complex else tensor).to(dtype)


def _moved(device: str, tensor: Tensor) -> Tensor:
    return tensor.to(device)


def _always(other: Any, given: object) -> Any:
    return other


def _one_more(tensor: Tensor, axis: int) -> Tensor | None:
    """The tensor with its first slice along an axis again at the end."""
    return torch.cat([tensor, tensor.narrow(axis, 0, 1)], axis) if tensor.shape[axis] else None


def _replaced(subject: Subject, case: Case, name: str, change: Callable[[Any], Any]) -> Sample:
    sample, signature = case.make(), subject.overload.signature
    return with_arguments(signature, sample, {name: change(arguments(signature, sample)[name])})


# ------------------------------------------------------------------ calls of no schema

_Reform = Callable[[Subject, Sample], Sample | None]


def _reformed(subject: Subject, case: Case, change: _Reform) -> Sample:
    sample = change(subject, case.make())
    assert sample is not None
    return sample


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


def _with_unknown(subject: Subject, sample: Sample) -> Sample:
    return Sample(*sample.args, **sample.kwargs, no_such_argument=1)


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
    "unknown-keyword": _with_unknown,
    "text-for-a-number": _with_text,
}
