"""Tracing rules: for each torch function that a recorded call can contain, its result in steps.

A rule takes the trace's state and the function's own arguments. It returns the answer to a query, or the
layout of the tensors that torch is about to return, which is then compared with the real ones. It raises
`Unsupported` for what a recorded call cannot express. A function without a rule ends the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dotcu.call_cache.layouts import (
    Layout,
    all_identical,
    broadcast,
    expanded,
    in_order,
    inserted,
    is_in_order,
    like,
    reshaped,
)
from dotcu.call_cache.record import Unsupported
from dotcu.call_cache.state import TracedTensor, TraceState
from dotcu.call_cache.symbols import is_negative, is_symbol, pinned, sym_max, sym_min

Rule = Callable[..., Any]


def _getter(name: str) -> Any:
    """Return the function that a mode receives when a body reads an attribute of a tensor."""
    return getattr(Tensor, name).__get__


def _named(rules: Mapping[str, Rule]) -> dict[Any, Rule]:
    """Return rules by function: a tensor's method of the name, and torch's function if there is one."""
    owners = (Tensor, torch)
    return {getattr(owner, name): rules[name] for name in rules for owner in owners if hasattr(owner, name)}


# Queries: the answer, in symbols.


def _size(state: TraceState, t: Tensor, dim: Any = None) -> Any:
    sizes = state.known(t).layout.sizes
    return torch.Size(sizes) if dim is None else sizes[_dimension(t, dim)]


def _stride(state: TraceState, t: Tensor, dim: Any = None) -> Any:
    strides = state.known(t).layout.strides
    return strides if dim is None else strides[_dimension(t, dim)]


def _dimension(t: Tensor, dim: Any, extra: int = 0) -> int:
    """Return the index of a dimension, counted from the first; pinned."""
    rank, index = t.dim() + extra, pinned(dim)
    if type(index) is not int or not -rank <= index < rank:
        raise Unsupported(f"it uses dimension {index!r} of {rank}")
    return index % rank


def _numel(state: TraceState, t: Tensor) -> Any:
    return state.numel(state.known(t).layout.sizes)


def _is_contiguous(state: TraceState, t: Tensor, memory_format: Any = torch.contiguous_format) -> Any:
    if memory_format is not torch.contiguous_format:
        raise Unsupported(f"it requests {memory_format}")
    return state.is_contiguous(state.known(t))


def _by_key(function: Callable[[Tensor], Any]) -> Rule:
    """Make a rule for an answer that depends on dtype, device and rank alone, which keys hold fixed."""

    def rule(state: TraceState, t: Tensor) -> Any:
        state.known(t)
        return function(t)

    return rule


def _pure(function: Callable[..., Any]) -> Rule:
    """Make a rule for an answer that depends on the function's arguments alone."""
    return lambda state, *args, **kwargs: function(*pinned(args), **pinned(kwargs))


def _result_type(state: TraceState, a: Any, b: Any) -> Any:
    result = torch.result_type(pinned(a), pinned(b))
    dtypes = [value.dtype for value in (a, b) if isinstance(value, Tensor)]
    is_whole, *are_whole = [not (d.is_floating_point or d.is_complex) for d in (result, *dtypes)]
    if not is_whole and all(are_whole):
        raise Unsupported("torch.result_type gives torch's default dtype here, which can change")
    return result


_PROPERTIES = (
    "dtype", "device", "layout", "ndim", "itemsize", "is_cuda", "is_cpu", "is_meta", "is_sparse",
    "is_quantized", "is_nested",
)  # fmt: skip
_METHODS = (
    "dim", "ndimension", "element_size", "is_floating_point", "is_complex", "is_signed", "get_device",
)  # fmt: skip

_QUERIES: Mapping[Any, Rule] = {
    **{_getter(name): _by_key(_getter(name)) for name in _PROPERTIES},
    **_named({name: _by_key(getattr(Tensor, name)) for name in _METHODS}),
    **_named({"size": _size, "stride": _stride, "numel": _numel, "nelement": _numel}),
    _getter("shape"): _size,
    Tensor.__len__: lambda state, t: _size(state, t, 0),
    _getter("nbytes"): lambda state, t: _numel(state, t) * t.itemsize,
    Tensor.storage_offset: lambda state, t: state.offset(state.known(t)),
    Tensor.is_contiguous: _is_contiguous,
    torch.sym_min: lambda state, a, b: sym_min(a, b),
    torch.sym_max: lambda state, a, b: sym_max(a, b),
    **{pure: _pure(pure) for pure in (torch.promote_types, torch.can_cast, torch.device)},
    torch.result_type: _result_type,
}


# Allocations: the expected layout of new memory.


def _one_by_one(sizes: Sequence[Any]) -> tuple[Any, ...]:
    """Return values that are passed one by one or as one sequence."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        return tuple(sizes[0])
    return tuple(sizes)


def _new(
    state: TraceState,
    layout: Layout,
    /,
    *,
    dtype: Any = None,
    device: Any = None,
    zeroed: bool = False,
    **options: Any,
) -> TracedTensor:
    """Return new memory; refuse what depends on more than the call."""
    for name, value in options.items():
        if value not in (None, False, torch.strided, torch.contiguous_format):
            raise Unsupported(f"it allocates with {name}={value!r}")
    if dtype is None:
        raise Unsupported("it allocates torch's default dtype, which can change: name the dtype")
    if device is None or torch.device(device) != state.device:
        raise Unsupported(
            f"it allocates on {device or 'the default device'}: name that of an argument, x.device"
        )
    if any(is_negative(number) for number in (*layout.sizes, *layout.strides)):
        raise Unsupported("it allocates a negative size")
    source = len(state.allocations)
    return TracedTensor(tensor=None, argument=False, source=source, layout=layout, dtype=dtype, zeroed=zeroed)


def _empty(state: TraceState, *sizes: Any, size: Any = None, **options: Any) -> TracedTensor:
    return _new(state, in_order(_one_by_one(sizes if size is None else (size,))), **options)


def _empty_strided(state: TraceState, size: Any, stride: Any, **options: Any) -> TracedTensor:
    return _new(state, Layout(tuple(size), tuple(stride)), **options)


def _like(state: TraceState, t: Tensor, dtype: Any = None, device: Any = None) -> dict[str, Any]:
    """Return dtype and device of new memory; by default those of a tensor."""
    state.known(t)
    return {"dtype": dtype or t.dtype, "device": device or t.device}


def _empty_like(
    state: TraceState, t: Tensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None,
    **options: Any,
) -> TracedTensor:  # fmt: skip
    layout = _preserved(state, state.known(t), memory_format)
    return _new(state, layout, **_like(state, t, dtype, device), **options)


def _method(rule: Rule) -> Rule:
    """Make the rule of a method that allocates as a function does, with the tensor's dtype and device."""

    def of_tensor(
        state: TraceState, t: Tensor, *args: Any, dtype: Any = None, device: Any = None, **options: Any
    ) -> Any:
        return rule(state, *args, **_like(state, t, dtype, device), **options)

    return of_tensor


def _preserved(state: TraceState, known: TracedTensor, memory_format: Any) -> Layout:
    """Return the layout of memory allocated like a tensor: its strides, if it has no gaps."""
    sizes, strides, _ = known.layout
    if memory_format is torch.contiguous_format:
        return in_order(sizes)
    if memory_format not in (None, torch.preserve_format):
        raise Unsupported(f"it allocates in {memory_format}")
    layout = Layout(sizes, strides) if state.is_contiguous(known) else like(known.layout)
    if layout is None:
        raise Unsupported("it allocates like a tensor whose elements overlap")
    return layout


_ALLOCATIONS: Mapping[Any, Rule] = {
    torch.empty: _empty,
    torch.zeros: partial(_empty, zeroed=True),
    torch.empty_strided: _empty_strided,
    torch.empty_like: _empty_like,
    torch.zeros_like: partial(_empty_like, zeroed=True),
    Tensor.new_empty: _method(_empty),
    Tensor.new_zeros: _method(partial(_empty, zeroed=True)),
    Tensor.new_empty_strided: _method(_empty_strided),
}


# Views: the expected layout on the memory of a known tensor.


def _view(known: TracedTensor, sizes: Sequence[Any], strides: Sequence[Any]) -> TracedTensor:
    return replace(known, layout=Layout(tuple(sizes), tuple(strides), known.layout.offset))


def _contiguous(
    state: TraceState, t: Tensor, *, memory_format: Any = torch.contiguous_format
) -> TracedTensor:
    known = state.known(t)
    if memory_format is not torch.contiguous_format or not state.is_contiguous(known):
        raise Unsupported("contiguous() copies here")
    return known


def _to(
    state: TraceState, t: Tensor, *wanted: Any, dtype: Any = None, device: Any = None, copy: bool = False,
    non_blocking: bool = False,
) -> TracedTensor:  # fmt: skip
    different = [value for value in (*wanted, dtype, device) if not _is_already(t, value)]
    if different or copy:
        raise Unsupported(f"it copies a tensor, to({different[0] if different else 'copy=True'})")
    return state.known(t)


def _is_already(t: Tensor, wanted: Any) -> bool:
    """Return True if a tensor has this dtype or device, or those of another tensor."""
    if isinstance(wanted, Tensor):
        return (wanted.dtype, wanted.device) == (t.dtype, t.device)
    if isinstance(wanted, (str, torch.device)):
        return torch.device(wanted) == t.device
    return wanted is None or wanted is False or wanted is t.dtype


def _expand(state: TraceState, t: Tensor, *sizes: Any, implicit: bool = False) -> TracedTensor:
    known = state.known(t)
    layout = expanded(known.layout, _one_by_one(sizes))
    whole = known.whole and all_identical(layout.sizes, known.layout.sizes)
    return replace(known, layout=layout, whole=whole)


def _broadcast_tensors(state: TraceState, *tensors: Any) -> list[TracedTensor]:
    tensors = _one_by_one(tensors)
    sizes = broadcast([state.known(t).layout.sizes for t in tensors])
    return [_expand(state, t, sizes) for t in tensors]


def _reshape(state: TraceState, t: Tensor, *shape: Any) -> TracedTensor:
    known, sizes = state.known(t), _one_by_one(shape)
    if any(isinstance(size, torch.dtype) for size in sizes):
        raise Unsupported("it views a tensor as another dtype")
    sizes = reshaped(sizes, state.numel(known.layout.sizes))
    if not is_in_order(known.layout):
        raise Unsupported("it reshapes a tensor whose elements are not stored in order")
    return _view(known, sizes, in_order(sizes).strides)


def _as_other(rule: Rule) -> Rule:
    """Make the rule of a method that takes another tensor for its sizes."""
    return lambda state, t, other: rule(state, t, state.known(other).layout.sizes)


def _flatten(state: TraceState, t: Tensor, start_dim: Any = 0, end_dim: Any = -1) -> TracedTensor:
    sizes = state.known(t).layout.sizes
    if not sizes:
        return _reshape(state, t, (1,))
    first, last = _dimension(t, start_dim), _dimension(t, end_dim)
    if first == last:
        return state.known(t)
    middle = state.numel(sizes[first : last + 1])
    return _reshape(state, t, (*sizes[:first], middle, *sizes[last + 1 :]))


def _permute(state: TraceState, t: Tensor, *dims: Any) -> TracedTensor:
    known = state.known(t)
    order = [_dimension(t, dim) for dim in _one_by_one(dims)]
    if sorted(order) != list(range(t.dim())):
        raise Unsupported("it permutes only some dimensions")
    sizes, strides, _ = known.layout
    return _view(known, [sizes[dim] for dim in order], [strides[dim] for dim in order])


def _transpose(state: TraceState, t: Tensor, dim0: Any, dim1: Any) -> TracedTensor:
    if t.dim() == 0:
        pinned((dim0, dim1))  # others may be none of its dimensions
        return _view(state.known(t), (), ())
    order = list(range(t.dim()))
    a, b = _dimension(t, dim0), _dimension(t, dim1)
    order[a], order[b] = order[b], order[a]
    return _permute(state, t, order)


def _t(state: TraceState, t: Tensor) -> TracedTensor:
    if t.dim() > 2:
        raise Unsupported("it transposes more than two dimensions")
    return _reversed(state, t)


def _reversed(state: TraceState, t: Tensor) -> TracedTensor:
    return _permute(state, t, list(range(t.dim()))[::-1])


def _unsqueeze(state: TraceState, t: Tensor, dim: Any) -> TracedTensor:
    known = state.known(t)
    return replace(known, layout=inserted(known.layout, _dimension(t, dim, 1)))


def _squeeze(state: TraceState, t: Tensor, *dims: Any, dim: Any = None) -> TracedTensor:
    known = state.known(t)
    wanted = _one_by_one(dims if dim is None else (dim,))
    asked = {_dimension(t, dim) for dim in wanted} if wanted else set(range(t.dim()))
    sizes, strides, _ = known.layout
    left = [index for index in range(t.dim()) if index not in asked or sizes[index] != 1]
    return _view(known, [sizes[index] for index in left], [strides[index] for index in left])


_CASTS = ("float", "double", "half", "bfloat16", "int", "long")

_NAMED_VIEWS: Mapping[str, Rule] = {
    "detach": lambda state, t: state.known(t), "broadcast_to": _expand, "reshape": _reshape,
    "flatten": _flatten, "permute": _permute, "transpose": _transpose, "t": _t, "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
}  # fmt: skip

_VIEWS: Mapping[Any, Rule] = {
    Tensor.contiguous: _contiguous,
    Tensor.to: _to,
    Tensor.type_as: lambda state, t, other: _to(state, t, other),
    **{getattr(Tensor, name): partial(_to, dtype=getattr(torch, name)) for name in _CASTS},
    Tensor.expand: _expand,
    Tensor.expand_as: _as_other(_expand),
    torch.broadcast_tensors: _broadcast_tensors,
    Tensor.view: _reshape,
    Tensor.view_as: _as_other(_reshape),
    Tensor.reshape_as: _as_other(_reshape),
    _getter("T"): _reversed,
    _getter("mT"): lambda state, t: _transpose(state, t, -2, -1),
    **_named(_NAMED_VIEWS),
}


# Indexing: views of a part of a known tensor.


def _part(known: TracedTensor, layout: Layout) -> TracedTensor:
    return replace(known, layout=layout, whole=False)


def _selected(layout: Layout, dim: int, index: Any) -> Layout:
    """Take one element of a dimension, which is removed."""
    size = layout.sizes[dim]
    if not (-size <= index and index < size):
        raise Unsupported("an index is out of range")
    start = index if index >= 0 else index + size
    sizes, strides = list(layout.sizes), list(layout.strides)
    sizes.pop(dim)
    offset = layout.offset + start * strides.pop(dim)
    return Layout(tuple(sizes), tuple(strides), offset)


def _sliced(layout: Layout, dim: int, part: slice) -> Layout:
    """Take a range of a dimension, clipped to it as Python does."""
    size, step = layout.sizes[dim], 1 if part.step is None else pinned(part.step)
    if step < 1:
        raise Unsupported("a slice has a negative step")
    start = 0 if part.start is None else _clipped(part.start, size)
    stop = size if part.stop is None else _clipped(part.stop, size)
    length = stop - start if start < stop else 0
    return _narrowed(layout, dim, start, (length + (step - 1)) // step, step)


def _narrowed(layout: Layout, dim: int, start: Any, length: Any, step: Any = 1) -> Layout:
    """Take `length` elements of a dimension from `start` on, `step` apart."""
    sizes, strides = list(layout.sizes), list(layout.strides)
    offset = layout.offset + start * strides[dim]
    sizes[dim], strides[dim] = length, strides[dim] * step
    return Layout(tuple(sizes), tuple(strides), offset)


def _clipped(index: Any, size: Any) -> Any:
    """Return an end of a slice as an index from 0 to `size`."""
    end = index if index >= 0 else index + size
    if end < 0:
        return 0
    return size if end > size else end


def _index(state: TraceState, t: Tensor, index: Any) -> TracedTensor:
    known = state.known(t)
    layout, dim = known.layout, 0
    items = list(index) if isinstance(index, tuple) else [index]
    at = next((at for at, item in enumerate(items) if item is Ellipsis), None)
    if at is not None:
        missing = t.dim() - sum(item is not None and item is not Ellipsis for item in items)
        items[at : at + 1] = [slice(None)] * missing
    for item in items:
        if type(item) is int or is_symbol(item):
            layout = _selected(layout, dim, item)
            continue
        if item is None:
            layout = inserted(layout, dim)
        elif isinstance(item, slice):
            layout = _sliced(layout, dim, item)
        else:
            raise Unsupported(f"it indexes a tensor with a {type(item).__name__}")
        dim += 1
    return _part(known, layout)


def _select(state: TraceState, t: Tensor, dim: Any, index: Any) -> TracedTensor:
    known = state.known(t)
    return _part(known, _selected(known.layout, _dimension(t, dim), index))


def _narrow(state: TraceState, t: Tensor, dim: Any, start: Any, length: Any) -> TracedTensor:
    known, at = state.known(t), _dimension(t, dim)
    size = known.layout.sizes[at]
    first = start if start >= 0 else start + size
    if not (first >= 0 and length >= 0 and first + length <= size):
        raise Unsupported("a range is out of bounds")
    return _part(known, _narrowed(known.layout, at, first, length))


def _unbind(state: TraceState, t: Tensor, dim: Any = 0) -> list[TracedTensor]:
    at = _dimension(t, dim)
    return [_select(state, t, at, index) for index in range(pinned(state.known(t).layout.sizes[at]))]


_INDEXING: Mapping[Any, Rule] = {
    Tensor.__getitem__: _index,
    **_named({"select": _select, "narrow": _narrow, "unbind": _unbind}),
}

RULES: Mapping[Any, Rule] = {**_QUERIES, **_ALLOCATIONS, **_VIEWS, **_INDEXING}
