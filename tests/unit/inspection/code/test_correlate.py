from __future__ import annotations

import pytest

from dotcu.inspection.code.correlate import Correlation, correlate
from dotcu.inspection.code.places import Place
from dotcu.inspection.code.ptx import PtxLine
from dotcu.inspection.code.sass import Instruction
from dotcu.simulator import Line
from inspecting import everything, line_of, needs_nvdisasm

HOME = "k.cu"


def ptx(number: int, text: str, *chain: Place) -> PtxLine:
    return PtxLine(number=number, text=text, chain=chain, statements=(text,) if chain else ())


def sass(address: int, *chain: Place) -> Instruction:
    return Instruction(
        address=address, text="", predicate="", opcode="NOP", modifiers=(), operands=(),
        line=chain[0] if chain else None, inlined_at=chain[1:],
    )  # fmt: skip


@pytest.fixture(scope="module")
def found() -> Correlation:
    header = Place("h.cuh", 9)
    lines = [
        ptx(20, "k("),
        ptx(21, "ld", Place(HOME, 1)),
        ptx(22, "$L__BB0_1:"),
        ptx(23, "add", header, Place(HOME, 2)),
        ptx(24, "st"),
    ]
    made = [sass(0, Place(HOME, 1)), sass(16, header, Place(HOME, 2)), sass(32)]
    counts = {Place(HOME, 2): Line(lane_instructions=7)}
    return correlate({HOME: "one\ntwo\nthree\n"}, lines, made, counts)


def test_lines_of_the_source_know_theirs(found: Correlation) -> None:
    assert found.file == HOME
    assert [(row.number, row.text, row.ptx, row.sass) for row in found.source] == [
        (1, "one", (21,), (0,)), (2, "two", (22, 23), (16,)), (3, "three", (), ()),
    ]  # fmt: skip


def test_counts_stand_at_their_line_alone(found: Correlation) -> None:
    assert [row.counts.lane_instructions if row.counts else None for row in found.source] == [None, 7, None]


def test_a_headers_code_stands_beside_the_call_and_keeps_its_place(found: Correlation) -> None:
    row = found.ptx[3]
    assert (row.source_line, row.place) == (2, Place("h.cuh", 9))


def test_a_label_belongs_where_the_instruction_behind_it_does(found: Correlation) -> None:
    assert found.ptx[2].source_line == 2


def test_what_has_no_line_stands_beside_none(found: Correlation) -> None:
    assert found.ptx[0].source_line == found.ptx[4].source_line == 0
    assert found.sass[2].source_line == 0


def test_a_source_that_is_not_there_has_no_rows() -> None:
    assert correlate({}, [ptx(1, "ld", Place(HOME, 1))], []).source == ()


@needs_nvdisasm
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_an_access_stands_at_one_line_in_all_three_panes(arch: str) -> None:
    kernel = everything(arch)["local_array"]
    line = line_of("y[0] = sum;")
    panes = kernel.correlation
    (row,) = [row for row in panes.source if row.number == line]
    assert any("st.global" in each.text for each in panes.ptx if each.number in row.ptx)
    stores = [each.instruction for each in panes.sass if each.instruction.address in row.sass]
    assert any(instruction.opcode == "STG" for instruction in stores)


@needs_nvdisasm
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
def test_machine_code_names_the_line_of_ptx_that_it_was_made_of(arch: str) -> None:
    kernel = everything(arch)["copy_vectors"]
    texts = {row.number: row.text for row in kernel.correlation.ptx}
    assert kernel.function is not None
    (load,) = [i for i in kernel.function.instructions if i.opcode == "LDG"]
    assert "ld.global" in texts[load.ptx_line]
