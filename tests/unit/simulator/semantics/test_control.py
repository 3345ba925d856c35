"""Calls that are made while a kernel runs: pointers, virtual functions, recursion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dotcu.errors import FindingError, SimulationError, UnsupportedInstruction
from dotcu.simulator import Buffer, Memory, Program, Run, launch

TABLE = r"""
typedef int (*Function)(int, int);
__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int multiply(int a, int b) { return a * b; }
__device__ __noinline__ int subtract(int a, int b) { return a - b; }
__device__ Function table[3] = {add, multiply, subtract};
extern "C" __global__ void k(int* out, int* which) {
    int i = threadIdx.x;
    int first = table[which[i]](i, 3);
    Function chosen = which[i] == 1 ? subtract : add;
    out[i] = first * 1000 + chosen(i, first);
}"""


@pytest.mark.parametrize("block", [64, 50])
def test_functions_in_a_table_and_in_a_register(run_kernel: Any, block: int) -> None:
    which = np.random.default_rng(0).integers(0, 3, block).astype("i4")
    out = np.zeros(block, "i4")
    run_kernel(TABLE, {"out": out, "which": which}, block=block)
    functions = [lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b]
    for i, w in enumerate(which.tolist()):
        first = functions[w](i, 3)
        assert out[i] == first * 1000 + functions[2 if w == 1 else 0](i, first)


VIRTUAL = r"""
struct Shape { __device__ virtual float area(float x) const = 0; __device__ virtual ~Shape() {} };
struct Square : Shape { __device__ float area(float x) const override { return x * x; } };
struct Scaled : Shape {
    float by; const Shape* inner;
    __device__ Scaled(float by, const Shape* inner) : by(by), inner(inner) {}
    __device__ float area(float x) const override { return by * inner->area(x); }
};
__device__ __noinline__ float ask(const Shape* shape, float x) { return shape->area(x); }
extern "C" __global__ void k(float* out) {
    Square square; Scaled twice(2, &square), six(3, &twice);
    const Shape* shapes[3] = {&square, &twice, &six};
    out[threadIdx.x] = ask(shapes[threadIdx.x % 3], threadIdx.x);
}"""


def test_virtual_functions_that_call_each_other(run_kernel: Any) -> None:
    out = np.zeros(40, "f4")
    run_kernel(VIRTUAL, {"out": out}, block=40)
    i = np.arange(40, dtype="f4")
    assert out.tolist() == (i * i * np.array([1, 2, 6], "f4")[np.arange(40) % 3]).tolist()


FIBONACCI = r"""
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
extern "C" __global__ void k(int* out) { out[threadIdx.x] = fibonacci(threadIdx.x % 14); }"""


def test_recursion_to_a_depth_of_each_lane(run_kernel: Any) -> None:
    out = np.zeros(70, "i4")
    run_kernel(FIBONACCI, {"out": out}, block=70)
    known = [0, 1]
    while len(known) < 14:
        known.append(known[-1] + known[-2])
    assert out.tolist() == [known[i % 14] for i in range(70)]


HALVED = r"""
__device__ __noinline__ float halved(float x, int times) {
    return times ? halved(x * 0.5f, times - 1) + 1 : x;
}
extern "C" __global__ void k(float* out) { out[threadIdx.x] = halved(threadIdx.x, 3); }"""


def test_recursion_to_one_depth_of_all_lanes(run_kernel: Any) -> None:
    out = np.zeros(32, "f4")
    run_kernel(HALVED, {"out": out}, block=32)
    assert out.tolist() == [i / 8 + 3 for i in range(32)]


MUTUAL = r"""
__device__ int odd(int n);
__device__ __noinline__ int even(int n) { return n == 0 ? 1 : odd(n - 1); }
__device__ __noinline__ int odd(int n) { return n == 0 ? 0 : even(n - 1); }
extern "C" __global__ void k(int* out) { out[threadIdx.x] = 10 * even(threadIdx.x) + odd(threadIdx.x); }"""


def test_functions_that_call_each_other(run_kernel: Any) -> None:
    out = np.zeros(32, "i4")
    run_kernel(MUTUAL, {"out": out}, block=32)
    assert out.tolist() == [10, 1] * 16


FRAMES = r"""
__device__ __noinline__ int sums(int n, int* above, int at) {
    int own[4];
    for (int i = 0; i < 4; ++i) own[i] = n * 10 + i;
    if (n == 0) return above ? above[at] : -1;
    int below = sums(n - 1, own, (n + at) & 3);
    int total = below;
    for (int i = 0; i < 4; ++i) total += own[(i + at) & 3];  // untouched by the calls below
    if (n == 2) printf("%d:%d;", n, own[at & 3]);
    return total;
}
extern "C" __global__ void k(int* out) {
    out[threadIdx.x] = sums(threadIdx.x % 5, nullptr, threadIdx.x & 3);
}"""


def sums(n: int, above: list[int] | None, at: int) -> int:
    own = [n * 10 + i for i in range(4)]
    if n == 0:
        return above[at] if above else -1
    return sums(n - 1, own, (n + at) & 3) + sum(own)


def test_each_call_has_arrays_of_its_own(run_kernel: Any) -> None:
    out = np.zeros(33, "i4")
    result = run_kernel(FRAMES, {"out": out}, block=33)
    assert out.tolist() == [sums(i % 5, None, i & 3) for i in range(33)]
    assert "block (0,0,0) thread (2,0,0): 2:22;" in result.run.output


DEEP = r"""
__device__ __noinline__ int deep(int n, int limit) { return n >= limit ? n : deep(n + 1, limit) * 3 + n; }
extern "C" __global__ void k(int* out, int limit) {
    out[threadIdx.x] = deep(0, threadIdx.x == 5 ? limit : 3);
}"""


def test_a_recursion_without_end_is_found(run_kernel: Any) -> None:
    out = np.full(32, -1, "i4")
    result = run_kernel(DEEP, {"out": out, "limit": np.int32(2**31 - 1)}, block=32, collect=True)
    (finding,) = result.findings
    assert finding.kind == "stack-overflow"
    assert finding.thread == (5, 0, 0)
    assert finding.lanes == 1
    assert out[5] == -1  # it ended there
    assert (out[np.arange(32) != 5] == out[0]).all()
    assert out[0] > 0


WILD = r"""
typedef int (*Function)(int);
__device__ __noinline__ int one(int a) { return a + 1; }
__device__ Function slot = one;
extern "C" __global__ void k(long long* table, int* out) {
    out[threadIdx.x] = (threadIdx.x < 3 ? slot : (Function)table[threadIdx.x])(threadIdx.x);
}"""


@pytest.mark.parametrize(("address", "kind"), [(0, "null-pointer"), (1234567, "bad-call")])
def test_a_call_through_a_wrong_pointer_is_found(run_kernel: Any, address: int, kind: str) -> None:
    out = np.zeros(32, "i4")
    result = run_kernel(WILD, {"table": np.full(32, address, "i8"), "out": out}, block=32, collect=True)
    (finding,) = result.findings
    assert (finding.kind, finding.thread, finding.lanes) == (kind, (3, 0, 0), 29)
    assert "function pointer" in finding.message
    assert out[:4].tolist() == [1, 2, 3, 0]
    with pytest.raises(FindingError, match="through"):
        run_kernel(WILD, {"table": np.full(32, address, "i8"), "out": out}, block=32)


def test_a_barrier_in_a_function_that_a_pointer_calls(run_kernel: Any) -> None:
    source = r"""
    typedef int (*Function)(int*, int);
    __device__ __noinline__ int turn(int* s, int i) { s[i] = i; __syncthreads(); return s[63 - i]; }
    __device__ __noinline__ int other(int* s, int i) { return 0; }
    __device__ Function table[2] = {turn, other};
    extern "C" __global__ void k(int* out, int which) {
        __shared__ int s[64];
        out[threadIdx.x] = table[which](s, threadIdx.x);
    }"""
    out = np.zeros(64, "i4")
    run_kernel(source, {"out": out, "which": np.int32(0)}, block=64)
    assert out.tolist() == list(range(63, -1, -1))


HEAD = ".version 9.0\n.target sm_80\n.address_size 64\n"
GUARDED = """
    .func (.param .b32 r) triple(.param .b32 x) {
        .reg .b32 %r<3>; ld.param.u32 %r1, [x]; mul.lo.u32 %r2, %r1, 3; st.param.u32 [r], %r2; ret; }
    .extern .func (.param .b32 r) elsewhere(.param .b32 x);
"""
CALL = """
    .param .b32 a; .param .b32 b; .reg .pred %odd; .reg .b32 %o; .reg .b64 %f;
    st.param.u32 [a], %a; st.param.u32 [b], %a; and.b32 %o, %a, 1; setp.ne.u32 %odd, %o, 0;
    mov.u64 %f, triple; proto: .callprototype (.param .b32 _) _ (.param .b32 _);
    TEXT
    ld.param.u32 %r0, [b];"""


def run_call(execute_text: Any, text: str) -> Any:
    a = np.arange(40, dtype="u4")
    return execute_text(CALL.replace("TEXT", text), a).tolist()


@pytest.fixture(name="execute_text")
def execute_text_fixture(monkeypatch: pytest.MonkeyPatch, execute: Any) -> Any:
    """Runs a piece of PTX in a file that has the functions of GUARDED."""
    parse = Program.parse
    monkeypatch.setattr(
        Program,
        "parse",
        lambda ptx, *rest: parse(ptx.replace(".visible .entry", GUARDED + ".visible .entry"), *rest),
    )
    return lambda text, a: execute(text, a, result="u4")


@pytest.mark.parametrize(
    "text",
    [
        "@%odd call (b), triple, (a);",
        "@%odd call (b), %f, (a), proto;",
        ".reg .pred %even; not.pred %even, %odd; @!%even call.uni (b), triple, (a);",
    ],
)
def test_a_call_under_a_predicate_is_made_by_some_lanes(execute_text: Any, text: str) -> None:
    assert run_call(execute_text, text) == [3 * i if i % 2 else i for i in range(40)]


def test_a_function_without_a_body_is_named(execute_text: Any) -> None:
    with pytest.raises(SimulationError, match="the extern function 'elsewhere' is unresolved") as caught:
        run_call(execute_text, "call (b), elsewhere, (a);")
    assert not isinstance(caught.value, UnsupportedInstruction)
    assert "Define it in the same source" in str(caught.value)


def test_a_function_without_a_body_is_named_by_its_line(run_kernel: Any) -> None:
    source = """__device__ int elsewhere(int);
    extern "C" __global__ void k(int* out) {
        out[0] = elsewhere(3);
    }"""
    with pytest.raises(SimulationError, match=r"kernel\.cu:3: the extern function '_Z9elsewherei'"):
        run_kernel(source, {"out": np.zeros(1, "i4")})


def test_the_address_of_a_function_that_is_nowhere_is_refused() -> None:
    text = HEAD + ".extern .func f();\n.global .align 8 .u64 t[1] = {f};\n.visible .entry k() { ret; }\n"
    with pytest.raises(SimulationError, match="neither a variable nor a function with a body"):
        Program.parse(text)


LIST = """
struct Node { int value; Node* next; };
extern "C" __global__ void k(Node** heads, int* out) {
    if (!heads[threadIdx.x]) {
        Node* node = nullptr;
        for (int i = 0; i < 3; ++i) {
            Node* first = static_cast<Node*>(malloc(sizeof(Node)));
            first->value = threadIdx.x + i;
            first->next = node;
            node = first;
        }
        heads[threadIdx.x] = node;
        return;
    }
    for (Node* node = heads[threadIdx.x]; node;) {
        Node* next = node->next;
        out[threadIdx.x] += node->value;
        free(node);
AGAIN
        node = next;
    }
}"""


def run_lists(compile_ptx: Any, again: str) -> Any:
    """Make lists in one launch; sum and free them in the next."""
    program = Program.parse(compile_ptx(LIST.replace("AGAIN", again)))
    heads, out = np.zeros(8, "u8"), np.zeros(8, "i4")
    memory, run = Memory(), Run()
    places = [memory.map(Buffer(name=n, data=a.view("u1"))) for n, a in (("heads", heads), ("out", out))]
    params = [place.to_bytes(8, "little") for place in places]
    for _ in range(2):
        launch(
            program, "k", params=params, memory=memory, grid=(1, 1, 1), block=(8, 1, 1), smem_bytes=0,
            run=run, kernel="k",
        )  # fmt: skip
    assert program.heap == []
    return out


def test_memory_of_the_devices_heap_lives_until_it_is_freed(compile_ptx: Any) -> None:
    assert run_lists(compile_ptx, "").tolist() == [3 * i + 3 for i in range(8)]


@pytest.mark.parametrize(
    ("again", "kind"), [("free(node);", "bad-call"), ("out[0] = node->value;", "out-of-bounds")]
)
def test_what_was_freed_is_gone(compile_ptx: Any, again: str, kind: str) -> None:
    with pytest.raises(FindingError) as caught:
        run_lists(compile_ptx, again)
    assert caught.value.finding.kind == kind


def test_a_heap_that_is_full_gives_null(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(long long* out) {
      out[threadIdx.x] = reinterpret_cast<long long>(malloc(1 << 20));
    }"""
    out = np.zeros(32, "i8")
    run_kernel(source, {"out": out})
    assert (out != 0).sum() == 8


def stacked(on_registers: Any, text: str, size: int) -> tuple[list[Any], Run]:
    declarations = ".reg .u64 %top, %own, %other, %size;"
    sizes = f"mov.u64 %size, {size};\n"
    given: tuple[list[Any], Run] = on_registers(
        sizes + text, [np.arange(40, dtype=np.uint32)], ["u4"], declarations=declarations, collect=True
    )
    return given


def test_memory_of_the_stack_is_each_threads_own(on_registers: Any) -> None:
    text = """
        alloca.u64 %own, %size;
        alloca.u64 %other, %size;
        st.local.u32 [%own + 12], %i0;
        st.local.u32 [%other], 7;
        ld.local.u32 %o0, [%own + 12];"""
    outs, run = stacked(on_registers, text, 16)
    assert run.findings == []
    assert outs[0].tolist() == list(range(40))


def test_memory_that_is_taken_again_counts_as_unwritten(on_registers: Any) -> None:
    text = """
        stacksave.u64 %top;
        alloca.u64 %own, %size;
        st.local.u32 [%own], %i0;
        stackrestore.u64 %top;
        alloca.u64 %own, %size;
        ld.local.u32 %o0, [%own];"""
    _, run = stacked(on_registers, text, 4)
    assert [finding.kind for finding in run.findings] == ["uninitialized-read"]


def test_more_than_the_stack_has_is_a_finding(on_registers: Any) -> None:
    _, run = stacked(on_registers, "alloca.u64 %own, %size; mov.b32 %o0, 0;", 1 << 20)
    (finding,) = run.findings
    assert finding.kind == "stack-overflow"
    assert "alloca of 1048576 bytes" in finding.message
