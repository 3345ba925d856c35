"""Operators whose CUDA kernels a library brings, on a GPU: checked, measured, profiled."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.benchmark.results import Protocol
from dotcu.checking.report import CheckReport
from dotcu.checking.results import Passed, Skipped
from dotcu.operator import ExistingOperator
from helpers.check_reports import bare
from helpers.cpp_projects import missing_nvcc
from helpers.foreign_operators import foreign, scaled

pytestmark = pytest.mark.gpu

KERNEL = """
#include <cuda_runtime.h>

__global__ void scale_kernel(const float* x, float* out, float by, long n)
{
    long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = by * x[i];
}

void launch_scale(const float* x, float* out, float by, long n, cudaStream_t stream)
{
    if (n > 0) scale_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, out, by, n);
}
"""

BINDING = """
#include <cuda_runtime.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

void launch_scale(const float* x, float* out, float by, long n, cudaStream_t stream);

Tensor scale(const Tensor& x, double by)
{
    STD_TORCH_CHECK(x.scalar_type() == ScalarType::Float && x.is_contiguous(), "contiguous float32, please");
    torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
    Tensor out = torch::stable::empty_like(x);
    void* stream = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream));
    launch_scale(
        static_cast<const float*>(x.data_ptr()), static_cast<float*>(out.data_ptr()), by, x.numel(),
        static_cast<cudaStream_t>(stream));
    return out;
}

STABLE_TORCH_LIBRARY(existing_cuda, m) { m.def("scale(Tensor x, float by) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(existing_cuda, CUDA, m) { m.impl("scale", TORCH_BOX(&scale)); }
"""

OPS = """
import dotcu
import torch

dotcu.load_cpp(["binding.cpp", "scale.cu"])
scale = dotcu.op.existing("existing_cuda::scale")


@scale.reference
def _(x, by):
    return x * by


@scale.fake
def _(x, by):
    return torch.empty_like(x)


@scale.samples
def _(device, dtype):
    yield dotcu.Sample(torch.randn(33, 257, device=device, dtype=dtype), 2.5)
    yield dotcu.Sample(torch.randn(1 << 16, device=device, dtype=dtype), -1.0)
"""


def described(name: str) -> ExistingOperator:
    operator = dotcu.op.existing(name)
    operator.reference(lambda x, by: x * by)
    operator.fake(lambda x, by: torch.empty_like(x))
    operator.samples(
        lambda device, dtype: [dotcu.Sample(torch.randn(64, 1000, dtype=dtype, device=device), 2.5)]
    )
    return operator


def short(report: CheckReport) -> set[str]:
    return {result.check for result in report.failures}


def test_a_right_operator_holds_and_the_simulator_is_not_asked() -> None:
    report = dotcu.check(described(foreign(CPU=scaled, CUDA=scaled)))
    assert report.passed, str(report)
    assert report.device.startswith("cuda")
    by_check = {result.check: bare(result) for result in report.results}
    assert isinstance(by_check["stream"], Passed)
    assert isinstance(by_check["sanitizer-race"], Skipped)


def test_a_kernel_on_a_stream_of_its_own_is_caught() -> None:
    streams: dict[int, torch.cuda.Stream] = {}

    def aside(x: Tensor, by: float) -> Tensor:
        with torch.cuda.stream(streams.setdefault(x.device.index, torch.cuda.Stream(x.device))):
            return scaled(x, by)

    name = foreign(CPU=scaled, CUDA=aside)
    assert short(dotcu.check(described(name), only=f"{name}/stream")) == {"stream"}


def test_what_a_kernel_leaves_unwritten_is_caught() -> None:
    def partly(x: Tensor, by: float) -> Tensor:
        out = torch.empty_like(x)
        out.view(-1)[:-1] = scaled(x.reshape(-1)[:-1], by)
        return out

    name = foreign(CPU=scaled, CUDA=partly)
    report = dotcu.check(described(name), level="quick", only=f"{name}/call/float32-s0")
    assert "written" in short(report), str(report)


def test_it_is_timed_and_compared_with_its_reference() -> None:
    operator = described(foreign(CPU=scaled, CUDA=scaled))
    report = dotcu.bench(operator, against=["eager"], l2="warm", protocol=Protocol(most_s=1.0))
    assert [row.key.contender for row in report.rows if row.time] == ["dotcu", "eager"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    if not shutil.which("c++") or missing_nvcc():
        pytest.skip(missing_nvcc() or "needs a C++ compiler; c++ is not on PATH")
    for name, text in {"scale.cu": KERNEL, "binding.cpp": BINDING, "ops.py": OPS}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def dotcu_says(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dotcu", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_library_of_cuda_is_checked_profiled_and_looked_into(project: Path) -> None:
    assert "passed: 1 overload" in dotcu_says(project, "check", "ops.py:scale")
    assert "scale_kernel" in dotcu_says(project, "profile", "ops.py:scale", "--output", str(project))
    assert "SASS" in dotcu_says(project, "inspect", "ops.py:scale")


def test_a_fault_of_a_kernel_is_found_and_ends_no_check(project: Path) -> None:
    (project / "scale.cu").write_text(KERNEL.replace("if (i < n) out[i]", "out[i + (1L << 40)]"))
    words = ["check", "ops.py", "--quick", "--only", "existing_cuda::scale/call/float32-s0"]
    done = subprocess.run(
        [sys.executable, "-m", "dotcu", *words], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "FAILED: 1 of 1 overload" in done.stdout
