"""Text that is almost PTX: it is read, linked and decoded, or refused; never a crash, never a hang."""

from __future__ import annotations

import random
import re
import time
from typing import Any

import pytest

from dotcu.compile import CompileOptions, Target, build, inline_source
from dotcu.errors import SimulationError
from dotcu.simulator import Program
from dotcu.simulator.program import inlining

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"
# Far more than any of these texts takes, and far less than a search that goes through everything.
PATIENCE_S = 60.0

# What NVRTC prints, in small: every directive and kind of operand, without NVRTC being there.
SAMPLE = (
    HEAD
    + r"""
.func  (.param .b32 func_retval0) twice(.param .b32 twice_param_0)
;
.extern .func  (.param .b32 func_retval0) vprintf
(
    .param .b64 vprintf_param_0,
    .param .b64 vprintf_param_1
)
;
.global .align 8 .u64 table[2] = {twice, generic(numbers)+4};
.const .align 4 .b8 numbers[8] = {1, 2, 3, 0xff, 0, 0, 0, 0};
.global .align 1 .b8 $str[7] = {104, 105, 32, 37, 100, 10};
.extern .shared .align 16 .b8 dynamic[];
.visible .func  (.param .b32 func_retval0) twice(
    .param .b32 twice_param_0
)
{
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [twice_param_0];
    add.s32 %r2, %r1, %r1;
    st.param.b32 [func_retval0+0], %r2;
    ret;
}
.visible .entry k(
    .param .u64 .ptr .global .align 16 k_param_0,
    .param .align 4 .b8 k_param_1[12]
)
.maxntid 128, 1, 1
.minnctapersm 2
{
    .local .align 8 .b8 __local_depot0[16];
    .reg .b64 %SP; .reg .b64 %SPL;
    .reg .pred %p<4>; .reg .b16 %rs<4>; .reg .f32 %f<5>; .reg .b32 %r<20>; .reg .b64 %rd<12>;
    .shared .align 4 .b8 tile[64];
    .loc 1 7 3
    mov.u64 %SPL, __local_depot0;
    cvta.local.u64 %SP, %SPL;
    ld.param.u64 %rd1, [k_param_0];
    ld.param.v2.u32 {%r1, %r2}, [k_param_1+4];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r3, %tid.x;
    setp.lt.s32 %p1, %r3, 5;
    @!%p1 bra $L__BB0_2;
    .loc 2 9 1, function_name $L__info_string0, inlined_at 1 7 3
    fma.rn.f32 %f1, %f2, 0f3F800000, %f3;
    { // callseq 0, 0
    .param .b32 param0;
    st.param.b32 [param0+0], %r3;
    .param .b32 retval0;
    call.uni (retval0), twice, (param0);
    ld.param.b32 %r4, [retval0+0];
    } // callseq 0
    ld.global.u64 %rd3, [table];
    {
    .param .b32 param0;
    st.param.b32 [param0+0], %r3;
    .param .b32 retval0;
    prototype_1 : .callprototype (.param .b32 _) _ (.param .b32 _);
    call (retval0), %rd3, (param0), prototype_1;
    ld.param.b32 %r5, [retval0+0];
    }
$L__BB0_2:
    // begin inline asm
    { .reg .pred q; .reg .b32 t<2>; setp.gt.u32 q, %r3, 3; @q mov.b32 t1, 1;
      shfl.sync.idx.b32 t0|q, t1, 0, 31, -1; mov.b32 {%rs1, %rs2}, t0; }
    // end inline asm
    $L_table: .branchtargets $L__BB0_3, $L__BB0_4;
    rem.u32 %r6, %r3, 2;
    brx.idx %r6, $L_table;
$L__BB0_3:
    atom.global.add.u32 %r7, [%rd2+4], 1;
    st.shared.v2.u32 [tile], {%r7, %r6};
$L__BB0_4:
    bar.sync 0;
    st.local.u32 [%SPL+4], %r3;
    mov.u64 %rd4, $str;
    cvta.global.u64 %rd5, %rd4;
    { .param .b64 param0; st.param.b64 [param0+0], %rd5; .param .b64 param1; st.param.b64 [param1+0], %SP;
      .param .b32 retval0; call.uni (retval0), vprintf, (param0, param1); }
    ret;
}
    .file 1 "/x/a.cu"
    .file 2 "/x/b.cuh", 1234, 99
    .section .debug_str { $L__info_string0: .b8 95,90,0 }
"""
)
KERNELS = {
    "half": """#include <cuda_fp16.h>
        extern "C" __global__ void k(__half2* x, float* y) {
            __half2 v = __hmax2(__hfma2(x[threadIdx.x], x[0], x[1]), __float2half2_rn(y[0]));
            x[threadIdx.x] = h2exp2(v); y[threadIdx.x] = __shfl_xor_sync(~0u, __low2float(v), 3); }""",
    "pointers": """struct A { __device__ virtual int f(int x) { return x ? f(x - 1) + 1 : 0; } };
        struct B : A { __device__ int f(int x) override { return x * 10; } };
        extern "C" __global__ void k(int* out, int n) {
            A a; B b; A* p = threadIdx.x & 1 ? &a : (A*)&b; out[threadIdx.x] = p->f(n);
            switch (n % 7) { case 0: out[0] = 5; break; case 1: out[n] /= n; break; case 2: out[1] = 1; break;
                case 3: atomicAdd(out, 3); break;
                case 4: printf("%d %f\\n", n, 1.5); break; case 5: assert(n); }
        }""",
    "memory": """struct P { int v[9]; double d; }; __constant__ double c[5] = {1, 2, 3};
        __device__ int counter;
        extern "C" __global__ void k(const __grid_constant__ P p, float4* x) {
            __shared__ float4 s[32]; extern __shared__ int dynamic[]; double t[4];
            for (int i = 0; i < 4; i++) t[i] = c[i] * p.v[threadIdx.x % 9];
            s[threadIdx.x] = x[threadIdx.x]; __syncthreads();
            x[threadIdx.x].x = s[31 - threadIdx.x].y + t[threadIdx.x & 3];
            x[0].y = dynamic[atomicInc((unsigned*)&counter, 7)]; }""",
}
_TOKEN = re.compile(r"\s+|[\w$%.]+|.", re.DOTALL)
_NUMBERS = ("0", "-1", "1", "999999999", "9" * 23, "0x", "0x" + "f" * 20, "1e999", "0f7F", "3.", "007", "08")
_WORDS = (*'{}()[];:,@!%."|<>+-=', "/*", "//", ".reg", ".param", ".local", "call", "bra", "ret", ".v4")


def mutated(rng: random.Random, text: str) -> str:
    """The text cut off, with some bytes changed, or with some tokens moved, doubled or replaced."""
    kind = rng.random()
    if kind < 0.1:
        return text[: rng.randrange(len(text))]
    if kind < 0.3:
        raw = bytearray(text, "latin1", "replace")
        for _ in range(rng.randint(1, 4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        return raw.decode("latin1")
    tokens = _TOKEN.findall(text)
    for _ in range(rng.randint(1, 5)):
        _change(rng, tokens)
    return "".join(tokens)


def _change(rng: random.Random, tokens: list[str]) -> None:
    at, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    kind = rng.random()
    if kind < 0.25:
        tokens[at] = ""
    elif kind < 0.5:
        tokens[at:at] = tokens[other : other + rng.randint(1, 8)]
    elif kind < 0.7:
        tokens[at], tokens[other] = tokens[other], tokens[at]
    elif kind < 0.85:
        numbers = [n for n, token in enumerate(tokens) if token.isdigit()]
        if numbers:
            tokens[rng.choice(numbers)] = rng.choice(_NUMBERS)
    else:
        tokens[at] = rng.choice([*_WORDS, rng.choice(tokens)])


def read(text: str) -> int:
    """How many kernels could be made ready; fails on anything but the two errors there are."""
    begin, ready = time.process_time(), 0
    try:
        program = Program.parse(text)
        for name in program.module.entries:
            try:
                program.decoded(name)
                ready += 1
            except SimulationError:
                continue
    except SimulationError:
        pass
    assert time.process_time() - begin < PATIENCE_S
    return ready


def try_many(texts: list[str], count: int, seed: int) -> None:
    ready = 0
    for number in range(seed, seed + count):
        rng = random.Random(number)
        text = mutated(rng, rng.choice(texts))
        try:
            ready += read(text)
        except Exception as error:
            pytest.fail(f"seed {number}: {type(error).__name__}: {error}\n{text}")
    assert ready, "no mutation left a kernel whole: nothing past the parser was tried"


def test_the_sample_is_ptx() -> None:
    assert read(SAMPLE) == 1


def test_mutated_text_is_read_or_refused() -> None:
    try_many([SAMPLE], 250, seed=0)


@pytest.mark.slow
def test_much_mutated_text_is_read_or_refused() -> None:
    texts = [SAMPLE]
    for source in map(inline_source, KERNELS.values()):
        for arch in map(Target.parse, ("compute_80", "compute_90")):
            texts.append(build(source, options=CompileOptions(), target=arch, names=()).ptx)
    try_many(texts, 20_000, seed=10**6)


def entry(body: str, before: str = "") -> str:
    return f"{HEAD}{before}\n.visible .entry k(.param .u64 k_param_0)\n{{\n{body}\nret;\n}}\n"


def functions(bodies: list[str], body: str) -> str:
    declared = "".join(f".func f{n}() {{ {text} ret; }}\n" for n, text in enumerate(bodies))
    return entry(body, declared)


LARGE = 30_000
HOSTILE = {
    "a huge register family": entry(".reg .b32 %r<999999999>; mov.u32 %r999999998, 1;"),
    "a register number of many digits": entry(".reg .b32 %r<9>; mov.u32 %r" + "9" * 5000 + ", 1;"),
    "an integer of many digits": entry(".reg .b32 %r<9>; mov.u32 %r1, " + "9" * 5000 + ";"),
    "a number of many digits and letters": entry(".reg .b32 %r<9>; mov.u32 %r1, %" + "1" * LARGE + "x;"),
    "a huge alignment": entry("", ".global .align 99999999999999 .b8 x[4];"),
    "an alignment of zero": entry("", ".global .align 0 .b8 x[4];"),
    "a negative alignment": entry(".local .align -8 .b8 x[4];"),
    "a huge global array": entry("", ".global .align 8 .b8 x[99999999999999999];"),
    "a product of huge dimensions": entry("", ".global .b64 x[4294967295][4294967295][4294967295];"),
    "a negative dimension": entry(".local .b8 x[-5];"),
    "a huge local array": entry(".local .b8 x[999999999999];"),
    "a huge shared array": entry(".shared .b8 x[999999999999];"),
    "a huge parameter": f"{HEAD}.entry k(.param .b8 k_param_0[999999999999]) {{ ret; }}",
    "nested scopes": entry("{" * LARGE + "}" * LARGE),
    "nested vectors": entry(".reg .b32 %r<9>; mov.b32 %r1, " + "{" * LARGE + "}" * LARGE + ";"),
    "nested initialisers": entry("", ".global .b8 x[4] = " + "{" * LARGE + "}" * LARGE + ";"),
    "nested addresses": entry("ld.u32 " + "[" * LARGE),
    "components of components": entry(".reg .b32 %r<3>; mov.b32 %r1, %r1" + ".x" * LARGE + ";"),
    "nested arguments": entry("call " + "(" * LARGE),
    "comments that do not end": entry("") + "/*/" * LARGE,
    "strings that do not end": entry("") + '"\n' * LARGE,
    "many initialisers": entry("", ".global .b8 x[1] = {1};\n" * (LARGE // 3)),
    "many offsets": entry(".reg .b64 %rd<3>; .reg .b32 %r<3>; ld.u32 %r1, [%rd1" + "+1" * LARGE + "];"),
    "an offset of many bits": entry(
        ".reg .b64 %rd<3>; .reg .b32 %r<3>; ld.u32 %r1, [%rd1+0x" + "f" * 30 + "];"
    ),
    "an absolute address below zero": entry(".reg .b32 %r<3>; ld.global.u32 %r1, [-5];"),
    "a launch bound of many digits": f"{HEAD}.entry k() .maxntid 007, {'9' * 99} {{ ret; }}",
    "a line number of many digits": entry(f".loc {'9' * 40} 1 1 ret;"),
    "calls that grow without bound": functions(
        [f"call f{n + 1}; " * 8 for n in range(12)] + ["bar.sync 0;"], "call f0;"
    ),
    "empty calls that grow without bound": functions(
        [f"call f{n + 1}; " * 4 for n in range(40)] + [""], "call f0;"
    ),
    "calls in calls in calls": functions([f"call f{n + 1};" for n in range(2000)] + [""], "call f0;"),
    "an instruction without operands": entry(
        "mov.b128; ld.b128; st.b128; atom.b128; lop3.or.b32; setp.eq.f16x2;"
    ),
    "operands of another kind": entry(
        ".reg .b32 %r<9>; add.u32 {%r1, %r2}, [%r1], (%r2); shfl.sync.idx.b32 1, 2;"
    ),
    "branches to nowhere": entry("bra 5; bra; brx.idx 1, 2; brx.idx;"),
    "a table without labels": entry(".reg .b32 %r1; t: .branchtargets ; brx.idx %r1, t;"),
}


# The last two are read in test_what_is_too_large_is_said.
LONG = {"calls that grow without bound", "empty calls that grow without bound", "calls in calls in calls"}


@pytest.mark.parametrize(
    "text",
    [pytest.param(HOSTILE[name], id=name, marks=[pytest.mark.slow] * (name in LONG)) for name in HOSTILE],
)
def test_hostile_text_is_read_or_refused(text: str) -> None:
    read(text)


def run_out(text: str) -> Any:
    with pytest.raises(SimulationError) as caught:
        Program.parse(text).decoded("k")
    return str(caught.value)


def test_what_is_too_large_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inlining, "MAX_INSTANCES", 1000)
    assert "more than .local has" in run_out(HOSTILE["a huge local array"])
    assert "not a power of two" in run_out(HOSTILE["an alignment of zero"])
    assert "256 nested { blocks" in run_out(HOSTILE["nested scopes"])
    assert "calls deep" in run_out(HOSTILE["calls in calls in calls"])
    assert "grows without bound" in run_out(HOSTILE["empty calls that grow without bound"])
