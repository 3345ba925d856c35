"""Adapters of other languages, whichever versions of their packages are imported."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = """
import torch, triton
from dotcu.kernel import load_inline, simulate

x = torch.ones(4)
module = load_inline("__global__ void twice(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }")
with simulate():
    module.twice(x, 4, grid=1, block=32)
print(triton.__version__, x.tolist())
"""


@pytest.mark.parametrize("version", ["3.6.0", "99.0"])
def test_a_version_without_an_adapter_leaves_other_kernels_alone(version: str, tmp_path: Path) -> None:
    """torch 2.11 brings Triton 3.6, and its compiler imports it."""
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text(f"__version__ = {version!r}\n")
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{version} [2.0, 2.0, 2.0, 2.0]\n"


IMPORT_INSIDE = """
import sys, torch, dotcu
assert "triton" not in sys.modules
finders = list(sys.meta_path)
with dotcu.simulate(on_finding="collect") as outer, dotcu.simulate(on_finding="collect") as run:
    import triton
    from kernels import fill
    out = torch.empty(100)
    fill[(1,)](out, 100, BLOCK=128)
assert sys.meta_path == finders
assert type(triton.__loader__) is type(torch.__loader__) is type(triton.__spec__.loader)
print(out.sum().item(), dict(run.launches), run.findings)
with dotcu.simulate(on_finding="collect") as run:
    fill[(1,)](out, 100, BLOCK=64)
print(dict(run.launches))
"""

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def fill(out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, 1.0, mask=at < n)
"""


def test_a_package_that_is_imported_inside_is_taken(tmp_path: Path) -> None:
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    (tmp_path / "kernels.py").write_text(KERNELS)
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_INSIDE],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "100.0 {'fill': 1} []\n{'fill': 1}\n"
