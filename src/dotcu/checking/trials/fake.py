"""`fake`: the fake kernel gives the number, shapes, strides, dtypes and devices that a call gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from dotcu.checking.cases.derived import LAYOUTS, OFFSETS, RANKS, derived_cases, size_pattern
from dotcu.checking.cases.samples import Case
from dotcu.checking.catalogue import Level
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped, Trial, skipped, trial
from dotcu.checking.subject import Subject
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.tracebacks import brief, one_line, own_fault

CHECK = "fake"

_FEW = (size_pattern(0, 1, 33), "0d", "transposed", "sliced", "expanded", "channels-last", "offset-1")
_EVERY = (
    *(size_pattern(), *RANKS, "offset-1"),
    *(rf"{layout}(?:-\w+)?" for layout in LAYOUTS if layout not in OFFSETS),
)
"""The derived cases that are tried, as patterns. A fake kernel knows no values and no addresses."""


def plan(subject: Subject) -> Iterator[Trial]:
    """Trials for the given cases of the first dtype, a transposed one of each, and derived ones.

    At full the given ones of all dtypes.
    """
    dtypes = subject.overload.dtypes if subject.level >= Level.FULL else subject.overload.dtypes[:1]
    given = [case for dtype in dtypes for case in subject.given(dtype)]
    if not given:
        yield skipped(subject, CHECK, "no samples")
    if subject.overload.lacks_fake:
        yield trial(subject, CHECK, _lacking, variant="none")
        return
    endings = _FEW if subject.level == Level.QUICK else _EVERY
    derived = [case for dtype in dtypes[:1] for case in derived_cases(subject, dtype, endings)]
    cases = {case.name: case for case in (*derived, *given, *filter(None, map(_transposed, given)))}
    for case in cases.values():
        yield trial(subject, CHECK, look, case)


def _lacking(subject: Subject) -> CheckResult:
    return Failed(
        reason="it has no fake kernel: torch.compile and torch.export cannot know its outputs",
        evidence=f"Neither its library nor your code defines one: @{subject.overload.signature.name}.fake",
    )


def _transposed(case: Case) -> Case | None:
    """The case with the last two dimensions of its first matrix swapped in memory; None without a matrix."""
    first = next((tensor for tensor in case.sample.tensors if tensor.dim() >= 2 and tensor.numel()), None)
    if first is None:
        return None
    sample = case.sample.map_tensors(lambda t: t.mT.contiguous().mT if t is first else t)
    return case.derive("transposed", lambda: sample)


KnownSizes: TypeAlias = tuple[int | None, ...]
"""Those of a shape, or strides; None for one that depends on values."""

Metadata: TypeAlias = tuple[KnownSizes, KnownSizes, torch.dtype, torch.device]
"""An output's shape, strides, dtype and device."""


def _metadata(tensor: Tensor) -> Metadata:
    shape, strides = tuple(map(_known, tensor.shape)), tuple(map(_known, tensor.stride()))
    return shape, strides, tensor.dtype, tensor.device


def _known(number: Any) -> int | None:
    return number.node.maybe_as_int() if isinstance(number, torch.SymInt) else int(number)


def look(subject: Subject, case: Case) -> CheckResult | None:
    """Make one call, and the same on tensors without memory. Of a derived one that fails, say nothing."""
    try:
        with subject.seeded(case.name), subject.place():
            real = list(map(_metadata, subject.call(case.make())))
    except Exception as error:
        if not case.derived or isinstance(error, (UsageError, EnvironmentFault)) or own_fault(error):
            raise
        return Passed.refused(error) if subject.refuses(error) else None
    return _compare(subject, case, real)


def _compare(subject: Subject, case: Case, real: Sequence[Metadata]) -> CheckResult:
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv  # imports sympy

    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True)
    try:
        fakes = case.make().map_tensors(mode.from_tensor)
        with subject.place(), mode:
            faked = list(map(_metadata, subject.call(fakes)))
    except (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode) as error:
        return Failed.raised(
            "the fake kernel reads a value, which fake tensors do not have: torch.compile breaks here",
            error,
            f"{brief(error)}\nGive the shapes with @{subject.overload.signature.name}.fake.",
        )
    except Exception as error:
        return Failed.raised("the fake kernel fails on a call that works", error, brief(error))
    wrong = _differences(real, faked)
    if wrong:
        return Failed(reason=f"the fake kernel is wrong: {wrong[0]}", evidence="\n".join(wrong[1:]))
    unknown = [i for i, (shape, *_) in enumerate(faked) if None in shape]
    if unknown:
        return Skipped(reason=f"the shape of output {unknown[0]} depends on values; all else is right")
    try:
        with subject.place():
            on_meta = list(map(_metadata, subject.call(case.make().map_tensors(_without_memory))))
    except Exception as error:  # it may know only the devices that it computes on
        if own_fault(error):
            raise
        return Passed(note=f"does not accept meta tensors: {type(error).__name__}: {one_line(error)}")
    wrong = _differences(real, on_meta, torch.device("meta"))
    if wrong:
        return Failed(reason=f"wrong on meta tensors: {wrong[0]}", evidence="\n".join(wrong[1:]))
    return Passed()


def _without_memory(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _differences(
    real: Sequence[Metadata], faked: Sequence[Metadata], device: torch.device | None = None
) -> list[str]:
    """Say what the fake kernel gets wrong; its outputs are to be where the real ones are, or on a device."""
    if len(real) != len(faked):
        return [f"it gives {len(faked)} outputs, the call gives {len(real)}"]
    wrong = []
    for position, (truth, claim) in enumerate(zip(real, faked, strict=True)):
        text = f"output {position} has {{}} {{}}, the fake kernel gives {{}}"
        (shape, strides, dtype, place), (shape_said, strides_said, dtype_said, place_said) = truth, claim
        if not _agree(shape, shape_said):
            wrong.append(text.format("shape", list(shape), list(shape_said)))
        elif not _agree(_strides_that_matter(shape, strides), _strides_that_matter(shape_said, strides_said)):
            wrong.append(text.format("strides", list(strides), list(strides_said)))
        if dtype != dtype_said:
            wrong.append(text.format("dtype", dtype, dtype_said))
        if (device or place) != place_said:
            wrong.append(text.format("device", device or place, place_said))
    return wrong


def _agree(truth: Sequence[int | None], claim: Sequence[int | None]) -> bool:
    pairs = zip(truth, claim, strict=False)
    return len(truth) == len(claim) and all(None in pair or pair[0] == pair[1] for pair in pairs)


def _strides_that_matter(shape: KnownSizes, strides: KnownSizes) -> list[int | None]:
    """The strides that say where elements lie: not those of one element, nor any if there is none."""
    if 0 in shape:
        return [None for _ in strides]
    return [None if n == 1 else stride for n, stride in zip(shape, strides, strict=True)]
