"""PTX and cubins on a GPU: launched as they are, on tensors and with bytes for a struct."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch

import dotcu
from dotcu.compile import CompileOptions, Target, build
from dotcu.compile.source.source import inline_source

pytestmark = pytest.mark.gpu

SOURCE = """
__constant__ float factor[2];
struct Line { float slope, offset; };
template <typename T> __global__ void scale(const T* x, T* out, T by, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * by * factor[1];
}
__global__ void along(const float* x, float* out, Line line, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = line.slope * x[i] + line.offset;
}
"""


@pytest.fixture(params=["ptx", "cubin"])
def module(request: pytest.FixtureRequest, tmp_path: Path) -> dotcu.Module:
    target = Target("sm", *torch.cuda.get_device_capability())
    names = ("scale<float>", "along", "&factor")
    code = build(inline_source(SOURCE), options=CompileOptions(), target=target, names=names)
    path = tmp_path / f"k.{request.param}"
    path.write_bytes(code.ptx.encode() if request.param == "ptx" else code.cubin or b"")
    return dotcu.load(path)


def test_a_struct_is_passed_as_bytes(module: dotcu.Module) -> None:
    x = torch.arange(1000.0, device="cuda")
    out = torch.empty_like(x)
    for _ in range(3):  # in Python, then from a plan
        module.along(x, out, struct.pack("<2f", 2.0, 1.0), 1000, grid=4, block=256)
    assert torch.equal(out, 2 * x + 1)


def test_numbers_and_variables_reach_the_kernel(module: dotcu.Module) -> None:
    x = torch.arange(1000.0, device="cuda")
    out = torch.empty_like(x)
    is_ptx = module.name.endswith("ptx")
    if is_ptx:
        module.variable("factor").write(torch.tensor([0.0, 3.0]))
    for _ in range(3):
        module.scale(x, out, 2.0, 1000, grid=4, block=256)
    assert torch.equal(out, 6 * x if is_ptx else torch.zeros_like(x))


def test_arguments_are_checked_before_the_launch(module: dotcu.Module) -> None:
    x = torch.arange(8.0, device="cuda")
    with pytest.raises(dotcu.errors.ArgumentError, match="takes its 8 bytes"):
        module.along(x, x, b"abc", 8, grid=1, block=32)
