from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from dotcu.compile import CompileOptions, Target, inline_source, toolchain
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.inspection.assembly import PtxLine, SassInstruction, disassemble
from dotcu.inspection.build import BuildRequest, FailedBuild, compile_kernels, kernels_in_source
from dotcu.inspection.listing import KINDS, emit, panes, ptx_by_line, sass_by_line, share, style_of
from dotcu.inspection.report import InspectedKernel, InspectReport, SimulatedCounts
from dotcu.simulator import LineCounters
from dotcu.tile_ir.module import SourceLocation
from helpers.inspected_kernels import GENERATIONS, everything, inspected, line_of, needs_nvdisasm


def printed(kernel: InspectedKernel, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(panes(kernel, console.width))
    return captured.get().splitlines()


@needs_nvdisasm
def test_a_row_has_source_ptx_and_sass_of_one_line() -> None:
    lines = printed(everything("sm_90a")["copy_vectors"], 400)
    assert lines[0].startswith("copy_vectors  sm_90a  inline.cu")
    assert lines[1].split() == ["line", "source", "PTX", "SASS"]
    number = line_of("copy_vectors")
    row = next(line for line in lines if line.split()[:1] == [str(number)])
    assert "__global__ void copy_vectors" in row
    assert "ld.param" in row
    assert "B------" in row


@needs_nvdisasm
@pytest.mark.parametrize("width", [60, 80, 120, 200, 100_000])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = printed(everything("sm_90a")["divide_long"], width)
    assert all(len(line.rstrip()) <= width for line in lines)
    assert sum(line.split()[:1] == [str(line_of("    y[0] = a / b;") + 3)] for line in lines) == 1


@needs_nvdisasm
def test_what_is_cut_ends_in_an_ellipsis_and_a_pipe_cuts_nothing() -> None:
    kernel = everything("sm_90a")["divide_long"]
    assert any("…" in line for line in printed(kernel, 80))
    assert not any("…" in line for line in printed(kernel, 100_000))


@needs_nvdisasm
def test_a_narrow_terminal_leaves_out_control_bits() -> None:
    kernel = everything("sm_90a")["copy_vectors"]
    assert any(":S0" in line for line in printed(kernel, 200))
    assert not any(":S0" in line for line in printed(kernel, 120))


@needs_nvdisasm
def test_code_of_no_line_comes_last() -> None:
    lines = printed(everything("sm_90a")["divide_long"], 300)
    (start,) = [i for i, line in enumerate(lines) if "no line of this file" in line]
    assert any("$__internal_" in line for line in lines[start:])
    assert not any("$__internal_" in line.split("CALL")[0] for line in lines[:start])


@needs_nvdisasm
def test_counts_have_a_column_where_there_are_some() -> None:
    kernel = everything("sm_90a")["copy_vectors"]
    place = SourceLocation("inline.cu", line_of("copy_vectors"))
    counted = SimulatedCounts(
        call="a call", total=LineCounters(), lines={place: LineCounters(lane_instructions=123_456)}
    )
    lines = printed(replace(kernel, counts=counted), 200)
    assert lines[1].split()[:2] == ["line", "threads"]
    assert any("123,456" in line for line in lines)


def test_without_a_disassembler_there_are_two_panes() -> None:
    lines = printed(everything("sm_90a", with_sass=False)["copy_vectors"], 200)
    assert lines[1].split() == ["line", "source", "PTX"]


def test_a_kernel_without_lines_is_listed_all_the_same() -> None:
    kernel = everything("sm_90a", with_sass=False)["divide"]
    bare = "\n".join(line for line in kernel.code.ptx_text.split("\n") if ".loc" not in line)
    lines = printed(InspectedKernel(code=replace(kernel.code, ptx_text=bare)), 200)
    assert any("div.s32" in line for line in lines)


@needs_nvdisasm
def test_slow_memory_stands_out() -> None:
    function = everything("sm_90a")["spill"].function
    assert function is not None
    styles = {i.opcode: style_of(i) for i in function}
    assert styles["STL"] == "bold red"
    assert styles["LDG"] == "cyan"
    assert styles["FFMA"] == ""


@pytest.mark.parametrize(
    ("available", "wanted", "given"),
    [
        (100, [20, 30, 40], [20, 30, 40]),
        (90, [80, 80, 80], [30, 30, 30]),
        (90, [10, 80, 80], [10, 40, 40]),
        (90, [10, 20, 500], [10, 20, 60]),
        (0, [80, 80, 80], [12, 12, 12]),
    ],
)
def test_panes_share_the_width(available: int, wanted: list[int], given: list[int]) -> None:
    assert share(available, wanted) == given


@needs_nvdisasm
def test_blank_source_lines_between_code_are_kept() -> None:
    kernel = inspected("__global__ void k(int* x) {\n    x[0] = 1;\n\n    x[1] = 2;\n}\n")["k"]
    numbers = [line.split()[0] for line in printed(kernel, 200) if line[:4].strip().isdigit()]
    assert numbers == ["1", "2", "3", "4", "5"]


FILE, HEADER = "k.cu", SourceLocation("h.cuh", 9)


def ptx_line(number: int, text: str, *chain: SourceLocation) -> PtxLine:
    return PtxLine(number=number, text=text, chain=chain, statements=(text,) if chain else ())


def instruction(address: int, *chain: SourceLocation) -> SassInstruction:
    return SassInstruction(
        address=address, text="", predicate="", opcode="NOP", modifiers=(), operands=(), chain=chain
    )


def test_ptx_stands_at_the_line_of_the_kernels_own_file() -> None:
    lines = [
        ptx_line(20, "k("),
        ptx_line(21, "ld", SourceLocation(FILE, 1)),
        ptx_line(22, "$L__BB0_1:"),  # belongs where the instruction behind it does
        ptx_line(23, "add", HEADER, SourceLocation(FILE, 2)),  # beside the call
        ptx_line(24, "st"),
    ]
    found = ptx_by_line(lines, FILE)
    assert {number: [line.number for line in some] for number, some in found.items()} == {
        0: [20, 24], 1: [21], 2: [22, 23],
    }  # fmt: skip


def test_instructions_stand_at_the_line_of_the_kernels_own_file() -> None:
    code = [instruction(0, SourceLocation(FILE, 1)), instruction(16, HEADER, SourceLocation(FILE, 2))]
    found = sass_by_line([*code, instruction(32), instruction(48, HEADER)], FILE)
    assert {number: [i.address for i in some] for number, some in found.items()} == {
        0: [32, 48], 1: [0], 2: [16],
    }  # fmt: skip


@needs_nvdisasm
@pytest.mark.parametrize("arch", GENERATIONS)
def test_an_access_stands_at_one_line_in_all_three_panes(arch: str) -> None:
    kernel = everything(arch)["local_array"]
    line = line_of("y[0] = sum;")
    ptx = ptx_by_line(kernel.code.ptx, kernel.code.file)[line]
    assert any("st.global" in each.text for each in ptx)
    assert any(i.opcode == "STG" for i in sass_by_line(kernel.instructions, kernel.code.file)[line])


@needs_nvdisasm
@pytest.mark.parametrize("arch", GENERATIONS)
def test_machine_code_names_the_line_of_ptx_that_it_was_made_of(arch: str) -> None:
    kernel = everything(arch)["copy_vectors"]
    texts = {line.number: line.text for line in kernel.code.ptx}
    (load,) = [i for i in kernel.instructions if i.opcode == "LDG"]
    assert "ld.global" in texts[load.ptx_line]


def report(*names: str, arch: str = "sm_90a", with_sass: bool = True) -> InspectReport:
    kernels = everything(arch, with_sass=with_sass)
    return InspectReport(target="k.cu", kernels=tuple(kernels[name] for name in names))


def entries(ptx: bytes) -> list[str]:
    return re.findall(r"\.entry (\w+)", ptx.decode())


def functions(cubin: bytes) -> set[str]:
    return {name.decode() for name in re.findall(rb"\.text\.(\w+)", cubin)}


def of(text: str, *names: str, arch: str = "sm_90", **options: Any) -> InspectReport:
    kernels = inspected(text, arch, **options)
    return InspectReport(target="k.cu", kernels=tuple(kernels[name] for name in names))


@pytest.mark.parametrize("arch", ["sm_90a", "compute_90"])
def test_ptx_of_one_kernel_has_that_kernel_alone(arch: str) -> None:
    text = emit(report("divide", arch=arch), "ptx")
    assert entries(text) == ["_Z6dividePiii"]
    assert b"div.s32" in text


def test_a_cubin_of_one_kernel_has_that_kernel_alone() -> None:
    assert functions(emit(report("divide"), "cubin")) == {"_Z6dividePiii"}


@pytest.mark.slow
def test_of_several_kernels_of_a_file_the_cubin_has_those() -> None:
    assert functions(emit(report("divide", "spill"), "cubin")) == {"_Z6dividePiii", "_Z5spillPfPKf"}


@needs_nvdisasm
@pytest.mark.parametrize("what", [kind for kind in KINDS if kind != "tileir"])
def test_nothing_of_the_probe_is_emitted(what: str) -> None:
    assert b"dotcu_probe" not in emit(report("divide", "calls"), what)


def test_what_is_emitted_is_the_kernel_that_was_inspected() -> None:
    shown = everything("sm_90a")["divide_long"]
    made = disassemble(emit(report("divide_long"), "cubin"), {})[shown.code.symbol]
    assert shown.function is not None
    assert [i.mnemonic for i in made] == [i.mnemonic for i in shown.function]


@pytest.mark.parametrize("name", ["made", "own"])
def test_kernels_that_a_macro_makes_stand_alone_too(name: str) -> None:
    text = """
#define MAKE(name) __global__ void name(int* x) { x[0] = 1; }
MAKE(made)
__global__ void own(int* x) { x[0] = 2; }
"""
    found = of(text, name)
    assert entries(emit(found, "ptx")) == [found.kernels[0].code.symbol]
    assert functions(emit(found, "cubin")) == {found.kernels[0].code.symbol}


def test_overloads_are_emitted_together() -> None:
    text = """
__global__ void over(int* x) { x[0] = 1; }
__global__ void over(float* x) { x[0] = 1; }
__global__ void other(float* x) { x[0] = 1; }
"""
    unit, _, _ = kernels_in_source(inline_source(text), CompileOptions())
    found = compile_kernels(BuildRequest(unit=unit, target=Target.parse("sm_90")))
    assert not isinstance(found, FailedBuild)
    kernels = tuple(InspectedKernel(code=code) for code in found if code.name == "over")
    report = InspectReport(target="k.cu:over", kernels=kernels)
    assert entries(emit(report, "ptx")) == ["_Z4overPi", "_Z4overPf"]
    assert functions(emit(report, "cubin")) == {"_Z4overPi", "_Z4overPf"}


def test_a_kernel_that_names_another_is_emitted_with_it() -> None:
    text = """
__global__ void first(int* x) { x[0] = 1; }
__global__ void second(int* x) { x[0] = (long long)(void*)first; }
"""
    assert entries(emit(of(text, "second"), "ptx")) == ["_Z5firstPi", "_Z6secondPi"]
    assert functions(emit(of(text, "second"), "cubin")) == {"_Z5firstPi", "_Z6secondPi"}
    assert entries(emit(of(text, "first"), "ptx")) == ["_Z5firstPi"]


@pytest.mark.parametrize("what", ["sass", "cubin", "resources"])
def test_of_ptx_alone_nothing_of_machine_code_is_emitted(what: str) -> None:
    with pytest.raises(UsageError, match=f"--emit {what} needs machine code, and compute_90 is only PTX"):
        emit(report("divide", arch="compute_90"), what)


@pytest.mark.parametrize("what", KINDS)
def test_where_there_is_no_kernel_that_is_reported(what: str) -> None:
    with pytest.raises(UsageError, match=rf"no kernel to emit as {what}.*\n.*\n.*dotcu inspect k.cu"):
        emit(InspectReport(target="k.cu", kernels=()), what)


@pytest.mark.parametrize("what", ["ptx", "cubin"])
def test_of_several_architectures_no_file_can_be_made(what: str) -> None:
    kernels = (everything("sm_90a")["divide"], everything("sm_75")["divide"])
    with pytest.raises(UsageError, match=r"one architecture.*divide sm_90a, divide sm_75"):
        emit(InspectReport(target="k.cu", kernels=kernels), what)


@needs_nvdisasm
def test_sass_has_each_instruction_after_its_source_line() -> None:
    text = emit(report("copy_vectors"), "sass").decode()
    kernel = everything("sm_90a")["copy_vectors"]
    assert kernel.function is not None
    lines = text.splitlines()
    assert lines[0] == f"{kernel.code.symbol}:  // copy_vectors sm_90a"
    assert sum("/*" in line for line in lines) == len(kernel.function)
    (load,) = [i for i in kernel.function if i.opcode == "LDG"]
    assert f"    /*{load.address:04x}*/  {load.text};" in lines
    assert f"    // {load.chain[0]}" in lines


@needs_nvdisasm
def test_subroutines_and_branch_targets_are_labelled_in_sass() -> None:
    text = emit(report("divide_long"), "sass").decode()
    assert "\n$__internal_" in text
    assert "\n.L_x_" in text


def test_sass_without_a_disassembler_is_an_error_that_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: None)
    with pytest.raises(EnvironmentFault, match="pip install nvidia-cuda-nvdisasm"):
        emit(report("divide", with_sass=False), "sass")


def test_resources_are_a_table_with_a_head() -> None:
    head, first, second = emit(report("divide", "spill"), "resources").decode().splitlines()
    rows = [dict(zip(head.split("\t"), row.split("\t"), strict=True)) for row in (first, second)]
    assert [row["kernel"] for row in rows] == ["divide", "spill"]
    resources = everything("sm_90a")["spill"].code.resources
    assert resources is not None
    assert int(rows[1]["spill_store_bytes"]) == resources.spill_store_bytes > 0


def test_symbols_are_reported_with_their_names() -> None:
    assert emit(report("divide"), "symbols") == b"T _Z6dividePiii\tdivide\tsm_90a\n"


def test_what_cannot_be_emitted_is_refused_with_what_can() -> None:
    with pytest.raises(UsageError, match="one of " + ", ".join(KINDS)):
        emit(report("divide"), "llvm")
