from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from dotcu.compile import Declaration, Resources, Target
from dotcu.inspection.build import FailedBuild, KernelCode, LaunchShape
from dotcu.inspection.report import (
    ASSUMED,
    BOUND,
    SEEN,
    InspectedKernel,
    InspectReport,
    KernelOccupancy,
    SimulatedCounts,
    kernel_occupancy,
    occupancy_lines,
)
from dotcu.kernel.config import LIMITS, occupancy
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
    assert "block=96, smem_bytes=30000: 7 blocks per multiprocessor, 21 of 64 warps (33%)" in shown
    assert "limited by shared memory" in shown
    assert "with at most 28160 B of shared memory, 1840 fewer: 8 blocks, 24 warps" in shown


def test_a_shape_that_no_one_launched_is_reported_to_be_assumed() -> None:
    assert "(assumed: no launch is known)" in text(kernel("divide"))
    assert "assumed" not in text(kernel("divide", LaunchShape(block=(256, 1, 1))))


def test_a_shape_that_cannot_be_launched_is_reported_to_be_none() -> None:
    shown = text(kernel("divide", LaunchShape(block=(32, 1, 1), smem_bytes=300_000)))
    assert "cannot be launched with this shape, because of shared memory" in shown


def test_of_clusters_occupancy_claims_nothing() -> None:
    shown = text(kernel("divide", LaunchShape(block=(32, 1, 1), cluster=(2, 1, 1))))
    assert "the cluster is not considered" in shown


@needs_nvdisasm
def test_kinds_of_instructions_are_listed_under_their_group() -> None:
    shown = text(kernel("copy_vectors"))
    assert "  emitted    global memory     1 x load, 16 B per thread  line " in shown
    assert "                               1 x store, 16 B per thread  line " in shown


@needs_nvdisasm
def test_remarks_stand_at_their_line() -> None:
    shown = text(kernel("divide"))
    assert f"  look at    line {line_of('    y[0] = a / b;')}: div.s32 by a value" in shown


def test_without_a_disassembler_the_report_says_that_it_reports_ptx() -> None:
    shown = text(kernel("copy_vectors", with_sass=False))
    assert "  PTX has    global memory" in shown
    assert "emitted" not in shown


def test_dynamic_shared_memory_is_reported_to_be_taken() -> None:
    assert "and dynamic shared memory set at launch" in text(kernel("dynamic"))
    assert "dynamic" not in text(kernel("generic"))


def test_what_was_counted_is_reported_with_its_call() -> None:
    counted = SimulatedCounts(
        call="m::op, float32, sample 2", total=Counters(lane_instructions=140_672), lines={}
    )
    shown = text(replace(kernel("divide"), counts=counted))
    assert "140,672 thread instructions of PTX" in shown
    assert "m::op, float32, sample 2, in the simulator" in shown


def test_failures_templates_and_notes_are_reported() -> None:
    shown = text(
        failed=(FailedBuild(arch=Target.parse("sm_80"), names=("k",), message="why\nnot"),),
        templates=(
            Declaration(name="scale", template_parameters=("typename T",), parameter_names=("x",), line=1),
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


PTX = ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{bounds}\n{{\nret;\n}}\n"


def code(
    registers: int = 32,
    smem_bytes: int = 0,
    barriers: int = 0,
    *,
    arch: str = "sm_90",
    bounds: str = "",
    shapes: tuple[LaunchShape, ...] = (),
) -> KernelCode:
    return KernelCode(
        name="k", symbol="k", arch=Target.parse(arch), ptx_text=PTX.format(bounds=bounds), cubin=b"",
        files={}, shapes=shapes,
        resources=Resources(registers=registers, smem_bytes=smem_bytes, barriers=barriers),
    )  # fmt: skip


def shape(threads: int = 256, smem_bytes: int = 0) -> LaunchShape:
    return LaunchShape(block=(threads, 1, 1), smem_bytes=smem_bytes)


def one(**values: Any) -> KernelOccupancy:
    asked = values.pop("asked", None)
    (found,) = kernel_occupancy(code(**values), asked)
    return found


def test_every_shape_that_samples_launch_is_reported() -> None:
    found = kernel_occupancy(code(shapes=(shape(256), shape(64))))
    assert [(h.shape, h.why) for h in found] == [(shape(64), SEEN), (shape(256), SEEN)]


def test_without_launches_the_launch_bound_serves() -> None:
    found = one(bounds=".maxntid 128, 2, 1")
    assert (found.shape, found.why) == (shape(256), BOUND)


def test_without_any_a_block_is_assumed_and_reported_to_be() -> None:
    assert one().why == ASSUMED


def test_what_is_asked_for_takes_the_place_of_all_of_them() -> None:
    assert one(shapes=(shape(64),), asked=shape(512)).shape == shape(512)


def test_every_resource_that_limits_is_named() -> None:
    found = one(registers=32)
    assert (found.blocks, found.warps, found.most_warps) == (8, 64, 64)
    assert found.limiters == ("registers", "threads")


def test_where_a_multiprocessor_is_full_nothing_more_is_needed() -> None:
    assert one(registers=32).steps == ()


def test_registers_are_reported_by_the_number_that_lets_more_in() -> None:
    found = one(registers=40)
    assert found.limiters == ("registers",)
    (step,) = [step for step in found.steps if step.resource == "registers"]
    assert (step.now, step.need, step.blocks, step.warps) == (40, 32, 8, 64)


def test_shared_memory_is_reported_with_what_the_driver_keeps_per_block() -> None:
    found = one(smem_bytes=30_000)
    assert (found.limiters, found.blocks) == (("shared memory",), 7)
    (step,) = found.steps
    assert (step.resource, step.need, step.blocks) == ("shared memory", 228 * 1024 // 8 - 1024, 8)


def test_barriers_that_limit_are_named_and_counted() -> None:
    """An H100's driver said 4 of a kernel whose barriers have computed numbers, so that it takes all 16."""
    found = one(registers=168, barriers=16, asked=shape(32, smem_bytes=40_000))
    assert (found.limiters, found.blocks, found.limits["shared memory"]) == (("barriers",), 4, 5)
    assert [(step.resource, step.need, step.blocks) for step in found.steps] == [("barriers", 12, 5)]


def test_a_block_of_an_odd_size_is_reported_the_next_better_one() -> None:
    found = one(registers=32, asked=shape(672))
    assert (found.blocks, found.warps) == (3, 63)
    assert ("threads", 512, 64) in [(step.resource, step.need, step.warps) for step in found.steps]


def test_a_block_that_the_bounds_forbid_holds_nothing() -> None:
    found = one(bounds=".maxntid 128, 1, 1", asked=shape(256))
    assert (found.blocks, found.limiters, found.steps) == (0, ("launch bounds",), ())


def test_what_does_not_fit_is_reported_how_many_registers_would() -> None:
    found = one(registers=254, asked=shape(512))
    assert (found.blocks, found.limiters) == (0, ("registers",))
    assert [(step.resource, step.now, step.need, step.blocks) for step in found.steps] == [
        ("registers", 254, 128, 1), ("threads", 512, 256, 1),
    ]  # fmt: skip
    first, *steps = (line.plain.strip() for line in occupancy_lines(found))
    assert first.startswith("block=512: cannot be launched with this shape, because of registers")
    assert steps[0] == "with at most 128 registers per thread, 126 fewer: 1 block, 16 warps"


def test_a_block_that_is_required_is_the_only_one() -> None:
    assert one(bounds=".reqntid 128, 1, 1", asked=shape(64)).limiters == ("launch bounds",)
    assert all(step.resource != "threads" for step in one(bounds=".reqntid 128, 1, 1", registers=100).steps)


def test_too_much_shared_memory_is_named_as_the_limit() -> None:
    found = one(asked=shape(256, smem_bytes=300_000))
    assert (found.blocks, found.limiters) == (0, ("shared memory",))


def test_of_an_architecture_that_the_table_lacks_nothing_is_claimed() -> None:
    assert (8, 8) not in LIMITS
    assert kernel_occupancy(code(arch="sm_88")) == ()


def test_of_ptx_alone_nothing_is_claimed() -> None:
    (kernel,) = [k for k in everything("compute_90").values() if k.code.name == "divide"]
    assert kernel_occupancy(kernel.code) == ()


@pytest.mark.parametrize(
    ("arch", "threads"), [("sm_75", 96), ("sm_80", 32), ("sm_89", 1024), ("sm_90", 256), ("sm_120", 672)]
)
def test_each_step_is_the_smallest(arch: str, threads: int) -> None:
    """By trying every number of registers and bytes, one after the other."""
    target = Target.parse(arch)
    limits = LIMITS[target.major, target.minor]
    for registers, smem_bytes in itertools.product([24, 40, 97, 168, 255], [0, 1, 12_345]):
        (found,) = kernel_occupancy(code(registers, smem_bytes, arch=arch), shape(threads))
        shown = {step.resource: step.need for step in found.steps}

        def blocks(registers: int, smem_bytes: int) -> int:
            return occupancy(
                limits, threads=threads, registers=registers, static_smem_bytes=smem_bytes
            ).blocks

        now = blocks(registers, smem_bytes)
        assert found.blocks == now
        if now:
            fewer = (r for r in range(registers - 1, 0, -1) if blocks(r, smem_bytes) > now)
            less = (b for b in range(smem_bytes - 1, -1, -1) if blocks(registers, b) > now)
            assert shown.get("registers") == next(fewer, None)
            assert shown.get("shared memory") == next(less, None)


def test_a_shape_reads_as_a_launch_is_written() -> None:
    assert str(shape(256)) == "block=256"
    assert str(LaunchShape(block=(16, 16, 1), smem_bytes=1024, cluster=(2, 1, 1))) == (
        "block=(16, 16), smem_bytes=1024, cluster=(2, 1, 1)"
    )
