"""The promises of a kernel about its parameters: its `assume` operations, traced back to them.

A promise on p is one of the parameter itself. So is one on a value that is computed of it by an exact step:
a sum with a constant, a product with a constant, a widening. A parameter that is an extent of a tensor view
is at least 0, without a promise in words. A promise inside an `if` or a loop may not be
reached, so it is not one of the launch; the simulator checks it where it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dotcu.tile_ir.module import Assumption, SourceLine, TileConstant, TileFunction, TileOperation


@dataclass(frozen=True, kw_only=True)
class Promise:
    """A promise of one parameter, which a launch that breaks it must not be made with.

    Attributes:
        parameter: The number of the parameter.
        predicate: What holds of `scale * parameter + offset`.
        scale: See there.
        offset: See there.
        line: Where it is promised.
    """

    parameter: int
    predicate: Assumption
    scale: int = 1
    offset: int = 0
    line: SourceLine | None = None

    def holds(self, value: int) -> bool:
        """Return whether a parameter's value, signed where it is an integer, keeps the promise."""
        value = self.scale * value + self.offset
        low, high = self.predicate.low, self.predicate.high
        if self.predicate.kind == "div_by":
            return value % self.predicate.divisor == 0
        return (low is None or value >= low) and (high is None or value <= high)


_A_SIZE = Assumption("bounded", low=0)


def promises(function: TileFunction) -> tuple[Promise, ...]:
    """Return what a kernel promises of its parameters, in the order of its operations."""
    origins = {value: (number, 1, 0) for number, value in enumerate(function.body.arguments)}
    constants: dict[int, int] = {}
    found: dict[tuple[int, int, int, Assumption], Promise] = {}
    for operation in function.body.operations:
        if operation.name == "constant" and (number := _integer(operation.attributes["value"])) is not None:
            constants[operation.results[0]] = number
        elif operation.name == "assume" and operation.inputs[0] in origins:
            parameter, scale, offset = origins[operation.inputs[0]]
            predicate: Assumption = operation.attributes["predicate"]
            if predicate.kind != "same_elements" and predicate.every is None:
                promise = Promise(
                    parameter=parameter,
                    predicate=predicate,
                    scale=scale,
                    offset=offset,
                    line=operation.line,
                )
                found.setdefault(_key(promise), promise)
        elif operation.name == "make_tensor_view":
            for size in operation.operands["dynamicShape"]:
                parameter, *computed = origins.get(size, (-1,))
                known = (one.predicate.low for one in found.values() if _key(one)[:3] == (parameter, 1, 0))
                if computed == [1, 0] and all(low is None or low < 0 for low in known):
                    promise = Promise(parameter=parameter, predicate=_A_SIZE, line=operation.line)
                    found[_key(promise)] = promise
        folded = _folded(operation, constants)
        traced = _traced(operation, origins, constants) if folded is None else None
        if folded is not None:
            constants[operation.results[0]] = folded
        elif traced is not None:
            origins[operation.results[0]] = traced
    return tuple(found.values())


def _key(promise: Promise) -> tuple[int, int, int, Assumption]:
    return promise.parameter, promise.scale, promise.offset, promise.predicate


def _folded(operation: TileOperation, constants: Mapping[int, int]) -> int | None:
    """Return a result that is known beforehand: cuda_tile.h picks an extent by sums of (i == 0) * size."""
    if operation.name not in ("cmpi", "exti", "muli", "addi"):
        return None
    left, *right = (constants.get(value) for value in operation.inputs)
    if operation.name == "muli" and 0 in (left, *right):
        return 0
    if left is None or None in right:
        return None
    if operation.name == "exti":
        return left if left >= 0 else None
    if operation.name == "cmpi":
        return int(left == right[0]) if operation.attributes["comparison_predicate"] == "equal" else None
    return left + (right[0] or 0) if operation.name == "addi" and 0 in (left, *right) else None


Origin = tuple[int, int, int]


def _traced(
    operation: TileOperation, origins: Mapping[int, Origin], constants: Mapping[int, int]
) -> Origin | None:
    """Return the parameter, factor and offset that a result is made of, None if it is not of that form."""
    if operation.name in ("assume", "ptr_to_ptr", "ptr_to_int", "reshape", "broadcast"):
        return origins.get(operation.inputs[0])
    if operation.name == "exti" and operation.attributes["signedness"] == "signed":
        return origins.get(operation.inputs[0])
    if operation.name not in ("addi", "subi", "muli"):
        return None
    left, right = operation.inputs
    if left in constants and operation.name != "subi":
        left, right = right, left
    if left not in origins or right not in constants:
        return None
    (parameter, scale, offset), number = origins[left], constants[right]
    if number == (1 if operation.name == "muli" else 0):
        return origins[left]
    if operation.attributes["overflow"] not in ("no_signed_wrap", "no_wrap"):
        return None
    if operation.name == "muli":
        return parameter, scale * number, offset * number
    return parameter, scale, offset + (number if operation.name == "addi" else -number)


def _integer(literal: TileConstant) -> int | None:
    type_, data, _ = literal
    if not type_.element.startswith("i") or type_.element in ("i1", "i4") or len(data) != type_.itemsize:
        return None
    return int.from_bytes(data, "little", signed=True)
