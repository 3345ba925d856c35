"""The stand-ins for host headers: they compile under NVRTC, beside CUDA's own, and say what the host's do."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import dotcu
from dotcu import process
from dotcu.compile import CompileOptions, Target, build, inline_source, read_source

INCLUDE = Path(dotcu.__file__).parent / "include"
STANDINS = sorted(path.name for path in (INCLUDE / "nvrtc").iterdir() if path.is_file())
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
    "cuda/std/cstddef", "cuda/std/limits", "cuda/std/type_traits",
)  # fmt: skip


@pytest.mark.parametrize(
    "headers",
    [CUDA_HEADERS, *(pytest.param((name,), marks=pytest.mark.slow) for name in CUDA_HEADERS)],
    ids=" ".join,
)
def test_the_stand_ins_clash_with_no_header_of_cuda_before_or_after_them(headers: tuple[str, ...]) -> None:
    others = "".join(f"#include <{header}>\n" for header in headers)
    assert warnings_of(EVERY_STANDIN + others) == []
    assert warnings_of(others + EVERY_STANDIN) == []


def test_the_stand_in_for_cmath_takes_the_infinity_that_cuda_std_cmath_defined() -> None:
    assert warnings_of("#include <cuda/std/cmath>\n#include <cmath>\n__device__ float x = -INFINITY;\n") == []


def test_what_the_stand_ins_declare_holds_under_nvrtc() -> None:
    built = build(
        read_source(PAGE), options=CompileOptions(), target=COMPUTE_80, names=["floats", "rest", "heap"]
    )
    assert [warning.message for warning in built.warnings] == []


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
