"""Host code in a file of kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dotcu.compile import ObjectCode, host_code, read_source
from dotcu.errors import HostCodeError

Build = Callable[..., ObjectCode]


@pytest.mark.parametrize(
    "line",
    [
        "k<<<1, 256>>>(x);",
        "#include <torch/extension.h>",
        "#include <ATen/cuda/CUDAContext.h>",
        "#  include <vector>",
        "int main() { return 0; }",
        "int main(int argc, char** argv)",
        "cudaMalloc(&p, 4);",
        "cudaMemcpyAsync(a, b, n, cudaMemcpyHostToDevice, s);",
        "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {",
        "TORCH_LIBRARY(mylib, m) {",
        "torch::Tensor f(torch::Tensor x);",
        "std::vector<int> v;",
    ],
)
def test_each_kind_of_host_code_is_named_unless_it_is_guarded(line: str) -> None:
    (found,) = host_code(f"__global__ void k(float* x) {{}}\n{line}\n")
    assert (found.line, found.text) == (2, line)
    assert host_code(f"#ifndef __CUDACC_RTC__\n{line}\n#endif\n") == ()
    assert host_code(f"#if !defined(__CUDACC_RTC__)\n{line}\n#endif\n") == ()
    assert host_code(f"#ifdef BUILD_HOST\n{line}\n#endif\n") == ()
    assert len(host_code(f"#ifdef BUILD_HOST\n{line}\n#endif\n", {"BUILD_HOST"})) == 1
    assert host_code(f"// {line}\n") == ()


def test_device_code_is_not_named() -> None:
    text = """#include <cuda_fp16.h>
    #include <curand_kernel.h>
    #include <cuda/std/array>
    __device__ int domain(int x) { return x << 3 >> 1; }
    __global__ void k(int* x) { cuda::std::array<int, 2> a; printf("<<<"); cudaGridDependencySynchronize(); }
    """
    assert host_code(text) == ()


def test_the_error_lists_lines_and_how_one_file_serves_both(make: Build, tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(
        "#include <torch/extension.h>\n__global__ void k(int* x) {}\nint main() { k<<<1, 1>>>(0); }\n"
    )
    with pytest.raises(HostCodeError) as error:
        make(read_source(path))
    message = str(error.value)
    assert f"{path}:1: PyTorch's or a binding's header: #include <torch/extension.h>" in message
    assert f"{path}:3: a launch:" in message
    assert "#ifndef __CUDACC_RTC__" in message


def test_a_host_function_that_only_the_compiler_knows_is_host_code(make: Build) -> None:
    with pytest.raises(HostCodeError, match=r"inline\.cu:2: a function without __device__: int half"):
        make("__global__ void k(int* x) {}\nint half(int x) { return x / 2; }\n")


def test_the_guarded_file_compiles(make: Build) -> None:
    text = """__global__ void k(int* x) { *x = 1; }
    #ifndef __CUDACC_RTC__
    #include <vector>
    int main() { std::vector<int> v; k<<<1, 1>>>(nullptr); }
    #endif
    """
    assert make(text).lowered == {"k": "_Z1kPi"}
