"""PTX and cubins as sources: kernels by name, arguments by size and kind, findings by line."""

from __future__ import annotations

import ctypes
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.compile import CompileOptions, Target, build
from dotcu.compile.source.source import inline_source
from dotcu.errors import (
    ArgumentError,
    FindingError,
    KernelNotFound,
    SourceError,
    SourceNotFound,
    UnsupportedInstruction,
    UsageError,
)
from dotcu.kernel.ptx_source import runs_on, shown_symbol

HEAD = ".version 8.0\n.target {target}\n.address_size 64\n"

SCALE = (
    HEAD
    + """
.visible .entry _Z5scaleIfEvPKT_PS0_S0_i(
    .param .u64 _Z5scaleIfEvPKT_PS0_S0_i_param_0, .param .u64 _Z5scaleIfEvPKT_PS0_S0_i_param_1,
    .param .f32 _Z5scaleIfEvPKT_PS0_S0_i_param_2, .param .u32 _Z5scaleIfEvPKT_PS0_S0_i_param_3)
{{
    .reg .b64 %rd<8>; .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .pred %p1;
    ld.param.u64 %rd1, [_Z5scaleIfEvPKT_PS0_S0_i_param_0];
    ld.param.u64 %rd2, [_Z5scaleIfEvPKT_PS0_S0_i_param_1];
    ld.param.f32 %f1, [_Z5scaleIfEvPKT_PS0_S0_i_param_2];
    ld.param.u32 %r1, [_Z5scaleIfEvPKT_PS0_S0_i_param_3];
    mov.u32 %r2, %tid.x;
    setp.ge.s32 %p1, %r2, %r1;
    @%p1 ret;
    cvta.to.global.u64 %rd3, %rd1;
    mul.wide.s32 %rd4, %r2, 4;
    add.s64 %rd5, %rd3, %rd4;
    ld.global.f32 %f2, [%rd5];
    mul.f32 %f3, %f1, %f2;
    cvta.to.global.u64 %rd6, %rd2;
    add.s64 %rd7, %rd6, %rd4;
    st.global.f32 [%rd7], %f3;
    ret;
}}
"""
)

KINDS = (
    HEAD
    + """
.visible .entry kinds(.param .u64 .ptr .global .align 4 out, .param .b32 alpha, .param .b32 count,
    .param .s32 low, .param .align 4 .b8 pair[8], .param .u64 steps, .param .b64 any)
{{
    .reg .b64 %rd<8>; .reg .b32 %r<8>; .reg .f32 %f<4>;
    ld.param.u64 %rd1, [out];
    ld.param.b32 %f1, [alpha];
    ld.param.b32 %r1, [count];
    ld.param.s32 %r2, [low];
    ld.param.u32 %r3, [pair];
    ld.param.u32 %r4, [pair+4];
    ld.param.u64 %rd2, [steps];
    add.f32 %f2, %f1, %f1;
    st.global.f32 [%rd1], %f2;
    add.s32 %r5, %r1, %r2;
    st.global.u32 [%rd1+4], %r5;
    sub.s32 %r6, %r3, %r4;
    st.global.u32 [%rd1+8], %r6;
    cvt.u32.u64 %r7, %rd2;
    st.global.u32 [%rd1+12], %r7;
    ret;
}}
"""
)

SOURCE = """
__constant__ float factor[2];
template <typename T> __global__ void scale(const T* x, T* out, T by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * by;
}
template __global__ void scale<float>(const float*, float*, float, int);
namespace ns {
__global__ void by_factor(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x] * factor[1]; }
}
"""


class Pair(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int), ("second", ctypes.c_int))


def compiled(target: str) -> Any:
    names = ("scale<float>", "ns::by_factor", "&factor")
    return build(inline_source(SOURCE), options=CompileOptions(), target=Target.parse(target), names=names)


def scale() -> dotcu.Kernel:
    return dotcu.load_ptx(SCALE.format(target="sm_80"), name="scale.ptx").kernels["scale<float>"]


def test_ptx_runs_by_the_name_of_its_kernel_or_by_its_symbol() -> None:
    module = dotcu.load_ptx(SCALE.format(target="sm_80"))
    x = torch.arange(32.0)
    kernels = (module.kernels["scale<float>"], module.kernels["_Z5scaleIfEvPKT_PS0_S0_i"], module.scale)
    for kernel in kernels:
        out = torch.zeros(32)
        kernel(x, out, 2.0, 32, grid=1, block=32)
        assert torch.equal(out, 2 * x)
    assert str(module.kernels) == "<kernels of inline.ptx: scale<float>>"


def test_a_file_of_ptx_is_loaded_beside_its_caller(tmp_path: Path) -> None:
    path = tmp_path / "scale.ptx"
    path.write_text(SCALE.format(target="sm_80"))
    module = dotcu.load(path)
    again = pickle.loads(pickle.dumps(module))
    out = torch.zeros(4)
    again.scale(torch.ones(4), out, 3.0, 4, grid=1, block=32)
    assert out.tolist() == [3.0] * 4


def test_a_finding_names_the_line_of_the_ptx_where_it_has_no_loc() -> None:
    with pytest.raises(FindingError) as caught:
        scale()(torch.ones(32), torch.empty(64), 2.0, 64, grid=1, block=64)
    line = next(i for i, text in enumerate(SCALE.split("\n"), 1) if "ld.global" in text)
    assert str(caught.value).startswith(
        f"scale.ptx:{line}: out-of-bounds read of 4 bytes at `parameter 1`[32]"
    )
    assert "test_ptx_source.py:" in str(caught.value)


def test_ptx_of_a_compiler_has_the_lines_of_its_source_and_its_variables() -> None:
    module = dotcu.load_ptx(compiled("compute_80").ptx)
    assert {"scale<float>", "ns::by_factor"} <= set(module.kernels)
    x, out = torch.ones(32), torch.zeros(32)
    module.variable("factor").write(torch.tensor([1.0, 5.0]))
    module.by_factor(x, out, grid=1, block=32)
    assert out.tolist() == [5.0] * 32
    with pytest.raises(FindingError, match=r"inline\.cu:5: out-of-bounds write"):
        module.scale(torch.ones(64), out, 2.0, 64, grid=1, block=64)


def test_only_what_a_kernel_writes_counts_as_written() -> None:
    x, out = torch.ones(32), torch.zeros(32)
    before = x._version, out._version
    scale()(x, out, 2.0, 32, grid=1, block=32)
    assert (x._version, out._version) == (before[0], before[1] + 1)


def test_arguments_are_taken_as_ptx_declares_and_uses_them() -> None:
    module, out = dotcu.load_ptx(KINDS.format(target="sm_80")), torch.zeros(4)
    module.kinds(out, 1.5, 7, -3, Pair(9, 4), 11, None, grid=1, block=1)
    assert out[0] == 3.0
    assert out.view(torch.int32)[1:].tolist() == [4, 5, 11]
    module.kinds(out, 2, 7, -3, bytes(Pair(9, 4)), 11, 1 << 40, grid=1, block=1)
    assert out[0] == 4.0, "an int for a float is a float"


@pytest.mark.parametrize(
    ("at", "value", "told"),
    [
        (0, 1.0, r"parameter 1, \.u64 out, takes a contiguous tensor of any dtype, or None, got float 1\.0"),
        (1, "x", r"parameter 2, \.b32 alpha, takes a float or int"),
        (2, 1.5, r"parameter 3, \.b32 count, takes an int from .*got float 1\.5"),
        (3, 1 << 31, r"parameter 4, \.s32 low, takes an int from -2147483648 to 2147483647"),
        (4, b"abc", r"parameter 5, \.b8 pair\[8\], takes its 8 bytes, got a bytes of 3 bytes"),
        (4, {"first": 1}, r"parameter 5, \.b8 pair\[8\].*\nPass a ctypes\.Structure"),
        (5, torch.ones(1), r"parameter 6, \.u64 steps, takes an int"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused(at: int, value: Any, told: str) -> None:
    kernel = dotcu.load_ptx(KINDS.format(target="sm_80")).kinds
    args: list[Any] = [torch.zeros(4), 1.5, 7, -3, Pair(9, 4), 11, 0]
    args[at] = value
    with pytest.raises(ArgumentError, match=told):
        kernel(*args, grid=1, block=1)


def test_too_few_arguments_are_counted() -> None:
    with pytest.raises(
        ArgumentError, match=r"scale<float> takes 4 arguments, got 2\.\nMissing: \.f32, \.u32"
    ):
        scale()(torch.ones(4), torch.ones(4), grid=1, block=32)


def test_an_operator_launches_ptx_and_has_a_fake() -> None:
    module = dotcu.load_ptx(SCALE.format(target="sm_80"))

    @dotcu.op("test_ptx_source::double")
    def double(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        module.scale(x, out, 2.0, x.numel(), grid=dotcu.cdiv(x.numel(), 32), block=32)
        return out

    from torch._subclasses.fake_tensor import FakeTensorMode

    assert torch.equal(double(torch.ones(8)), torch.full((8,), 2.0))
    with FakeTensorMode():
        assert double(torch.ones(8)).shape == (8,)


def test_ptx_of_a_newer_architecture_runs_as_its_own_unless_another_is_asked_for() -> None:
    kernel = dotcu.load_ptx(SCALE.format(target="sm_90a")).scale
    args = torch.ones(4), torch.zeros(4), 2.0, 4
    kernel(*args, grid=1, block=32)
    with dotcu.simulate():
        kernel(*args, grid=1, block=32)
    told = r"is for sm_90a, .*\n.* capability 9\.0 alone\.\nType: with dotcu\.simulate\(arch=\"sm_90a\"\)"
    with dotcu.simulate(arch="sm_80"), pytest.raises(SourceError, match=told):
        kernel(*args, grid=1, block=32)


@pytest.mark.parametrize(
    ("own", "target", "runs"),
    [
        ("sm_80", "sm_90", True), ("sm_90", "sm_80", False), ("sm_90a", "sm_90", True),
        ("sm_90a", "sm_100", False), ("sm_100f", "sm_103", True), ("sm_100f", "sm_120", False),
    ],
)  # fmt: skip
def test_ptx_runs_on_later_architectures(own: str, target: str, runs: bool) -> None:
    assert runs_on(Target.parse(own), Target.parse(target), is_ptx=True) is runs


def test_machine_code_runs_on_later_minors_alone() -> None:
    own = Target.parse("sm_80")
    others = ("sm_80", "sm_86", "sm_90")
    assert [runs_on(own, Target.parse(each), is_ptx=False) for each in others] == [True, True, False]


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z5scaleIfEvPKT_PS0_S0_i", "scale<float>"),
        ("_ZN2ns3addEPKfPfix", "ns::add"),
        ("kernel_0", "kernel_0"),
        ("_ZN12_GLOBAL__N_14fillEPf", "(anonymous namespace)::fill"),
        ("_Z1fIXadL_Z1gvEEEvv", "f<&g>"),
    ],
)
def test_a_kernel_is_called_by_its_name_in_cpp(symbol: str, name: str) -> None:
    assert shown_symbol(symbol).replace("&(g())", "&g").replace("&g()", "&g") == name


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("", SourceError, r"Malformed PTX at its line 1: got no \.version directive"),
        (SCALE.format(target="sm_80")[:-40], SourceError, r"PTX at its line \d+: got a \{ without its \}"),
        (HEAD.format(target="sm_80"), KernelNotFound, r"has no kernel; it has no function at all"),
        (HEAD.format(target="sm_80") + ".func f() { ret; }", KernelNotFound, "it has f"),
        (HEAD.format(target="sm_80") + ".entry f() { ret; }\n" * 2, SourceError, r"got a second body of 'f'"),
        (HEAD.format(target="hopper") + ".entry f() { ret; }", SourceError, r"\.target hopper, which is no"),
        ("__global__ void f() {}", SourceError, "Malformed PTX at its line 1"),
    ],
    ids=["empty", "cut", "no entry", "functions only", "one name twice", "no architecture", "CUDA C++"],
)  # fmt: skip
def test_text_that_is_no_ptx_with_a_kernel_is_refused(text: str, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told) as caught:
        dotcu.load_ptx(text)
    assert str(caught.value).count("\n") >= 2, "three parts"
    assert caught.traceback[-2].path == Path(__file__), "the user's line"


def test_a_function_without_a_body_is_named_with_its_line() -> None:
    text = (
        HEAD.format(target="sm_80") + ".extern .func _Z4helpv();\n.entry f() {\n call _Z4helpv, ();\n ret;\n}"
    )
    with pytest.raises(
        SourceError, match=r"inline\.ptx:6: it calls help\(\), which it declares and does not define"
    ):
        dotcu.load_ptx(text).f(grid=1, block=1)


def test_an_unknown_instruction_is_refused_by_its_line() -> None:
    text = HEAD.format(target="sm_80") + ".entry f() {\n frobnicate.u32;\n ret;\n}"
    with pytest.raises(
        UnsupportedInstruction, match=r"inline\.ptx:5.*frobnicate|frobnicate.*\n.*inline\.ptx:5"
    ):
        dotcu.load_ptx(text).f(grid=1, block=1)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"load_ptx takes the text of PTX, got str 'k\.ptx'.*\n.*dotcu\.load\('k\.ptx'\)"
    ):
        dotcu.load_ptx("k.ptx")


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("k.ptx", b"\x50\xed\x55\xba\0\0\0\0", "is neither PTX nor an ELF file: it begins with"),
        ("k.cubin", b"\x50\xed\x55\xba\0\0\0\0", "is neither PTX nor an ELF file: it begins with"),
        (
            "k.cubin",
            HEAD.format(target="sm_80").encode(),
            r"is PTX, and not an ELF file.*\n.*\nRename it: mv",
        ),
    ],
)
def test_a_file_of_other_bytes_is_refused(tmp_path: Path, name: str, data: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceNotFound, match=told):
        dotcu.load(tmp_path / name)


def test_a_folder_or_a_missing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").mkdir()
    with pytest.raises(
        SourceNotFound, match=r"k\.ptx cannot be read: is a directory\.\nPTX or a cubin is required"
    ):
        dotcu.load(tmp_path / "k.ptx")
    with pytest.raises(SourceNotFound, match=r"There is no file .*other\.ptx"):
        dotcu.load(tmp_path / "other.ptx")


def test_options_of_the_compiler_are_refused(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(SCALE.format(target="sm_80"))
    with pytest.raises(UsageError, match=r"compiled already, and define= was passed"):
        dotcu.load(tmp_path / "k.ptx", define={"N": 1})


def test_attributes_of_ptx_need_an_assembler() -> None:
    with pytest.raises(
        UsageError, match=r"Assemble it, and load the cubin: ptxas -arch=sm_80 -o scale\.cubin"
    ):
        scale().occupancy(128)


@pytest.fixture(scope="module")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cubin") / "k.cubin"
    path.write_bytes(compiled("sm_90").cubin)
    return path


def test_a_cubin_has_kernels_with_sizes_and_resources(cubin: Path) -> None:
    module = dotcu.load(cubin)
    kernel = module.kernels["scale<float>"]
    assert kernel.attributes.registers > 0
    assert kernel.occupancy(256) > 0
    assert (
        str(kernel.unit.code(Target.parse("sm_90")).plan(kernel.name))
        == "scale<float>(.b64, .b64, .b32, .b32)"
    )


def test_a_cubin_does_not_run_in_the_simulator(cubin: Path) -> None:
    with pytest.raises(
        SourceError, match=r"k\.cubin is machine code for sm_90.*\n.*\n.*dotcu\.load\(\"k\.ptx\"\)"
    ):
        dotcu.load(cubin).scale(torch.ones(4), torch.ones(4), 1.0, 4, grid=1, block=32)


@pytest.mark.parametrize("kind", ["ptx", "cubin"])
def test_a_gpu_gets_the_code_as_it_is(kind: str, cubin: Path, driver: Any) -> None:
    from dotcu.kernel import cuda
    from dotcu.kernel.config import read_config

    module = dotcu.load_ptx(SCALE.format(target="sm_80")) if kind == "ptx" else dotcu.load(cubin)
    kernel = module.kernels["scale<float>"]
    code = kernel.unit.on_gpu(0)
    config = read_config("scale", 1, 32)
    cuda.launch(code.library(kernel.name), code.symbol(kernel.name), 0, config, [bytes(8)] * 2, "scale")
    (loaded,) = [data for name, data, *_ in driver.calls if name == "cuLibraryLoadData"]
    assert loaded == (module.source.text.encode() + b"\0" if kind == "ptx" else module.source.cubin)
    assert ("cuLibraryGetKernel", 0, b"_Z5scaleIfEvPKT_PS0_S0_i") in driver.calls


def test_a_gpu_that_the_code_does_not_run_on_is_named(driver: Any) -> None:
    kernel = dotcu.load_ptx(SCALE.format(target="sm_100a")).scale
    told = r"is for sm_100a, .*\n.*\nCompile it for sm_90: nvcc --ptx -arch=sm_90"
    with pytest.raises(SourceError, match=told):
        kernel.unit.on_gpu(0)


@pytest.mark.parametrize(
    ("body", "value", "stored"),
    [
        ("cvt.rn.f32.s32 %f1, %r1;\n st.global.f32 [%rd1], %f1;", -2, -2.0),
        ("mov.b32 %r2, %r1;\n st.global.b32 [%rd1], %r2;", 2.5, 2.5),
        ("fma.rn.f32 %r2, %r1, %r1, %r1;\n st.global.b32 [%rd1], %r2;", 2, 6.0),
    ],
    ids=["converted from an int", "moved alone", "computed with as a float in a .b32 register"],
)
def test_bits_are_a_float_or_an_int_by_what_the_kernel_does_with_them(
    body: str, value: float, stored: float
) -> None:
    text = HEAD.format(target="sm_80") + (
        ".entry f(.param .b64 out, .param .b32 a) {\n .reg .b64 %rd<2>; .reg .b32 %r<3>; .reg .f32 %f<2>;\n"
        f" ld.param.b64 %rd1, [out];\n ld.param.b32 %r1, [a];\n {body}\n ret;\n}}"
    )
    out = torch.zeros(1)
    dotcu.load_ptx(text).f(out, value, grid=1, block=1)
    assert out.item() == stored


def test_a_file_is_inspected_and_its_module() -> None:
    module = dotcu.load_ptx(SCALE.format(target="sm_80"))
    (kernel,) = dotcu.inspect(module, arch="compute_80").kernels
    assert kernel.code.name == "scale<float>"
