"""Adapters of other languages, whichever versions of their packages are imported."""

from __future__ import annotations

import os
import subprocess
import sys
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
