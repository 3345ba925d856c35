"""What of a text is device code: told by its declarations, never by a guess."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dotcu.compile import CompileOptions, ObjectCode, Target, inline_source, plan_build, read_source
from dotcu.compile.host_split.detect import DeviceParts
from dotcu.compile.host_split.select import device_parts
from dotcu.compile.source.lexer import NVRTC_MACROS
from dotcu.errors import CompileError, HostCodeError
from helpers import forked_scripts

Build = Callable[..., ObjectCode]
KERNEL = "__global__ void k(int* x) { *x = 1; }\n"


def parts(*texts: str) -> DeviceParts:
    named = {str(number): text for number, text in enumerate(texts)}
    return device_parts(tuple(named.items()), NVRTC_MACROS, frozenset(named))


def left(text: str) -> str:
    """What is left of a text, its blanks and empty lines made one."""
    found = parts(text)
    assert not found.unclear
    return " ".join(found.texts.get("0", text).split())


def digest(text: str) -> str:
    plan = plan_build(
        inline_source(text), options=CompileOptions(), target=Target.parse("sm_80"), names=("k",)
    )
    return plan.build_digest


# Of each pair: host code that is left out, and what of it stays.
LEFT_OUT = [
    "void f(float* x) { k<<<1, 2>>>(x); }",
    "template <typename T> static void f(T x) { AT_DISPATCH_ALL([&] { k<<<1, 1>>>(x); }); }",
    "torch::Tensor f(torch::Tensor x) { return x; }",
    "std::vector<at::Tensor> f(at::Tensor x, int n = 3);",
    "int main(int argc, char** argv) { return 0; }",
    "main() { }",
    "int main(int argc, char** argv) try { return 0; } catch (int) { } catch (...) { return 1; }",
    "__host__ int f() { return rand(); }",
    'extern "C" void f(void* x) { }',
    "auto f(int x) -> int { return x; }",
    "TORCH_API void f(int x);",
    "void CUDART_CB f(cudaStream_t stream, cudaError_t status, void* data);",
    "Timer::Timer() : a(1), b{2} { start(); }",
    "Timer::~Timer() = default;",
    "a::Timer<int>::Timer() = default;",
    "bool operator==(A a, A b) { return true; }",
    "static int counter = 0;",
    "float* buffer;",
    'const char* names[] = {"a", "b"};',
    "const int n = std::max(1, 2);",
    "auto f = [](int x) { return x; };",
    "cublasHandle_t handle;",
    "extern cudaDeviceProp prop;",
    "struct Config { std::vector<int> sizes; };",
    "using Tensors = std::vector<torch::Tensor>;",
    "using namespace torch;",
    "using at::Tensor;",
    "namespace py = pybind11;",
    "constexpr int unused(int n) { return n; }",
    "template void f<float>(float*);",
    'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }',
    'TORCH_LIBRARY(mylib, m) { m.def("f() -> ()"); }',
    "TORCH_LIBRARY_IMPL(mylib, CUDA, m) { }",
    "STABLE_TORCH_LIBRARY_IMPL(mylib, CUDA, m) { }",
    "NB_MODULE(name, m) { }",
    "#include <torch/extension.h>",
    "#include <iostream>",
    "#include <cublas_v2.h>",
    '#include "ATen/ATen.h"',
]

KEPT = [
    "template <typename T> __device__ T f(T x) { return x; }",
    "__host__ __device__ inline int f(int x) { return x; }",
    'extern "C" __global__ void f(int* x) { }',
    "__device__ int f(int);",
    "template __global__ void k<float>(float*);",
    "__constant__ float table[16];",
    "__device__ float total, other;",
    "extern __shared__ float s[];",
    "static constexpr int N = 4;",
    "const float PI = 3.14f, E = 2.7f;",
    "const int sizes[] = {1, 2, 3};",
    "enum class Mode : int { A, B };",
    "struct Pair { float a, b; };",
    "typedef struct { int a; } Old;",
    "union Bits { float f; unsigned u; };",
    "using scalar = float;",
    "template <typename T> using pointer = T*;",
    "using namespace std;",
    'static_assert(sizeof(float) == 4, "float");',
    "#define TWICE(x) ((x) * 2)",
    "#pragma once",
    "#include <cuda_fp16.h>",
    '#include "mine.cuh"',
]


@pytest.mark.parametrize("text", LEFT_OUT)
def test_host_code_is_left_out(text: str) -> None:
    assert left(f"{text}\n{KERNEL}") == KERNEL.strip()
    assert left(f"{KERNEL}{text}\n") == KERNEL.strip()
    inside = left(f"namespace a {{\n{text}\n{KERNEL}}}\n")
    assert inside == f"namespace a {{ {KERNEL.strip()} }}"


@pytest.mark.parametrize("text", KEPT)
def test_device_code_and_what_it_may_need_stay(text: str) -> None:
    assert left(f"{text}\n{KERNEL}int main() {{}}\n") == f"{text} {KERNEL.strip()}"


def test_lines_and_columns_stay() -> None:
    text = (
        "int f(); __device__ int g();  // both\n\n/* a */ void h()\n{\n}\n"
        f"\tstruct A {{ int m() {{ return rand() + 1; }} int x; }};\n{KERNEL}"
    )
    found = parts(text).texts["0"]
    assert found.split("\n") == [
        "         __device__ int g();", "", "", "", "",
        "\tstruct A { __device__ inline int m() ;    int x; };",
        KERNEL.strip(), "",
    ]  # fmt: skip


def test_a_text_without_host_code_is_the_same_text() -> None:
    text = f"// a\n#include <cuda_fp16.h>\n\n{KERNEL}  // b  \n\n\n"
    assert parts(text).texts == {}


def test_a_shared_declaration_stays_where_device_code_names_it() -> None:
    used = "constexpr int cdiv(int a, int b) { return (a + b - 1) / b; }\n"
    text = (
        f"{used}__global__ void k(int* x) {{ __shared__ int s[cdiv(9, 2)]; *x = s[0]; }}\nint main() {{}}\n"
    )
    assert left(text).startswith(f"__device__ {used.strip()}")
    through_macro = (
        f"#define C(a) cdiv(a, 2)\n{used}__global__ void k(int* x) {{ *x = C(9); }}\nint main() {{}}\n"
    )
    assert f"__device__ {used.strip()}" in left(through_macro)


def test_a_type_of_a_header_stays_where_the_sources_device_code_names_it() -> None:
    header = "struct Opaque; struct Shape { Opaque* next; int n; };\nvoid launch(Shape s);\n"
    source = "__global__ void k(Shape s, int* x) { *x = s.n; }\nint main() {}\n"
    assert "struct Shape" in parts(source, header).texts["1"]
    assert "launch" not in parts(source, header).texts["1"]


def test_what_host_headers_bring_along_stands_in_their_place(make: Build) -> None:
    text = "#include <torch/extension.h>\n__global__ void k(int64_t* x, __half* y) { *x = INT64_MAX; }\n"
    assert parts(text).texts["0"].splitlines()[0] == "#include <left_out/half>"
    assert make(text).lowered == {"k": "_Z1kPxP6__half"}
    assert parts(f"#include <vector>\n{KERNEL}").texts["0"].splitlines()[0] == ""


@pytest.mark.parametrize(
    ("condition", "alternative"), [("#ifdef USE_A", "#else"), ("#if VERSION > 2", "#elif VERSION > 1")]
)
def test_conditions_are_taken_branch_by_branch(condition: str, alternative: str) -> None:
    text = f"""{condition}
void launch(int n) {{
{alternative}
void launch(long n) {{
#endif
  k<<<1, 1>>>(n);
}}
{condition}
__device__ int f() {{ return 1; }}
int rest() {{ return 1; }}
{alternative}
__device__ int f() {{ return 2; }}
#endif
{KERNEL}"""
    one, two = (f"__device__ int f() {{ return {n}; }}" for n in (1, 2))
    assert left(text) == f"{condition} {one} {alternative} {two} #endif {KERNEL.strip()}"


def test_macros_are_classified_by_what_they_are_made_of() -> None:
    makers = """#define HD __host__ __device__
#define KERNEL(name) __global__ void name(float* x) { *x = 1; }
#define LAUNCHER(name) void launch_##name(float* x) { name<<<1, 1>>>(x); }
"""
    text = (
        f"{makers}HD int f() {{ return 1; }}\nKERNEL(fill)\nLAUNCHER(fill)\nKERNEL(more);\nint main() {{}}\n"
    )
    assert left(text) == f"{' '.join(makers.split())} HD int f() {{ return 1; }} KERNEL(fill) KERNEL(more);"


def test_members_for_the_host_are_cut_out_of_a_type(make: Build) -> None:
    text = """struct A {
  float x;
  A() = default;
  explicit A(float y) : x(y) {}
  float host() const { return std::sqrt(x); }
  std::string name() const;
  __host__ __device__ float twice() const { return 2 * x; }
  constexpr int three() const { return 3; }
  template <typename T> __device__ T as() const { return T(x); }
  template <typename T> T gone() const { return T(x); }
  friend bool operator==(A a, A b) { return a.x == b.x; }
};
__global__ void k(A a, float* y) { *y = a.twice() + a.three() + a.as<int>(); }
int main() {}
"""
    assert make(text).lowered == {"k": "_Z1k1APf"}


# Of each: device code that a host declaration gives its meaning, the line of that, and what is told.
REBOUND = {
    "a constructor": (
        """struct V {
  float x;
  V() : x(1) {}
};
__global__ void k(float* o) { V v; *o = v.x; }
""",
        3,
        "V::V()",
    ),
    "a constructor with a try": (
        """struct V {
  float x;
  V() try : x(1) {} catch (...) {}
};
__global__ void k(float* o) { V v; *o = v.x; }
""",
        3,
        "V::V()",
    ),
    "a destructor": (
        """struct V {
  int x;
  ~V() { x = 1; }
};
__global__ void k(int* o) { V v{2}; *o = v.x; }
""",
        3,
        "V::~V",
    ),
    "an assignment": (
        """struct V {
  int x;
  V& operator=(const V& v) { x = 7; return *this; }
};
__global__ void k(V* o, V v) { *o = v; }
""",
        3,
        "operator=",
    ),
    "a member that hides another": (
        """struct B { __device__ int f() { return 1; } };
struct D : B {
  int f() { return 2; }
};
__global__ void k(int* o) { D d; *o = d.f(); }
""",
        3,
        "D::f",
    ),
    "an overload": (
        """__device__ float f(double x) { return x / 2; }
float f(int x) { return x; }
__global__ void k(float* o) { *o = f(3); }
""",
        2,
        "f(int)",
    ),
    "an overload of a constructor": (
        """struct V {
  float v;
  __device__ V(float x) : v(x) {}
  explicit V(int x) : v(-1) {}
};
__global__ void k(float* o) { *o = V(3).v; }
""",
        4,
        "V::V(int)",
    ),
    "an overload of the compiler's": (
        """int max(int a, int b) { return 7; }
__global__ void k(int* o) { *o = max(1, 2); }
""",
        1,
        "max(int, int)",
    ),
    "a specialization": (
        """template <class T> __device__ T f(T x) { return x; }
template <> float f<float>(float x) { return 2; }
__global__ void k(float* o) { *o = f(1.0f); }
""",
        2,
        "float",
    ),
    "an operator": (
        """struct V { float x; __device__ operator float() const { return x; } };
float operator+(V a, V b) { return 7; }
__global__ void k(float* o) { V v{1}; *o = v + v; }
""",
        2,
        "operator+",
    ),
    "a conversion": (
        """struct V {
  __device__ operator float() const { return 1; }
  operator int() const { return 2; }
};
__global__ void k(int* o) { V v; *o = v; }
""",
        3,
        "V::operator int",
    ),
    "a variable": (
        """const int W = 8;
namespace inner {
float V = 2, W = 1;
__global__ void k(float* o) { *o = W; }
}
""",
        3,
        "W, at line 3 of inline.cu",
    ),
    "a type": (
        """struct T { int n; };
namespace inner {
struct T { std::vector<int> n; };
__global__ void k(int* o) { *o = sizeof(T); }
}
""",
        3,
        "T, at line 3 of inline.cu",
    ),
    "a constructor that the compiler cannot take": (
        """struct V {
  float x;
  V(std::vector<int> v) {}
};
__global__ void k(float* o) { V v; *o = v.x; }
""",
        3,
        "V, at line 3 of inline.cu",
    ),
}


@pytest.mark.parametrize("case", REBOUND)
def test_no_name_of_device_code_changes_its_meaning(case: str, make: Build) -> None:
    text, line, what = REBOUND[case]
    with pytest.raises((CompileError, HostCodeError)) as error:
        make(f"{text}int main() {{}}\n", names=())
    assert re.search(rf"inline\.cu:{line}: |at line {line} of inline\.cu", str(error.value))
    assert what in str(error.value)
    assert re.search("__device__|#ifndef __CUDACC_RTC__|was left out as host code", str(error.value))


def test_heads_of_host_functions_stay_where_nothing_calls_them(make: Build) -> None:
    text = """struct U { virtual int f() { return 1; } virtual ~U() {} int n; };
struct V { float x; V() : x(1) {} explicit V(int) : V() {} operator float() const { return x; } };
struct W { virtual ~W() = default;
  friend std::ostream& operator<<(std::ostream& o, const W& w) { return o; } };
__device__ float f(double x) { return x / 2; }
float f(int x) { return x; }
torch::Tensor f(torch::Tensor x) { return x; }
__global__ void k(V v, float* o) { static_assert(sizeof(U) == 16 && sizeof(W) == 8); *o = v.x + f(3.0); }
int main() {}
"""
    assert make(text).lowered == {"k": "_Z1k1VPf"}


def test_members_that_only_a_type_is_asked_of_stay(make: Build) -> None:
    text = """template <class T> struct has_x {
  template <class U> static char test(decltype(&U::x));
  template <class U> static long test(...);
  static const bool value = sizeof(test<T>(0)) == 1;
};
struct A { int x; };
struct B { int x() { return 1; } };
struct C { int y; };
__global__ void k() {
  static_assert(has_x<A>::value && has_x<B>::value && !has_x<C>::value);
}
int main() {}
"""
    assert make(text).lowered == {"k": "_Z1kv"}


def test_a_template_that_both_may_have_is_marked_behind_its_parameters(make: Build) -> None:
    text = (
        "template <class T> constexpr T twice(T x) { return 2 * x; }\n"
        "__global__ void k(float* x) { *x = twice(*x); }\nint main() {}\n"
    )
    assert make(text).lowered == {"k": "_Z1kPf"}


def test_a_member_that_device_code_lacks_is_reported_with_its_line(make: Build) -> None:
    text = (
        "struct A {\n  int x;\n  std::string name() const;\n};\n"
        "__global__ void k(A a) { a.name(); }\nint main() {}\n"
    )
    with pytest.raises(
        CompileError, match=r"name, at line 3 of inline\.cu, was left out as host code: a mem"
    ):
        make(text)


def test_comments_and_strings_are_no_code(make: Build) -> None:
    text = f"""// k<<<1, 1>>>(x); int main() {{
/* #include <torch/extension.h>
   PYBIND11_MODULE( */
{KERNEL}__global__ void j() {{ printf("<<<%s>>>", "main() {{"); }}
"""
    assert parts(text).texts == {}
    assert set(make(text, names=("k", "j")).lowered) == {"k", "j"}


def test_crlf_and_bytes_that_are_not_utf_8_do_no_harm(make: Build, tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_bytes(
        b'#include <vector>\r\n// caf\xe9\r\n#define MANY \\\r\n  3\r\nconst char* s = "\xe9";\r\n'
        b"void f()\r\n{\r\n}\r\n__global__ void k(int* x)\r\n{\r\n    *x = MANY; /* \xe9 */ missing();\r\n"
        b"}\r\n"
    )
    with pytest.raises(CompileError) as error:
        make(read_source(path))
    (found,) = error.value.diagnostics
    assert (found.line, found.column) == (11, 24)
    path.write_bytes(path.read_bytes().replace(b"missing();", b""))
    assert make(read_source(path)).lowered == {"k": "_Z1kPi"}


# What other people's files have in them that is host code, or that only looks as if it were.
AS_THEY_ARE = {
    "an attribute macro": (
        '#define API __attribute__((visibility("default"))) extern\nAPI void start(const char* name);\n'
    ),
    "an attribute macro of a header that is not there": (
        "#include <nowhere/export.h>\nNOWHERE_API void start(int n) { k<<<1, n>>>(nullptr); }\n"
    ),
    "a macro with the name of its function": (
        "#include <stdio.h>\nvoid check(int e, const char* file, int line) { if (e) printf(file); }\n"
        "#define check(e) (check(e, __FILE__, __LINE__))\nint main() { check(cudaDeviceSynchronize()); }\n"
    ),
    "a host class with a member of a host type": (
        "class Timer {\n  struct timeval begin;\n  void start() { gettimeofday(&begin, 0); }\n};\n"
    ),
    "a macro that registers a function of the host": (
        "#define REGISTER(name) \\\n"
        "  struct name##_registerer { name##_registerer() { all().push_back(name); } }; \\\n"
        "  static name##_registerer _##name##_registerer;\nvoid run(int n);\nREGISTER(run);\n"
    ),
    "assembly as GNU spells it": (
        '__global__ void j(int* x) {\n  int y;\n  __asm__ __volatile__("mov.s32 %0, 7;" : "=r"(y));\n'
        "  *x = y;\n}\n"
    ),
    "a function for both that takes what only the host has": (
        "#include <vector>\ntemplate <class... I>\n"
        "__host__ __device__ inline int at(std::vector<int>& shape, I... i) { return shape[0]; }\n"
        "__host__ __device__ inline int at(int* shape, int i) { return shape[i]; }\n"
        "__global__ void j(int* x) { *x = at(x, 1); }\n"
    ),
    "a type with a base that is an expression": (
        "#include <type_traits>\nnamespace detail {\ntemplate <class T> auto has(T*) -> std::true_type;\n"
        "auto has(...) -> std::false_type;\n}\n"
        "template <class T>\nstruct Has : decltype(detail::has((T*)0)) {};\n"
        "template <class T>\nconstexpr bool has_v = Has<T>::value;\n"
        "__global__ void j(int* x) { *x = has_v<int>; }\nint main() {}\n"
    ),
    "an iterator": (
        "#include <iterator>\nstruct It { using iterator_category = std::forward_iterator_tag; int* p; };\n"
        "__global__ void j(It it) { *it.p = 1; }\nint main() {}\n"
    ),
    "members of a host class that are defined outside of it": (
        "struct Model;\nclass Runner {\n public:\n  Runner();\n  Runner(Runner&&) noexcept;\n"
        "  virtual ~Runner();\n  operator bool() const;\n  std::unique_ptr<Model> model;\n};\n"
        "Runner::Runner() = default;\n"
        "Runner::Runner(Runner&&) noexcept = default;\nRunner::~Runner() = default;\n"
        "Runner::operator bool() const { return !!model; }\n"
        "struct Size { Size(); int n; };\nSize::Size() = default;\n__global__ void j(Size* s) { s->n = 1; }\n"
    ),
    "a host class that is a template, and its instantiation": (
        "template <class T> class Runner : public Base<T> {\n  std::vector<T> v;\n  void run();\n};\n"
        "template class Runner<float>;\ntemplate <class T> void Runner<T>::run() { go(v); }\n"
    ),
    "a macro that stamps out launchers": (
        "#define CHECK(x) if (!(x)) { throw 1; }\n#define LAUNCHER(name, type) \\\n"
        "  void run_##name(torch::Tensor x) { CHECK(x.dtype() == type) \\\n"
        "    if (x.dim() != 2) { k<<<dim3(1), dim3(2)>>>(reinterpret_cast<name *>(x.data_ptr())); } }\n"
        "LAUNCHER(int, torch::kInt)\nLAUNCHER(long, torch::kLong)\n"
    ),
    "a callback": "void CUDART_CB done(cudaStream_t s, int e, void* p) { printf(p); }\n",
    "an aligned type": (
        "struct __builtin_align__(16) Four { float x, y, z, w; };\n"
        "__global__ void j(Four* f) { f->x = 1; }\nint main() {}\n"
    ),
    "operators that assign": (
        "template <class T> struct V {\n  T x;\n"
        "  template <class U> __device__ V& operator<<=(V<U> const& n);\n"
        "  template <class U> __device__ V& operator>>=(V<U> const& n) { x >>= n.x; return *this; }\n};\n"
        "template <class T> template <class U>\n"
        "__device__ V<T>& V<T>::operator<<=(V<U> const& n) { x <<= n.x; return *this; }\n"
        "__global__ void j(V<int> v, int* o) { v <<= v; *o = v.x; }\nint main() {}\n"
    ),
    "a host variable with the name of a parameter": (
        "namespace a { std::vector<int> data; }\nnamespace b { const int data = 3; }\n"
        "__global__ void j(int* data) { *data = 1; }\n"
    ),
    "a host overload that device code cannot call": (
        "__device__ int f(int x) { return x; }\nint f(std::vector<int> x) { return 2; }\n"
        "__global__ void j(int* o) { *o = f(3); }\n"
    ),
    "overloads that are told apart by their types": (
        "#include <type_traits>\n"
        "template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0> void go(std::vector<T> x) {}\n"
        "template <class T, std::enable_if_t<!std::is_integral_v<T>, int> = 0> void go(std::vector<T> x) {}\n"
        "template <class T> __device__ void go(T* x) { *x = 1; }\n"
        "__global__ void j(int* x) { go(x); }\n"
    ),
    "types that the host's headers have": "__global__ void j(uint* x, ushort y) { *x = y; }\n",
    "a constant of the host's headers": (
        "__global__ void j(float* x, long long t) { *x = float(t) / CLOCKS_PER_SEC; }\n"
    ),
    "a word of the host's compiler": (
        "typedef struct { __extension__ union { int a; float b; }; } U;\n"
        "__global__ void j(U* u) { u->a = 1; }\nint main() {}\n"
    ),
    "an #error for systems that are not known": (
        "#if defined(__linux__)\n#include <unistd.h>\n#else\n#error Unsupported system\n#endif\n"
    ),
    "headers of the host": (
        "#include <strings.h>\n#include <arpa/inet.h>\n#include <nvtx3/nvToolsExt.h>\n#include <nvml.h>\n"
        "#include <GL/gl.h>\n#include <mpi.h>\n"
    ),
    "a specialization for functions": (
        "template <class F> struct Result;\n"
        "template <class R, class... A>\nstruct Result<R (*)(A...)> {\n  using type = R;\n};\n"
        "__global__ void j(Result<float (*)(int)>::type* x) { *x = 1; }\nint main() {}\n"
    ),
    "the driver's headers": '#include <cudaTypedefs.h>\n#include "cudaEGL.h"\n#include <cuda.h>\n',
    "number types of a host library": (
        "#include <cufftXt.h>\n#include <complex>\ntypedef cufftComplex Complex;\n"
        "__global__ void j(Complex* x, cufftReal by) { x->x *= by; }\n"
    ),
    "a host class with members for the device": (
        "#include <memory>\n#include <vector>\n#include <torch/extension.h>\n#include <cublas_v2.h>\n"
        "template <class T> class Pool {\n  std::shared_ptr<std::vector<T>> blocks;\n  T* data;\n public:\n"
        "  Pool() : blocks(std::make_shared<std::vector<T>>()), data(nullptr) {}\n"
        "  __host__ __device__ T* begin() const { return data; }\n  __device__ T* end() const;\n};\n"
        "template <class T> __device__ T* Pool<T>::end() const { return data + 1; }\n"
        "class Handle {\n  cublasHandle_t handle;\n  FILE* log;\n  torch::Tensor x;\n public:\n"
        "  __device__ static int one() { return 1; }\n};\n"
        "void launch(Pool<int>& pool) { k<<<1, 32>>>(pool.begin()); }\n"
    ),
    "a constant of host and device, of a class with constexpr members that check": (
        "#include <torch/all.h>\n#include <variant>\n#define BOTH C10_HOST_DEVICE\n"
        "template <class T>\nBOTH static constexpr T most = std::numeric_limits<T>::max();\n"
        "class Kind {\n public:\n  constexpr Kind(int bits) : bits(bits) {}\n"
        '  static constexpr Kind of(int bits) { TORCH_CHECK(bits > 0, "bits"); return Kind(bits); }\n'
        "  constexpr std::variant<int, double> largest() const { return bits; }\n"
        "  std::string str() const { return std::to_string(bits); }\n"
        "  constexpr int id() const {\n"
        "    return std::get<1>(std::tuple_cat(std::make_tuple(1), std::make_tuple(bits)));\n  }\n"
        "  int bits;\n};\n"
        "static inline constexpr auto kU4 = Kind::of(4);\n"
        "template <int id> __device__ int sized() { return id == kU4.id() ? most<short> : 0; }\n"
        "__global__ void j(int* x) { *x = sized<kU4.id()>(); }\nvoid run(torch::Tensor x) {}\n"
    ),
    "a dtype by its number, and a bfloat16 of CUDA's for PyTorch's": (
        "#include <torch/all.h>\n"
        "struct Parameters { at::ScalarType dtype{at::ScalarType::Undefined}; int n; };\n"
        "template <torch::ScalarType dtype> __device__ int size() { return dtype == torch::kHalf ? 2 : 4; }\n"
        "__device__ c10::BFloat16 converted(float x) { return __float2bfloat16(x); }\n"
        "__global__ void j(float* x, Parameters p) {\n"
        "  *x = converted(p.n) + size<torch::ScalarType::Half>();\n}\n"
        "void run(torch::Tensor x) {}\n"
    ),
    "a macro of one's own around that of a binding": (
        "#include <torch/all.h>\n#define EACH(LIB, KEY, M) TORCH_LIBRARY_IMPL(LIB, KEY, M)\n"
        "#define OURS(M) EACH(ours, CUDA, M)\nvoid run(torch::Tensor x) {}\n"
        'EACH(mine, CUDA, m) { m.impl("run", &run); }\nOURS(m) { m.impl("run", &run); }\n'
    ),
    "a macro around that of a binding, and its header is not there": (
        '#include "registration.h"\n#include <torch/all.h>\nvoid run(torch::Tensor x) {}\n'
        'EACH(mine, CUDA, m) { m.impl("run", &run); }\nREGISTER_EXTENSION(NAME)\n'
    ),
    "exports of tvm-ffi": (
        "#include <tvm/ffi/container/tensor.h>\n#include <tvm/ffi/function.h>\nnamespace ffi = tvm::ffi;\n"
        "using ffi::TensorView;\nstruct Parameters { TensorView x; };\n"
        "void run(TensorView x) { TVM_FFI_ICHECK(x.ndim() == 1); k<<<1, 1>>>(nullptr); }\n"
        'TVM_FFI_STATIC_INIT_BLOCK() { ffi::reflection::GlobalDef().def("run", run); }\n'
        "TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);\n"
    ),
    "exports of XLA and of others": (
        '#include "xla/ffi/api/ffi.h"\n#include "tensorflow/core/framework/op.h"\nvoid run(int n);\n'
        "XLA_FFI_DEFINE_HANDLER_SYMBOL(run_ffi, run, xla::ffi::Ffi::Bind().Arg<int>());\n"
        'REGISTER_OP("Run").Input("x: float").Output("y: float");\n'
    ),
    "a macro that calls another for each shape": (
        "#define EACH_SHAPE(f, T) f(T, 64) f(T, 128)\ntemplate <class T, int n> void run(T* x) {}\n"
        "#define MAKE(T, n) template void run<T, n>(T*);\nEACH_SHAPE(MAKE, float)\n"
        "#define DECLARE(name, ...) void name##_launch(__VA_ARGS__)\nDECLARE(run, int n, float* x);\n"
    ),
    "what nvcc has included before the first line": (
        "__global__ void j(uint8_t* x, float* y) {\n  *x = 1;\n"
        "  y[0] = std::max(std::sqrt(y[0]), std::numeric_limits<float>::max()) + INT_MAX;\n"
        "  y[1] = threadIdx.x ? -INFINITY : (float)M_PI;\n  std::pair<int, int> p(1, 2);\n"
        "  static_assert(std::is_same<int, int>::value);\n  y[2] = p.first;\n}\n"
    ),
    "the standard headers of integers and options": (
        "#include <cinttypes>\n#include <optional>\n#include <inttypes.h>\n"
        "__device__ std::optional<int> found(int i) { if (i) return i; return std::nullopt; }\n"
        '__global__ void j(int64_t* x) { *x = found(1).value_or(2); printf("%" PRId64, *x); }\n'
        "int main() {}\n"
    ),
    "functions of PyTorch's complex numbers": (
        "#include <c10/util/complex.h>\nusing number = c10::complex<float>;\n"
        "__global__ void j(const number* x, number* y) { y[0] = std::conj(x[0]) * std::exp(x[0]); }\n"
    ),
    "numbers of 8 bits by PyTorch's names": (
        "#include <c10/util/Float8_e4m3fn.h>\n#include <torch/all.h>\n"
        "template <class T> __device__ T largest() { return std::numeric_limits<T>::max(); }\n"
        "__global__ void j(float* x, c10::Float8_e4m3fn* y, at::Float8_e5m2* z) {\n"
        "  y[0] = static_cast<c10::Float8_e4m3fn>(x[0]);\n  z[0] = largest<c10::Float8_e5m2>();\n"
        "  y[1] = c10::Float8_e4m3fn(0x7e, c10::Float8_e4m3fn::from_bits());\n}\n"
    ),
    "half types of PyTorch beside CUDA's, as its builds define them": (
        "#include <cuda_fp16.h>\n#include <torch/extension.h>\n"
        "__global__ void j(const c10::Half* x, __half* y) { y[0] = x[0]; y[1] = x[0] + x[1]; }\n"
        "void run(torch::Tensor x) {}\n"
    ),
    "operators of CUDA's half types beside an assignment of PyTorch's": (
        "#include <torch/extension.h>\n#include <cuda_fp16.h>\n"
        "__global__ void j(const c10::complex<c10::Half>* x, __half* y) {\n"
        "  y[0] = x[0].real(); y[1] = y[0] * y[2]; }\n"
    ),
    "annotations of lambdas": (
        "#define HD __host__ __device__\n#define LAMBDA [=] __device__\n"
        "template <class F> __device__ void go(F f) { f(1); }\n"
        "__global__ void j(int* x) {\n  auto a = [=] __device__ (int i) { x[i] = 2; };\n"
        "  auto b = [&] __host__ __device__ { x[0] = 3; };\n  a(1);\n  b();\n"
        "  go([=] HD (int i) mutable { x[i] = 4; });\n  go(LAMBDA (int i) { x[i] = 5; });\n}\n"
        "[[nodiscard]] __device__ int f();\n"
    ),
    "generic lambdas, and those of a default argument": (
        "#include <vector>\ntemplate <class F> __device__ void go(F f) { f(1); }\n"
        "__device__ int apply(int x, int (*f)(int) = [](int v) { return v + 1; }) { return f(x); }\n"
        "constexpr auto twice = [](auto v) { return v + v; };\n"
        "__global__ void j(int* x) { go([&](auto i) { x[i] = apply(twice(2)); }); }\nint main() {}\n"
    ),
    "a word of older standards": (
        "__global__ void j(float* x) { register int i = threadIdx.x; x[i] = 1; }\nint main() {}\n"
    ),
    "the profiler's header in quotes": (
        '#include "cuda_profiler_api.h"\nint main() { cudaProfilerStart(); k<<<1, 1>>>(nullptr); }\n'
    ),
    "text of other programs": (
        '#include <string>\nstd::string code = R"x(\n#include "nowhere.h"\n#if 0\n/*\n)x";\n'
        'const char* more = "\\\n#else\\n\\\n#define k j\\n";\nint main() {}\n'
    ),
    "objects of host and device, and other names of namespaces": (
        "#include <torch/extension.h>\n#include <array>\n#include <cooperative_groups.h>\n"
        "namespace cg = cooperative_groups;\n"
        "namespace a { namespace b { __device__ int f() { return 1; } } }\n"
        "namespace ab = a::b;\nstruct Tiles { int m, n; };\nconstexpr Tiles tiles{32, 2};\n"
        "constexpr Tiles twice(Tiles t) { return {2 * t.m, t.n}; }\nconstexpr Tiles wide = twice(tiles);\n"
        "inline constexpr std::array<int, 2> sizes = {1, 2};\n"
        "__global__ void j(int* x) {\n"
        "  x[cg::this_thread_block().thread_rank()] = ab::f() + wide.m + sizes[1];\n}\n"
        "void run(torch::Tensor x) {}\n"
    ),
    "headers that are nowhere": '#include <nowhere.h>\n#include "nowhere/else.hpp"\nint main() {}\n',
}


@pytest.mark.parametrize("case", AS_THEY_ARE)
def test_files_of_others_compile_as_they_are(case: str, make: Build) -> None:
    text = AS_THEY_ARE[case]
    names = ("k", "j") if "void j(" in text else ("k",)
    assert set(make(f"{text}{KERNEL}", names=names).lowered) == set(names)


def test_headers_of_cutlass_are_not_searched_for_host_code(tmp_path: Path, make: Build) -> None:
    (tmp_path / "cutlass").mkdir()
    guarded = "#ifndef __CUDACC_RTC__\nint host();\n#endif\nint f() { return 1; }\n"
    (tmp_path / "cutlass" / "array.h").write_text(guarded)
    source = inline_source(f"#include <cutlass/array.h>\n{KERNEL}int main() {{}}\n", include=[tmp_path])
    plan = plan_build(source, options=CompileOptions(), target=Target.parse("sm_80"), names=("k",))
    assert plan.includes.parts.looked == {"/dotcu/inline.cu"}
    assert make(source).lowered == {"k": "_Z1kPi"}  # what has no annotation is device code there


def test_an_error_in_a_device_member_is_not_the_hosts(make: Build) -> None:
    type_of_device = "struct A {\n  int a;\n  __device__ int f() { return b; }\n};\n"
    text = f"#include <vector>\n{type_of_device}{KERNEL}int main() {{}}\n"
    with pytest.raises(CompileError) as error:
        make(text)
    assert [one.line for one in error.value.diagnostics] == [4]


def test_with_its_headers_an_export_of_tvm_ffi_is_host_code_too(make: Build, tmp_path: Path) -> None:
    folder = tmp_path / "include" / "tvm" / "ffi"
    folder.mkdir(parents=True)
    (folder / "function.h").write_text("#error no system is known\n#define TVM_FFI_DLL_EXPORT(f) int f##_;\n")
    (tmp_path / "k.cu").write_text(f"#include <tvm/ffi/function.h>\n{KERNEL}TVM_FFI_DLL_EXPORT(run);\n")
    assert make(read_source(tmp_path / "k.cu", [tmp_path / "include"])).lowered == {"k": "_Z1kPi"}


def test_an_unclear_line_of_a_header_that_host_code_alone_includes_hides_no_error(
    make: Build, tmp_path: Path
) -> None:
    (tmp_path / "part.cuh").write_text("SOME_MACRO(one, two);\ninline void host() { std::vector<int> v; }\n")
    head = 'void f() {\n#include "part.cuh"\n}\n#include <vector>\n'
    (tmp_path / "k.cu").write_text(f"{head}__global__ void k(int* x) {{ *x = nothing; }}\n")
    with pytest.raises(CompileError, match='identifier "nothing" is undefined'):
        make(read_source(tmp_path / "k.cu"))


def test_a_type_that_a_template_argument_alone_names_stays(make: Build) -> None:
    text = (
        "#include <torch/all.h>\nstruct Unused { static constexpr int n = 1; };\n"
        "template <int n_, class T> struct Traits : Unused {\n  static constexpr int n = n_;\n"
        "  static constexpr bool is_float = std::is_same_v<T, float>;\n};\n"
        "template <class K> __global__ void k(float* x) { x[0] = K::n; }\n"
        "template <int n, class T> void run(torch::Tensor x) { k<Traits<n, T>><<<1, n>>>(nullptr); }\n"
    )
    assert set(make(text, names=["k<Traits<32, float>>"]).lowered) == {"k<Traits<32, float>>"}


def test_a_kernel_with_a_lambda_keeps_its_body(make: Build) -> None:
    text = (
        "#include <torch/all.h>\ntemplate <class F> __device__ void go(F f) { f(1); }\n"
        "__global__ void k(float* x) { go([=] __device__ (auto i) { x[i] = 7; }); }\n"
        "void f(at::Tensor x) {}\n"
    )
    assert "st.global" in make(text, target="compute_80").ptx


@pytest.mark.parametrize("std", ["c++11", "c++14"])
def test_a_standard_before_that_of_the_headers_is_taken_as_the_next_that_they_take(
    make: Build, std: str
) -> None:
    assert (
        "-std=c++17" in make(f"#include <torch/all.h>\n{KERNEL}void f(at::Tensor x) {{}}\n", std=std).command
    )


HOST_FUNCTOR = (
    "#include <vector>\n"
    "template <class T> struct Same { T operator()(const T& a) { return a; } };\n"
    "template <class T> __host__ __device__ T apply(T a) { return Same<T>()(a); }\n"
    "__host__ __device__ inline float twice(float a) { return apply(a) + apply(a); }\n"
)


def test_a_host_function_may_be_called_where_no_kernel_arrives(make: Build) -> None:
    assert set(make(f"{HOST_FUNCTOR}{KERNEL}").lowered) == {"k"}


@pytest.mark.parametrize("target", ["sm_80", "compute_80"])
def test_a_host_function_that_a_kernel_arrives_at_is_refused_at_its_line(make: Build, target: str) -> None:
    with pytest.raises(CompileError, match="referenced but not defined") as error:
        make(f"{HOST_FUNCTOR}__global__ void k(float* x) {{ *x = twice(*x); }}\n", target=target)
    assert "operator(), at line 2 of inline.cu, was left out as host code" in str(error.value)
    assert [one.line for one in error.value.diagnostics] == [2]


def test_all_missing_headers_are_named_at_once_with_their_lines(make: Build) -> None:
    text = '#include "a.h"\n#include <strings.h>\n#include <b/c.h>\n__device__ Unknown u;\n' + KERNEL
    with pytest.raises(CompileError) as error:
        make(text)
    assert "The headers 'a.h' (inline.cu:1), 'b/c.h' (inline.cu:3) were not found" in str(error.value)
    assert "load(..., include=[FOLDER])" in str(error.value)


def test_a_missing_header_that_nothing_needs_is_a_warning_and_one_for_all_builds_of_a_file(
    make: Build, caplog: pytest.LogCaptureFixture
) -> None:
    for more in ("", "__global__ void other() {}"):
        make(f'#include "a.h"\n#include <strings.h>\n{KERNEL}{more}')
    (warning,) = (one.getMessage() for one in caplog.records if one.levelname == "WARNING")
    assert "inline.cu compiles without headers that were not found: a.h." in warning


def test_an_assertion_that_is_false_is_an_error_beside_one_that_only_the_host_can_check(make: Build) -> None:
    text = (
        "#include <string>\nstruct P {\n  float a;\n};\nstatic_assert(sizeof(HostOnly) == 8);\n"
        'static_assert(sizeof(P) == 8, "P has two floats");\n__global__ void k(P* x) { x->a = 1; }\n'
    )
    with pytest.raises(CompileError, match="P has two floats") as error:
        make(text)
    assert [one.line for one in error.value.diagnostics] == [6]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            """template <class T>
struct Vec {
  static constexpr int n = 1;
};
template <>
struct Vec<float> {
  static constexpr int n = FLOATS;
};
__global__ void k(int* x) { x[0] = Vec<float>::n; }
""",
            7,
        ),
        (
            """constexpr int width(long) { return 1; }
constexpr int width(int) { return ROWS; }
__global__ void k(int* x) { x[0] = width(3); }
""",
            2,
        ),
        ("constexpr int n = 4 * TILE;\n__global__ void k(int* x) { x[0] = n; }\n", 1),
    ],
    ids=["a specialization", "an overload", "a constant"],
)
def test_what_device_code_needs_is_not_left_out_for_an_error_in_it(make: Build, text: str, line: int) -> None:
    with pytest.raises(CompileError) as error:
        make(f"#include <string>\n{text}")
    assert error.value.diagnostics[0].line == line + 1


def test_what_one_instantiation_refuses_another_takes(make: Build) -> None:
    text = (
        "#include <string>\n"
        "template <class T>\nstruct Vec {\n  static_assert(sizeof(T) == 4);\n  T v[4];\n};\n"
        "template <class T>\n__global__ void k(T* x) { x[0] = Vec<T>{}.v[0]; }\n"
    )
    with pytest.raises(CompileError, match="static assertion failed"):
        make(text, names=("k<double>",))
    assert "k<float>" in make(text, names=("k<float>",)).lowered


def test_an_error_in_device_code_is_reported_where_host_code_was_refused_too(make: Build) -> None:
    text = f"class Timer {{\n  struct timeval begin;\n}};\n{KERNEL}__global__ void j(int* x) {{ y = 1; }}\n"
    with pytest.raises(CompileError) as error:
        make(text)
    assert [one.line for one in error.value.diagnostics] == [5]


STAMPED = """#include <string>
#define ADD(n) n + 0
#define STAMP(NAME, T, OP, ...) \\
  extern "C" __global__ void NAME##_##T(T* x, const T* y) { /* one */ \\
    x[threadIdx.x] = x[threadIdx.x] OP y[ADD(threadIdx.x)]; \\
    printf("T ## %s\\n", #NAME #__VA_ARGS__); } \\
  void launch_##NAME##_##T(T* x, const T* y) { \\
    std::string s(#NAME); NAME##_##T<<<1, 32>>>(x, y); }
STAMP(plus, float, +, "a \\ b", ADD)
STAMP(times,
      int, *)
__global__ void wrong(int* x) { *x = nothing; }
"""


def test_of_a_macro_that_makes_a_kernel_and_its_launcher_the_kernel_stays(make: Build) -> None:
    text = STAMPED.replace("nothing", "1")
    made = make(text, names=("plus_float", "times_int", "wrong"))
    assert set(made.lowered) >= {"plus_float", "times_int", "wrong"}
    strings = {bytes(map(int, one.split(", "))) for one in re.findall(r"\.b8 \$str\S* = \{(.+?)\}", made.ptx)}
    assert strings == {b"T ## %s\n", b'plus"a \\ b", ADD', b"times"}
    assert "mul.lo.s32" in made.ptx


def test_what_a_macro_makes_moves_no_line(make: Build) -> None:
    with pytest.raises(CompileError) as error:
        make(STAMPED)
    assert "inline.cu:12:38: error" in str(error.value)


OPENED = """#include <vector>
namespace ops {
inline namespace v1 { __device__ int one() { return 1; } }
constexpr int sizes[] = {2, 3};
constexpr int operator""_KiB(unsigned long long n) { return int(n) << 10; }
constexpr float operator"" _half(long double x) { return float(x) / 2; }
}
using namespace ops;
__global__ void k(int* x) { *x = one() + sizes[1] + int(sizeof(char[1_KiB])) + int(4.0_half); }
int main() { std::vector<int> v; k<<<1, 1>>>(v.data()); }
"""


def test_a_namespace_of_ones_own_stays_open_and_literals_of_ones_own_are_known(make: Build) -> None:
    assert "1030" in make(OPENED).ptx  # 1 + 3 + 1024 + 2


def test_a_namespace_of_the_hosts_is_not_opened(make: Build) -> None:
    make(OPENED.replace("using namespace ops;", "using namespace ops;\nusing namespace torch;"))


TWO_WAYS = """#ifdef WIDE
#define BOTH(n) __global__ void n() {} void run_##n() {}
#else
#define BOTH(n) __global__ void n(int) {} void run_##n() {}
#endif
"""

# Of each: a text, the line that is told, and what of it is told.
UNCLEAR = {
    "an unknown macro": (f"#include <vector>\nMAKE_IT(float)\n{KERNEL}", 2, "that is not a declaration"),
    "a macro of both kinds, in two ways": (
        f"{TWO_WAYS}BOTH(a)\nint main();\n",
        6,
        "what the macro BOTH makes",
    ),
    "a half of a function": (f"{KERNEL}int main() {{\n", 2, "that is not a declaration"),
    "an annotation in one branch": (
        f"{KERNEL}#if MODE == 1\n__device__\n#else\nstatic\n#endif\nint f() {{ return 1; }}\nint main();\n",
        5,
        "device code in one branch",
    ),
    "a tensor in a kernel": (
        "#include <torch/extension.h>\n__global__ void k(\n    torch::Tensor x) {}\n",
        3,
        "PyTorch's type torch::Tensor",
    ),
    "a tensor by another name": (
        "typedef torch::Tensor Rows;\n__global__ void k(int n,\n    Rows x) {}\n",
        3,
        "PyTorch's type Rows",
    ),
}


@pytest.mark.parametrize("case", UNCLEAR)
def test_what_cannot_be_classified_is_an_error_with_its_line(case: str, make: Build) -> None:
    text, line, what = UNCLEAR[case]
    assert line in [found.line for found in parts(text).unclear]
    with pytest.raises(HostCodeError) as error:
        make(text, names=())
    assert f"inline.cu:{line}: " in str(error.value)
    assert what in str(error.value)
    assert "#ifndef __CUDACC_RTC__" in str(error.value) or "dotcu/tensor.cuh" in str(error.value)


def test_what_the_parser_does_not_know_inside_a_host_function_does_not_matter() -> None:
    assert left(f"void f() {{\n  ?? @ auto <<< ) ( }}\n{KERNEL}") == KERNEL.strip()


def test_a_host_function_that_a_kernel_calls_is_reported_with_its_line(make: Build) -> None:
    text = (
        "#include <vector>\nfloat half_of(float x) { return x / 2; }\n"
        "__global__ void k(float* x) { *x = half_of(*x); }\n"
    )
    with pytest.raises(CompileError) as error:
        make(text)
    message = str(error.value)
    assert 'inline.cu:3:36: error: identifier "half_of" is undefined' in message
    assert (
        "half_of, at line 2 of inline.cu, was left out as host code: a function without __device__."
        in message
    )
    assert "write there: __host__ __device__" in message


def test_a_type_with_a_member_of_the_hosts_that_a_kernel_needs_can_be_mended_as_advised(make: Build) -> None:
    held = "std::vector<at::Tensor> held; "
    text = (
        "#include <torch/extension.h>\n"
        f"struct Engine {{ {held}static __device__ int twice(int x) {{ return 2 * x; }} }};\n"
        "__global__ void k(int* x) { *x = Engine::twice(*x); }\n"
    )
    with pytest.raises(CompileError) as error:
        make(text)
    assert "Engine, at line 2 of inline.cu, was left out as host code: a type." in str(error.value)
    assert "move out of it what is of the host's library or of PyTorch" in str(error.value)
    moved = text.replace(held, "").replace("struct Engine", f"struct Held {{ {held}}}; struct Engine")
    assert make(moved).cubin


def test_device_code_with_the_hosts_library_in_it_is_reported_with_its_line(make: Build) -> None:
    with pytest.raises(
        HostCodeError, match=r"Device code of inline\.cu(.|\n)*inline\.cu:2: the host's standard"
    ):
        make("#include <vector>\n__global__ void k() { std::vector<int> v; }\nint main() {}\n")


def test_an_edit_of_the_host_part_compiles_nothing(make: Build, compiles: list[str]) -> None:
    text = f"#include <vector>\n{KERNEL}// a\nint main() {{ return 0; }}\n"
    edited = (
        f"#include <string>\n{KERNEL}// another\nint main() {{\n  k<<<1, 2>>>(nullptr);\n}}\nvoid more();\n"
    )
    assert digest(text) == digest(edited)
    assert digest(text) != digest(text.replace("*x = 1", "*x = 2"))
    # a header that an instantiation needs is included behind the text
    assert digest(f"{text}\n#include <cuda_bf16.h>\n") == digest(f"{edited}\n#include <cuda_bf16.h>\n")
    made = [make(text), make(edited)]
    assert len(compiles) == 1
    assert made[1].cached


def test_a_host_part_without_a_sign_of_it_is_left_out_when_the_compiler_refuses_it(make: Build) -> None:
    assert make(f"FILE* log_file;\nint calls = 0;\n{KERNEL}").lowered == {"k": "_Z1kPi"}


def test_an_error_is_about_the_text_as_it_was_where_that_is_all_there_is(make: Build) -> None:
    with pytest.raises(CompileError, match=r"inline\.cu:1:29: error: identifier \"y\" is undefined"):
        make("__global__ void k(int* x) { y = 1; }\n")


def test_a_header_of_the_user_loses_its_host_part_too(make: Build, tmp_path: Path) -> None:
    (tmp_path / "common.h").write_text(
        "#include <cublas_v2.h>\n#define SIZE 4\nvoid check(int s) { if (s) exit(1); }\n"
        "__device__ int four() { return SIZE; }\n"
    )
    (tmp_path / "k.cu").write_text('#include "common.h"\n__global__ void k(int* x) { *x = four(); }\n')
    assert make(read_source(tmp_path / "k.cu")).lowered == {"k": "_Z1kPi"}


def test_a_missing_header_behind_host_code_is_reported_at_its_own_line(make: Build, tmp_path: Path) -> None:
    (tmp_path / "a.cuh").write_text("")
    (tmp_path / "k.cu").write_text(
        f'{KERNEL}int main()\n{{\n}}\n#include "a.cuh"\n#include "missing.h"\n__device__ Unknown u;\n'
    )
    with pytest.raises(CompileError) as error:
        make(read_source(tmp_path / "k.cu"))
    assert [(one.line, one.source) for one in error.value.diagnostics] == [(7, "__device__ Unknown u;")]
    assert f"The header 'missing.h' ({tmp_path / 'k.cu'}:6) was not found" in str(error.value)


def test_a_guarded_file_is_compiled_as_it_is() -> None:
    text = f"{KERNEL}#ifndef __CUDACC_RTC__\n#include <vector>\nint main() {{ broken( }}\n#endif\n"
    plan = plan_build(
        inline_source(text), options=CompileOptions(), target=Target.parse("sm_80"), names=("k",)
    )
    assert plan.includes.main.text is text


def test_the_parser_is_imported_for_host_code_alone() -> None:
    program = "import sys, dotcu\n" + "".join(
        f"assert list(dotcu.load_inline({text!r}).kernels) == ['k']\nprint('tree_sitter' in sys.modules)\n"
        for text in (KERNEL, f"{KERNEL}int main() {{}}\n")
    )
    ran = forked_scripts.run(program)
    assert ran.stdout.split() == ["False", "True"], ran.stderr
