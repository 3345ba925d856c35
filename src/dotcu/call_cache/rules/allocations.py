"""Memory that a body makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dotcu.call_cache.layouts import Layout, in_order, is_dense
from dotcu.call_cache.rules.queries import Rule
from dotcu.call_cache.symbols import is_negative
from dotcu.call_cache.tracer import Known, New, Tracer, Untold


def sizes_of(sizes: Sequence[Any]) -> tuple[Any, ...]:
    """Sizes, written one by one or as one sequence."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        return tuple(sizes[0])
    return tuple(sizes)


def _new(
    tracer: Tracer, layout: Layout, dtype: Any, device: Any, zeroed: bool, rest: Mapping[str, Any]
) -> New:
    """New memory; refused where what it is hangs on more than the call."""
    unknown = [name for name, value in rest.items() if value not in (None, False, torch.strided)]
    if unknown:
        raise Untold(f"it allocates with {unknown[0]}={rest[unknown[0]]!r}")
    if dtype is None:
        raise Untold("it allocates torch's default dtype, which can change: name the dtype")
    if device is None or torch.device(device) != tracer.device:
        raise Untold(f"it allocates on {device or 'the default device'}: name that of an argument, x.device")
    if any(is_negative(number) for number in (*layout.sizes, *layout.strides)):
        raise Untold("it allocates a size below zero")
    return New(layout=layout, dtype=dtype, zeroed=zeroed)


def _empty(*, zeroed: bool) -> Rule:
    def rule(
        tracer: Tracer, *sizes: Any, size: Any = None, dtype: Any = None, device: Any = None, **rest: Any
    ) -> New:
        layout = in_order(sizes_of(sizes if size is None else (size,)))
        return _new(tracer, layout, dtype, device, zeroed, _plain_format(rest))

    return rule


def _new_empty(*, zeroed: bool) -> Rule:
    def rule(
        tracer: Tracer, t: Tensor, *sizes: Any, size: Any = None, dtype: Any = None, device: Any = None,
        **rest: Any,
    ) -> New:  # fmt: skip
        tracer.known(t)
        layout = in_order(sizes_of(sizes if size is None else (size,)))
        return _new(tracer, layout, dtype or t.dtype, device or t.device, zeroed, rest)

    return rule


def _empty_strided(
    tracer: Tracer, size: Any, stride: Any, *, dtype: Any = None, device: Any = None, **rest: Any
) -> New:
    return _new(tracer, Layout(tuple(size), tuple(stride)), dtype, device, False, rest)


def _new_empty_strided(
    tracer: Tracer, t: Tensor, size: Any, stride: Any, dtype: Any = None, device: Any = None, **rest: Any
) -> New:
    tracer.known(t)
    layout = Layout(tuple(size), tuple(stride))
    return _new(tracer, layout, dtype or t.dtype, device or t.device, False, rest)


def _empty_like(*, zeroed: bool) -> Rule:
    def rule(
        tracer: Tracer, t: Tensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None,
        **rest: Any,
    ) -> New:  # fmt: skip
        layout = _preserved(tracer, tracer.known(t), memory_format)
        return _new(tracer, layout, dtype or t.dtype, device or t.device, zeroed, rest)

    return rule


def _preserved(tracer: Tracer, known: Known, memory_format: Any) -> Layout:
    """The layout of memory made like a tensor: its strides, where it has no gaps."""
    sizes, strides, _ = known.layout
    if memory_format is torch.contiguous_format:
        return in_order(sizes)
    if memory_format not in (None, torch.preserve_format):
        raise Untold(f"it allocates in {memory_format}")
    if tracer.is_contiguous(known) or is_dense(known.layout):
        return Layout(sizes, strides)
    raise Untold("it allocates like a tensor with gaps between its elements, or whose elements overlap")


def _plain_format(rest: Mapping[str, Any]) -> dict[str, Any]:
    """Options, without a memory format that says nothing."""
    contiguous = rest.get("memory_format") is torch.contiguous_format
    return {name: value for name, value in rest.items() if not (contiguous and name == "memory_format")}


ALLOCATIONS: Mapping[Any, Rule] = {
    torch.empty: _empty(zeroed=False),
    torch.zeros: _empty(zeroed=True),
    torch.empty_strided: _empty_strided,
    torch.empty_like: _empty_like(zeroed=False),
    torch.zeros_like: _empty_like(zeroed=True),
    Tensor.new_empty: _new_empty(zeroed=False),
    Tensor.new_zeros: _new_empty(zeroed=True),
    Tensor.new_empty_strided: _new_empty_strided,
}
