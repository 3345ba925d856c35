"""Tiles from nothing, tiles of other shapes, reductions, scans and matrix products.

Source: NVIDIA/cuda-tile, Ops.td.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dotcu.simulator.machine.shape import Array
from dotcu.simulator.tile.elements import Function, dtype_of, from_bits, rounded, to_bits
from dotcu.tile_ir.module import ELEMENT_BITS, TileFunction, TileOperation

_TF32_CUT = np.uint32(0xFFFFE000)
_ONE_THREAD = 1 << 18  # OpenBLAS, interface/gemm.c: products M N K up to this take no other thread


def _iota(operation: TileOperation, function: TileFunction) -> Function:
    type_ = function.types[operation.results[0]]
    values = np.arange(type_.size).astype(dtype_of(type_.element))
    return lambda: values


def _reshape(operation: TileOperation, function: TileFunction) -> Function:
    shape = function.types[operation.results[0]].shape
    return lambda a: np.reshape(a, shape)


def _broadcast(operation: TileOperation, function: TileFunction) -> Function:
    shape = function.types[operation.results[0]].shape
    return lambda a: np.broadcast_to(a, shape)


def _permute(operation: TileOperation, function: TileFunction) -> Function:
    order = operation.attributes["permutation"]
    return lambda a: np.transpose(a, order)


def _cat(operation: TileOperation, function: TileFunction) -> Function:
    axis = operation.attributes["dim"]
    return lambda a, b: np.concatenate((a, b), axis)


def _slices(shape: Sequence[int], indices: Sequence[Array]) -> tuple[slice, ...]:
    """Return the part of a tile that a slice's number in each dimension stands for."""
    starts = [int(index) * extent for index, extent in zip(indices, shape, strict=True)]
    return tuple(slice(start, start + extent) for start, extent in zip(starts, shape, strict=True))


def _extract(operation: TileOperation, function: TileFunction) -> Function:
    shape = function.types[operation.results[0]].shape

    def run(source: Array, *indices: Array) -> Array:
        part: Array = source[_slices(shape, indices)]
        if part.shape != shape:
            raise IndexError("slice", [int(index) for index in indices])
        return part

    return run


def _insert(operation: TileOperation, function: TileFunction) -> Function:
    shape = function.types[operation.inputs[0]].shape

    def run(source: Array, target: Array, *indices: Array) -> Array:
        result, at = np.array(target), _slices(shape, indices)
        if result[at].shape != shape:
            raise IndexError("slice", [int(index) for index in indices])
        result[at] = source
        return result

    return run


def _bitcast(operation: TileOperation, function: TileFunction) -> Function:
    source = function.types[operation.inputs[0]].element
    target = function.types[operation.results[0]].element
    return lambda a: from_bits(to_bits(np.asarray(a), source), target)


def _pack(operation: TileOperation, function: TileFunction) -> Function:
    element = function.types[operation.inputs[0]].element

    def run(a: Array) -> Array:
        bits = to_bits(np.ascontiguousarray(a), element)
        if ELEMENT_BITS[element] == 4:
            low, high = bits[0::2] & np.uint8(15), bits[1::2] & np.uint8(15)
            packed: Array = (low | (high << np.uint8(4))).view(np.int8)
            return packed
        return bits.view(np.int8)

    return run


def _unpack(operation: TileOperation, function: TileFunction) -> Function:
    type_ = function.types[operation.results[0]]

    def run(a: Array) -> Array:
        data = np.ascontiguousarray(a).view(np.uint8)
        if ELEMENT_BITS[type_.element] == 4:
            nibbles = np.stack((data & np.uint8(15), data >> np.uint8(4)), axis=1).reshape(-1)
            if type_.element == "i4":
                signed: Array = ((nibbles ^ np.uint8(8)) - np.uint8(8)).view(np.int8)
                return signed
            return from_bits(nibbles, type_.element)
        return from_bits(data.view(f"u{type_.itemsize}"), type_.element)

    return run


# Matrix products


def _operand(element: str) -> Function:
    """Return what a matrix unit reads of an operand: of tf32 the upper 19 bits."""
    if element == "tf32":
        return lambda a: (np.ascontiguousarray(a).view(np.uint32) & _TF32_CUT).view(np.float32)
    return lambda a: a


def _product(a: Array, b: Array) -> Array:
    """Return a matrix product, in pieces that BLAS computes on the thread that asks for them.

    Its other threads wait for each other at each product, which takes far longer than a tile's product where
    something else uses a core (measured: OpenBLAS 0.3, 2 cores, 2026-11: 14 ms instead of 0.2 ms).
    """
    rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    each = max(1, _ONE_THREAD // (depth * columns))
    if a.ndim != 2 or rows % each or rows <= each:
        product: Array = np.matmul(a, b)
        return product
    product = np.matmul(np.ascontiguousarray(a).reshape(rows // each, each, depth), b)
    return product.reshape(rows, columns)


def _matrix(operation: TileOperation, function: TileFunction) -> Function:
    source = function.types[operation.inputs[0]].element
    target = function.types[operation.results[0]].element
    read = _operand(source)

    def run(a: Array, b: Array, c: Array) -> Array:
        product = _product(read(a), read(b))
        total = np.add(product, c, dtype=c.dtype if c.dtype == np.float64 else product.dtype)
        return total if target in ("f32", "f64") else rounded(total, target)

    return run


def _integer_matrix(operation: TileOperation, function: TileFunction) -> Function:
    signs = [operation.attributes[f"signedness_{side}"] == "signed" for side in ("lhs", "rhs")]

    def wide(a: Array, signed: bool) -> Array:
        return (a if signed else a.view(np.uint8)).astype(np.float64)

    def run(a: Array, b: Array, c: Array) -> Array:
        product = _product(wide(a, signs[0]), wide(b, signs[1]))  # exact: less than 2^53
        total: Array = (product.astype(np.int64) + c).astype(np.int32)
        return total

    return run


def _scaled_matrix(operation: TileOperation, function: TileFunction) -> Function:
    def run(a: Array, b: Array, c: Array, a_scale: Array, b_scale: Array) -> Array:
        depth = a.shape[-1]
        left = a * np.repeat(a_scale, depth // a_scale.shape[-1], axis=-1)
        right = b * np.repeat(b_scale, depth // b_scale.shape[-2], axis=-2)
        total: Array = _product(left, right) + c
        return total

    return run


Maker = Callable[[TileOperation, TileFunction], Function]

STRUCTURE: Mapping[str, Maker] = {
    "iota": _iota,
    "reshape": _reshape,
    "broadcast": _broadcast,
    "permute": _permute,
    "cat": _cat,
    "extract": _extract,
    "insert": _insert,
    "bitcast": _bitcast,
    "pack": _pack,
    "unpack": _unpack,
    "mmaf": _matrix,
    "mmai": _integer_matrix,
    "mmaf_scaled": _scaled_matrix,
    "ptr_to_int": lambda operation, function: lambda a: a,
    "int_to_ptr": lambda operation, function: lambda a: a,
    "ptr_to_ptr": lambda operation, function: lambda a: a,
}
"""The operations that change shapes, and matrix products, by name."""


# Reductions and scans

Body = Callable[[Sequence[Array]], list[Array]]
"""A region's function of elements, applied to whole arrays: of first and second for each operand."""


def reduce_tiles(operands: Sequence[Array], axis: int, body: Body) -> list[Array]:
    """Return tiles reduced along a dimension: halves of it are combined until one element is left.

    Args:
        operands: The tiles, all of one shape.
        axis: The dimension.
        body: Combines elements; the dialect leaves the order open.
    """
    tiles = [np.moveaxis(np.asarray(tile), axis, 0) for tile in operands]
    while len(tiles[0]) > 1:
        pairs = [part for tile in tiles for part in (tile[1::2], tile[0::2])]
        tiles = body(pairs)
    return [tile[0] for tile in tiles]


def scan_tiles(operands: Sequence[Array], axis: int, body: Body, *, reverse: bool) -> list[Array]:
    """Return the inclusive prefixes of tiles along a dimension.

    Args:
        operands: The tiles, all of one shape.
        axis: The dimension.
        body: Combines elements; the dialect leaves the order open.
        reverse: From the last element to the first.
    """
    tiles = [np.moveaxis(np.array(tile), axis, 0) for tile in operands]
    if reverse:
        tiles = [tile[::-1] for tile in tiles]
    reach, count = 1, len(tiles[0])
    while reach < count:
        pairs = [part for tile in tiles for part in (tile[reach:], tile[:-reach])]
        later = body(pairs)
        tiles = [np.concatenate((tile[:reach], new)) for tile, new in zip(tiles, later, strict=True)]
        reach *= 2
    if reverse:
        tiles = [tile[::-1] for tile in tiles]
    return [np.moveaxis(tile, 0, axis) for tile in tiles]
