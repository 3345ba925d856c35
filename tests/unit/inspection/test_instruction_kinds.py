from __future__ import annotations

from typing import Any

import pytest

from dotcu.inspection import instruction_kinds as kinds
from dotcu.inspection.assembly import PtxLine, SassInstruction
from dotcu.inspection.instruction_kinds import (
    InstructionCount,
    count_ptx,
    count_sass,
    is_executed,
)
from helpers.inspected_kernels import GENERATIONS, everything, inspected, line_of, needs_nvdisasm


def found(
    kernel: str, arch: str = "sm_90a", *, with_sass: bool = True
) -> dict[tuple[str, str], InstructionCount]:
    one = everything(arch, with_sass=with_sass)[kernel]
    return {(each.group, each.label): each for each in one.emitted}


@needs_nvdisasm
@pytest.mark.parametrize("arch", GENERATIONS)
@pytest.mark.parametrize(
    ("kernel", "width"),
    [("copy_bytes", 1), ("copy_halves", 2), ("copy_words", 4), ("copy_pairs", 8), ("copy_vectors", 16)],
)
def test_widths_of_loads_and_stores_are_reported(arch: str, kernel: str, width: int) -> None:
    emitted = found(kernel, arch)
    assert set(emitted) == {
        (kinds.GLOBAL, f"load, {width} B per thread"),
        (kinds.GLOBAL, f"store, {width} B per thread"),
    }


@needs_nvdisasm
@pytest.mark.slow
def test_loads_of_32_bytes_are_reported() -> None:
    assert (kinds.GLOBAL, "load, 32 B per thread") in found("copy_wide", "sm_100a")


@needs_nvdisasm
def test_each_kind_has_its_source_lines() -> None:
    (location, count), *rest = found("local_array")[kinds.GLOBAL, "store, 4 B per thread"].locations
    assert (location.line, count, rest) == (line_of("y[0] = sum;"), 1, [])


@needs_nvdisasm
@pytest.mark.parametrize(
    ("kernel", "arch", "group", "label"),
    [
        pytest.param("products", "sm_80", kinds.MATRIX, "HMMA.16816.F32.BF16", marks=pytest.mark.slow),
        pytest.param("products", "sm_120a", kinds.MATRIX, "HMMA.16816.F32.BF16", marks=pytest.mark.slow),
        pytest.param(
            "fp8_products", "sm_89", kinds.MATRIX, "QMMA.16832.F32.E4M3.E4M3", marks=pytest.mark.slow
        ),
        ("group_products", "sm_90a", kinds.MATRIX, "HGMMA.64x8x16.F32"),
        ("matrices", "sm_75", kinds.MATRIX, "LDSM.16.M88.4"),
        pytest.param("async_copy", "sm_80", kinds.ASYNC, "LDGSTS, 16 B per thread", marks=pytest.mark.slow),
        ("bulk", "sm_90a", kinds.ASYNC, "UBLKCP.S.G"),
        pytest.param("tensor_copy", "sm_100a", kinds.ASYNC, "UTMALDG.2D", marks=pytest.mark.slow),
        ("bulk", "sm_90a", kinds.BARRIER, "SYNCS.EXCH.64"),
        ("shared_float_atomic", "sm_90a", kinds.ATOMIC, "ATOMS.CAST.SPIN"),
        ("global_atomic", "sm_90a", kinds.ATOMIC, "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU"),
        pytest.param(
            "global_atomic", "sm_80", kinds.ATOMIC, "RED.E.ADD.F32.FTZ.RN.STRONG.GPU", marks=pytest.mark.slow
        ),
        ("warp", "sm_90a", kinds.WARP, "SHFL.BFLY"),
        ("halves", "sm_90a", kinds.HALF, "HFMA2.MMA"),
        ("takes_doubles", "sm_90a", kinds.DOUBLE, "DMUL"),
        ("exponential", "sm_90a", kinds.SPECIAL, "MUFU.EX2"),
        ("local_array", "sm_90a", kinds.LOCAL, "store, 4 B per thread"),
        ("spill", "sm_90a", kinds.LOCAL, "spill store, 4 B per thread"),
        ("generic", "sm_90a", kinds.GENERIC, "load, 4 B per thread"),
        ("calls", "sm_90a", kinds.CALL, "call of callee"),
        ("divide_long", "sm_90a", kinds.CALL, "call of __cuda_sm20_div_s64"),
    ],
)
def test_what_a_kernel_is_known_for_is_reported(kernel: str, arch: str, group: str, label: str) -> None:
    assert (group, label) in found(kernel, arch)


@needs_nvdisasm
@pytest.mark.parametrize("arch", GENERATIONS)
def test_a_kernel_without_matrices_shows_none_whatever_moves_its_constants(arch: str) -> None:
    """HFMA2.MMA R4, -RZ, RZ, 0, 0 of sm_80 to sm_90 is how ptxas brings a zero into a register."""
    assert not {group for group, _ in found("divide_by_seven", arch)} & {kinds.MATRIX, kinds.HALF}


def instruction(text: str, predicate: str = "") -> SassInstruction:
    word, _, operands = text.partition(" ")
    opcode, *modifiers = word.split(".")
    return SassInstruction(
        address=0, text=text, predicate=predicate, opcode=opcode, modifiers=tuple(modifiers),
        operands=tuple(operands.split(", ")),
    )  # fmt: skip


def test_a_move_of_a_constant_is_no_arithmetic() -> None:
    assert count_sass([instruction("HFMA2.MMA R4, -RZ, RZ, 0, 0")], "", {}) == ()
    assert count_sass([instruction("HFMA2 R4, -RZ, RZ, 0, 4.7683715820312500000e-06")], "", {}) == ()
    assert [each.group for each in count_sass([instruction("HFMA2.MMA R4, R2, R2, R3")], "", {})] == [
        kinds.HALF
    ]


def test_what_no_lane_executes_is_not_counted() -> None:
    """ptxas puts @!PT LDS RZ, [RZ] before the first LDGSTS of a kernel, for sm_90 and later."""
    never = instruction("LDS RZ, [RZ]", predicate="@!PT")
    assert not is_executed(never)
    assert count_sass([never], "", {}) == ()
    assert [each.count for each in count_sass([instruction("LDS RZ, [RZ]")] * 3, "", {})] == [3]


@pytest.mark.parametrize(
    ("opcode", "width"),
    [("ld.global.v4.f32", 16), ("st.shared.u8", 1), ("ld.global.nc.v2.u64", 16), ("ld.f64", 8)],
)
def test_widths_of_ptx_are_reported(opcode: str, width: int) -> None:
    (counted,) = count_ptx([PtxLine(number=1, text="", opcodes=(opcode,))], "")
    assert f", {width} B per thread" in counted.label


@pytest.mark.parametrize(
    ("kernel", "group", "label"),
    [
        ("copy_vectors", kinds.GLOBAL, "load, 16 B per thread"),
        ("copy_bytes", kinds.GLOBAL, "store, 1 B per thread"),
        ("group_products", kinds.MATRIX, "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"),
        ("async_copy", kinds.ASYNC, "cp.async.cg.shared.global"),
        ("generic", kinds.GENERIC, "load, 4 B per thread"),
        ("takes_doubles", kinds.DOUBLE, "mul.f64"),
        ("local_array", kinds.LOCAL, "store, 4 B per thread"),
        ("shared_float_atomic", kinds.ATOMIC, "atom.shared.add.f32"),
    ],
)
def test_without_a_disassembler_ptx_reports(kernel: str, group: str, label: str) -> None:
    assert (group, label) in found(kernel, with_sass=False)


def test_parameters_are_no_memory_traffic() -> None:
    groups = {group for group, _ in found("divide", with_sass=False)}
    assert groups == {kinds.GLOBAL}


@pytest.mark.parametrize("table", [kinds.SASS, kinds.PTX])
def test_every_kind_is_in_a_group_that_is_listed(table: Any) -> None:
    assert {feature.group for feature in table} <= set(kinds.GROUPS)


def test_no_machine_opcode_is_of_two_kinds() -> None:
    for opcode in (
        "HMMA",
        "HGMMA",
        "LDG",
        "LDGSTS",
        "LDGMC",
        "LDS",
        "LDSM",
        "LD",
        "ST",
        "ATOM",
        "ATOMG",
        "RED",
    ):
        assert sum(bool(feature.opcode.fullmatch(opcode)) for feature in kinds.SASS) == 1, opcode


@needs_nvdisasm
def test_a_call_through_a_register_has_no_name() -> None:
    text = "__global__ void k(float (**f)(float), float* y) { y[0] = f[0](y[1]); }"
    labels = [kind.label for kind in inspected(text)["k"].emitted if kind.group == kinds.CALL]
    assert labels == ["call of a function by its address"]


@needs_nvdisasm
@pytest.mark.parametrize("arch", GENERATIONS)
def test_functions_that_the_driver_brings_are_called_by_their_name(arch: str) -> None:
    text = """
#include <stdio.h>
__global__ void k(int** x) {
    printf("%d", x[0][0]);
    x[1] = (int*)malloc(8);
    free(x[2]);
}
"""
    calls = [kind for kind in inspected(text, arch)["k"].emitted if kind.group == kinds.CALL]
    assert {(kind.label, kind.locations[0][0].line) for kind in calls} == {
        ("call of vprintf", 4), ("call of malloc", 5), ("call of free", 6),
    }  # fmt: skip


@needs_nvdisasm
@pytest.mark.parametrize("arch", ["sm_90", "compute_90"])
def test_indexed_loads_of_constants_are_loads_and_parameters_are_none(arch: str) -> None:
    text = """
__constant__ double table[32];
__global__ void k(double* x, int n) { x[0] = table[n + threadIdx.x]; }
__global__ void plain(double* x, int n) { x[n] = n; }
"""
    found = inspected(text, arch)
    (load,) = [kind for kind in found["k"].emitted if kind.group == kinds.CONSTANT]
    assert (load.label, load.count, load.locations[0][0].line) == ("load, 8 B per thread", 1, 3)
    assert not [kind for kind in found["plain"].emitted if kind.group == kinds.CONSTANT]


@needs_nvdisasm
def test_reads_through_the_texture_unit_are_reported() -> None:
    text = "__global__ void k(cudaTextureObject_t t, float* y) { y[0] = tex2D<float>(t, y[1], y[2]); }"
    assert any(kind.group == kinds.TEXTURE for kind in inspected(text)["k"].emitted)
