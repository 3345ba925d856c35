"""`fake`: the fake kernel gives the number, shapes, strides, dtypes and devices that a call gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from dotcu.checking.cases.derived import LAYOUTS, RANKS, derived_cases, size_pattern
from dotcu.checking.cases.samples import Case
from dotcu.checking.catalogue import Level
from dotcu.checking.numerics import outputs
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Failed, Outcome, Passed, Skipped, Trial, Verdict
from dotcu.checking.trials import skipped
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.operator import Sample
from dotcu.tracebacks import brief, one_line, quiet

CHECK = "fake"

_FEW = (size_pattern(0, 1, 33), "0d", "transposed", "sliced", "expanded", "channels-last", "offset-1")
_EVERY = (size_pattern(), *RANKS, *(rf"{layout}(?:-\w+)?" for layout in LAYOUTS))
"""The derived cases that are tried, as patterns. A fake kernel knows no values, so other values are not."""


def plan(subject: Subject) -> Iterator[Trial]:
    """Trials for the given cases of the first dtype, a transposed one of each, and derived ones.

    At full the given ones of all dtypes.
    """
    dtypes = subject.overload.dtypes if subject.level >= Level.FULL else subject.overload.dtypes[:1]
    given = [case for dtype in dtypes for case in subject.given(dtype)]
    if not given:
        yield skipped(subject, CHECK, "no samples")
    if subject.overload.lacks_fake:
        run = partial(_lacking, subject)
        yield Trial(overload=subject.name, kind=CHECK, case="none", checks=(CHECK,), run=run)
        return
    endings = _FEW if subject.level == Level.QUICK else _EVERY
    derived = [case for dtype in dtypes[:1] for case in derived_cases(subject, dtype, endings)]
    cases = {case.name: case for case in (*derived, *given, *filter(None, map(_transposed, given)))}
    for case in cases.values():
        run = partial(look, subject, case)
        yield Trial(overload=subject.name, kind=CHECK, case=case.name, checks=(CHECK,), run=run)


def _lacking(subject: Subject) -> Iterator[Verdict]:
    reason = "it has no fake kernel: torch.compile and torch.export cannot know its outputs"
    evidence = f"Neither its library nor your code defines one: @{subject.overload.signature.name}.fake"
    yield CHECK, Failed(reason=reason, evidence=evidence)


def _transposed(case: Case) -> Case | None:
    """The case with the last two dimensions of its first matrix swapped in memory; None without a matrix."""
    first = next((tensor for tensor in case.sample.tensors if tensor.dim() >= 2 and tensor.numel()), None)
    if first is None:
        return None
    return case.become("transposed", lambda t: t.mT.contiguous().mT if t is first else t)


@dataclass(frozen=True, kw_only=True)
class _TensorMeta:
    """The metadata of an output; None for a number that depends on values."""

    shape: tuple[int | None, ...]
    stride: tuple[int | None, ...]
    dtype: torch.dtype
    device: torch.device

    @staticmethod
    def of(tensor: Tensor) -> _TensorMeta:
        return _TensorMeta(
            shape=tuple(map(_known, tensor.shape)),
            stride=tuple(map(_known, tensor.stride())),
            dtype=tensor.dtype,
            device=tensor.device,
        )


def _known(number: Any) -> int | None:
    return number.node.maybe_as_int() if isinstance(number, torch.SymInt) else int(number)


def look(subject: Subject, case: Case) -> Iterator[Verdict]:
    """Make one call, and the same on tensors without memory. Of a derived one that fails, say nothing."""
    try:
        with subject.seeded(case.name), subject.place():
            real = [_TensorMeta.of(tensor) for tensor in subject.call(case.make())]
    except Exception as error:
        if not case.derived or isinstance(error, (UsageError, EnvironmentFault)):
            raise
        if subject.refuses(error):
            yield CHECK, Passed.refused(error)
        return
    with quiet():
        outcome = _compare(subject, case, real)
    yield CHECK, outcome


def _compare(subject: Subject, case: Case, real: Sequence[_TensorMeta]) -> Outcome:
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode  # imports sympy

    try:
        faked = _on_fakes(subject, case.make())
    except (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode) as error:
        return Failed(
            reason="the fake kernel reads a value, which fake tensors do not have: torch.compile breaks here",
            evidence=f"{brief(error)}\nGive the shapes with @{subject.overload.signature.name}.fake.",
        )
    except Exception as error:
        return Failed(reason="the fake kernel fails on a call that works", evidence=brief(error))
    wrong = _differences(real, faked)
    if wrong:
        return Failed(reason=f"the fake kernel is wrong: {wrong[0]}", evidence="\n".join(wrong[1:]))
    unknown = [i for i, fake in enumerate(faked) if None in fake.shape]
    if unknown:
        return Skipped(reason=f"the shape of output {unknown[0]} depends on values; all else is right")
    return _compare_meta(subject, case, real)


def _compare_meta(subject: Subject, case: Case, real: Sequence[_TensorMeta]) -> Outcome:
    try:
        on_meta = _on_meta(subject, case.make())
    except Exception as error:  # it may know only the devices that it computes on
        return Passed(note=f"does not accept meta tensors: {type(error).__name__}: {one_line(error)}")
    wrong = _differences(real, on_meta, torch.device("meta"))
    if wrong:
        return Failed(reason=f"wrong on meta tensors: {wrong[0]}", evidence="\n".join(wrong[1:]))
    return Passed()


def _on_fakes(subject: Subject, sample: Sample) -> list[_TensorMeta]:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True)
    fakes = sample.map_tensors(mode.from_tensor)
    with subject.place(), mode:
        return [_TensorMeta.of(tensor) for tensor in subject.call(fakes)]


def _on_meta(subject: Subject, sample: Sample) -> list[_TensorMeta]:
    def without_memory(tensor: Tensor) -> Tensor:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")

    with subject.place():
        return [
            _TensorMeta.of(tensor) for tensor in outputs(subject.call(sample.map_tensors(without_memory)))
        ]


def _differences(
    real: Sequence[_TensorMeta], faked: Sequence[_TensorMeta], device: torch.device | None = None
) -> list[str]:
    """Say what the fake kernel gets wrong.

    Args:
        device: Where the outputs are to be, if not where the real ones are.
    """
    if len(real) != len(faked):
        return [f"it gives {len(faked)} outputs, the call gives {len(real)}"]
    pairs = zip(real, faked, strict=True)
    return [words for i, (truth, claim) in enumerate(pairs) for words in _unlike(i, truth, claim, device)]


def _unlike(
    position: int, truth: _TensorMeta, claim: _TensorMeta, device: torch.device | None
) -> Iterator[str]:
    words = f"output {position} has {{}} {{}}, the fake kernel gives {{}}"
    if not _agree(truth.shape, claim.shape):
        yield words.format("shape", list(truth.shape), list(claim.shape))
    elif not _agree(_strides_that_matter(truth), _strides_that_matter(claim)):
        yield words.format("strides", list(truth.stride), list(claim.stride))
    if truth.dtype != claim.dtype:
        yield words.format("dtype", truth.dtype, claim.dtype)
    if (device or truth.device) != claim.device:
        yield words.format("device", device or truth.device, claim.device)


def _agree(truth: Sequence[int | None], claim: Sequence[int | None]) -> bool:
    pairs = zip(truth, claim, strict=False)
    return len(truth) == len(claim) and all(None in pair or pair[0] == pair[1] for pair in pairs)


def _strides_that_matter(output: _TensorMeta) -> list[int | None]:
    """The strides that say where elements lie: not those of one element, nor any if there is none."""
    if 0 in output.shape:
        return [None for _ in output.stride]
    return [None if n == 1 else stride for n, stride in zip(output.shape, output.stride, strict=True)]
