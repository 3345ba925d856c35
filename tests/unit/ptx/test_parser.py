"""The parser, and lexer.py below it: what NVRTC prints, odd spellings, and text that is not PTX."""

from __future__ import annotations

import contextlib
import random
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dotcu.errors import FindingError, SimulationError, UnsupportedInstruction
from dotcu.ptx.module import parse_module
from dotcu.simulator import Buffer, Memory, Program, Run, launch

HEAD = ".version 9.0\n.target sm_80\n.address_size 64\n"


def kernel(body: str, params: str = ".param .u64 k_param_0") -> str:
    return f"{HEAD}.visible .entry k({params})\n{{\n{body}\n}}\n"


def run(ptx: str, out: np.ndarray[Any, Any]) -> Run:
    memory, run = Memory(), Run()
    address = memory.map(Buffer(name="out", data=out.view("u1")))
    launch(
        Program.parse(ptx),
        "k",
        params=[address.to_bytes(8, "little")],
        memory=memory,
        grid=(1, 1, 1),
        block=(32, 1, 1),
        smem_bytes=0,
        run=run,
        kernel="k",
    )
    return run


PROLOGUE = """
.reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .b16 %rs<9>; .reg .f32 %f<9>; .reg .pred %p<3>;
ld.param.u64 %rd1, [k_param_0]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;
"""


def test_nested_scopes_hide_names_and_registers_need_no_percent_sign() -> None:
    body = (
        PROLOGUE
        + """
    mov.b32 %r3, 5;
    { .reg .b32 t; .reg .b32 %r<4>; mov.b32 t, 7; mov.b32 %r3, t; }
    {.reg.b32         t; mov.b32 t, 11; add.u32 %r3, %r3, t; }
    st.global.u32 [%rd2], %r3; ret;"""
    )
    out = np.zeros(32, "u4")
    run(kernel(body), out)
    assert out.tolist() == [16] * 32


def test_packing_moves_put_the_first_element_low() -> None:
    body = (
        PROLOGUE
        + """
    mov.u16 %rs1, 0x3f80;
    { mov.b32 %f1, {0,%rs1};}
    mov.b32 {%rs2, %rs3}, %f1; cvt.u32.u16 %r2, %rs3; mov.b32 %r3, {%rs3, %rs2};
    cvt.rzi.u32.f32 %r4, %f1; add.u32 %r2, %r2, %r4; add.u32 %r2, %r2, %r3;
    st.global.u32 [%rd2], %r2; ret;"""
    )
    out = np.zeros(32, "u4")
    run(kernel(body), out)
    assert out[0] == 0x3F80 + 1 + 0x3F80


def test_constants_in_every_notation() -> None:
    body = (
        PROLOGUE
        + """
    mov.u32 %r2, 0x10U; add.u32 %r2, %r2, 010; add.s32 %r2, %r2, -4; add.u32 %r2, %r2, 7U;
    mov.f32 %f1, 0f40490FDB; cvt.rzi.u32.f32 %r3, %f1; add.u32 %r2, %r2, %r3; mov.f32 %f2, 2.5;
    cvt.rzi.u32.f32 %r3, %f2; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, WARP_SZ;
    st.global.u32 [%rd2], %r2; ret;"""
    )
    out = np.zeros(32, "u4")
    run(kernel(body), out)
    assert out[0] == 16 + 8 - 4 + 7 + 3 + 2 + 32


def test_labels_of_different_scopes_do_not_collide() -> None:
    loop = "{ .reg .pred p; AGAIN: add.u32 %r2, %r2, 1; setp.lt.u32 p, %r2, LIMIT; @p bra AGAIN; }"
    body = PROLOGUE + "mov.u32 %r2, 0;" + loop.replace("LIMIT", "3") + loop.replace("LIMIT", "9")
    out = np.zeros(32, "u4")
    run(kernel(body + "st.global.u32 [%rd2], %r2; ret;"), out)
    assert out[0] == 9


def test_headers_are_read_without_bodies() -> None:
    text = (
        HEAD
        + """
    .visible .entry a(.param .align 8 .b8 a_param_0[24], .param .u64 .ptr .global .align 16 a_param_1,
        .param .u8 a_param_2) .maxntid 128, 1, 1 .minnctapersm 2 { this is { not } PTX }
    .weak .entry b() { ret; }
    .func (.param .b32 r) c(.param .b32 x);"""
    )
    headers = parse_module(text).entries
    assert list(headers) == ["a", "b"]
    assert [(p.name, p.size, p.align, p.type) for p in headers["a"].params] == [
        ("a_param_0", 24, 8, "b8"),
        ("a_param_1", 8, 8, "u64"),
        ("a_param_2", 1, 1, "u8"),
    ]
    assert headers["a"].max_threads == (128, 1, 1)
    assert headers["a"].registers == 0  # 256 for each thread: more than the assembler may take
    assert headers["b"].params == ()


def test_static_shared_memory_is_in_the_entry() -> None:
    body = ".shared .align 4 .b8 one[5]; .shared .align 16 .b8 two[4][8]; ret;"
    assert parse_module(kernel(body)).static_smem_bytes("k") == 16 + 32


def test_unsupported_instructions_are_refused_before_anything_runs() -> None:
    body = (
        PROLOGUE
        + """
    st.global.u32 [%rd2], %r1;
    .loc 1 7 3
    tcgen05.wait::ld.sync.aligned;
    tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}];
    ret;"""
    )
    out = np.zeros(32, "u4")
    text = kernel(body) + '.file 1 "/x/a.cu"\n'
    with pytest.raises(SimulationError):
        run(text, out)
    body = body.replace("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}];", "")
    with pytest.raises(UnsupportedInstruction, match=r"/x/a\.cu:7: tcgen05\.wait::ld\.sync\.aligned"):
        run(kernel(body) + '.file 1 "/x/a.cu"\n', out)
    assert not out.any()


def test_an_unknown_modifier_is_refused_not_guessed() -> None:
    body = PROLOGUE + "add.frobnicated.u32 %r2, %r1, 1; ret;"
    with pytest.raises(UnsupportedInstruction, match="frobnicated"):
        run(kernel(body), np.zeros(32, "u4"))


def test_a_recursion_without_end_stops() -> None:
    text = (
        HEAD
        + """
    .func f() { call.uni f, (); ret; }
    .visible .entry k(.param .u64 k_param_0) { call.uni f, (); ret; }"""
    )
    with pytest.raises(FindingError, match="stack-overflow: a recursion that is too deep"):
        run(text, np.zeros(32, "u4"))


def test_bytes_of_addresses_in_an_initialiser() -> None:
    text = (
        HEAD
        + """
    .global .align 4 .b8 there[8] = {1, 2, 3};
    .global .align 1 .b8 packed[9] = {7, 0xFF(there), 0xFF00(there), 0xFF0000(there), 0xFF000000(there),
        0xFF00000000(there), 0xFF0000000000(there), 0xFF000000000000(there), 0xFF00000000000000(there)};
    .visible .entry k() { ret; }"""
    )
    program = Program.parse(text)
    packed = program.variables["packed"].tobytes()
    assert packed[0] == 7
    assert int.from_bytes(packed[1:], "little") == program.addresses["there"]


def test_a_missing_kernel_lists_those_there_are() -> None:
    with pytest.raises(SimulationError, match="has no kernel named 'other'; it has: k"):
        Program.parse(kernel("ret;")).decoded("other")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        HEAD + ".visible .entry k( {",
        kernel("add.u32 %r1, %r2"),
        kernel("mov.u32 %nowhere, 1;"),
        kernel("bra NOWHERE;"),
        kernel("{ ret;"),
        kernel("} ret; {"),
        kernel(".reg .b99 %x;"),
        kernel("@%p1 ret;"),
        kernel("ld.param.u64 [;"),
    ],
)
def test_text_that_is_not_ptx_is_a_clean_error(text: str) -> None:
    with pytest.raises(SimulationError):
        Program.parse(text).decoded("k")


SAMPLE = kernel(
    PROLOGUE
    + """
    setp.gt.u32 %p1, %r1, 5; @%p1 bra $L1; mul.lo.s32 %r2, %r1, %r1; bra.uni $L2;
$L1: shl.b32 %r2, %r1, 3;
$L2: { .reg .b32 t; mov.b32 t, %r2; st.global.u32 [%rd2], t; }
    bar.sync 0; ret;"""
)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_mutated_text_parses_or_fails_cleanly(seed: int) -> None:
    rng = random.Random(seed)
    text = list(SAMPLE)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(text))
        choice = rng.random()
        if choice < 0.4:
            text[at] = rng.choice('{}[]();:,.%@!+-<>|0x19afL$"/* \n')
        elif choice < 0.7:
            del text[at]
        else:
            text[at:at] = text[at - rng.randint(0, 30) : at]
    begin = time.process_time()
    with contextlib.suppress(SimulationError):
        Program.parse("".join(text)).decoded("k")
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(
    ("written", "name"), [(r"/a\"b.cu", '/a"b.cu'), (r"/a\b.cu", r"/a\b.cu"), ("/a\\", "/a\\")]
)
def test_a_quote_in_a_files_name_does_not_end_it(written: str, name: str) -> None:
    text = f'.version 8.0\n.target sm_80\n.address_size 64\n.file 1 "{written}"\n'
    assert parse_module(text).files == {1: name}
