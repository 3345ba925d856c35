"""By-value parameters: Python numbers and structs -> the bytes that a kernel gets.

Each packer holds what one parameter takes and turns a value into bytes, or raises `Mismatch`.
None of them converts in silence: an int that does not fit, a float for an int and a bool for a
number are refused.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dotcu.kernel.elements import ELEMENTS
from dotcu.kernel.signature import Parameter

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Mismatch(Exception):
    """A value that a parameter does not take.

    Attributes:
        got: What was passed.
        remedy: The line to type.
    """

    def __init__(self, got: str, remedy: str) -> None:
        super().__init__(got)
        self.got = got
        self.remedy = remedy


def describe(value: Any) -> str:
    """Name a value in a message, shortly."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        shape = "" if value.is_nested else f" of shape {tuple(value.shape)}"
        return f"{'an' if dtype[0] == 'i' else 'a'} {dtype} tensor{shape} on {value.device}"
    if value is None or isinstance(value, (bool, np.bool_)):
        return str(value)
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def not_a_number(value: Any, wanted: str) -> Mismatch:
    """Why a value is no number, and what to write instead."""
    if isinstance(value, torch.Tensor):
        remedy = (
            "Pass a Python number, not a tensor: a launch never waits for a GPU to learn a value. "
            f"Outside an operator's body write {wanted}(t), else make the parameter a pointer."
        )
    elif isinstance(value, (bool, np.bool_)):
        remedy = f"If 0 or 1 is meant, write {wanted}(flag)."
    elif isinstance(value, (float, np.floating)):
        remedy = f"If the fraction may be cut off, write {wanted}(x)."
    else:
        remedy = f"Pass a Python {wanted}."
    return Mismatch(describe(value), remedy)


@dataclass(frozen=True, kw_only=True)
class IntPacker:
    """An integer, or an enum, whose signedness PTX does not tell: either will do there."""

    name: str
    size: int
    signed: bool
    either: bool = False

    @property
    def takes(self) -> str:
        bits = 8 * self.size
        low = -(1 << (bits - 1)) if self.signed or self.either else 0
        high = (1 << (bits if self.either or not self.signed else bits - 1)) - 1
        return f"an int from {low} to {high}"

    def pack(self, value: Any) -> bytes:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise not_a_number(value, "int")
        number = int(value)
        try:
            return number.to_bytes(self.size, "little", signed=number < 0 if self.either else self.signed)
        except OverflowError:
            remedy = "Pass a smaller number, or give the parameter a wider type, such as long long."
            raise Mismatch(describe(value), remedy) from None


@dataclass(frozen=True, kw_only=True)
class BoolPacker:
    """A bool; numbers are refused."""

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


@dataclass(frozen=True, kw_only=True)
class FloatPacker:
    """float, double or __half, rounded to nearest even."""

    name: str
    code: str

    @property
    def takes(self) -> str:
        return "a float or int in its range"

    def pack(self, value: Any) -> bytes:
        number = _as_float(value)
        try:
            return struct.pack(self.code, number)
        except OverflowError:
            remedy = f'Pass a number in the range of {self.name}, or float("inf") if that is meant.'
            raise Mismatch(describe(value), remedy) from None


_NARROW = {
    "__nv_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
    "__nv_fp8_e8m0": "float8_e8m0fnu",
}
"""What ml_dtypes calls the float formats that NumPy and the struct module lack."""


@functools.cache
def _narrow(name: str) -> type[np.generic]:
    import ml_dtypes  # few kernels take such a number by value

    found: type[np.generic] = getattr(ml_dtypes, _NARROW[name])
    return found


@dataclass(frozen=True, kw_only=True)
class NarrowPacker:
    """A float format that the struct module lacks, rounded to nearest even."""

    name: str

    @property
    def takes(self) -> str:
        return "a float or int in its range"

    def pack(self, value: Any) -> bytes:
        number = _as_float(value)
        with np.errstate(all="ignore"):
            narrow = _odd_float32(number).astype(_narrow(self.name))
        if math.isfinite(number) and not math.isfinite(float(narrow)):
            raise Mismatch(describe(value), f"Pass a number in the range of {self.name}.")
        return bytes(narrow.tobytes())


def _odd_float32(number: float) -> NDArray[np.float32]:
    """A number as float32, rounded to odd, so that rounding it further rounds only once."""
    with np.errstate(over="ignore"):
        nearest = np.array(number).astype(np.float32)
    if not np.isfinite(nearest) or float(nearest) == number:
        return nearest
    if abs(float(nearest)) > abs(number):
        nearest = np.nextafter(nearest, np.float32(0))
    return np.asarray(np.asarray(nearest).view(np.uint32) | np.uint32(1)).view(np.float32)


@dataclass(frozen=True, kw_only=True)
class StructPacker:
    """A struct, as something that already has its bytes."""

    name: str
    size: int

    @property
    def takes(self) -> str:
        return f"its {self.size} bytes"

    def pack(self, value: Any) -> bytes:
        data = _bytes_of(value)
        if data is None:
            remedy = (
                "Pass a ctypes.Structure, a NumPy structured scalar or bytes, laid out as in C++: "
                f"{self.size} bytes."
            )
            raise Mismatch(describe(value), remedy)
        if len(data) != self.size:
            remedy = f"Give it the fields and padding of the C++ struct: {self.size} bytes."
            raise Mismatch(f"a {type(value).__name__} of {len(data)} bytes", remedy)
        return data


def _bytes_of(value: Any) -> bytes | None:
    if isinstance(value, (ctypes.Structure, ctypes.Union, ctypes.Array, bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, np.void) or (isinstance(value, np.ndarray) and value.dtype.names is not None):
        return value.tobytes()
    return None


@dataclass(frozen=True, kw_only=True)
class VectorPacker:
    """A vector type such as float4, from that many numbers or its bytes."""

    name: str
    lane: IntPacker | FloatPacker | NarrowPacker
    lanes: int
    size: int

    @property
    def takes(self) -> str:
        return f"a tuple of {self.lanes} numbers"

    def pack(self, value: Any) -> bytes:
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview)):
            if len(value) != self.lanes:
                raise Mismatch(describe(value), f"Pass {self.lanes} numbers.")
            return b"".join(self.lane.pack(number) for number in value)
        return StructPacker(name=self.name, size=self.size).pack(value)


@dataclass(frozen=True, kw_only=True)
class FunctionPacker:
    """A pointer to a device function: null, or the 8 bytes of an address that a kernel stored."""

    name: str

    @property
    def takes(self) -> str:
        return "None, or its 8 bytes"

    def pack(self, value: Any) -> bytes:
        return bytes(8) if value is None else StructPacker(name=self.name, size=8).pack(value)


ValuePacker = (
    IntPacker | BoolPacker | FloatPacker | NarrowPacker | StructPacker | VectorPacker | FunctionPacker
)

_FLOATS = {"float": "<f", "double": "<d", "__half": "<e"}
_INTEGERS = {
    "char": (1, True), "signed char": (1, True), "unsigned char": (1, False),
    "short": (2, True), "unsigned short": (2, False), "int": (4, True), "unsigned int": (4, False),
    "long": (8, True), "unsigned long": (8, False), "long long": (8, True), "unsigned long long": (8, False),
    "char8_t": (1, False), "char16_t": (2, False), "char32_t": (4, False), "wchar_t": (4, True),
    "__int128": (16, True), "unsigned __int128": (16, False),
}  # fmt: skip


def _number_packer(name: str) -> IntPacker | FloatPacker | NarrowPacker | None:
    if name in _FLOATS:
        return FloatPacker(name=name, code=_FLOATS[name])
    if name in _INTEGERS:
        size, signed = _INTEGERS[name]
        return IntPacker(name=name, size=size, signed=signed)
    return NarrowPacker(name=name) if name in _NARROW else None


def value_packer(parameter: Parameter) -> ValuePacker:
    """What packs a by-value parameter."""
    name, size = parameter.ctype.name, parameter.size
    if parameter.ctype.kind == "pointer":  # those to memory have packers of their own
        return FunctionPacker(name=str(parameter.ctype))
    if name == "bool":
        return BoolPacker()
    number = _number_packer(name)
    if number is not None:
        return number
    element = ELEMENTS.get(name)
    if element is not None and element.size == size:
        lane = _number_packer(element.scalar)
        assert lane is not None
        return VectorPacker(name=name, lane=lane, lanes=element.lanes, size=size)
    if parameter.ctype.kind == "named" and parameter.ptx_type[:1] in ("u", "s"):  # an enum: a struct is b8
        return IntPacker(name=name, size=size, signed=False, either=True)
    return StructPacker(name=str(parameter.ctype), size=size)
