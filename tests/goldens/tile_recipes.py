"""Inputs of the golden tile kernels by element type: special values first, then ordinary ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from golden_recipes import THREADS, Array, Recipe, bf16, f16, f32, f64, integers, random_bits, unit
from tile_case import DTYPES, MANTISSA

_FLOATS = {"f16": f16, "bf16": bf16, "f32": f32, "f64": f64}


def values(type: str) -> Recipe:
    """128 elements with all special values of a type; for fp8, each of its 256 values."""
    dtype = DTYPES[type]

    def recipe(seed: str) -> Array:
        if type in ("e4m3", "e5m2"):
            return np.arange(256, dtype=np.uint8)
        if type == "bool":
            return (random_bits(seed, THREADS) & np.uint64(1)).astype(np.bool_)
        if type in _FLOATS:
            return _FLOATS[type](seed).astype(f"u{dtype.itemsize}").view(dtype)
        return integers(seed).astype(f"u{dtype.itemsize}").view(dtype)

    return recipe


def divisors(type: str) -> Recipe:
    """Neither 0 nor -1: a quotient by those is undefined for some dividends."""

    def recipe(seed: str) -> Array:
        made = values(type)(seed)
        minus_one = np.array(-1).astype(made.dtype)
        return np.where((made == 0) | (made == minus_one), np.array(3, made.dtype), made)

    return recipe


def amounts(type: str) -> Recipe:
    """Shifts from 0 to the last bit."""
    bits = DTYPES[type].itemsize * 8

    def recipe(seed: str) -> Array:
        return (random_bits(seed, THREADS) % np.uint64(bits)).astype(DTYPES[type])

    return recipe


def within(type: str, low: float, high: float, count: int = THREADS) -> Recipe:
    """Uniform numbers of a floating-point type, or whole ones of an integer type."""

    def recipe(seed: str) -> Array:
        made = low + (high - low) * unit(seed, count)
        return rounded(type, np.floor(made) if type not in MANTISSA else made)

    return recipe


def small_integers(type: str, count: int, largest: int = 3) -> Recipe:
    """Whole numbers of which sums of products are exact in any order."""

    def recipe(seed: str) -> Array:
        low = 0 if type.startswith("u") else -largest
        whole = (random_bits(seed, count) % np.uint64(largest - low + 1)).astype(np.int64) + low
        return rounded(type, whole.astype(np.float64))

    return recipe


def rounded(type: str, made: Array) -> Array:
    """Return float64 numbers as a type holds them; for bf16 cut, for fp8 small whole numbers alone."""
    if type == "bf16":
        return (made.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    if type in ("e4m3", "e5m2"):  # by way of f16, whose bits they cut
        half = made.astype(np.float16).view(np.uint16)
        if type == "e5m2":
            return (half >> np.uint16(8)).astype(np.uint8)
        magnitude = np.maximum((half & np.uint16(0x7FFF)) >> np.uint16(7), np.uint16(64)) - np.uint16(64)
        return (magnitude | (half >> np.uint16(8) & np.uint16(0x80))).astype(np.uint8)
    return made.astype(DTYPES[type])


def convertible(source: str, to: str) -> Recipe:
    """Floats whose whole part an integer type holds: others have no defined value there."""
    info = np.iinfo(DTYPES[to])

    def recipe(seed: str) -> Array:
        ordinary = floats_in_range(seed)
        special = values(source)(seed)
        kept = special if source != "bf16" else (special.astype(np.uint32) << 16).view(np.float32)
        with np.errstate(invalid="ignore"):
            wide = kept.astype(np.float64)
            fits = (wide > float(info.min) - 1) & (wide < float(info.max)) & np.isfinite(wide)
        return np.where(fits, special, ordinary)

    def floats_in_range(seed: str) -> Array:
        low, high = max(float(info.min), -6e4), min(float(info.max), 6e4)
        return within(source, low, high)(f"{seed} fits")

    return recipe


def ties(type: str) -> Recipe:
    """Few different numbers, so that some of each row are equal."""
    return within(type, 0 if type.startswith("u") else -4, 4) if type not in MANTISSA else _halves(type)


def _halves(type: str) -> Recipe:
    def recipe(seed: str) -> Array:
        return rounded(type, np.round(unit(seed, THREADS) * 8 - 4) / 2)

    return recipe


def permutation(count: int = THREADS) -> Recipe:
    """Each number below `count` once, in some order."""

    def recipe(seed: str) -> Array:
        return np.argsort(random_bits(seed, count), kind="stable").astype(np.int32)

    return recipe


def masked_off(recipe: Recipe, wrong: Callable[[Array], Array], instead: float) -> Recipe:
    """Put a number in place of those that the kernel gives no meaning to.

    Args:
        recipe: Makes the numbers.
        wrong: Says which.
        instead: That number.
    """

    def made(seed: str) -> Array:
        array = recipe(seed)
        with np.errstate(invalid="ignore"):
            return np.where(wrong(array), np.array(instead, array.dtype), array)

    return made
