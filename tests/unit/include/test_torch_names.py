"""PyTorch's vocabulary for device code: files that use it load unchanged and give right values."""

from __future__ import annotations

import cmath
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


FLOAT8 = [
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_numbers_of_8_bits_are_converted_as_pytorch_does(device: torch.device, dtype: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8, device=device).view(dtype)
    near = torch.tensor([464.0, 465, 448, 57344, 61440, 61441, 65536, 240, 248, 249], device=device)
    x = torch.cat([torch.logspace(-45, 12, 2000, 2, device=device), near, codes.float().nan_to_num(1)])
    x = x.abs() if dtype == torch.float8_e8m0fnu else torch.cat([x, -x])
    if (
        dtype == torch.float8_e4m3fn and x.to(dtype).float().isnan().any()
    ):  # torch before 2.13, where what is too large was NaN
        x = x[x.abs() <= torch.finfo(dtype).max]
    to, back = (
        torch.zeros(len(x), dtype=torch.uint8, device=device).view(dtype),
        torch.zeros(256, device=device),
    )
    kernels.convert[torch.float32, dtype](x, to, len(x), grid=dotcu.cdiv(len(x), 256), block=256)
    kernels.convert[dtype, torch.float32](codes, back, 256, grid=1, block=256)
    assert torch.equal(to.view(torch.uint8), x.to(dtype).view(torch.uint8))
    assert torch.equal(back.nan_to_num(0.75), codes.float().nan_to_num(0.75))


COMPLEX = {
    "std::conj(z)": lambda z, w: z.conjugate(), "std::exp(z)": lambda z, w: cmath.exp(z),
    "std::log(z)": lambda z, w: cmath.log(z), "std::sqrt(-z)": lambda z, w: cmath.sqrt(-z),
    "std::pow(z, w)": lambda z, w: z**w, "std::pow(z, T(3))": lambda z, w: z**3,
    "std::sin(z)": lambda z, w: cmath.sin(z), "std::cos(z)": lambda z, w: cmath.cos(z),
    "std::tan(z)": lambda z, w: cmath.tan(z), "std::tanh(z)": lambda z, w: cmath.tanh(z),
    "c10::polar(T(2), T(1))": lambda z, w: cmath.rect(2, 1), "z / T(2) + T(1) * w": lambda z, w: z / 2 + w,
    "{std::abs(z), std::arg(z)}": lambda z, w: complex(*cmath.polar(z)),
    "{std::real(z), std::imag(z) + std::abs(T(-1))}": lambda z, w: z + 1j,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_functions_of_complex_numbers(device: torch.device, dtype: torch.dtype) -> None:
    lines = "".join(f"y[{i}] = c10::complex<T>({text.strip('{}')});" for i, text in enumerate(COMPLEX))
    module = dotcu.load_inline(f"""
        #include <c10/util/complex.h>
        template <typename T>
        __global__ void k(c10::complex<T> z, c10::complex<T> w, c10::complex<T>* y) {{ {lines} }}
    """)
    y = torch.zeros(len(COMPLEX), 2, dtype=dtype, device=device)
    z, w = 0.25 - 1.25j, 0.5 + 0.25j
    one = "2f" if dtype == torch.float32 else "2d"
    module.k[dtype](struct.pack(one, 0.25, -1.25), struct.pack(one, 0.5, 0.25), y, grid=1, block=1)
    expected = [[value(z, w).real, value(z, w).imag] for value in COMPLEX.values()]
    torch.testing.assert_close(y, torch.tensor(expected, dtype=dtype, device=device))


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
