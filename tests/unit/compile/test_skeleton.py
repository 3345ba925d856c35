"""What is kept of PTX beside the machine code that was made of it."""

from __future__ import annotations

import pytest

from dotcu.compile.skeleton import skeleton
from dotcu.kernel import state
from dotcu.simulator import Program

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
    program = Program.parse(kept)
    assert program.headers["k"].max_threads == (128, 1, 1)
    assert len(program.variables) == len(Program.parse(module(variables, "")).variables)


@pytest.mark.parametrize(
    "variables",
    [
        ".global .align 4 .u32 count;",
        ".visible .global .attribute(.managed) .align 4 .u32 count;",
        ".global .align 4 .u32 other, count;",
        ".global .align 4 .b8 count[4] = {1, 2, 3, 4};",
    ],
)
def test_a_body_that_names_a_variable_tells_that_it_is_written(variables: str) -> None:
    kept = skeleton(module(variables, NAMED))
    assert state.uses(kept, "k", ["count"]) == {"count": True}


def test_a_variable_of_a_longer_name_is_another() -> None:
    assert "mov.u32" not in skeleton(module(".global .align 4 .u32 cou;", NAMED.replace("[count]", "[%rd1]")))
    assert "mov.u32" not in skeleton(module(".global .align 4 .u32 cou;", NAMED))


def test_braces_of_inline_assembly_end_no_body() -> None:
    text = module("", "\t// begin inline asm\n\t{\nadd.u32 %r1, %r1, 1;\n}\n\t// end inline asm\n")
    assert Program.parse(text).headers.keys() == Program.parse(skeleton(text)).headers.keys() == {"k"}
    assert "add.u32" not in skeleton(text)


def test_functions_are_left_out_and_first_values_stay() -> None:
    function = ".func (.param .b32 r) helper(.param .b32 a)\n{\n\t{\n\tret;\n}\n}\n"
    kept = skeleton(module(f".global .align 4 .b8 table[4] = {{1, 2, 3, 4}};\n{function}", ""))
    assert ".func" not in kept
    assert "table[4] = {1, 2, 3, 4};" in kept
    assert Program.parse(kept).headers.keys() == {"k"}
