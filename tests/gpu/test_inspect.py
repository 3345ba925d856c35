"""The report of inspect, which needs no GPU, beside what the driver says of the same code."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from dotcu import gallery
from dotcu.inspection import InspectReport, inspect
from dotcu.inspection.build import LaunchShape
from dotcu.inspection.report import InspectedKernel, kernel_occupancy
from dotcu.kernel import cuda

pytestmark = pytest.mark.gpu

OPERATORS = ("add", "fast_add", "matmul", "square", "sum")


@functools.cache
def report(name: str) -> InspectReport:
    return inspect(getattr(gallery, name), counts=False)


def functions(name: str) -> list[tuple[InspectedKernel, Any]]:
    """Every kernel of an operator with the driver's handle of it, loaded on the first GPU."""
    found = []
    for one in report(name).kernels:
        assert one.code.cubin is not None
        library = cuda.Library(one.code.name, one.code.cubin, dict, {one.code.symbol: one.code.name})
        found.append((one, library.kernel(one.code.symbol, 0)))
    return found


def blocks(function: Any, threads: int, smem_bytes: int) -> int:
    with cuda.entered(0):
        count = cuda._call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor", function, threads, smem_bytes, doing="Asking"
        )
    return int(count)


def test_by_default_it_is_for_this_machines_gpu() -> None:
    major, minor = torch.cuda.get_device_capability()
    (arch,) = {one.code.arch for one in report("square").kernels}
    assert (arch.major, arch.minor) == (major, minor)


@pytest.mark.parametrize("name", OPERATORS)
def test_occupancy_of_the_gallery_is_the_drivers(name: str) -> None:
    kernels = functions(name)
    assert kernels
    for one, function in kernels:
        assert one.occupancy
        for each in one.occupancy:
            assert each.blocks == blocks(function, each.shape.threads, each.shape.smem_bytes), one.code.name


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("threads", [32, 96, 256])
@pytest.mark.parametrize("smem_bytes", [0, 5000, 40_000])
def test_occupancy_of_other_shapes_is_the_drivers(name: str, threads: int, smem_bytes: int) -> None:
    for one, function in functions(name):
        bound = one.code.launch_bounds[0] or 1024
        shape = LaunchShape(block=(min(threads, bound), 1, 1), smem_bytes=smem_bytes)
        (found,) = kernel_occupancy(one.code, shape)
        assert found.blocks == blocks(function, shape.threads, smem_bytes), one.code.name


@pytest.mark.parametrize("name", OPERATORS)
def test_resources_of_the_gallery_are_the_drivers(name: str) -> None:
    names = cuda._driver().CUfunction_attribute
    for one, function in functions(name):
        assert one.code.resources is not None
        with cuda.entered(0):

            def asked(attribute: str, function: Any = function) -> int:
                key = getattr(names, f"CU_FUNC_ATTRIBUTE_{attribute}")
                return int(cuda._call("cuFuncGetAttribute", key, function, doing="Asking"))

            assert one.code.resources.registers == asked("NUM_REGS"), one.code.name
            assert one.code.resources.smem_bytes == asked("SHARED_SIZE_BYTES"), one.code.name


def test_a_step_lets_more_blocks_in_by_the_drivers_own_count() -> None:
    """Shared memory, which a launch can change: the step is enough, and one byte more is not."""
    (one, function), *_ = functions("square")
    shape = LaunchShape(block=(256, 1, 1), smem_bytes=40_000)
    (found,) = kernel_occupancy(one.code, shape)
    (step,) = [step for step in found.steps if step.resource == "shared memory"]
    assert blocks(function, 256, step.need) == step.blocks > found.blocks
    assert blocks(function, 256, step.need + 1) < step.blocks
