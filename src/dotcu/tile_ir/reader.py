"""Tile IR bytecode to a `TileModule`.

Only what the file holds is read: no count is believed before there are bytes for it, and types and regions
nest to a limit, so that a damaged file is refused and never crashes or hangs its reader.

Source: NVIDIA/cuda-tile, BytecodeReader.cpp, BytecodeReaderGen.cpp and BytecodeTypeOpcodes.td at 13.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from dotcu.errors import TileCodeError
from dotcu.tile_ir.module import (
    ELEMENT_BITS,
    Assumption,
    Region,
    SourceLocation,
    TileConstant,
    TileFunction,
    TileModule,
    TileOperation,
    TileType,
)
from dotcu.tile_ir.table import ENUMS, NOT_READ, OPERATIONS, TERMINATORS, BytecodeVersion, OperationForm

MAGIC = b"\x7fTileIR\0"
NEWEST_READ: BytecodeVersion = (13, 5)
OLDEST_READ: BytecodeVersion = (13, 1)

_STRINGS, _FUNCTIONS, _DEBUG, _CONSTANTS, _TYPES, _GLOBALS, _PRODUCER = range(1, 8)
_SECTIONS = {
    _STRINGS: "string", _FUNCTIONS: "function", _DEBUG: "debug", _CONSTANTS: "constant", _TYPES: "type",
    _GLOBALS: "global", _PRODUCER: "producer",
}  # fmt: skip
_UNIFIED: BytecodeVersion = (13, 3)  # one field of flags for what may be missing of a type
_TYPE_FLAGS: BytecodeVersion = (13, 4)  # flags of types of pointers and tensor views
_WHOLE_SIGNATURE: BytecodeVersion = (13, 5)  # hints and attributes of parameters are always there
_DEEPEST = 64
_MAX_TILE_ELEMENTS = 1 << 24  # max_tile_elements of cuda_tile.h
_KERNEL, _HINTED = 2, 4

_SCALARS = {
    0: "i1", 1: "i8", 2: "i16", 3: "i32", 4: "i64", 5: "f16", 6: "bf16", 7: "f32", 8: "tf32", 9: "f64",
    10: "f8E4M3FN", 11: "f8E5M2", 18: "f8E8M0FNU", 19: "f4E2M1FN", 22: "i4", 130: "fnv8E5M3FNU",
}  # fmt: skip
_POINTER, _TILE, _TENSOR, _PARTITION, _FUNCTION, _TOKEN = 12, 13, 14, 15, 16, 17
_GATHER, _STRIDED = 20, 21
_WIDTHS = {"i32": 32, "i64": 64}


def read(data: bytes) -> TileModule:
    """Read a Tile IR file.

    Raises:
        TileCodeError: The bytes are no Tile IR, damaged, or of a version that this reader does not know.
    """
    return _File(data).module()


def _refuse(what: str) -> NoReturn:
    raise TileCodeError(
        f"The Tile IR cannot be read: {what}.\n"
        f"dotcu reads whole files of versions {_dotted(OLDEST_READ)} to {_dotted(NEWEST_READ)}.\n"
        "Compile the source again; `dotcu doctor` shows the compiler's version."
    )


def _dotted(version: BytecodeVersion) -> str:
    return ".".join(map(str, version))


class _Cursor:
    """A place in bytes; each read moves it on, and refuses to go past the end."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, count: int) -> bytes:
        if count > self.left:
            _refuse(f"it ends at byte {self.at + self.left}, {count - self.left} bytes before it should")
        self.at += count
        return self.data[self.at - count : self.at]

    def byte(self) -> int:
        return self.take(1)[0]

    def varint(self) -> int:
        value = shift = 0
        data, at = self.data, self.at
        while True:
            if at >= len(data):
                _refuse(f"it ends in a number at byte {at}")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at = at
                return value & 0xFFFF_FFFF_FFFF_FFFF
            shift += 7
            if shift > 63:
                _refuse(f"a number at byte {self.at} has more than 64 bits")

    def signed(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def count(self) -> int:
        """Read a number of things that take at least a byte each."""
        value = self.varint()
        if value > self.left:
            _refuse(f"{value} entries are announced where {self.left} bytes are left")
        return value

    def skip_to(self, alignment: int) -> None:
        self.take(-self.at % alignment)

    def integers(self, width: int, count: int | None = None) -> tuple[int, ...]:
        count = self.varint() if count is None else count
        if count * width > self.left:
            _refuse(f"{count} numbers are announced where {self.left} bytes are left")
        data = self.take(count * width)
        return tuple(
            int.from_bytes(data[at : at + width], "little", signed=True) for at in range(0, len(data), width)
        )

    def offsets(self, width: int, count: int) -> tuple[int, ...]:
        return tuple(value & ((1 << (8 * width)) - 1) for value in self.integers(width, count))

    def pieces(self, width: int) -> list[bytes]:
        """Read a table: a count, where each piece begins, and the pieces."""
        count = self.varint()
        if not count:
            return []
        self.skip_to(width)
        starts = self.offsets(width, count)
        data = self.data[self.at :]
        ends = (*starts[1:], len(data))
        for start, end in zip(starts, ends, strict=True):
            if not start <= end <= len(data):
                _refuse("a table's entries lie outside it or out of order")
        return [data[start:end] for start, end in zip(starts, ends, strict=True)]


class _File:
    """A file while it is read: its tables, and what was made of them so far."""

    def __init__(self, data: bytes) -> None:
        if data[: len(MAGIC)] != MAGIC:
            _refuse("it does not begin as Tile IR does")
        cursor = _Cursor(data, len(MAGIC))
        self.version = (cursor.byte(), cursor.byte())
        cursor.take(2)
        if not OLDEST_READ <= self.version <= NEWEST_READ:
            _refuse(f"it is of version {_dotted(self.version)}")
        sections = self._sections(cursor)
        for number in (_STRINGS, _FUNCTIONS):
            if number not in sections:
                _refuse(f"it has no {_SECTIONS[number]} section")
        self.sections = sections
        self.strings = _Cursor(sections[_STRINGS]).pieces(4)
        self.type_pieces = _Cursor(sections.get(_TYPES, b"\0")).pieces(4)
        self.constants = _Cursor(sections.get(_CONSTANTS, b"\0")).pieces(8)
        self.types: dict[int, TileType] = {}
        self.places: dict[int, tuple[SourceLocation, ...]] = {}
        self.place_indices, self.place_starts, self.place_pieces = self._debug()
        self._open: set[object] = set()
        self._depth = 0

    def _sections(self, cursor: _Cursor) -> dict[int, bytes]:
        sections: dict[int, bytes] = {}
        while True:
            head = cursor.byte()
            number = head & 0x7F
            if number == 0:
                if cursor.left:
                    _refuse(f"{cursor.left} bytes follow its end")
                return sections
            if number not in _SECTIONS or number in sections:
                _refuse(f"section {number} is unknown or there twice")
            size = cursor.varint()
            if head & 0x80:
                alignment = cursor.varint()
                if alignment == 0 or alignment & (alignment - 1) or alignment > len(cursor.data):
                    _refuse(f"a section is aligned to {alignment} bytes")
                cursor.skip_to(alignment)
            sections[number] = cursor.take(size)

    def module(self) -> TileModule:
        producer = ""
        if _PRODUCER in self.sections:
            producer = self.string(_Cursor(self.sections[_PRODUCER]).varint())
        return TileModule(
            version=self.version,
            producer=producer,
            variables=dict(self._variables()),
            functions={function.name: function for function in self._functions()},
        )

    def string(self, index: int) -> str:
        if index >= len(self.strings):
            _refuse(f"there is no string {index}")
        return self.strings[index].decode("utf-8", "replace").rstrip("\0")  # literals have their end

    # Types

    def type(self, index: int) -> TileType:
        """Return a type by its number."""
        if index not in self.types:
            if index >= len(self.type_pieces) or len(self._open) > _DEEPEST:
                _refuse(f"there is no type {index}, or it is nested too deeply")
            if ("type", index) in self._open:
                _refuse(f"the type {index} is made of itself")
            self._open.add(("type", index))
            self.types[index] = self._read_type(_Cursor(self.type_pieces[index]))
            self._open.discard(("type", index))
        return self.types[index]

    def _read_type(self, cursor: _Cursor) -> TileType:
        tag = cursor.varint()
        if tag in _SCALARS:
            return TileType(kind="scalar", element=_SCALARS[tag])
        if tag == _TOKEN:
            return TileType(kind="token")
        if tag == _POINTER:
            self._plain(cursor)
            return TileType(kind="pointer", element=f"ptr<{self._of(cursor, 'scalar').element}>")
        if tag == _TILE:
            element, shape = self._of(cursor, "scalar", "pointer").element, cursor.integers(8)
            self._check_shape(shape)
            return TileType(kind="tile", element=element, shape=shape)
        if tag == _TENSOR:
            self._plain(cursor)
            element = self._of(cursor, "scalar").element
            shape, strides = cursor.integers(8), cursor.integers(8)
            if len(shape) != len(strides):
                _refuse("a tensor view has not as many strides as extents")
            return TileType(kind="tensor_view", element=element, shape=shape, strides=strides)
        if tag == _FUNCTION:
            inputs = tuple(self.type(cursor.varint()) for _ in range(cursor.count()))
            outputs = tuple(self.type(cursor.varint()) for _ in range(cursor.count()))
            return TileType(kind="function", inputs=inputs, outputs=outputs)
        if tag in (_PARTITION, _STRIDED, _GATHER):
            return self._view(tag, cursor)
        _refuse(f"there is no kind of type {tag}")

    def _plain(self, cursor: _Cursor) -> None:
        """Read the flags of a pointer's or a tensor view's type, which say that nothing is special of it."""
        if self.version >= _TYPE_FLAGS and cursor.varint():
            _refuse("a pointer or a tensor view has properties that dotcu does not know")

    def _view(self, tag: int, cursor: _Cursor) -> TileType:
        flags = cursor.varint() if self.version >= _UNIFIED else None
        shape = cursor.integers(4)
        self._check_shape(shape)
        steps = cursor.integers(4) if tag == _STRIDED else ()
        view, sparse, dim_map = self._of(cursor, "tensor_view"), 0, tuple(range(len(shape)))
        if tag == _GATHER:
            sparse = cursor.varint()
        else:
            dim_map = cursor.integers(4)
        rank = len(view.shape)
        if sorted(dim_map) != list(range(rank)) or len(shape) != rank or sparse >= max(rank, 1):
            _refuse("the dimensions of a view do not fit its tensor")
        if steps and (len(steps) != rank or min(steps) < 1):
            _refuse("the strides of a view do not fit its tensor")
        padded = bool(cursor.byte() if flags is None else flags & 1)
        padding = self.word("padding", cursor.varint()) if padded else ""
        kind = {_PARTITION: "partition_view", _STRIDED: "strided_view", _GATHER: "gather_scatter_view"}[tag]
        return TileType(
            kind=kind,
            element=view.element,
            shape=shape,
            view=view,
            dim_map=dim_map,
            padding=padding,
            steps=steps,
            sparse_dim=sparse,
        )

    def _of(self, cursor: _Cursor, *kinds: str) -> TileType:
        type_ = self.type(cursor.varint())
        if type_.kind not in kinds:
            _refuse(f"a type is made of {type_}, where {' or '.join(kinds)} has to be")
        return type_

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        total = 1
        for extent in shape:
            total *= extent
            if extent < 1 or extent & (extent - 1) or total > _MAX_TILE_ELEMENTS:
                _refuse(f"a tile has the shape {list(shape)}")

    @staticmethod
    def word(kind: str, number: int) -> str:
        """Return the word for a number of an enumeration."""
        words = ENUMS[kind]
        if number >= len(words):
            _refuse(f"{number} is no {kind}")
        return words[number]

    def literal(self, type_: TileType, index: int) -> TileConstant:
        """Return a constant of a type by its number."""
        if index >= len(self.constants) or type_.kind != "tile" or type_.element not in ELEMENT_BITS:
            _refuse(f"there is no constant {index} of type {type_}")
        cursor = _Cursor(self.constants[index])
        data = cursor.take(cursor.varint())
        if len(data) not in (type_.itemsize, type_.size * type_.itemsize, -(-type_.size // 8)):
            _refuse(f"a constant of {type_} has {len(data)} bytes")
        return TileConstant(type_, data)

    # Source lines

    def _debug(self) -> tuple[tuple[int, ...], tuple[int, ...], list[bytes]]:
        if _DEBUG not in self.sections:
            return (), (), []
        cursor = _Cursor(self.sections[_DEBUG])
        count = cursor.varint()
        cursor.skip_to(4)
        starts = cursor.offsets(4, count)
        count = cursor.varint()
        cursor.skip_to(8)
        indices = cursor.offsets(8, count)
        return indices, starts, cursor.pieces(4)

    def locations(self, number: int) -> Iterator[tuple[SourceLocation, ...]]:
        """Yield the places of a function and of its operations one after the other, without end."""
        if number == 0 or number - 1 >= len(self.place_starts):
            while True:
                yield ()
        for at in range(self.place_starts[number - 1], len(self.place_indices)):
            yield self.place(self.place_indices[at])
        while True:
            yield ()

    def place(self, index: int) -> tuple[SourceLocation, ...]:
        """Return the places that a number stands for, innermost first; 0 stands for no place."""
        if index == 0 or index > len(self.place_pieces):
            return ()
        if index not in self.places:
            if ("place", index) in self._open or len(self._open) > _DEEPEST:
                return ()
            self._open.add(("place", index))
            self.places[index] = self._read_place(_Cursor(self.place_pieces[index - 1]))
            self._open.discard(("place", index))
        return self.places[index]

    def _read_place(self, cursor: _Cursor) -> tuple[SourceLocation, ...]:
        tag = cursor.varint()
        if tag == 4:  # a line of a scope
            scope = cursor.varint()
            name, line = self.string(cursor.varint()), cursor.varint()  # and a column
            return (SourceLocation(self._path(scope, name), line),)
        if tag == 6:  # a call
            callee, caller = self.place(cursor.varint()), self.place(cursor.varint())
            return (callee + caller)[:_DEEPEST]
        return ()

    def _path(self, scope: int, name: str) -> str:
        """Return the file that a line names, as the file of its scope where that is the same."""
        for _ in range(_DEEPEST):
            if not 0 < scope <= len(self.place_pieces):
                return name
            cursor = _Cursor(self.place_pieces[scope - 1])
            tag = cursor.varint()
            if tag == 2:
                file, folder = self.string(cursor.varint()), self.string(cursor.varint())
                return file if file == name or not folder else name
            if tag not in (1, 3, 5):
                return name
            if tag == 3:
                cursor.varint()
            scope = cursor.varint()
        return name

    # Attributes

    def attribute(self, cursor: _Cursor, kind: str, result: TileType | None) -> Any:
        """Read an attribute of an operation.

        Args:
            cursor: Where it is.
            kind: How it is written.
            result: The type of the operation's first result.
        """
        if kind in ENUMS:
            return self.word(kind, cursor.varint())
        if kind in _WIDTHS:
            return self._integer(cursor, _WIDTHS[kind])
        if kind == "dense":
            if result is None:
                _refuse("a constant has no type")
            return self.literal(result, cursor.varint())
        readers: Mapping[str, Callable[[], Any]] = {
            "unit": lambda: True,
            "bool": lambda: bool(cursor.byte()),
            "bools": lambda: tuple(value != 0 for value in cursor.integers(1)),
            "string": lambda: self.string(cursor.varint()),
            "i32s": lambda: cursor.integers(4),
            "array": lambda: self._array(cursor),
            "hints": lambda: self._dictionary(cursor),
            "predicated": lambda: self.self_contained(cursor),
        }
        return readers[kind]()

    def _integer(self, cursor: _Cursor, width: int) -> int:
        value = cursor.varint()
        if width == 1:
            return value & 1
        return value - (1 << width) if value >> (width - 1) & 1 else value

    def _array(self, cursor: _Cursor) -> tuple[Any, ...]:
        return tuple(self.self_contained(cursor) for _ in range(cursor.count()))

    def _dictionary(self, cursor: _Cursor) -> dict[str, Any]:
        names_and_values = {}
        for _ in range(cursor.count()):
            name = self.string(cursor.varint())
            names_and_values[name] = self.self_contained(cursor)
        return names_and_values

    def self_contained(self, cursor: _Cursor) -> Any:
        """Read an attribute that says itself of which kind it is."""
        readers: Mapping[int, Callable[[_Cursor], Any]] = {
            1: self._typed_integer, 2: self._float, 3: lambda _: bool(cursor.byte()),
            4: lambda _: str(self.type(cursor.varint())),
            5: lambda _: self.string(cursor.varint()), 6: self._array, 7: self._dense,
            8: self._divisible, 9: lambda _: Assumption("same_elements", groups=cursor.integers(8)),
            10: self._dictionary, 11: self._dictionary, 12: self._bounded,
        }  # fmt: skip
        tag = cursor.varint()
        if tag not in readers or self._depth > _DEEPEST:
            _refuse(f"there is no kind of attribute {tag}, or it is nested too deeply")
        self._depth += 1
        value = readers[tag](cursor)
        self._depth -= 1
        return value

    def _typed_integer(self, cursor: _Cursor) -> int:
        type_ = self.type(cursor.varint())
        if type_.kind != "scalar" or not type_.element.startswith("i"):
            _refuse(f"an integer is of type {type_}")
        return self._integer(cursor, ELEMENT_BITS[type_.element])

    def _float(self, cursor: _Cursor) -> TileConstant:
        type_ = self.type(cursor.varint())
        if type_.kind != "scalar" or type_.element.startswith("i"):
            _refuse(f"a number is of type {type_}")
        bits = ELEMENT_BITS[type_.element]
        value = cursor.byte() if bits <= 8 else cursor.signed() & ((1 << bits) - 1)
        tile = TileType(kind="tile", element=type_.element)
        return TileConstant(tile, value.to_bytes(max(1, bits // 8), "little"))

    def _dense(self, cursor: _Cursor) -> TileConstant:
        return self.literal(self.type(cursor.varint()), cursor.varint())

    def _divisible(self, cursor: _Cursor) -> Assumption:
        divisor, flags = cursor.varint(), cursor.byte()
        every = cursor.signed() if flags & 1 else None
        along = cursor.signed() if flags & 2 else None
        if divisor < 1:
            _refuse("a value is promised to be divisible by 0")
        return Assumption("div_by", divisor=divisor, every=every, along=along)

    def _bounded(self, cursor: _Cursor) -> Assumption:
        flags = cursor.byte()
        low = cursor.signed() if flags & 1 else None
        high = cursor.signed() if flags & 2 else None
        return Assumption("bounded", low=low, high=high)

    # Variables and functions

    def _variables(self) -> Iterator[tuple[str, TileConstant]]:
        if _GLOBALS not in self.sections:
            return
        cursor = _Cursor(self.sections[_GLOBALS])
        for _ in range(cursor.count()):
            name, type_ = self.string(cursor.varint()), self.type(cursor.varint())
            value = self.literal(type_, cursor.varint())
            cursor.varint()  # its alignment
            if self.version >= _UNIFIED:
                cursor.varint()  # visible or not
                value = value._replace(read_only=bool(cursor.varint()))
            yield name, value

    def _functions(self) -> Iterator[TileFunction]:
        cursor = _Cursor(self.sections[_FUNCTIONS])
        for _ in range(cursor.count()):
            name, signature = self.string(cursor.varint()), self.type(cursor.varint())
            flags, location = cursor.byte(), cursor.varint()
            if signature.kind != "function" or not flags & _KERNEL:
                _refuse(f"{name!r} is no kernel")
            whole = self.version >= _WHOLE_SIGNATURE
            hints = self.self_contained(cursor) if whole or flags & _HINTED else {}
            if whole:
                self.self_contained(cursor)  # of the parameters: empty so far
            body = _Cursor(cursor.take(cursor.varint()))
            yield _Function(self, name, signature, location, hints).read(body)


class _Function:
    """A kernel while its body is read: its values so far, and those that are in scope."""

    def __init__(self, file: _File, name: str, signature: TileType, location: int, hints: Any) -> None:
        self.file, self.name = file, name
        self.hints = {
            arch: dict(values) for arch, values in dict(hints).items() if isinstance(values, Mapping)
        }
        self.types: list[TileType] = []
        self.scope: list[int] = []
        self.parameters = tuple(map(self._define, signature.inputs))
        self.locations = file.locations(location)
        self.lines = next(self.locations)

    def _define(self, type_: TileType) -> int:
        self.types.append(type_)
        self.scope.append(len(self.types) - 1)
        return len(self.types) - 1

    def read(self, body: _Cursor) -> TileFunction:
        operations = []
        while body.left:
            operations.append(self._operation(body, 0))
        return TileFunction(
            name=self.name,
            types=tuple(self.types),
            body=self._block(self.parameters, operations),
            hints=self.hints,
            lines=self.lines,
        )

    def _block(self, arguments: tuple[int, ...], operations: list[TileOperation]) -> Region:
        names = [operation.name for operation in operations]
        if not names or names[-1] not in TERMINATORS or any(name in TERMINATORS for name in names[:-1]):
            _refuse(f"a block of {self.name!r} does not end with one of {', '.join(sorted(TERMINATORS))}")
        return Region(arguments, tuple(operations))

    def _operation(self, cursor: _Cursor, depth: int) -> TileOperation:
        number = cursor.varint()
        form = OPERATIONS.get(number)
        lines = next(self.locations)
        if form is None:
            place = f" at {lines[0]}" if lines else ""
            name = f" ({NOT_READ[number]})" if number in NOT_READ else ""
            _refuse(f"operation {number:#x}{name}{place}, in {self.name!r}, is none that dotcu knows")
        types = self._result_types(form, cursor)
        flagged = [name for name, _ in form.flags]
        since = min((version for _, version in form.flags), default=form.since)
        flags = cursor.varint() if flagged and (since == form.since or self.file.version >= since) else 0
        present = {name for bit, name in enumerate(flagged) if flags >> bit & 1}
        attributes = {}
        for name, kind, times, since in form.attributes:
            if self.file.version >= since and (not times or name in present):
                attributes[name] = self.file.attribute(cursor, kind, types[0] if types else None)
        operands = self._operands(form, cursor, present)
        regions = self._regions(form, cursor, depth) if form.regions else ()
        return TileOperation(
            name=form.name,
            operands=operands,
            results=tuple(map(self._define, types)),
            attributes=attributes,
            regions=regions,
            lines=lines,
        )

    def _result_types(self, form: OperationForm, cursor: _Cursor) -> list[TileType]:
        expected = form.results - (self.file.version < form.token_since and form.token_since != form.since)
        if form.counts_results:
            count = cursor.count()
            if form.results >= 0 and count != expected:
                _refuse(f"{form.name} has {count} results instead of {expected}")
        else:
            count = expected
        return [self.file.type(cursor.varint()) for _ in range(count)]

    def _operands(
        self, form: OperationForm, cursor: _Cursor, present: set[str]
    ) -> dict[str, tuple[int, ...]]:
        operands: dict[str, tuple[int, ...]] = {}
        if form.grouped:
            for name, _, times, _ in form.operands:
                count = cursor.count() if times == "*" else int(name in present) if times == "?" else 1
                operands[name] = tuple(self._value(cursor) for _ in range(count))
            return operands
        repeats = any(times == "*" for _, _, times, _ in form.operands)
        count = cursor.count() if repeats else len(form.operands)
        values = [self._value(cursor) for _ in range(count)]
        if count < len(form.operands) - repeats:
            _refuse(f"{form.name} has {count} operands")
        for at, (name, _, times, _) in enumerate(form.operands):
            operands[name] = tuple(values[at:]) if times == "*" else (values[at],)
        return operands

    def _value(self, cursor: _Cursor) -> int:
        index = cursor.varint()
        if index >= len(self.scope):
            _refuse(f"{self.name!r} uses value {index} of {len(self.scope)}")
        return self.scope[index]

    def _regions(self, form: OperationForm, cursor: _Cursor, depth: int) -> tuple[Region, ...]:
        count = cursor.varint()
        if count != form.regions or depth > _DEEPEST:
            _refuse(f"{form.name} has {count} regions, or is nested too deeply")
        regions: list[Region] = []
        for _ in range(count):
            blocks = cursor.varint()
            if blocks == 0 and form.name == "if" and regions:
                continue
            if blocks != 1:
                _refuse(f"a region of {form.name} has {blocks} blocks")
            outside = len(self.scope)
            arguments = tuple(self._define(self.file.type(cursor.varint())) for _ in range(cursor.count()))
            operations = [self._operation(cursor, depth + 1) for _ in range(cursor.count())]
            del self.scope[outside:]
            regions.append(self._block(arguments, operations))
        return tuple(regions)
