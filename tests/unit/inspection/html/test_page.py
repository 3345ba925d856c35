"""A report as a page: the panes of a kernel, their JSON, and the file as a whole."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import dotcu
from dotcu.compile import Target
from dotcu.inspection.code.build import FailedBuild
from dotcu.inspection.code.ptx import SourceLocation
from dotcu.inspection.code.report import InspectedKernel, InspectReport, SimulatedCounts
from dotcu.inspection.html.page import METRICS, Fact, KernelPane, Page, encode, page_of, render
from dotcu.simulator import LineCounters
from html_pages import numbered, page_with, scale
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
LINE = LineCounters(lane_instructions=640, global_sectors=8)


@cache
def report() -> InspectReport:
    with TemporaryDirectory() as folder:
        file = Path(folder) / FILE
        file.write_text(SOURCE)
        return dotcu.inspect(file, arch="sm_90", block=256, smem_bytes=40000)


def kernel() -> InspectedKernel:
    return report().kernels[0]


def pane(one: InspectedKernel | None = None) -> KernelPane:
    (found,) = page_of(replace(report(), kernels=(one or kernel(),))).kernels
    return found


def facts(one: InspectedKernel | None = None) -> dict[str, Fact]:
    return {fact.name: fact for fact in pane(one).facts}


def test_kernel_is_named_with_its_architecture() -> None:
    assert (pane().name, pane().arch) == ("divide", "sm_90")


def test_source_is_there_line_by_line() -> None:
    ((name, lines),) = pane().source.items()
    assert name.endswith(FILE)
    assert lines == tuple(enumerate(SOURCE.splitlines(), 1))


def test_ptx_stands_at_its_source_line_and_is_without_the_directives_that_say_so() -> None:
    (file,) = pane().source
    (store,) = [line for line in pane().ptx if "st.global" in line.text]
    assert store.chain == ((file, STORE),)
    assert not any(".loc" in line.text for line in pane().ptx)


def test_inlined_code_stands_at_the_function_and_at_its_call() -> None:
    (file,) = pane().source
    (division,) = [line for line in pane().ptx if "div.s32" in line.text]
    assert division.chain == ((file, FUNCTION), (file, STORE))


@needs_nvdisasm
def test_instructions_have_address_place_and_control_and_their_guard_in_a_column() -> None:
    rows = [row for row in pane().sass if row.label]
    store = next(row for row in rows if "STG" in row.text)
    exits = next(row for row in rows if "EXIT" in row.text)
    assert store.chain[-1][1] == STORE
    assert store.control
    assert rows[0].label == "0000"
    assert exits.text.startswith("@")
    assert exits.text.index("EXIT") == 6
    assert rows[0].text[:6].isspace()


@needs_nvdisasm
def test_remarks_are_notes_that_lead_to_their_line() -> None:
    (file,) = pane().source
    (note,) = [note for note in pane().notes if "div.s32" in note.text]
    assert note.location == (file, FUNCTION)


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
    occupancy = replace(kernel().occupancy[0], blocks=blocks, warps=warps)
    found = facts(replace(kernel(), occupancy=(occupancy,)))
    assert found[f"occupancy, {occupancy.shape}"].tone == tone


def test_counts_of_the_simulator_are_metrics_by_line() -> None:
    (file,) = pane().source
    one = kernel()
    counts = SimulatedCounts(
        call="sample 0", total=LineCounters(), lines={SourceLocation(one.code.file, STORE): LINE}
    )
    found = pane(replace(one, counts=counts))
    assert {name: dict(some) for name, (_, some) in found.metrics.items()} == {
        "lane instructions": {(file, STORE): 640},
        "global sectors": {(file, STORE): 8},
    }
    assert {fact.name: fact.value for fact in found.facts}["counted in"] == "sample 0"


def test_every_metric_is_a_counter_of_the_simulator() -> None:
    assert [counter for counter, _ in METRICS.values() if not hasattr(LINE, counter)] == []


def test_without_a_disassembler_the_pane_says_what_to_type() -> None:
    found = pane(replace(kernel(), function=None))
    assert found.sass == ()
    assert "pip install 'dotcu[tools]'" in found.missing["sass"]


def test_what_failed_has_a_pane_with_its_message() -> None:
    failed = FailedBuild(arch=Target.parse("sm_80"), names=("divide",), message="divide.cu:1: error")
    found = page_of(replace(report(), failed=(failed,)))
    assert [(one.name, one.arch, one.failure) for one in found.kernels] == [
        ("divide", "sm_90", ""),
        ("divide", "sm_80", "divide.cu:1: error"),
    ]


def test_notes_of_the_report_stand_on_the_page() -> None:
    found: Page = page_of(replace(report(), notes=("no sample ran",)))
    assert found.rows == (("note", "no sample ran"),)


def test_files_that_kernels_share_are_written_once() -> None:
    page = Page(title="t", kernels=(scale("sm_80"), scale("sm_90")))
    data = json.loads(encode(page))
    assert len(data["files"]) == 1
    assert [kernel["files"] for kernel in data["kernels"]] == [[0], [0]]


def test_files_of_one_name_and_other_text_stay_apart() -> None:
    other = scale("sm_80", source={"scale.cu": numbered("int x;")})
    data = json.loads(encode(Page(title="t", kernels=(scale(), other))))
    assert [kernel["files"] for kernel in data["kernels"]] == [[0], [1]]
    assert data["files"][1] == {"name": 0, "lines": [[1, "int x;"]]}


def test_location_names_its_file_by_number() -> None:
    data = json.loads(encode(Page(title="t", kernels=(scale(),))))
    (kernel,) = data["kernels"]
    assert data["names"] == ["scale.cu"]
    assert kernel["sass"][2] == ["FADD R5, R0, R0", "0010", ["0:2", "0:4"], ""]
    assert kernel["metrics"][0]["counts"] == {"0:2": 32, "0:4": 12800}


@pytest.mark.parametrize("text", ["</script>", "<!--<script>", "&amp;", "\u2028", 'a"\\b\t\x00', "×µ", "𝄞"])
def test_text_comes_back_as_it_was_and_means_nothing_to_html(text: str) -> None:
    encoded = encode(Page(title=text, kernels=(scale(source={"scale.cu": numbered(text)}),)))
    assert json.loads(encoded)["title"] == text
    assert json.loads(encoded)["files"][0]["lines"] == [[1, text]]
    assert not set("<>&\u2028") & set(encoded)


def test_file_name_that_is_no_utf8_can_still_be_written() -> None:
    name = b"k\xff.cu".decode("utf-8", "surrogateescape")
    encoded = encode(Page(title=name, kernels=(scale(),)))
    assert json.loads(encoded.encode("utf-8"))["title"] == "k?.cu"


def test_page_loads_nothing() -> None:
    text = render(page_with())
    assert "default-src 'none'" in text
    assert not re.search(
        r"https?://|<link(?! rel=\"icon\" href=\"data:,\")|\bsrc=|@import|url\(|\bfetch\(", text
    )


def test_policy_allows_the_one_script_that_is_there() -> None:
    text = render(page_with())
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert re.findall(r"(\S+) 'unsafe-inline'", text) == ["style-src"]


def test_no_text_of_a_page_can_open_or_end_an_element() -> None:
    evil = "</script></title><script>x</script><img src=x onerror=x>"
    hostile = scale(name=evil, source={evil: numbered(evil)}, failure=evil, missing={"ptx": evil})
    text = render(page_with(hostile, title=evil))
    assert evil not in text
    assert len(re.findall("<script", text)) == len(re.findall("<script", render(page_with())))


def test_slot_in_a_kernels_text_is_not_filled() -> None:
    text = render(page_with(scale(source={"scale.cu": numbered("{{script}} {{title}}")})))
    assert "{{script}} {{title}}" in text


def test_every_slot_of_the_template_is_filled() -> None:
    assert "{{" not in render(page_with())


def test_page_without_kernels_is_refused() -> None:
    with pytest.raises(ValueError, match="got none, for 'nothing'"):
        render(Page(title="nothing", kernels=()))
