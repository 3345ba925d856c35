"""How a simulated output is held against the recorded one, and why no tighter.

Each comparison gives the text of what differs, empty where nothing does. A bound has its source
beside it. Where both sides are off the true value by at most e, they are at most 2e apart; the
simulator's own approximations are correctly rounded (computed in float64), so against an
instruction with bound e they may differ by e and half a unit in the last place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]


class Comparison(Protocol):
    """Holds one output against the recorded one."""

    def difference(self, inputs: Arrays, name: str, simulated: Array, recorded: Array) -> str: ...


def told(where: Array, simulated: Array, recorded: Array, label: str = "") -> str:
    """What differs, with the first values."""
    places = np.argwhere(where)
    shown = [
        f"{tuple(p.tolist())}: simulated {_shown(simulated[tuple(p)])}, recorded {_shown(recorded[tuple(p)])}"
        for p in places[:4]
    ]
    return f"{label + ': ' if label else ''}{len(places)} of {where.size} differ: " + "; ".join(shown)


def _shown(value: Any) -> str:
    size = value.dtype.itemsize
    bits = np.array(value).view(f"u{size}")
    return f"{value!r} ({int(bits):#x})" if value.dtype.kind == "f" else f"{int(value)} ({int(bits):#x})"


def bits_differ(simulated: Array, recorded: Array) -> Array:
    """Where two arrays differ in any bit."""
    word = f"u{simulated.itemsize}"
    return np.asarray(np.ascontiguousarray(simulated).view(word) != np.ascontiguousarray(recorded).view(word))


@dataclass(frozen=True)
class Exact:
    """Bit for bit."""

    def difference(self, inputs: Arrays, name: str, simulated: Array, recorded: Array) -> str:
        wrong = bits_differ(simulated, recorded)
        return told(wrong, simulated, recorded, name) if wrong.any() else ""


Tolerance = Callable[[Arrays], Mapping[str, Any]]


@dataclass(frozen=True)
class Within:
    """Outputs named by `tolerance` may be so far apart, element by element; others are exact."""

    tolerance: Tolerance

    def difference(self, inputs: Arrays, name: str, simulated: Array, recorded: Array) -> str:
        tolerances = self.tolerance(inputs)
        if name not in tolerances:
            return Exact().difference(inputs, name, simulated, recorded)
        wrong = too_far(simulated, recorded, tolerances[name])
        return told(wrong, simulated, recorded, name) if wrong.any() else ""


def too_far(simulated: Array, recorded: Array, tolerance: Any) -> Array:
    """Where finite values are further apart than that, or what is not finite differs."""
    with np.errstate(invalid="ignore"):  # NaN that signals, infinity less itself
        x, y = simulated.astype(np.float64), recorded.astype(np.float64)
        near = np.abs(x - y) <= tolerance
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    result: Array = ~(same | near)
    return result


def ulp(values: Array, dtype: Any = np.float32) -> Array:
    """The unit in the last place at a value, as float64."""
    finite = np.where(np.isfinite(values), values, 0).astype(dtype)
    return np.spacing(np.abs(finite)).astype(np.float64)


@dataclass(frozen=True)
class Ulps:
    """Functions of CUDA's library: twice the error that its documentation states, per output row.

    Attributes:
        errors: For each row of the output, the maximum error in ulp.

    Source: CUDA C++ Programming Guide, "Mathematical Functions", "Standard Functions".
    """

    errors: Sequence[float]

    def difference(self, inputs: Arrays, name: str, simulated: Array, recorded: Array) -> str:
        unit = np.maximum(ulp(simulated, simulated.dtype), ulp(recorded, simulated.dtype))
        wrong = too_far(simulated, recorded, 2 * np.array(self.errors)[:, None] * unit)
        return told(wrong, simulated, recorded, name) if wrong.any() else ""


# Spelled instructions


class Spelling(NamedTuple):
    """One row of a spelled kernel's output.

    Attributes:
        part: Which of the rows that the use of the macro writes: of a chain of three instructions
            the word, of an atom 0 for the new value and 1 for the old one.
    """

    name: str
    macro: str
    part: int = 0


_USE = re.compile(r'^\s*([A-Z_0-9]+)\(\s*"([a-z][A-Za-z0-9_.:]+)"', re.MULTILINE)
_ROWS = {"CHAIN": 3, "MAD_CHAIN": 3} | dict.fromkeys(
    ("ATOM_SHARED", "ATOM_GLOBAL", "ATOM_GENERIC", "CAS_SHARED", "CAS_GLOBAL"), 2
)


def spellings(source: str) -> list[Spelling]:
    """The rows of a spelled kernel, in order."""
    return [
        Spelling(name, macro, part)
        for macro, name in _USE.findall(source)
        for part in range(_ROWS.get(macro, 1))
    ]


_FLOAT_TYPES: Mapping[str, tuple[Any, int]] = {
    "f64": (np.float64, 1),
    "f32": (np.float32, 1),
    "tf32": (np.float32, 1),
    "f16": (np.float16, 1),
    "f16x2": (np.float16, 2),
    "bf16": (np.float32, 1),
    "bf16x2": (np.float32, 2),
}
_TYPE = re.compile(r"(?:tf32|bf16x2|bf16|f16x2|f16|f32|f64|[usb]\d+(?:x2)?|pred|e[45]m\dx2)")


def result_type(spelling: str) -> str:
    """The type of an instruction's result: of two types the first for cvt, set and slct, else the last."""
    types = [t for t in spelling.split(".") if _TYPE.fullmatch(t)]
    opcode = spelling.split(".")[0]
    if opcode in ("setp", "testp"):
        return "pred"
    if opcode in ("cvt", "set", "slct"):
        return types[0]
    return types[-1]


def as_floats(words: Array, type_: str) -> Array:
    """u64 words as the floats that their low bits are, in float64 or exactly wider; pairs in a last axis."""
    if type_.startswith("bf16"):
        parts = np.stack(
            [(words >> np.uint64(16 * i)) & np.uint64(0xFFFF) for i in range(_FLOAT_TYPES[type_][1])], -1
        )
        result: Array = (parts.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return result
    dtype, count = _FLOAT_TYPES[type_]
    size = np.dtype(dtype).itemsize
    low = words.astype(f"u{size * count}") if size * count < 8 else words
    return np.ascontiguousarray(low)[..., None].view(dtype)


class Bound(NamedTuple):
    """How far an approximate instruction may be from the true value.

    Attributes:
        ulps: In units in the last place.
        relative: Times the value.
        absolute: Alone.
    """

    ulps: float = 0.0
    relative: float = 0.0
    absolute: float = 0.0


# Source: PTX ISA, "Floating Point Instructions" and "Half Precision Floating Point Instructions",
# the notes of each instruction; rsqrt.approx.f64 is the library's rsqrt, of 1 ulp by the CUDA C++
# Programming Guide. What is written for one type holds for pairs of it. The approximations of f64 that flush
# have results of 20 bits behind the point, and may be off by the last of them.
_APPROXIMATE: Mapping[tuple[str, str], Bound] = {
    ("div", "f32"): Bound(ulps=2),
    ("rcp", "f32"): Bound(ulps=1),
    ("sqrt", "f32"): Bound(relative=2.0**-23),
    ("rsqrt", "f32"): Bound(relative=2.0**-22.9),
    ("rsqrt", "f64"): Bound(ulps=1),
    ("ex2", "f32"): Bound(ulps=2),
    ("sin", "f32"): Bound(absolute=2.0**-14.7),
    ("cos", "f32"): Bound(absolute=2.0**-14.7),
    ("tanh", "f32"): Bound(relative=2.0**-11),
    ("ex2", "f16"): Bound(relative=2.0**-9.9),
    ("ex2", "bf16"): Bound(relative=2.0**-7),
    ("tanh", "f16"): Bound(absolute=2.0**-10.987),
    ("tanh", "bf16"): Bound(absolute=2.0**-8),
}
_OF_UPPER_WORD = Bound(relative=2.0**-20)
_CLOSE_ANGLE = Bound(absolute=2.0**-20.5)
_EPSILON = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}
_SMALLEST = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "f64": 2.0**-1074}


def _approximate_tolerance(spelling: str, scalar: str, a: Array, value: Array) -> Array:
    """How far recorded and simulated values of an approximate instruction may be apart."""
    opcode = spelling.split(".")[0]
    magnitude = np.abs(np.where(np.isfinite(value), value, 0).astype(np.float64))
    unit = np.maximum(magnitude * 2 * _EPSILON[scalar], _SMALLEST[scalar])
    if opcode == "lg2":  # absolute between 0.5 and 2, relative elsewhere
        near = (a > 0.5) & (a < 2)
        return np.where(near, 2.0**-22, 2.0**-22 * magnitude) + unit / 2
    is_upper_word = scalar == "f64" and "ftz" in spelling
    bound = _OF_UPPER_WORD if is_upper_word else _APPROXIMATE[opcode, scalar]
    tolerance = bound.ulps * unit + bound.relative * magnitude + bound.absolute + unit / 2
    if opcode in ("sin", "cos"):
        close = np.abs(a) <= 2 * np.pi
        tolerance = np.where(close, _CLOSE_ANGLE.absolute + unit / 2, tolerance)
    return tolerance


@dataclass(frozen=True)
class Spelled:
    """Each row by its instruction: bit for bit, or within the bound that PTX ISA states.

    NaN is compared bit for bit, also of approximate instructions: the canonical one for f32 and halves (PTX
    ISA, "Floating Point Instructions"), and what PTX leaves open as the hardware gave it.
    """

    rows: Sequence[Spelling]

    def difference(self, inputs: Arrays, name: str, simulated: Array, recorded: Array) -> str:
        if simulated.shape != recorded.shape or len(self.rows) != len(recorded):
            return f"{len(self.rows)} spellings, {len(simulated)} rows simulated, {len(recorded)} recorded"
        found = [self._row(row, inputs, simulated[i], recorded[i]) for i, row in enumerate(self.rows)]
        return "\n".join(text for text in found if text)

    def _row(self, row: Spelling, inputs: Arrays, simulated: Array, recorded: Array) -> str:
        type_ = result_type(row.name)
        wrong = simulated != recorded
        if {"approx", "full"} & {*row.name.split(".")} and wrong.any():
            x, y = as_floats(simulated, type_), as_floats(recorded, type_)
            wrong = self._approximate(row.name, type_, inputs, x, y)
        if not wrong.any():
            return ""
        first = int(np.flatnonzero(wrong)[0])
        operands = ", ".join(f"{k}={int(inputs[k][first]):#x}" for k in ("a", "b", "c"))
        return told(wrong, simulated, recorded, row.name) + f"; at the first {operands}"

    def _approximate(self, spelling: str, type_: str, inputs: Arrays, x: Array, y: Array) -> Array:
        scalar = type_.removesuffix("x2")
        with np.errstate(invalid="ignore"):
            a = as_floats(inputs["a"], type_).astype(np.float64)
        wrong = too_far(x, y, _approximate_tolerance(spelling, scalar, a, x))
        wrong |= np.isnan(x) & bits_differ(x, y)
        if spelling.startswith("div"):
            wrong &= ~_unspecified_quotient(spelling, as_floats(inputs["b"], type_))
        return np.asarray(wrong.any(-1))


def _unspecified_quotient(spelling: str, b: Array) -> Array:
    """div.approx has a bound only for |b| from 2^-126; the bound says nothing of subnormal ones."""
    small = (np.abs(b) < 2.0**-126) & (b != 0) & ("approx" in spelling)
    return np.asarray(small & ("ftz" not in spelling))
