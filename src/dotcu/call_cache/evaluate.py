"""A plan in Python: what native code does with it, and what the debug mode compares with the body."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from dotcu.call_cache.arithmetic import Inexact, Number, compute, operands
from dotcu.call_cache.effects import Address, Effects, Made, Ran
from dotcu.call_cache.plan import (
    Allocation,
    Field,
    FieldKind,
    Instruction,
    Key,
    Launch,
    NumberKey,
    Op,
    Plan,
    TensorKey,
)
from dotcu.kernel import sm_count
from dotcu.kernel.occupancy import MAX_GRID
from dotcu.kernel.tensors import is_plain

_LEAVES: Mapping[Op, Callable[[Any, int], Number]] = {
    Op.SIZE: lambda value, dim: int(value.shape[dim]),
    Op.STRIDE: lambda value, dim: int(value.stride(dim)),
    Op.NUMEL: lambda value, _: int(value.numel()),
    Op.OFFSET: lambda value, _: int(value.storage_offset()),
    Op.ADDRESS: lambda value, _: int(value.data_ptr()),
    Op.CONTIGUOUS: lambda value, _: int(value.is_contiguous()),
    Op.MULTIPROCESSORS: lambda value, _: sm_count(value),
    Op.INT_ARGUMENT: lambda value, _: int(value),
    Op.FLOAT_ARGUMENT: lambda value, _: float(value),
}

_FORMATS: Mapping[FieldKind, str] = {
    FieldKind.INT8: "<b",
    FieldKind.INT16: "<h",
    FieldKind.INT32: "<i",
    FieldKind.INT64: "<q",
    FieldKind.UINT8: "<B",
    FieldKind.UINT16: "<H",
    FieldKind.UINT32: "<I",
    FieldKind.UINT64: "<Q",
    FieldKind.FLOAT32: "<f",
    FieldKind.FLOAT64: "<d",
}


def matches(plan: Plan, args: Sequence[Any]) -> bool:
    """Whether arguments are of the types that a plan is for; its guards are not asked."""
    if len(args) != len(plan.keys) or not all(map(_fits, plan.keys, args)):
        return False
    given = [id(value) for value in args if isinstance(value, Tensor)]
    return not plan.distinct or len(set(given)) == len(given)


def _fits(key: Key, value: Any) -> bool:
    if isinstance(key, TensorKey):
        return (
            isinstance(value, Tensor)
            and is_plain(value)
            and (value.dtype, value.dim(), value.device) == (key.dtype, key.dim, key.device)
        )
    if isinstance(key, NumberKey):
        return type(value) is (float if key.is_float else int)
    value = tuple(value) if type(value) is list else value
    return type(value) is type(key.value) and value == key.value


def evaluate(plan: Plan, args: Sequence[Any]) -> Effects | None:
    """What a call with these arguments does; None where the plan does not fit it.

    Args:
        args: One for each argument of the schema, of types that match the plan.
    """
    try:
        values = _values(plan.steps, args)
        if any(values[step] != wanted for step, wanted in plan.guards):
            return None
        made = tuple(_made(allocation, values) for allocation in plan.allocations)
        launches = tuple(_ran(launch, values, args, made) for launch in plan.launches)
    except Inexact:
        return None
    return Effects(allocations=made, launches=launches, results=plan.results)


def _values(steps: Sequence[Instruction], args: Sequence[Any]) -> list[Number]:
    values: list[Number] = []
    for step in steps:
        if step.op in (Op.INT, Op.FLOAT):
            values.append(step.value)
        elif step.op in _LEAVES:
            values.append(_LEAVES[step.op](args[step.a], step.b))
        else:
            values.append(compute(step.op, *(values[operand] for operand in operands(step))))
    return values


def _numbers(steps: Sequence[int], values: Sequence[Number]) -> tuple[int, ...]:
    return tuple(int(values[step]) for step in steps)


def _made(allocation: Allocation, values: Sequence[Number]) -> Made:
    sizes, strides = _numbers(allocation.sizes, values), _numbers(allocation.strides, values)
    if min((*sizes, *strides), default=0) < 0:
        raise Inexact
    return Made(dtype=allocation.dtype, sizes=sizes, strides=strides, zeroed=allocation.zeroed)


def _ran(launch: Launch, values: Sequence[Number], args: Sequence[Any], made: Sequence[Made]) -> Ran:
    grid = _numbers(launch.grid, values)
    if any(not 0 <= size <= most for size, most in zip(grid, MAX_GRID, strict=True)):
        raise Inexact
    if launch.most_blocks and math.prod(grid) > launch.most_blocks:
        raise Inexact
    data, addresses = bytearray(launch.parameters), []
    for field in launch.fields:
        if field.kind in _FORMATS:
            packed = _packed(field.kind, values[field.step])
            data[field.offset : field.offset + len(packed)] = packed
        elif _has_elements(field, args, made):
            addresses.append(_address(field, values))
    return Ran(
        kernel=launch.kernel,
        grid=grid,
        block=launch.block,
        smem_bytes=launch.smem_bytes,
        cluster=launch.cluster,
        cooperative=launch.cooperative,
        programmatic=launch.programmatic,
        parameters=bytes(data),
        addresses=tuple(addresses),
    )


def _packed(kind: FieldKind, value: Number) -> bytes:
    try:
        return struct.pack(_FORMATS[kind], value)
    except (struct.error, OverflowError) as error:
        raise Inexact from error


def _has_elements(field: Field, args: Sequence[Any], made: Sequence[Made]) -> bool:
    """Whether an address is one: memory without elements has none."""
    if field.kind is FieldKind.ARGUMENT_ADDRESS:
        return bool(args[field.source].numel())
    return math.prod(made[field.source].sizes) > 0


def _address(field: Field, values: Sequence[Number]) -> Address:
    return Address(
        offset=field.offset,
        argument=field.kind is FieldKind.ARGUMENT_ADDRESS,
        source=field.source,
        bytes=0 if field.step < 0 else int(values[field.step]),
    )
