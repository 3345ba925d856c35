from __future__ import annotations

import re
from pathlib import Path

import pytest

import dotcu.gallery
from dotcu import process, settings
from dotcu.compile import CompileOptions, Target, inline_source, read_source, toolchain
from dotcu.errors import JitDisabled
from dotcu.inspection.code.build import (
    BuildRequest,
    FailedBuild,
    FileUnit,
    KernelCode,
    compile_kernels,
    kernels_in_source,
)
from helpers.inspected_kernels import GENERATIONS, KERNELS, everything, needs_cuobjdump

GALLERY = Path(next(iter(dotcu.gallery.__path__)))
INSTANCES = {
    "add": ["add[float32,1,4,True]", "add[int64,1,2,False]", "add_number[float16,float32,2,4,True]"],
    "fast_add": ["fast_add[float16,8,1,True]", "fast_add[float32,1,4,False]"],
    "matmul": ["matmul_tiled[float32,float32,16]", "matmul_naive[bfloat16,float32,8]"],
    "square": ["square[float64,2,1]"],
    "sum": [
        "sum_rows[float32,float32,float32,float32,256,4]",
        "sum_columns[int8,int32,int64,int64,8,8,False]",
    ],
}
_CONSTANTS = re.compile(r"CONSTANT\[3\]:(\d+)")
_USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


def gallery(name: str, arch: str) -> list[KernelCode]:
    source = read_source(GALLERY / name / "kernel.cu")
    _, instances, _ = kernels_in_source(source, CompileOptions(), INSTANCES[name])
    made = [
        compile_kernels(BuildRequest(unit=unit, target=Target.parse(arch), only=unit.names))
        for unit in instances
    ]
    assert not any(isinstance(one, FailedBuild) for one in made)
    return [code for one in made if not isinstance(one, FailedBuild) for code in one]


def usage(cubin: bytes, folder: Path) -> dict[str, tuple[int, int, int]]:
    """Registers, stack and shared memory by symbol, as cuobjdump prints them."""
    path, tool = folder / "k.cubin", toolchain.find_tool("cuobjdump")
    path.write_bytes(cubin)
    assert tool is not None
    printed = process.run([tool, "-res-usage", path])
    return {
        name: (int(reg), int(stack), int(smem))
        for name, reg, stack, smem, _ in _USAGE.findall(printed.stdout)
    }


@needs_cuobjdump
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100", "sm_120"])
@pytest.mark.parametrize("name", INSTANCES)
def test_resources_of_the_gallery_are_those_that_cuobjdump_prints(
    name: str, arch: str, tmp_path: Path
) -> None:
    kernels = gallery(name, arch)
    assert len(kernels) == len(INSTANCES[name])
    for code in kernels:
        assert code.cubin is not None
        assert_same(code, usage(code.cubin, tmp_path)[code.symbol])


@needs_cuobjdump
@pytest.mark.parametrize("arch", ["sm_90a", *GENERATIONS[2:]])
def test_resources_of_spills_stacks_and_calls_are_those_that_cuobjdump_prints(
    arch: str, tmp_path: Path
) -> None:
    kernels = [kernel.code for kernel in everything(arch).values()]
    assert kernels[0].cubin is not None
    shown = usage(kernels[0].cubin, tmp_path)
    for code in kernels:
        assert_same(code, shown[code.symbol])


@needs_cuobjdump
@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
def test_constants_are_those_that_cuobjdump_prints(arch: str, tmp_path: Path) -> None:
    text = "__constant__ float table[300];\n__global__ void k(float* x) { x[0] = table[threadIdx.x]; }\n"
    made = compile_kernels(BuildRequest(unit=unit(text, "k"), target=Target.parse(arch)))
    assert not isinstance(made, FailedBuild)
    path, tool = tmp_path / "k.cubin", toolchain.find_tool("cuobjdump")
    path.write_bytes(made[0].cubin or b"")
    assert tool is not None
    shown = _CONSTANTS.search(process.run([tool, "-res-usage", path]).stdout)
    assert shown is not None
    assert made[0].resources is not None
    assert made[0].resources.constant_bytes == int(shown[1]) == 1200


def assert_same(code: KernelCode, shown: tuple[int, int, int]) -> None:
    registers, stack, smem = shown
    # From sm_90 on the cubin has what the driver keeps for itself in the shared memory of each block.
    reserved = 1024 if smem and code.arch.number >= 90 else 0
    assert code.resources is not None
    taken = code.resources.registers, code.resources.stack_bytes, code.resources.smem_bytes
    assert taken == (registers, stack, smem - reserved), code.name


def unit(text: str, *names: str) -> FileUnit:
    return FileUnit(source=inline_source(text), options=CompileOptions(), names=names)


def test_parameters_are_reported_as_the_source_has_them() -> None:
    kernel = everything("sm_90a")["copy_vectors"].code
    assert kernel.parameters == ("const int4*", "int4*")


def test_a_source_that_does_not_compile_is_a_value() -> None:
    made = compile_kernels(
        BuildRequest(unit=unit("__global__ void k(int* x) { x[0] = y; }", "k"), target=Target.parse("sm_90"))
    )
    assert isinstance(made, FailedBuild)
    assert made.names == ("k",)
    assert 'identifier "y" is undefined' in made.message


def test_a_kernel_that_one_architecture_lacks_fails_for_that_one_alone() -> None:
    text = """
__global__ void k(int* x) {
#if __CUDA_ARCH__ < 900
#error "too old"
#endif
    x[0] = 1;
}
"""
    old, new = (
        compile_kernels(BuildRequest(unit=unit(text, "k"), target=Target.parse(arch)))
        for arch in ("sm_80", "sm_90")
    )
    assert isinstance(old, FailedBuild)
    assert "too old" in old.message
    assert not isinstance(new, FailedBuild)
    assert [code.name for code in new] == ["k"]


def test_kernels_that_only_a_macro_makes_are_found() -> None:
    text = "#define MAKE(name) __global__ void name(int* x) { x[0] = 1; }\nMAKE(made)\n"
    found = compile_kernels(BuildRequest(unit=unit(text), target=Target.parse("sm_90")))
    assert not isinstance(found, FailedBuild)
    assert [(code.name, code.parameters) for code in found] == [("made", None)]


def test_of_ptx_alone_there_are_no_resources() -> None:
    kernel = everything("compute_90")["divide"].code
    assert kernel.resources is None
    assert kernel.cubin is None
    assert kernel.ptx


def test_where_compiling_is_forbidden_that_is_no_failure_of_the_kernel() -> None:
    never = unit("__global__ void never_compiled(int* x) {}", "never_compiled")
    with settings.override(jit="error"), pytest.raises(JitDisabled):
        compile_kernels(BuildRequest(unit=never, target=Target.parse("sm_90")))


def test_the_source_that_was_compiled_stays_with_the_kernel() -> None:
    kernel = everything("sm_90a")["divide"].code
    assert kernel.texts[kernel.file] == KERNELS


def test_instantiations_that_the_source_asks_for_itself_are_found_by_their_full_name() -> None:
    text = """
template <typename T> __global__ void scale(T* x) { x[0] *= 2; }
template __global__ void scale<float>(float*);
template __global__ void scale<double>(double*);
"""
    found = compile_kernels(BuildRequest(unit=unit(text), target=Target.parse("sm_90")))
    assert not isinstance(found, FailedBuild)
    assert {code.name for code in found} == {"scale<float>", "scale<double>"}
