"""D = A * B + C, for a batch of matrices of numbers.

Floats: products are exact and are summed in float64, C with them; the sum is rounded once, to
the type of D. That is within (K + 1) * 2^-23 * sum|a * b| of any order of accumulation in single
precision, which is what the PTX ISA promises and leaves open in order, rounding and
subnormals. The hardware's own sums have fewer bits, so results differ from it within that bound.

f64: a chain of fused multiply-adds in the order of k, beginning with C, in the mode asked for.

Integers: exact; the sum wraps in 32 bits, or is clamped by .satfinite.

Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma", "wmma.mma": precision and rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dotcu.simulator.machine.chunk import Array
from dotcu.simulator.semantics.half import round_half
from dotcu.simulator.semantics.rounding import MODES, canonical, fused
from dotcu.simulator.semantics.table import NotExecuted

Product = Callable[[Array, Array, Array], Array]
_INT32 = np.iinfo(np.int32)


def float_product(flags: frozenset[str], result: str) -> Product:
    """The product of f16, bf16, tf32 and fp8."""
    if flags or result not in ("f16", "f32"):
        raise NotExecuted

    def multiply(a: Array, b: Array, c: Array) -> Array:
        total = np.matmul(a, b)
        total += c
        if result == "f32":
            return canonical(total.astype(np.float32))
        return round_half(total, "f16")

    return multiply


def double_product(flags: frozenset[str], result: str) -> Product:
    """The product of f64, in a rounding mode."""
    if result != "f64" or len(flags) > 1 or not flags <= MODES:
        raise NotExecuted
    mode = next(iter(flags), "rn")

    def multiply(a: Array, b: Array, c: Array) -> Array:
        total = c.reshape(-1)
        for k in range(a.shape[-1]):
            left = np.broadcast_to(a[:, :, k, None], c.shape).reshape(-1)
            right = np.broadcast_to(b[:, k, None, :], c.shape).reshape(-1)
            total = fused(left, right, total, mode)
        return total.reshape(c.shape)

    return multiply


def integer_product(flags: frozenset[str], result: str) -> Product:
    """The product of integers of 8 and 4 bits."""
    if result != "s32" or not flags <= {"satfinite"}:
        raise NotExecuted

    def wrap(a: Array, b: Array, c: Array) -> Array:
        total: Array = np.matmul(a, b).astype(np.int32)
        total += c
        return total

    def clamp(a: Array, b: Array, c: Array) -> Array:
        total = np.matmul(a, b).astype(np.int64)
        total += c
        clamped: Array = total.clip(_INT32.min, _INT32.max).astype(np.int32)
        return clamped

    return clamp if flags else wrap


_BITWISE: Mapping[frozenset[str], np.ufunc] = {
    frozenset({"xor", "popc"}): np.bitwise_xor,
    frozenset({"and", "popc"}): np.bitwise_and,
}


def bit_product(flags: frozenset[str], result: str) -> Product:
    """How many bits of a row and a column differ (.xor.popc), or are both set (.and.popc)."""
    combine = _BITWISE.get(flags)
    if result != "s32" or combine is None:
        raise NotExecuted

    def multiply(a: Array, b: Array, c: Array) -> Array:
        both = combine(a[:, :, None, :], b.swapaxes(1, 2)[:, None, :, :])
        total: Array = np.bitwise_count(both).sum(axis=-1, dtype=np.int32)
        total += c
        return total

    return multiply
