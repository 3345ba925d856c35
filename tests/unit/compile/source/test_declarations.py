"""Kernels and variables found in a text."""

from __future__ import annotations

import pytest

from dotcu.compile import CompileOptions, Declaration, inline_source, kernels, variables
from dotcu.compile.source.declarations import only_kernels


def only(text: str) -> Declaration:
    (found,) = kernels(text)
    return found


def test_a_plain_kernel() -> None:
    assert only("\n__global__ void k(const float* a, float *b, int n) { }") == Declaration(
        "k", (), ("a", "b", "n"), 2
    )


def test_a_template_gives_its_parameters_text() -> None:
    found = only("template <typename T, int N = 4,\n class U = pair<int, T>>\n__global__ void k(T* x) {}")
    assert found.template_parameters == ("typename T", "int N = 4", "class U = pair<int, T>")
    assert found.line == 3


@pytest.mark.parametrize(
    "prefix",
    [
        "__global__ void __launch_bounds__(256, 2)",
        "__global__ __launch_bounds__(N * (2 + 1)) void",
        "__launch_bounds__(256) __global__ void",
        "C10_LAUNCH_BOUNDS_1(512) __global__ void",
        "template <typename T> C10_LAUNCH_BOUNDS_2(512, (2 + 1)) __global__ void",
        "__global__ void C10_LAUNCH_BOUNDS_1(cuda_threads())",
        "template <typename T>\nBOUNDS(256)\n__global__ __launch_bounds__(32) void",
        "static __global__ void",
        "[[maybe_unused]] __global__ void",
        "__global__ __attribute__((used)) void",
        "__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128)",
        'extern "C" __global__ void',
        "inline __global__\nvoid",
    ],
)
def test_attributes_are_no_names(prefix: str) -> None:
    assert only(f"{prefix} k(int* x) {{ if (x) {{ }} }}").name == "k"
    assert only(f"{prefix} k(int* x) {{ if (x) {{ }} }}").parameter_names == ("x",)


def test_names_are_qualified_by_their_scopes() -> None:
    text = """
    namespace a { namespace b::c {
      struct S { int x; __device__ void f() { } };
      __global__ void one(int x) { S s{1}; }
    } __global__ void two() {} }
    extern "C" { __global__ void three(void) {} }
    namespace { __global__ void four() {} }
    inline namespace v1 { __global__ void five() {} }
    __global__ void six() {}
    """
    assert [k.name for k in kernels(text)] == ["a::b::c::one", "a::two", "three", "four", "v1::five", "six"]


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ("", ()),
        ("void", ()),
        ("int", ("",)),
        ("unsigned long long", ("",)),
        ("const float*", ("",)),
        ("ns::type", ("",)),
        ("const T", ("",)),
        ("T x = T(1, 2), int y = 3", ("x", "y")),
        ("const float* __restrict__ a, float* __restrict__", ("a", "")),
        ("dotcu::tensor<float, 2> x, pair<int, pair<int, int>> y", ("x", "y")),
        ("const __grid_constant__ P p, float (*f)(int, int), int q[3][4]", ("p", "f", "q")),
        ("float4 const* x, struct S s, T... rest", ("x", "s", "rest")),
        ("int a /* first */, // second\n int b", ("a", "b")),
        ("[[maybe_unused]] int a, array<float, (3 > 2)> b", ("a", "b")),
    ],
)
def test_parameter_names(parameters: str, names: tuple[str, ...]) -> None:
    assert only(f"template <class T> __global__ void k({parameters}) {{}}").parameter_names == names


def test_a_declaration_and_its_definition_are_one_kernel() -> None:
    text = "__global__ void k(int*, int = 3);\n__global__ void k(int* x, int n) { }"
    assert only(text) == Declaration("k", (), ("x", "n"), 2)


def test_overloads_stand_one_by_one() -> None:
    text = "__global__ void k(int* x) {}\n__global__ void k(float* x) {}"
    assert [found.line for found in kernels(text)] == [1, 2]


def test_instantiations_and_specializations_are_no_kernels_of_their_own() -> None:
    text = """template <class T> __global__ void k(T* x) {}
    template __global__ void k<float>(float*);
    template <> __global__ void k<int>(int* x) {}
    extern template __global__ void k<double>(double*);"""
    assert only(text).line == 1


def test_what_is_not_compiled_declares_nothing() -> None:
    text = """// __global__ void a() {}
    /* __global__ void b() {} */ const char* s = "__global__ void c() {}";
    #if 0
    __global__ void d() {}
    #endif
    #ifndef __CUDACC_RTC__
    __global__ void e() {}
    #endif
    #define F __global__ void f() {}
    """
    assert kernels(text) == ()


def test_a_branch_on_a_macro_of_the_options_is_followed() -> None:
    text = "#ifdef A\n__global__ void a() {}\n#else\n__global__ void b() {}\n#endif"
    assert [k.name for k in kernels(text)] == ["a", "b"]
    assert [k.name for k in kernels(text, {"A"})] == ["a"]


@pytest.mark.parametrize("sign", ["=", "[]", "()", "+=", " float"])
def test_an_operator_is_no_variable(sign: str) -> None:
    assert variables(f"struct S {{ __device__ S& operator{sign}(const S& x) {{ return *this; }} }};") == ()


@pytest.mark.parametrize(
    "text", ["__global__", "__global__ void k(", "template <", "}}}", "namespace {", "(", "<<>"]
)
def test_text_that_is_cut_off_is_no_accident(text: str) -> None:
    assert kernels(text) == ()
    assert variables(text) == ()


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("template <class T> struct S", "S"),
        ("template <class T, int N = 4> class S final : Base<T>", "S"),
        ("template <> struct S<int>", "S<int>"),
        ("template <class T> template <class U> struct S<T>::Inner", "S<T>::Inner"),
        ("namespace a::b", "a::b"),
    ],
)
def test_template_parameters_are_no_part_of_a_scopes_name(head: str, name: str) -> None:
    assert variables(f"{head} {{ static __device__ int x; }};") == (f"{name}::x",)


def test_variables_are_found_with_their_scope() -> None:
    text = """
    __constant__ float table[256];
    namespace ns { __device__ int counter = 3, other; static __constant__ P p{1, 2}; }
    __device__ __managed__ double m;
    __device__ int function(int x) { return x; }
    __device__ float4 f4();
    __constant__ tensor<float, 2> t;
    __device__ __align__(16) char bytes[4];
    extern "C" __device__ int plain_name;
    __global__ void k() { __shared__ int s; static __device__ int inner; }
    """
    assert variables(text) == ("table", "ns::counter", "ns::other", "ns::p", "m", "t", "bytes", "plain_name")


def test_nested_indices_hide_nothing_that_follows() -> None:
    text = """
__global__ void gather(const float* x, const int* ix, float* o) { o[threadIdx.x] = x[ix[threadIdx.x]]; }
[[maybe_unused]] __constant__ float table[2];
__device__ int ordinals[sizes[counts[0]]];
__global__ void second(float* o) { o[0] = 1; }
"""
    assert [kernel.name for kernel in kernels(text)] == ["gather", "second"]
    assert variables(text) == ("table", "ordinals")


def test_branches_that_balance_only_one_by_one_hide_nothing() -> None:
    text = """
    __global__ void first(float* x) {
    #ifdef FOO
        for (int i = 0; i < 4; ++i) {
    #else
        while (*x > 0) {
    #endif
            *x -= 1;
        }
    }
    #ifdef FOO
    __global__ void with_foo(float* x) {}
    #else
    __global__ void without_foo(float* x) {}
    #endif
    __device__ int counter;
    __global__ void last(float* x) {}
    """
    assert [k.name for k in kernels(text)] == ["first", "with_foo", "without_foo", "last"]
    assert variables(text) == ("counter",)


def test_a_parameter_list_with_branches_is_one_kernel() -> None:
    text = """
    __global__ void k(
    #if WIDE > 1
        double* x,
    #else
        float* y,
    #endif
        int n) {}
    __global__ void last() {}
    """
    assert [(k.name, k.parameter_names) for k in kernels(text)] == [("k", ("x", "n")), ("last", ())]


def test_a_bracket_that_a_macro_closes_hides_no_later_kernel() -> None:
    text = """
    #define BEGIN {
    #define END }
    __global__ void first(float* x) { for (;;) { END }
    __global__ void last(float* x) { if (x[0] > 0) { } }
    """
    assert [k.name for k in kernels(text)] == ["first", "last"]


def test_what_a_macro_names_is_no_kernel() -> None:
    text = """
    #define MK(T) k_##T
    #define OTHER renamed
    __global__ void MK(float)(float* x) {}
    __global__ void OTHER(float* x) {}
    __global__ void ELSEWHERE(float* x) {}
    __global__ void UNKNOWN(float)(float* x) {}
    __global__ void plain(float* x) {}
    """
    assert [k.name for k in kernels(text, macros={"ELSEWHERE"})] == ["plain"]


def test_a_macro_before_a_namespace_does_not_hide_it() -> None:
    text = "MAKE(a)\nnamespace ns { __global__ void k() {} }\nMAKE(b)\nnamespace { __global__ void u() {} }"
    assert [k.name for k in kernels(text)] == ["ns::k", "u"]


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
    return only_kernels(inline_source(TEXT), CompileOptions().defined, names).text


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


def test_the_call_of_a_macro_before_a_kernel_is_not_its_name() -> None:
    (kernel,) = kernels("REGISTER(a)\nREGISTER(b, c)\n__global__ void k(int* x) {}\n")
    assert (kernel.name, kernel.parameter_names) == ("k", ("x",))
