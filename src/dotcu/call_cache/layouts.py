"""Sizes and strides of symbols: what torch makes of them, said so that it holds for other sizes too.

A comparison of symbols puts its own guard, so each function here reads as it would for plain
numbers, and what it decides holds for every call that passes the guards it put.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from dotcu.call_cache.symbols import identical, is_negative, sym_max
from dotcu.call_cache.values import plain


class Layout(NamedTuple):
    """Where a tensor's elements lie, in elements from the first one of its memory."""

    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any = 0


def in_order(sizes: Sequence[Any]) -> Layout:
    """The layout that torch gives to new memory."""
    strides: list[Any] = []
    stride: Any = 1
    for size in reversed(sizes):
        strides.insert(0, stride)
        stride = stride * sym_max(size, 1)
    return Layout(tuple(sizes), tuple(strides))


def all_identical(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether numbers are the same in every call; puts no guard."""
    return len(left) == len(right) and all(identical(a, b) for a, b in zip(left, right, strict=True))


def is_empty(sizes: Sequence[Any]) -> bool:
    """Whether there are no elements."""
    empty = [size for size in sizes if plain(size) == 0]
    if empty:
        return bool(empty[0] == 0)
    return any(size == 0 for size in sizes)


def is_contiguous(layout: Layout) -> bool:
    """What torch says of it: strides of dimensions of one element do not count."""
    sizes, strides, _ = layout
    if all_identical(strides, in_order(sizes).strides):
        return True
    if any(plain(size) == 0 for size in sizes):
        return is_empty(sizes)
    expected: Any = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if not identical(stride, expected):
            if size == 1:
                continue
            if stride != expected:
                return is_empty(sizes)
        expected = expected * size
    return True


def is_in_order(layout: Layout) -> bool:
    """Whether the strides are those of new memory, also of dimensions that hold one element or none."""
    expected = in_order(layout.sizes).strides
    return all(bool(a == b) for a, b in zip(layout.strides, expected, strict=True))


def is_dense(layout: Layout) -> bool:
    """Whether a permutation of the dimensions is in order, without gaps; False for sizes below two."""
    rows = sorted(zip(layout.strides, layout.sizes, strict=True), key=lambda row: plain(row[0]))
    expected: Any = 1
    for stride, size in rows:
        if size < 2 or stride != expected:
            return False
        expected = expected * size
    return True


def expanded(layout: Layout, sizes: Sequence[Any]) -> Layout:
    """The layout that `expand` gives; -1 keeps a size.

    Raises:
        ValueError: The sizes do not allow it.
    """
    new = len(sizes) - len(layout.sizes)
    if new < 0:
        raise ValueError("fewer dimensions")
    if not layout.sizes:
        return Layout(tuple(sizes), (0,) * len(sizes), layout.offset)
    kept: list[Any] = []
    strides: list[Any] = []
    for place in reversed(range(len(sizes))):
        old = place - new
        size = layout.sizes[old] if old >= 0 else 1
        stride = layout.strides[old] if old >= 0 else kept[0] * strides[0]
        found, step = _widened(size, stride, sizes[place], may_keep=old >= 0)
        kept.insert(0, found)
        strides.insert(0, step)
    return Layout(tuple(kept), tuple(strides), layout.offset)


def _widened(size: Any, stride: Any, wanted: Any, *, may_keep: bool) -> tuple[Any, Any]:
    """The size and stride of one dimension of an expanded tensor."""
    if is_negative(wanted):
        if wanted != -1 or not may_keep:
            raise ValueError("a size below zero")
        return size, stride
    if size == wanted:
        return size, stride
    if size != 1:
        raise ValueError("sizes that do not broadcast")
    return wanted, 0


def broadcast(shapes: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """The shape that several have in common.

    Raises:
        ValueError: There is none.
    """
    rank = max((len(shape) for shape in shapes), default=0)
    common: list[Any] = [None] * rank
    for shape in shapes:
        for place, size in enumerate(shape, rank - len(shape)):
            common[place] = size if common[place] is None else _common(common[place], size)
    return tuple(common)


def _common(a: Any, b: Any) -> Any:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    raise ValueError("sizes that do not broadcast")


def reshaped(sizes: Sequence[Any], numel: Any) -> tuple[Any, ...]:
    """A shape with its -1 filled in.

    Raises:
        ValueError: It has another number of elements.
    """
    unknown = [place for place, size in enumerate(sizes) if is_negative(size)]
    if any(sizes[place] != -1 for place in unknown) or len(unknown) > 1:
        raise ValueError("a size below zero")
    known = math.prod(size for place, size in enumerate(sizes) if place not in unknown)
    found = list(sizes)
    if unknown:
        if known == 0 or numel % known != 0:
            raise ValueError("no size fills it")
        found[unknown[0]] = numel // known
    elif known != numel:
        raise ValueError("another number of elements")
    return tuple(found)
