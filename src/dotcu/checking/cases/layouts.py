"""The same values in other memory layouts, of all tensors of a call at once or of one alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from torch import Tensor

from dotcu.checking.cases.case import Case
from dotcu.checking.cases.derived import Derived, arguments, mapped, with_arguments
from dotcu.checking.subject import Subject
from dotcu.operator import Sample

Layout = Callable[[Tensor], Tensor | None]
"""Gives a tensor of equal shape and values; None where the layout is none of that rank."""

GAP = 3
"""Columns beside those of a row."""


def _in_order(*axes: int) -> Layout:
    """The axes as they follow each other in memory, the innermost last; for tensors of that rank."""

    def change(tensor: Tensor) -> Tensor | None:
        if tensor.dim() != len(axes):
            return None
        back = [axes.index(axis) for axis in range(len(axes))]
        return tensor.permute(axes).contiguous().permute(back)

    return change


def _transposed(tensor: Tensor) -> Tensor | None:
    return tensor.mT.contiguous().mT if tensor.dim() >= 2 else None


def _reversed(tensor: Tensor) -> Tensor | None:
    return _in_order(*reversed(range(tensor.dim())))(tensor) if tensor.dim() >= 3 else None


def _permuted(tensor: Tensor) -> Tensor | None:
    rank = tensor.dim()
    return _in_order(*range(1, rank), 0)(tensor) if rank >= 3 else None


def _sliced(tensor: Tensor) -> Tensor | None:
    if not tensor.dim():
        return None
    buffer = tensor.new_empty((*tensor.shape[:-1], 2 * tensor.shape[-1]))
    return buffer[..., ::2].copy_(tensor)


def _rows_sliced(tensor: Tensor) -> Tensor | None:
    if tensor.dim() < 2:
        return None
    buffer = tensor.new_empty((*tensor.shape[:-1], tensor.shape[-1] + GAP))
    return buffer[..., : tensor.shape[-1]].copy_(tensor)


def _expanded(tensor: Tensor) -> Tensor | None:
    """The first row, again and again: the one layout that changes values."""
    axis = next((axis for axis, size in enumerate(tensor.shape) if size > 1), None)
    return None if axis is None else tensor.narrow(axis, 0, 1).clone().expand(tensor.shape)


def _offset(elements: int, tensor: Tensor) -> Tensor:
    buffer = tensor.new_empty(tensor.numel() + elements)
    return buffer[elements:].view(tensor.shape).copy_(tensor)


OFFSETS: dict[str, Layout] = {f"offset-{n}": partial(_offset, n) for n in range(1, 16)}

LAYOUTS: dict[str, Layout] = {
    "transposed": _transposed,
    "reversed": _reversed,
    "permuted": _permuted,
    "channels-last": _in_order(0, 2, 3, 1),
    "sliced": _sliced,
    "rows-sliced": _rows_sliced,
    "expanded": _expanded,
    **OFFSETS,
}
"""By the name that a case has: what is beside or between the elements is guarded once the call is made."""


def layouts(subject: Subject, case: Case, names: Sequence[str]) -> Iterator[Case]:
    """A case in each of some layouts, as far as it can have them."""
    for name in names:
        build = partial(_laid_out, subject, case, name)
        if _differs(case.sample, build()):
            yield Derived(name=f"{case.name}-{name}", dtype=case.dtype, build=build)


def alone(subject: Subject, case: Case, names: Sequence[str]) -> Iterator[Case]:
    """A case in each of some layouts, one argument at a time. None where there is but one."""
    given = arguments(subject.overload.signature, case.sample)
    having = [name for name, value in given.items() if Sample(value).tensors]
    for name in names if len(having) > 1 else ():
        for argument in having:
            build = partial(_laid_out, subject, case, name, argument)
            if _differs(case.sample, build()):
                yield Derived(name=f"{case.name}-{name}-{argument}", dtype=case.dtype, build=build)


def _laid_out(subject: Subject, case: Case, name: str, argument: str | None = None) -> Sample:
    sample, signature = case.sample, subject.overload.signature
    written = Sample(*signature.written(sample.args, sample.kwargs)).tensors
    kept = {id(tensor) for tensor in written} if name == "expanded" else set()  # torch writes to none such

    def change(tensor: Tensor) -> Tensor:
        changed = None if id(tensor) in kept else LAYOUTS[name](tensor)
        return tensor if changed is None or not tensor.numel() else changed

    if argument is None:
        return mapped(sample, change)
    value = arguments(signature, sample)[argument]
    (changed,) = mapped(Sample(value), change).args
    return with_arguments(signature, sample, {argument: changed})


def _differs(before: Sample, after: Sample) -> bool:
    """Whether a tensor lies otherwise than it did: of what has one element, strides mean nothing."""
    return any(_placed(a) != _placed(b) for a, b in zip(before.tensors, after.tensors, strict=True))


def _placed(tensor: Tensor) -> tuple[object, ...]:
    strides = [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
    return (tensor.storage_offset() * tensor.itemsize % 512, strides if tensor.numel() else [])
