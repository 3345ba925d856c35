"""mma.sync and mma.sp.sync: a matrix multiply-and-accumulate of a warp, from registers to registers.

Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma", "... mma.sp". The kinds of sm_100 and later
have no row here.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from dotcu.ptx.instructions import Operand, Vector
from dotcu.simulator.machine.shape import WARP
from dotcu.simulator.machine.state import Batch, InstructionStep
from dotcu.simulator.machine.undefined import NOBODY, UndefinedBits
from dotcu.simulator.program.binding import (
    MANY,
    Binding,
    NotExecuted,
    chosen,
    counted,
    immediate,
    require,
    unsigned,
)
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array
from dotcu.simulator.semantics.arithmetic.float import round_half, widen
from dotcu.simulator.semantics.arithmetic.rounding import MODES, canonical, fused, with_nan_of
from dotcu.simulator.semantics.matrix.tiles import read, sources_of, targets_of

# D = A * B + C, for a batch of matrices of numbers.
#
# Floats: products are exact and are summed in float64, C with them; the sum is rounded once, to the type
# of D. That is within (K + 1) * 2^-23 * sum|a * b| of any order of accumulation in single precision, which
# is what the PTX ISA promises; it leaves order, rounding and subnormals open. The hardware's own sums have
# fewer bits, so results differ from it within that bound. What underflows is +0 (measured: H200, CUDA 13.0).
#
# f64: a chain of fused multiply-adds in the order of k, beginning with C, in the instruction's mode.
#
# Integers: exact; the sum wraps in 32 bits, or is clamped by .satfinite.
#
# Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma", "wmma.mma": precision and rounding.


Product = Callable[[Array, Array, Array], Array]
_NEGATIVE_ZERO = np.uint16(0x8000)


def _float_product(flags: frozenset[str], result: str) -> Product:
    """The product of f16, bf16, tf32 and fp8."""
    require(not flags and result in ("f16", "f32"))

    def multiply(a: Array, b: Array, c: Array) -> Array:
        total = np.matmul(a, b)
        total += c
        if result == "f32":
            total = canonical(total.astype(np.float32))
            total += 0.0  # no zero is negative
            return total
        bits = round_half(total, "f16")
        return np.where(bits == _NEGATIVE_ZERO, np.uint16(0), bits)

    return multiply


def _double_product(flags: frozenset[str], result: str) -> Product:
    """The product of f64, in a rounding mode."""
    require(result == "f64" and len(flags) <= 1 and flags <= MODES)
    mode = next(iter(flags), "rn")

    def multiply(a: Array, b: Array, c: Array) -> Array:
        total = c.reshape(-1)
        for k in range(a.shape[-1]):
            left = np.broadcast_to(a[:, :, k, None], c.shape).reshape(-1)
            right = np.broadcast_to(b[:, k, None, :], c.shape).reshape(-1)
            total = with_nan_of(fused(left, right, total, mode), right, total, left)
        return total.reshape(c.shape)

    return multiply


def integer_product(flags: frozenset[str], result: str) -> Product:
    """The product of integers of 8 and 4 bits."""
    require(result == "s32" and flags <= {"satfinite"})

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


MmaFamily = tuple[Callable[[frozenset[str], str], Product], Mapping[str, frozenset[str]], int]
"""Types of multiplicands that are multiplied with each other.

From further modifiers and the type of D to the computation; "types" of A and B, "sums" of C and D, and the
shapes of "mma", "wmma" and mma.sp ("sparse"); and the bits of the unit that an index in mma.sp's metadata
selects.
"""


def _family(product: Callable[[frozenset[str], str], Product], *columns: str, unit: int = 0) -> MmaFamily:
    names = ("types", "sums", "mma", "wmma", "sparse")
    return product, {n: frozenset(text.split()) for n, text in zip(names, columns, strict=True)}, unit


_TILES = "m16n16k16 m32n8k16 m8n32k16"
# PTX ISA, "Matrix Shape": the shapes that sm_80, sm_89 and sm_90 have. 9.7.14.6.1, "Sparse matrix storage": a
# unit is an element of 16 or 8 bits, half of a tf32, or two elements of 4 bits.
FAMILIES: tuple[MmaFamily, ...] = (
    _family(
        _float_product, "f16", "f16 f32", "m8n8k4 m16n8k8 m16n8k16", _TILES, "m16n8k16 m16n8k32", unit=16
    ),
    _family(_float_product, "bf16", "f32", "m16n8k8 m16n8k16", _TILES, "m16n8k16 m16n8k32", unit=16),
    _family(_float_product, "tf32", "f32", "m16n8k4 m16n8k8", "m16n16k8", "m16n8k8 m16n8k16", unit=16),
    _family(_float_product, "e4m3 e5m2", "f16 f32", "m16n8k16 m16n8k32", "", "m16n8k64", unit=8),
    _family(_double_product, "f64", "f64", "m8n8k4 m16n8k4 m16n8k8 m16n8k16", "m8n8k4", ""),
    _family(
        integer_product, "s8 u8", "s32", "m8n8k16 m16n8k16 m16n8k32", _TILES, "m16n8k32 m16n8k64", unit=8
    ),
    _family(
        integer_product, "s4 u4", "s32", "m8n8k32 m16n8k32 m16n8k64", "m8n8k32", "m16n8k64 m16n8k128", unit=8
    ),
    _family(_bit_product, "b1", "s32", "m8n8k128 m16n8k128 m16n8k256", "m8n8k128", ""),
)
_OF_TYPE: Mapping[str, MmaFamily] = {type_: family for family in FAMILIES for type_ in family[1]["types"]}


class MmaForm(NamedTuple):
    """A multiply-accumulate as it is spelled: types of D, A, B and C, layouts of A and B."""

    shape: str
    d: str
    a: str
    b: str
    c: str
    layouts: tuple[str, str]
    product: Product
    unit: int


def sizes_of(shape: str) -> list[int]:
    """M, N and K of a shape such as m16n8k16."""
    return [int(number) for number in re.findall(r"\d+", shape)]


def form_of(flags: tuple[str, ...], types: tuple[str, ...], column: str = "mma") -> MmaForm:
    """Read the modifiers of mma, mma.sp or wmma.mma.

    Args:
        flags, types: The modifiers that name no type, and those that do.
        column: The family's shapes that it may have: "mma", "sparse" or "wmma".

    Raises:
        NotExecuted: There is no such form.
    """
    d, a, b, c = counted(types, 4)
    make_product, known, unit = chosen(_OF_TYPE, a)
    shapes = [f for f in flags if f in known[column]]
    layouts = [f for f in flags if f in _LAYOUTS]
    require(len(shapes) == 1 and len(layouts) == 2 and {"sync", "aligned"} <= set(flags))
    require(b in known["types"] and {c, d} <= known["sums"])
    own = {shapes[0], *_OWN_FLAGS[column]}
    product = make_product(frozenset(flags) - _PLAIN - own, d)
    return MmaForm(shapes[0], d, a, b, c, (layouts[0], layouts[1]), product, unit)


_ORDERED = "sp::ordered_metadata"
_OWN_FLAGS: Mapping[str, tuple[str, ...]] = {"mma": (), "sparse": ("sp", _ORDERED), "wmma": ("mma",)}


def bind_mma(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """mma.sync, or mma.sp.sync with A as its nonzero half."""
    ptx = instruction.ptx
    flags, operands = ptx.flags, [*ptx.operands]
    is_sparse = counted(flags, 1, MANY)[0] in _OWN_FLAGS["sparse"]
    form = form_of(flags, ptx.types, "sparse" if is_sparse else "mma")
    fragments, expand = _fragments(form, is_sparse=is_sparse), None
    if is_sparse:
        *operands, metadata, selector = counted(operands, 6)
        expand = _expansion(instruction, form, metadata, selector, binding)
    return multiply_step(form, fragments, operands, binding, expand)


def _fragments(form: MmaForm, *, is_sparse: bool) -> Sequence[FragmentLayout]:
    c_bits, d_bits = [8 * ACCUMULATORS[type_].itemsize for type_ in (form.c, form.d)]
    if form.a == "f16" and form.shape == "m8n8k4":
        require(d_bits >= c_bits)
        return (
            _quad_accumulator(d_bits),
            _quad_multiplicand(along_k=form.layouts[0] == "row", is_b=False),
            _quad_multiplicand(along_k=form.layouts[1] == "col", is_b=True),
            _quad_accumulator(c_bits),
        )
    require(form.layouts == ("row", "col") and form.c == form.d)
    return _fragments_of(sizes_of(form.shape), ELEMENT_BITS[form.a], c_bits, is_sparse=is_sparse)


# Sparse A: of four units side by side in a row two are given, and the metadata has the place of each in
# two bits.
#
# A quad's lanes have rows g and g + 8. Where units are of 16 bits, each lane that holds metadata has 16 bits
# of each of the two rows; where they are of 8 bits, it has 32 bits of one row, and the next lane those of
# the other.
#
# Source: PTX ISA, 9.7.14.6.1, "Sparse matrix storage": which lanes hold metadata, and which values are
# undefined; 9.7.14.6.2, "Matrix fragments for multiply-accumulate operation with sparse matrix A".


Expansion = Callable[["Batch", Array], Array]
"""From A's words, by matrix, row and word of the row, to those of the whole A."""


def _expansion(
    instruction: FlatInstruction, form: MmaForm, metadata: Operand, selector: Operand, binding: Binding
) -> Expansion:
    """Return what puts A's units where the metadata says, and reports places that are undefined."""
    units = sizes_of(form.shape)[2] * ELEMENT_BITS[form.a] // form.unit // 2
    holders = units // 8  # lanes of each quad
    first = holders * immediate(selector)
    require(first in range(4))
    (words,) = sources_of(Vector((metadata,)), 1, "b32", binding)
    own, shifts = unsigned(form.unit // 8), np.arange(0, 256 // form.unit, 2, dtype=np.uint32)
    fours = np.arange(units) // 2 * 4
    ordered = _ORDERED in instruction.ptx.flags

    def expand(batch: Batch, given: Array) -> Array:
        held = np.ascontiguousarray(read(batch, [words])[0].reshape(-1, 8, 4)[:, :, first : first + holders])
        if form.unit == 16:
            by_row = held.view(np.uint16).reshape(-1, 8, holders, 2).transpose(0, 3, 1, 2)
        else:
            by_row = held.reshape(-1, 8, holders // 2, 2).transpose(0, 3, 1, 2)
        places = (by_row[..., None] >> shifts & 3).reshape(-1, 16, units)
        _check_places(batch, instruction, form, places.reshape(-1, 2), ordered=ordered)
        whole = np.zeros((*places.shape[:2], 2 * units), own)
        np.put_along_axis(whole, fours + places, given.view(own), axis=-1)
        return whole.view(given.dtype)

    return expand


def _check_places(
    batch: Batch, instruction: FlatInstruction, form: MmaForm, pairs: Array, *, ordered: bool
) -> None:
    """Report pairs of places that PTX leaves undefined."""
    low, high = pairs[:, 0], pairs[:, 1]
    if form.a == "tf32":
        bad, wanted = (low & 1 != 0) | (high != low + 1), "0b0100 (the first of two elements) or 0b1110"
    elif ordered:
        bad, wanted = low >= high, "two places in ascending order, the lower one in the lower bits"
    else:
        bad, wanted = low == high, "two places that differ"
    if not bad.any():
        return
    at, each = int(np.flatnonzero(bad)[0]), len(pairs) * WARP // batch.count()
    warps = np.unique(np.flatnonzero(bad) // each)
    message = (
        f"metadata 0b{int(high[at]):02b}{int(low[at]):02b} for row {at % each * 16 // each} of A, with which "
        f"the product is undefined: each four bits have {wanted}. The selector says which lanes of each four "
        "hold them."
    )
    batch.report("metadata", instruction, batch.numbers()[warps * WARP], message)


def _multiplicands(type_: str) -> Callable[[Array], Array]:
    """Return what makes numbers that NumPy multiplies of words: floats of floats, single bits as they are."""
    if type_ == "b1":
        return lambda words: words
    return numbers_of(type_, np.float32 if type_[0] in "su" else np.float64)


def multiply_step(
    form: MmaForm,
    fragments: Sequence[FragmentLayout | WmmaFragment],
    operands: Sequence[Operand],
    binding: Binding,
    expand: Expansion | None = None,
) -> InstructionStep:
    """Return the step that gathers A, B and C, multiplies, and scatters D.

    Args:
        fragments, operands: Of D, A, B and C.
        expand: Makes the whole A of one whose nonzero half is given.
    """
    word, d_bytes = "b64" if form.a == "f64" else "b32", 8 if form.d == "f64" else 4
    d_fragment, a_fragment, b_fragment, c_fragment = fragments
    to, *given = counted(operands, 4)
    targets = targets_of(to, d_fragment.registers, d_bytes, binding)
    a, b, c = [
        sources_of(operand, fragment.registers, word, binding)
        for operand, fragment in zip(given, fragments[1:], strict=True)
    ]
    a_numbers, b_numbers = (_multiplicands(type_) for type_ in (form.a, form.b))
    c_dtype = ACCUMULATORS[form.c]
    d_word = unsigned(d_bytes)
    product = form.product

    slots = [[operand.slot for operand in operands] for operands in (targets, a, b, c)]

    def step(batch: Batch) -> None:
        if batch.undefined.slots:
            _carry_undefined(batch, fragments, slots)
        words = a_fragment.gather(read(batch, a))
        left = a_numbers(words if expand is None else expand(batch, words))
        right = b_numbers(b_fragment.gather(read(batch, b)))
        sums = c_fragment.gather(read(batch, c)).view(c_dtype)
        result = product(
            left.swapaxes(1, 2) if a_fragment.transposed else left,
            right.swapaxes(1, 2) if b_fragment.transposed else right,
            sums,
        )
        for target, value in zip(targets, d_fragment.scatter(result.view(d_word)), strict=True):
            target.write(batch, value)

    return step


def _carry_undefined(
    batch: Batch, fragments: Sequence[FragmentLayout | WmmaFragment], slots: Sequence[Sequence[int]]
) -> None:
    """Make rows of D undefined where those of A or C are, and columns where those of B are."""
    lanes, undefined = batch.numbers(), batch.undefined
    plain = [fragment for fragment in fragments if isinstance(fragment, FragmentLayout)]
    if [fragment.transposed for fragment in plain] != [False, False, True, False]:
        for slot in itertools.chain(*slots[1:]):
            undefined.use(slot, lanes)
        return
    due = []
    for fragment, own in zip(plain[1:], slots[1:], strict=True):
        known = [undefined.of(slot, lanes) for slot in own]
        due.append(fragment.gather([_due(bits, len(lanes)) for bits in known]))
    a, b, c = due
    columns = b.max(axis=-1).reshape(len(b), plain[0].words, -1).max(axis=-1)
    latest = np.maximum(np.maximum(a.max(axis=-1)[:, :, None], columns[:, None, :]), c)
    for slot, checks in zip(slots[0], plain[0].scatter(latest), strict=True):
        word = unsigned(batch.registers[slot].dtype.itemsize)
        undefined.put(slot, lanes, np.where(checks != NOBODY, np.iinfo(word).max, 0).astype(word), checks)


def _due(known: UndefinedBits | None, count: int) -> Array:
    """Return for each lane the check that is due for what is undefined of a register."""
    return np.full(count, NOBODY) if known is None else np.where(known.bits != 0, known.checks, NOBODY)


# Fragments of mma: which words of which matrix each lane's registers hold.
#
# A lane's number and a register's number are split into axes, named by letters, and so are a
# row and a word of a row; the layout says which is which. `k m | g t | m g | k t` reads: the
# registers are numbered by (k, m), the lanes by (g, t); the row of the matrix is (m, g), and the
# word in the row (k, t). A lane axis that is in neither counts matrices of one warp.
#
# Every mma except the m8n8k4 of f16 follows one rule, with groupID the lane's g and threadID_in_group its t:
# words of 32 bits (64 for f64) run along k, four lanes side by side. Those of wgmma do as well, with w the
# warp of its warpgroup.
#
# Source: PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type", "... for
# mma.m8n8k4 with .f64 floating point type", and the same for m8n8k16, m8n8k32, m8n8k128, m16n8k4,
# m16n8k8, "mma.m16n8k16 with floating point type", "... with integer type", m16n8k32, m16n8k64,
# m16n8k128 and m16n8k256.


class FragmentLayout(NamedTuple):
    """A fragment that is a permutation of axes.

    Attributes:
        indices: Of each register, in the axes of registers.
        lanes: Sizes of the axes of lanes.
        order: From the matrix's axes, warps first, to those of registers, warps and lanes.
        shape: Sizes of the matrix's axes, without the warps.
        rows, words: Rows of one matrix, and words of a row.
    """

    indices: tuple[tuple[int, ...], ...]
    lanes: tuple[int, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]
    rows: int
    words: int
    transposed: bool = False

    @property
    def registers(self) -> int:
        """Registers of each lane."""
        return len(self.indices)

    def gather(self, registers: Sequence[Array] | Array) -> Array:
        """From registers to words by matrix, row and word of the row."""
        warps = len(registers[0]) // math.prod(self.lanes)
        words = np.empty((warps, *self.shape), registers[0].dtype)
        view = words.transpose(self.order)
        for place, register in zip(self.indices, registers, strict=True):
            view[place] = register.reshape(warps, *self.lanes)
        return words.reshape(-1, self.rows, self.words)

    def scatter(self, words: Array) -> list[Array]:
        """From words by matrix, row and word of the row to registers."""
        view = words.reshape(-1, *self.shape).transpose(self.order)
        return [view[place].reshape(-1) for place in self.indices]


def layout_of(text: str, *, transposed: bool = False, **sizes: int) -> FragmentLayout:
    """Read a layout such as "k m | g t | m g | k t", with the size of each letter; g is 8 and t is 4."""
    sizes = {"g": 8, "t": 4, **sizes}
    registers, lanes, rows, words = [part.split() for part in text.split("|")]
    matrices = [axis for axis in lanes if axis not in rows + words]
    wanted = ["warp", *matrices, *rows, *words]
    return FragmentLayout(
        indices=tuple(np.ndindex(tuple(sizes[a] for a in registers))),
        lanes=tuple(sizes[a] for a in lanes),
        order=tuple(wanted.index(a) for a in (*registers, "warp", *lanes)),
        shape=tuple(sizes[a] for a in wanted[1:]),
        rows=math.prod(sizes[a] for a in rows),
        words=math.prod(sizes[a] for a in words),
        transposed=transposed,
    )


def _fragments_of(
    sizes: Sequence[int], bits: int, sum_bits: int, *, is_sparse: bool
) -> tuple[FragmentLayout, ...]:
    """The fragments of D, A, B and C of an mma with eight columns, A by rows and B by columns."""
    m, k = sizes[0] // 8, sizes[2] * bits // (4 * max(32, bits))
    a = layout_of("k m | g t | m g | k t", m=m, k=k // 2 if is_sparse else k)
    b = layout_of("k | g t | g | k t", transposed=True, k=k)
    # Of C and D, each lane has two neighbours of a row, of 16 bits in one register.
    if sum_bits == 16:
        sums = layout_of("m | g t | m g | t", m=m)
    else:
        sums = layout_of("m c | g t | m g | t c", m=m, c=2)
    return sums, a, b, sums


# mma.m8n8k4 of f16: four products a warp, each of eight lanes, q of 0..3: h is the high group,
# and u, v are the bits of a lane's place in its group; x, y, z those of the register.
_ALONG_LANES = "j | h q l | h l | j"
_ACROSS_LANES = "j | h q l | l | h j"


def _quad_multiplicand(*, along_k: bool, is_b: bool) -> FragmentLayout:
    """A or B of mma.m8n8k4.f16: a lane has four elements along k, or four across it."""
    text = _ALONG_LANES if along_k else _ACROSS_LANES
    return layout_of(text, transposed=along_k == is_b, j=2, h=2, q=4, l=4)


def _quad_accumulator(bits: int) -> FragmentLayout:
    """C or D of mma.m8n8k4.f16."""
    if bits == 16:
        return layout_of(_ALONG_LANES, j=4, h=2, q=4, l=4)
    return layout_of("x y z | h q u v | h y v | x u z", x=2, y=2, z=2, h=2, q=4, u=2, v=2)


# Fragments of wmma: the elements of the matrix that each lane holds.
#
# NVIDIA leaves this open; any layout will do that load, mma and store agree on. Here a matrix is split,
# line after line as it is in memory, into one piece for each lane: a lane's registers hold neighbours.
# A and B lie by rows or by columns as .row or .col says, and so does their fragment; C and D are stored by
# rows, however they lie. Where a fragment has more room than its matrix has elements, lanes in the later
# part of the warp hold the pieces again, so that every element appears as often as the number of
# registers requires. Element-wise work on fragments is therefore right; code that relies on an element's
# place is not portable, here or elsewhere.
#
# Source: PTX ISA, "Matrix Fragments for WMMA" (registers of each fragment), "Matrix Storage for WMMA"
# (alignment, strides); CUDA Programming Guide, "Warp Matrix Functions" (ldm in 16 bytes).


class WmmaFragment(NamedTuple):
    """A fragment of wmma.

    Attributes:
        lines: How many rows, or columns, one after the other, make the matrix.
        length, bits, registers: Elements of each; bits of an element; registers of each lane.
        transposed: The lines are columns where rows are wanted.
    """

    lines: int
    length: int
    bits: int
    registers: int
    transposed: bool = False

    @property
    def word_bytes(self) -> int:
        """Bytes of a register."""
        return max(4, self.bits // 8)

    @property
    def piece_bytes(self) -> int:
        """Bytes that a lane holds."""
        return self.registers * self.word_bytes

    @property
    def line_bytes(self) -> int:
        """Bytes of a line."""
        return self.length * self.bits // 8

    @property
    def pieces(self) -> int:
        """Threads that hold the matrix once."""
        return self.lines * self.line_bytes // self.piece_bytes

    def gather(self, registers: Sequence[Array]) -> Array:
        """From registers to words by warp, line and word of the line."""
        words = np.stack(registers, axis=-1).reshape(-1, WARP, self.registers)[:, : self.pieces]
        return words.reshape(-1, self.lines, self.line_bytes // self.word_bytes)

    def scatter(self, words: Array) -> list[Array]:
        """From words by warp, line and word of the line to registers."""
        once = words.reshape(-1, self.pieces, self.registers)
        lanes = np.tile(once, (1, WARP // self.pieces, 1))
        return [lanes[:, :, register].reshape(-1) for register in range(self.registers)]

    def transpose(self, words: Array) -> Array:
        """The words of the transposed matrix."""
        elements = words.view(f"u{self.bits // 8}").reshape(-1, self.lines, self.length)
        return np.ascontiguousarray(elements.swapaxes(1, 2)).view(words.dtype)


# Formats of matrix elements: from the words of a fragment to numbers that NumPy multiplies.
#
# Floats become float64, in which their products are exact: f16 and fp8 have at most 11 bits of mantissa,
# bf16 has 8, tf32 has 11. Integers of 8 and 4 bits become float32: 256 products of them stay below 2^24.
# Single bits stay words.
#
# Source: PTX ISA, "Alternate Floating-Point Data Formats", "Fixed-point Data format", "Sub-byte data
# types"; for tf32, "Matrix Data-types": the lower 13 bits of the register are ignored.


_BYTES = np.arange(256, dtype=np.uint8)
_TF32 = np.uint32(0xFFFFE000)


# Bits of each type of element.
ELEMENT_BITS: Mapping[str, int] = {
    **dict.fromkeys(("f16", "bf16"), 16),
    **dict.fromkeys(("tf32", "f32", "s32"), 32),
    "f64": 64,
    **dict.fromkeys(("s8", "u8", "e4m3", "e5m2"), 8),
    **dict.fromkeys(("s4", "u4"), 4),
    "b1": 1,
}
NumberType = type[Any]


def _fp8(type_: type) -> Callable[[Array, NumberType], Array]:
    tables = {dtype: _BYTES.view(type_).astype(dtype) for dtype in (np.float32, np.float64)}
    return lambda words, dtype: tables[dtype].take(words.view(np.uint8))


def _nibbles(words: Array, dtype: NumberType, signed: bool) -> Array:
    data = words.view(np.uint8)
    pairs = np.stack((data & 15, data >> 4), axis=-1).reshape(*words.shape[:-1], -1).view(np.int8)
    return (((pairs ^ 8) - 8) if signed else pairs).astype(dtype)


# From words to elements, those of a word side by side, the lowest first.
_NUMBERS: Mapping[str, Callable[[Array, NumberType], Array]] = {
    "f16": lambda words, dtype: words.view(np.float16).astype(dtype),
    "bf16": lambda words, dtype: widen(words.view(np.uint16), "bf16").astype(dtype, copy=False),
    "tf32": lambda words, dtype: (words & _TF32).view(np.float32).astype(dtype, copy=False),
    "f64": lambda words, dtype: words.view(np.float64),
    "e4m3": _fp8(ml_dtypes.float8_e4m3fn),
    "e5m2": _fp8(ml_dtypes.float8_e5m2),
    "s8": lambda words, dtype: words.view(np.int8).astype(dtype),
    "u8": lambda words, dtype: words.view(np.uint8).astype(dtype),
    "s4": functools.partial(_nibbles, signed=True),
    "u4": functools.partial(_nibbles, signed=False),
}


def numbers_of(type_: str, dtype: NumberType) -> Callable[[Array], Array]:
    """Return what makes numbers of a dtype, which has them all, of the words of a fragment."""
    convert = _NUMBERS[type_]
    return lambda words: convert(words, dtype)


# What C and D are kept as.
ACCUMULATORS: Mapping[str, np.dtype[np.generic]] = {
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "s32": np.dtype(np.int32),
}
