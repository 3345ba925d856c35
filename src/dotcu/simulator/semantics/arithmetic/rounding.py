"""Exact rounding: sums, products, quotients and roots in every rounding mode.

NumPy rounds to nearest only. Results in other modes, and fused multiply-adds, come from
error-free transformations: the rounded value and the exact error it leaves, of which the
sign is enough to know to which side of the rounded value the exact one lies.

Source: IEEE 754-2019; S. Boldo, G. Melquiond, "Emulation of a FMA and correctly rounded sums:
proved algorithms using rounding to odd" (2008); T. J. Dekker (1971) for the split product;
PTX ISA, "Floating Point Instructions" for modes, .ftz, .sat and the canonical NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache, partial

import numpy as np

from dotcu.ptx.instructions import Instruction
from dotcu.simulator.run import Array

MODES = frozenset({"rn", "rz", "rm", "rp"})
_NAN32 = np.uint32(0x7FFFFFFF)
_NAN64 = np.uint64(0xFFF8000000000000)
_QUIET64 = np.uint64(1 << 51)
_SPLIT = np.float64(2**27 + 1)
# The bits of a float64 that a float32 has no room for, and what they are in the middle of two.
_TAIL = np.int64((1 << 29) - 1)
_MIDDLE = np.int64(1 << 28)
# Elements from which on a selection by bits pays.
LARGE = 2048


def mode_of(instruction: Instruction) -> str:
    """Return the rounding mode that an instruction names; to nearest even where it names none."""
    return next((f for f in instruction.flags if f in MODES), "rn")


def canonical(a: Array) -> Array:
    """The array, with every float32 NaN the canonical one; changed in place."""
    if a.dtype == np.float32 and a.size:
        largest = a.max()
        if largest != largest:
            a.view(np.uint32)[np.isnan(a)] = _NAN32
    return a


def with_nan_of(result: Array, *operands: Array, quiet: bool = True) -> Array:
    """A float64 result, with the NaN that the hardware gives; the array itself if there is none.

    Args:
        result: The result.
        operands: Where several of them are NaN, the result is the first one.
        quiet: True if a signalling NaN of an operand becomes quiet.

    Source: PTX leaves NaN of f64 open (measured: H200, CUDA 13.0, 2026-11).
    """
    if not result.size or (largest := np.maximum.reduce(result, axis=None)) == largest:
        return result
    is_nan = np.isnan(result)
    bits = np.where(is_nan, _NAN64, result.view(np.uint64))
    for operand in reversed(operands):
        given = operand.view(np.uint64)
        bits = np.where(is_nan & np.isnan(operand), given | _QUIET64 if quiet else given, bits)
    return bits.view(np.float64)


def select(a: Array, b: Array, holds: Array) -> Array:
    """a where it holds, else b: np.where, which takes long where a mask has no pattern, without branches.

    Args:
        a, b, holds: Values where the mask holds, values elsewhere, and the mask.
    """
    if holds.size < LARGE:
        return np.where(holds, a, b)
    bits = np.dtype(f"u{a.itemsize}")
    mask = np.negative(holds.astype(bits))
    x, y = a.view(bits), b.view(bits)
    result: Array = y ^ ((x ^ y) & mask)
    return result.view(a.dtype)


def flush(a: Array) -> Array:
    """Subnormals to zero of their sign; the array itself if there are none."""
    small = np.abs(a) < np.finfo(a.dtype).tiny
    if not small.any():
        return a
    return select(np.copysign(a.dtype.type(0), a), a, small)


def saturate(a: Array) -> Array:
    """Clamped to [0, 1]; NaN to +0, and no -0."""
    zero = a.dtype.type(0)
    return np.fmin(np.fmax(a, zero), a.dtype.type(1)) + zero


def extreme(a: Array, b: Array, *, largest: bool, nan: bool, signs: bool) -> Array:
    """min or max; -0 is less than +0.

    Args:
        largest, nan: True for max, not min; true if a NaN wins over a number.
        signs: True for .xorsign.abs: of the magnitudes, with the product's sign.
    """
    x, y = (np.abs(a), np.abs(b)) if signs else (a, b)
    result = np.fmax(x, y) if largest else np.fmin(x, y)
    tie = (x == y) & (x == 0)
    if tie.any():
        bits = np.dtype(f"u{x.itemsize}")
        p, q = x.view(bits), y.view(bits)
        result = np.where(tie, ((p & q) if largest else (p | q)).view(x.dtype), result)
    if signs:
        negative = np.signbit(a) ^ np.signbit(b)
        result = np.where(negative & (result == result), -result, result)
    if nan:
        result = np.where((a != a) | (b != b), a.dtype.type(np.nan), result)
    return canonical(result)


def extreme_of(instruction: Instruction) -> Callable[[Array, Array], Array] | None:
    """Return the function of min or max; None where .xorsign and .abs do not stand together."""
    flags, signs = instruction.flags, "xorsign" in instruction.flags
    if signs != ("abs" in flags):
        return None
    return partial(extreme, largest=instruction.opcode == "max", nan="NaN" in flags, signs=signs)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """s = rn(a + b), and the exact a + b - s."""
    s = a + b
    back = s - a
    return s, (a - (s - back)) + (b - back)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """p = rn(a * b), and the exact a * b - p, where nothing over- or underflows."""
    p = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    error = ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low
    return p, error


def _halves(a: Array) -> tuple[Array, Array]:
    scaled = a * _SPLIT
    high = scaled - (scaled - a)
    return high, a - high


def to_odd(value: Array, error: Array) -> Array:
    """value + error, rounded to odd: the neighbour with an odd last bit where it is inexact."""
    bits = value.view(np.int64)
    inexact = (error != 0) & ((bits & 1) == 0) & np.isfinite(value)
    if not inexact.any():
        return value
    away = (error > 0) == (value > 0)
    moved = np.where(away, bits + 1, bits - 1).view(np.float64)
    moved = np.where(value == 0, np.copysign(5e-324, error), moved)
    return np.where(inexact, moved, value)


def directed(value: Array, error: Array, mode: str) -> Array:
    """value + error rounded in a mode, where value is the nearest and error what it leaves.

    Args:
        value, error: The nearest value, and the exact result less that.
        mode: The rounding mode, of `MODES`.

    Note:
        The error of an infinity is not a number, or points to the finite ones.
    """
    if mode == "rn":
        return value
    up, down, negative = error > 0, error < 0, value < 0
    if mode == "rz":
        return _moved(value, inward=(up & negative) | (down & (value > 0)))
    moves = up if mode == "rp" else down
    if (moves & (value == 0)).any():  # the neighbour may have the other sign
        end = value.dtype.type(np.inf if mode == "rp" else -np.inf)
        return np.where(moves, np.nextafter(value, end), value)
    inward = moves & (negative if mode == "rp" else ~negative)
    return _moved(value, inward=inward, outward=moves ^ inward)


def _moved(value: Array, inward: Array, outward: Array | None = None) -> Array:
    """Neighbours towards zero, and away from it: the bits of a float count its magnitude."""
    bits = np.dtype(f"i{value.itemsize}")
    moved = value.view(bits) - inward.astype(bits)
    if outward is not None:
        moved = moved + outward.astype(bits)
    return moved.view(value.dtype)


def narrow(wide: Array, mode: str, dtype: type[np.floating] = np.float32) -> Array:
    """Round a float to float32 or float16.

    Args:
        wide, dtype: The wider values, and the narrower dtype.
        mode: The rounding mode, of `MODES`.
    """
    near = wide.astype(dtype)
    if mode == "rn":
        return near
    # Of an infinity the difference is not a number, which moves nothing.
    return directed(near, wide - near.astype(np.float64), mode)


def _signed_zero(result: Array, a: Array, b: Array, mode: str) -> Array:
    """In mode rm an exact zero sum is -0, unless both operands are +0."""
    if mode != "rm" or result.all():
        return result
    zero = (result == 0) & ~((a == 0) & (b == 0) & ~np.signbit(a) & ~np.signbit(b))
    return np.where(zero, result.dtype.type(-0.0), result)


def _add(a: Array, b: Array, mode: str) -> Array:
    return fused(a, np.ones(1, a.dtype), b, mode)


def _multiply(a: Array, b: Array, mode: str) -> Array:
    if a.dtype == np.float32:
        return canonical(narrow(a.astype(np.float64) * b.astype(np.float64), mode))
    product = a * b
    return fused(a, b, np.copysign(0.0, product), mode)


def fused(a: Array, b: Array, c: Array, mode: str) -> Array:
    """a * b + c with one rounding.

    Args:
        mode: The rounding mode, of `MODES`.
    """
    if a.dtype == np.float64:
        return _fused64(a, b, c, mode)
    product = np.multiply(a, b, dtype=np.float64)  # exact: 24 + 24 bits
    wide_c = c.astype(np.float64)
    if mode == "rn":
        return canonical(_nearest_sum(product, wide_c))
    total, error = two_sum(product, wide_c)
    total = _signed_zero(total, product, wide_c, mode)
    near = total.astype(np.float32)
    # What float64 leaves decides where float32 leaves nothing; else it is too small to matter.
    return canonical(directed(near, (total - near.astype(np.float64)) + error, mode))


def _nearest_sum(a: Array, b: Array) -> Array:
    """The float32 nearest to the exact sum of two float64.

    Rounding twice errs only where float64 rounded the sum to the middle between two float32,
    whose spacing is wider where they are subnormal: those sums are rounded to odd first.
    """
    total = a + b
    near = total.astype(np.float32)
    doubtful = (total.view(np.int64) & _TAIL) == _MIDDLE
    small = np.abs(near) <= np.finfo(np.float32).tiny
    if small.any():
        doubtful |= small & (total != 0)
    if doubtful.any():
        at = np.flatnonzero(doubtful)
        a, b = (np.broadcast_to(x, total.shape)[at] for x in (a, b))
        near[at] = to_odd(*two_sum(a, b)).astype(np.float32)
    return near


def _fused64(a: Array, b: Array, c: Array, mode: str) -> Array:
    a, b, c = np.broadcast_arrays(a, b, c)
    high, low = two_product(a, b)
    middle, low = two_sum(c, low)
    total, middle = two_sum(high, middle)
    odd = to_odd(*two_sum(middle, low))
    nearest, error = two_sum(total, odd)
    safe = _in_range(a, 400) & _in_range(b, 400) & _in_range(c, 800)
    result = directed(nearest, np.where(safe, error, 0.0), mode)
    # An exact zero has the sign that its operands give it.
    # The exact product of two finite numbers is finite, though float64 may not have it.
    plain = np.where(np.isinf(c) & np.isfinite(a) & np.isfinite(b), c, a * b + c)
    result = _signed_zero(np.where(safe & (result != 0), result, plain), high, c, mode)
    finite = ~safe & np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    return _exactly(lambda x, y, z: x * y + z, mode, (a, b, c), finite, result)


def _divide(a: Array, b: Array, mode: str) -> Array:
    if mode == "rn":
        return canonical(a / b)
    if a.dtype == np.float32:
        # A quotient of two 24-bit numbers is never nearer to a 24-bit one than 2^-49.
        return canonical(narrow(a.astype(np.float64) / b.astype(np.float64), mode))
    result = a / b
    return _exactly(lambda x, y: x / y, mode, (a, b), np.isfinite(a) & np.isfinite(b) & (b != 0), result)


def _square_root(a: Array, mode: str) -> Array:
    if mode == "rn":
        return canonical(np.sqrt(a))
    if a.dtype == np.float32:
        return canonical(narrow(np.sqrt(a.astype(np.float64)), mode))
    root = np.sqrt(a)
    inside = np.isfinite(a) & (a > 0)
    scaled, exponent = np.frexp(np.where(inside, a, 1.0))
    odd = exponent & 1
    scaled = np.ldexp(scaled, odd)
    near = np.sqrt(scaled)
    square, low = two_product(near, near)
    error = (scaled - square) - low
    result = np.ldexp(directed(near, error, mode), (exponent - odd) // 2)
    return np.where(inside, result, root)


# By the opcode: the function of operands and mode, and how many operands it takes.
ROUNDED: Mapping[str, tuple[Callable[..., Array], int]] = {
    "add": (_add, 2),
    "sub": (lambda a, b, mode: _add(a, -b, mode), 2),
    "mul": (_multiply, 2),
    "fma": (fused, 3),
    "mad": (fused, 3),
    "div": (_divide, 2),
    "sqrt": (_square_root, 1),
}


def _in_range(a: Array, exponent: int) -> Array:
    """Zero, or so far from the ends of the range that no step over- or underflows."""
    magnitude = np.abs(a)
    return (magnitude == 0) | ((magnitude > 2.0**-exponent) & (magnitude < 2.0**exponent))


def _exactly(
    operation: Callable[..., Fraction],
    mode: str,
    operands: tuple[Array, ...],
    where: Array,
    result: Array,
) -> Array:
    """Replace the results at `where` by exact rational arithmetic, element by element."""
    if not where.any():
        return result
    result = np.array(np.broadcast_to(result, np.broadcast_shapes(*(o.shape for o in (*operands, result)))))
    where = np.broadcast_to(where, result.shape)
    spread = [np.broadcast_to(o, result.shape) for o in operands]
    for index in np.flatnonzero(where).tolist():
        exact = operation(*(Fraction(float(o[index])) for o in spread))
        if exact:
            result[index] = round_fraction(exact, mode)
    return result


@cache
def _two_to(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def round_fraction(exact: Fraction, mode: str) -> float:
    """A rational number that is not zero, rounded to float64 in a mode."""
    negative, magnitude = exact < 0, abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < _two_to(exponent):
        exponent -= 1
    unit = max(exponent - 52, -1074)
    scaled = magnitude / _two_to(unit)
    whole, rest = divmod(scaled.numerator, scaled.denominator)
    if rest:
        half = Fraction(rest, scaled.denominator) - Fraction(1, 2)
        nearest = half > 0 or (half == 0 and whole & 1)
        away = {"rn": nearest, "rz": False, "rm": negative, "rp": not negative}[mode]
        whole += bool(away)
    if whole.bit_length() + unit > 1024:
        infinite = mode == "rn" or (mode == "rm" and negative) or (mode == "rp" and not negative)
        value = float("inf") if infinite else float(np.finfo(np.float64).max)
    else:
        value = float(np.ldexp(float(whole), unit))
    return -value if negative else value
