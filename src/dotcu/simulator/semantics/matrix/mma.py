"""mma.sync: a matrix multiply-and-accumulate of a warp, from registers to registers.

Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma". mma.sp, and the kinds of sm_100 and
later, have no row here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dotcu.ptx.instructions import Operand
from dotcu.simulator.decoding.inlining import FlatInstruction
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.machine.shape import Array
from dotcu.simulator.semantics.arithmetic.half import round_half
from dotcu.simulator.semantics.arithmetic.rounding import MODES, canonical, fused
from dotcu.simulator.semantics.matrix.fragments import (
    ACCUMULATORS,
    ELEMENT_BITS,
    MULTIPLICANDS,
    FragmentLayout,
    fragments_of,
    quad_accumulator,
    quad_multiplicand,
)
from dotcu.simulator.semantics.matrix.tiles import of_whole_warps, read, sources_of, targets_of, write
from dotcu.simulator.semantics.table import NotExecuted, Step, unsigned
from dotcu.simulator.semantics.warp import Rendezvous

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding
    from dotcu.simulator.semantics.matrix.wmma import WmmaFragment


# D = A * B + C, for a batch of matrices of numbers.
#
# Floats: products are exact and are summed in float64, C with them; the sum is rounded once, to the type
# of D. That is within (K + 1) * 2^-23 * sum|a * b| of any order of accumulation in single precision, which
# is what the PTX ISA promises; it leaves order, rounding and subnormals open. The hardware's own sums have
# fewer bits, so results differ from it within that bound.
#
# f64: a chain of fused multiply-adds in the order of k, beginning with C, in the instruction's mode.
#
# Integers: exact; the sum wraps in 32 bits, or is clamped by .satfinite.
#
# Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma", "wmma.mma": precision and rounding.


Product = Callable[[Array, Array, Array], Array]


def _float_product(flags: frozenset[str], result: str) -> Product:
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


def _double_product(flags: frozenset[str], result: str) -> Product:
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


def _integer_product(flags: frozenset[str], result: str) -> Product:
    """The product of integers of 8 and 4 bits."""
    if result != "s32" or not flags <= {"satfinite"}:
        raise NotExecuted

    limits = np.iinfo(np.int32)

    def multiply(a: Array, b: Array, c: Array) -> Array:
        if not flags:
            return np.matmul(a, b).astype(np.int32) + c
        total = np.matmul(a, b).astype(np.int64) + c
        return total.clip(limits.min, limits.max).astype(np.int32)

    return multiply


_BITWISE: Mapping[frozenset[str], np.ufunc] = {
    frozenset({"xor", "popc"}): np.bitwise_xor,
    frozenset({"and", "popc"}): np.bitwise_and,
}


def _bit_product(flags: frozenset[str], result: str) -> Product:
    """Return the function that counts the bits that differ (.xor.popc) or are both set (.and.popc)."""
    combine = _BITWISE.get(flags)
    if result != "s32" or combine is None:
        raise NotExecuted

    def multiply(a: Array, b: Array, c: Array) -> Array:
        both = combine(a[:, :, None, :], b.swapaxes(1, 2)[:, None, :, :])
        total: Array = np.bitwise_count(both).sum(axis=-1, dtype=np.int32)
        total += c
        return total

    return multiply


_LAYOUTS = ("row", "col")
_PLAIN = frozenset({"sync", "aligned", *_LAYOUTS})


class MmaFamily(NamedTuple):
    """Types of multiplicands that are multiplied with each other.

    Attributes:
        product: From further modifiers and the type of D to the computation.
        types: Types of A and B.
        sums: Types of C and D.
        mma: Shapes of mma.
        wmma: Shapes of wmma.
    """

    product: Callable[[frozenset[str], str], Product]
    types: frozenset[str]
    sums: frozenset[str]
    mma: frozenset[str]
    wmma: frozenset[str]


def _family(product: Callable[[frozenset[str], str], Product], *columns: str) -> MmaFamily:
    return MmaFamily(product, *[frozenset(text.split()) for text in columns])


_TILES = "m16n16k16 m32n8k16 m8n32k16"
# PTX ISA, "Matrix Shape": the dense shapes that sm_80, sm_89 and sm_90 have.
FAMILIES: tuple[MmaFamily, ...] = (
    _family(_float_product, "f16", "f16 f32", "m8n8k4 m16n8k8 m16n8k16", _TILES),
    _family(_float_product, "bf16", "f32", "m16n8k8 m16n8k16", _TILES),
    _family(_float_product, "tf32", "f32", "m16n8k4 m16n8k8", "m16n16k8"),
    _family(_float_product, "e4m3 e5m2", "f16 f32", "m16n8k16 m16n8k32", ""),
    _family(_double_product, "f64", "f64", "m8n8k4 m16n8k4 m16n8k8 m16n8k16", "m8n8k4"),
    _family(_integer_product, "s8 u8", "s32", "m8n8k16 m16n8k16 m16n8k32", _TILES),
    _family(_integer_product, "s4 u4", "s32", "m8n8k32 m16n8k32 m16n8k64", "m8n8k32"),
    _family(_bit_product, "b1", "s32", "m8n8k128 m16n8k128 m16n8k256", "m8n8k128"),
)
_OF_TYPE: Mapping[str, MmaFamily] = {type_: family for family in FAMILIES for type_ in family.types}


class MmaForm(NamedTuple):
    """A multiply-accumulate as it is spelled: types of D, A, B and C, layouts of A and B."""

    shape: str
    d: str
    a: str
    b: str
    c: str
    layouts: tuple[str, str]
    product: Product


def sizes_of(shape: str) -> list[int]:
    """M, N and K of a shape such as m16n8k16."""
    return [int(number) for number in re.findall(r"\d+", shape)]


def form_of(flags: tuple[str, ...], types: tuple[str, ...], *, wmma: bool = False) -> MmaForm:
    """Read the modifiers of mma or wmma.mma.

    Args:
        flags: The modifiers that name no type.
        types: The modifiers that name a type.
        wmma: True for wmma.mma.

    Raises:
        NotExecuted: There is no such form.
    """
    d, a, b, c = types
    family = _OF_TYPE[a]
    shapes = [f for f in flags if f in (family.wmma if wmma else family.mma)]
    layouts = [f for f in flags if f in _LAYOUTS]
    if len(shapes) != 1 or len(layouts) != 2 or not {"sync", "aligned"} <= set(flags):
        raise NotExecuted
    if b not in family.types or not {c, d} <= family.sums:
        raise NotExecuted
    product = family.product(frozenset(flags) - _PLAIN - {shapes[0], "mma" if wmma else ""}, d)
    return MmaForm(shapes[0], d, a, b, c, (layouts[0], layouts[1]), product)


def bind_mma(placed: FlatInstruction, binding: Binding) -> Rendezvous:
    """mma.sync, dense."""
    instruction = placed.instruction
    form = form_of(instruction.flags, instruction.types)
    step = multiply_step(form, _fragments(form), instruction.operands, binding)
    return of_whole_warps(step, placed, binding)


def _fragments(form: MmaForm) -> Sequence[FragmentLayout]:
    c_bits, d_bits = [8 * ACCUMULATORS[type_].itemsize for type_ in (form.c, form.d)]
    if form.a == "f16" and form.shape == "m8n8k4":
        if d_bits < c_bits:
            raise NotExecuted
        return (
            quad_accumulator(d_bits),
            quad_multiplicand(along_k=form.layouts[0] == "row", is_b=False),
            quad_multiplicand(along_k=form.layouts[1] == "col", is_b=True),
            quad_accumulator(c_bits),
        )
    if form.layouts != ("row", "col") or form.c != form.d:
        raise NotExecuted
    return fragments_of(sizes_of(form.shape), ELEMENT_BITS[form.a], c_bits)


def multiply_step(
    form: MmaForm,
    fragments: Sequence[FragmentLayout | WmmaFragment],
    operands: tuple[Operand, ...],
    binding: Binding,
) -> Step:
    """Return the step that gathers A, B and C, multiplies, and scatters D.

    Args:
        form: The instruction's spelling.
        fragments: Of D, A, B and C.
        operands: Of D, A, B and C.
        binding: Finds the operands' registers.
    """
    word, d_bytes = "b64" if form.a == "f64" else "b32", 8 if form.d == "f64" else 4
    d_fragment, a_fragment, b_fragment, c_fragment = fragments
    target, *given = operands
    targets = targets_of(target, d_fragment.registers, d_bytes, binding)
    a, b, c = [
        sources_of(operand, fragment.registers, word, binding)
        for operand, fragment in zip(given, fragments[1:], strict=True)
    ]
    a_numbers, b_numbers = MULTIPLICANDS[form.a], MULTIPLICANDS[form.b]
    c_dtype = ACCUMULATORS[form.c]
    d_word = unsigned(d_bytes)
    product = form.product

    def step(chunk: Chunk) -> None:
        left = a_numbers(a_fragment.gather(read(chunk, a)))
        right = b_numbers(b_fragment.gather(read(chunk, b)))
        sums = c_fragment.gather(read(chunk, c)).view(c_dtype)
        result = product(
            left.swapaxes(1, 2) if a_fragment.transposed else left,
            right.swapaxes(1, 2) if b_fragment.transposed else right,
            sums,
        )
        write(chunk, targets, d_fragment.scatter(result.view(d_word)))

    return step
