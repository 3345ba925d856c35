"""Layouts in symbols: sizes and strides as torch computes them, in a form that holds for other sizes too.

A comparison of symbols adds its own guard. So each function here reads as it would for plain numbers, and
its result holds for every call that passes the guards it added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from dotcu.call_cache.symbols import identical, is_negative, plain, sym_max


class Layout(NamedTuple):
    """Sizes, strides and offset of a tensor in elements, from the first one of its memory."""

    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any = 0


def in_order(sizes: Sequence[Any]) -> Layout:
    """Return the layout of new memory."""
    strides: list[Any] = []
    stride: Any = 1
    for size in reversed(sizes):
        strides.insert(0, stride)
        stride = stride * sym_max(size, 1)
    return Layout(tuple(sizes), tuple(strides))


def inserted(layout: Layout, dim: int) -> Layout:
    """Return a layout with another dimension of one element, as `unsqueeze` gives it."""
    sizes, strides, offset = layout
    stride = sizes[dim] * strides[dim] if dim < len(sizes) else 1
    return Layout((*sizes[:dim], 1, *sizes[dim:]), (*strides[:dim], stride, *strides[dim:]), offset)


def all_identical(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Return True if numbers are equal in every call; adds no guard."""
    return len(left) == len(right) and all(identical(a, b) for a, b in zip(left, right, strict=True))


def is_empty(sizes: Sequence[Any]) -> bool:
    """Ask if there are no elements."""
    empty = [size for size in sizes if plain(size) == 0]
    if empty:
        return bool(empty[0] == 0)
    return any(size == 0 for size in sizes)


def is_contiguous(layout: Layout) -> bool:
    """Ask as torch does: strides of dimensions of one element do not count."""
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
    """Ask if the strides are those of new memory, also in dimensions of one element or none."""
    expected = in_order(layout.sizes).strides
    return all(bool(a == b) for a, b in zip(layout.strides, expected, strict=True))


def like(layout: Layout) -> Layout | None:
    """Return the layout that `empty_like` gives: the same without gaps, else dense in the strides' order.

    None where elements overlap by a stride of 0.
    """
    sizes, strides, _ = layout
    if _is_dense(layout):
        return Layout(sizes, strides)
    if any(stride == 0 for stride in strides):
        return None
    order = list(reversed(range(len(sizes))))  # innermost first, as torch sorts them
    for last in range(1, len(order)):
        at = last
        for before in range(last - 1, -1, -1):
            one, other = order[before], order[at]
            if strides[one] > strides[other] or (
                strides[one] == strides[other] and sizes[one] > sizes[other]
            ):
                order[before], order[at], at = other, one, before
            elif strides[one] != strides[other]:
                break
    dense, stride = list(strides), 1
    for dim in order:
        dense[dim] = stride
        stride = stride * sizes[dim]
    return Layout(sizes, tuple(dense))


def _is_dense(layout: Layout) -> bool:
    """Ask if a permutation of the dimensions of two or more elements is in order, without gaps."""
    rows = [row for row in zip(layout.strides, layout.sizes, strict=True) if row[1] >= 2]
    expected: Any = 1
    for stride, size in sorted(rows, key=lambda row: plain(row[0])):
        if stride != expected:
            return False
        expected = expected * size
    return True


def expanded(layout: Layout, sizes: Sequence[Any]) -> Layout:
    """Return the layout that `expand` gives; -1 keeps a size."""
    new = len(sizes) - len(layout.sizes)
    if new < 0:
        raise ValueError("fewer dimensions")
    if not layout.sizes:
        return Layout(tuple(sizes), (0,) * len(sizes), layout.offset)
    rows: list[tuple[Any, Any]] = []  # size and stride, innermost first
    for dim, wanted in reversed(list(enumerate(sizes, -new))):
        size, stride = (layout.sizes[dim], layout.strides[dim]) if dim >= 0 else (1, math.prod(rows[-1]))
        if is_negative(wanted):
            if wanted != -1 or dim < 0:
                raise ValueError("a negative size")
        elif size != wanted:
            if size != 1:
                raise ValueError("sizes that do not broadcast")
            size, stride = wanted, 0
        rows.append((size, stride))
    found_sizes, strides = zip(*reversed(rows), strict=True)
    return Layout(found_sizes, strides, layout.offset)


def broadcast(shapes: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """Return the shape that several broadcast to."""
    rank = max((len(shape) for shape in shapes), default=0)
    common: list[Any] = [None] * rank
    for shape in shapes:
        for dim, size in enumerate(shape, rank - len(shape)):
            other = common[dim]
            if other is None:
                common[dim] = size
            elif not (other == size or size == 1):
                if other != 1:
                    raise ValueError("sizes that do not broadcast")
                common[dim] = size
    return tuple(common)


def reshaped(sizes: Sequence[Any], numel: Any) -> tuple[Any, ...]:
    """Return a shape with its -1 filled in."""
    unknown = [dim for dim, size in enumerate(sizes) if is_negative(size)]
    if any(sizes[dim] != -1 for dim in unknown) or len(unknown) > 1:
        raise ValueError("a negative size")
    known = math.prod(size for dim, size in enumerate(sizes) if dim not in unknown)
    if unknown:
        if known == 0 or numel % known != 0:
            raise ValueError("no size fits -1")
        return tuple(numel // known if dim in unknown else size for dim, size in enumerate(sizes))
    if known != numel:
        raise ValueError("a different number of elements")
    return tuple(sizes)
