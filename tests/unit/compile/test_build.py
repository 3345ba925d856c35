"""From a source to object code: plan.py, build.py and compiling.py."""

from __future__ import annotations

import logging
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dotcu import errors, settings, telemetry
from dotcu.compile import (
    CompileOptions,
    ObjectCode,
    Target,
    build,
    cache,
    inline_source,
    plan_build,
    read_source,
    toolchain,
)
from dotcu.errors import (
    CompileError,
    JitDisabled,
    KernelNotFound,
    SourceError,
    SourceNotFound,
    ToolchainError,
)
from dotcu.ptx.module import parse_module

Build = Callable[..., ObjectCode]

KERNEL = "__global__ void k(int* x) { *x = 1; }"
TEMPLATE = """struct P { int a; };
__constant__ float table[4];
template <typename T, int N = 4> __global__ void t(const T* a, float s, T* out, long long n) {
  *out = T(s) * *a + T(table[N % 4]);
}
namespace ns { __device__ int counter; extern "C" __global__ void plain(P p, const float4* x) { } }
"""


def require_header(name: str) -> None:
    folders = toolchain.nvrtc().include
    if not any((folder / place).is_file() for folder in folders for place in (name, f"cccl/{name}")):
        pytest.skip(f"the toolkit's {name} is not installed")


def test_a_cubin_comes_with_its_ptx(make: Build) -> None:
    made = make(KERNEL, target="sm_90a")
    assert made.cubin is not None
    assert made.cubin.startswith(b"\x7fELF")
    assert ".target sm_90a" in made.ptx
    assert ".entry _Z1kPi" in made.ptx


def test_a_virtual_target_gives_ptx_alone(make: Build) -> None:
    made = make(KERNEL, target="compute_80")
    assert made.cubin is None
    assert made.resources == {}
    assert ".target sm_80" in made.ptx


def test_names_give_symbols_and_kernels_whole_signatures(make: Build) -> None:
    made = make(TEMPLATE, ["t<float>", "t<double, 2>", "ns::plain", "&table", "&ns::counter"])
    assert made.lowered == {
        "t<float>": "_Z1tIfLi4EEvPKT_fPS0_x",
        "t<double, 2>": "_Z1tIdLi2EEvPKT_fPS0_x",
        "ns::plain": "plain",
        "&table": "table",
        "&ns::counter": "_ZN2ns7counterE",
    }
    assert made.signatures == {
        "t<float>": "_Z13__dotcu_probeIPFvPKffPfxEEvv",
        "t<double, 2>": "_Z13__dotcu_probeIPFvPKdfPdxEEvv",
        "ns::plain": "_Z13__dotcu_probeIPFv1PPK6float4EEvv",
    }


def test_line_information_names_fixed_files_that_map_back(make: Build, tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(KERNEL)
    made = make(read_source(path))
    assert '"/dotcu/k.cu"' in made.ptx
    assert made.files == {"/dotcu/k.cu": str(path)}
    assert make(KERNEL).files == {"/dotcu/inline.cu": "inline.cu"}


def test_resources_and_warnings_stay_with_the_result(make: Build) -> None:
    spills = """__global__ void __launch_bounds__(1024) k(float* x, int n) {
      __shared__ float s[256]; float a[80];
      for (int i = 0; i < 80; i++) a[i] = x[i * n];
      s[threadIdx.x & 255] = a[0]; __syncthreads();
      for (int j = 0; j < n; j++) {
        float t = a[79] + s[j & 255];
        #pragma unroll
        for (int i = 79; i > 0; i--) a[i] = a[i - 1] * t + x[i];
      }
      for (int i = 0; i < 80; i++) x[i * n] = a[i];
    }"""
    for made in (make(spills), make(spills)):
        (resources,) = made.resources.values()
        assert resources.registers == 64
        assert resources.smem_bytes == 1024
        assert resources.barriers == 1
        assert min(resources.spill_store_bytes, resources.spill_load_bytes, resources.stack_bytes) > 0
        assert ["spilled" in warning.message for warning in made.warnings] == [True]


def test_debug_builds_and_macros_decide_the_code(make: Build) -> None:
    assert ".debug_info" in make(KERNEL, debug=True).ptx
    text = "__global__ void k(int* x) { *x = VALUE; }"
    assert make(text, define={"VALUE": 1234}).build_digest != make(text, define={"VALUE": 4321}).build_digest
    assert "1234" in make(text, define={"VALUE": 1234}).ptx


def test_a_build_for_the_simulator_is_another_build(make: Build) -> None:
    text = "#ifndef DOTCU_SIMULATED\n#define DOTCU_SIMULATED 0\n#endif\n" + KERNEL.replace(
        "1", "77 + DOTCU_SIMULATED"
    )
    plain, simulated = make(text, target="compute_80"), make(text, target="compute_80", simulated=True)
    assert ("77" in plain.ptx, "78" in simulated.ptx) == (True, True)
    assert plain.build_digest != simulated.build_digest


def test_what_was_compiled_is_compiled_no_more(make: Build, compiles: list[str]) -> None:
    first = make(KERNEL)
    assert (first.cached, make(KERNEL).cached) == (False, True)
    cache.forget()
    again = make(KERNEL)
    assert again.cached
    assert len(compiles) == 1
    assert (again.ptx, again.cubin, again.lowered) == (first.ptx, first.cubin, first.lowered)
    assert (again.resources, again.signatures, again.log) == (first.resources, first.signatures, first.log)


def test_an_edited_nested_header_recompiles_and_an_untouched_one_does_not(
    make: Build, tmp_path: Path, compiles: list[str]
) -> None:
    (tmp_path / "k.cu").write_text('#include "a.h"\n__global__ void k(int* x) { *x = V; }')
    (tmp_path / "a.h").write_text('#include "b.h"\n')
    (tmp_path / "b.h").write_text("#define V 1111\n")
    assert "1111" in make(read_source(tmp_path / "k.cu")).ptx
    (tmp_path / "b.h").touch()
    (tmp_path / "c.h").write_text("")
    assert make(read_source(tmp_path / "k.cu")).cached
    (tmp_path / "b.h").write_text("#define V 2222\n")
    assert "2222" in make(read_source(tmp_path / "k.cu")).ptx
    assert len(compiles) == 2


def test_a_header_that_appears_where_it_was_looked_for_recompiles(make: Build, tmp_path: Path) -> None:
    text = '#if __has_include("a.h")\n#include "a.h"\n#else\n#define V 1111\n#endif\n'
    (tmp_path / "k.cu").write_text(text + "__global__ void k(int* x) { *x = V; }")
    assert "1111" in make(read_source(tmp_path / "k.cu")).ptx
    (tmp_path / "a.h").write_text("#define V 2222\n")
    assert "2222" in make(read_source(tmp_path / "k.cu")).ptx


def test_two_headers_of_one_spelling_stay_two(make: Build, tmp_path: Path) -> None:
    for folder, value in (("one", 1111), ("two", 2222)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "outer.h").write_text('#include "inner.h"\n')
        (tmp_path / folder / "inner.h").write_text(f"__device__ int {folder}() {{ return {value}; }}\n")
    (tmp_path / "k.cu").write_text(
        '#include "one/outer.h"\n#include "two/outer.h"\n'
        "__global__ void k(int* x) { x[0] = one(); x[1] = two(); }"
    )
    ptx = make(read_source(tmp_path / "k.cu")).ptx
    assert "1111" in ptx
    assert "2222" in ptx


def test_a_header_whose_name_macros_put_together_is_found_and_never_taken_from_the_cache(
    make: Build, tmp_path: Path
) -> None:
    text = "#define TEXT(x) #x\n#include TEXT(sub/a.h)\n__global__ void k(int* x) { *x = V; }"
    (tmp_path / "k.cu").write_text(text)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.h").write_text('#include "b.h"\n')
    for value in ("1111", "2222"):
        (tmp_path / "sub" / "b.h").write_text(f"#define V {value}\n")
        assert value in make(read_source(tmp_path / "k.cu")).ptx
    assert cache.entries() == []


BITS = {
    "plain": KERNEL,
    "user header": '#include "sub/h.cuh"\n__global__ void k(float* x) { *x = twice(*x); }',
    "toolkit header": "#include <cuda_fp16.h>\n__global__ void k(__half* x) { *x = __hadd(*x, hexp(*x)); }",
}


@pytest.mark.parametrize("kind", BITS)
def test_the_same_bits_come_from_two_directories_and_two_caches(
    make: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "toolkit header":
        require_header("cuda_fp16.h")
    made = []
    for place in (tmp_path / "here", tmp_path / "over" / "there"):
        (place / "sub").mkdir(parents=True)
        (place / "k.cu").write_text(BITS[kind])
        (place / "sub" / "h.cuh").write_text("inline __device__ float twice(float x) { return 2 * x; }\n")
        monkeypatch.chdir(place)
        with settings.override(cache_dir=place / "cache"):
            made.append(make(read_source("k.cu"), target="sm_90a"))
    one, other = made
    assert not other.cached
    assert one.cubin == other.cubin
    assert one.ptx == other.ptx
    assert one.build_digest == other.build_digest
    installed = [str(folder).encode() for folder in toolchain.nvrtc().include]
    for path in [str(tmp_path).encode(), str(Path(cache.__file__).parent.parent).encode(), *installed]:
        assert path not in (one.cubin or b"")
        assert path not in one.ptx.encode()


@pytest.mark.parametrize(
    ("header", "body"),
    [
        ("cuda_fp16.h", "x[0] = __half2float(__float2half(x[0]));"),
        ("cuda_bf16.h", "x[0] = __bfloat162float(__float2bfloat16(x[0]));"),
        ("cuda_fp8.h", "x[0] = float(__nv_fp8_e4m3(x[0]));"),
        (
            "mma.h",
            "nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __half, nvcuda::wmma::row_major> f;",
        ),
        ("nv/target", "NV_IF_TARGET(NV_PROVIDES_SM_80, (x[0] = 1;))"),
        ("cuda/std/cstdint", "x[0] = cuda::std::int64_t(3);"),
        pytest.param(
            "cooperative_groups.h",
            "cooperative_groups::this_thread_block().sync();",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "cub/block/block_reduce.cuh",
            "using B = cub::BlockReduce<float, 128>; __shared__ B::TempStorage t; x[0] = B(t).Sum(x[0]);",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_toolkits_headers_compile_without_their_path(make: Build, header: str, body: str) -> None:
    require_header(header)
    made = make(f"#include <{header}>\n__global__ void k(float* x) {{ {body} }}")
    for folder in toolchain.nvrtc().include:
        assert str(folder).encode() not in (made.cubin or b"") + made.ptx.encode()
    assert len(cache.entries()) == 1  # kept: what it reaches is in the key


def test_a_syntax_error_shows_file_line_caret_and_count(make: Build, tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text("__global__ void k(int* x) {\n\tx[0] = y;\n  int z\n}\n")
    with pytest.raises(CompileError) as error:
        make(read_source(path))
    message = str(error.value)
    assert message.startswith(f"{path} does not compile for sm_80: 2 errors.")
    assert f'{path}:2:9: error: identifier "y" is undefined\n    \tx[0] = y;\n    \t       ^' in message
    assert [d.line for d in error.value.diagnostics if d.severity == "error"] == [2, 4]
    assert 'identifier "y"' in error.value.log
    assert error.value.command.startswith("nvcc -arch=sm_80")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("__global__ void k(float* p) {\n  float a = 2.0f\n  float b = a;\n  p[0] = a + b;\n}", 3),
        ("__device__ float two(float x) { return 2 * x }\n__global__ void k(float* p) { __half h; }", 1),
        ("struct P { float x; int y }\n__global__ void k(float* p) { p[0] = 1; }", 1),
    ],
    ids=["a statement", "before a name that has a header", "a struct before a kernel"],
)
def test_a_missing_semicolon_is_the_first_error(make: Build, text: str, cause: int) -> None:
    with pytest.raises(CompileError) as caught:
        make(text, "k")
    (first,) = [line for line in str(caught.value).splitlines() if ": error: " in line][:1]
    assert f":{cause}:" in first
    assert 'expected a ";"' in first


def test_an_error_in_a_header_names_the_header_and_the_instantiation(make: Build, tmp_path: Path) -> None:
    (tmp_path / "h.cuh").write_text("template <class T>\n__device__ T f(T x) { return x.value(); }\n")
    text = '#include "h.cuh"\ntemplate <class T> __global__ void t(T* x) { *x = f(*x); }\n'
    (tmp_path / "k.cu").write_text(text)
    with pytest.raises(CompileError) as error:
        make(read_source(tmp_path / "k.cu"), ["t<float>"])
    message = str(error.value)
    assert "1 error, instantiating t<float>." in message
    assert f"{tmp_path}/h.cuh:2:" in message
    assert f'instantiation of "T f(T) [with T=float]" at line 2 of {tmp_path}/k.cu' in message


@pytest.mark.parametrize("name", ["t<void>", "t<1>", "t", "t<float", "t<Missing>"])
def test_an_instantiation_that_fails_is_named(make: Build, name: str) -> None:
    with pytest.raises(CompileError) as error:
        make(TEMPLATE, [name, "ns::plain"])
    assert f"instantiating {name}" in str(error.value).splitlines()[0]
    assert "__nv_name_map" not in str(error.value)


def test_a_kernel_that_is_not_there_is_reported_with_those_that_are(make: Build) -> None:
    with pytest.raises(KernelNotFound) as error:
        make(
            "namespace a { __global__ void scale_add() {} }\n__global__ void other() {}", ["scale_ad<float>"]
        )
    assert str(error.value).splitlines() == [
        "inline.cu has no kernel 'scale_ad'.",
        "It has, the nearest first:",
        "    a::scale_add",
        "    other",
    ]


def test_a_variable_that_is_not_there_is_reported_with_those_that_are(make: Build) -> None:
    with pytest.raises(
        KernelNotFound, match=r"no __constant__ or __device__ variable 'tabel'.*\n.*\n    table"
    ):
        make(TEMPLATE, ["&tabel"])


def test_a_text_without_kernels_says_so(make: Build) -> None:
    with pytest.raises(KernelNotFound, match="declares none"):
        make("__device__ int x;", ["k"])


def test_a_kernel_that_a_macro_makes_is_found_by_the_compiler(make: Build) -> None:
    assert make("#define K(name) __global__ void name(int* x)\nK(k) { *x = 1; }").lowered == {"k": "_Z1kPi"}


def test_a_header_that_is_nowhere_is_named_with_what_to_do(make: Build) -> None:
    with pytest.raises(
        CompileError,
        match=r"(?s)'mine\.h' \(inline\.cu:1\) was not found.*load\(\.\.\., include=\[FOLDER\]\)",
    ):
        make('#include "mine.h"\n__device__ Mine mine;\n' + KERNEL)
    with pytest.raises(CompileError, match='pip install "nvidia-cuda-cccl'):
        make("#include <cuda/no_such_header>\n" + KERNEL)
    with pytest.raises(CompileError, match=r'pip install "(dotcu\[curand\]|nvidia-curand-cu12)"'):
        make("#include <curand_no_such_header.h>\n" + KERNEL)


def test_nothing_on_disk_is_included_behind_the_keys_back(
    make: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.h").write_text("#define MINE 1\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CompileError, match=r"mine\.h"):
        make('#include "mine.h"\n__device__ int mine = MINE;\n' + KERNEL)  # an inline source has no folder


def test_a_header_that_cannot_be_read_is_reported(make: Build, tmp_path: Path) -> None:
    (tmp_path / "h.h").write_bytes(b"a\0b")
    (tmp_path / "k.cu").write_text('#include "h.h"\n' + KERNEL)
    with pytest.raises(SourceNotFound, match=r"h\.h is not text"):
        make(read_source(tmp_path / "k.cu"))


def test_an_architecture_that_the_compiler_lacks_is_reported_with_those_it_has(make: Build) -> None:
    with pytest.raises(ToolchainError, match=r"(?s)cannot compile for sm_21\..*sm_90"):
        make(KERNEL, target="sm_21")


def test_without_jit_what_is_there_is_served_and_the_rest_refused(make: Build) -> None:
    make(KERNEL)
    cache.forget()
    with settings.override(jit="error"):
        assert make(KERNEL).cached
        with pytest.raises(JitDisabled, match=r"not compiled for sm_90.*\(k\), and DOTCU_JIT=error"):
            make(KERNEL, target="sm_90")


def test_each_build_is_one_line_in_the_log_with_its_reason(
    make: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dotcu")
    (tmp_path / "k.cu").write_text('#include "h.h"\n' + KERNEL)
    (tmp_path / "h.h").write_text("")
    steps: list[tuple[str, Callable[[], object]]] = [
        ("compiled: not seen before", lambda: None),
        ("in memory", lambda: None),
        ("cache hit", cache.forget),
        ("compiled: header h.h changed", lambda: (tmp_path / "h.h").write_text("//")),
        ("compiled: new source", lambda: (tmp_path / "k.cu").write_text('#include "h.h"\n//\n' + KERNEL)),
    ]
    for said, change in steps:
        caplog.clear()
        change()
        make(read_source(tmp_path / "k.cu"))
        (record,) = caplog.records
        assert f"k.cu for sm_80: {said}, 0." in record.getMessage()
        assert "nvcc -arch=sm_80 -std=c++17 -lineinfo" in record.getMessage()
    make(read_source(tmp_path / "k.cu"), target="sm_90")
    assert "compiled: new target, last built for sm_80" in caplog.text
    make(read_source(tmp_path / "k.cu"), define={"A": 1})
    assert "compiled: the options changed" in caplog.text


def test_bytes_that_are_not_utf8_reach_the_compiler(make: Build, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_bytes(b"// \xe9\n" + KERNEL.encode())
    first = make(read_source(tmp_path / "k.cu"))
    assert make("// \udce9\n" + KERNEL).lowered == first.lowered == {"k": "_Z1kPi"}
    (tmp_path / "k.cu").write_bytes(b"// \xe8\n" + KERNEL.encode())
    assert make(read_source(tmp_path / "k.cu")).build_digest != first.build_digest


@pytest.mark.parametrize("end", ["", "\n", "\n\n\n"])
def test_an_open_brace_is_reported_at_the_users_last_line(make: Build, end: str) -> None:
    with pytest.raises(CompileError) as error:
        make("__global__ void k(int* x) {\n  *x = 1;" + end)
    message = str(error.value)
    assert ": 1 error." in message
    assert 'inline.cu:2:10: error: expected a "}", at the end of the file\n      *x = 1;\n' in message
    assert 'to match this "{", at line 1 of inline.cu: __global__ void k(int* x) {' in message
    assert "probe" not in message


def test_a_declaration_without_an_end_shows_no_text_of_dotcus(make: Build) -> None:
    with pytest.raises(CompileError) as error:
        make(KERNEL + "\nstruct S { int a; }\n")
    assert 'inline.cu:2:20: error: expected a ";", at the end of the file' in str(error.value)
    assert "probe" not in str(error.value)


@pytest.mark.parametrize("end", ["// end \\", "// end \\\n", "// end \\ "])
def test_a_comment_that_goes_on_at_the_end_swallows_nothing(make: Build, end: str) -> None:
    assert make(f"{KERNEL}\n{end}").lowered == {"k": "_Z1kPi"}


def test_too_much_static_shared_memory_is_reported_by_kernel_and_size(make: Build) -> None:
    body = "__shared__ float s[15000]; s[threadIdx.x] = *x; __syncthreads(); *x = s[threadIdx.x ^ 1];"
    with pytest.raises(CompileError) as error:
        make(f"namespace a {{ __global__ void k(float* x) {{ {body} }} }}", ["a::k"])
    message = str(error.value)
    assert message.startswith("inline.cu does not compile for sm_80: 1 error.")
    assert "'a::k' uses too much shared data (60000 bytes, 49152 max)" in message
    assert "extern __shared__ float s[];" in message
    with pytest.raises(CompileError, match=r"1 error, instantiating k<float>\."):
        make(f"template <class T> __global__ void k(T* x) {{ {body} }}", ["k<float>"])


def test_headers_that_include_each_other_are_named_as_the_user_does(make: Build, tmp_path: Path) -> None:
    (tmp_path / "ca.cuh").write_text('#include "cb.cuh"\n')
    (tmp_path / "cb.cuh").write_text('#include "ca.cuh"\n')
    (tmp_path / "k.cu").write_text('#include "ca.cuh"\n' + KERNEL)
    with pytest.raises(CompileError) as error:
        make(read_source(tmp_path / "k.cu"))
    assert f'#include file "{tmp_path}/ca.cuh" includes itself' in str(error.value)
    assert "/dotcu/" not in str(error.value).replace(str(tmp_path), "")
    assert "#pragma once" in str(error.value)


def test_of_one_line_a_name_that_is_not_known_comes_first_with_its_header(make: Build) -> None:
    with pytest.raises(CompileError) as error:
        make("__global__ void k(__nv_bfloat16* x, __half* y) { }")
    shown = str(error.value).split("\n\n")
    assert shown[1].endswith("__nv_bfloat16 comes with: #include <cuda_bf16.h>")
    assert shown[2].endswith("__half comes with: #include <cuda_fp16.h>")
    assert 'attribute "__global__" does not apply here' in shown[3]  # what follows is as the compiler has it


def test_host_code_is_explained_where_the_missing_header_looks_like_it(make: Build) -> None:
    with pytest.raises(CompileError) as error:
        make('#include "nothere.cuh"\n__device__ Mine mine;\n' + KERNEL)
    assert "host" not in str(error.value)
    with pytest.raises(CompileError, match="If it is for the host"):
        make("#include <mylib/all>\n__device__ Mine mine;\n" + KERNEL)


SOURCE = """
template <typename T> __global__ void wide(T* x) { x[0] = 1; }
__global__ void always(int* x) { x[0] = 1; }
#if __CUDA_ARCH__ >= 900
__global__ void newer(int* x) { x[0] = 1; }
__constant__ int table[3];
#else
__global__ void older(int* x) { x[0] = 1; }
#endif
"""


def visible(names: list[str], target: str = "sm_90", source: str = SOURCE) -> ObjectCode:
    return build(
        inline_source(source),
        options=CompileOptions(),
        target=Target.parse(target),
        names=names,
        visible=True,
    )


@pytest.mark.parametrize(("target", "hidden"), [("sm_80", {"newer", "&table"}), ("sm_90", {"older"})])
def test_names_that_the_preprocessor_hides_are_left_out(
    cache_dir: Path, target: str, hidden: set[str]
) -> None:
    names = {"always", "newer", "older", "&table"}
    assert set(visible(sorted(names), target).lowered) == names - hidden


def test_what_is_hidden_costs_one_compile_more_however_much_it_is(
    cache_dir: Path, compiles: list[str]
) -> None:
    visible(["always", "newer", "older", "&table"], "sm_80")
    assert len(compiles) == 2


def test_an_instantiation_that_is_not_possible_is_an_error(cache_dir: Path) -> None:
    with pytest.raises(SourceError):
        visible(["always", "wide<Missing>"])


def test_a_fault_of_the_source_is_reported_as_such(cache_dir: Path) -> None:
    with pytest.raises(CompileError, match="expected a"):
        visible(["k"], source="__global__ void k(int* x) { x[0] = ; }")


def test_a_form_feed_does_not_move_the_line_of_an_error(make: Build) -> None:
    with pytest.raises(CompileError) as error:
        make("// page one \f page two\n__global__ void k(int* x) { y = 1; }\n")
    assert [one.source for one in error.value.diagnostics] == ["__global__ void k(int* x) { y = 1; }"]


PLACE = """
import os, pathlib, sys
from dotcu import settings
from dotcu.compile import CompileOptions, Target, build, cache, read_source
os.chdir(sys.argv[1])
source = read_source(pathlib.Path("k.cu").absolute(), [])
with settings.override(cache_dir=pathlib.Path("cache").absolute()):
    for arch in ("sm_80", "compute_80"):
        build(source, options=CompileOptions(), target=Target.parse(arch), names=["k"])
    for entry in cache.entries():
        files = sorted(pathlib.Path(entry["path"]).iterdir())
        print(entry["digest"], *(f"{f.name} {hash(f.read_bytes())}" for f in files))
"""
INTERNAL = """
namespace { __device__ int table[4] = {1, 2, 3, 4}; }
static __device__ int count;
__global__ void k(int* x) { x[0] = table[x[1] & 3] + atomicAdd(&count, 1); }
"""


def test_two_processes_in_two_folders_compile_to_the_same_bytes(
    python: Callable[[str], list[str]], tmp_path: Path
) -> None:
    outputs = []
    for folder in (tmp_path / "a", tmp_path / "another" / "b"):
        folder.mkdir(parents=True)
        (folder / "k.cu").write_text(INTERNAL)
        done = subprocess.run(
            [*python(PLACE), str(folder)], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": "0", "HOME": str(folder)},
        )  # fmt: skip
        outputs.append(sorted(done.stdout.splitlines()))
    assert len(outputs[0]) == 2
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    ("text", "options", "same"),
    [
        (KERNEL, {}, True),
        (KERNEL, {"debug": True}, False),
        (KERNEL, {"options": ["--device-debug"]}, False),
        (KERNEL + "__device__ const char* when() { return __TIME__; }", {}, False),
    ],
)
def test_a_build_that_depends_on_time_or_folder_is_not_reproducible(
    text: str, options: dict[str, Any], same: bool
) -> None:
    planned = plan_build(
        inline_source(text), options=CompileOptions(**options), target=Target.parse("sm_80"), names=["k"]
    )
    assert planned.is_reproducible is same


def test_a_compile_says_its_cause_as_a_warning_if_asked_and_counts(
    make: Build, caplog: pytest.LogCaptureFixture
) -> None:
    before = telemetry.metrics()
    with settings.override(jit="warn"):
        made = make(KERNEL)
        cache.forget()
        make(KERNEL)
    records = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(records) == 1
    assert "compiled: not seen before, " in records[0].getMessage()
    assert "; k, called from tests/unit/" in records[0].getMessage()
    cause = vars(records[0])["dotcu_compile"]
    assert (cause["kernels"], cause["target"], cause["key"]) == (["k"], "sm_80", made.build_digest)
    assert cause["caller"].startswith("tests/unit/compile/conftest.py:")
    grown = {name: value - before[name] for name, value in telemetry.metrics().items()}
    assert grown["dotcu_compiles_total"] == grown['dotcu_cache_hits_total{place="disk"}'] == 1
    assert grown["dotcu_compile_seconds_total"] > 0


def test_an_application_that_traces_sees_spans(
    make: Build, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed")
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    with provider.get_tracer("application").start_as_current_span("request"):
        make(KERNEL)
        make(KERNEL)
        cache.forget()
        make(KERNEL)
        with pytest.raises(CompileError):
            make("__global__ void k() { wrong; }")
    *own, _, failed, request = kept.get_finished_spans()
    assert {each.parent.span_id for each in own} == {request.context.span_id}
    assert {each.instrumentation_scope.name for each in own} == {"dotcu"}
    attributes = [dict(each.attributes) for each in own]
    assert [each.name for each in own] == ["dotcu.cache", "dotcu.compile", "dotcu.cache", "dotcu.cache"]
    assert {each.pop("dotcu.file") for each in attributes} == {"inline.cu"}
    assert {each.pop("dotcu.target") for each in attributes} == {"sm_80"}
    assert {each.pop("dotcu.kernels") for each in attributes} == {"k"}
    assert attributes == [
        {"dotcu.outcome": "miss"},
        {"dotcu.reason": "not seen before"},
        {"dotcu.outcome": "in memory"},
        {"dotcu.outcome": "cache hit"},
    ]
    assert (failed.name, failed.status.is_ok, failed.events[0].name) == ("dotcu.compile", False, "exception")


WARNED = {
    "extern declaration of the entity gain is treated as a static definition": (
        "extern __constant__ float gain;\n__global__ void k(float* x) { *x = gain; }"
    ),
    "dynamic initialization is not supported for a function-scope static __shared__ variable": (
        "struct A { float v; __device__ A() { v = 3; } };\n"
        "__global__ void k(float* x) { __shared__ A a[4]; *x = a[0].v; }"
    ),
    "missing return statement": (
        "__device__ float g(float x) { if (x > 5) return 1; }\n__global__ void k(float* x) { *x = g(*x); }"
    ),
    'use of "=" where "==" may have been intended': (
        "\n__global__ void k(float* x) { int a = 0; if (a = 5) *x = a; }"
    ),
}


@pytest.mark.parametrize("message", WARNED)
def test_a_warning_of_the_compiler_is_shown_once_with_its_line(
    make: Build, caplog: pytest.LogCaptureFixture, message: str
) -> None:
    for target in ("sm_80", "compute_80", "sm_90"):
        make(f"// {message}\n{WARNED[message]}\n", target=target)
    (warning,) = (one.getMessage() for one in caplog.records if one.levelname == "WARNING")
    assert message in warning
    assert re.match(r"inline\.cu:[23]:", warning)


def test_a_warning_that_only_the_removal_of_host_code_causes_is_not_shown(
    make: Build, caplog: pytest.LogCaptureFixture
) -> None:
    make(f'#include <vector>\nstatic constexpr const char* name = "a";\n{KERNEL}void f() {{ g(name); }}\n')
    assert not [one for one in caplog.records if one.levelname == "WARNING"]


@pytest.mark.parametrize("name", ['a"b.cu', "a\\b.cu", "a\nb.cu", "100%.cu", "a\x1bb.cu"])
def test_a_file_may_have_any_name(make: Build, tmp_path: Path, name: str) -> None:
    source = tmp_path / name
    source.write_text('#include "in/h.h"\n__global__ void k(int* x) { *x = N; }')
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "h.h").write_text("#define N 1\n")
    code = make(read_source(source))
    assert str(source) in code.files.values()
    assert parse_module(make(read_source(source), target="compute_80").ptx).entries.keys() >= {"_Z1kPi"}
    source.write_text("__global__ void k(int* x) { *x = absent; }")
    with pytest.raises(CompileError, match=re.escape(errors.escaped(name))):
        make(read_source(source))
