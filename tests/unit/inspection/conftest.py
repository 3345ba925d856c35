"""What the tests of binaries share: code that NVRTC compiled, recorded fatbins, a library of the host."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dotcu.compile import CompileOptions, ObjectCode, Target, build, inline_source, toolchain

DATA = Path(__file__).parent / "data"

SOURCE = """
__global__ void plain(float* x, float factor) { x[threadIdx.x] *= factor; }

__global__ void shared(float* x) {
  __shared__ float kept[100];
  kept[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = kept[99 - threadIdx.x];
}

__device__ __noinline__ float far(const float* x, int n) {
  float kept[64];
  for (int i = 0; i < n; i++) kept[i] = x[i];
  float sum = 0;
  for (int i = 0; i < n; i++) sum += kept[(i * 7) & 63];
  return sum;
}

__global__ void stacked(float* x, int n) { x[0] = far(x, n) + far(x + 1, n); }
"""
KERNELS = ("plain", "shared", "stacked")


@pytest.fixture(scope="session")
def compiled() -> Callable[[str], ObjectCode]:
    """Compiles three kernels for an architecture, once."""

    @functools.cache
    def compiled(arch: str) -> ObjectCode:
        source = inline_source(SOURCE)
        return build(source, options=CompileOptions(), target=Target.parse(arch), names=KERNELS)

    return compiled


@pytest.fixture
def cuobjdump() -> Path:
    """The tool; a test without it is skipped."""
    tool = toolchain.find_tool("cuobjdump")
    if tool is None:
        pytest.skip("needs cuobjdump: pip install nvidia-cuda-cuobjdump")
    return tool


@pytest.fixture
def library() -> Path:
    """A shared library of C++, small, that is wherever torch is."""
    path = Path(torch.__file__).parent / "lib" / "libc10.so"
    if not path.is_file():
        pytest.skip(f"needs torch's {path.name}")
    return path
