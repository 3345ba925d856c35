from __future__ import annotations

import pytest

from dotcu.inspection.code.places import Place
from dotcu.inspection.code.sass import SPILL, Function, parse, without_guesses
from inspecting import everything, inspected, line_of, needs_nvdisasm

# What nvdisasm 13.5 prints with -c -gi -gp -hex, shortened.
TEXT = """
\t.section\t.text.k,"ax",@progbits
.text.k:
        .type           k,@function
k:
\t//## File "/dotcu/k.cu", line 4
\t//## File ".nv_debug_ptx_txt", line 20
        /*0000*/                   LDC R1, c[0x0][0x28] ;              /* 0x00000a00ff017b82 */
                                                                       /* 0x000fe20000000800 */
\t//## File "/dotcu/h.cuh", line 9 inlined at "/dotcu/k.cu", line 5
\t//## File "/dotcu/k.cu", line 5
\t//## File ".nv_debug_ptx_txt", line 23
.L_x_1:
        /*0010*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64+0x10] ;  /* 0x0000000405087c25 */
                                                                       /* 0x000e220000000800 */
        /*0020*/                   STL.64 [R1+0x8], R2 (*"SpillRefill"*);  /* 0x0000000405087c25 */
                                                                       /* 0x000fe20000000800 */
        /*0030*/                   CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div) ; /* 0x0000000405087c25 */
                                                                       /* 0x000fe20000000800 */
        /*0040*/                   EXIT ;                              /* 0x000000000000794d */
                                                                       /* 0x000fea0003800000 */
        .weak           $__internal_0_$__cuda_sm20_div
$__internal_0_$__cuda_sm20_div:
        /*0050*/                   RET.REL.NODEC R10 `(k) ;            /* 0x0000000405087c25 */
                                                                       /* 0x000fe20000000800 */
.L_x_2:
        /*0060*/                   BRA `(.L_x_2);                      /* 0xfffffffc00fc7947 */
                                                                       /* 0x000fc0000383ffff */
        /*0070*/                   NOP;                                /* 0x0000000000007918 */
                                                                       /* 0x000fc00000000000 */
"""


@pytest.fixture(scope="module")
def function() -> Function:
    return parse(TEXT, {"/dotcu/k.cu": "k.cu"})["k"]


def test_the_padding_at_a_kernels_end_is_left_out(function: Function) -> None:
    assert [hex(i.address) for i in function.instructions] == ["0x0", "0x10", "0x20", "0x30", "0x40", "0x50"]


def test_an_instruction_is_taken_apart(function: Function) -> None:
    load = function.instructions[1]
    assert load.text == "@!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64+0x10]"
    assert (load.predicate, load.opcode, load.modifiers) == ("@!P0", "LDG", ("E", "128", "CONSTANT"))
    assert load.operands == ("R4", "desc[UR4][R2.64+0x10]")
    assert load.labels == (".L_x_1",)
    assert load.mnemonic == "LDG.E.128.CONSTANT"
    assert load.control is not None


def test_lines_are_told_from_the_inside_out_in_the_users_names(function: Function) -> None:
    first, second, third, *_ = function.instructions
    assert (first.line, first.inlined_at, first.ptx_line) == (Place("k.cu", 4), (), 20)
    assert second.line == Place("/dotcu/h.cuh", 9)
    assert second.inlined_at == (Place("k.cu", 5),)
    assert third.chain == second.chain


def test_a_note_of_the_disassembler_is_no_part_of_the_instruction(function: Function) -> None:
    spill = function.instructions[2]
    assert spill.note == SPILL
    assert spill.operands == ("[R1+0x8]", "R2")


def test_a_subroutine_is_told_apart_and_has_no_line(function: Function) -> None:
    call, ret = function.instructions[3], function.instructions[5]
    assert call.target == "$__internal_0_$__cuda_sm20_div"
    assert function.routines == (call.target,)
    assert function.of_routine(call.target) == (ret,)
    assert (ret.line, ret.ptx_line, ret.labels) == (None, 0, (call.target,))


def test_lines_that_the_compiler_does_not_tell_are_dropped(function: Function) -> None:
    assert without_guesses(function, {23}).instructions[1].line is None
    assert without_guesses(function, {23}).instructions[0].line == Place("k.cu", 4)


def test_text_that_is_no_disassembly_has_no_functions() -> None:
    assert parse("nothing\n to see", {}) == {}


@needs_nvdisasm
def test_every_instruction_of_a_kernel_has_an_encoding() -> None:
    for kernel in everything("sm_90a").values():
        assert kernel.function is not None
        assert all(i.control is not None for i in kernel.function.instructions)


@needs_nvdisasm
def test_addresses_follow_each_other() -> None:
    for kernel in everything("sm_90a").values():
        assert kernel.function is not None
        addresses = [i.address for i in kernel.function.instructions]
        assert addresses == list(range(0, 16 * len(addresses), 16))


@needs_nvdisasm
@pytest.mark.parametrize("arch", ["sm_75", "sm_90a", "sm_100a"])
def test_a_load_stands_at_its_source_line(arch: str) -> None:
    kernel = everything(arch)["copy_vectors"]
    assert kernel.function is not None
    (load,) = [i for i in kernel.function.instructions if i.opcode == "LDG"]
    assert load.line is not None
    assert load.line.line == line_of("copy_vectors")


@needs_nvdisasm
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
def test_spills_are_what_the_assembler_reports(arch: str) -> None:
    kernel = everything(arch)["spill"]
    assert kernel.function is not None
    assert kernel.code.resources is not None
    bytes_of = dict.fromkeys(("STL", "LDL"), 0)
    for i in kernel.function.instructions:
        if i.note == SPILL:
            bytes_of[i.opcode] += {"64": 8, "128": 16}.get(
                next(iter(set(i.modifiers) & {"64", "128"}), ""), 4
            )
    assert bytes_of["STL"] == kernel.code.resources.spill_store_bytes > 0
    assert bytes_of["LDL"] == kernel.code.resources.spill_load_bytes > 0


@needs_nvdisasm
def test_a_kernel_compiled_for_the_debugger_has_lines_too() -> None:
    kernel = inspected('extern "C" __global__ void k(int* x) {\n    x[0] = 1;\n}\n', debug=True)["k"]
    assert kernel.function is not None
    assert 2 in {i.line.line for i in kernel.function.instructions if i.line}
