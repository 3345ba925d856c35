"""Tile kernels in a wheel: code for hosts of both processors, run where nothing can be compiled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import dotcu
from dotcu.checking.target import resolve
from dotcu.compile import ObjectCode, Target, prebuilt, tile
from dotcu.compile.prebuilt import PrebuiltVariant
from dotcu.errors import ArgumentError
from dotcu.shipping import assembling, project, wheel
from dotcu.shipping.operator_library import recording
from dotcu.shipping.tracing import importing
from helpers import projects

SCALE = """\
#include "cuda_tile.h"
namespace ct = cuda::tiles;

template <typename T>
__tile_global__ void scale(const T* __restrict__ x, T* __restrict__ out, float by, long long n) {
    auto view = [&](auto* p) {
        auto span = ct::tensor_span{ct::assume_aligned<16>(p), ct::extents{n}};
        return ct::partition_view{span, ct::shape<128>{}};
    };
    auto i = ct::bid().x;
    view(out).store_masked(view(x).load_masked(i) * T(by), i);
}

__global__ void plain(float* x) { x[threadIdx.x] = 1; }
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> projects.Made:
    ops = projects.OPS.replace("cdiv(n, 128), block=128", "cdiv(n, 128)")
    made = projects.make(
        tmp_path_factory.mktemp("project"), architectures=("7.5", "8.0", "9.0+PTX"), source=SCALE, ops=ops
    )
    projects.lock(made)
    return made


@pytest.fixture(scope="module")
def package(made: projects.Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return projects.install(made, tmp_path_factory.mktemp("site"))


def test_they_run_where_nothing_can_be_compiled(package: Path, tmp_path: Path, device: torch.device) -> None:
    x, out = torch.arange(200.0, device=device), torch.empty(200, device=device)
    with projects.no_compiler(tmp_path):
        kernels = dotcu.load(package / "scale.cu")
        kernels.scale[torch.float32](x, out, 3.0, 200, grid=2)
        with pytest.raises(ArgumentError, match="16-byte aligned"):
            kernels.scale[torch.float32](x[1:], out, 3.0, 199, grid=2)
    assert torch.equal(out, x * 3)


def test_the_wheel_has_machine_code_for_hosts_of_both_processors(package: Path, tmp_path: Path) -> None:
    with projects.no_compiler(tmp_path), dotcu.simulate(arch="sm_90"):
        unit = dotcu.load(package / "scale.cu").scale[torch.float32].unit
        code = unit.code(Target.parse("sm_90")).object
    assert sorted(code.tile_cubins) == sorted(tile.HOSTS)
    for host, cubin in code.tile_cubins.items():
        assert tile.machine_within(cubin, ".nv.host") == host
    assert code.resources[code.lowered["scale<float>"]].registers > 0


def test_there_is_no_code_for_older_gpus_and_no_ptx(package: Path) -> None:
    manifest = prebuilt.parse_manifest(
        (package / "__dotcu__" / "manifest.json").read_bytes(), package / "__dotcu__" / "manifest.json"
    )
    (source,) = manifest.sources["scale.cu"]
    units = {unit.names: unit for unit in source.kernels}
    scale = units["scale<float>",]
    assert scale.is_tile
    assert sorted(map(str, scale.variants)) == ["compute_80, simulated", "sm_80", "sm_90"]


def test_code_for_sm_90_runs_on_that_alone() -> None:
    variant = PrebuiltVariant(target=Target.parse("sm_100"), simulated=False, record=0)
    gpu: Any = {"capability": (10, 3), "driver": (13, 0), "compiler": (13, 0)}
    assert "compute capability is 10.3" in prebuilt._refuse_variant(variant, **gpu, is_tile=True)
    assert prebuilt._refuse_variant(variant, **gpu, is_tile=False) == ""


def test_a_record_keeps_each_piece_of_code(tmp_path: Path) -> None:
    code = ObjectCode(
        target=Target.parse("sm_90"), lowered={"k": "_Z1kv"}, signatures={}, resources={}, files={}, ptx="",
        cubin=b"simt", warnings=(), log="", command="", build_digest="", cached=True, seconds=0,
        tile_ir=b"ir", tile_cubins={"x86_64": b"first", "aarch64": b"second"},
    )  # fmt: skip
    read = prebuilt.read_record(prebuilt.record_bytes(code), code.target, tmp_path)
    assert replace(read, command="", build_digest="") == code


def test_files_for_other_programs_name_the_processor(made: projects.Made, tmp_path: Path) -> None:
    planned = wheel.prepare(project.read(made.root))
    codes = assembling.compile_all(planned.jobs)
    assembling.export(codes, tmp_path / "kernels")
    names = {path.name.split(".", 1)[1] for path in (tmp_path / "kernels").glob("scale*")}
    assert names == {f"{sm}.{host}.cubin" for sm in ("sm_80", "sm_90") for host in tile.HOSTS}


def test_cpp_leaves_them_out_and_says_why(made: projects.Made) -> None:
    with importing(made.root, made.name):
        operators = [operator for _, operator in resolve(made.name, verb="build")]
    planned, notes = recording.record_all(operators, [Target.parse("sm_80")])
    assert not planned
    assert "scale.cu has tile kernels, which are launched from Python alone" in notes[0]
