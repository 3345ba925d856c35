"""A report as a page: what of a kernel comes into its panes, and that the places in them agree."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import dotcu
from dotcu.compile import Target
from dotcu.inspection.code.inspected import Counted, InspectedKernel
from dotcu.inspection.code.places import Place
from dotcu.inspection.code.report import InspectReport
from dotcu.inspection.code.units import Failed
from dotcu.inspection.html import Fact, KernelPane, Page
from dotcu.inspection.html.filling import METRICS, page
from dotcu.simulator import Line
from inspecting import needs_nvdisasm

SOURCE = """
__device__ int parts(int x, int by) { return x / by; }

__global__ void divide(int* x, int by) {
    if (threadIdx.x > 3)
        x[threadIdx.x] = parts(x[threadIdx.x], by);
}
"""
FUNCTION, STORE = 2, 6
FILE = "divide.cu"
LINE = Line(lane_instructions=640, global_sectors=8)


@cache
def report() -> InspectReport:
    with TemporaryDirectory() as folder:
        file = Path(folder) / FILE
        file.write_text(SOURCE)
        return dotcu.inspect(file, arch="sm_90", block=256, smem_bytes=40000)


def kernel() -> InspectedKernel:
    return report().kernels[0]


def pane(one: InspectedKernel | None = None) -> KernelPane:
    (found,) = page(replace(report(), kernels=(one or kernel(),))).kernels
    return found


def facts(one: InspectedKernel | None = None) -> dict[str, Fact]:
    return {fact.name: fact for fact in pane(one).facts}


def test_kernel_is_named_with_its_architecture() -> None:
    assert (pane().name, pane().arch) == ("divide", "sm_90")


def test_source_is_there_line_by_line() -> None:
    (source,) = pane().source
    assert source.name.endswith(FILE)
    assert [line.text for line in source.lines] == SOURCE.splitlines()
    assert [line.number for line in source.lines] == list(range(1, len(source.lines) + 1))


def test_ptx_stands_at_its_source_line_and_is_without_the_directives_that_say_so() -> None:
    (source,) = pane().source
    (store,) = [line for line in pane().ptx if "st.global" in line.text]
    assert store.places == ((source.name, STORE),)
    assert not any(".loc" in line.text for line in pane().ptx)


def test_inlined_code_stands_at_the_function_and_at_its_call() -> None:
    (source,) = pane().source
    (division,) = [line for line in pane().ptx if "div.s32" in line.text]
    assert division.places == ((source.name, FUNCTION), (source.name, STORE))


@needs_nvdisasm
def test_instructions_have_address_place_and_control_and_their_guard_in_a_column() -> None:
    rows = [row for row in pane().sass if row.label]
    store = next(row for row in rows if "STG" in row.text)
    exits = next(row for row in rows if "EXIT" in row.text)
    assert store.places[-1][1] == STORE
    assert store.control
    assert rows[0].label == "0000"
    assert exits.text.startswith("@")
    assert exits.text.index("EXIT") == 6
    assert rows[0].text[:6].isspace()


@needs_nvdisasm
def test_remarks_are_notes_that_lead_to_their_line() -> None:
    (source,) = pane().source
    (note,) = [note for note in pane().notes if "div.s32" in note.text]
    assert note.place == (source.name, FUNCTION)


def test_facts_say_what_the_kernel_takes() -> None:
    taken = kernel().code.resources
    assert taken is not None
    assert facts()["registers"].value == str(taken.registers)
    assert (facts()["spilled"].value, facts()["spilled"].tone) == ("0 B", "good")


def test_spills_are_marked() -> None:
    one = kernel()
    assert one.code.resources is not None
    taken = replace(one.code.resources, spill_store_bytes=8, spill_load_bytes=4, stack_bytes=16)
    spilling = facts(replace(one, code=replace(one.code, resources=taken)))
    assert (spilling["spilled"].value, spilling["spilled"].tone) == ("12 B", "bad")
    assert spilling["stack"].tone == "warn"


def test_occupancy_is_a_fact_with_its_limit_and_the_next_step() -> None:
    fact = facts()["occupancy, block=256, smem_bytes=40000"]
    assert fact.value == "5 blocks, 62%"
    assert fact.note.startswith("limited by shared memory; with at most 37888 B of shared memory")
    assert fact.tone == "good"


@pytest.mark.parametrize(("blocks", "warps", "tone"), [(0, 0, "bad"), (1, 8, "warn"), (8, 64, "good")])
def test_occupancy_is_coloured_by_how_much_it_is(blocks: int, warps: int, tone: str) -> None:
    held = replace(kernel().held[0], blocks=blocks, warps=warps)
    found = facts(replace(kernel(), held=(held,)))
    assert found[f"occupancy, {held.shape}"].tone == tone


def test_counts_of_the_simulator_are_metrics_by_line() -> None:
    (source,) = pane().source
    one = kernel()
    counted = Counted(call="sample 0", total=Line(), lines={Place(one.code.home, STORE): LINE})
    found = pane(replace(one, counted=counted))
    assert {metric.name: dict(metric.counts) for metric in found.metrics} == {
        "lane instructions": {(source.name, STORE): 640},
        "global sectors": {(source.name, STORE): 8},
    }
    assert {fact.name: fact.value for fact in found.facts}["counted in"] == "sample 0"


def test_every_metric_is_a_counter_of_the_simulator() -> None:
    assert [counter for counter, _ in METRICS.values() if not hasattr(LINE, counter)] == []


def test_without_a_disassembler_the_pane_says_what_to_type() -> None:
    found = pane(replace(kernel(), function=None))
    assert found.sass == ()
    assert "pip install 'dotcu[tools]'" in found.missing["sass"]


def test_what_failed_has_a_pane_with_its_message() -> None:
    failed = Failed(arch=Target.parse("sm_80"), names=("divide",), message="divide.cu:1: error")
    found = page(replace(report(), failed=(failed,)))
    assert [(one.name, one.arch, one.failure) for one in found.kernels] == [
        ("divide", "sm_90", ""),
        ("divide", "sm_80", "divide.cu:1: error"),
    ]


def test_notes_of_the_report_stand_on_the_page() -> None:
    found: Page = page(replace(report(), notes=("no sample ran",)))
    assert found.rows == (("note", "no sample ran"),)
