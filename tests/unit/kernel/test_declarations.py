"""What only the compiler sees, since macros make it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dotcu.errors import CompileError, KernelNotFound
from dotcu.kernel import Module, load_inline

SOURCE = """
#define MK(T) put_##T
#define TEMPLATE(name) template <typename T, int N> __global__ void name(T* x) { *x = T(N); }
#define TABLE(name) __constant__ float name[2]; __device__ int name##_count
TABLE(table);
__global__ void MK(float)(float* x) { *x = table[1]; }
__global__ void count(int* x) { *x = atomicAdd(&table_count, 1); }
namespace deep { TEMPLATE(made) }
TEMPLATE(filled)
namespace { __global__ void anon(float* x) { *x = 7; } }
__device__ int helper(int x) { return x; }
"""


@pytest.fixture
def module() -> Module:
    return load_inline(SOURCE)


def value(module: Module, name: str, device: torch.device) -> float:
    x = torch.zeros(1, device=device)
    module.kernels[name](x, grid=1, block=1)
    return float(x.item())


def test_the_name_of_a_macro_is_no_kernel(module: Module) -> None:
    assert list(module.kernels) == ["count", "anon"]
    with pytest.raises(KernelNotFound, match="no kernel named 'MK'"):
        _ = module.MK


def test_a_header_with_the_macro_is_read_too(tmp_path: Path, device: torch.device) -> None:
    (tmp_path / "macros.h").write_text("#define NAMED renamed\n")
    text = '#include "macros.h"\n__global__ void NAMED(float* x) { *x = 3; }\n'
    module = load_inline(text, include=[tmp_path])
    assert list(module.kernels) == []
    assert value(module, "renamed", device) == 3
    assert list(module.kernels) == ["renamed"]


def test_a_kernel_without_a_name_in_the_text_is_found(module: Module, device: torch.device) -> None:
    assert value(module, "put_float", device) == 0


def test_an_unnamed_namespace_adds_no_second_name(module: Module, device: torch.device) -> None:
    assert value(module, "anon", device) == 7
    _ = module.put_float
    assert list(module.kernels) == ["count", "anon", "put_float"]


@pytest.mark.parametrize("name", ["filled", "deep::made"])
def test_a_template_that_a_macro_makes_is_found(module: Module, device: torch.device, name: str) -> None:
    x = torch.zeros(1, device=device)
    template = module.kernels[name]
    assert template.is_template
    template[torch.float32, 5](x, grid=1, block=1)
    assert x.item() == 5
    with pytest.raises(CompileError, match=r"(filled|made)<float>"):
        template[torch.float32](x, grid=1, block=1)


def test_what_is_no_kernel_is_not_found(module: Module) -> None:
    for name in ("helper", "table", "made", "no such name", "nothing"):
        with pytest.raises(KernelNotFound, match=f"no kernel named '{name}'"):
            module.kernels[name]


def test_a_variable_that_a_macro_makes_is_written(module: Module, device: torch.device) -> None:
    assert value(module, "put_float", device) == 0
    module.variable("table").write(torch.tensor([1.0, 2.0]))
    assert value(module, "put_float", device) == 2
    other = load_inline(SOURCE)
    other.variable("table").write(torch.tensor([3.0, 4.0]))
    assert value(other, "put_float", device) == 4
    with pytest.raises(
        KernelNotFound, match=r'named \'tabel\'; .*\nDid you mean module\.variable\("table"\)'
    ):
        module.variable("tabel")


def test_a_kernel_that_a_macro_makes_shares_the_variables(device: torch.device) -> None:
    module = load_inline("""
        __device__ int counter;
        #define MAKE(name) __global__ void name(int* x) { *x = atomicAdd(&counter, 1); }
        MAKE(one)
        __global__ void two(int* x) { *x = atomicAdd(&counter, 10); }
    """)
    x = torch.zeros(1, dtype=torch.int32, device=device)
    module.two(x, grid=1, block=1)
    module.one(x, grid=1, block=1)
    assert x.item() == 10
    module.two(x, grid=1, block=1)
    assert x.item() == 11


def test_a_name_that_several_have_is_refused_with_python_to_type() -> None:
    text = "namespace a { __global__ void same() {} } namespace c { __global__ void same() {} }"
    module = load_inline(text + " namespace a { __constant__ int t; } namespace c { __constant__ int t; }")
    with pytest.raises(KernelNotFound, match=r"2 kernels named same: a::same, c::same") as caught:
        _ = module.same
    expression = str(caught.value).splitlines()[1].removeprefix("Say which: ")
    assert eval(expression) is module.kernels["a::same"]
    with pytest.raises(KernelNotFound, match=r'Say which: module\.variable\("a::t"\)'):
        module.variable("t")
    with pytest.raises(KernelNotFound, match=r'Did you mean module\.kernels\["[ac]::same"\]\?'):
        _ = module.sane


def test_a_compiler_that_cannot_be_asked_is_reported() -> None:
    broken = load_inline("__global__ void k(float* x) { x[0] = nope; }")
    message = r"^The compiler could not be queried: inline(.|\n)*\n\n.*no kernel named 'q'; it has k\."
    with pytest.raises(KernelNotFound, match=message):
        _ = broken.q
