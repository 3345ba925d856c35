"""Recorded calls in Python: as native code runs them, and as the debug mode compares them with the body."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import Tensor

from dotcu.call_cache.arithmetic import Number, compute, operands
from dotcu.call_cache.record import (
    Allocation,
    Field,
    FieldKind,
    Key,
    Launch,
    RecordedCall,
    RecordedStep,
    StepOp,
    TensorKey,
)
from dotcu.kernel import sm_count
from dotcu.kernel.arguments.pack import is_plain
from dotcu.kernel.config import MAX_GRID


@dataclass(frozen=True, kw_only=True)
class Effects:
    """The effects of one call, in numbers instead of steps. `results` are indices of allocations."""

    allocations: tuple[Allocation, ...]
    launches: tuple[Launch, ...]
    results: tuple[int, ...]


_LEAVES: Mapping[StepOp, Callable[[Any, int], Number]] = {
    StepOp.SIZE: lambda value, dim: int(value.shape[dim]),
    StepOp.STRIDE: lambda value, dim: int(value.stride(dim)),
    StepOp.NUMEL: lambda value, _: int(value.numel()),
    StepOp.OFFSET: lambda value, _: int(value.storage_offset()),
    StepOp.ADDRESS: lambda value, _: int(value.data_ptr()),
    StepOp.CONTIGUOUS: lambda value, _: int(value.is_contiguous()),
    StepOp.MULTIPROCESSORS: lambda value, _: sm_count(value),
    StepOp.INT_ARGUMENT: lambda value, _: int(value),
    StepOp.FLOAT_ARGUMENT: lambda value, _: float(value),
}

FORMATS: Mapping[FieldKind, str] = {
    FieldKind.ARGUMENT_ADDRESS: "<Q", FieldKind.ALLOCATION_ADDRESS: "<Q",
    FieldKind.INT8: "<b", FieldKind.INT16: "<h", FieldKind.INT32: "<i", FieldKind.INT64: "<q",
    FieldKind.UINT8: "<B", FieldKind.UINT16: "<H", FieldKind.UINT32: "<I", FieldKind.UINT64: "<Q",
    FieldKind.FLOAT32: "<f", FieldKind.FLOAT64: "<d",
}  # fmt: skip
"""The format of each field in the struct module."""
_ADDRESSES = (FieldKind.ARGUMENT_ADDRESS, FieldKind.ALLOCATION_ADDRESS)


def matches(recorded: RecordedCall, args: Sequence[Any]) -> bool:
    """Compare the arguments' types with those of a recorded call; its guards are not evaluated."""
    if len(args) != len(recorded.keys) or not all(map(_fits, recorded.keys, args)):
        return False
    tensors = [id(value) for value in args if isinstance(value, Tensor)]
    return not recorded.distinct or len(set(tensors)) == len(tensors)


def _fits(key: Key, value: Any) -> bool:
    if isinstance(key, TensorKey):
        return (
            isinstance(value, Tensor)
            and is_plain(value)
            and (value.dtype, value.dim(), value.device) == (key.dtype, key.dim, key.device)
        )
    if isinstance(key, tuple):
        value = tuple(value) if type(value) is list else value
        return type(value) is type(key[0]) and value == key[0]
    return type(value) is key


def evaluate(recorded: RecordedCall, args: Sequence[Any]) -> Effects | None:
    """Return the effects of a call with arguments of types that match; None if the recording does not fit."""
    try:
        values = _values(recorded.steps, args)
        if any(values[step] != wanted for step, wanted in recorded.guards):
            return None
        allocations = tuple(_allocation(allocation, values) for allocation in recorded.allocations)
        launches = tuple(_launch(launch, values, args, allocations) for launch in recorded.launches)
    except OverflowError:
        return None
    return Effects(allocations=allocations, launches=launches, results=recorded.results)


def _values(steps: Sequence[RecordedStep], args: Sequence[Any]) -> list[Number]:
    values: list[Number] = []
    for step in steps:
        if step.op in (StepOp.INT, StepOp.FLOAT):
            values.append(step.value)
        elif step.op in _LEAVES:
            values.append(_LEAVES[step.op](args[step.a], step.b))
        else:
            values.append(compute(step.op, *(values[operand] for operand in operands(step))))
    return values


def _numbers(steps: Sequence[int], values: Sequence[Number]) -> tuple[int, ...]:
    return tuple(int(values[step]) for step in steps)


def _allocation(allocation: Allocation, values: Sequence[Number]) -> Allocation:
    sizes, strides = _numbers(allocation.sizes, values), _numbers(allocation.strides, values)
    if min((*sizes, *strides), default=0) < 0:
        raise OverflowError
    return replace(allocation, sizes=sizes, strides=strides)


def _launch(
    launch: Launch, values: Sequence[Number], args: Sequence[Any], allocations: Sequence[Allocation]
) -> Launch:
    x, y, z = grid = _numbers(launch.grid, values)
    if any(not 0 <= size <= most for size, most in zip(grid, MAX_GRID, strict=True)):
        raise OverflowError
    if launch.most_blocks and math.prod(grid) > launch.most_blocks:
        raise OverflowError
    data, addresses = bytearray(launch.parameters), []
    for field in launch.fields:
        if field.kind not in _ADDRESSES:
            try:
                struct.pack_into(FORMATS[field.kind], data, field.offset, values[field.step])
            except struct.error as error:
                raise OverflowError from error
            continue
        is_argument = field.kind is FieldKind.ARGUMENT_ADDRESS
        sizes = args[field.source].shape if is_argument else allocations[field.source].sizes
        if math.prod(sizes):  # memory without elements has no address
            addresses.append(_at(field, values))
    maps = tuple(
        (_at(field, values), tiled.with_layout(lambda step: int(values[step])))
        for field, tiled in launch.maps
    )
    return replace(launch, grid=(x, y, z), parameters=bytes(data), fields=tuple(addresses), maps=maps)


def _at(field: Field, values: Sequence[Number]) -> Field:
    """Return an address with the bytes to add to it."""
    return replace(field, step=0 if field.step < 0 else int(values[field.step]))


_PARTS = {"allocations": "allocation", "launches": "launch", "results": "result"}


def compare(recorded: Effects, real: Effects) -> str | None:
    """Return the first difference between a recorded call and the body; None if there is none."""
    for part, one in _PARTS.items():
        expected, actual = getattr(recorded, part), getattr(real, part)
        if len(expected) != len(actual):
            return f"the recorded call has {len(expected)} {part}, the body {len(actual)}"
        for index, (a, b) in enumerate(zip(expected, actual, strict=True)):
            if a != b:
                return f"{one} {index}: {_difference(a, b)}"
    return None


def _difference(recorded: Any, real: Any) -> str:
    if isinstance(recorded, int):
        return f"the recorded call has {recorded}, the body {real}"
    name = next(
        f.name for f in fields(recorded) if f.compare and getattr(recorded, f.name) != getattr(real, f.name)
    )
    return f"{name} is {getattr(recorded, name)!r} in the recorded call, {getattr(real, name)!r} in the body"
