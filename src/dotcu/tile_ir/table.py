"""The operations of Tile IR: their numbers in bytecode, operands, attributes, results and regions.

One row for each operation, in the order of its number. A row says how the operation is written:

    name | attributes | operands | results | regions

An attribute is `name:kind`, with `?` behind the kind where it may be missing and with `@13.2` where a later
version of the format brought it. An operand that is there any number of times has `*` behind its name, one
that may be missing `?`. A row that begins with `!` writes the size of each of its operand groups; one without
writes one size for all, and only where an operand repeats.

Source: NVIDIA/cuda-tile, Ops.td, BytecodeOpcodes.td and AttrDefs.td at 13.3. The compiler of 13.5 writes
version 13.5 of the format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

BytecodeVersion = tuple[int, int]
FIRST_VERSION: BytecodeVersion = (13, 1)

ENUMS: Mapping[str, tuple[str, ...]] = {
    "signedness": ("unsigned", "signed"),
    "overflow": ("none", "no_signed_wrap", "no_unsigned_wrap", "no_wrap"),
    "rounding": (
        "nearest_even", "zero", "negative_inf", "positive_inf", "approx", "full", "nearest_int_to_zero",
        "nearest_away",
    ),
    "ordering": ("unordered", "ordered"),
    "predicate": (
        "equal", "not_equal", "less_than", "less_than_or_equal", "greater_than", "greater_than_or_equal",
    ),
    "atomic": ("and", "or", "xor", "add", "addf", "max", "min", "umax", "umin", "xchg"),
    "scope": ("tl_blk", "device", "sys"),
    "semantics": ("weak", "relaxed", "acquire", "release", "acq_rel"),
    "padding": ("zero", "neg_zero", "nan", "pos_inf", "neg_inf"),
}  # fmt: skip
"""The attributes that name one of a few values, by kind: the words for the numbers from 0."""


Part = tuple[str, str, str, BytecodeVersion]
"""An attribute or an operand: its name in the dialect, how an attribute's value is written, "" for exactly
one, "?" for at most one or "*" for any number, and the version of the format that brought it."""


class OperationForm(NamedTuple):
    """The form of an operation in bytecode.

    Attributes:
        name: Its name in the dialect, without the dialect's.
        attributes: In the order in which they are written.
        operands: In the order in which they are written.
        results: Its number of results; -1: the number is written.
        regions: Its number of regions.
        grouped: The size of each group of operands is written.
        since: The version of the format that brought it.
        token_since: The version that brought its last result; older files lack it.
    """

    name: str
    attributes: tuple[Part, ...]
    operands: tuple[Part, ...]
    results: int
    regions: int
    grouped: bool
    since: BytecodeVersion
    token_since: BytecodeVersion

    @property
    def counts_results(self) -> bool:
        """True if the number of results is written: where an operand or a result repeats."""
        return self.results < 0 or any(times == "*" for _, _, times, _ in self.operands)

    @property
    def flags(self) -> tuple[tuple[str, BytecodeVersion], ...]:
        """Names and versions of what may be missing, in the order of its bits: attributes before operands."""
        optional = [(name, since) for name, _, times, since in self.attributes if times]
        if self.grouped:
            optional += [(name, since) for name, _, times, since in self.operands if times == "?"]
        return tuple(sorted(optional, key=lambda row: row[1]))


_ROWS = """
0x00 absf | | source | 1
0x01 absi | | source | 1
0x02 addf | rounding_mode:rounding flush_to_zero:unit? | lhs rhs | 1
0x03 addi | overflow:overflow | lhs rhs | 1
0x04 andi | | lhs rhs | 1
0x05 assert | message:string | condition | 0
0x06 assume | predicate:predicated | value | 1
0x07 !atomic_cas_tko | ATOMIC | pointers cmp val mask? token? | 2
0x08 !atomic_rmw_tko | ATOMIC mode:atomic | pointers arg mask? token? | 2
0x09 bitcast | | source | 1
0x0A break | | operands* | 0
0x0B broadcast | | source | 1
0x0C cat | dim:i64 | lhs rhs | 1
0x0D ceil | | source | 1
0x0E cmpf | comparison_predicate:predicate comparison_ordering:ordering | lhs rhs | 1
0x0F cmpi | comparison_predicate:predicate signedness:signedness | lhs rhs | 1
0x10 constant | value:dense | | 1
0x11 continue | | operands* | 0
0x12 cos | | source | 1
0x13 cosh | | source | 1
0x14 divf | rounding_mode:rounding flush_to_zero:unit? | lhs rhs | 1
0x15 divi | signedness:signedness rounding:rounding | lhs rhs | 1
0x17 exp | rounding_mode:rounding@13.3 | source | 1
0x18 exp2 | flush_to_zero:unit? | source | 1
0x25 exti | signedness:signedness | from | 1
0x26 extract | | source indices* | 1
0x27 floor | | source | 1
0x28 fma | rounding_mode:rounding flush_to_zero:unit? | lhs rhs acc | 1
0x29 for | unsignedCmp:unit?@13.2 | lowerBound upperBound step initValues* | * | 1
0x2A ftof | rounding_mode:rounding | from | 1
0x2B ftoi | signedness:signedness rounding_mode:rounding saturating:unit?@13.4 | from | 1
0x2C get_global | name:string | | 1
0x2D get_index_space_shape | | src | *
0x2E get_num_tile_blocks | | | 3
0x2F get_tensor_shape | | src | *
0x30 get_tile_block_id | | | 3
0x32 if | | condition | * | 2
0x33 int_to_ptr | | source | 1
0x3A iota | | | 1
0x3B itof | signedness:signedness rounding_mode:rounding | from | 1
0x3C join_tokens | | tokens* | 1
0x3D !load_ptr_tko | ACCESS | source mask? paddingValue? token? | 2
0x3E !load_view_tko | ACCESS inbounds:bools@13.4 | view index* token? | 2
0x3F log | | source | 1
0x40 log2 | | source | 1
0x41 loop | | initValues* | * | 1
0x42 make_partition_view | | tensor_view | 1
0x43 !make_tensor_view | | base dynamicShape* dynamicStrides* | 1
0x44 make_token | | | 1
0x45 maxf | propagate_nan:unit? flush_to_zero:unit? | lhs rhs | 1
0x46 maxi | signedness:signedness | lhs rhs | 1
0x47 minf | propagate_nan:unit? flush_to_zero:unit? | lhs rhs | 1
0x48 mini | signedness:signedness | lhs rhs | 1
0x49 mmaf | fast_acc:unit?@13.3 | lhs rhs acc | 1
0x4A mmai | signedness_lhs:signedness signedness_rhs:signedness | lhs rhs acc | 1
0x4C mulf | rounding_mode:rounding flush_to_zero:unit? | lhs rhs | 1
0x4D mulhii | | x y | 1
0x4E muli | overflow:overflow | lhs rhs | 1
0x4F negf | | source | 1
0x50 negi | overflow:overflow@13.2 | source | 1
0x51 offset | | ptr offset | 1
0x52 ori | | lhs rhs | 1
0x53 permute | permutation:i32s | source | 1
0x54 pow | | source exponent | 1
0x55 !print_tko | str:string | args* token?@13.2 | 1@13.2
0x56 ptr_to_int | | source | 1
0x57 ptr_to_ptr | | source | 1
0x58 reduce | dim:i32 identities:array | operands* | * | 1
0x59 remf | | lhs rhs | 1
0x5A remi | signedness:signedness | lhs rhs | 1
0x5B reshape | | source | 1
0x5C return | | operands* | 0
0x5D rsqrt | flush_to_zero:unit? | source | 1
0x5E scan | dim:i32 reverse:bool identities:array | operands* | * | 1
0x5F select | | cond val_if_true val_if_false | 1
0x60 shli | overflow:overflow | lhs rhs | 1
0x61 shri | signedness:signedness | lhs rhs | 1
0x62 sin | | source | 1
0x63 sinh | | source | 1
0x64 sqrt | rounding_mode:rounding flush_to_zero:unit? | source | 1
0x65 !store_ptr_tko | ACCESS | destination value mask? token? | 1
0x66 !store_view_tko | ACCESS inbounds:bools@13.4 | tile view index* token? | 1
0x67 subf | rounding_mode:rounding flush_to_zero:unit? | lhs rhs | 1
0x68 subi | overflow:overflow | lhs rhs | 1
0x69 tan | | source | 1
0x6A tanh | rounding_mode:rounding@13.2 | source | 1
0x6B trunci | overflow:overflow | from | 1
0x6C xori | | lhs rhs | 1
0x6D yield | | operands* | 0
0x6E atan2 | | x y | 1
0x6F pack | | source | 1
0x70 unpack | | source | 1
0x71 alloca | num_elem:i64 alignment:i64 global:unit? | | 1
0x72 mmaf_scaled | | lhs rhs acc lhs_scale rhs_scale | 1
0x73 make_gather_scatter_view | | tensor_view | 1
0x74 make_strided_view | | tensor_view | 1
0x75 !atomic_red_view_tko | ATOMIC mode:atomic inbounds:bools@13.5 | view index* value token? | 1
0x76 insert | | source target indices* | 1
0x79 fpowi | | source exponent | 1
"""

_NEWER: Mapping[str, BytecodeVersion] = {
    "atan2": (13, 2),
    **dict.fromkeys(("pack", "unpack", "alloca", "mmaf_scaled", "atomic_red_view_tko"), (13, 3)),
    **dict.fromkeys(("make_gather_scatter_view", "make_strided_view"), (13, 3)),
    **dict.fromkeys(("insert", "fpowi"), (13, 4)),
}


def _version(text: str) -> BytecodeVersion:
    major, minor = text.split(".")
    return int(major), int(minor)


def _parse(row: str) -> tuple[int, OperationForm]:
    head, attributes, operands, results, *regions = (part.strip() for part in row.split("|"))
    number, name = head.split()
    since = _NEWER.get(name.lstrip("!"), FIRST_VERSION)
    count, _, newest = results.partition("@")

    common = re.sub("ATOMIC|ACCESS", lambda match: _ATTRIBUTES[match[0]], attributes)

    def part(text: str) -> Part:
        match = re.fullmatch(r"(\w+)(?::(\w+))?([?*]?)(?:@([\d.]+))?", text)
        assert match is not None, text
        return match[1], match[2] or "", match[3], _version(match[4]) if match[4] else since

    return int(number, 16), OperationForm(
        name=name.lstrip("!"),
        attributes=tuple(map(part, common.split())),
        operands=tuple(map(part, operands.split())),
        results=-1 if count == "*" else int(count),
        regions=int(regions[0]) if regions else 0,
        grouped=name.startswith("!"),
        since=since,
        token_since=_version(newest) if newest else since,
    )


_ATTRIBUTES = {
    "ATOMIC": "memory_ordering_semantics:semantics memory_scope:scope",
    "ACCESS": "memory_ordering_semantics:semantics memory_scope:scope? optimization_hints:hints?",
}
"""Attributes that several rows have in common, by the word for them."""

OPERATIONS: Mapping[int, OperationForm] = dict(map(_parse, _ROWS.strip().splitlines()))
"""The form of each operation, by its number."""

NOT_READ: Mapping[int, str] = {
    0x7A: "exp2 with a rounding mode",
    0x7B: "multimem_load_reduce_view_tko",
    0x7C: "multimem_reduce_view_tko",
    0x7D: "multimem_store_view_tko",
}
"""Operations of 13.5 whose form is not known, by number (measured: what tileirdisasm 13.5.37 calls them)."""

TERMINATORS = frozenset({"break", "continue", "return", "yield"})
"""The operations that end a block, and no others do."""
