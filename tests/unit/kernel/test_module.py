"""Modules: loading (loading.py), kernels by name, variables."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dotcu.compile import Target
from dotcu.errors import (
    ArgumentError,
    CompileError,
    FindingError,
    JitDisabled,
    KernelNotFound,
    SourceError,
    SourceNotFound,
    TracedLaunchError,
    UsageError,
)
from dotcu.kernel import Kernel, Module, cdiv, load, load_inline, simulate
from dotcu.kernel.compiled import CompiledUnit
from dotcu.kernel.launch_policy import LaunchPolicy, entering_scope

SOURCE = """
template <typename T>
__global__ void scale_add(const T* a, const T* b, float alpha, T* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + T(alpha) * b[i];
}
template <typename T, int STEP, bool NEGATE = false>
__global__ void steps(T* out, int n) {
    int i = threadIdx.x;
    if (i < n) out[i] = T(NEGATE ? -STEP * i : STEP * i);
}
__global__ void fill(float* out, float value, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = value;
}
namespace inner {
__global__ void fill_two(float* out) { out[threadIdx.x] = 2.0f; }
}
extern "C" __global__ void plain(int* out) { out[threadIdx.x] = threadIdx.x; }
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return load_inline(SOURCE)


def test_load_reads_a_file_beside_its_caller(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(SOURCE)
    script = tmp_path / "script.py"
    script.write_text("from dotcu.kernel import load\nmodule = load('k.cu')\n")
    names: dict[str, Module] = {}
    exec(compile(script.read_text(), str(script), "exec"), {"__file__": str(script)}, names)
    assert names["module"].source.path == tmp_path / "k.cu"


def test_a_missing_file_is_an_error_at_once() -> None:
    with pytest.raises(SourceNotFound, match=r"no_such_file\.cu"):
        load("no_such_file.cu")


def test_a_broken_source_is_an_error_only_when_it_is_compiled() -> None:
    broken = load_inline("__global__ void k(float* x) { x[0] = nope; }")
    with pytest.raises(CompileError, match="nope"):
        broken.k(torch.zeros(1), grid=1, block=1)


def test_every_kernel_is_listed_in_order(module: Module) -> None:
    assert list(module.kernels) == ["scale_add", "steps", "fill", "inner::fill_two", "plain"]
    assert len(module.kernels) == 5
    assert "fill_two" in module.kernels
    assert "nope" not in module.kernels
    assert isinstance(module.kernels["scale_add"], Kernel)
    assert {"scale_add", "plain"} <= set(dir(module))


def test_a_plain_name_reaches_into_a_namespace(module: Module, device: torch.device) -> None:
    x = torch.zeros(3, device=device)
    assert module.fill_two is module.kernels["inner::fill_two"]
    module.fill_two(x, grid=1, block=3)
    assert x.tolist() == [2, 2, 2]


def test_an_unknown_name_lists_the_nearest_first(module: Module) -> None:
    with pytest.raises(
        KernelNotFound, match=r"no kernel named 'fil'; it has fill, .*\nDid you mean module\.fill\?"
    ):
        _ = module.fil
    assert not hasattr(module, "fil")
    with pytest.raises(KeyError):
        module.kernels["fil"]


def test_a_module_can_be_copied_and_asked_anything(module: Module) -> None:
    assert copy.copy(module).name == "inline.cu"
    assert not hasattr(module, "_repr_html_")


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32,
        torch.int64, torch.uint8,
    ],
)  # fmt: skip
def test_a_dtype_instantiates_a_template_and_brings_its_header(
    module: Module, device: torch.device, dtype: torch.dtype
) -> None:
    a = torch.arange(100, device=device).to(dtype)
    b = torch.ones(100, device=device).to(dtype)
    out = torch.empty_like(a)
    module.scale_add[dtype](a, b, 2.0, out, 100, grid=cdiv(100, 64), block=64)
    assert torch.equal(out, a + 2 * b)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint16, torch.uint32, torch.uint64])
def test_every_other_dtype_has_its_cpp_type(dtype: torch.dtype, device: torch.device) -> None:
    copy_ = load_inline("template <typename T> __global__ void put(T* x, T v) { *x = v; }")
    x = torch.zeros(1, dtype=dtype, device=device)
    copy_.put[dtype](x, dtype == torch.bool or 3, grid=1, block=1)
    assert x.item() == (True if dtype == torch.bool else 3)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_fp8_brings_its_header(dtype: torch.dtype, device: torch.device) -> None:
    move = load_inline("template <typename T> __global__ void move(const T* x, T* y) { *y = *x; }")
    x, y = torch.ones(1, device=device).to(dtype), torch.zeros(1, device=device).to(dtype)
    move.move[dtype](x, y, grid=1, block=1)
    assert y.float().item() == 1.0


def test_three_template_parameters_take_ints_bools_and_defaults(module: Module, device: torch.device) -> None:
    x = torch.zeros(4, dtype=torch.int32, device=device)
    module.steps[torch.int32, 3](x, 4, grid=1, block=32)
    assert x.tolist() == [0, 3, 6, 9]
    module.steps[torch.int32, 2, True](x, 4, grid=1, block=32)
    assert x.tolist() == [0, -2, -4, -6]
    module.steps["int", "1 + 1", "false"](x, 4, grid=1, block=32)
    assert x.tolist() == [0, 2, 4, 6]


def test_the_same_arguments_give_the_same_kernel(module: Module) -> None:
    assert module.scale_add[torch.float32] is module.scale_add[(torch.float32,)]
    assert module.scale_add["float"] is module.scale_add[torch.float32]
    assert module.scale_add[torch.float32].name == "scale_add<float>"


def test_the_wrong_number_of_template_arguments_names_the_parameters(module: Module) -> None:
    with pytest.raises(
        ArgumentError, match=r"takes 1 template argument, got 2: .*\n.*template <typename T> scale_add"
    ):
        module.scale_add[torch.float32, 3]
    with pytest.raises(
        ArgumentError, match=r"takes 2 to 3 template arguments, got 1.*\n.*bool NEGATE = false"
    ):
        module.steps[torch.float32]


def test_the_example_for_a_template_has_an_argument_for_each_kind_of_parameter() -> None:
    module = load_inline("""
        enum Mode { ADD, SUB };
        template <typename T, Mode MODE, int N, bool SIGNED> __global__ void k(T* x) { x[0] = N + MODE; }
        """)
    with pytest.raises(ArgumentError, match="without template arguments") as caught:
        module.k(torch.zeros(1), grid=1, block=1)
    example = str(caught.value).splitlines()[-1].removeprefix("Instantiate it: ").removesuffix("(...)")
    x = torch.zeros(1)
    eval(example)(x, grid=1, block=1)
    assert x.tolist() == [256]


@pytest.mark.parametrize("value", [1.5, None, "", object()])
def test_a_template_argument_of_another_kind_is_refused(module: Module, value: object) -> None:
    with pytest.raises(ArgumentError, match="a torch dtype, an int, a bool or C"):
        module.scale_add[value]


def test_a_complex_dtype_says_what_to_pass_instead(module: Module) -> None:
    with pytest.raises(ArgumentError, match=r"view_as_real\(t\) to a kernel of float32"):
        module.scale_add[torch.complex64]


def test_a_symbolic_size_may_choose_a_template(module: Module) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    dynamic = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC])
    mode = FakeTensorMode(shape_env=ShapeEnv())
    (n,) = mode.from_tensor(torch.ones(48), symbolic_context=dynamic).shape
    assert isinstance(n % 16 == 0, torch.SymBool)
    chosen = module.steps[torch.float32, n // 16, n % 16 == 0]
    assert repr(chosen) == repr(module.steps[torch.float32, 3, True])


def test_a_template_must_be_instantiated_and_nothing_else_can_be(module: Module) -> None:
    with pytest.raises(ArgumentError, match=r"is a template .*\n.*\n.*module\.scale_add\[torch\.float32\]"):
        module.scale_add(grid=1, block=1)
    with pytest.raises(ArgumentError, match="fill is not a template"):
        module.fill[torch.float32]
    with pytest.raises(ArgumentError, match="is instantiated already"):
        module.scale_add[torch.float32][torch.float32]


def test_an_instantiation_that_fails_is_a_compile_error(module: Module) -> None:
    with pytest.raises(CompileError, match="steps<float, 3, no_such_name>"):
        module.steps[torch.float32, 3, "no_such_name"](torch.zeros(1), 1, grid=1, block=1)


def test_overloads_are_listed_and_called_by_the_types_of_their_parameters(device: torch.device) -> None:
    module = load_inline("""
        #include <cuda_fp16.h>
        template <int n> __global__ void scale(float* x, float by) { x[threadIdx.x] *= n * by; }
        template <typename T, int n = 2>
        __global__ void scale(T* x, const T* __restrict__ by) { x[0] = n * by[0]; }
        namespace ns {
        __global__ void fill(float* x) { x[0] = 1; }
        __global__ void fill(double* x, int by) { x[0] = by; }
        }
        __global__ void other() {}
    """)
    assert set(module.kernels) == {
        "other", "scale(float*, float)", "scale(T*, const T* __restrict__)",
        "ns::fill(float*)", "ns::fill(double*, int)",
    }  # fmt: skip
    x, d = torch.ones(2, device=device), torch.ones(2, dtype=torch.float64, device=device)
    module.kernels["scale(float*, float)"][2](x, 3.0, grid=1, block=2)
    assert x.tolist() == [6, 6]
    module.kernels["scale(T*, const T* __restrict__)"][torch.float64](d, d.clone(), grid=1, block=1)
    assert d.tolist() == [2, 1]
    module.kernels["ns::fill(double*, int)"](d, 5, grid=1, block=1)
    module.kernels["ns::fill(float*)"](x, grid=1, block=1)
    assert (d.tolist(), x.tolist()) == ([5, 1], [1, 6])
    module.warm()
    assert "(void(*)(float *, float))scale<2>" in module.compile("sm_80").lowered
    with pytest.raises(ArgumentError, match="fill"):
        module.kernels["ns::fill(float*)"](d, grid=1, block=1)


def test_overloads_are_refused_by_their_name_with_the_advice_to_say_which() -> None:
    two = load_inline(
        "__global__ void k(float* x) {}\n__global__ void k(double* x) {}\n__global__ void other() {}"
    )
    with pytest.raises(
        SourceError,
        match=r'2 kernels named k, on lines 1, 2\.\n.*\n    module\.kernels\["k\(float\*\)"\]',
    ):
        _ = two.k
    two.other(grid=1, block=1)


def test_messages_name_an_overload_as_it_is_looked_up(device: torch.device) -> None:
    module = load_inline("__global__ void k(float* x) { x[5] = 1; }\n__global__ void k(int* x) {}")
    kernel, x = module.kernels["k(float*)"], torch.zeros(1)
    assert repr(kernel).startswith("<dotcu.Kernel k(float*), inline.cu:1")
    with pytest.raises(ArgumentError, match=r"^k\(float\*\): parameter 1, float\* x, takes"):
        kernel(x.half(), grid=1, block=1)
    with pytest.raises(ArgumentError, match=r"(?s)^k\(float\*\) takes 1 .*declared as k\(float\* x\)"):
        kernel(x, 3, grid=1, block=1)
    with pytest.raises(ArgumentError, match=r"^k\(float\*\): block is missing"):
        kernel(x, grid=1)
    with pytest.raises(FindingError, match=r"in k\(float\*\), by thread"):
        kernel(x, grid=1, block=1)
    assert pickle.loads(pickle.dumps(kernel)) is kernel


def test_overloads_of_a_template_are_refused_too() -> None:
    template = "template <typename T> __global__ void k"
    two = load_inline(f"{template}(T* x) {{}}\n{template}(T* x, int n) {{}}")
    with pytest.raises(SourceError, match="2 kernels named k, on lines 1, 2"):
        _ = two.k[torch.float32]


def test_a_kernel_whose_name_begins_with_an_underscore_is_an_attribute(
    device: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    module = load_inline("namespace {\n__global__ void _fill(float* x) { *x = 3; }\n}")
    x = torch.zeros(1, device=device)
    module._fill(x, grid=1, block=1)
    assert x.item() == 3
    assert "is not the kernel of that name" not in caplog.text
    assert not hasattr(module, "_repr_html_")


def test_of_templates_in_the_branches_of_an_if_the_one_left_is_the_kernel(
    device: torch.device,
) -> None:
    module = load_inline("""
    #define WIDE 0
    #if WIDE > 3
    template <typename T> __global__ void k(T* x) { *x = 1; }
    #else
    template <typename T> __global__ void k(T* x, int n) { *x = n; }
    #endif
    """)
    x = torch.zeros(1, device=device)
    module.k[torch.float32](x, 5, grid=1, block=1)
    assert x.item() == 5


def test_a_kernel_that_the_preprocessor_hides_is_dropped_and_the_rest_go_on(device: torch.device) -> None:
    text = """
    #define MAYBE 0
    #if MAYBE > 0
    __global__ void hidden(float* x) {}
    #endif
    __global__ void seen(float* x) { *x = 1; }
    """
    module = load_inline(text)
    x = torch.zeros(1, device=device)
    module.seen(x, grid=1, block=1)
    assert x.item() == 1
    if "hidden" in module.kernels:
        with pytest.raises(KernelNotFound, match="the compiler does not see it"):
            module.hidden(x, grid=1, block=1)


def test_a_kernel_that_a_macro_makes_is_found(device: torch.device) -> None:
    module = load_inline("#define MAKE(name) __global__ void name##_one(float* x) { *x = 1; }\nMAKE(made)\n")
    x = torch.zeros(1, device=device)
    module.made_one(x, grid=1, block=1)
    assert x.item() == 1
    with pytest.raises(KernelNotFound, match="no kernel named 'made_two'; it has made_one"):
        _ = module.made_two


def test_macros_and_headers_are_handed_to_the_compiler(tmp_path: Path, device: torch.device) -> None:
    (tmp_path / "value.h").write_text("#define VALUE 4\n")
    text = '#include "value.h"\n__global__ void k(float* x) { *x = VALUE + EXTRA; }'
    module = load_inline(text, include=[tmp_path], define={"EXTRA": 3})
    x = torch.zeros(1, device=device)
    module.k(x, grid=1, block=1)
    assert x.item() == 7


def test_kernels_of_a_header_belong_to_the_module(tmp_path: Path, device: torch.device) -> None:
    (tmp_path / "more.cuh").write_text(
        "template <typename T> __global__ void put(T* x, T value) { *x = value; }\n"
        "__global__ void one(float* x) { *x = 1; }\n__constant__ int unused;\n"
    )
    module = load_inline('#include "more.cuh"\n__global__ void two(float* x) { *x = 2; }', include=[tmp_path])
    assert list(module.kernels) == ["two", "put", "one"]
    x = torch.zeros(1, device=device)
    module.one(x, grid=1, block=1)
    assert x.item() == 1
    module.put[torch.float32](x, 5.0, grid=1, block=1)
    assert x.item() == 5


def test_a_macro_chooses_between_kernels_of_one_name(device: torch.device) -> None:
    text = """
    #ifdef WIDE
    __global__ void k(double* x) { *x = 2; }
    #else
    __global__ void k(float* x) { *x = 1; }
    #endif
    """
    x = torch.zeros(1, dtype=torch.float64, device=device)
    load_inline(text, define={"WIDE": None}).k(x, grid=1, block=1)
    assert x.item() == 2
    y = torch.zeros(1, device=device)
    load_inline(text).k(y, grid=1, block=1)
    assert y.item() == 1


def test_options_as_a_str_are_refused() -> None:
    with pytest.raises(UsageError, match=r"Write options="):
        load_inline("", options="-fmad=false")


def test_a_compile_is_asked_for_by_architecture(module: Module) -> None:
    code = module.compile("sm_80")
    assert code.target == Target.parse("sm_80")
    assert code.cubin is not None
    assert {"fill", "inner::fill_two", "plain"} <= set(code.lowered)
    ptx = module.scale_add[torch.float64].compile("compute_90")
    assert ptx.cubin is None
    assert ".target sm_90" in ptx.ptx


def test_instantiate_names_what_a_compile_holds() -> None:
    module = load_inline(SOURCE, instantiate={"scale_add": [(torch.float32,), torch.bfloat16]})
    assert module.instantiate == {"scale_add": (("float",), ("__nv_bfloat16",))}
    assert {"scale_add<float>", "scale_add<__nv_bfloat16>"} <= set(module.compile("compute_80").lowered)


def test_instantiate_with_an_unknown_name_is_refused_at_once() -> None:
    with pytest.raises(KernelNotFound, match="no template named 'scale_ad'"):
        load_inline(SOURCE, instantiate={"scale_ad": [torch.float32]})


def test_warm_compiles_everything_beforehand() -> None:
    module = load_inline(SOURCE, instantiate={"scale_add": [torch.float32]})
    assert not any(unit.codes() for unit in module.units())
    module.warm()
    assert [len(unit.codes()) for unit in module.units()] == [1, 1]


def test_warm_passes_over_kernels_that_the_preprocessor_hides() -> None:
    module = load_inline(
        "#if CHOSEN\n__global__ void hidden(float* x) {}\n#endif\n__global__ void seen(float* x) {}"
    )
    assert "hidden" in module.kernels
    module.warm()
    assert "seen" in module.kernels["seen"].unit.codes()[0].object.lowered
    with pytest.raises(KernelNotFound, match="the compiler does not see it"):
        module.kernels["hidden"].warm()


def test_a_kernel_may_be_named_like_a_function_of_cuda() -> None:
    module = load_inline("""
        __global__ void exp(float* x) { *x = exp(*x - 1); }
        __global__ void any(int* x) { *x = __any_sync(1, *x); }
        __global__ void two(float* x) { *x = 2; }
    """)
    assert set(module.kernels) == {"exp", "any", "two"}
    x, flag = torch.ones(1), torch.full((1,), 7, dtype=torch.int32)
    module.exp(x, grid=1, block=1)
    module.any(flag, grid=1, block=1)
    assert (x.item(), flag.item()) == (1, 1)
    module.two(x, grid=1, block=1)
    assert x.item() == 2
    with pytest.raises(ArgumentError, match="exp"):
        module.exp(flag, grid=1, block=1)


def test_a_kernel_named_like_another_function_is_refused_for_that() -> None:
    module = load_inline(
        "__device__ float twice(float x) { return 2 * x; }\n"
        "__global__ void twice(float* x) { *x = twice(*x); }\n"
    )
    with pytest.raises(CompileError, match=r"overloaded function \"twice\"(.|\n)*[Rr]ename"):
        module.twice(torch.ones(1), grid=1, block=1)


def test_a_module_and_its_kernels_say_what_they_are() -> None:
    module = load_inline(SOURCE)
    assert repr(module) == "<dotcu.Module 'inline.cu': scale_add, steps, fill, inner::fill_two, plain>"
    assert repr(module.scale_add) == "<dotcu.Kernel template <typename T> scale_add, inline.cu:3>"
    assert repr(module.fill) == "<dotcu.Kernel fill, inline.cu:12, not compiled yet>"
    module.fill.compile("sm_80")
    assert repr(module.fill) == (
        "<dotcu.Kernel fill(float* out, float value, int n), inline.cu:12, compiled for sm_80>"
    )


def test_a_kernel_that_an_attribute_hides_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    module = load_inline("__global__ void warm(int* out) {}\n__global__ void name(int* out) {}")
    told = [record.getMessage() for record in caplog.records]
    assert [text.rsplit(": use ")[-1] for text in told] == [
        'module.kernels["warm"]',
        'module.kernels["name"]',
    ]
    assert module.kernels["warm"].name == "warm"


def test_an_example_fits_the_templates_parameters() -> None:
    text = """
    namespace a { template <typename T, int N, bool FLAG> __global__ void k(T* x) {} }
    template <typename T = float, int N = 4> __global__ void defaults(T* x) {}
    """
    module = load_inline(text)
    with pytest.raises(
        ArgumentError, match=r'module\.kernels\["a::k"\]\[torch\.float32, 256, True\]\(\.\.\.\)'
    ):
        module.k(grid=1, block=1)
    with pytest.raises(ArgumentError, match=r"module\.defaults\[\(\)\]\(\.\.\.\)"):
        module.defaults(grid=1, block=1)
    with pytest.raises(
        ArgumentError, match=r'\nCall it as it is: module\.defaults\["float", "3"\]\(\.\.\., grid='
    ):
        module.defaults[torch.float32, 3][torch.float32]


def test_a_compile_error_shows_the_options_and_names_no_compiler_that_was_not_run() -> None:
    with pytest.raises(CompileError) as caught:
        load_inline("__global__ void k(float* x) { x[0] = nope; }").kernels["k"].compile("compute_80")
    last = str(caught.value).splitlines()[-1]
    assert last.startswith("Options, as for nvcc: -arch=compute_80 ")
    assert caught.value.command.startswith("nvcc -arch=compute_80 ")


@pytest.mark.parametrize(
    "call",
    [
        lambda: load(None),
        lambda: load(5),
        lambda: load_inline(b"text"),
        lambda: load_inline("", include="inc"),
        lambda: load_inline("", include=[None]),
        lambda: load_inline("", options=5),
    ],
    ids=["path None", "path 5", "bytes", "include str", "include None", "options 5"],
)
def test_what_is_no_source_and_no_option_is_refused(call: Callable[[], Module]) -> None:
    with pytest.raises((UsageError, SourceNotFound)):
        call()


VARIABLE_SOURCE = """
__constant__ float table[4];
__device__ int counter;
namespace ns { __constant__ int offset; }
__global__ void look_up(float* out) { out[threadIdx.x] = table[threadIdx.x]; }
__global__ void count(int* out) { *out = atomicAdd(&counter, 1) + ns::offset; }
template <int N> __global__ void scaled(float* out) { out[threadIdx.x] = N * table[threadIdx.x]; }
"""


@pytest.fixture
def module_of_variable() -> Module:
    return load_inline(VARIABLE_SOURCE)


def looked_up(module_of_variable: Module, device: torch.device | str) -> list[float]:
    out = torch.zeros(4, device=device)
    module_of_variable.look_up(out, grid=1, block=4)
    return out.tolist()


def test_a_constant_table_is_written_before_and_after_loading(
    module_of_variable: Module, device: torch.device
) -> None:
    assert looked_up(module_of_variable, device) == [0, 0, 0, 0]
    module_of_variable.variable("table").write(torch.tensor([1.0, 2, 3, 4]))
    assert looked_up(module_of_variable, device) == [1, 2, 3, 4]
    module_of_variable.variable("table").write(torch.tensor([5.0, 6, 7, 8], device=device))
    assert looked_up(module_of_variable, device) == [5, 6, 7, 8]


def test_a_program_that_could_not_be_filled_is_made_again(
    module_of_variable: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: CompiledUnit) -> dict[str, bytes]:
        raise JitDisabled("no compiling now")

    module_of_variable.variable("table").write(torch.tensor([1.0, 2, 3, 4]))
    with monkeypatch.context() as patched:
        patched.setattr(CompiledUnit, "_initial", fails)
        with pytest.raises(JitDisabled):
            looked_up(module_of_variable, "cpu")
    assert looked_up(module_of_variable, "cpu") == [1, 2, 3, 4]


def test_a_write_reaches_copies_that_are_loaded_later(
    module_of_variable: Module, device: torch.device
) -> None:
    module_of_variable.variable("table").write(torch.tensor([1.0, 2, 3, 4]))
    out = torch.zeros(4, device=device)
    module_of_variable.scaled[10](out, grid=1, block=4)
    assert out.tolist() == [10, 20, 30, 40]
    with simulate(arch="sm_90"):
        assert looked_up(module_of_variable, "cpu") == [1, 2, 3, 4]
    module_of_variable.variable("table").write(torch.zeros(4))
    module_of_variable.scaled[10](out, grid=1, block=4)
    assert out.tolist() == [0, 0, 0, 0]


def test_a_device_variable_keeps_what_kernels_store(module_of_variable: Module, device: torch.device) -> None:
    out = torch.zeros(1, dtype=torch.int32, device=device)
    module_of_variable.variable("counter").write(torch.tensor([40], dtype=torch.int32))
    module_of_variable.variable("offset").write(torch.tensor(100, dtype=torch.int32))
    for expected in (140, 141):
        module_of_variable.count(out, grid=1, block=1)
        assert out.item() == expected


def test_a_strided_tensor_is_written_in_its_order(module_of_variable: Module, device: torch.device) -> None:
    module_of_variable.variable("table").write(torch.arange(8.0)[::2])
    assert looked_up(module_of_variable, device) == [0, 2, 4, 6]


def without_storage(count: int) -> torch.Tensor:
    tensor = torch.zeros(count)
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (torch.zeros(3), r"has 16 bytes, got a float32 tensor of shape \(3,\) on cpu of 12 bytes"),
        (torch.zeros(4, dtype=torch.float64), "of 32 bytes"),
        ([1.0, 2.0], "takes a tensor, got list"),
        (torch.zeros(4, device="meta"), "without memory"),
        (without_storage(4), "has 0 of the 16 bytes"),
    ],
)
def test_a_value_of_another_size_is_refused(module_of_variable: Module, value: object, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        module_of_variable.variable("table").write(value)  # type: ignore[arg-type]


def test_an_unknown_variable_lists_those_that_there_are(module_of_variable: Module) -> None:
    with pytest.raises(KernelNotFound, match=r"no variable named 'tabel'; it has table, "):
        module_of_variable.variable("tabel")


def test_a_variable_that_the_preprocessor_hides_says_so() -> None:
    hidden = load_inline("#define N 0\n#if N\n__constant__ int gone;\n#endif\n__global__ void k() {}")
    with pytest.raises(KernelNotFound, match="gone"):
        hidden.variable("gone").write(torch.zeros(1, dtype=torch.int32))
    hidden.k(grid=1, block=1)


def test_nothing_is_written_where_only_shapes_are_asked_for(module_of_variable: Module) -> None:
    with entering_scope(LaunchPolicy.SKIP):
        module_of_variable.variable("table").write(torch.ones(4))
    assert looked_up(module_of_variable, "cpu") == [0, 0, 0, 0]


def test_a_variable_says_what_it_is(module_of_variable: Module) -> None:
    variable = module_of_variable.variable("ns::offset")
    assert repr(variable) == "<dotcu variable ns::offset of inline.cu, not written>"
    variable.write(torch.tensor(1, dtype=torch.int32))
    assert repr(variable) == "<dotcu variable ns::offset of inline.cu, written>"


COUNTER = """
__device__ int counter;
__device__ const int step = 1;
template <typename T> __global__ void bump(T* out) { atomicAdd(&counter, step); *out = T(0); }
template <typename T> __global__ void fill(T* out) { *out = T(step); }
__global__ void read(int* out) { *out = counter; }
"""


def test_instantiations_named_together_share_a_device_variable(device: torch.device) -> None:
    module_of_variable = load_inline(COUNTER, instantiate={"bump": [torch.float32, (torch.int32,)]})
    out, scratch = torch.zeros(1, dtype=torch.int32, device=device), torch.zeros(1, device=device)
    module_of_variable.bump[torch.float32](scratch, grid=2, block=1)
    module_of_variable.bump[torch.int32](out, grid=1, block=1)
    module_of_variable.read(out, grid=1, block=1)
    assert out.item() == 3


def test_a_second_copy_of_a_device_variable_is_refused(device: torch.device) -> None:
    module_of_variable = load_inline(COUNTER)
    out, scratch = torch.zeros(1, dtype=torch.int32, device=device), torch.zeros(1, device=device)
    module_of_variable.bump[torch.float32](scratch, grid=1, block=1)
    with pytest.raises(SourceError, match=r"its own copy of the __device__ variable counter") as caught:
        module_of_variable.read(out, grid=1, block=1)
    assert 'instantiate={"bump": [(torch.float32,)]}' in str(caught.value)


def test_a_template_that_writes_no_variable_needs_no_naming(device: torch.device) -> None:
    module_of_variable = load_inline(COUNTER)
    scratch = torch.zeros(1, device=device)
    module_of_variable.fill[torch.float32](scratch, grid=1, block=1)
    module_of_variable.read(torch.zeros(1, dtype=torch.int32, device=device), grid=1, block=1)
    assert scratch.item() == 1


def test_a_write_where_nothing_may_be_launched_is_refused(module_of_variable: Module) -> None:
    with (
        entering_scope(LaunchPolicy.REFUSE, operator="ns::op", reason="in its backward"),
        pytest.raises(TracedLaunchError, match=r"table was written in ns::op in its backward"),
    ):
        module_of_variable.variable("table").write(torch.ones(4))
    assert looked_up(module_of_variable, "cpu") == [0, 0, 0, 0]


def test_a_table_that_only_the_host_writes_may_have_many_copies(device: torch.device) -> None:
    module_of_variable = load_inline("""
        __device__ float large[4];
        template <int N> __global__ void look_up(float* out) { out[threadIdx.x] = N * large[threadIdx.x]; }
        template <typename T> __global__ void fill(T* x) { large[threadIdx.x] = x[threadIdx.x]; }
    """)
    out = torch.zeros(4, device=device)
    module_of_variable.variable("large").write(torch.arange(4.0))
    for factor in (1, 2):
        module_of_variable.look_up[factor](out, grid=1, block=4)
        assert out.tolist() == [0, factor, 2 * factor, 3 * factor]
    with pytest.raises(SourceError, match=r"fill<float> would get its own .* look_up<1>, look_up<2> already"):
        module_of_variable.fill[torch.float32](out, grid=1, block=4)
    module_of_variable.look_up[3](out, grid=1, block=4)


@pytest.mark.parametrize(
    "text",
    [
        "__device__ int next() { static int n; return atomicAdd(&n, 1); }",
        "template <typename T> __device__ T n;\n__device__ int next() { return atomicAdd(&n<int>, 1); }",
        "#define DEV __device__ int\n#define N(n) DEV n\nN(n);\nDEV next() { return atomicAdd(&n, 1); }",
        "static __device__ int n;\n__device__ int next() { return atomicAdd(&n, 1); }",
        "namespace { __device__ int n; }\n__device__ int next() { return atomicAdd(&n, 1); }",
    ],
)
def test_state_of_any_kind_is_never_split(device: torch.device, text: str) -> None:
    text += "\ntemplate <typename T> __global__ void draw(T* x) { *x = T(next()); }"
    split = load_inline(text)
    numbers, halves = torch.zeros(1, device=device), torch.zeros(1, dtype=torch.float16, device=device)
    split.draw[torch.float32](numbers, grid=1, block=1)
    with pytest.raises(SourceError, match=r"draw<__half> would get its own copy") as caught:
        split.draw[torch.float16](halves, grid=1, block=1)
    assert 'instantiate={"draw": [(torch.float32,), (torch.float16,)]}' in str(caught.value)
    joined = load_inline(text, instantiate={"draw": [torch.float32, torch.float16]})
    joined.draw[torch.float32](numbers, grid=1, block=1)
    joined.draw[torch.float16](halves, grid=1, block=1)
    assert (numbers.item(), halves.item()) == (0, 1)


def test_the_text_of_an_assert_is_no_state_that_instantiations_share(device: torch.device) -> None:
    module = load_inline("""
        #include <cassert>
        template <typename T> __global__ void fill(T* x, int n) {
            assert(n > 0);
            if (n < 0) printf("%s", __PRETTY_FUNCTION__);
            *x = n;
        }
    """)
    for dtype in (torch.float32, torch.int32, torch.float16):
        x = torch.zeros(1, dtype=dtype, device=device)
        module.fill[dtype](x, 3, grid=1, block=1)
        assert x.item() == 3
