"""The contents of a PTX file as values: operands, instructions, variables, functions.

Source: PTX ISA, "PTX Machine Model" to "Instruction Set" (chapters 4 to 9).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

# Size in bytes of each fundamental type (PTX ISA, "Fundamental Types"); a predicate has none in memory.
TYPE_BYTES: Mapping[str, int] = {
    "pred": 1,
    **dict.fromkeys(("b8", "u8", "s8"), 1),
    **dict.fromkeys(("e4m3", "e5m2", "s4", "u4", "b1"), 1),  # only in fragments, packed
    **dict.fromkeys(("b16", "u16", "s16", "f16", "bf16"), 2),
    **dict.fromkeys(("e4m3x2", "e5m2x2"), 2),
    **dict.fromkeys(("b32", "u32", "s32", "f32", "f16x2", "bf16x2", "tf32", "u16x2", "s16x2"), 4),
    **dict.fromkeys(("b64", "u64", "s64", "f64"), 8),
    "b128": 16,
}


class Register(NamedTuple):
    """A register; `name` is unique in its function, also where nested scopes reuse a spelling."""

    name: str
    type: str


class Special(NamedTuple):
    """A special register, such as %tid.x, without the percent sign."""

    name: str


class Immediate(NamedTuple):
    """A literal: an int, or a float given by its value or its bits.

    Attributes:
        value: The integer, or the bits of a float literal.
        type: "int", or the float type that the bits are of.
    """

    value: int
    type: str


class Symbol(NamedTuple):
    """The address of a variable, or a label or a function.

    Attributes:
        mask: In an initialiser, the bytes of the address that are meant, shifted down; 0: all of it.
    """

    name: str
    offset: int = 0
    mask: int = 0


class Address(NamedTuple):
    """[base + offset]."""

    base: Register | Symbol | Immediate
    offset: int


class Vector(NamedTuple):
    """{a, b, ...}: a vector operand; or d|p, two results of one instruction, either of which may be `_`."""

    elements: tuple[Operand, ...]


class Predicate(NamedTuple):
    """@p or @!p before an instruction; as a source operand, !p (p alone is a Register)."""

    register: Register
    negated: bool


class Arguments(NamedTuple):
    """(a, b): the parameter list of a call."""

    names: tuple[str, ...]


class Sink(NamedTuple):
    """`_`: a result that is discarded."""


Operand = Register | Special | Immediate | Symbol | Address | Vector | Predicate | Arguments | Sink


class Location(NamedTuple):
    """A source line, with the place that it was inlined into."""

    file: int
    line: int
    inlined_at: Location | None = None


NOWHERE = Location(0, 0)


class Instruction(NamedTuple):
    """One instruction.

    Attributes:
        opcode: The first word, without modifiers.
        flags: Modifiers that name no type, in their order.
        types: Modifiers that name a type, in their order.
        operands: In the order of the text, destination first.
        guard: The predicate that it runs under.
        location: The source line it came from.
        text: Its spelling.
        target: For a branch, the index of the instruction it goes to; else -1.
    """

    opcode: str
    flags: tuple[str, ...]
    types: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Predicate | None
    location: Location
    text: str
    target: int = -1

    @property
    def type(self) -> str:
        """The type that the instruction is named for: its last."""
        return self.types[-1]


class Variable(NamedTuple):
    """A variable in a state space: global, const, shared, local or param.

    Attributes:
        initial: Its initial contents, element by element; a Symbol stands for an address.
        extern: Its size is given elsewhere, as for dynamic shared memory.
        is_pointer: A parameter that is declared with .ptr.
    """

    name: str
    space: str
    type: str
    size: int
    align: int
    initial: tuple[int | Symbol, ...] = ()
    extern: bool = False
    is_pointer: bool = False


@dataclass(frozen=True, kw_only=True)
class FunctionHeader:
    """The name, parameters and limits of a function.

    Attributes:
        is_entry: It is a kernel.
        params: In order; a struct is an array of b8.
        max_threads: .maxntid in x, y, z; empty if none is given.
        required_threads: .reqntid in x, y, z; empty if none is given.
        cluster: .reqnctapercluster in x, y, z; empty if none is given.
        max_registers: .maxnreg; 0 if none is given.
        min_blocks: .minnctapersm; 1 if none is given.
    """

    name: str
    is_entry: bool
    params: tuple[Variable, ...]
    returns: tuple[Variable, ...] = ()
    max_threads: tuple[int, ...] = ()
    required_threads: tuple[int, ...] = ()
    cluster: tuple[int, ...] = ()
    max_registers: int = 0
    min_blocks: int = 1

    @property
    def registers(self) -> int:
        """Registers of a thread at launch, as its limits decide them; 0 if they do not.

        Limits that leave 256 or more decide nothing: the assembler takes as many as the code needs, at most
        255.

        Source: a multiprocessor has 65536, which warps get in multiples of 8 a thread (CUDA Programming
        Guide, "Compute Capabilities").
        """
        threads = math.prod(self.required_threads or self.max_threads)
        if self.max_registers or not (self.required_threads or self.max_threads):
            return self.max_registers // 8 * 8
        share = (1 << 16) // (threads * self.min_blocks) // 8 * 8
        return share if share < 256 else 0


@dataclass(frozen=True, kw_only=True)
class FunctionBody:
    """A function's body: instructions in order, with the variables it declares.

    Attributes:
        tables: Branch-target tables of brx.idx: name to instruction indices.
    """

    instructions: tuple[Instruction, ...]
    variables: Mapping[str, Variable]
    tables: Mapping[str, tuple[int, ...]]


_VECTORS = ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
_WORDS = """
    laneid warpid nwarpid smid nsmid lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt clock
    clock_hi globaltimer_lo globaltimer_hi dynamic_smem_size total_smem_size aggr_smem_size cluster_ctarank
    cluster_nctarank reserved_smem_offset_begin reserved_smem_offset_end reserved_smem_offset_cap
    reserved_smem_offset_0 reserved_smem_offset_1
"""

# Special registers with their types (PTX ISA, chapter 10).
SPECIAL_REGISTERS: Mapping[str, str] = {
    **{f"{name}.{axis}": "u32" for name in _VECTORS for axis in "xyz"},
    **dict.fromkeys(_WORDS.split(), "u32"),
    **{f"envreg{number}": "b32" for number in range(32)},
    **{f"pm{n}{part}": type_ for n in range(8) for part, type_ in (("", "u32"), ("_64", "u64"))},
    **dict.fromkeys(("clock64", "globaltimer", "gridid", "current_graph_exec"), "u64"),
    "is_explicit_cluster": "pred",
}
