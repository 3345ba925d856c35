"""A plan's steps, allocations and launches, as lines of C++ on top of runtime.h."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch

from dotcu.call_cache.arithmetic import INT_MIN
from dotcu.call_cache.plan import (
    Allocation,
    ConstantKey,
    Field,
    FieldKind,
    Instruction,
    Key,
    Launch,
    Op,
    TensorKey,
)

DTYPES: Mapping[torch.dtype, str] = {
    torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
    torch.int8: "Char", torch.uint8: "Byte", torch.int16: "Short", torch.int32: "Int", torch.int64: "Long",
    torch.uint16: "UInt16", torch.uint32: "UInt32", torch.uint64: "UInt64", torch.bool: "Bool",
    torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
    torch.float8_e4m3fn: "Float8_e4m3fn", torch.float8_e5m2: "Float8_e5m2",
}  # fmt: skip
"""torch's name of each dtype in C++. Source: torch/headeronly/core/ScalarType.h."""

_STEPS: Mapping[Op, str] = {
    Op.SIZE: "{t}.sizes()[{b}]",
    Op.STRIDE: "{t}.strides()[{b}]",
    Op.NUMEL: "{t}.numel()",
    Op.OFFSET: "Call::offset({t})",
    Op.ADDRESS: "Call::address({t})",
    Op.CONTIGUOUS: "{t}.is_contiguous()",
    Op.INT_ARGUMENT: "{t}",
    Op.FLOAT_ARGUMENT: "{t}",
    Op.MULTIPROCESSORS: "call.multiprocessors()",
    Op.ADD: "exact.add({x}, {y})",
    Op.SUB: "exact.sub({x}, {y})",
    Op.MUL: "exact.mul({x}, {y})",
    Op.FLOORDIV: "exact.floordiv({x}, {y})",
    Op.MOD: "exact.mod({x}, {y})",
    Op.NEG: "exact.neg({x})",
    Op.ABS: "exact.abs({x})",
    Op.MIN: "{x} < {y} ? {x} : {y}",
    Op.MAX: "{x} > {y} ? {x} : {y}",
    Op.LSHIFT: "exact.shl({x}, {y})",
    Op.RSHIFT: "exact.shr({x}, {y})",
    Op.AND: "{x} & {y}",
    Op.OR: "{x} | {y}",
    Op.XOR: "{x} ^ {y}",
    Op.EQ: "{x} == {y}",
    Op.NE: "{x} != {y}",
    Op.LT: "{x} < {y}",
    Op.LE: "{x} <= {y}",
    Op.GT: "{x} > {y}",
    Op.GE: "{x} >= {y}",
    Op.TO_FLOAT: "exact.to_float({x})",
    Op.FADD: "{x} + {y}",
    Op.FSUB: "{x} - {y}",
    Op.FMUL: "{x} * {y}",
    Op.FDIV: "exact.fdiv({x}, {y})",
    Op.FNEG: "-{x}",
    Op.FABS: "std::fabs({x})",
    Op.FEQ: "{x} == {y}",
    Op.FNE: "{x} != {y}",
    Op.FLT: "{x} < {y}",
    Op.FLE: "{x} <= {y}",
    Op.FGT: "{x} > {y}",
    Op.FGE: "{x} >= {y}",
    Op.SAME: "same_bits({x}, {y})",
    Op.TRUNC: "exact.whole(std::trunc({x}))",
    Op.FLOOR: "exact.whole(std::floor({x}))",
    Op.CEIL: "exact.whole(std::ceil({x}))",
}
_DOUBLES = {
    Op.FLOAT, Op.FLOAT_ARGUMENT, Op.TO_FLOAT, Op.FADD, Op.FSUB, Op.FMUL, Op.FDIV, Op.FNEG, Op.FABS,
}  # fmt: skip

_WIDTHS: Mapping[FieldKind, str] = {
    FieldKind.INT8: "int8_t", FieldKind.INT16: "int16_t", FieldKind.INT32: "int32_t",
    FieldKind.INT64: "int64_t", FieldKind.UINT8: "uint8_t", FieldKind.UINT16: "uint16_t",
    FieldKind.UINT32: "uint32_t", FieldKind.UINT64: "uint64_t",
    FieldKind.FLOAT32: "float", FieldKind.FLOAT64: "double",
}  # fmt: skip
_ALWAYS_FIT = {FieldKind.INT64, FieldKind.FLOAT64}


def text(value: str | bytes) -> str:
    """A literal of these bytes, in lines."""
    data = value.encode() if isinstance(value, str) else value
    lines = ["".join(map(_character, data[at : at + 64])) for at in range(0, len(data), 64)] or [""]
    return "\n    ".join(f'"{line}"' for line in lines)


def _character(byte: int) -> str:
    plain = 32 <= byte < 127 and byte not in b'"\\?'
    return chr(byte) if plain else f"\\{byte:03o}"


def key_check(key: Key, value: str, *, optional: bool) -> str:
    """The condition under which an argument is of a key's kind; empty where C++'s types say so."""
    held = f"*{value}" if optional else value
    found = f"{value}.has_value()" if optional else ""
    if isinstance(key, ConstantKey):
        if key.value is None:
            return f"!{value}.has_value()"
        rest = f"{held} == {_constant(key.value)}"
    elif isinstance(key, TensorKey):
        rest = f"Call::is({held}, ScalarType::{DTYPES[key.dtype]}, {key.dim})"
    else:
        rest = ""
    return " && ".join(filter(None, [found, rest]))


def _constant(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, torch.dtype):
        return f"ScalarType::{DTYPES[value]}"
    return text(str(value))


class Names:
    """What C++ calls the values of a plan's steps: numbers that never change are written as they are."""

    def __init__(self, steps: Sequence[Instruction]) -> None:
        self._steps = steps

    def __getitem__(self, number: int) -> str:
        instruction = self._steps[number]
        if instruction.op is Op.INT:
            return "INT64_MIN" if instruction.value == INT_MIN else str(instruction.value)
        return _double(float(instruction.value)) if instruction.op is Op.FLOAT else f"v{number}"

    def all(self, numbers: Sequence[int]) -> str:
        """Several, as a list."""
        return ", ".join(map(self.__getitem__, numbers))

    def lines(self, arguments: Sequence[str]) -> Iterator[tuple[int, str]]:
        """The lines that compute the steps, each with its number."""
        for number, instruction in enumerate(self._steps):
            if instruction.op not in (Op.INT, Op.FLOAT):
                kind = "double" if instruction.op in _DOUBLES else "int64_t"
                yield number, f"const {kind} v{number} = {self._value(instruction, arguments)};"

    def _value(self, instruction: Instruction, arguments: Sequence[str]) -> str:
        if instruction.op < Op.ADD:
            return _STEPS[instruction.op].format(t=arguments[instruction.a], b=instruction.b)
        return _STEPS[instruction.op].format(x=self[instruction.a], y=self[instruction.b])


def _double(value: float) -> str:
    if math.isnan(value):
        return f"std::copysign(NAN, {math.copysign(1, value)})"
    if math.isinf(value):
        return "-INFINITY" if value < 0 else "INFINITY"
    return repr(value) if value else "-0.0" if math.copysign(1, value) < 0 else "0.0"


def demands(launch: Launch, names: Names) -> Iterator[str]:
    """What a launch asks of the steps, for the plan to fit."""
    yield f"fits_grid({names.all(launch.grid)})"
    if launch.cluster is not None:
        for size, each in zip(launch.grid, launch.cluster, strict=True):
            if each > 1:
                yield f"{names[size]} % {each} == 0"
    for field in launch.fields:
        if field.kind is FieldKind.FLOAT32:
            yield f"fits_float({names[field.step]})"
        elif field.kind in _WIDTHS and field.kind not in _ALWAYS_FIT:
            yield f"fits<{_WIDTHS[field.kind]}>({names[field.step]})"


def allocation(made: Allocation, names: Names) -> str:
    """The line that makes memory."""
    sizes, strides = names.all(made.sizes), names.all(made.strides)
    zeroed = str(made.zeroed).lower()
    return f"call.allocate(ScalarType::{DTYPES[made.dtype]}, {{{sizes}}}, {{{strides}}}, {zeroed});"


def launch_lines(
    name: str, launch: Launch, kernel: str, arguments: Sequence[str], names: Names
) -> Iterator[str]:
    """The lines that fill in a launch's parameters, under this name, and launch."""
    yield f"// {launch.kernel}"
    constant = f"({text(launch.parameters)})" if any(launch.parameters) else ""
    yield f"Parameters<{len(launch.parameters)}> {name}{constant};"
    yield from (_field(name, field, arguments, names) for field in launch.fields)
    pointers = ", ".join(f"{name}.data + {offset}" for offset in launch.offsets)
    yield f"void* {name}_at[] = {{{pointers or 'nullptr'}}};"
    x, y, z = launch.cluster or (0, 0, 0)
    block = ", ".join(map(str, launch.block))
    flags = ", ".join(str(flag).lower() for flag in (launch.cooperative, launch.programmatic))
    shape = f"{{{{{block}}}, {launch.smem_bytes}, {{{x}, {y}, {z}}}, {flags}}}"
    yield f"call.launch({kernel}, {shape}, {names.all(launch.grid)}, {name}_at);"


def _field(name: str, field: Field, arguments: Sequence[str], names: Names) -> str:
    if field.kind in _WIDTHS:
        width = _WIDTHS[field.kind]
        return f"{name}.put({field.offset}, static_cast<{width}>({names[field.step]}));"
    given = field.kind is FieldKind.ARGUMENT_ADDRESS
    source = arguments[field.source] if given else f"call.made[{field.source}]"
    more = f", {names[field.step]}" if field.step >= 0 else ""
    return f"{name}.put_address({field.offset}, {source}{more});"
