"""Kernels of a file, compiled and disassembled; tile kernels too."""

from __future__ import annotations

import platform
import re
from dataclasses import replace
from pathlib import Path

import pytest

import dotcu
import dotcu.gallery
from dotcu import process, settings
from dotcu.compile import CompileOptions, Declaration, Target, inline_source, read_source, toolchain
from dotcu.errors import JitDisabled, UsageError
from dotcu.inspection import binary
from dotcu.inspection.build import (
    BuildRequest,
    FailedBuild,
    FileUnit,
    KernelCode,
    compile_kernels,
    cxx_argument,
    instantiation,
    kernels_in_source,
)
from dotcu.inspection.listing import emit
from dotcu.inspection.page import page_of, render
from dotcu.inspection.report import InspectReport, SimulatedCounts
from dotcu.kernel.declarations import split_arguments, template_head
from dotcu.simulator import LineCounters
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


SOURCE = """
__global__ void plain(int* x) {}
template <typename T, int N> __global__ void scale(T* x) {}
namespace deep { template <typename T> __global__ void inner(T* x) {} }
namespace other { template <typename T> __global__ void inner(T* x) {} }
"""


def found(*instantiate: str, text: str = SOURCE) -> tuple[FileUnit, list[FileUnit], tuple[Declaration, ...]]:
    return kernels_in_source(inline_source(text), CompileOptions(), instantiate)


def names(*instantiate: str) -> list[tuple[str, ...]]:
    plain, instances, _ = found(*instantiate)
    return [plain.names, *(unit.names for unit in instances)]


def test_plain_kernels_are_one_unit_and_each_instantiation_one() -> None:
    assert names("scale[float32,256]", "scale[float, 8]") == [
        ("plain",), ("scale<float, 256>",), ("scale<float, 8>",),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "arguments"),
    [
        ("scale[float32,256]", "<float, 256>"),
        ("scale[torch.bfloat16, 8]", "<__nv_bfloat16, 8>"),
        ("scale[pair<int, float>, 8]", "<pair<int, float>, 8>"),
        ("scale[int64,True]", "<long long, true>"),
    ],
)
def test_dtypes_stand_for_their_types_and_anything_else_for_itself(asked: str, arguments: str) -> None:
    assert names(asked)[1] == (f"scale{arguments}",)


def test_the_header_that_an_argument_needs_is_included() -> None:
    _, (instance,), _ = found("scale[float16,1]")
    assert "#include <cuda_fp16.h>" in instance.source.text


def test_a_template_that_no_one_instantiates_says_what_to_type() -> None:
    (template,) = [one for one in found("deep::inner[int32]")[2] if one.name == "scale"]
    assert template_head(template) == "template <typename T, int N> scale"
    assert instantiation(template) == "scale[float32,256]"


def test_a_name_that_several_have_must_be_whole() -> None:
    with pytest.raises(UsageError, match="has 2 templates of kernels of that name"):
        found("inner[int32]")
    assert names("deep::inner[int32]")[1] == ("deep::inner<int>",)


@pytest.mark.parametrize("asked", ["scale", "scale[", "scale<float>", "[float]", ""])
def test_what_is_no_template_with_arguments_is_refused(asked: str) -> None:
    with pytest.raises(UsageError, match=r"scale\[float32,256\]"):
        found(asked)


def test_a_template_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="template <typename T, int N> scale"):
        found("missing[float32]")


def test_a_file_without_templates_says_so() -> None:
    with pytest.raises(UsageError, match="It has none"):
        found("missing[float32]", text="__global__ void plain(int* x) {}")


def test_too_few_arguments_are_refused() -> None:
    shown = r"takes 2 template arguments, got 1.*\n.*\nType: --instantiate 'scale\[float32,"
    with pytest.raises(UsageError, match=shown):
        found("scale[float32]")


def test_commas_within_brackets_part_nothing() -> None:
    assert split_arguments("pair<int, 2>, f(1, 2),3") == ("pair<int, 2>", "f(1, 2)", "3")
    assert split_arguments("") == ()


@pytest.mark.parametrize(("given", "text"), [("float32", "float"), ("'uint8'", "unsigned char"), ("3", "3")])
def test_arguments_are_spelled_for_the_compiler(given: str, text: str) -> None:
    assert cxx_argument(given) == text


TILE_SOURCE = """\
#include "cuda_tile.h"
namespace ct = cuda::tiles;

[[cutile::hint(0, num_cta_in_cga = 2)]]
__tile_global__ void twice(float* __restrict__ x, int n) {
  auto span = ct::tensor_span{ct::assume_aligned<16>(x), ct::extents{n}};
  auto v = ct::partition_view{span, ct::shape<512>{}};
  auto i = ct::bid().x;
  v.store_masked(v.load_masked(i) * 2.0f, i);
}

__global__ void plain(float* x) { x[threadIdx.x] *= 2; }
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernels") / "twice.cu"
    path.write_text(TILE_SOURCE)
    return path


@pytest.fixture(scope="module")
def report(file: Path) -> InspectReport:
    found = dotcu.inspect(str(file), arch="sm_90")
    assert isinstance(found, InspectReport)
    return found


def test_both_kinds_are_reported_each_with_its_machine_code(report: InspectReport) -> None:
    assert {one.code.name: one.code.language for one in report.kernels} == {
        "plain": "PTX",
        "twice": "Tile IR",
    }
    for one in report.kernels:
        assert one.instructions
        assert one.emitted


def test_resources_come_from_the_cubin(report: InspectReport) -> None:
    twice = report.kernel("twice")
    assert twice.code.resources is not None
    assert twice.code.resources.cluster == 2
    text = str(report)
    assert f"{twice.code.resources.threads} threads per tile block, clusters of 2 thread blocks" in text
    assert "chosen by the compiler" in text


def test_the_host_code_of_a_tile_kernel_is_shown(report: InspectReport, tmp_path: Path) -> None:
    runs = f"for {platform.machine()}: it runs in the process that loads it"
    assert str(report).count(runs) == 1
    cubin = report.kernel("twice").code.cubin
    assert cubin is not None
    (tmp_path / "twice.cubin").write_bytes(cubin)
    alone = binary.read(tmp_path / "twice.cubin")
    assert runs in str(alone)
    assert alone.to_json()["host_code"] == platform.machine()


def test_operations_name_their_source_line(report: InspectReport) -> None:
    twice = report.kernel("twice")
    line = next(line for line in twice.code.ptx if line.opcodes == ("load_view_tko",))
    assert line.chain[-1].line == 9
    assert line.chain[-1].file == twice.code.file
    assert {at.line for i in twice.instructions for at in i.chain if at.file == twice.code.file} & {9}


def test_counts_of_tiles_are_no_reason_to_speak_of_lanes(report: InspectReport) -> None:
    twice, plain = report.kernel("twice"), report.kernel("plain")
    total = LineCounters(lane_instructions=10, warp_instructions=10)
    counts = SimulatedCounts(call="a call", total=total, lines={(twice.code.file, 9): total})
    assert "idle lanes" in {remark.kind for remark in replace(plain, counts=counts).remarks}
    assert replace(twice, counts=counts).remarks == twice.remarks


def test_the_page_calls_the_pane_tile_ir(report: InspectReport) -> None:
    data = page_of(report)
    assert {one["name"]: one["language"] for one in data["kernels"]} == {"plain": "PTX", "twice": "Tile IR"}
    page = render(data)
    assert "TITLES.ptx = kernel.language" in page
    assert "load_view_tko" in page


def test_tile_ir_can_be_emitted(file: Path) -> None:
    one = dotcu.inspect(f"{file}:twice", arch="sm_90")
    assert isinstance(one, InspectReport)
    assert b"entry @" in emit(one, "tileir")
    assert b"load_view_tko" in emit(one, "tileir")
    assert emit(one, "cubin").startswith(b"\x7fELF")
    with pytest.raises(UsageError, match="--emit tileir"):
        emit(one, "ptx")


def test_a_kernel_with_ptx_has_no_tile_ir(file: Path) -> None:
    one = dotcu.inspect(f"{file}:plain", arch="sm_90")
    assert isinstance(one, InspectReport)
    with pytest.raises(UsageError, match="--emit ptx"):
        emit(one, "tileir")


def test_the_cubin_of_both_kinds_is_not_one(report: InspectReport) -> None:
    with pytest.raises(UsageError, match="a cubin each"):
        emit(report, "cubin")


def test_without_machine_code_operations_are_counted(file: Path) -> None:
    report = dotcu.inspect(f"{file}:twice", arch="compute_90")
    assert isinstance(report, InspectReport)
    (twice,) = report.kernels
    assert twice.level == "Tile IR"
    assert {one.label for one in twice.emitted} == {"load_view_tko", "store_view_tko"}
