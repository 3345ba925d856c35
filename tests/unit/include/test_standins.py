"""The stand-ins for host headers: they compile under NVRTC, beside CUDA's own, and say what the host's do."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
import torch

import dotcu
from dotcu import process
from dotcu.compile import (
    CompileOptions,
    Target,
    build,
    inline_source,
    plan_build,
    read_source,
    toolchain,
)
from dotcu.errors import CompileError
from helpers.quick_cases import quick

INCLUDE = Path(dotcu.__file__).parent / "include"
STANDINS = [*sorted(path.name for path in (INCLUDE / "nvrtc").iterdir() if path.is_file()), "sys/types.h"]
EVERY_STANDIN = "".join(f"#include <{name}>\n" for name in STANDINS)
PAGE = Path(__file__).parent / "standins.cu"
COMPUTE_80 = Target.parse("compute_80")

KERNEL = "__global__ void empty() {}\n"


def warnings_of(text: str) -> list[str]:
    built = build(inline_source(text + KERNEL), options=CompileOptions(), target=COMPUTE_80, names=["empty"])
    return [warning.message for warning in built.warnings]


@pytest.mark.parametrize("name", STANDINS)
def test_a_stand_in_compiles_alone_and_twice(name: str) -> None:
    assert warnings_of(f"#include <{name}>\n#include <{name}>\n") == []


CUDA_HEADERS = (
    "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "cuda_pipeline.h", "cuda/std/cstdint", "cuda/std/cfloat",
    "cuda/std/cstddef", "cuda/std/limits", "cuda/std/type_traits", "cuda/std/tuple", "cuda/std/array",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "headers",
    [CUDA_HEADERS, *(pytest.param((name,), marks=pytest.mark.slow) for name in CUDA_HEADERS)],
    ids=" ".join,
)
def test_the_stand_ins_clash_with_no_header_of_cuda_before_or_after_them(headers: tuple[str, ...]) -> None:
    others = "".join(f"#include <{header}>\n" for header in headers)
    assert warnings_of(EVERY_STANDIN + others) == []
    assert warnings_of(others + EVERY_STANDIN) == []


@pytest.mark.slow
def test_the_stand_in_for_cmath_takes_the_infinity_that_cuda_std_cmath_defined() -> None:
    assert warnings_of("#include <cuda/std/cmath>\n#include <cmath>\n__device__ float x = -INFINITY;\n") == []


def test_what_the_stand_ins_declare_holds_under_nvrtc() -> None:
    built = build(
        read_source(PAGE),
        options=CompileOptions(),
        target=COMPUTE_80,
        names=["floats", "rest", "library", "heap"],
    )
    assert [warning.message for warning in built.warnings] == []


@pytest.mark.slow
def test_the_same_holds_of_the_host_headers_under_nvcc(tmp_path: Path) -> None:
    nvcc = process.find("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed: it compares the stand-ins with the host's own headers")
    options = ["-c", "-std=c++17", "--expt-relaxed-constexpr"]  # the host's constexpr functions in a kernel
    finished = process.run([nvcc, *options, f"-I{INCLUDE}", PAGE, "-o", tmp_path / "page.o"], timeout_s=120)
    assert finished.status == 0, finished.stderr


def test_the_stand_ins_are_on_no_path_that_nvcc_is_given() -> None:
    assert not {path.name for path in INCLUDE.iterdir() if path.is_file()} & set(STANDINS)


def test_ndebug_in_the_file_turns_assert_off(device: torch.device) -> None:
    text = "#define NDEBUG\n#include <cassert>\n__global__ void k(int* out) { assert(false); *out = 1; }\n"
    out = torch.zeros(1, dtype=torch.int32, device=device)
    dotcu.load_inline(text).k(out, grid=1, block=1)
    assert out.item() == 1


def test_constants_and_functions_have_the_host_values(device: torch.device) -> None:
    kernels = dotcu.load(PAGE)
    floats = torch.zeros(9, dtype=torch.float32, device=device)
    kernels.floats(floats, grid=1, block=9)
    largest = torch.finfo(torch.float32).max
    expected = [math.inf, -math.inf, math.nan, largest, 3.0, 4.0, 3.0, 8.0, 11.0]
    torch.testing.assert_close(floats.cpu(), torch.tensor(expected), rtol=0, atol=0, equal_nan=True)

    rest = torch.zeros(2, dtype=torch.int32, device=device)
    kernels.rest(rest, grid=1, block=1)
    assert rest.tolist() == [2, 4]

    library = torch.zeros(7, dtype=torch.float32, device=device)
    kernels.library(library, struct.pack("4i", 10, 20, 30, 40), grid=1, block=1)
    assert library.tolist() == [50, 9, 10, 26, 12, 6, 4]


@pytest.mark.parametrize("declared", ["", "typedef unsigned int uint;\n", "#define uint unsigned int\n"])
def test_the_short_names_of_unsigned_integers_are_known_as_they_are_to_nvcc(
    device: torch.device, declared: str
) -> None:
    text = (
        declared + "__global__ void k(int* x, uint n) { ushort i = threadIdx.x; if (i < n) x[i] = __LINE__; }"
    )
    x = torch.zeros(4, dtype=torch.int32, device=device)
    dotcu.load_inline(text).k(x, 3, grid=1, block=4)
    line = text.count("\n") + 1
    assert x.tolist() == [line, line, line, 0]


CUB = """
__global__ void sums(const int* x, int* out) {
    using Reduce = cub::BlockReduce<int, 64>;
    using Warp = cub::WarpReduce<int>;
    __shared__ typename Reduce::TempStorage room;
    __shared__ typename Warp::TempStorage rooms[2];
    int sum = Reduce(room).Sum(x[threadIdx.x]);
    int most = Warp(rooms[threadIdx.x / 32]).Reduce(x[threadIdx.x], [](int a, int b) { return max(a, b); });
    if (threadIdx.x == 0) out[0] = sum;
    if (threadIdx.x % 32 == 0) out[1 + threadIdx.x / 32] = most;
}
"""
LAUNCH = """
int main() {
    size_t bytes = 0;
    cub::DeviceReduce::Sum(nullptr, bytes, (int*)nullptr, (int*)nullptr, 3);
}
"""


@pytest.mark.parametrize(
    "header", quick(["cub/device/device_reduce.cuh"], ["cub/cub.cuh", "cub/device/device_reduce.cuh"])
)
def test_cub_is_there_for_warps_and_blocks_and_left_out_where_it_launches(
    device: torch.device, header: str
) -> None:
    kernels = dotcu.load_inline(f"#include <{header}>\n{CUB}{LAUNCH}")
    out = torch.zeros(3, dtype=torch.int32, device=device)
    kernels.sums(torch.arange(64, dtype=torch.int32, device=device), out, grid=1, block=64)
    assert out.tolist() == [2016, 31, 63]


def test_cub_for_host_code_alone_is_not_compiled() -> None:
    text = (
        "#include <cub/cub.cuh>\n#include <thrust/sort.h>\n__global__ void k(int* x) { *x = 1; }\n" + LAUNCH
    )
    plan = plan_build(inline_source(text), options=CompileOptions(), target=COMPUTE_80, names=["k"])
    assert not plan.includes.system


@pytest.mark.slow
def test_cub_that_launches_is_named_where_a_kernel_uses_it() -> None:
    text = "#include <cub/cub.cuh>\n__global__ void k(size_t* n) { cub::DeviceReduce::Sum(n, *n, n, n, 3); }"
    with pytest.raises(CompileError, match=r"cub::DeviceReduce launches kernels: it is for host code"):
        dotcu.load_inline(text).compile("sm_80")


@pytest.mark.slow
def test_thrust_has_complex_numbers_for_device_code(device: torch.device) -> None:
    kernels = dotcu.load_inline("""
        #include <thrust/complex.h>
        __global__ void k(thrust::complex<float>* z) { *z = exp(*z) * thrust::complex<float>(2, 1); }
    """)
    z = torch.tensor([1 + 2j], dtype=torch.complex64, device=device)
    expected = z.exp() * (2 + 1j)
    kernels.k(z, grid=1, block=1)
    torch.testing.assert_close(z, expected)


def test_random_numbers_of_curand_are_those_of_philox(device: torch.device) -> None:
    if not any((folder / "curand_kernel.h").is_file() for folder in toolchain.nvrtc().include):
        pytest.skip('curand_kernel.h is not installed: pip install "dotcu[curand]"')
    kernels = dotcu.load_inline("""
        #include <curand_kernel.h>
        __global__ void draw(unsigned* bits, float* out) {
            curandStatePhilox4_32_10_t state;
            curand_init(1234, threadIdx.x, 0, &state);
            bits[threadIdx.x] = curand(&state);
            out[threadIdx.x] = curand_uniform(&state);
        }
    """)
    bits, out = torch.zeros(4, dtype=torch.uint32, device=device), torch.zeros(4, device=device)
    kernels.draw(bits, out, grid=1, block=4)
    drawn = [philox((0, 0, thread, 0), (1234, 0)) for thread in range(4)]
    assert bits.tolist() == [numbers[0] for numbers in drawn]
    expected = torch.tensor([(numbers[1] + 0.5) / 2**32 for numbers in drawn])
    torch.testing.assert_close(out.cpu(), expected)


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Return four numbers of Philox4x32-10. Source: Salmon et al., Parallel random numbers, 2011."""
    (a, b, c, d), (k, m) = counter, key
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b = (second >> 32) ^ b ^ k, second & 0xFFFFFFFF
        c, d = (first >> 32) ^ d ^ m, first & 0xFFFFFFFF
        k, m = (k + 0x9E3779B9) & 0xFFFFFFFF, (m + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d
