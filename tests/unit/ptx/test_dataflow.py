"""What instructions name, and which functions a kernel reaches."""

from __future__ import annotations

from dotcu.ptx.dataflow import names_of, reached_functions, registers_of, symbols_of
from dotcu.ptx.module import parse_module

PTX = """.version 9.0
.target sm_80
.address_size 64
.global .align 4 .u32 table[4];
.func helper(.param .b32 x) { .reg .b32 %r<3>; mov.u32 %r1, 1; ret; }
.func other() { ret; }
.visible .entry k(.param .u64 p)
{
.reg .b64 %rd<4>; .reg .b32 %r<5>; .reg .pred %p<2>;
ld.param.u64 %rd1, [p];
mov.u64 %rd2, table;
setp.eq.s32 %p1, %r1, 0;
@%p1 st.global.v2.u32 [%rd1+8], {%r1, %r2};
{
call.uni helper, (%r3);
}
ret;
}
"""
ADDRESS, STORE, CALL = 1, 3, 4


def test_names_are_found_in_addresses_vectors_and_arguments() -> None:
    rows = parse_module(PTX).body("k").instructions
    assert names_of(rows[STORE].operands) == {"%rd1", "%r1", "%r2"}
    vector = rows[STORE].operands[-1]
    assert [register.name for register in registers_of(vector)] == ["%r1", "%r2"]
    assert {"helper", "%r3"} <= names_of(rows[CALL].operands)


def test_a_variable_whose_address_is_taken_is_a_symbol() -> None:
    rows = parse_module(PTX).body("k").instructions
    assert [symbol.name for symbol in symbols_of(rows[ADDRESS].operands)] == ["table"]
    assert symbols_of(rows[STORE].operands) == []


def test_a_kernel_reaches_the_functions_that_it_calls_and_no_others() -> None:
    reached = reached_functions(parse_module(PTX), "k")
    assert set(reached) == {"k", "helper"}
    assert [row.opcode for row in reached["helper"]] == ["mov", "ret"]
    assert reached["helper"][0].results == {"%r1"}
