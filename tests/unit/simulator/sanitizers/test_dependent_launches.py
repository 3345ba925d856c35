"""Programmatic launches: what the launch before wrote is touched after griddepcontrol.wait alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dotcu

SOURCE = """#include <dotcu/grid.cuh>
__global__ void first(float* x) { x[threadIdx.x] = 2; dotcu::launch_later(); }
__global__ void second(const float* x, const float* y, float* out) {
    float sum = y[threadIdx.x];
    BEFORE
    out[threadIdx.x] = sum + x[threadIdx.x];
}
"""
WAIT = "dotcu::wait_for_earlier();"


def findings(
    before: str, *, programmatic: bool = True, arch: str = "sm_90", between: bool = False
) -> list[Any]:
    module = dotcu.load_inline(SOURCE.replace("BEFORE", before))
    x, y, out = torch.zeros(64), torch.ones(64), torch.zeros(64)
    with dotcu.simulate(arch=arch, on_finding="collect") as run:
        module.first(x, grid=1, block=64)
        if between:
            module.first(torch.zeros(64), grid=1, block=64)
        module.second(x, y, out, grid=1, block=64, programmatic=programmatic)
    assert (out == 3).all()
    return run.findings


def test_what_is_read_before_the_wait_is_found() -> None:
    (finding,) = findings("")
    assert (finding.kind, finding.line, finding.lanes, finding.address_of) == ("race", 6, 64, "x")
    assert "the previous launch, `first`, writes" in finding.message
    assert "dotcu::wait_for_earlier()" in finding.message


def test_what_some_threads_read_without_a_wait_is_found() -> None:
    (finding,) = findings(f"if (threadIdx.x < 60) {WAIT}")
    assert (finding.line, finding.lanes, finding.thread) == (6, 4, (60, 0, 0))


@pytest.mark.parametrize("before", [WAIT, f"if (threadIdx.x == 0) {WAIT} __syncthreads();"])
def test_what_is_read_after_a_wait_is_right(before: str) -> None:
    assert findings(before) == []


@pytest.mark.parametrize("launch", [{"programmatic": False}, {"arch": "sm_80"}, {"between": True}])
def test_a_launch_that_starts_after_the_writer_needs_no_wait(launch: dict[str, Any]) -> None:
    assert findings("", **launch) == []
