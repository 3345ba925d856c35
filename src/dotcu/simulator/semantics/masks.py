"""Masks of bits: bmsk, szext, fns, and lop3 that also gives a predicate.

Source: PTX ISA, "Integer Arithmetic Instructions: bmsk, szext, fns", "Logic and Shift
Instructions: lop3".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dotcu.ptx.instructions import Instruction, Pair, Sink
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.semantics.bits import logic3
from dotcu.simulator.semantics.table import (
    Array,
    Binder,
    Form,
    NotExecuted,
    Operation,
    Row,
    Step,
    Table,
    bind_elementwise,
    form_of,
)

_ALL = np.uint32(0xFFFFFFFF)
_FIVE = np.uint32(31)


def _below(count: Array) -> Array:
    """Masks of the bits below a position from 0 to 32."""
    result: Array = ((np.uint64(1) << count.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)
    return result


def _mask(form: Form) -> Operation:
    """bmsk: `width` bits from `start`, as far as the register reaches."""
    clamp = "clamp" in form.flags

    def mask(start: Array, width: Array) -> Array:
        if clamp:
            start, width = np.minimum(start, np.uint32(32)), np.minimum(width, np.uint32(32))
        else:
            start, width = start & _FIVE, width & _FIVE
        end = np.minimum(start + width, np.uint32(32))
        result: Array = _below(end) & ~_below(start)
        return result

    return Operation(mask, "b32", ("u32", "u32"))


def _extend(form: Form) -> Operation:
    """szext: the lowest bits of a value, extended by their sign or by zero."""
    clamp, signed = "clamp" in form.flags, form.type == "s32"

    def extend(a: Array, width: Array) -> Array:
        width = np.minimum(width, np.uint32(32)) if clamp else width & _FIVE
        kept = a & _below(width)
        if not signed:
            return kept
        top = (kept >> ((width - np.uint32(1)) & _FIVE)) & np.uint32(1)
        result: Array = kept | np.where((top == 1) & (width > 0), ~_below(width), np.uint32(0))
        return result

    return Operation(extend, "b32", ("b32", "u32"))


def _find_nth(form: Form) -> Operation:
    """fns: the position of the n-th set bit, upwards or downwards from a base; all ones if none."""

    def find(mask: Array, base: Array, offset: Array) -> Array:
        mask, base, offset = np.broadcast_arrays(mask, base, offset)
        result = np.full(mask.shape, _ALL)
        left = np.maximum(np.abs(offset.astype(np.int64)), 1)
        downwards = offset < 0
        reach = np.where(offset == 0, 1, 32)
        for step in range(32):
            place = np.where(downwards, base.astype(np.int64) - step, base.astype(np.int64) + step)
            inside = (place >= 0) & (place < 32) & (step < reach)
            is_set = inside & ((mask >> (place & 31).astype(np.uint32)) & np.uint32(1)).astype(bool)
            left = left - is_set
            result = np.where(is_set & (left == 0), place.astype(np.uint32), result)
        return result

    return Operation(find, "b32", ("b32", "u32", "s32"))


_JOIN: Mapping[str, Callable[[Array, Array], Array]] = {"or": np.logical_or, "and": np.logical_and}


def bind_lop3(instruction: Instruction, binder: Binder) -> Step:
    """lop3, with the predicate that tells whether any bit of the result is set."""
    form = form_of(instruction)
    plain = logic3(form._replace(flags=form.flags - _JOIN.keys()))
    if plain is None or form.types != ("b32",):
        raise NotExecuted
    if not form.flags:
        return bind_elementwise(plain, instruction, binder)
    (name,) = form.flags
    pair, *operands, other = instruction.operands
    if not isinstance(pair, Pair) or len(operands) != len(plain.sources):
        raise NotExecuted
    function, join = plain.function, _JOIN[name]
    test = Operation(
        lambda a, b, c, table, p: join(function(a, b, c, table) != 0, p),
        "pred",
        (*plain.sources, "pred"),
    )
    told = bind_elementwise(test, instruction._replace(operands=(pair.second, *operands, other)), binder)
    if isinstance(pair.first, Sink):
        return told
    value = bind_elementwise(plain, instruction._replace(operands=(pair.first, *operands)), binder)

    def step(chunk: Chunk) -> None:
        told(chunk)  # first: the value may overwrite one of its operands
        value(chunk)

    return step


_MODE = frozenset({"clamp", "wrap"})
_SECTION = "Integer Arithmetic Instructions: "

MASKS: Table = {
    "bmsk": (Row(frozenset({"b32"}), _MODE, _SECTION + "bmsk", _mask),),
    "szext": (Row(frozenset({"u32", "s32"}), _MODE, _SECTION + "szext", _extend),),
    "fns": (Row(frozenset({"b32"}), frozenset(), _SECTION + "fns", _find_nth),),
}
