"""Who computes: the operator itself, its reference in eager mode and compiled, and whatever a user names."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dotcu.benchmark.row import OWN
from dotcu.checking import target
from dotcu.checking.subject import Subject
from dotcu.checking.trials.telling import first_lines
from dotcu.errors import UsageError
from dotcu.operator import Sample

MODES: Mapping[str, str | None] = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}
"""Baselines that torch compiles, and the mode of each. A CUDA graph of torch's would copy inputs into its own
memory at each call and hand out memory that the next call overwrites: the kernels are what is compared."""

EAGER = "eager"

KNOWN = (EAGER, *MODES)
"""The baselines that have names of their own: all of them are the reference."""

Compute = Callable[[Sample], Any]
"""Makes one call."""

Baseline = str | Callable[..., Any]
"""One of `KNOWN`, a callable, or a callable's place: `ops.py:fn`, `package.module:fn`."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One of those that are compared.

    Attributes:
        prepare: Gives what makes a call. It may raise: where there is no reference, say.
    """

    name: str
    prepare: Callable[[], Compute]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Contenders that are ready to be called.

    Attributes:
        calls: By name, those that could be prepared, in order.
        failed: By name, why others could not.
    """

    calls: Mapping[str, Compute]
    failed: Mapping[str, str]


def contenders(subject: Subject, against: Sequence[Baseline] = ()) -> list[Contender]:
    """The operator, and what it is compared with.

    A baseline is called with the operator's arguments, without those that it only writes; a Python function
    also without such keyword arguments as it does not have.

    Raises:
        UsageError: A baseline is unknown; answered with the nearest.
    """
    overload = subject.overload
    outs = frozenset(overload.signature.outs if overload.functional is not None else ())

    def take(function: Callable[..., Any]) -> Compute:
        return _on_arguments(function, outs)

    own = Contender(name=OWN, prepare=lambda: _on_arguments(overload, frozenset()))
    return [own, *_baselines(subject.name, overload.reference_function, against, take)]


def contenders_of_bare(
    name: str,
    function: Callable[[], Any],
    reference: Callable[[], Any] | None,
    against: Sequence[Baseline] = (),
) -> list[Contender]:
    """The same for a callable that takes no arguments; nor does its reference, nor does a baseline."""

    def take(function: Callable[..., Any]) -> Compute:
        return lambda sample: function()

    return [
        Contender(name=OWN, prepare=lambda: take(function)),
        *_baselines(name, reference, against, take),
    ]


def prepare(those: Sequence[Contender]) -> Prepared:
    """Prepare all for a case; what torch compiled for an earlier one is forgotten.

    Otherwise it would give up after some shapes, and call the reference in eager mode without a word.
    """
    torch._dynamo.reset()
    calls: dict[str, Compute] = {}
    failed: dict[str, str] = {}
    for contender in those:
        try:
            calls[contender.name] = contender.prepare()
        except Exception as error:
            failed[contender.name] = first_lines(error)
    return Prepared(calls=calls, failed=failed)


def _on_arguments(function: Callable[..., Any], outs: frozenset[str]) -> Compute:
    """What calls a function with a sample's arguments, except for some by keyword."""
    names = _keywords(function)
    if names is None and not outs:
        return lambda sample: function(*sample.args, **sample.kwargs)

    def call(sample: Sample) -> Any:
        taken = {
            name: value
            for name, value in sample.kwargs.items()
            if name not in outs and (names is None or name in names)
        }
        return function(*sample.args, **taken)

    return call


def _keywords(function: Callable[..., Any]) -> frozenset[str] | None:
    """What a plain Python function takes by keyword; None where that is anything, or cannot be asked."""
    if not inspect.isfunction(function):
        return None
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return None
    by_keyword = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return frozenset(one.name for one in parameters if one.kind in by_keyword)


# ------------------------------------------------------------------ baselines


def _baselines(
    op: str,
    reference: Callable[..., Any] | None,
    against: Sequence[Baseline],
    take: Callable[[Callable[..., Any]], Compute],
) -> list[Contender]:
    made: dict[str, Contender] = {}
    for given in against:
        if isinstance(given, str) and given in KNOWN:
            name, contender = given, _of_reference(op, given, reference, take)
        else:
            function = _callable(given)
            name = _name(given, function, {OWN, *KNOWN, *made})
            contender = _of_function(name, function, take)
        made[name] = contender
    return list(made.values())


def _of_function(
    name: str, function: Callable[..., Any], take: Callable[[Callable[..., Any]], Compute]
) -> Contender:
    return Contender(name=name, prepare=lambda: take(function))


def _of_reference(
    op: str,
    name: str,
    reference: Callable[..., Any] | None,
    take: Callable[[Callable[..., Any]], Compute],
) -> Contender:
    def prepare() -> Compute:
        if reference is None:
            raise UsageError(
                f"{op} has no reference, and {name!r} is its reference.\n"
                "Give it one, or name a callable to compare with: --against ops.py:fn"
            )
        if name == EAGER:
            return take(reference)
        return take(torch.compile(reference, dynamic=False, mode=MODES[name]))

    return Contender(name=name, prepare=prepare)


def _callable(given: Baseline) -> Callable[..., Any]:
    if callable(given):
        return given
    if ":" in given:
        return target.function(given)
    nearest = difflib.get_close_matches(given, KNOWN, n=1, cutoff=0.4)
    raise UsageError(
        f"there is no baseline {given!r}."
        + (f" Did you mean {nearest[0]!r}?" if nearest else "")
        + f"\nA baseline is {', '.join(KNOWN)}, a callable, or the place of one.\n"
        "Type: --against eager,compile,ops.py:fn"
    )


def _name(given: Baseline, function: Callable[..., Any], taken: set[str]) -> str:
    """The function's own name where no other has it; else its place, or a number behind it."""
    own = getattr(function, "__name__", type(function).__name__).strip("<>")
    candidates = [own, *([given] if isinstance(given, str) else []), *(f"{own}-{i}" for i in range(2, 100))]
    return next(name for name in candidates if name not in taken)
