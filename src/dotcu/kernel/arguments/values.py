"""C++ types: the dtypes and Python values that fit them, and their bytes.

A pointer takes a tensor by its `Element`. Each packer of a by-value parameter turns a value into bytes, or
raises `Mismatch`. None of them converts silently: an int that does not fit, a float for an int and a bool
for a number are refused.

Sources: CUDA 13.0 vector_types.h (sizes and alignment of the vector types), cuda_fp16.h, cuda_bf16.h,
cuda_fp8.h; `long` is 64 bits wide, since Linux is what a kernel is compiled for.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dotcu.kernel.arguments.signature import KernelParameter

if TYPE_CHECKING:
    from dotcu.tile_ir import Promise


@dataclass(frozen=True, kw_only=True)
class Element:
    """A C++ type that a pointer leads to.

    Attributes:
        dtypes: The torch dtypes whose memory it reads correctly.
        scalar: The C++ type of one lane.
        lanes: How many elements of the tensor one C++ object covers.
    """

    name: str
    dtypes: tuple[torch.dtype, ...]
    scalar: str
    lanes: int
    size: int
    alignment: int


_SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
_UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
_INTS = {pair[0].itemsize: pair for pair in zip(_SIGNED, _UNSIGNED, strict=True)}
_UINTS = {pair[0].itemsize: pair for pair in zip(_UNSIGNED, _SIGNED, strict=True)}

_SCALARS: dict[str, tuple[torch.dtype, ...]] = {
    "bool": (torch.bool,),
    "char": _INTS[1], "signed char": _INTS[1], "unsigned char": _UINTS[1],
    "short": _INTS[2], "unsigned short": _UINTS[2], "int": _INTS[4], "unsigned int": _UINTS[4],
    "long": _INTS[8], "unsigned long": _UINTS[8], "long long": _INTS[8], "unsigned long long": _UINTS[8],
    "float": (torch.float32,), "double": (torch.float64,),
    **dict.fromkeys(("__half", "c10::Half"), (torch.float16,)),
    **dict.fromkeys(("__nv_bfloat16", "c10::BFloat16"), (torch.bfloat16,)),
    "__nv_fp8_e4m3": (torch.float8_e4m3fn,), "__nv_fp8_e5m2": (torch.float8_e5m2,),
    "__nv_fp8_e8m0": (torch.float8_e8m0fnu,),
    **{
        f"c10::{name.capitalize()}": (getattr(torch, name),)
        for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    },
}  # fmt: skip

# The stem of a vector type: the type of its lanes, the widest alignment of two and of four lanes.
_VECTOR_STEMS = {
    "char": ("signed char", 2, 4), "uchar": ("unsigned char", 2, 4),
    "short": ("short", 4, 8), "ushort": ("unsigned short", 4, 8),
    "int": ("int", 8, 16), "uint": ("unsigned int", 8, 16),
    "long": ("long", 16, 16), "ulong": ("unsigned long", 16, 16),
    "longlong": ("long long", 16, 16), "ulonglong": ("unsigned long long", 16, 16),
    "float": ("float", 8, 16), "double": ("double", 16, 16),
}  # fmt: skip
_WIDE_STEMS = ("long", "ulong", "longlong", "ulonglong", "double")  # have float64x4 as _16a and _32a
_PACKED = {
    "__half2": ("__half", 2), "__nv_bfloat162": ("__nv_bfloat16", 2),
    "__nv_fp8x2_e4m3": ("__nv_fp8_e4m3", 2), "__nv_fp8x4_e4m3": ("__nv_fp8_e4m3", 4),
    "__nv_fp8x2_e5m2": ("__nv_fp8_e5m2", 2), "__nv_fp8x4_e5m2": ("__nv_fp8_e5m2", 4),
}  # fmt: skip


def _elements() -> Iterator[Element]:
    # Name, scalar, lanes, and the alignment: that of the whole by default.
    rows: list[tuple[str, str, int, int | None]] = [(name, name, 1, None) for name in _SCALARS]
    rows += [(name, scalar, lanes, None) for name, (scalar, lanes) in _PACKED.items()]
    for stem, (scalar, of_two, of_four) in _VECTOR_STEMS.items():
        own = _SCALARS[scalar][0].itemsize
        alignments = {1: own, 2: of_two, 3: own, 4: of_four}
        rows += [(f"{stem}{lanes}", scalar, lanes, alignments[lanes]) for lanes in alignments]
        if stem in _WIDE_STEMS:
            rows += [(f"{stem}4_{alignment}a", scalar, 4, alignment) for alignment in (16, 32)]
    for name, scalar, lanes, alignment in rows:
        dtypes = _SCALARS[scalar]
        size = dtypes[0].itemsize * lanes
        yield Element(
            name=name, dtypes=dtypes, scalar=scalar, lanes=lanes, size=size, alignment=alignment or size
        )


ELEMENTS = {element.name: element for element in _elements()}
"""Every element type that dotcu knows, by its C++ name. A pointer to any other takes any tensor."""

ADDRESS = Element(
    name="a pointer", dtypes=(torch.int64, torch.uint64), scalar="unsigned long", lanes=1, size=8, alignment=8
)


def dtype_names(dtypes: tuple[torch.dtype, ...]) -> str:
    """Return "float32", or "int32 or uint32"."""
    return " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)


def same_bits(given: torch.dtype, wanted: torch.dtype) -> bool:
    """Return whether a view turns one dtype into the other: raw bytes or words for a narrow float or bool."""
    words = sum(dtype in (*_SIGNED, *_UNSIGNED) for dtype in (given, wanted))
    return given.itemsize == wanted.itemsize <= 2 and words == 1


class Mismatch(Exception):
    """A value that a parameter does not take.

    Attributes:
        got: The value, described.
        remedy: The line to type.
        part: The part of the argument that it was given for, such as `params.x`; empty for all of it.
        takes: What that part takes.
    """

    def __init__(self, got: str, remedy: str) -> None:
        super().__init__(got)
        self.got = got
        self.remedy = remedy
        self.part = self.takes = ""


def describe(value: Any) -> str:
    """Return a short description of a value for a message; it reads no tensor, which could wait for a GPU."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        shape = "" if value.is_nested else f" of shape {tuple(value.shape)}"
        return f"{'an' if dtype[0] == 'i' else 'a'} {dtype} tensor{shape} on {value.device}"
    if value is None or isinstance(value, (bool, np.bool_)):
        return str(value)
    if isinstance(value, Mapping) or (is_dataclass(value) and not isinstance(value, type)):
        names = value if isinstance(value, Mapping) else [one.name for one in fields(value)]
        text = f"of {', '.join(name for name in names if isinstance(name, str))}"
    elif isinstance(value, (list, tuple, set)) and not all(isinstance(one, _SHOWN) for one in value):
        text = f"of {len(value)} values"
    else:
        text = type(value.value).__name__ if isinstance(value, ctypes.py_object) else repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


_SHOWN = (bool, int, float, complex, str, bytes, type(None), torch.dtype)


def not_a_number(value: Any, wanted: str) -> Mismatch:
    """Return why a value is not a number, and what to write instead."""
    if isinstance(value, torch.Tensor):
        remedy = (
            "Pass a Python number, not a tensor: a launch never waits for a GPU to read a value. "
            f"Outside an operator's body write {wanted}(t), else make the parameter a pointer."
        )
    elif isinstance(value, (bool, np.bool_)):
        remedy = f"If 0 or 1 is meant, write {wanted}(flag)."
    elif isinstance(value, (float, np.floating)):
        remedy = f"If the fraction may be cut off, write {wanted}(x)."
    else:
        remedy = f"Pass a Python {wanted}."
    return Mismatch(describe(value), remedy)


@dataclass(frozen=True)
class Promised:
    """The assumptions of a tile kernel on a parameter; its code is undefined where one does not hold."""

    promises: tuple[Promise, ...] = ()

    @functools.cached_property
    def plain(self) -> tuple[Promise, ...]:
        """Those about the parameter itself, and not about a number that is computed of it."""
        return tuple(one for one in self.promises if (one.scale, one.offset) == (1, 0))

    @functools.cached_property
    def is_plain(self) -> bool:
        return len(self.plain) == len(self.promises)

    @functools.cached_property
    def divisor(self) -> int:
        """The number that it is a multiple of."""
        return math.lcm(*(one.predicate.divisor for one in self.plain if one.predicate.kind == "div_by"))

    @functools.cached_property
    def low(self) -> int | None:
        """The least value; None for any."""
        bounds = [one.predicate.low for one in self.plain if one.predicate.kind == "bounded"]
        return max((low for low in bounds if low is not None), default=None)

    @functools.cached_property
    def high(self) -> int | None:
        """The greatest value; None for any."""
        bounds = [one.predicate.high for one in self.plain if one.predicate.kind == "bounded"]
        return min((high for high in bounds if high is not None), default=None)

    @property
    def where(self) -> str:
        """` (assumed at matmul.cu:25)`; "" where nothing is."""
        lines = dict.fromkeys(
            f"{one.line.file.rsplit('/', 1)[-1]}:{one.line.line}" for one in self.promises if one.line
        )
        return f" (assumed at {', '.join(lines)})" if lines else ""

    def holds(self, value: int) -> bool:
        """Return whether a value, signed where it is an integer, is as the kernel assumes."""
        return all(bool(promise.holds(value)) for promise in self.promises)

    def require(self, value: int, got: str) -> None:
        """Refuse a value that breaks a promise; `got` describes it."""
        broken = next((one for one in self.promises if not one.holds(value)), None)
        if broken is not None:
            raise Mismatch(
                f"{got}, which is not {_assumption(broken)}",
                "Pass one that is, or take a kernel without that assumption: its results are undefined.",
            )


NOTHING_PROMISED = Promised()


def _assumption(promise: Promise) -> str:
    """Return what is assumed: `a multiple of 8`, `at least 0`; about `2 * it + 1` where that is meant."""
    predicate = promise.predicate
    if predicate.kind == "div_by":
        text = f"a multiple of {predicate.divisor}"
    else:
        bounds = (("at least", predicate.low), ("at most", predicate.high))
        text = " and ".join(f"{word} {bound}" for word, bound in bounds if bound is not None)
    if (promise.scale, promise.offset) == (1, 0):
        return text
    return f"such that {promise.scale} * it + {promise.offset} is {text}"


@dataclass(frozen=True, kw_only=True)
class IntPacker:
    """Packs an integer, or an enum, whose signedness PTX does not say: `either` will do there."""

    name: str
    size: int
    signed: bool
    either: bool = False
    promised: Promised = NOTHING_PROMISED

    @property
    def takes(self) -> str:
        bits = 8 * self.size
        low = -(1 << (bits - 1)) if self.signed or self.either else 0
        high = (1 << (bits if self.either or not self.signed else bits - 1)) - 1
        assumed = [_assumption(promise) for promise in self.promised.promises]
        return ", ".join([f"an int from {low} to {high}", *assumed]) + self.promised.where

    def as_signed(self, number: int) -> int:
        """Return the signed integer that has the bits of a number: a tile kernel's integers are signed."""
        half = 1 << (8 * self.size - 1)
        return number - 2 * half if not self.signed and number >= half else number

    def pack(self, value: Any) -> bytes:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise not_a_number(value, "int")
        number = int(value)
        if self.promised.promises:
            self.promised.require(self.as_signed(number), describe(value))
        try:
            return number.to_bytes(self.size, "little", signed=number < 0 if self.either else self.signed)
        except OverflowError:
            raise Mismatch(describe(value), self._remedy(number)) from None

    def _remedy(self, number: int) -> str:
        if number < 0 and not (self.signed or self.either):
            return "Pass a number from 0 on, or give the parameter a signed type, such as long long."
        which = "larger" if number < 0 else "smaller"
        wider = next((f", such as {kind.name}" for kind in _WIDE if kind.holds(number)), "")
        return f"Pass a {which} number" + f", or give the parameter a wider type{wider}" * bool(wider) + "."

    def holds(self, number: int) -> bool:
        """Return whether a number is in the range of its type."""
        bits = 8 * self.size - self.signed
        return -(1 << bits) * self.signed <= number < 1 << bits


_WIDE = tuple(
    IntPacker(name=name, size=size, signed=signed)
    for name, size, signed in (
        ("long long", 8, True),
        ("unsigned long long", 8, False),
        ("__int128", 16, True),
    )
)


@dataclass(frozen=True, kw_only=True)
class BoolPacker:
    """Packs a bool; numbers are refused."""

    takes = "a bool"

    def pack(self, value: Any) -> bytes:
        if not isinstance(value, (bool, np.bool_)):
            raise Mismatch(describe(value), "Write bool(x).")
        return b"\1" if value else b"\0"


def _as_float(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, (bool, np.bool_, torch.Tensor, complex, np.complexfloating)):
        raise not_a_number(value, "float")
    if not isinstance(value, (int, float, np.number)) and not isinstance(value, _narrow("__nv_bfloat16")):
        raise not_a_number(value, "float")
    try:
        return float(value)
    except OverflowError:
        raise Mismatch(describe(value), "Pass a smaller number.") from None


_NARROW = {
    "__nv_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
    "__nv_fp8_e8m0": "float8_e8m0fnu",
}
"""The float formats that NumPy and the struct module lack, by the names that ml_dtypes has for them."""


@functools.cache
def _narrow(name: str) -> type[np.generic]:
    import ml_dtypes  # few kernels take such a number by value

    narrow: type[np.generic] = getattr(ml_dtypes, _NARROW[name])
    return narrow


@dataclass(frozen=True, kw_only=True)
class FloatPacker:
    """Packs a number of any float format, rounded to nearest even.

    Attributes:
        code: The format in the struct module; empty if it has none.
    """

    name: str
    code: str

    takes = "a float or int in its range"

    def pack(self, value: Any) -> bytes:
        number = _as_float(value)
        try:
            return struct.pack(self.code, number) if self.code else self._narrowed(number)
        except OverflowError:
            remedy = f'Pass a number in the range of {self.name}, or float("inf") if that is meant.'
            raise Mismatch(describe(value), remedy) from None

    def _narrowed(self, number: float) -> bytes:
        """Round to a float32, to odd, so that rounding it further rounds only once; then to the format."""
        with np.errstate(all="ignore"):
            wide = np.array(number).astype(np.float32)
            if np.isfinite(wide) and float(wide) != number:
                if abs(float(wide)) > abs(number):
                    wide = np.asarray(np.nextafter(wide, np.float32(0)))
                wide = (wide.view(np.uint32) | np.uint32(1)).view(np.float32)
            narrow = wide.astype(_narrow(self.name))
        if math.isfinite(number) and not math.isfinite(float(narrow)):
            raise OverflowError
        return bytes(narrow.tobytes())


_BYTES_OR_TEXT = (str, bytes, bytearray, memoryview)


@functools.cache
def holds_objects(kind: Any) -> bool:
    """Return whether a type of ctypes has Python objects in it, such as tensors."""
    if issubclass(kind, ctypes.Array):
        return holds_objects(kind._type_)
    if issubclass(kind, (ctypes.Structure, ctypes.Union)):
        bases = [getattr(base, "_fields_", ()) for base in kind.__mro__]
        return any(holds_objects(one[1]) for names in bases for one in names)
    return issubclass(kind, ctypes.py_object)


@dataclass(frozen=True, kw_only=True)
class StructPacker:
    """Packs a struct from something that already has its bytes, a vector such as float4 from numbers, too.

    Attributes:
        nullable: None stands for zeros, as for a pointer to a device function.
        lane, lanes: Of a vector type, what packs a number of it, and how many there are.
        is_opaque: Nothing tells its members.
    """

    name: str
    size: int
    nullable: bool = False
    lane: IntPacker | FloatPacker | None = None
    lanes: int = 0
    is_opaque: bool = False

    @property
    def takes(self) -> str:
        if self.lane is not None:
            return f"a tuple of {self.lanes} numbers"
        return f"None, or its {self.size} bytes" if self.nullable else f"its {self.size} bytes"

    def pack(self, value: Any) -> bytes:
        if self.nullable and value is None:
            return bytes(self.size)
        if self.lane is not None and isinstance(value, Sequence) and not isinstance(value, _BYTES_OR_TEXT):
            if len(value) != self.lanes:
                raise Mismatch(describe(value), f"Pass {self.lanes} numbers.")
            return b"".join(self.lane.pack(number) for number in value)
        if isinstance(value, (ctypes.Structure, ctypes.Union, ctypes.Array)) and holds_objects(type(value)):
            raise Mismatch(f"a {type(value).__name__} with Python objects", "Pass a dict of its members.")
        if isinstance(value, (ctypes.Structure, ctypes.Union, ctypes.Array, bytes, bytearray, memoryview)):
            data = bytes(value)
        elif isinstance(value, np.void) or (isinstance(value, np.ndarray) and value.dtype.names is not None):
            data = value.tobytes()
        elif self.lane is not None:
            raise Mismatch(describe(value), f"Pass a tuple of numbers: ({', '.join('xyzw'[: self.lanes])}).")
        else:
            members = "" if self.nullable or self.is_opaque else "a dataclass or a dict of its members, or "
            remedy = (
                f"Pass {members}a ctypes.Structure, a NumPy structured scalar "
                f"or bytes, laid out as in C++: {self.size} bytes."
            )
            raise Mismatch(describe(value), remedy)
        if len(data) != self.size:
            remedy = f"Give it the fields and padding of the C++ struct: {self.size} bytes."
            raise Mismatch(f"a {type(value).__name__} of {len(data)} bytes", remedy)
        return data


@dataclass(frozen=True, kw_only=True)
class WordPacker:
    """Packs a number of which the code tells the size alone: a float as a float, an int as an int."""

    size: int

    @property
    def takes(self) -> str:
        return f"a float or an int of {8 * self.size} bits"

    def pack(self, value: Any) -> bytes:
        if isinstance(value, (float, np.floating)):
            return FloatPacker(
                name=f"float{8 * self.size}", code={2: "<e", 4: "<f", 8: "<d"}[self.size]
            ).pack(value)
        return IntPacker(name="", size=self.size, signed=False, either=True).pack(value)


ValuePacker = IntPacker | BoolPacker | FloatPacker | StructPacker | WordPacker

_FLOATS = {"float": "<f", "double": "<d", "__half": "<e", **dict.fromkeys(_NARROW, "")}
_INTEGERS = {
    "char": (1, True), "signed char": (1, True), "unsigned char": (1, False),
    "short": (2, True), "unsigned short": (2, False), "int": (4, True), "unsigned int": (4, False),
    "long": (8, True), "unsigned long": (8, False), "long long": (8, True), "unsigned long long": (8, False),
    "char8_t": (1, False), "char16_t": (2, False), "char32_t": (4, False), "wchar_t": (4, True),
    "__int128": (16, True), "unsigned __int128": (16, False),
}  # fmt: skip


def _number_packer(name: str) -> IntPacker | FloatPacker | None:
    if name in _FLOATS:
        return FloatPacker(name=name, code=_FLOATS[name])
    if name in _INTEGERS:
        size, signed = _INTEGERS[name]
        return IntPacker(name=name, size=size, signed=signed)
    return None


def value_packer(parameter: KernelParameter) -> ValuePacker:
    """Choose the packer of a parameter that is passed by value."""
    name, size = parameter.ctype.name, parameter.size
    if parameter.ctype.kind == "pointer":  # those to memory have packers of their own
        return StructPacker(name=str(parameter.ctype), size=8, nullable=True)
    if name == "bool":
        return BoolPacker()
    number = _number_packer(name)
    if number is not None:
        return number
    element = ELEMENTS.get(name)
    if element is not None and element.size == size:
        lane = _number_packer(element.scalar)
        assert lane is not None
        return StructPacker(name=name, size=size, lane=lane, lanes=element.lanes)
    if parameter.ctype.kind == "named" and parameter.ptx_type[:1] in ("u", "s"):  # an enum: a struct is b8
        return IntPacker(name=name, size=size, signed=False, either=True)
    return StructPacker(name=str(parameter.ctype), size=size)
