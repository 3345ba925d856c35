from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from dotcu.inspection.code.inspected import Counted, InspectedKernel
from dotcu.inspection.code.listing import Panes, share, style_of
from dotcu.inspection.code.places import Place
from dotcu.simulator import Line
from inspecting import everything, inspected, line_of, needs_nvdisasm


def printed(kernel: InspectedKernel, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(Panes(kernel))
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
    place = Place("inline.cu", line_of("copy_vectors"))
    counted = Counted(call="a call", total=Line(), lines={place: Line(lane_instructions=123_456)})
    lines = printed(replace(kernel, counted=counted), 200)
    assert lines[1].split()[:2] == ["line", "lanes"]
    assert any("123,456" in line for line in lines)


def test_without_a_disassembler_there_are_two_panes() -> None:
    lines = printed(everything("sm_90a", with_sass=False)["copy_vectors"], 200)
    assert lines[1].split() == ["line", "source", "PTX"]


def test_a_kernel_without_lines_is_listed_all_the_same() -> None:
    kernel = everything("sm_90a", with_sass=False)["divide"]
    bare = "\n".join(line for line in kernel.code.text.split("\n") if ".loc" not in line)
    lines = printed(InspectedKernel(code=replace(kernel.code, text=bare)), 200)
    assert any("div.s32" in line for line in lines)


@needs_nvdisasm
def test_slow_memory_stands_out() -> None:
    function = everything("sm_90a")["spill"].function
    assert function is not None
    styles = {i.opcode: style_of(i) for i in function.instructions}
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
