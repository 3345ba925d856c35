"""The plans of a project's operators: what their samples' calls do on each architecture, as data.

A body is recorded for every GPU that the wheel has code for. Its launches are recorded, and not run.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dotcu.compile import Target
from dotcu.errors import DotcuError
from dotcu.inspection.operators import samples_on_cpu
from dotcu.kernel.compiled import CompilationUnit
from dotcu.operator import Operator, Overload, Sample
from dotcu.shipping.cpp.recording import RecordedCall, Recording, TensorKey, Unrecorded
from dotcu.tracebacks import first_lines

MAX_TARGETS = 64
"""A plan's targets are the bits of one number."""

# The schema types that C++ on the stable ABI takes. Source: torch/csrc/stable/stableivalue_conversions.h.
TYPES = {"Tensor": "Tensor", "int": "int64_t", "float": "double", "bool": "bool", "str": "std::string"}

DTYPES: Mapping[torch.dtype, str] = {
    torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
    torch.int8: "Char", torch.uint8: "Byte", torch.int16: "Short", torch.int32: "Int", torch.int64: "Long",
    torch.uint16: "UInt16", torch.uint32: "UInt32", torch.uint64: "UInt64", torch.bool: "Bool",
    torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
    torch.float8_e4m3fn: "Float8_e4m3fn", torch.float8_e5m2: "Float8_e5m2",
}  # fmt: skip
"""torch's name of each dtype in C++. Source: torch/headeronly/core/ScalarType.h."""


@dataclass(frozen=True, kw_only=True)
class CppVariant:
    """A plan, and where it holds.

    Attributes:
        units: Where the kernel of each of its launches is compiled.
        targets: Indices of the architectures for which the body does just this.
        exactly: Whether it holds on GPUs of just these compute capabilities, such as by occupancy.
    """

    plan: RecordedCall
    units: tuple[CompilationUnit, ...]
    targets: tuple[int, ...]
    exactly: bool


CppOperators = Mapping[Overload, Sequence[CppVariant]]
"""The overloads that C++ can run, with the plans of each."""

_Variant = tuple[RecordedCall, tuple[CompilationUnit, ...], bool]
"""A plan, the units of its kernels, and whether it depends on the compute capability."""

HasCode = Callable[[CompilationUnit, Target], bool]


def plan_all(
    operators: Sequence[Operator], targets: Sequence[Target], has_code: HasCode = lambda unit, target: True
) -> tuple[CppOperators, tuple[str, ...]]:
    """Follow every overload for each architecture, with every sample in every dtype.

    Args:
        operators: With samples.
        targets: The architectures.
        has_code: Whether a kernel was compiled for an architecture.

    Returns:
        The overloads that C++ can run; what it cannot run, and why.
    """
    planned, notes = dict[Overload, Sequence[CppVariant]](), dict[str, None]()
    for overload in (overload for operator in operators for overload in operator.overloads.values()):
        reason = _unfit(overload)
        if reason:
            notes[f"{overload.qualified_name} is not in C++: {reason}"] = None
            continue
        variants = tuple(
            CppVariant(plan=plan, units=units, targets=tuple(indices), exactly=exactly)
            for (plan, units, exactly), indices in _variants(overload, targets, notes, has_code).items()
        )
        if variants:
            planned[overload] = variants
    return planned, tuple(notes)


def schema_of(overload: Overload) -> Any:
    """torch's `FunctionSchema`."""
    return torch._C.parse_schema(overload.signature.name + overload.signature.text)


def types_of(overload: Overload) -> tuple[str, ...]:
    """Return the schema type of each argument; a dtype is an `int` to a schema."""
    texts = [str(argument.type) for argument in schema_of(overload).arguments]
    return tuple(re.sub(r"^Optional\[(.*)\]$", r"\1?", text) for text in texts)


def _unfit(overload: Overload) -> str:
    """Return why no call of it can be in C++; empty if one may be."""
    for name, kind in zip(overload.signature.arguments, types_of(overload), strict=True):
        if kind.removesuffix("?") not in TYPES:
            return f"its argument {name} is a {kind}, which the stable ABI does not take from here."
    if "Tensor" not in types_of(overload):
        return "each of its tensors may be left out, so its device is unknown."
    if overload.body is None:
        return "a library computes it, in C++ already."
    return "it returns a list of tensors." if any(overload.signature.lists) else ""


def _variants(
    overload: Overload, targets: Sequence[Target], notes: dict[str, None], has_code: HasCode
) -> dict[_Variant, dict[int, None]]:
    """Return the indices of the architectures for which each variant holds."""
    variants: dict[_Variant, dict[int, None]] = {}
    lacking: dict[str, list[str]] = {}
    for index, target in enumerate(targets):
        for name, sample in samples_on_cpu(overload):
            found = _recorded(overload, sample, target)
            if not isinstance(found, str) and not all(has_code(unit, target) for unit in found[1]):
                found = "it launches a kernel of another package, or one that was not compiled."
            if not isinstance(found, str):
                variants.setdefault(found, {})[index] = None
            elif name not in lacking.setdefault(found, []):
                lacking[found].append(name)
    if not variants and not lacking:
        notes[f"{overload.qualified_name} is not in C++: it has no samples, which show what it does."] = None
    for reason, names in lacking.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        notes[f"{overload.qualified_name} with {names[0]}{more} is not in C++: {reason}"] = None
    return variants


def _recorded(overload: Overload, sample: Sample, target: Target) -> _Variant | str:
    """Return a sample's call; or why C++ cannot run it."""
    recording = Recording(target)
    try:
        plan = recording.run(overload, dict(_whole(overload, sample)))
    except Unrecorded as reason:
        return str(reason)
    except DotcuError as error:
        return str(error)
    except Exception as error:
        return f"recorded without launches, on tensors without values, it raised {first_lines(error)}"
    return _beyond(plan, recording.units) or (plan, tuple(recording.units), recording.exactly)


def _beyond(plan: RecordedCall, units: Sequence[CompilationUnit]) -> str:
    """Return what of a plan cannot be written in C++; empty where all can."""
    dtypes = [key.dtype for key in plan.keys if isinstance(key, TensorKey)]
    for dtype in (*dtypes, *(made.dtype for made in plan.allocations)):
        if dtype not in DTYPES:
            return f"it has a tensor of {dtype}, which has no C++ type here."
    written = next((unit for unit in units if unit.variables.contents), None)
    if written is not None:
        return f"variables of {written.source.name} are written from Python, and C++ does not do that."
    return ""


def _whole(overload: Overload, sample: Sample) -> Iterator[tuple[str, Any]]:
    """Yield a value for each argument, as torch would pass it on."""
    assert overload.body is not None
    bound = inspect.signature(overload.body).bind(*sample.args, **sample.kwargs)
    bound.apply_defaults()
    for name, kind in zip(overload.signature.arguments, types_of(overload), strict=True):
        value, wanted = bound.arguments[name], kind.removesuffix("?")
        if wanted == "float" and type(value) is int:
            value = float(value)
        elif wanted == "int" and type(value) is bool:
            value = int(value)
        yield name, value
