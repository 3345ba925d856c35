from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from dotcu.inspection.code.listing import panes, ptx_by_line, sass_by_line, share, style_of
from dotcu.inspection.code.ptx import PtxLine
from dotcu.inspection.code.report import InspectedKernel, SimulatedCounts
from dotcu.inspection.code.sass import SassInstruction
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
    (start,) = [i for i, line in enumerate(lines) if "of no line of this file" in line]
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
    assert lines[1].split()[:2] == ["line", "lanes"]
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
