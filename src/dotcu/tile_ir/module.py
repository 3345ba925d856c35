"""Tile IR as values: types, operations with their source lines, functions and a module."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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


class SourceLine(NamedTuple):
    """A place in the source: the file as the compiler names it, line and column from 1."""

    file: str
    line: int
    column: int

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
    lines: tuple[SourceLine, ...] = ()

    @property
    def inputs(self) -> tuple[int, ...]:
        """The numbers of all operands' values, in order."""
        return tuple(value for group in self.operands.values() for value in group)

    @property
    def line(self) -> SourceLine | None:
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
    lines: tuple[SourceLine, ...] = ()

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
