"""The result of a compile: resources by kernel, and the skeleton of assembled PTX."""

from __future__ import annotations

import pytest

from dotcu.compile import Resources
from dotcu.compile.object_code import parse_resources, skeleton
from dotcu.elf import section_bytes
from dotcu.kernel import ptx_uses
from dotcu.ptx.module import parse_module
from helpers.binary_files import elf

LOG = """ptxas info    : 16 bytes gmem, 12 bytes cmem[3]
ptxas info    : Compiling entry function '_Z1kPi' for 'sm_90a'
ptxas info    : Function properties for _Z1kPi
ptxas         .     2952 bytes stack frame, 3660 bytes spill stores, 4816 bytes spill loads
ptxas info    : Used 64 registers, used 2 barriers, 1024 bytes smem, 368 bytes cmem[0]
ptxas info    : Compile time = 124.959 ms
ptxas info    : Compiling entry function '_Z13__dotcu_probeIPFvPiEEvv' for 'sm_90a'
ptxas info    : Used 4 registers, used 0 barriers
ptxas info    : Compiling entry function 'plain' for 'sm_90a'
ptxas info    : Function properties for plain
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""


def test_each_kernel_has_its_resources_and_probes_have_none() -> None:
    assert parse_resources(LOG) == {
        "_Z1kPi": Resources(
            registers=64,
            spill_store_bytes=3660,
            spill_load_bytes=4816,
            stack_bytes=2952,
            smem_bytes=1024,
            barriers=2,
        ),
        "plain": Resources(registers=8),
    }


def test_constants_are_counted_by_the_section_that_holds_them() -> None:
    elf_of_two = elf({".nv.constant3": bytes(1200), ".nv.constant0.plain": bytes(368)})
    found = parse_resources(LOG, elf_of_two)
    assert {name: each.constant_bytes for name, each in found.items()} == {"_Z1kPi": 1200, "plain": 1200}
    assert section_bytes(elf_of_two, ".nv.constant4") == 0


def test_a_log_of_no_assembler_has_none() -> None:
    assert parse_resources("") == {}


HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"

NAMED = "\tst.global.u32 [count], %r1;\n"


def module(variables: str, body: str) -> str:
    return (
        f"{HEAD}{variables}\n.visible .entry k(\n\t.param .u64 k_param_0\n)\n.maxntid 128, 1, 1\n"
        f"{{\n\t.reg .b32 %r<3>;\n\tmov.u32 %r1, 7;\n{body}\tret;\n}}\n"
    )


@pytest.mark.parametrize(
    "variables",
    [
        "",
        ".global .align 4 .u32 _ZN5dotcu4sizeE = 2;",
        ".visible .global .attribute(.managed) .align 4 .u32 count;\n.const .align 4 .b8 table[12];",
    ],
    ids=["none", "a constant of a class", "variables of other kernels"],
)
def test_a_body_that_names_no_variable_is_left_out(variables: str) -> None:
    kept = skeleton(module(variables, ""))
    assert "mov.u32" not in kept
    program = parse_module(kept)
    assert program.headers["k"].max_threads == (128, 1, 1)
    assert len(program.variables) == len(parse_module(module(variables, "")).variables)


@pytest.mark.parametrize(
    "variables",
    [
        ".global .align 4 .u32 count;",
        ".visible .global .attribute(.managed) .align 4 .u32 count;",
        ".global .align 4 .u32 other, count;",
        ".global .align 4 .b8 count[4] = {1, 2, 3, 4};",
    ],
)
def test_a_body_that_names_a_variable_reports_that_it_is_written(variables: str) -> None:
    kept = skeleton(module(variables, NAMED))
    assert ptx_uses.variable_writes(parse_module(kept), "k", ["count"]) == {"count": True}


def test_a_variable_of_a_longer_name_is_another() -> None:
    assert "mov.u32" not in skeleton(module(".global .align 4 .u32 cou;", NAMED.replace("[count]", "[%rd1]")))
    assert "mov.u32" not in skeleton(module(".global .align 4 .u32 cou;", NAMED))


def test_braces_of_inline_assembly_end_no_body() -> None:
    text = module("", "\t// begin inline asm\n\t{\nadd.u32 %r1, %r1, 1;\n}\n\t// end inline asm\n")
    assert parse_module(text).headers.keys() == parse_module(skeleton(text)).headers.keys() == {"k"}
    assert "add.u32" not in skeleton(text)


def test_functions_are_left_out_and_first_values_stay() -> None:
    function = ".func (.param .b32 r) helper(.param .b32 a)\n{\n\t{\n\tret;\n}\n}\n"
    kept = skeleton(module(f".global .align 4 .b8 table[4] = {{1, 2, 3, 4}};\n{function}", ""))
    assert ".func" not in kept
    assert "table[4] = {1, 2, 3, 4};" in kept
    assert parse_module(kept).headers.keys() == {"k"}
