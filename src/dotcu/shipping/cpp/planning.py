"""The plans of a project's operators: what their samples' calls do on each architecture, as data.

A body is followed as the host path follows it, with its launches told of and not run. So a plan in
C++ is what a call by plan is in Python, for every GPU that the wheel has code for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dotcu.call_cache.arguments import Kinds, read_arguments
from dotcu.call_cache.follow import Followed, follow
from dotcu.call_cache.plan import ConstantKey, Plan, TensorKey, Unfollowed
from dotcu.call_cache.purity import asks_device, reads
from dotcu.checking.cases.given import samples_of
from dotcu.compile import Target
from dotcu.errors import DotcuError
from dotcu.kernel import simulate
from dotcu.kernel.units import Unit
from dotcu.operator import Operator, Overload, Sample
from dotcu.operator.schema import Body
from dotcu.shipping.cpp.steps import DTYPES

MOST_TARGETS = 64
"""A plan's targets are the bits of one number."""

# The schema types that C++ on the stable ABI takes. Source: torch/csrc/stable/stableivalue_conversions.h.
TYPES = {
    "Tensor": "Tensor",
    "int": "int64_t",
    "float": "double",
    "bool": "bool",
    "str": "std::string",
}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A plan, and where it holds.

    Attributes:
        units: Where the kernel of each of its launches is compiled.
        targets: Indices of the architectures for which the body does just this.
        exactly: Whether it holds on GPUs of just these compute capabilities: it hangs on occupancy.
    """

    plan: Plan
    units: tuple[Unit, ...]
    targets: tuple[int, ...]
    exactly: bool


@dataclass(frozen=True, kw_only=True)
class Planned:
    """An overload that C++ can run.

    Attributes:
        types: The schema type of each argument: `Tensor`, `int?`.
    """

    overload: Overload
    types: tuple[str, ...]
    variants: tuple[Variant, ...]


@dataclass(frozen=True, kw_only=True)
class Plans:
    """What was found.

    Attributes:
        notes: What C++ cannot run, and why.
    """

    planned: tuple[Planned, ...]
    notes: tuple[str, ...]


_Key = tuple[Plan, tuple[Unit, ...], bool]
_Found = dict[_Key, dict[int, None]]


HasCode = Callable[[Unit, Target], bool]


def plan_all(
    operators: Sequence[Operator], targets: Sequence[Target], has_code: HasCode = lambda unit, target: True
) -> Plans:
    """Follow every overload for each architecture, with every sample in every dtype.

    Args:
        has_code: Whether a kernel was compiled for an architecture.
    """
    planned, notes = [], dict[str, None]()
    for operator in operators:
        for overload in operator.overloads.values():
            reason = _unfit(overload)
            found = {} if reason else _variants(overload, targets, notes, has_code)
            if found:
                planned.append(_planned(overload, found))
            elif reason:
                notes[f"{overload.qualified_name} is not in C++: {reason}"] = None
    return Plans(planned=tuple(planned), notes=tuple(notes))


def _planned(overload: Overload, found: _Found) -> Planned:
    variants = tuple(
        Variant(plan=plan, units=units, targets=tuple(where), exactly=exactly)
        for (plan, units, exactly), where in found.items()
    )
    return Planned(overload=overload, types=types_of(overload), variants=variants)


def schema_of(overload: Overload) -> Any:
    """torch's `FunctionSchema`."""
    return torch._C.parse_schema(overload.signature.name + overload.signature.text)


def types_of(overload: Overload) -> tuple[str, ...]:
    """The schema type of each argument; a dtype is an `int` to a schema."""
    found = []
    for argument in schema_of(overload).arguments:
        text = str(argument.type)
        optional = text.startswith("Optional[")
        found.append(text.removeprefix("Optional[").removesuffix("]") + "?" * optional)
    return tuple(found)


def _unfit(overload: Overload) -> str:
    """Why no call of it can be in C++; empty where one may be."""
    for name, kind in zip(overload.signature.arguments, types_of(overload), strict=True):
        if kind.removesuffix("?") not in TYPES:
            return f"its argument {name} is a {kind}, which the stable ABI does not take from here."
    if "Tensor" not in types_of(overload):
        return "each of its tensors may be left out, so nothing says where it runs."
    if overload.body is None:
        return "a library computes it, in C++ already."
    found = reads(overload.body)
    if isinstance(found, Unfollowed):
        return str(found)
    asked = asks_device(overload.body)
    return f"it asks for {asked}, which may tell it on which device it is." if asked else ""


def _variants(
    overload: Overload, targets: Sequence[Target], notes: dict[str, None], has_code: HasCode
) -> _Found:
    found: _Found = {}
    lacking: dict[str, list[str]] = {}
    for index, target in enumerate(targets):
        for name, sample in _samples(overload):
            followed, reason = _followed(overload, sample, target)
            if not all(has_code(unit, target) for unit in followed.units):
                reason = "it launches a kernel of another package, or one that was not compiled."
            if isinstance(followed.plan, Plan) and not reason:
                key = followed.plan, followed.units, followed.occupancy
                found.setdefault(key, {})[index] = None
            elif name not in lacking.setdefault(reason, []):
                lacking[reason].append(name)
    if not found and not lacking:
        notes[f"{overload.qualified_name} is not in C++: it has no samples, which show what it does."] = None
    for reason, names in lacking.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        notes[f"{overload.qualified_name} with {names[0]}{more} is not in C++: {reason}"] = None
    return found


def _samples(overload: Overload) -> Iterator[tuple[str, Sample]]:
    """Each with what to call it: `float32, sample 2`."""
    with torch.random.fork_rng(devices=[]):
        for dtype in overload.dtypes:
            torch.default_generator.manual_seed(0)
            for number, sample in enumerate(samples_of(overload, torch.device("cpu"), dtype)):
                yield f"{str(dtype).removeprefix('torch.')}, sample {number}", sample


def _followed(overload: Overload, sample: Sample, target: Target) -> tuple[Followed, str]:
    """A sample's call, and why C++ cannot run it; empty where it can."""
    signature, body = overload.signature, overload.body
    assert body is not None
    try:
        with simulate(arch=str(target).replace("compute_", "sm_")), torch.no_grad():
            followed = follow(
                body,
                dict(_whole(overload, body, sample)),
                keyword_only=signature.keyword_only,
                writes=signature.mutates,
                runs=False,
            )
    except DotcuError as error:
        return Followed(result=None, plan=Unfollowed(reason=str(error))), str(error)
    plan = followed.plan
    return followed, str(plan) if isinstance(plan, Unfollowed) else _beyond(plan, followed.units)


def _beyond(plan: Plan, units: Sequence[Unit]) -> str:
    """What of a plan is not written in C++."""
    for key in plan.keys:
        if isinstance(key, ConstantKey) and not isinstance(key.value, (type(None), bool, str)):
            return f"it hangs on a {type(key.value).__name__}."
    dtypes = [key.dtype for key in plan.keys if isinstance(key, TensorKey)]
    for dtype in (*dtypes, *(made.dtype for made in plan.allocations)):
        if dtype not in DTYPES:
            return f"it has a tensor of {dtype}, which is in no table of C++ here."
    written = next((unit for unit in units if unit.contents), None)
    if written is not None:
        return f"variables of {written.source.name} are written from Python, and C++ does not do that."
    return ""


def _whole(overload: Overload, body: Body, sample: Sample) -> Iterator[tuple[str, Any]]:
    """A value for each argument, as torch would pass it on."""
    arguments = read_arguments(schema_of(overload), body)
    names = [argument.name for argument in arguments]
    given = {**dict(zip(names, sample.args, strict=False)), **sample.kwargs}
    for argument in arguments:
        value = given[argument.name] if argument.name in given else argument.default[0]
        if argument.makes_float and type(value) is int:
            value = float(value)
        elif type(value) is bool and Kinds.INT in argument.kinds:
            value = int(value)
        yield argument.name, value
