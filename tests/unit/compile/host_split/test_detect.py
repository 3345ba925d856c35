"""Host code in a file of kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dotcu.compile import ObjectCode, read_source
from dotcu.compile.host_split.detect import host_code
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


def test_a_form_feed_in_a_comment_is_no_line() -> None:
    (sign,) = host_code("/* page one \f page two */\r\nint main() { return 0; }\r\n")
    assert (sign.line, sign.text) == (2, "int main() { return 0; }")


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
        "#include <string>\n__global__ void k(int* x)\n{\n    std::string s;\n    k<<<1, 1>>>(0);\n}\n"
    )
    with pytest.raises(HostCodeError) as error:
        make(read_source(path))
    message = str(error.value)
    assert message.startswith(f"Device code of {path} contains what only a host compiler accepts:")
    assert f"{path}:4: the host's standard library: std::string s;" in message
    assert f"{path}:5: a launch:" in message
    assert "#ifndef __CUDACC_RTC__" in message


def test_the_guarded_file_compiles(make: Build) -> None:
    text = """__global__ void k(int* x) { *x = 1; }
    #ifndef __CUDACC_RTC__
    #include <vector>
    int main() { std::vector<int> v; k<<<1, 1>>>(nullptr); }
    #endif
    """
    assert make(text).lowered == {"k": "_Z1kPi"}
