"""Tile IR as text, one operation a line, with source lines beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dotcu.tile_ir.module import Region, TileConstant, TileFunction, TileModule, TileOperation

_COLUMN = 96
_DTYPES = {"f16": "f2", "f32": "f4", "f64": "f8", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8"}


def text(module: TileModule) -> str:
    """Return a module as text: its kernels, each operation with the source line that it came from."""
    lines: list[str] = []
    for name, value in module.variables.items():
        constant = "constant " if value.read_only else ""
        lines.append(f"global {constant}@{name} = {_literal(value)} : {value.type}")
    for function in module.functions.values():
        lines += ["", *_function(function)]
    return "\n".join(lines).strip() + "\n"


def _function(function: TileFunction) -> Iterator[str]:
    arguments = ", ".join(f"%{v}: {function.types[v]}" for v in function.body.arguments)
    hints = f" hints = {_attribute(function.hints)}" if function.hints else ""
    yield f"entry @{function.name}({arguments}){hints} {{"
    yield from _operations(function, function.body, "  ")
    yield "}"


def _operations(function: TileFunction, block: Region, indent: str) -> Iterator[str]:
    for operation in block.operations:
        head = indent + describe_operation(operation, function)
        if not operation.regions:
            yield _placed(head, operation)
            continue
        for at, region in enumerate(operation.regions):
            arguments = ", ".join(f"%{v}: {function.types[v]}" for v in region.arguments)
            opening = f"({arguments}) {{" if arguments else "{"
            yield _placed(f"{head} {opening}", operation) if at == 0 else f"{indent}}} else {opening}"
            yield from _operations(function, region, indent + "  ")
        yield indent + "}"


def describe_operation(operation: TileOperation, function: TileFunction) -> str:
    """Return an operation as text, without its regions: `%7 = addi %5, %6 overflow=none : tile<i32>`."""
    results = ", ".join(f"%{value}" for value in operation.results)
    parts = [f"{results} = {operation.name}" if results else operation.name]
    if groups := _operands(operation):
        parts.append(groups)
    parts += [f"{name}={_attribute(value)}" for name, value in operation.attributes.items()]
    shown = operation.results or operation.inputs
    types = list(dict.fromkeys(str(function.types[value]) for value in shown))
    return " ".join(parts) + (f" : {', '.join(types)}" if types else "")


def _operands(operation: TileOperation) -> str:
    shown = []
    for name, values in operation.operands.items():
        if not values:
            continue
        numbers = ", ".join(f"%{value}" for value in values)
        if name in ("index", "dynamicShape", "dynamicStrides", "indices", "initValues"):
            numbers = f"{name}[{numbers}]"
        elif name in ("mask", "paddingValue", "token"):
            numbers = f"{name}={numbers}"
        shown.append(numbers)
    return ", ".join(shown)


def _placed(line: str, operation: TileOperation) -> str:
    place = operation.line
    return f"{line:<{_COLUMN}}  // {place.file.rsplit('/', 1)[-1]}:{place.line}" if place else line


def _attribute(value: Any) -> str:
    if isinstance(value, TileConstant):
        return _literal(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_attribute(each)}" for name, each in value.items()) + "}"
    if type(value) is tuple:
        return f"[{', '.join(map(_attribute, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, str) and not value.isidentifier() else str(value)


def _literal(literal: TileConstant) -> str:
    type_, data, _ = literal
    if type_.element == "i1":
        return str(any(data)).lower() if len(data) == 1 else f"0x{data.hex()}"
    if len(data) == type_.itemsize and type_.element in _DTYPES:
        return str(np.frombuffer(data, "<" + _DTYPES[type_.element])[0])
    if type_.element == "bf16" and len(data) == 2:
        return str(np.frombuffer(b"\0\0" + data, "<f4")[0])
    shown = data[:32].hex()
    return f"0x{shown}" + ("..." if len(data) > 32 else "")
