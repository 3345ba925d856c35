"""Compiled code of a wheel, on a GPU: machine code, PTX, and what fits neither."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import dotcu
from dotcu.errors import DotcuError
from dotcu.kernel import cuda
from helpers import projects

pytestmark = pytest.mark.gpu


def run(package: Path) -> tuple[torch.Tensor, dotcu.Kernel]:
    kernel = dotcu.load(package / "scale.cu").scale[torch.float32]
    x, out = torch.arange(1000.0, device="cuda"), torch.empty(1000, device="cuda")
    kernel(x, out, 3.0, 1000, grid=8, block=128)
    return out, kernel


def installed(folder: Path, *architectures: str) -> Path:
    made = projects.make(folder / "project", architectures=architectures)
    projects.lock(made)
    return projects.install(made, folder / "site")


def test_machine_code_runs_where_nothing_can_be_compiled(tmp_path: Path) -> None:
    major, minor = cuda.capability(0)
    package = installed(tmp_path, "8.0", f"{major}.{minor}")
    with projects.no_compiler(tmp_path):
        out, kernel = run(package)
        assert kernel.occupancy(128) >= 1
        assert kernel.attributes.registers > 0
    assert torch.equal(out, torch.arange(1000.0, device="cuda") * 3)
    assert f"sm_{major}{minor}" in repr(kernel)


def test_ptx_runs_on_a_gpu_that_is_newer_than_the_wheel(tmp_path: Path) -> None:
    if cuda.capability(0)[0] == 8:
        pytest.skip("the wheel's machine code fits this GPU")
    package = installed(tmp_path, "8.0")
    with projects.no_compiler(tmp_path):
        out, kernel = run(package)
    assert torch.equal(out, torch.arange(1000.0, device="cuda") * 3)
    assert "compute_80" in repr(kernel)


def test_what_does_not_fit_is_reported_for_each_variant(tmp_path: Path) -> None:
    if cuda.capability(0)[0] == 12:
        pytest.skip("the wheel's machine code fits this GPU")
    package = installed(tmp_path, "12.0")
    with projects.no_compiler(tmp_path), pytest.raises(DotcuError) as raised:
        run(package)
    major, minor = cuda.capability(0)
    for target in ("sm_120", "compute_120"):
        assert f"{target}: the GPU's compute capability is {major}.{minor}" in str(raised.value)


def test_it_can_be_captured_after_warming(tmp_path: Path) -> None:
    package = installed(tmp_path, "{}.{}".format(*cuda.capability(0)))
    x, out = torch.arange(1000.0, device="cuda"), torch.zeros(1000, device="cuda")
    with projects.no_compiler(tmp_path):
        kernel = dotcu.load(package / "scale.cu").scale[torch.float32]
        kernel.warm()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kernel(x, out, 3.0, 1000, grid=8, block=128)
    graph.replay()
    assert torch.equal(out, x * 3)
