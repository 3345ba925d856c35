from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dotcu.compile import Target
from dotcu.inspection.code.inspected import Counted, InspectedKernel, inspected
from dotcu.inspection.code.places import Place
from dotcu.inspection.code.report import InspectReport
from dotcu.inspection.code.units import Failed, Shape, Template
from dotcu.simulator import Counters, Line
from inspecting import everything, line_of, needs_nvdisasm


def kernel(name: str, *shapes: Shape, with_sass: bool = True) -> InspectedKernel:
    one = everything("sm_90a", with_sass=with_sass)[name]
    return inspected(replace(one.code, shapes=shapes), one.function, None, None)


def text(*kernels: InspectedKernel, **fields: object) -> str:
    return str(InspectReport(target="k.cu", kernels=kernels, **fields))  # type: ignore[arg-type]


@needs_nvdisasm
def test_a_kernel_is_told_with_its_place_resources_and_instructions() -> None:
    told = text(kernel("divide", Shape(block=(256, 1, 1)))).splitlines()
    assert told[0] == f"divide  sm_90a  inline.cu:{line_of(' divide(')}"
    assert told[1].startswith("  resources  ")
    assert "registers, no static shared memory, 0 barriers, no spills, no stack; " in told[1]
    assert told[1].endswith(" instructions")


def test_occupancy_is_told_with_its_limit_and_what_would_let_more_in() -> None:
    told = text(kernel("spill", Shape(block=(96, 1, 1), smem_bytes=30_000)))
    assert "block=96, smem_bytes=30000: 7 blocks a multiprocessor, 21 of 64 warps (33%)" in told
    assert "limited by shared memory" in told
    assert "with at most 28160 B of shared memory, 1840 fewer: 8 blocks, 24 warps" in told


def test_a_shape_that_nobody_launched_is_said_to_be_assumed() -> None:
    assert "(assumed: no launch is known)" in text(kernel("divide"))
    assert "assumed" not in text(kernel("divide", Shape(block=(256, 1, 1))))


def test_a_shape_that_cannot_be_launched_is_said_to_be_none() -> None:
    told = text(kernel("divide", Shape(block=(32, 1, 1), smem_bytes=300_000)))
    assert "no launch can have it, because of shared memory" in told


def test_of_clusters_occupancy_claims_nothing() -> None:
    told = text(kernel("divide", Shape(block=(32, 1, 1), cluster=(2, 1, 1))))
    assert "of clusters nothing is told" in told


@needs_nvdisasm
def test_kinds_of_instructions_are_listed_under_their_group() -> None:
    told = text(kernel("copy_vectors"))
    assert "  emitted    global memory     1 x load, 16 B a lane  line " in told
    assert "                               1 x store, 16 B a lane  line " in told


@needs_nvdisasm
def test_remarks_stand_at_their_line() -> None:
    told = text(kernel("divide"))
    assert f"  look at    line {line_of('    y[0] = a / b;')}: div.s32 by a value" in told


def test_without_a_disassembler_the_report_says_that_it_tells_of_ptx() -> None:
    told = text(kernel("copy_vectors", with_sass=False))
    assert "  PTX has    global memory" in told
    assert "emitted" not in told


def test_dynamic_shared_memory_is_said_to_be_taken() -> None:
    assert "and dynamic shared memory as it is launched with" in text(kernel("dynamic"))
    assert "dynamic" not in text(kernel("generic"))


def test_what_was_counted_is_told_with_its_call() -> None:
    counted = Counted(call="m::op, float32, sample 2", total=Counters(lane_instructions=140_672), lines={})
    told = text(replace(kernel("divide"), counted=counted))
    assert "140,672 lane instructions of PTX" in told
    assert "m::op, float32, sample 2, in the simulator" in told


def test_failures_templates_and_notes_are_told() -> None:
    told = text(
        failed=(Failed(arch=Target.parse("sm_80"), names=("k",), message="why\nnot"),),
        templates=(Template(name="scale", head="template <typename T> scale", example="scale[float32]"),),
        notes=("a note",),
    )
    assert "sm_80 (k) could not be compiled:\n  why\n  not" in told
    assert (
        "template <typename T> scale: no instantiation is known; type: --instantiate 'scale[float32]'" in told
    )
    assert told.endswith("note: a note")


def test_a_target_without_kernels_says_so() -> None:
    assert text() == "k.cu has no kernels."


def test_no_line_of_a_report_is_folded() -> None:
    failure = Failed(arch=Target.parse("sm_80"), names=(), message="long " * 500)
    assert "long " * 499 in text(failed=(failure,))


@needs_nvdisasm
def test_the_report_is_plain_values_too() -> None:
    place = Place("inline.cu", 5)
    counted = Counted(call="a call", total=Counters(), lines={place: Line(lane_instructions=3)})
    one = replace(kernel("divide", Shape(block=(256, 1, 1))), counted=counted)
    told = json.loads(json.dumps(InspectReport(target="k.cu", kernels=(one,)).to_json()))
    assert told["version"] == 1
    (found,) = told["kernels"]
    assert (found["name"], found["arch"], found["level"]) == ("divide", "sm_90a", "SASS")
    assert found["place"] == {"file": "inline.cu", "line": line_of(" divide(")}
    assert found["resources"]["registers"] == one.code.resources.registers  # type: ignore[union-attr]
    assert found["occupancy"][0]["block"] == [256, 1, 1]
    assert {each["group"] for each in found["emitted"]} >= {"global memory"}
    assert found["remarks"][0]["kind"] == "integer division"
    assert found["counts"]["lines"] == [{"file": "inline.cu", "line": 5, **found["counts"]["lines"][0]}]


@pytest.mark.parametrize("arch", [None, "sm_90a"])
def test_a_kernel_is_found_by_name_and_architecture(arch: str | None) -> None:
    report = InspectReport(target="k.cu", kernels=(kernel("divide"), kernel("spill")))
    assert report.kernel("spill", arch).code.name == "spill"
    with pytest.raises(KeyError):
        report.kernel("spill", "sm_80")
