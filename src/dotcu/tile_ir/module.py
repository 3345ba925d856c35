"""Tile IR as values: types, operations with their source lines, functions and a module; their text, and
what a kernel promises of its parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

DYNAMIC = -(1 << 63)
"""An extent or a stride that is known at run time only."""

ELEMENT_BITS: Mapping[str, int] = {
    "i1": 1, "i4": 4, "i8": 8, "i16": 16, "i32": 32, "i64": 64,
    "f16": 16, "bf16": 16, "f32": 32, "tf32": 32, "f64": 64,
    "f8E4M3FN": 8, "f8E5M2": 8, "f8E8M0FNU": 8, "fnv8E5M3FNU": 8, "f4E2M1FN": 4,
}  # fmt: skip
"""Bits of each element type."""


@dataclass(frozen=True, kw_only=True)
class TileType:
    """The type of a value.

    Attributes:
        kind: "scalar" (an element), "pointer", "tile", "tensor_view", "partition_view", "strided_view",
            "gather_scatter_view", "token" or "function".
        element: The element type, such as "bf16"; for a tile of pointers `ptr<bf16>`.
        shape: Extents of a tile or a tensor view; of the tiles of other views.
        strides: Of a tensor view, in elements.
        view: The tensor view that another view is of.
        dim_map: For each dimension of a view's tiles that of its tensor.
        padding: What a view gives outside its tensor, such as "zero"; empty if that is not specified.
        steps: Elements of the tensor from one tile to the next, by dimension, of a strided view.
        sparse_dim: The dimension of a gather-scatter view whose indices are a list.
        inputs: Types of a function's parameters.
        outputs: Types of a function's results.
    """

    kind: str
    element: str = ""
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    view: TileType | None = None
    dim_map: tuple[int, ...] = ()
    padding: str = ""
    steps: tuple[int, ...] = ()
    sparse_dim: int = 0
    inputs: tuple[TileType, ...] = ()
    outputs: tuple[TileType, ...] = ()

    @property
    def is_pointer(self) -> bool:
        """True if its elements are pointers."""
        return self.element.startswith("ptr<")

    @property
    def pointee(self) -> str:
        """The element type that its pointers point to."""
        return self.element[4:-1]

    @property
    def size(self) -> int:
        """The number of a tile's elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return 8 if self.is_pointer else max(1, ELEMENT_BITS[self.element] // 8)

    def __str__(self) -> str:
        return _written(self)


def _extents(values: tuple[int, ...]) -> Iterator[str]:
    return ("?" if value == DYNAMIC else str(value) for value in values)


def _written(type_: TileType) -> str:
    if type_.kind in ("scalar", "pointer"):
        return type_.element
    if type_.kind == "tile":
        return f"tile<{'x'.join((*_extents(type_.shape), type_.element))}>"
    if type_.kind == "tensor_view":
        shape = "x".join((*_extents(type_.shape), type_.element))
        return f"tensor_view<{shape}, strides=[{','.join(_extents(type_.strides))}]>"
    if type_.kind == "function":
        return f"({', '.join(map(str, type_.inputs))}) -> ({', '.join(map(str, type_.outputs))})"
    if type_.view is None:
        return type_.kind
    parts = [f"tile=({'x'.join(map(str, type_.shape))})"]
    if type_.steps:
        parts.append(f"traversal_strides=[{','.join(map(str, type_.steps))}]")
    if type_.padding:
        parts.append(f"padding_value = {type_.padding}")
    parts.append(str(type_.view))
    if type_.kind == "gather_scatter_view":
        parts.append(f"sparse_dim={type_.sparse_dim}")
    elif type_.dim_map != tuple(range(len(type_.dim_map))):
        parts.append(f"dim_map=[{', '.join(map(str, type_.dim_map))}]")
    return f"{type_.kind}<{', '.join(parts)}>"


class SourceLocation(NamedTuple):
    """A line of a source, from 1, in a file as the compiler or the user names it."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Assumption(NamedTuple):
    """The promise of an `assume` operation about its value.

    Attributes:
        kind: "div_by", "bounded" or "same_elements".
        divisor: For div_by: elements (bytes of a pointer) are multiples of it.
        every: For div_by: only each such element is, those between count up by one; None: all are.
        along: The dimension of `every`.
        low: For bounded: the least value; None: any.
        high: For bounded: the greatest value; None: any.
        groups: For same_elements: how many neighbours are equal, by dimension.
    """

    kind: str
    divisor: int = 1
    every: int | None = None
    along: int | None = None
    low: int | None = None
    high: int | None = None
    groups: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """The promise in words: `a multiple of 8`."""
        if self.kind == "div_by":
            each = f" every {self.every} elements" if self.every is not None else ""
            return f"a multiple of {self.divisor}{each}"
        if self.kind == "same_elements":
            return f"equal elements in groups of {list(self.groups)}"
        bounds = [f"at least {self.low}"] * (self.low is not None)
        return " and ".join(bounds + [f"at most {self.high}"] * (self.high is not None))

    def __str__(self) -> str:
        if self.kind == "div_by":
            every = f", every {self.every} along {self.along}" if self.every is not None else ""
            return f"div_by<{self.divisor}{every}>"
        if self.kind == "bounded":
            low, high = ("?" if bound is None else bound for bound in (self.low, self.high))
            return f"bounded<{low}, {high}>"
        return f"same_elements<{list(self.groups)}>"


class TileConstant(NamedTuple):
    """A constant: its type, its bytes (of one element where all are equal), and whether it may change."""

    type: TileType
    data: bytes
    read_only: bool = True


class Region(NamedTuple):
    """Operations that run one after the other, and the values that they are started with."""

    arguments: tuple[int, ...]
    operations: tuple[TileOperation, ...]


@dataclass(frozen=True, kw_only=True)
class TileOperation:
    """One operation.

    Attributes:
        name: Its name in the dialect, such as "addf".
        operands: The numbers of its operands' values, by the operand's name; none where one is missing.
        results: The numbers of its results' values.
        attributes: By name: a word of an enumeration, an integer, a string, a `Assumption`, a `TileConstant`,
            hints; an attribute that is missing is not there.
        regions: The blocks that it runs.
        lines: Where it was written: the innermost place first, then what that was called from.
    """

    name: str
    operands: Mapping[str, tuple[int, ...]]
    results: tuple[int, ...]
    attributes: Mapping[str, Any]
    regions: tuple[Region, ...] = ()
    lines: tuple[SourceLocation, ...] = ()

    @property
    def inputs(self) -> tuple[int, ...]:
        """The numbers of all operands' values, in order."""
        return tuple(value for group in self.operands.values() for value in group)

    @property
    def line(self) -> SourceLocation | None:
        """The innermost line that is not one of the compiler's own header; None if no line is known."""
        own = (place for place in self.lines if not place.file.endswith(_HEADERS))
        return next(own, self.lines[-1] if self.lines else None)

    def one(self, name: str) -> int | None:
        """Return the number of an operand's value, None if the operand is missing."""
        group = self.operands[name]
        return group[0] if group else None


_HEADERS = ("cuda_tile.h",)


@dataclass(frozen=True, kw_only=True)
class TileFunction:
    """A kernel.

    Attributes:
        name: Its mangled name.
        types: The type of each value, by its number; the parameters come first.
        body: Its operations; the block's arguments are the parameters.
        hints: For each architecture, or "default", its hints, such as `num_worker_warps_per_cta`.
        lines: Where it was written, as of an operation.
    """

    name: str
    types: tuple[TileType, ...]
    body: Region
    hints: Mapping[str, Mapping[str, int | bool]]
    lines: tuple[SourceLocation, ...] = ()

    @property
    def parameters(self) -> tuple[TileType, ...]:
        """The types of its parameters."""
        return tuple(self.types[value] for value in self.body.arguments)

    def operations(self) -> Iterator[TileOperation]:
        """Yield all operations, those of regions after the one that holds them."""
        pending = [self.body]
        while pending:
            for operation in pending.pop().operations:
                yield operation
                pending += operation.regions


@dataclass(frozen=True, kw_only=True)
class TileModule:
    """The kernels and variables of one compilation.

    Attributes:
        version: Of the format.
        producer: The compiler, as it calls itself.
        functions: The kernels, by mangled name.
        variables: The variables' values when the module is loaded, by name.
    """

    version: tuple[int, int]
    producer: str
    functions: Mapping[str, TileFunction]
    variables: Mapping[str, TileConstant] = field(default_factory=dict)


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
    line: SourceLocation | None = None

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


ValueOrigin = tuple[int, int, int]


def _traced(
    operation: TileOperation, origins: Mapping[int, ValueOrigin], constants: Mapping[int, int]
) -> ValueOrigin | None:
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
