"""PyTorch's vocabulary for device code: files that use it load unchanged and give right values."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch

import dotcu
from dotcu.errors import ArgumentError, CompileError

kernels = dotcu.load(Path(__file__).parent / "torch_names.cu")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("float", torch.float32), ("c10::Half", torch.float16), ("at::BFloat16", torch.bfloat16),
        ("double", torch.float64), ("int", torch.int32), ("long long", torch.int64), ("short", torch.int16),
        ("signed char", torch.int8),
    ],
)  # fmt: skip
def test_atomics_and_arithmetic_of_each_type(device: torch.device, name: str, dtype: torch.dtype) -> None:
    x = torch.tensor([1, 2, 3, 4, 34], dtype=dtype, device=device)
    out = torch.tensor([0, -9, 9, 0, 5, 0, 0, 0], dtype=dtype, device=device)
    kernels.reduce[name](x, out, 5, grid=2, block=2)
    values = [-4, 7, 10, 13, -103]
    assert out.tolist() == [sum(values), max(values), min(values), 5, 15, 0, 0, 0]


def test_an_accessor_takes_a_tensor_of_any_strides(device: torch.device) -> None:
    x = torch.randn(2, 5, 3, device=device).permute(0, 2, 1)
    out = torch.zeros(3, 2, device=device).t()
    kernels.row_sums[torch.float32](x, out, grid=2, block=3)
    torch.testing.assert_close(out, x.sum(-1) + 3)


def test_an_accessor_of_half_precision_takes_such_a_tensor(device: torch.device) -> None:
    x = torch.ones(1, 2, 4, dtype=torch.float16, device=device)
    out = torch.zeros(1, 2, dtype=torch.float16, device=device)
    kernels.row_sums["c10::Half"](x, out, grid=1, block=2)
    assert out.tolist() == [[5, 5]]


def test_a_dtype_stands_for_pytorchs_type_as_in_at_dispatch(device: torch.device) -> None:
    module = dotcu.load_inline("""
        #include <torch/extension.h>
        __device__ int kind(at::Half) { return 16; }
        __device__ int kind(at::BFloat16) { return 17; }
        __device__ int kind(float) { return 32; }
        template <typename scalar_t> __global__ void kinds(const scalar_t* x, int* out) { *out = kind(*x); }
        """)
    found = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        out = torch.zeros(1, dtype=torch.int32, device=device)
        module.kinds[dtype](torch.zeros(1, dtype=dtype, device=device), out, grid=1, block=1)
        found.append(out.item())
    assert found == [16, 17, 32]


def test_the_version_of_cuda_is_known_as_by_pytorchs_headers() -> None:
    text = (
        "#include <ATen/cuda/CUDAContext.h>\n__global__ void k(c10::Half* x) { x[CUDA_VERSION / 1000] = 1; }"
    )
    dotcu.load_inline(text).compile("sm_80")


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(2, 3), "takes a float32 tensor of 3 dimensions"),
        (torch.zeros(2, 3, 4, dtype=torch.float64), "takes a float32 tensor of 3 dimensions"),
    ],
)
def test_an_accessor_refuses_what_it_cannot_hold(x: torch.Tensor, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        kernels.row_sums[torch.float32](x, torch.zeros(2, 3), grid=1, block=1)


def test_a_tensor_info_takes_a_tensor_of_any_rank(device: torch.device) -> None:
    for x in (torch.randn(7, device=device), torch.randn(3, 2, 4, device=device).transpose(0, 2)):
        out = torch.zeros(x.numel(), device=device)
        kernels.flat(x, out, x.numel(), grid=1, block=32)
        assert torch.equal(out, x.flatten())


def test_a_tensor_info_refuses_what_it_cannot_hold() -> None:
    for x, message in (
        (torch.zeros(2, dtype=torch.int32), "takes a float32 tensor of up to 25 dimensions"),
        (3.0, "Pass a tensor"),
        (torch.zeros([1] * 26), "Reshape it to 25 dimensions"),
        (torch.zeros(1).expand(2**31), "for indices of 64 bits"),
    ):
        with pytest.raises(ArgumentError, match=message):
            kernels.flat(x, torch.zeros(1), 1, grid=1, block=1)


def test_numbers_limits_and_states_of_generators(device: torch.device) -> None:
    y = torch.zeros(3, dtype=torch.bfloat16, device=device)
    out = torch.zeros(3, dtype=torch.int64, device=device)
    x = torch.tensor([1.5], dtype=torch.float16, device=device)
    kernels.numbers(x, y, struct.pack("4Q", 3, 4, 0, 0), out, grid=1, block=1)
    assert y.tolist() == [2, torch.finfo(torch.bfloat16).min, float("inf")]
    assert out.tolist() == [4, 7, 4]


def test_a_shim_of_the_names_is_taken_as_it_is(device: torch.device) -> None:
    text = """
        #include <vector>
        namespace c10 { struct Half { unsigned short bits; }; }
        namespace at { using c10::Half; template <typename T> struct Pair { T a, b; }; }
        __global__ void copy(const at::Half* x, c10::Half* y) {
            at::Pair<c10::Half> both{x[0], x[1]};
            y[0] = both.b;
        }
        int main() { std::vector<int> v; copy<<<1, 1>>>(nullptr, nullptr); }
    """
    x = torch.tensor([1, 2], dtype=torch.float16, device=device)
    y = torch.zeros(1, dtype=torch.float16, device=device)
    dotcu.load_inline(text).copy(x, y, grid=1, block=1)
    assert y.item() == 2


def test_macros_of_the_file_itself_win(device: torch.device) -> None:
    text = """
        #include <torch/extension.h>
        #ifndef CUDA_KERNEL_LOOP
        #define CUDA_KERNEL_LOOP(i, n) for (int i = threadIdx.x; i < (n); i += blockDim.x)
        #endif
        __global__ void fill(float* x, int n) { CUDA_KERNEL_LOOP(i, n) x[i] = i; }
        void fill_cuda(at::Tensor x) { fill<<<1, 32>>>(x.data_ptr<float>(), x.numel()); }
    """
    x = torch.zeros(5, device=device)
    dotcu.load_inline(text).fill(x, 5, grid=1, block=2)
    assert x.tolist() == [0, 1, 2, 3, 4]


def test_a_template_that_names_no_type_of_pytorch_can_be_instantiated_with_one(device: torch.device) -> None:
    text = """
        #include <torch/extension.h>
        template <typename scalar_t> __global__ void sum(const scalar_t* x, scalar_t* out) {
            atomicAdd(out, x[threadIdx.x] > 0 ? __ldg(x + threadIdx.x) * 2 : scalar_t(0));
        }
        void sum_cuda(at::Tensor x) { sum<float><<<1, 32>>>(x.data_ptr<float>(), nullptr); }
    """
    module = dotcu.load_inline(text)
    for name, dtype in (("c10::Half", torch.float16), ("at::BFloat16", torch.bfloat16)):
        x = torch.tensor([1, -5, 3], dtype=dtype, device=device)
        out = torch.zeros(1, dtype=dtype, device=device)
        module.sum[name](x, out, grid=1, block=3)
        assert out.item() == 8


def test_what_only_pytorch_has_is_named() -> None:
    text = "#include <torch/extension.h>\n__global__ void k(at::Tensor x) {}\n"
    with pytest.raises((CompileError, dotcu.errors.HostCodeError), match=r"at::Tensor|Tensor"):
        dotcu.load_inline(text).compile("sm_80")
