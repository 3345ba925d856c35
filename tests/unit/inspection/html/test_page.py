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
from typing import Any, cast

import pytest

import dotcu
from dotcu.compile import Target
from dotcu.inspection.build import FailedBuild
from dotcu.inspection.page import METRICS, encode, page_of, render
from dotcu.inspection.report import InspectedKernel, InspectReport, SimulatedCounts
from dotcu.simulator import LineCounters
from dotcu.tile_ir.module import SourceLocation
from helpers.html_reports import page_with, scale
from helpers.inspected_kernels import needs_nvdisasm

SOURCE = """
__device__ int parts(int x, int by) { return x / by; }

__global__ void divide(int* x, int by) {
    if (threadIdx.x > 3)
        x[threadIdx.x] = parts(x[threadIdx.x], by);
}
"""
FUNCTION, STORE = 2, 6
TEXT, LABEL, PLACES, CONTROL = range(4)
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


def page(one: InspectedKernel | None = None) -> dict[str, Any]:
    """The data of the page of one kernel, as the script reads it."""
    data: dict[str, Any] = json.loads(encode(page_of(replace(report(), kernels=(one or kernel(),)))))
    return data


def pane(one: InspectedKernel | None = None) -> dict[str, Any]:
    (shown,) = page(one)["kernels"]
    return cast("dict[str, Any]", shown)


def facts(one: InspectedKernel | None = None) -> dict[str, list[str]]:
    """Value, note and tone of each fact by its name."""
    return {name: rest for name, *rest in pane(one)["facts"]}


def test_kernel_is_named_with_its_architecture() -> None:
    assert (pane()["name"], pane()["arch"]) == ("divide", "sm_90")


def test_source_is_there_line_by_line() -> None:
    (file,) = page()["files"]
    assert page()["names"][file["name"]].endswith(FILE)
    assert file["lines"] == [[number, line] for number, line in enumerate(SOURCE.splitlines(), 1)]


def test_ptx_stands_at_its_source_line_and_is_without_the_directives_that_say_so() -> None:
    (store,) = [line for line in pane()["ptx"] if "st.global" in line[TEXT]]
    assert store[PLACES] == [f"0:{STORE}"]
    assert not any(".loc" in line[TEXT] for line in pane()["ptx"])


def test_inlined_code_stands_at_the_function_and_at_its_call() -> None:
    (division,) = [line for line in pane()["ptx"] if "div.s32" in line[TEXT]]
    assert division[PLACES] == [f"0:{FUNCTION}", f"0:{STORE}"]


@needs_nvdisasm
def test_instructions_have_address_place_and_control_and_their_guard_in_a_column() -> None:
    rows = [row for row in pane()["sass"] if row[LABEL]]
    store = next(row for row in rows if "STG" in row[TEXT])
    exits = next(row for row in rows if "EXIT" in row[TEXT])
    assert store[PLACES][-1] == f"0:{STORE}"
    assert store[CONTROL]
    assert rows[0][LABEL] == "0000"
    assert exits[TEXT].startswith("@")
    assert exits[TEXT].index("EXIT") == 6
    assert rows[0][TEXT][:6].isspace()


@needs_nvdisasm
def test_remarks_are_notes_that_lead_to_their_line() -> None:
    (place,) = [place for text, place, _ in pane()["notes"] if "div.s32" in text]
    assert place == f"0:{FUNCTION}"


def test_facts_say_what_the_kernel_takes() -> None:
    taken = kernel().code.resources
    assert taken is not None
    assert facts()["registers"][0] == str(taken.registers)
    assert facts()["spilled"] == ["0 B", "", "good"]


def test_spills_are_marked() -> None:
    one = kernel()
    assert one.code.resources is not None
    taken = replace(one.code.resources, spill_store_bytes=8, spill_load_bytes=4, stack_bytes=16)
    spilling = facts(replace(one, code=replace(one.code, resources=taken)))
    assert spilling["spilled"] == ["12 B", "", "bad"]
    assert spilling["stack"][-1] == "warn"


def test_occupancy_is_a_fact_with_its_limit_and_the_next_step() -> None:
    value, note, tone = facts()["occupancy, block=256, smem_bytes=40000"]
    assert value == "5 blocks, 62%"
    assert note.startswith("limited by shared memory; with at most 37888 B of shared memory")
    assert tone == "good"


@pytest.mark.parametrize(("blocks", "warps", "tone"), [(0, 0, "bad"), (1, 8, "warn"), (8, 64, "good")])
def test_occupancy_is_coloured_by_how_much_it_is(blocks: int, warps: int, tone: str) -> None:
    occupancy = replace(kernel().occupancy[0], blocks=blocks, warps=warps)
    shown = facts(replace(kernel(), occupancy=(occupancy,)))
    assert shown[f"occupancy, {occupancy.shape}"][-1] == tone


def test_counts_of_the_simulator_are_metrics_by_line() -> None:
    one = kernel()
    counts = SimulatedCounts(
        call="sample 0", total=LineCounters(), lines={SourceLocation(one.code.file, STORE): LINE}
    )
    counted = replace(one, counts=counts)
    assert {metric["name"]: metric["counts"] for metric in pane(counted)["metrics"]} == {
        "thread instructions": {f"0:{STORE}": 640},
        "global sectors": {f"0:{STORE}": 8},
    }
    assert facts(counted)["counted in"][0] == "sample 0"


def test_every_metric_is_a_counter_of_the_simulator() -> None:
    assert [counter for counter, _ in METRICS.values() if not hasattr(LINE, counter)] == []


def test_without_a_disassembler_the_pane_says_what_to_type() -> None:
    shown = pane(replace(kernel(), function=None))
    assert shown["sass"] == []
    assert "pip install 'dotcu[tools]'" in shown["missing"]["sass"]


def test_what_failed_has_a_pane_with_its_message() -> None:
    failed = FailedBuild(arch=Target.parse("sm_80"), names=("divide",), message="divide.cu:1: error")
    both = page_of(replace(report(), failed=(failed,)))["kernels"]
    assert [(one["name"], one["arch"], one["failure"]) for one in both] == [
        ("divide", "sm_90", ""),
        ("divide", "sm_80", "divide.cu:1: error"),
    ]
    assert both[0].keys() == both[1].keys()


def test_notes_of_the_report_stand_on_the_page() -> None:
    assert page_of(replace(report(), notes=("no sample ran",)))["rows"] == [("note", "no sample ran")]


def test_files_that_kernels_share_are_written_once() -> None:
    data = page_of(replace(report(), kernels=(kernel(), kernel())))
    assert len(data["files"]) == 1
    assert [one["files"] for one in data["kernels"]] == [[0], [0]]


def test_files_of_one_name_and_other_text_stay_apart() -> None:
    one = kernel()
    other = replace(one, code=replace(one.code, texts=dict.fromkeys(one.code.texts, "int x;")))
    data = page_of(replace(report(), kernels=(one, other)))
    assert [one["files"] for one in data["kernels"]] == [[0], [1]]
    assert data["files"][1] == {"name": 0, "lines": [(1, "int x;")]}


def test_a_source_cannot_turn_its_own_text_around() -> None:
    encoded = encode(page_with(title="k", lines=[(1, "if (a) /*\u202e\u2066 } */")]))
    assert "\u202e" not in encoded
    assert r"/*\\u202e\\u2066 } */" in encoded


@pytest.mark.parametrize("text", ["</script>", "<!--<script>", "&amp;", "\u2028", 'a"\\b\t\x00', "×µ", "𝄞"])
def test_text_comes_back_as_it_was_and_means_nothing_to_html(text: str) -> None:
    encoded = encode(page_with(title=text, lines=[(1, text)]))
    assert json.loads(encoded)["title"] == text
    assert json.loads(encoded)["files"][0]["lines"] == [[1, text]]
    assert not set("<>&\u2028") & set(encoded)


def test_file_name_that_is_no_utf8_can_still_be_written() -> None:
    name = b"k\xff.cu".decode("utf-8", "surrogateescape")
    encoded = encode(page_with(title=name))
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
    hostile = scale(name=evil, failure=evil, missing={"ptx": evil})
    text = render(page_with(hostile, title=evil, lines=[(1, evil)], file=evil), {evil: (evil,)})
    assert evil not in text
    assert len(re.findall("<script", text)) == len(re.findall("<script", render(page_with())))


def test_slot_in_a_kernels_text_is_not_filled() -> None:
    text = render(page_with(lines=[(1, "{{script}} {{title}}")]))
    assert "{{script}} {{title}}" in text


def test_every_slot_of_the_template_is_filled() -> None:
    assert "{{" not in render(page_with())
