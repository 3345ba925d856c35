"""Which rates of a GPU bound the arithmetic in a dtype.

A rate is *plain*, that of instructions of one thread, or *matrix*, that of tensor cores. The arithmetic
of halves and bytes is held against the matrix rate, though a kernel may not use it: an upper bound. That of
float32 is held against the plain rate, since tensor cores would round its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

Kind = Literal["plain", "matrix"]


class Rate(NamedTuple):
    """A rate by its name in the tables of a GPU.

    Attributes:
        name: A dtype, or `tf32`, or `float8` for all of that size.
    """

    kind: Kind
    name: str


class Rates(Protocol):
    """A GPU's rates in TFLOP/s, by name: by measurement or by datasheet."""

    @property
    def matrix_tflops(self) -> Mapping[str, float]: ...

    @property
    def plain_tflops(self) -> Mapping[str, float]: ...


_FLOAT32 = (Rate("plain", "float32"),)
_FLOAT64 = (Rate("plain", "float64"), Rate("matrix", "float64"))
_FLOAT8 = (Rate("matrix", "float8"),)
_INT8 = (Rate("matrix", "int8"),)

NOMINAL: Mapping[str, tuple[Rate, ...]] = {
    "float64": _FLOAT64,
    "complex128": _FLOAT64,
    "float32": _FLOAT32,
    "complex64": _FLOAT32,
    "tf32": (Rate("matrix", "tf32"),),
    "float16": (Rate("matrix", "float16"),),
    "bfloat16": (Rate("matrix", "bfloat16"),),
    "float8_e4m3fn": _FLOAT8,
    "float8_e5m2": _FLOAT8,
    "int8": _INT8,
    "uint8": _INT8,
}
"""By dtype, the rates of which the highest is its limit."""

BEYOND: Mapping[str, Rate] = {"float32": Rate("matrix", "tf32"), "complex64": Rate("matrix", "tf32")}
"""By dtype, the rate that can still be believed: sums of products in tf32 can have float32's precision."""


def tflops(rates: Rates, dtype: str, *, beyond: bool = False) -> float | None:
    """The limit of the arithmetic in a dtype; None where nothing is known of it.

    Args:
        beyond: Ask for the most that can be believed, which is more for float32.
    """
    asked = NOMINAL.get(dtype, ())
    if beyond and dtype in BEYOND:
        asked = (*asked, BEYOND[dtype])
    found = [value for rate in asked if (value := value_of(rates, rate))]
    return max(found, default=None)


def value_of(rates: Rates, rate: Rate) -> float | None:
    """One rate, None where it is not in the tables."""
    return (rates.matrix_tflops if rate.kind == "matrix" else rates.plain_tflops).get(rate.name)
