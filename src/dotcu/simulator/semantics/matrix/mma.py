"""mma.sync: a matrix multiply-and-accumulate of a warp, from registers to registers.

Source: PTX ISA, "Multiply-and-Accumulate Instruction: mma". mma.sp, and the kinds of sm_100 and
later, have no row here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from dotcu.ptx.instructions import Operand
from dotcu.ptx.link import Placed
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.semantics.matrix.formats import ACCUMULATORS, MULTIPLICANDS
from dotcu.simulator.semantics.matrix.fragments import (
    Fragment,
    accumulator,
    multiplicand_a,
    multiplicand_b,
    quad_accumulator,
    quad_multiplicand,
)
from dotcu.simulator.semantics.matrix.products import (
    Product,
    bit_product,
    double_product,
    float_product,
    integer_product,
)
from dotcu.simulator.semantics.matrix.warps import of_whole_warps, read, sources_of, targets_of, write
from dotcu.simulator.semantics.table import NotExecuted, Step, unsigned
from dotcu.simulator.semantics.warp import Rendezvous

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_LAYOUTS = ("row", "col")
_PLAIN = frozenset({"sync", "aligned", *_LAYOUTS})


class Family(NamedTuple):
    """Types of multiplicands that are multiplied with each other.

    Attributes:
        sums: Types of C and D.
        product: From further modifiers and the type of D to the computation.
        mma: Shapes of mma.
        wmma: Shapes of wmma.
    """

    types: frozenset[str]
    sums: frozenset[str]
    product: Callable[[frozenset[str], str], Product]
    mma: frozenset[str]
    wmma: frozenset[str]


def _row(
    types: str, sums: str, product: Callable[[frozenset[str], str], Product], mma: str, wmma: str
) -> Family:
    columns = [frozenset(text.split()) for text in (types, sums, mma, wmma)]
    return Family(columns[0], columns[1], product, columns[2], columns[3])


_TILES = "m16n16k16 m32n8k16 m8n32k16"
# PTX ISA, "Matrix Shape": the dense shapes that sm_80, sm_89 and sm_90 have.
FAMILIES: tuple[Family, ...] = (
    _row("f16", "f16 f32", float_product, "m8n8k4 m16n8k8 m16n8k16", _TILES),
    _row("bf16", "f32", float_product, "m16n8k8 m16n8k16", _TILES),
    _row("tf32", "f32", float_product, "m16n8k4 m16n8k8", "m16n16k8"),
    _row("e4m3 e5m2", "f16 f32", float_product, "m16n8k16 m16n8k32", ""),
    _row("f64", "f64", double_product, "m8n8k4 m16n8k4 m16n8k8 m16n8k16", "m8n8k4"),
    _row("s8 u8", "s32", integer_product, "m8n8k16 m16n8k16 m16n8k32", _TILES),
    _row("s4 u4", "s32", integer_product, "m8n8k32 m16n8k32 m16n8k64", "m8n8k32"),
    _row("b1", "s32", bit_product, "m8n8k128 m16n8k128 m16n8k256", "m8n8k128"),
)
_OF_TYPE: Mapping[str, Family] = {type_: family for family in FAMILIES for type_ in family.types}


class Form(NamedTuple):
    """A multiply-accumulate as it is spelled: types of D, A, B and C, layouts of A and B."""

    shape: str
    d: str
    a: str
    b: str
    c: str
    layouts: tuple[str, str]
    product: Product

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N and K."""
        return sizes_of(self.shape)


class Fragments(NamedTuple):
    """Where a multiply-accumulate has its matrices."""

    d: Fragment
    a: Fragment
    b: Fragment
    c: Fragment


def sizes_of(shape: str) -> tuple[int, int, int]:
    """M, N and K of a shape such as m16n8k16."""
    match = _SHAPE.fullmatch(shape)
    if match is None:
        raise NotExecuted
    m, n, k = match.groups()
    return int(m), int(n), int(k)


def family_of(type_: str) -> Family:
    """The family of a multiplicand type."""
    if type_ not in _OF_TYPE:
        raise NotExecuted
    return _OF_TYPE[type_]


def form_of(flags: tuple[str, ...], types: tuple[str, ...], *, wmma: bool = False) -> Form:
    """Read the modifiers of mma or wmma.mma.

    Raises:
        NotExecuted: There is no such form.
    """
    if len(types) != 4:
        raise NotExecuted
    d, a, b, c = types
    family = family_of(a)
    shapes = [f for f in flags if f in (family.wmma if wmma else family.mma)]
    layouts = [f for f in flags if f in _LAYOUTS]
    if len(shapes) != 1 or len(layouts) != 2 or not {"sync", "aligned"} <= set(flags):
        raise NotExecuted
    if b not in family.types or not {c, d} <= family.sums:
        raise NotExecuted
    product = family.product(frozenset(flags) - _PLAIN - {shapes[0], "mma" if wmma else ""}, d)
    return Form(shapes[0], d, a, b, c, (layouts[0], layouts[1]), product)


def bind_mma(placed: Placed, binding: Binding) -> Rendezvous:
    """mma.sync, dense."""
    instruction = placed.instruction
    form = form_of(instruction.flags, instruction.types)
    step = multiply_step(form, _fragments(form), instruction.operands, binding)
    return of_whole_warps(step, placed, binding)


def _fragments(form: Form) -> Fragments:
    if form.a == "f16" and form.shape == "m8n8k4":
        return _quad_fragments(form)
    if form.layouts != ("row", "col") or form.c != form.d:
        raise NotExecuted
    m, _, k = form.sizes
    bits = MULTIPLICANDS[form.a].bits
    sums = accumulator(m, 8 * ACCUMULATORS[form.c].itemsize)
    return Fragments(sums, multiplicand_a(m, k, bits), multiplicand_b(k, bits), sums)


def _quad_fragments(form: Form) -> Fragments:
    if (form.d, form.c) == ("f16", "f32"):
        raise NotExecuted
    return Fragments(
        quad_accumulator(8 * ACCUMULATORS[form.d].itemsize),
        quad_multiplicand(along_k=form.layouts[0] == "row", is_b=False),
        quad_multiplicand(along_k=form.layouts[1] == "col", is_b=True),
        quad_accumulator(8 * ACCUMULATORS[form.c].itemsize),
    )


def multiply_step(form: Form, fragments: Fragments, operands: tuple[Operand, ...], binding: Binding) -> Step:
    """The step that gathers A, B and C, multiplies, and scatters D."""
    if len(operands) != 4:
        raise NotExecuted
    word, d_bytes = "b64" if form.a == "f64" else "b32", 8 if form.d == "f64" else 4
    targets = targets_of(operands[0], fragments.d.registers, d_bytes, binding)
    a, b, c = [
        sources_of(operand, fragment.registers, word, binding)
        for operand, fragment in zip(operands[1:], fragments[1:], strict=True)
    ]
    a_numbers, b_numbers = MULTIPLICANDS[form.a].numbers, MULTIPLICANDS[form.b].numbers
    c_dtype = ACCUMULATORS[form.c]
    d_word = unsigned(d_bytes)
    product = form.product

    def step(chunk: Chunk) -> None:
        left = a_numbers(fragments.a.gather(read(chunk, a)))
        right = b_numbers(fragments.b.gather(read(chunk, b)))
        sums = fragments.c.gather(read(chunk, c)).view(c_dtype)
        result = product(
            left.swapaxes(1, 2) if fragments.a.transposed else left,
            right.swapaxes(1, 2) if fragments.b.transposed else right,
            sums,
        )
        write(chunk, targets, fragments.d.scatter(result.view(d_word)))

    return step
