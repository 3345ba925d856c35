"""Inputs of the golden kernels: made from a fixed recipe, the same on every machine.

Bits come from SplitMix64 over a counter (Steele, Lea, Flood, "Fast Splittable Pseudorandom
Number Generators", 2014) and not from NumPy's generators, whose streams may change between
versions. Special values come first: zeros, infinities, NaN, subnormals, the ends of ranges.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Recipe = Callable[[str], Array]
"""From a name that seeds it to an array."""

THREADS = 128
"""Values of a recipe for instructions: one block of threads."""


def random_bits(seed: str, count: int) -> Array:
    """`count` random u64."""
    start = np.uint64(zlib.crc32(seed.encode()) << 32)
    with np.errstate(over="ignore"):
        z = start + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: Array = z ^ (z >> np.uint64(31))
    return result


def unit(seed: str, count: int) -> Array:
    """`count` float64 in [0, 1)."""
    result: Array = (random_bits(seed, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return result


# Operands of spelled instructions: u64 words whose low bits are of the type at hand


def mixed(seed: str, specials: Array, ordinary: Array) -> Array:
    """Special values, all of them, then half and half with ordinary ones, THREADS in all."""
    if not seed.startswith("a"):  # against each special value of the first operand stands a random one
        specials = specials[np.argsort(random_bits(f"{seed} order", len(specials)), kind="stable")]
    choice = random_bits(f"{seed} choice", THREADS)
    values = ordinary.copy()
    picked = specials[(choice >> np.uint64(1)).astype(np.int64) % len(specials)]
    values[choice & np.uint64(1) == 0] = picked[choice & np.uint64(1) == 0]
    values[: len(specials)] = specials[:THREADS]
    return values


_EDGES = sorted(
    {
        (base + step) % 2**64
        for base in (0, 2**7, 2**8, 2**15, 2**16, 2**31, 2**32, 2**63)
        for step in (-1, 0, 1)
    }
    | {3, 5, 24, 31, 33, 63, 64, 65, 2**64 - 2**31, 2**64 - 2**15, 2**64 - 2**7, 0x0F0F, 0x80000000_7FFFFFFF}
)


def integers(seed: str) -> Array:
    """Integers of every width at once: the ends of each range, small numbers, random bits."""
    bits = random_bits(f"{seed} bits", THREADS)
    small = bits >> (random_bits(f"{seed} shift", THREADS) % np.uint64(64))
    return mixed(seed, np.array(_EDGES, np.uint64), small)


def amounts(seed: str) -> Array:
    """Shift amounts and field positions: mostly within 0 to 70, some far beyond; in each byte."""
    bits = random_bits(f"{seed} bits", THREADS)
    small = sum(((bits >> np.uint64(8 * i)) % np.uint64(71)) << np.uint64(8 * i) for i in range(4))
    return mixed(
        seed, np.array([0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 0xFFFFFFFF], np.uint64), small
    )


def _floats(seed: str, dtype: Any, specials: Sequence[float], bits: Sequence[int], spread: int) -> Array:
    """Floats near 1, floats of any exponent, special ones, and special bit patterns."""
    word = np.dtype(f"u{np.dtype(dtype).itemsize}")
    sign = np.where(random_bits(f"{seed} sign", THREADS) & np.uint64(1), -1.0, 1.0)
    power = np.floor(unit(f"{seed} power", THREADS) * (2 * spread + 1)) - spread
    power = np.where(random_bits(f"{seed} near", THREADS) & np.uint64(1), power, np.floor(power / spread * 3))
    ordinary = (sign * np.ldexp(1 + unit(f"{seed} value", THREADS), power.astype(int))).astype(dtype)
    fixed = np.concatenate((np.array(specials, dtype).view(word), np.array(bits, word)))
    return mixed(seed, fixed.astype(np.uint64), ordinary.view(word).astype(np.uint64))


_COMMON = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, 0.5, 1.5, 2.5, -2.5, 3.0, 127.5, -128.5, 255.0, 256.0)


def f32(seed: str) -> Array:
    """float32 bits: quiet and signalling NaN, subnormals, the ends, halves, integers' limits."""
    limits = (2.0**31, -(2.0**31), 2.0**32, 2.0**63, 2.0**64, 32767.5, 65535.5, 2.0**-126, 2.0**126 * 1.5)
    bits = (0x7FC00000, 0x7F800001, 0xFFC12345, 0x7F7FFFFF, 0xFF7FFFFF, 1, 0x80000001, 0x007FFFFF, 0x00400000)
    with np.errstate(over="ignore"):
        return _floats(seed, np.float32, (*_COMMON, *limits), bits, 126)


def f64(seed: str) -> Array:
    """float64 bits: the same, and values between two float32."""
    limits = (
        2.0**31 - 0.5,
        -(2.0**31) - 0.5,
        2.0**32,
        2.0**53,
        2.0**63,
        2.0**64,
        3.5e38,
        1e-42,
        1 + 2.0**-24,
        65519.9,
    )
    bits = (
        0x7FF8000000000000,
        0x7FF0000000000001,
        0xFFF8000000012345,
        0x7FEFFFFFFFFFFFFF,
        1,
        0x800FFFFFFFFFFFFF,
    )
    return _floats(seed, np.float64, (*_COMMON, *limits), bits, 300)


def wide_f64(seed: str) -> Array:
    """float64 bits over the whole range of exponents, so that products over- and underflow."""
    bits = (
        0x7FF8000000000000,
        0x7FEFFFFFFFFFFFFF,
        0xFFEFFFFFFFFFFFFF,
        1,
        0x800FFFFFFFFFFFFF,
        0x0010000000000000,
    )
    return _floats(seed, np.float64, _COMMON, bits, 1020)


def f16(seed: str) -> Array:
    """float16 bits."""
    bits = (0x7E00, 0x7C01, 0xFE12, 0x7BFF, 0xFBFF, 1, 0x8001, 0x03FF, 0x0400)
    return _floats(seed, np.float16, (*_COMMON, 2048.0, 32768.0, 0.3333), bits, 14)


def bf16(seed: str) -> Array:
    """bfloat16 bits: the upper half of float32."""
    values = f32(seed) >> np.uint64(16)
    return mixed(
        seed, np.array([0x7F80, 0xFF80, 0x7FC0, 0x7F7F, 0xFF7F, 1, 0x8001, 0x7F, 0x80], np.uint64), values
    )


def pairs(half: Recipe) -> Recipe:
    """Two halves in a word."""

    def recipe(seed: str) -> Array:
        upper = np.roll(half(f"{seed} upper"), 7)
        result: Array = (upper << np.uint64(16)) | half(seed)
        return result

    return recipe


def fp8_pairs(seed: str) -> Array:
    """Every fp8 value, two to a word: all 256 bit patterns among 128 words."""
    low = np.arange(THREADS, dtype=np.uint64) * np.uint64(2)
    result: Array = low | ((low + np.uint64(1)) << np.uint64(8))
    return result


def to_fp8(seed: str) -> Array:
    """float32 bits around what fp8 holds: ties, its largest values, its subnormals."""
    ties = [
        448.0,
        464.0,
        465.0,
        57344.0,
        61440.0,
        61441.0,
        2.0**-9,
        2.0**-10,
        1.5 * 2.0**-10,
        1.0625,
        1.1875,
        17.0,
    ]
    specials = np.array([*ties, *(-t for t in ties), 0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    power = np.floor(unit(f"{seed} power", THREADS) * 28 - 17).astype(int)
    sign = np.where(random_bits(f"{seed} sign", THREADS) & np.uint64(1), -1.0, 1.0)
    ordinary = (sign * np.ldexp(1 + unit(f"{seed} value", THREADS), power)).astype(np.float32)
    return mixed(seed, specials.view(np.uint32).astype(np.uint64), ordinary.view(np.uint32).astype(np.uint64))


def _ranged(seed: str, specials: Sequence[float], low: float, high: float) -> Array:
    """float32 bits, uniform in a range, with special values."""
    ordinary = (low + (high - low) * unit(f"{seed} value", THREADS)).astype(np.float32)
    fixed = np.array(specials, np.float32).view(np.uint32).astype(np.uint64)
    return mixed(seed, fixed, ordinary.view(np.uint32).astype(np.uint64))


_ZEROS = (0.0, -0.0, np.nan, 1e-42, -1e-42)


def angles(seed: str) -> Array:
    """float32 bits within [-100 pi, 100 pi], where sin and cos have a bound, and infinities."""
    return _ranged(
        seed, (*_ZEROS, np.inf, -np.inf, 1.0, 3.1415927, -3.1415927, 6.2831855, 1e-5), -314.0, 314.0
    )


def exponents(seed: str) -> Array:
    """float32 bits whose power of two is of any size, or their logarithm of any sign."""
    ends = (np.inf, -np.inf, 127.99, 128.0, -126.0, -126.5, -149.0, -150.5, 1.0, 0.5, 2.0, 1.0000001)
    return _ranged(seed, (*_ZEROS, *ends), -150.0, 130.0)


def positive_f32(seed: str) -> Array:
    """float32 bits, mostly positive and of any exponent."""
    values = f32(seed)
    keep = np.arange(THREADS) % 8 == 0
    return np.where(keep, values, values & np.uint64(0x7FFFFFFF))


# Operands in which special values meet

CORE = 16
"""Values that meet each other in every pair."""
CROSSED = 2 * THREADS + CORE * CORE
"""Operands of each spelled instruction: one block of threads."""


def _meet(core: Sequence[int], seed: str) -> Array:
    """The core, such that every pair of values is there of the operands a and b, a and c, b and c."""
    first, second = (m.reshape(-1) for m in np.divmod(np.arange(CORE * CORE), CORE))
    chosen = {"a": first, "b": second, "c": (first + second) % CORE}[seed[0]]
    return np.array(core, np.uint64)[chosen]


def crossed(recipe: Recipe, core: Sequence[int]) -> Recipe:
    """A recipe's values, and others for another seed, with all pairs of a core between them."""
    assert len(core) == CORE

    def made(seed: str) -> Array:
        return np.concatenate((recipe(seed), _meet(core, seed), recipe(f"{seed} more")))

    return made


def meeting(core: Sequence[int], others: Sequence[int], dtype: Any) -> tuple[Recipe, Recipe]:
    """Two recipes of bits, in which each value of one core meets each of another, as words of 32 bits."""
    pairs = np.array([(one, other) for one in core for other in others], dtype)
    first, second = (np.ascontiguousarray(pairs[:, i]).view(np.uint32) for i in range(2))
    return lambda seed: first, lambda seed: second


# Zeros, ones, infinities, the ends of normal and of subnormal numbers; then quiet and signalling NaN of both
# signs: without a payload, with payloads that a narrower type keeps or drops, and all ones.
CORE_F32 = (
    0x00000000, 0x80000000, 0x3F800000, 0xBFC00000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x00800000,
    0x00000001, 0x807FFFFF, 0x7FC00000, 0xFFC12345, 0x7FA00001, 0xFFA12345, 0x7FFFFFFF, 0x7FD50000,
)  # fmt: skip
CORE_F64 = (
    0x0000000000000000, 0x8000000000000000, 0x3FF0000000000000, 0xBFF8000000000000,
    0x7FF0000000000000, 0xFFF0000000000000, 0x7FEFFFFFFFFFFFFF, 0x0010000000000000,
    0x0000000000000001, 0x800FFFFFFFFFFFFF, 0x7FF8000000000000, 0xFFF8123456789ABC,
    0x7FF0000000000001, 0xFFF5432100000001, 0x7FFFFFFFFFFFFFFF, 0x7FFD540000000000,
)  # fmt: skip
CORE_F16 = (
    0x0000, 0x8000, 0x3C00, 0xBE00, 0x7C00, 0xFC00, 0x7BFF, 0x0400,
    0x0001, 0x83FF, 0x7E00, 0xFE12, 0x7C01, 0xFD23, 0x7FFF, 0x7F55,
)  # fmt: skip
CORE_BF16 = (
    0x0000, 0x8000, 0x3F80, 0xBFC0, 0x7F80, 0xFF80, 0x7F7F, 0x0080,
    0x0001, 0x807F, 0x7FC0, 0xFFD2, 0x7F81, 0xFFA3, 0x7FFF, 0x7FD5,
)  # fmt: skip
# The ends of each width, alone and in pairs, and small numbers.
CORE_INTEGERS = (
    0, 1, 2**64 - 1, 3, 7, 2**15, 2**15 - 1, 2**16 - 1, 2**31, 2**31 - 1, 2**32 - 1, 2**32, 2**63, 2**63 - 1,
    0x80008000_80008000, 0x7FFF7FFF_7FFF7FFF,
)  # fmt: skip
CORE_AMOUNTS = (0, 1, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 255, 256, 0x1_0000_0020, 0xFFFFFFFF)
# As of f32, the largest within the range in which sin and cos have a bound.
CORE_ANGLES = tuple(0x439D0000 if bits == 0x7F7FFFFF else bits for bits in CORE_F32)


def f32_in_f64(seed: str) -> Array:
    """Bits of f64 of which the lower half are the core of f32; then the core of f64."""
    upper = np.roll(_meet(CORE_F64, seed), 11) & np.uint64(0xFFFFFFFF00000000)
    return np.concatenate((upper | _meet(CORE_F32, seed), _meet(CORE_F64, seed)))


# Arrays of ordinary kernels


def uniform(*shape: int, low: float = -1.0, high: float = 1.0, dtype: Any = np.float32) -> Recipe:
    """Uniform numbers."""

    def recipe(seed: str) -> Array:
        values = low + (high - low) * unit(seed, int(np.prod(shape)))
        return values.astype(dtype).reshape(shape)

    return recipe


def whole(*shape: int, low: int = 0, high: int = 2**31 - 1, dtype: Any = np.int32) -> Recipe:
    """Integers in [low, high]."""

    def recipe(seed: str) -> Array:
        bits = random_bits(seed, int(np.prod(shape)))
        values = bits % np.uint64(high - low + 1)
        return (values.astype(np.int64) + low).astype(dtype).reshape(shape)

    return recipe


def bits(*shape: int, dtype: Any = np.uint32) -> Recipe:
    """Random bits."""

    def recipe(seed: str) -> Array:
        return random_bits(seed, int(np.prod(shape))).astype(dtype).reshape(shape)

    return recipe


def bf16_bits(*shape: int, low: float = -1.0, high: float = 1.0) -> Recipe:
    """Uniform bfloat16 as bits: float32 cut to its upper half."""

    def recipe(seed: str) -> Array:
        values = uniform(*shape, low=low, high=high)(seed)
        result: Array = (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        return result

    return recipe


def zeros(*shape: int, dtype: Any = np.float32) -> Recipe:
    """Zeros."""
    return lambda seed: np.zeros(shape, dtype)


def filled(*shape: int, value: float, dtype: Any) -> Recipe:
    """One value, over and over."""
    return lambda seed: np.full(shape, value, dtype)


def in_order(count: int, dtype: Any = np.int32) -> Recipe:
    """0, 1, 2, ..."""
    return lambda seed: np.arange(count, dtype=dtype)
