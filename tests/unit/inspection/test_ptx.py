from __future__ import annotations

import pytest

from dotcu.errors import SimulationError
from dotcu.inspection.ptx import PtxLine, lines_of, max_threads, shown_location, takes_dynamic_smem
from dotcu.tile_ir.module import SourceLocation
from helpers.inspected_kernels import GENERATIONS, everything, line_of

PTX = """.version 9.0
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 line[];
.func (.param .b32 result) helper(
    .param .b32 x
)
{
    .loc 1 2 0
    ret;
}
.visible .entry other()
{
    ret;
}
.visible .entry k(
    .param .u64 k_param_0
)
.maxntid 128, 2, 1
{
    .reg .b32 %r<4>;
    .loc 1 10 5
    ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];  // a comment; with a semicolon
    .loc 2 3 1, function_name $L__info_string0, inlined_at 1 10 5
    { .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%r1], 0; @!p bra L; }
    call.uni (retval0),
    helper,
    (
    param0
    );
    .loc 1 0 5
    div.s64 %rd1, %rd2, %rd3;
$L__BB0_1:
    .loc 1 12 1
    @%p1 bra $L__BB0_1;
    ret;
}
\t.file 1 "/dotcu/k.cu"
\t.file 2 "/dotcu/h.cuh"
"""
FILES = {"/dotcu/k.cu": "k.cu", "/dotcu/h.cuh": "h.cuh"}


@pytest.fixture(scope="module")
def lines() -> dict[str, PtxLine]:
    return {line.text.strip(): line for line in lines_of(PTX, "k", FILES)}


def test_a_kernels_lines_are_its_own_and_those_of_the_functions_it_calls(lines: dict[str, PtxLine]) -> None:
    assert ".func (.param .b32 result) helper(" in lines
    assert ".visible .entry k(" in lines
    assert ".visible .entry other()" not in lines


def test_lines_keep_their_numbers_in_the_file() -> None:
    text = PTX.split("\n")
    assert all(text[line.number - 1] == line.text for line in lines_of(PTX, "k", FILES))


def test_an_instruction_has_the_line_of_the_directive_before_it(lines: dict[str, PtxLine]) -> None:
    found = lines["ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];  // a comment; with a semicolon"]
    assert found.opcodes == ("ld.global.v4.f32",)
    assert found.chain == (SourceLocation("k.cu", 10),)


def test_inlined_instructions_know_where_they_were_inlined(lines: dict[str, PtxLine]) -> None:
    (found,) = [line for text, line in lines.items() if text.startswith("{ .reg")]
    assert found.chain == (SourceLocation("h.cuh", 3), SourceLocation("k.cu", 10))
    assert found.opcodes == ("mbarrier.try_wait.parity.shared.b64", "bra")


def test_a_statement_over_several_lines_counts_once(lines: dict[str, PtxLine]) -> None:
    assert lines["call.uni (retval0),"].opcodes == ("call.uni",)
    assert lines["helper,"].opcodes == lines["param0"].opcodes == ()


def test_line_zero_means_that_no_line_is_reported(lines: dict[str, PtxLine]) -> None:
    assert lines["div.s64 %rd1, %rd2, %rd3;"].chain == ()
    assert lines["@%p1 bra $L__BB0_1;"].chain == (SourceLocation("k.cu", 12),)


def test_labels_and_directives_are_no_instructions(lines: dict[str, PtxLine]) -> None:
    assert lines["$L__BB0_1:"].statements == ()
    assert lines[".reg .b32 %r<4>;"].statements == ()


def test_launch_bounds_are_read() -> None:
    assert max_threads(PTX, "k") == (256, False)
    assert max_threads(PTX, "other") == (0, False)
    assert max_threads(PTX.replace(".maxntid", ".reqntid"), "k") == (256, True)


def test_text_that_is_no_ptx_is_refused() -> None:
    with pytest.raises(SimulationError):
        lines_of("hello { world", "k", {})


def test_shared_memory_that_the_launch_sizes_is_seen() -> None:
    found = everything("sm_90a")
    assert found["dynamic"].code.takes_dynamic_smem
    assert not found["generic"].code.takes_dynamic_smem
    assert not takes_dynamic_smem(PTX, lines_of(PTX, "k", FILES))


@pytest.mark.parametrize("arch", GENERATIONS)
def test_what_the_compiler_emits_is_read_whole(arch: str) -> None:
    for kernel in everything(arch).values():
        opcodes = [opcode for line in kernel.code.ptx for opcode in line.opcodes]
        assert opcodes[-1] == "ret" or "bra" in opcodes[-1]
        assert kernel.code.location is not None
        assert kernel.code.location.line == line_of(f" {kernel.code.name}(")


HEADER, KERNEL, CALLER = SourceLocation("h.cuh", 3), SourceLocation("k.cu", 10), SourceLocation("k.cu", 20)


def test_a_headers_code_stands_beside_the_line_that_calls_it() -> None:
    assert shown_location((HEADER, KERNEL), "k.cu") == KERNEL


def test_of_two_lines_at_home_the_inner_one_is_taken() -> None:
    assert shown_location((KERNEL, CALLER), "k.cu") == KERNEL


def test_code_of_another_file_alone_keeps_its_outermost_place() -> None:
    assert shown_location((HEADER,), "k.cu") == HEADER
    assert shown_location((), "k.cu") is None
