"""One kernel through each kind of binding, and through none: the same bits, on torch's stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import dotcu
from helpers.cpp_projects import missing_nvcc

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(bool(missing_nvcc()), reason=missing_nvcc() or "nvcc is there"),
]

KERNEL = """
__global__ void scale(const float* x, float* out, float by, long long n)
{
    long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    if (i < n) out[i] = by * x[i] + 1.0f / 3.0f;
}
"""

LAUNCHER = """
#include <cuda_runtime.h>

void launch_scale(const float* x, float* out, float by, long long n, cudaStream_t stream)
{
    if (n > 0) scale<<<static_cast<unsigned>((n + 255) / 256), 256, 0, stream>>>(x, out, by, n);
}
"""

DECLARED = """
#include <cuda_runtime.h>
void launch_scale(const float* x, float* out, float by, long long n, cudaStream_t stream);
"""

STABLE = """
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;

Tensor scaled(const Tensor& x, double by)
{
    torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
    Tensor out = torch::stable::empty_like(x);
    void* stream = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream));
    launch_scale(
        static_cast<const float*>(x.data_ptr()), static_cast<float*>(out.data_ptr()), by, x.numel(),
        static_cast<cudaStream_t>(stream));
    return out;
}

STABLE_TORCH_LIBRARY(bindings_stable, m) { m.def("scaled(Tensor x, float by) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(bindings_stable, CUDA, m) { m.impl("scaled", TORCH_BOX(&scaled)); }
"""

ATEN = """
#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

at::Tensor scaled(const at::Tensor& x, double by)
{
    const c10::cuda::CUDAGuard guard(x.device());
    at::Tensor out = at::empty_like(x);
    const auto stream = c10::cuda::getCurrentCUDAStream().stream();
    launch_scale(x.data_ptr<float>(), out.data_ptr<float>(), by, x.numel(), stream);
    return out;
}
"""

LIBRARY = """
#include <torch/library.h>

TORCH_LIBRARY(bindings_library, m) { m.def("scaled(Tensor x, float by) -> Tensor"); }
TORCH_LIBRARY_IMPL(bindings_library, CUDA, m) { m.impl("scaled", &scaled); }
"""

PYBIND = """
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scaled", &scaled); }
"""

Scaled = Callable[[torch.Tensor, float], torch.Tensor]


def from_cpp(folder: Path, name: str, text: str) -> Any:
    folder.mkdir()
    (folder / f"{name}.cpp").write_text(text)
    (folder / "scale.cu").write_text(KERNEL + LAUNCHER)
    return dotcu.load_cpp([folder / f"{name}.cpp", folder / "scale.cu"])


def by_stable(folder: Path) -> Scaled:
    from_cpp(folder, "stable", DECLARED + STABLE)
    return torch.ops.bindings_stable.scaled  # type: ignore[no-any-return]


def by_library(folder: Path) -> Scaled:
    from_cpp(folder, "library", DECLARED + ATEN + LIBRARY)
    return torch.ops.bindings_library.scaled  # type: ignore[no-any-return]


def by_pybind(folder: Path) -> Scaled:
    module = from_cpp(folder, "module", "#include <torch/extension.h>\n" + DECLARED + ATEN + PYBIND)
    return module.scaled  # type: ignore[no-any-return]


@pytest.mark.parametrize("bind", [by_stable, by_library, by_pybind])
def test_each_binding_gives_what_the_kernel_route_gives(
    bind: Callable[[Path], Scaled], tmp_path: Path
) -> None:
    scaled = bind(tmp_path / "cpp")
    kernels = dotcu.load_inline(KERNEL)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x = torch.randn(1 << 22, device="cuda")
        for _ in range(20):  # a launch on another stream would read what is not written yet
            x = scaled(x, 0.5)
        got, expected = scaled(x, 3.0), torch.empty_like(x)
        n = x.numel()
        kernels.scale(x, expected, 3.0, n, grid=dotcu.cdiv(n, 256), block=256)
    side.synchronize()
    assert torch.equal(got, expected)
    assert scaled(x[:0], 1.0).shape == (0,)
