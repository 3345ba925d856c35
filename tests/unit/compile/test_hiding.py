"""A source with some of its kernels alone."""

from __future__ import annotations

import pytest

from dotcu.compile import CompileOptions, inline_source, kernels
from dotcu.compile.hiding import alone

TEXT = """
__device__ int helper(int x) { return x + 1; }
__global__ void declared(int*);
namespace inner { __global__ void __launch_bounds__(32) first(int* x) { if (*x) { *x = helper(*x); } } }
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void second(int* x) {
#ifdef WIDE
    *x = 2;
#endif
}
#else
extern "C" __global__ void second(long* x) { *x = '}'; /* } */ }
#endif
template <typename T, int N = 2> __global__ void third(T* x) { *x = N; }
template <> __global__ void third<float, 3>(float* x) { *x = 3; }
template __global__ void third<int, 4>(int*);
__global__ void declared(int* x) { *x = 5; }
"""
EVERY = ("declared", "first", "second", "third")


def shown(*names: str) -> str:
    return alone(inline_source(TEXT), CompileOptions(), names).text


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("inner::first", "inner::first"),
        ("second", "second"),
        ("third<float>", "third"),
        ("declared", "declared"),
    ],
)
def test_one_kernel_stays(name: str, kernel: str) -> None:
    assert {found.name for found in kernels(shown(name))} == {kernel}


def test_what_is_no_kernel_stays() -> None:
    assert "__device__ int helper(int x) { return x + 1; }" in shown()
    assert kernels(shown()) == ()


@pytest.mark.parametrize("names", [(), ("second",), ("third<int>", "inner::first")])
def test_every_line_keeps_its_number_and_its_length(names: tuple[str, ...]) -> None:
    assert list(map(len, shown(*names).split("\n"))) == list(map(len, TEXT.split("\n")))


def test_specializations_stay_with_their_template_and_instantiations_go() -> None:
    text = shown("third<float, 3>")
    assert "third<float, 3>(float* x)" in text
    assert "third<int, 4>" not in text


def test_both_branches_of_a_choice_stay_or_go() -> None:
    assert shown("second").count("void second(") == 2
    assert "second" not in shown("declared")
    assert "WIDE" not in shown("declared")
