"""Every row of the semantics tables is held against the hardware: some golden kernel's PTX has it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import golden_rows
from dotcu.compile.target import Target
from dotcu.ptx.instructions import Instruction
from golden_cases import CASES
from golden_launch import kernel
from golden_rows import Elementwise

# What stays without a golden, and why. "No such PTX": the row's types or modifiers are wider than
# PTX's syntax, so that ptxas refuses the spelling; the simulator never meets it.
NO_SUCH_PTX = "ptxas refuses it for every architecture"
NOT_90 = "needs an architecture after sm_90"
STOPS = "changes or ends the kernel that runs it"
_FLOAT = "Floating Point Instructions: "
LEFT_OUT: Mapping[tuple[str, str], str] = {
    # add.f32.f16 and the like: operands of two types
    **{(_FLOAT + opcode, f".{t}"): NOT_90 for opcode in ("add", "sub", "fma") for t in ("f16", "bf16")},
    **{("cvt", f"bf16.{t}"): NO_SUCH_PTX for t in ("u8", "s8")},
    **{("cvt", f"{t}.bf16"): NO_SUCH_PTX for t in ("u8", "s8")},
    **{("red", f"integer {o}"): NO_SUCH_PTX for o in ("cas", "exch")},
    ("setmaxnreg", ""): STOPS,
}


pytestmark = pytest.mark.slow  # every golden kernel is parsed


@functools.cache
def instructions() -> tuple[Instruction, ...]:
    """What the golden kernels' PTX for compute capability 9.0a holds, each spelling once."""
    found: dict[Any, Instruction] = {}
    for case in CASES:
        module = kernel(case).unit.code(Target.parse("compute_90a"), simulated=True).outline
        for name in module.bodies:
            for instruction in module.body(name).instructions:
                found[instruction.opcode, instruction.flags, instruction.types] = instruction
    return tuple(found.values())


@functools.cache
def held() -> Mapping[tuple[str, int], tuple[Instruction, ...]]:
    """For each elementwise row the instructions that it executes."""
    rows: dict[tuple[str, int], list[Instruction]] = {}
    special = golden_rows.other_opcodes()
    for instruction in instructions():
        if instruction.opcode in special or "cc" in instruction.flags or not instruction.types:
            continue
        entry = golden_rows.row_of(instruction)
        if entry is not None:
            rows.setdefault((entry.opcode, entry.number), []).append(instruction)
    return {key: tuple(found) for key, found in rows.items()}


def spellings(opcode: str) -> Iterator[Instruction]:
    return (i for i in instructions() if i.opcode == opcode)


def missing(entry: Elementwise) -> Iterator[str]:
    """Types and modifiers of a row that no golden kernel has."""
    found = held().get((entry.opcode, entry.number), ())
    for type_ in sorted(entry.row.types):
        if not any(i.types[-1] == type_ for i in found):
            yield f".{type_}"
    for flag in sorted(entry.row.flags):
        if not any(flag in i.flags for i in found):
            yield f".{flag}"


@pytest.mark.parametrize(
    "entry", list(golden_rows.elementwise()), ids=lambda e: f"{e.opcode}-{e.number}-{e.row.section}"
)
def test_every_type_and_modifier_of_a_row_is_in_a_golden(entry: Elementwise) -> None:
    lacking = {part for part in missing(entry) if (entry.row.section, part) not in LEFT_OUT}
    assert not lacking, f"{entry.opcode} {entry.row.section}"


@pytest.mark.parametrize("opcode", sorted(golden_rows.other_opcodes()))
def test_every_other_opcode_is_in_a_golden(opcode: str) -> None:
    if (opcode, "") not in LEFT_OUT:
        assert any(spellings(opcode)), opcode


def test_every_conversion_is_in_a_golden() -> None:
    have = {i.types for i in spellings("cvt")}
    wanted = {pair for pair in golden_rows.conversions() if ("cvt", ".".join(pair)) not in LEFT_OUT}
    assert sorted(wanted - have) == []


def test_every_comparison_of_setp_is_in_a_golden() -> None:
    whole, real, joined = golden_rows.comparisons()
    floats = {"f16", "bf16", "f32", "f64"}
    have = {(i.types[-1] in floats, flag) for i in spellings("setp") for flag in i.flags}
    wanted = {(False, name) for name in whole} | {(True, name) for name in real}
    wanted |= {(is_float, name) for name in joined for is_float in (False, True)}
    assert sorted(wanted - have) == []


@pytest.mark.parametrize("opcode", ["atom", "red"])
def test_every_atomic_operation_is_in_a_golden(opcode: str) -> None:
    whole, real = golden_rows.atomic_operations()
    floats = {"f16", "f16x2", "bf16", "bf16x2", "f32", "f64"}
    have = {(i.types[-1] in floats, flag) for i in spellings(opcode) for flag in i.flags}
    wanted = {(False, name) for name in whole} | {(True, name) for name in real}
    lacking = {
        w for w in wanted - have if (opcode, f"{'float' if w[0] else 'integer'} {w[1]}") not in LEFT_OUT
    }
    assert sorted(lacking) == []


@pytest.mark.parametrize("opcode", sorted(golden_rows.warp_modes()))
def test_every_mode_of_a_warp_instruction_is_in_a_golden(opcode: str) -> None:
    have = {flag for i in spellings(opcode) for flag in i.flags}
    assert golden_rows.warp_modes()[opcode] <= have


def test_nothing_is_left_out_that_a_golden_has() -> None:
    unneeded = [
        (entry.row.section, f".{part}")
        for entry in golden_rows.elementwise()
        for part in entry.row.types | entry.row.flags
        if (entry.row.section, f".{part}") in LEFT_OUT and f".{part}" not in set(missing(entry))
    ]
    assert unneeded == []


def test_a_row_without_a_golden_is_seen() -> None:
    entry = next(e for e in golden_rows.elementwise() if e.opcode == "add")
    stranger = entry._replace(row=entry.row._replace(types=entry.row.types | {"u128"}))
    assert ".u128" in set(missing(stranger))
