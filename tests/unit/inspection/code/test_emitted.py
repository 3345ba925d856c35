from __future__ import annotations

from typing import Any

import pytest

from dotcu.inspection.code import features
from dotcu.inspection.code.emitted import Emitted, is_executed, is_move, of_sass, ptx_width_bytes
from dotcu.inspection.code.sass import Instruction
from inspecting import everything, inspected, line_of, needs_nvdisasm

NEW, ALL = ["sm_80", "sm_90a", "sm_100a", "sm_120a"], ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"]


def found(kernel: str, arch: str = "sm_90a", *, with_sass: bool = True) -> dict[tuple[str, str], Emitted]:
    one = everything(arch, with_sass=with_sass)[kernel]
    return {(each.group, each.label): each for each in one.emitted}


@needs_nvdisasm
@pytest.mark.parametrize("arch", ALL)
@pytest.mark.parametrize(
    ("kernel", "width"),
    [("copy_bytes", 1), ("copy_halves", 2), ("copy_words", 4), ("copy_pairs", 8), ("copy_vectors", 16)],
)
def test_widths_of_loads_and_stores_are_told(arch: str, kernel: str, width: int) -> None:
    emitted = found(kernel, arch)
    assert set(emitted) == {
        (features.GLOBAL, f"load, {width} B a lane"),
        (features.GLOBAL, f"store, {width} B a lane"),
    }


@needs_nvdisasm
def test_loads_of_32_bytes_are_told() -> None:
    assert (features.GLOBAL, "load, 32 B a lane") in found("copy_wide", "sm_100a")


@needs_nvdisasm
def test_each_kind_has_its_source_lines() -> None:
    (place, count), *rest = found("local_array")[features.GLOBAL, "store, 4 B a lane"].places
    assert (place.line, count, rest) == (line_of("y[0] = sum;"), 1, [])


@needs_nvdisasm
@pytest.mark.parametrize(
    ("kernel", "arch", "group", "label"),
    [
        ("products", "sm_80", features.MATRIX, "HMMA.16816.F32.BF16"),
        ("products", "sm_120a", features.MATRIX, "HMMA.16816.F32.BF16"),
        ("fp8_products", "sm_89", features.MATRIX, "QMMA.16832.F32.E4M3.E4M3"),
        ("group_products", "sm_90a", features.MATRIX, "HGMMA.64x8x16.F32"),
        ("matrices", "sm_75", features.MATRIX, "LDSM.16.M88.4"),
        ("async_copy", "sm_80", features.ASYNC, "LDGSTS, 16 B a lane"),
        ("bulk", "sm_90a", features.ASYNC, "UBLKCP.S.G"),
        ("tensor_copy", "sm_100a", features.ASYNC, "UTMALDG.2D"),
        ("bulk", "sm_90a", features.BARRIER, "SYNCS.EXCH.64"),
        ("shared_float_atomic", "sm_90a", features.ATOMIC, "ATOMS.CAST.SPIN"),
        ("global_atomic", "sm_90a", features.ATOMIC, "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU"),
        ("global_atomic", "sm_80", features.ATOMIC, "RED.E.ADD.F32.FTZ.RN.STRONG.GPU"),
        ("warp", "sm_90a", features.WARP, "SHFL.BFLY"),
        ("halves", "sm_90a", features.HALF, "HFMA2.MMA"),
        ("takes_doubles", "sm_90a", features.DOUBLE, "DMUL"),
        ("exponential", "sm_90a", features.SPECIAL, "MUFU.EX2"),
        ("local_array", "sm_90a", features.LOCAL, "store, 4 B a lane"),
        ("spill", "sm_90a", features.LOCAL, "spill store, 4 B a lane"),
        ("generic", "sm_90a", features.GENERIC, "load, 4 B a lane"),
        ("calls", "sm_90a", features.CALL, "call of callee"),
        ("divide_long", "sm_90a", features.CALL, "call of __cuda_sm20_div_s64"),
    ],
)
def test_what_a_kernel_is_known_for_is_told(kernel: str, arch: str, group: str, label: str) -> None:
    assert (group, label) in found(kernel, arch)


@needs_nvdisasm
@pytest.mark.parametrize("arch", NEW)
def test_a_kernel_without_matrices_shows_none_whatever_moves_its_constants(arch: str) -> None:
    """HFMA2.MMA R4, -RZ, RZ, 0, 0 of sm_80 to sm_90 is how ptxas brings a zero into a register."""
    assert not {group for group, _ in found("divide_by_seven", arch)} & {features.MATRIX, features.HALF}


def instruction(text: str, predicate: str = "") -> Instruction:
    word, _, operands = text.partition(" ")
    opcode, *modifiers = word.split(".")
    return Instruction(
        address=0, text=text, predicate=predicate, opcode=opcode, modifiers=tuple(modifiers),
        operands=tuple(operands.split(", ")),
    )  # fmt: skip


def test_what_moves_a_constant_is_no_arithmetic() -> None:
    assert is_move(instruction("HFMA2.MMA R4, -RZ, RZ, 0, 0"))
    assert is_move(instruction("HFMA2 R4, -RZ, RZ, 0, 4.7683715820312500000e-06"))
    assert not is_move(instruction("HFMA2.MMA R4, R2, R2, R3"))


def test_what_no_lane_executes_is_not_counted() -> None:
    """ptxas puts @!PT LDS RZ, [RZ] before the first LDGSTS of a kernel, for sm_90 and later."""
    never = instruction("LDS RZ, [RZ]", predicate="@!PT")
    assert not is_executed(never)
    assert of_sass([never], "") == ()
    assert [each.count for each in of_sass([instruction("LDS RZ, [RZ]")] * 3, "")] == [3]


@pytest.mark.parametrize(
    ("opcode", "width"),
    [("ld.global.v4.f32", 16), ("st.shared.u8", 1), ("ld.global.nc.v2.u64", 16), ("ld.f64", 8)],
)
def test_widths_of_ptx_are_told(opcode: str, width: int) -> None:
    assert ptx_width_bytes(opcode) == width


@pytest.mark.parametrize(
    ("kernel", "group", "label"),
    [
        ("copy_vectors", features.GLOBAL, "load, 16 B a lane"),
        ("copy_bytes", features.GLOBAL, "store, 1 B a lane"),
        ("group_products", features.MATRIX, "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"),
        ("async_copy", features.ASYNC, "cp.async.cg.shared.global"),
        ("generic", features.GENERIC, "load, 4 B a lane"),
        ("takes_doubles", features.DOUBLE, "mul.f64"),
        ("local_array", features.LOCAL, "store, 4 B a lane"),
        ("shared_float_atomic", features.ATOMIC, "atom.shared.add.f32"),
    ],
)
def test_without_a_disassembler_ptx_tells(kernel: str, group: str, label: str) -> None:
    assert (group, label) in found(kernel, with_sass=False)


def test_parameters_are_no_memory_traffic() -> None:
    groups = {group for group, _ in found("divide", with_sass=False)}
    assert groups == {features.GLOBAL}


@pytest.mark.parametrize("table", [features.SASS, features.PTX])
def test_every_kind_is_in_a_group_that_is_listed(table: Any) -> None:
    assert {feature.group for feature in table} <= set(features.GROUPS)


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
        assert sum(bool(feature.opcode.fullmatch(opcode)) for feature in features.SASS) == 1, opcode


@needs_nvdisasm
def test_a_call_through_a_register_is_of_nobody_in_particular() -> None:
    text = "__global__ void k(float (**f)(float), float* y) { y[0] = f[0](y[1]); }"
    labels = [kind.label for kind in inspected(text)["k"].emitted if kind.group == features.CALL]
    assert labels == ["call of a function by its address"]


@needs_nvdisasm
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_functions_that_the_driver_brings_are_called_by_their_name(arch: str) -> None:
    text = """
#include <stdio.h>
__global__ void k(int** x) {
    printf("%d", x[0][0]);
    x[1] = (int*)malloc(8);
    free(x[2]);
}
"""
    calls = [kind for kind in inspected(text, arch)["k"].emitted if kind.group == features.CALL]
    assert {(kind.label, kind.places[0][0].line) for kind in calls} == {
        ("call of vprintf", 4), ("call of malloc", 5), ("call of free", 6),
    }  # fmt: skip


@needs_nvdisasm
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120", "compute_90"])
def test_indexed_loads_of_constants_are_loads_and_parameters_are_none(arch: str) -> None:
    text = """
__constant__ double table[32];
__global__ void k(double* x, int n) { x[0] = table[n + threadIdx.x]; }
__global__ void plain(double* x, int n) { x[n] = n; }
"""
    found = inspected(text, arch)
    (load,) = [kind for kind in found["k"].emitted if kind.group == features.CONSTANT]
    assert (load.label, load.count, load.places[0][0].line) == ("load, 8 B a lane", 1, 3)
    assert not [kind for kind in found["plain"].emitted if kind.group == features.CONSTANT]


@needs_nvdisasm
def test_reads_through_the_texture_unit_are_told() -> None:
    text = "__global__ void k(cudaTextureObject_t t, float* y) { y[0] = tex2D<float>(t, y[1], y[2]); }"
    assert any(kind.group == features.TEXTURE for kind in inspected(text)["k"].emitted)
