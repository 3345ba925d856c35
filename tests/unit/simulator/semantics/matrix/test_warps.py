"""Matrix instructions as rendezvous of whole warps, and those that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dotcu.errors import FindingError, UnsupportedInstruction

F16 = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%o0, %o1, %o2, %o3}, {%i0, %i1}, {%i2}, "
F16 += "{%i3, %i4, %i5, %i6};"


def test_a_lane_that_has_returned_is_a_finding_and_its_warp_keeps_its_registers(on_registers: Any) -> None:
    ones = [np.full(64, 0x3C003C00, np.uint32)] * 3 + [np.zeros(64, np.uint32)] * 4
    text = "mov.b32 %o0, 77;\n" + F16
    outs, run = on_registers(text, ones, ["u4"] * 4, live=63, collect=True)
    (finding,) = run.findings
    assert finding.kind == "barrier"
    assert "only 31 of a warp's 32 threads" in finding.message
    assert finding.thread == (32, 0, 0)
    assert outs[0][:32].view(np.float32).tolist() == [8.0] * 32
    assert outs[0][32:63].tolist() == [77] * 31


def test_a_block_that_is_no_multiple_of_32_is_a_finding(on_registers: Any) -> None:
    inputs = [np.zeros(40, np.uint32)] * 7
    with pytest.raises(FindingError, match="only 8 of a warp's 32 threads"):
        on_registers(F16, inputs, ["u4"] * 4)


def test_a_condition_that_keeps_lanes_out_is_a_finding(on_registers: Any) -> None:
    inputs = [np.zeros(32, np.uint32)] * 7
    guard = "setp.lt.u32 %p, %lane, 16;\n@%p "
    with pytest.raises(FindingError, match="only 16 of a warp's 32 threads"):
        on_registers(guard + F16, inputs, ["u4"] * 4, declarations=".reg .pred %p;")


def test_half_a_warp_that_waits_at_a_barrier_is_a_deadlock(on_registers: Any) -> None:
    text = f"""
        setp.lt.u32 %p, %lane, 16;
        @%p bra take;
        bar.sync 0;
        bra.uni done;
    take: {F16}
        bar.sync 0;
    done:"""
    with pytest.raises(FindingError, match="deadlock"):
        on_registers(text, [np.zeros(32, np.uint32)] * 7, ["u4"] * 4, declarations=".reg .pred %p;")


def test_lanes_that_come_in_two_parts_are_waited_for(on_registers: Any) -> None:
    ones = [np.full(64, 0x3C003C00, np.uint32)] * 3 + [np.zeros(64, np.uint32)] * 4
    text = f"""
        setp.lt.u32 %p, %tid, 40;
        @%p bra later;
        bra.uni meet;
    later: mov.b32 %i3, 0f3F800000;
    meet: {F16}"""
    outs, run = on_registers(text, ones, ["u4"] * 4, declarations=".reg .pred %p;")
    assert outs[0].view(np.float32).tolist() == [9.0] * 40 + [8.0] * 24
    assert run.findings == []


def test_some_warps_of_a_block_multiply_alone(on_registers: Any) -> None:
    ones = [np.full(96, 0x3C003C00, np.uint32)] * 3 + [np.zeros(96, np.uint32)] * 4
    text = f"""
        mov.b32 %o1, 5;
        and.b32 %i6, %tid, 32;
        setp.eq.u32 %p, %i6, 0;
        @%p bra skip;
        {F16}
    skip:"""
    outs, run = on_registers(text, ones, ["u4"] * 4, declarations=".reg .pred %p;")
    assert outs[1][32:64].view(np.float32).tolist() == [8.0] * 32
    assert outs[1][:32].tolist() == outs[1][64:].tolist() == [5] * 32
    assert run.findings == []


SUMS = "{%o0,%o1,%o2,%o3}"
REFUSED = [
    (
        f"mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {SUMS}, {{%i0,%i1}}, {{%i2,%i3}}, "
        "{%i3,%i4,%i5,%i6}, %i0, 0x4;"
    ),
    f"mma.sync.aligned.m16n8k8.col.col.f32.f16.f16.f32 {SUMS}, {{%i0,%i1}}, {{%i2}}, {{%i3,%i4,%i5,%i6}};",
    (
        f"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32 {SUMS}, {{%i0,%i1,%i0,%i1}}, "
        "{%i2,%i2}, {%i3,%i4,%i5,%i6};"
    ),
    f"wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {SUMS}, %base, %base, %i0, 0, 1, 1, 1, 0, 0;",
    "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%o0}, [%i0];",
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%o0, %o1}, [%i0];",
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_executed_is_refused_by_name(on_registers: Any, text: str) -> None:
    with pytest.raises(UnsupportedInstruction) as caught:
        on_registers(text, [np.zeros(32, np.uint32)] * 7, ["u4"] * 4)
    assert text.split()[0].rstrip(";") in str(caught.value)
