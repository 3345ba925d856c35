"""Operators in C++ on a GPU: results as in Python, and from an AOTInductor package without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dotcu.checking.target import resolve
from dotcu.compile import Target
from dotcu.cpp import tools
from dotcu.errors import ToolchainError
from dotcu.shipping import project, wheel
from dotcu.shipping.operator_library import writing as cpp
from helpers import aotinductor, projects

pytestmark = pytest.mark.gpu

CALLS = """
import sys
import torch

torch.ops.load_library(sys.argv[1])
scale = torch.ops.{name}.scale
for dtype in (torch.float32, torch.float16):
    x = torch.arange(1000, device="cuda").to(dtype)
    assert torch.equal(scale(x, 3.0), x * 3), dtype
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    x = torch.randn(1 << 24, device="cuda")
    for _ in range(50):
        x = scale(x, 1.0)
    y = scale(x, 2.0)
side.synchronize()
assert torch.equal(y, x * 2)
graph = torch.cuda.CUDAGraph()
still = torch.ones(1000, device="cuda")
with torch.cuda.graph(graph):
    made = scale(still, 5.0)
still.fill_(2)
graph.replay()
assert bool((made == 10).all())
try:
    scale(torch.ones(2, 2, 2, device="cuda"), 1.0)
except RuntimeError as error:
    assert "has no code in C++" in str(error), error
else:
    raise AssertionError("a call like no sample was not refused")
"""


@pytest.fixture(scope="module")
def compiler() -> tools.HostCompiler:
    try:
        return tools.host()
    except ToolchainError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> projects.Made:
    folder = tmp_path_factory.mktemp("cpp")
    return projects.make(
        folder / "project", architectures=("8.0", "9.0"), dtypes="(torch.float32, torch.float16)"
    )


@pytest.fixture(scope="module")
def library(
    made: projects.Made, compiler: tools.HostCompiler, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    compiled = wheel.compile_kernels(wheel.prepare(project.read(made.root)), lambda _: None)
    operators = [operator for _, operator in resolve(made.name, verb="build")]
    targets = [Target.parse("sm_80"), Target.parse("sm_90")]
    cpp.write_source(made.root / "out", made.name, operators, compiled, targets)
    return cpp.library(made.root / "out", made.name)


def test_results_streams_graphs_and_refusals(made: projects.Made, library: Path) -> None:
    subprocess.run([sys.executable, "-c", CALLS.format(name=made.name), library], check=True)


def test_it_runs_from_an_aotinductor_package_without_python(
    made: projects.Made, library: Path, compiler: tools.HostCompiler, tmp_path: Path
) -> None:
    package = aotinductor.package(made.root, f"{made.name}::scale", tmp_path, device="cuda")
    words = [aotinductor.program(compiler, tmp_path), library, package, "cuda"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout == "error 0, without Python\n", done.stdout + done.stderr
