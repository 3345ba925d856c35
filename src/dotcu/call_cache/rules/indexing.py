"""Views of a part: by an index, a slice, a range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dotcu.call_cache.layouts import Layout
from dotcu.call_cache.rules.queries import Rule, dimension
from dotcu.call_cache.symbols import is_symbol
from dotcu.call_cache.tracer import Tracer, Untold, View
from dotcu.call_cache.values import pinned


class _Part:
    """A layout that indices are taken of, one dimension after the other."""

    def __init__(self, layout: Layout) -> None:
        self.sizes, self.strides = list(layout.sizes), list(layout.strides)
        self.offset = layout.offset

    def layout(self) -> Layout:
        return Layout(tuple(self.sizes), tuple(self.strides), self.offset)

    def select(self, dim: int, index: Any) -> None:
        """Take one element of a dimension, which goes away."""
        size = self.sizes.pop(dim)
        if not (-size <= index and index < size):
            raise Untold("an index lies outside")
        start = index if index >= 0 else index + size
        self.offset = self.offset + start * self.strides.pop(dim)

    def slice(self, dim: int, part: slice) -> None:
        """Take a range of a dimension, cut off at its ends as Python does."""
        size, step = self.sizes[dim], 1 if part.step is None else pinned(part.step)
        if step < 1:
            raise Untold("a slice goes backwards")
        start = 0 if part.start is None else _within(part.start, size)
        stop = size if part.stop is None else _within(part.stop, size)
        length = stop - start if start < stop else 0
        self.offset = self.offset + start * self.strides[dim]
        self.sizes[dim] = (length + (step - 1)) // step
        self.strides[dim] = self.strides[dim] * step

    def insert(self, dim: int) -> None:
        """Add a dimension of one element."""
        stride = self.sizes[dim] * self.strides[dim] if dim < len(self.sizes) else 1
        self.sizes.insert(dim, 1)
        self.strides.insert(dim, stride)


def _within(index: Any, size: Any) -> Any:
    """A slice's end, from the start of the dimension and inside of it."""
    found = index if index >= 0 else index + size
    if found < 0:
        return 0
    return size if found > size else found


def _index(tracer: Tracer, t: Tensor, index: Any) -> View:
    known = tracer.known(t)
    rows = list(index) if isinstance(index, tuple) else [index]
    part, dim = _Part(known.layout), 0
    for row in _without_ellipsis(rows, t.dim()):
        if row is None:
            part.insert(dim)
        elif isinstance(row, slice):
            part.slice(dim, row)
        elif type(row) is int or is_symbol(row):
            part.select(dim, row)
            continue
        else:
            raise Untold(f"it indexes a tensor with a {type(row).__name__}")
        dim += 1
    return View(of=known, layout=part.layout(), whole=False)


def _without_ellipsis(rows: list[Any], rank: int) -> list[Any]:
    places = [place for place, row in enumerate(rows) if row is Ellipsis]
    if not places:
        return rows
    missing = rank - sum(row is not None and row is not Ellipsis for row in rows)
    return [*rows[: places[0]], *[slice(None)] * missing, *rows[places[0] + 1 :]]


def _select(tracer: Tracer, t: Tensor, dim: Any, index: Any) -> View:
    known, part = tracer.known(t), _Part(tracer.known(t).layout)
    part.select(dimension(t, dim), index)
    return View(of=known, layout=part.layout(), whole=False)


def _narrow(tracer: Tracer, t: Tensor, dim: Any, start: Any, length: Any) -> View:
    known, place = tracer.known(t), dimension(t, dim)
    size = known.layout.sizes[place]
    first = start if start >= 0 else start + size
    if not (first >= 0 and length >= 0 and first + length <= size):
        raise Untold("a range lies outside")
    part = _Part(known.layout)
    part.offset = part.offset + first * part.strides[place]
    part.sizes[place] = length
    return View(of=known, layout=part.layout(), whole=False)


def _unbind(tracer: Tracer, t: Tensor, dim: Any = 0) -> list[View]:
    place = dimension(t, dim)
    return [_select(tracer, t, place, index) for index in range(pinned(tracer.known(t).layout.sizes[place]))]


INDEXING: Mapping[Any, Rule] = {
    Tensor.__getitem__: _index,
    Tensor.select: _select,
    torch.select: _select,
    Tensor.narrow: _narrow,
    torch.narrow: _narrow,
    Tensor.unbind: _unbind,
    torch.unbind: _unbind,
}
