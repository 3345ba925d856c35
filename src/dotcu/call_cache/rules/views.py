"""Views: other sizes and strides on the memory of a tensor that is known, or that tensor itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dotcu.call_cache.layouts import (
    Layout,
    all_identical,
    broadcast,
    expanded,
    in_order,
    is_in_order,
    reshaped,
)
from dotcu.call_cache.rules.allocations import sizes_of
from dotcu.call_cache.rules.queries import Rule, dimension, getter
from dotcu.call_cache.tracer import Known, Tracer, Untold, View


def _view(known: Known, sizes: Sequence[Any], strides: Sequence[Any], **more: Any) -> View:
    offset = more.pop("offset", known.layout.offset)
    return View(of=known, layout=Layout(tuple(sizes), tuple(strides), offset), **more)


def _itself(tracer: Tracer, t: Tensor) -> View:
    known = tracer.known(t)
    return View(of=known, layout=known.layout)


def _contiguous(tracer: Tracer, t: Tensor, *, memory_format: Any = torch.contiguous_format) -> View:
    if memory_format is not torch.contiguous_format or not tracer.is_contiguous(tracer.known(t)):
        raise Untold("contiguous() copies here")
    return _itself(tracer, t)


def _to(
    tracer: Tracer, t: Tensor, *wanted: Any, dtype: Any = None, device: Any = None, copy: bool = False,
    non_blocking: bool = False,
) -> View:  # fmt: skip
    different = [value for value in (*wanted, dtype, device) if not _is_already(t, value)]
    if different or copy:
        raise Untold(f"it copies a tensor, to({different[0] if different else 'copy=True'})")
    return _itself(tracer, t)


def _is_already(t: Tensor, wanted: Any) -> bool:
    """Whether a tensor is of this dtype or on this device, or like another tensor."""
    if isinstance(wanted, Tensor):
        return (wanted.dtype, wanted.device) == (t.dtype, t.device)
    if isinstance(wanted, (str, torch.device)):
        return torch.device(wanted) == t.device
    return wanted is None or wanted is False or wanted is t.dtype


def _cast(dtype: torch.dtype) -> Rule:
    return lambda tracer, t: _to(tracer, t, dtype)


def _expand(tracer: Tracer, t: Tensor, *sizes: Any, implicit: bool = False) -> View:
    known = tracer.known(t)
    layout = expanded(known.layout, sizes_of(sizes))
    return View(of=known, layout=layout, whole=all_identical(layout.sizes, known.layout.sizes))


def _expand_as(tracer: Tracer, t: Tensor, other: Tensor) -> View:
    return _expand(tracer, t, tracer.known(other).layout.sizes)


def _broadcast_tensors(tracer: Tracer, *tensors: Any) -> list[View]:
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    sizes = broadcast([tracer.known(t).layout.sizes for t in given])
    return [_expand(tracer, t, sizes) for t in given]


def _reshape(tracer: Tracer, t: Tensor, *shape: Any) -> View:
    known, sizes = tracer.known(t), sizes_of(shape)
    if any(isinstance(size, torch.dtype) for size in sizes):
        raise Untold("it looks at a tensor's memory as another dtype")
    found = reshaped(sizes, tracer.numel(known.layout.sizes))
    if not is_in_order(known.layout):
        raise Untold("it reshapes a tensor whose elements do not lie in order")
    return _view(known, found, in_order(found).strides)


def _view_as(tracer: Tracer, t: Tensor, other: Tensor) -> View:
    return _reshape(tracer, t, tracer.known(other).layout.sizes)


def _flatten(tracer: Tracer, t: Tensor, start_dim: Any = 0, end_dim: Any = -1) -> View:
    sizes = tracer.known(t).layout.sizes
    if not sizes:
        return _reshape(tracer, t, (1,))
    first, last = dimension(t, start_dim), dimension(t, end_dim)
    if first == last:
        return _itself(tracer, t)
    middle: Any = tracer.numel(sizes) if last - first == len(sizes) - 1 else 1
    if middle == 1:
        for size in sizes[first : last + 1]:
            middle = middle * size
    return _reshape(tracer, t, (*sizes[:first], middle, *sizes[last + 1 :]))


def _permute(tracer: Tracer, t: Tensor, *dims: Any) -> View:
    known = tracer.known(t)
    order = [dimension(t, dim) for dim in sizes_of(dims)]
    if sorted(order) != list(range(t.dim())):
        raise Untold("it permutes dimensions that are not all there")
    sizes, strides, _ = known.layout
    return _view(known, [sizes[dim] for dim in order], [strides[dim] for dim in order])


def _transpose(tracer: Tracer, t: Tensor, dim0: Any, dim1: Any) -> View:
    if t.dim() == 0:
        return _view(tracer.known(t), (), ())
    order = list(range(t.dim()))
    a, b = dimension(t, dim0), dimension(t, dim1)
    order[a], order[b] = order[b], order[a]
    return _permute(tracer, t, order)


def _t(tracer: Tracer, t: Tensor) -> View:
    if t.dim() > 2:
        raise Untold("it transposes more than two dimensions")
    return _permute(tracer, t, list(range(t.dim()))[::-1])


def _reversed(tracer: Tracer, t: Tensor) -> View:
    return _permute(tracer, t, list(range(t.dim()))[::-1])


def _matrices(tracer: Tracer, t: Tensor) -> View:
    return _transpose(tracer, t, -2, -1)


def _unsqueeze(tracer: Tracer, t: Tensor, dim: Any) -> View:
    known, place = tracer.known(t), dimension(t, dim, 1)
    sizes, strides, _ = known.layout
    stride = sizes[place] * strides[place] if place < len(sizes) else 1
    return _view(known, (*sizes[:place], 1, *sizes[place:]), (*strides[:place], stride, *strides[place:]))


def _squeeze(tracer: Tracer, t: Tensor, *dims: Any, dim: Any = None) -> View:
    known = tracer.known(t)
    wanted = sizes_of(dims if dim is None else (dim,))
    asked = {dimension(t, dim) for dim in wanted} if wanted else set(range(t.dim()))
    sizes, strides, _ = known.layout
    kept = [place for place in range(t.dim()) if place not in asked or sizes[place] != 1]
    return _view(known, [sizes[place] for place in kept], [strides[place] for place in kept])


VIEWS: Mapping[Any, Rule] = {
    Tensor.contiguous: _contiguous,
    Tensor.to: _to,
    Tensor.type_as: lambda tracer, t, other: _to(tracer, t, other),
    Tensor.float: _cast(torch.float32),
    Tensor.double: _cast(torch.float64),
    Tensor.half: _cast(torch.float16),
    Tensor.bfloat16: _cast(torch.bfloat16),
    Tensor.int: _cast(torch.int32),
    Tensor.long: _cast(torch.int64),
    Tensor.detach: _itself,
    torch.detach: _itself,
    Tensor.expand: _expand,
    Tensor.expand_as: _expand_as,
    Tensor.broadcast_to: _expand,
    torch.broadcast_to: _expand,
    torch.broadcast_tensors: _broadcast_tensors,
    Tensor.view: _reshape,
    Tensor.view_as: _view_as,
    Tensor.reshape: _reshape,
    Tensor.reshape_as: _view_as,
    torch.reshape: _reshape,
    Tensor.flatten: _flatten,
    torch.flatten: _flatten,
    Tensor.permute: _permute,
    torch.permute: _permute,
    Tensor.transpose: _transpose,
    torch.transpose: _transpose,
    Tensor.t: _t,
    torch.t: _t,
    getter("T"): _reversed,
    getter("mT"): _matrices,
    Tensor.unsqueeze: _unsqueeze,
    torch.unsqueeze: _unsqueeze,
    Tensor.squeeze: _squeeze,
    torch.squeeze: _squeeze,
}
