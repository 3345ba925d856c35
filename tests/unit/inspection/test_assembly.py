"""PTX and SASS, line by line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dotcu import process
from dotcu.compile import toolchain
from dotcu.errors import EnvironmentFault, SimulationError, UsageError
from dotcu.inspection.assembly import (
    SPILL,
    PtxLine,
    SassFunction,
    SassInstruction,
    control_text,
    disassemble,
    max_threads,
    parse_sass,
    ptx_lines,
    routines,
    shown_location,
    takes_dynamic_smem,
    without_guessed_lines,
)
from dotcu.tile_ir.module import SourceLocation
from helpers.inspected_kernels import (
    GENERATIONS,
    everything,
    inspected,
    line_of,
    needs_cuobjdump,
    needs_nvdisasm,
)

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
    return {line.text.strip(): line for line in ptx_lines(PTX, "k", FILES)}


def test_a_kernels_lines_are_its_own_and_those_of_the_functions_it_calls(lines: dict[str, PtxLine]) -> None:
    assert ".func (.param .b32 result) helper(" in lines
    assert ".visible .entry k(" in lines
    assert ".visible .entry other()" not in lines


def test_lines_keep_their_numbers_in_the_file() -> None:
    text = PTX.split("\n")
    assert all(text[line.number - 1] == line.text for line in ptx_lines(PTX, "k", FILES))


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
        ptx_lines("hello { world", "k", {})


def test_shared_memory_that_the_launch_sizes_is_seen() -> None:
    found = everything("sm_90a")
    assert found["dynamic"].code.takes_dynamic_smem
    assert not found["generic"].code.takes_dynamic_smem
    assert not takes_dynamic_smem(PTX, ptx_lines(PTX, "k", FILES))


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
def function() -> SassFunction:
    return parse_sass(TEXT, {"/dotcu/k.cu": "k.cu"})["k"]


def test_the_padding_at_a_kernels_end_is_left_out(function: SassFunction) -> None:
    assert [hex(i.address) for i in function] == ["0x0", "0x10", "0x20", "0x30", "0x40", "0x50"]


def test_an_instruction_is_taken_apart(function: SassFunction) -> None:
    load = function[1]
    assert load.text == "@!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64+0x10]"
    assert (load.predicate, load.opcode, load.modifiers) == ("@!P0", "LDG", ("E", "128", "CONSTANT"))
    assert load.operands == ("R4", "desc[UR4][R2.64+0x10]")
    assert load.labels == (".L_x_1",)
    assert load.mnemonic == "LDG.E.128.CONSTANT"
    assert load.control


def test_lines_differ_from_the_inside_out_in_the_users_names(function: SassFunction) -> None:
    first, second, third, *_ = function
    assert (first.chain, first.ptx_line) == ((SourceLocation("k.cu", 4),), 20)
    assert second.chain == (SourceLocation("/dotcu/h.cuh", 9), SourceLocation("k.cu", 5))
    assert third.chain == second.chain


def test_a_note_of_the_disassembler_is_no_part_of_the_instruction(function: SassFunction) -> None:
    spill = function[2]
    assert spill.note == SPILL
    assert spill.operands == ("[R1+0x8]", "R2")


def test_a_subroutine_is_kept_apart_and_has_no_line(function: SassFunction) -> None:
    call, ret = function[3], function[5]
    assert call.target == "$__internal_0_$__cuda_sm20_div"
    assert routines(function) == {call.target: 1}
    assert ret.routine == call.target
    assert (ret.chain, ret.ptx_line, ret.labels) == ((), 0, (call.target,))


def test_lines_that_the_compiler_does_not_report_are_dropped(function: SassFunction) -> None:
    assert without_guessed_lines(function, {23})[1].chain == ()
    assert without_guessed_lines(function, {23})[0].chain == (SourceLocation("k.cu", 4),)


def test_text_that_is_no_disassembly_has_no_functions() -> None:
    assert parse_sass("nothing\n to see", {}) == {}


@needs_nvdisasm
def test_every_instruction_of_a_kernel_has_an_encoding() -> None:
    for kernel in everything("sm_90a").values():
        assert all(i.control for i in kernel.instructions)


@needs_nvdisasm
def test_addresses_follow_each_other() -> None:
    for kernel in everything("sm_90a").values():
        addresses = [i.address for i in kernel.instructions]
        assert addresses == list(range(0, 16 * len(addresses), 16))


@needs_nvdisasm
@pytest.mark.parametrize("arch", GENERATIONS)
def test_a_load_stands_at_its_source_line(arch: str) -> None:
    kernel = everything(arch)["copy_vectors"]
    (load,) = [i for i in kernel.instructions if i.opcode == "LDG"]
    assert load.chain[0].line == line_of("copy_vectors")


@needs_nvdisasm
@pytest.mark.parametrize("arch", GENERATIONS)
def test_spills_are_what_the_assembler_reports(arch: str) -> None:
    kernel = everything(arch)["spill"]
    assert kernel.code.resources is not None
    bytes_of = dict.fromkeys(("STL", "LDL"), 0)
    for i in kernel.instructions:
        if i.note == SPILL:
            bytes_of[i.opcode] += {"64": 8, "128": 16}.get(
                next(iter(set(i.modifiers) & {"64", "128"}), ""), 4
            )
    assert bytes_of["STL"] == kernel.code.resources.spill_store_bytes
    assert bytes_of["LDL"] == kernel.code.resources.spill_load_bytes
    assert bytes_of["STL"] > 0 or arch != "sm_90a"  # some others have registers enough


@needs_nvdisasm
def test_a_kernel_compiled_for_the_debugger_has_lines_too() -> None:
    kernel = inspected('extern "C" __global__ void k(int* x) {\n    x[0] = 1;\n}\n', debug=True)["k"]
    assert 2 in {i.chain[0].line for i in kernel.instructions if i.chain}


# sm_90, ptxas of CUDA 13.0: S2R R2, SR_TID.X, and the IMAD.WIDE that waits for it.
S2R = 0x000E2E0000002100_0000000000027919
IMAD = 0x001FC6000F8E0002_0000000505087C25
REUSE = 0x040FE2000F8E00FF_0000000805067C25


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        (S2R, "B------:R-:W0:-:S07"),
        (IMAD, "B0-----:R-:W-:Y:S03"),
        (REUSE, "B------:R-:W-:-:S01"),  # flags of operand reuse are no scoreboards
    ],
)
def test_control_bits_are_read_as_published(encoding: int, text: str) -> None:
    assert control_text(encoding) == text


def _registers(operand: str) -> set[str]:
    return {
        word.split(".")[0] for word in operand.replace("[", " ").replace("]", " ").replace("-", " ").split()
    }


def _reader(after: list[SassInstruction], register: str) -> SassInstruction | None:
    """The first instruction that reads a register, if no branch comes before it."""
    for instruction in after:
        if instruction.labels or instruction.opcode in ("BRA", "EXIT", "CALL", "RET", "BSYNC"):
            return None
        sources = instruction.operands if instruction.opcode.startswith("ST") else instruction.operands[1:]
        if any(register in _registers(operand) for operand in sources):
            return instruction
    return None


def _scoreboards(instruction: SassInstruction) -> tuple[str, str]:
    """The scoreboards that an instruction waits for, and the one that its result releases."""
    waits, _, write, *_ = instruction.control.split(":")
    return waits[1:], write[1:]


@needs_nvdisasm
@pytest.mark.parametrize("arch", GENERATIONS)
def test_an_instruction_waits_for_the_scoreboard_of_the_load_that_it_reads(arch: str) -> None:
    checked = 0
    for kernel in everything(arch).values():
        code = list(kernel.instructions)
        for index, load in enumerate(code):
            if load.opcode in ("LDG", "LDS") and load.predicate == "":
                _, write = _scoreboards(load)
                assert write.isdigit()
                reader = _reader(code[index + 1 :], load.operands[0])
                between = code[index + 1 : code.index(reader)] if reader is not None else []
                if reader is None or any(write in _scoreboards(i)[0] for i in between):
                    continue
                assert write in _scoreboards(reader)[0], (load.text, reader.text)
                checked += 1
    assert checked > 20


_PRINTED = re.compile(r"\s+/\*(?P<address>[0-9a-f]{4,})\*/\s+(?:(?P<guard>@\S+)\s+)?(?P<mnemonic>[\w.]+)")


def cubin(arch: str = "sm_90a") -> bytes:
    found = next(iter(everything(arch).values())).code.cubin
    assert found is not None
    return found


@needs_nvdisasm
@needs_cuobjdump
@pytest.mark.parametrize("arch", ["sm_90a", *GENERATIONS[2:]])
def test_instructions_are_those_that_cuobjdump_prints(arch: str, tmp_path: Path) -> None:
    path, tool = tmp_path / "k.cubin", toolchain.find_tool("cuobjdump")
    path.write_bytes(cubin(arch))
    assert tool is not None
    printed: dict[str, list[str]] = {}
    for line in process.run([tool, "-sass", path]).stdout.splitlines():
        words, found = line.split(), _PRINTED.match(line)
        if words[:2] == ["Function", ":"]:
            current = printed.setdefault(words[2], [])
        elif found is not None:
            current.append(" ".join([found["address"], found["guard"] or "", found["mnemonic"]]))
    functions = disassemble(cubin(arch), {})
    assert functions.keys() == printed.keys()
    for symbol, function in functions.items():
        ours = [" ".join([f"{i.address:04x}", i.predicate, i.mnemonic]) for i in function]
        assert ours == printed[symbol][: len(ours)]
        rest = {line.split()[-1] for line in printed[symbol][len(ours) :]}
        assert rest <= {"BRA", "NOP"}


@needs_nvdisasm
@pytest.mark.parametrize("data", [b"", b"not an ELF", b"\x7fELF and no more"])
def test_bytes_that_are_no_cubin_are_refused_with_what_the_tool_says(data: bytes) -> None:
    with pytest.raises(UsageError, match=rf"cannot read these {len(data)} bytes as a cubin"):
        disassemble(data, {})


@needs_nvdisasm
def test_a_truncated_cubin_is_refused() -> None:
    with pytest.raises(UsageError, match="A whole cubin is required"):
        disassemble(cubin()[:2000], {})


def test_without_the_tool_the_line_to_type_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: None)
    with pytest.raises(EnvironmentFault, match="pip install nvidia-cuda-nvdisasm"):
        disassemble(b"", {})
