from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dotcu.compile import Target
from dotcu.inspection.code.build import FailedBuild, LaunchShape
from dotcu.inspection.code.report import (
    InspectedKernel,
    InspectReport,
    SimulatedCounts,
    UninstantiatedTemplate,
    kernel_occupancy,
)
from dotcu.simulator import Counters, LineCounters
from dotcu.tile_ir.module import SourceLocation
from helpers.inspected_kernels import everything, line_of, needs_nvdisasm


def kernel(name: str, *shapes: LaunchShape, with_sass: bool = True) -> InspectedKernel:
    one = everything("sm_90a", with_sass=with_sass)[name]
    code = replace(one.code, shapes=shapes)
    return InspectedKernel(code=code, function=one.function, occupancy=kernel_occupancy(code))


def text(*kernels: InspectedKernel, **fields: object) -> str:
    return str(InspectReport(target="k.cu", kernels=kernels, **fields))  # type: ignore[arg-type]


@needs_nvdisasm
def test_a_kernel_is_reported_with_its_place_resources_and_instructions() -> None:
    shown = text(kernel("divide", LaunchShape(block=(256, 1, 1)))).splitlines()
    assert shown[0] == f"divide  sm_90a  inline.cu:{line_of(' divide(')}"
    assert shown[1].startswith("  resources  ")
    assert "registers, no static shared memory, 0 barriers, no spills, no stack; " in shown[1]
    assert shown[1].endswith(" instructions")


def test_occupancy_is_reported_with_its_limit_and_what_would_let_more_in() -> None:
    shown = text(kernel("spill", LaunchShape(block=(96, 1, 1), smem_bytes=30_000)))
    assert "block=96, smem_bytes=30000: 7 blocks a multiprocessor, 21 of 64 warps (33%)" in shown
    assert "limited by shared memory" in shown
    assert "with at most 28160 B of shared memory, 1840 fewer: 8 blocks, 24 warps" in shown


def test_a_shape_that_no_one_launched_is_reported_to_be_assumed() -> None:
    assert "(assumed: no launch is known)" in text(kernel("divide"))
    assert "assumed" not in text(kernel("divide", LaunchShape(block=(256, 1, 1))))


def test_a_shape_that_cannot_be_launched_is_reported_to_be_none() -> None:
    shown = text(kernel("divide", LaunchShape(block=(32, 1, 1), smem_bytes=300_000)))
    assert "no launch can have this shape, because of shared memory" in shown


def test_of_clusters_occupancy_claims_nothing() -> None:
    shown = text(kernel("divide", LaunchShape(block=(32, 1, 1), cluster=(2, 1, 1))))
    assert "the cluster is not considered" in shown


@needs_nvdisasm
def test_kinds_of_instructions_are_listed_under_their_group() -> None:
    shown = text(kernel("copy_vectors"))
    assert "  emitted    global memory     1 x load, 16 B a lane  line " in shown
    assert "                               1 x store, 16 B a lane  line " in shown


@needs_nvdisasm
def test_remarks_stand_at_their_line() -> None:
    shown = text(kernel("divide"))
    assert f"  look at    line {line_of('    y[0] = a / b;')}: div.s32 by a value" in shown


def test_without_a_disassembler_the_report_says_that_it_reports_ptx() -> None:
    shown = text(kernel("copy_vectors", with_sass=False))
    assert "  PTX has    global memory" in shown
    assert "emitted" not in shown


def test_dynamic_shared_memory_is_reported_to_be_taken() -> None:
    assert "and dynamic shared memory as it is launched with" in text(kernel("dynamic"))
    assert "dynamic" not in text(kernel("generic"))


def test_what_was_counted_is_reported_with_its_call() -> None:
    counted = SimulatedCounts(
        call="m::op, float32, sample 2", total=Counters(lane_instructions=140_672), lines={}
    )
    shown = text(replace(kernel("divide"), counts=counted))
    assert "140,672 lane instructions of PTX" in shown
    assert "m::op, float32, sample 2, in the simulator" in shown


def test_failures_templates_and_notes_are_reported() -> None:
    shown = text(
        failed=(FailedBuild(arch=Target.parse("sm_80"), names=("k",), message="why\nnot"),),
        templates=(
            UninstantiatedTemplate(
                name="scale", declaration="template <typename T> scale", example="scale[float32]"
            ),
        ),
        notes=("a note",),
    )
    assert "sm_80 (k) could not be compiled:\n  why\n  not" in shown
    assert (
        "template <typename T> scale: no instantiation is known; type: --instantiate 'scale[float32]'"
        in shown
    )
    assert shown.endswith("note: a note")


def test_a_target_without_kernels_says_so() -> None:
    assert text() == "k.cu has no kernels."


def test_no_line_of_a_report_is_folded() -> None:
    failure = FailedBuild(arch=Target.parse("sm_80"), names=(), message="long " * 500)
    assert "long " * 499 in text(failed=(failure,))


@needs_nvdisasm
def test_the_report_is_plain_values_too() -> None:
    place = SourceLocation("inline.cu", 5)
    counted = SimulatedCounts(
        call="a call", total=Counters(), lines={place: LineCounters(lane_instructions=3)}
    )
    one = replace(kernel("divide", LaunchShape(block=(256, 1, 1))), counts=counted)
    shown = json.loads(json.dumps(InspectReport(target="k.cu", kernels=(one,)).to_json()))
    assert shown["version"] == 2
    (found,) = shown["kernels"]
    assert (found["name"], found["arch"], found["level"]) == ("divide", "sm_90a", "SASS")
    assert found["location"] == {"file": "inline.cu", "line": line_of(" divide(")}
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
