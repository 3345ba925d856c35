"""Tile kernels, inspected: Tile IR beside source and machine code, and what the cubin says."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

import pytest

import dotcu
from dotcu.errors import UsageError
from dotcu.inspection import binaries
from dotcu.inspection.code.listing import emit
from dotcu.inspection.code.report import InspectReport, SimulatedCounts
from dotcu.inspection.page import page_of, render
from dotcu.simulator import LineCounters

SOURCE = """\
#include "cuda_tile.h"
namespace ct = cuda::tiles;

[[cutile::hint(0, num_cta_in_cga = 2)]]
__tile_global__ void twice(float* __restrict__ x, int n) {
  auto span = ct::tensor_span{ct::assume_aligned<16>(x), ct::extents{n}};
  auto v = ct::partition_view{span, ct::shape<512>{}};
  auto i = ct::bid().x;
  v.store_masked(v.load_masked(i) * 2.0f, i);
}

__global__ void plain(float* x) { x[threadIdx.x] *= 2; }
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernels") / "twice.cu"
    path.write_text(SOURCE)
    return path


@pytest.fixture(scope="module")
def report(file: Path) -> InspectReport:
    found = dotcu.inspect(str(file), arch="sm_90")
    assert isinstance(found, InspectReport)
    return found


def test_both_kinds_are_reported_each_with_its_machine_code(report: InspectReport) -> None:
    assert {one.code.name: one.code.language for one in report.kernels} == {
        "plain": "PTX",
        "twice": "Tile IR",
    }
    for one in report.kernels:
        assert one.instructions
        assert one.emitted


def test_resources_come_from_the_cubin(report: InspectReport) -> None:
    twice = report.kernel("twice")
    assert twice.code.resources is not None
    assert twice.code.resources.cluster == 2
    text = str(report)
    assert f"{twice.code.resources.threads} threads a tile block, clusters of 2 thread blocks" in text
    assert "chosen by the compiler" in text


def test_the_host_code_of_a_tile_kernel_is_shown(report: InspectReport, tmp_path: Path) -> None:
    runs = f"for {platform.machine()}: it runs in the process that loads this"
    assert str(report).count(runs) == 1
    cubin = report.kernel("twice").code.cubin
    assert cubin is not None
    (tmp_path / "twice.cubin").write_bytes(cubin)
    alone = binaries.read(tmp_path / "twice.cubin")
    assert runs in str(alone)
    assert alone.to_json()["host_code"] == platform.machine()


def test_operations_name_their_source_line(report: InspectReport) -> None:
    twice = report.kernel("twice")
    line = next(line for line in twice.code.ptx if line.opcodes == ("load_view_tko",))
    assert line.chain[-1].line == 9
    assert line.chain[-1].file == twice.code.file
    assert {at.line for i in twice.instructions for at in i.chain if at.file == twice.code.file} & {9}


def test_counts_of_tiles_are_no_reason_to_speak_of_lanes(report: InspectReport) -> None:
    twice, plain = report.kernel("twice"), report.kernel("plain")
    total = LineCounters(lane_instructions=10, warp_instructions=10)
    counts = SimulatedCounts(call="a call", total=total, lines={(twice.code.file, 9): total})
    assert "idle lanes" in {remark.kind for remark in replace(plain, counts=counts).remarks}
    assert replace(twice, counts=counts).remarks == twice.remarks


def test_the_page_calls_the_pane_tile_ir(report: InspectReport) -> None:
    data = page_of(report)
    assert {one["name"]: one["language"] for one in data["kernels"]} == {"plain": "PTX", "twice": "Tile IR"}
    page = render(data)
    assert "TITLES.ptx = kernel.language" in page
    assert "load_view_tko" in page


def test_tile_ir_can_be_emitted(file: Path) -> None:
    one = dotcu.inspect(f"{file}:twice", arch="sm_90")
    assert isinstance(one, InspectReport)
    assert b"entry @" in emit(one, "tileir")
    assert b"load_view_tko" in emit(one, "tileir")
    assert emit(one, "cubin").startswith(b"\x7fELF")
    with pytest.raises(UsageError, match="--emit tileir"):
        emit(one, "ptx")


def test_a_kernel_with_ptx_has_no_tile_ir(file: Path) -> None:
    one = dotcu.inspect(f"{file}:plain", arch="sm_90")
    assert isinstance(one, InspectReport)
    with pytest.raises(UsageError, match="--emit ptx"):
        emit(one, "tileir")


def test_the_cubin_of_both_kinds_is_not_one(report: InspectReport) -> None:
    with pytest.raises(UsageError, match="a cubin each"):
        emit(report, "cubin")


def test_without_machine_code_operations_are_counted(file: Path) -> None:
    report = dotcu.inspect(f"{file}:twice", arch="compute_90")
    assert isinstance(report, InspectReport)
    (twice,) = report.kernels
    assert twice.level == "Tile IR"
    assert {one.label for one in twice.emitted} == {"load_view_tko", "store_view_tko"}
