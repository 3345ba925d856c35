"""Instructions that dispatch.py has no row for, or that are malformed: the error lists each."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from dotcu.errors import DotcuError, UnsupportedInstruction
from dotcu.simulator import Program
from dotcu.simulator.semantics import decode

SOURCE = """template <typename T> __global__ void total(T* x, T* out) {
    float a, b;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];" : "=f"(a) : "l"(x));
    asm volatile("multimem.st.relaxed.sys.global.f32 [%0], %1;" :: "l"(out), "f"(a));
    if (threadIdx.x < 4) {
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];" : "=f"(b) : "l"(x + 1));
        asm volatile("tcgen05.fence::before_thread_sync;");
        out[1] = b;
    }
}
template __global__ void total(float*, float*);
"""


def test_every_opcode_is_listed_with_its_lines(run_kernel: Any) -> None:
    with pytest.raises(UnsupportedInstruction) as caught:
        run_kernel(
            SOURCE,
            {"x": np.ones(4, "f4"), "out": np.ones(4, "f4")},
            arch="compute_90",
            entry="_Z5totalIfEvPT_S1_",
        )
    told = str(caught.value).splitlines()
    assert told[0] == "The simulator does not execute, in void total<float>(float*, float*):"
    assert len(told) == 6
    assert told[1].startswith("    kernel.cu:3: multimem.ld_reduce.relaxed.sys.global.add.f32 ")
    assert told[1].endswith(
        "(also line 6): its addresses are of the memory of several GPUs, and the simulator is one"
    )
    assert told[2].startswith("    kernel.cu:4: multimem.st")
    assert told[3].startswith("    kernel.cu:7: tcgen05.fence::before_thread_sync")


@pytest.mark.parametrize(
    ("body", "needed"),
    [
        (
            'short v; asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %1;" : "=h"(v) : "f"(1.f)); o[0] = v;',
            89,
        ),
        ('asm volatile("red.global.v2.f32.add [%0], {%1, %2};" :: "l"(o), "f"(1.f), "f"(2.f));', 90),
        ('asm volatile("griddepcontrol.wait;");', 90),
        ('asm volatile("fence.proxy.async;");', 90),
        ('asm volatile("barrier.cluster.arrive; barrier.cluster.wait;");', 90),
        ('unsigned v; asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(v) : "r"(0)); o[0] = v;', 90),
    ],
)
def test_what_the_architecture_lacks_is_refused(run_kernel: Any, body: str, needed: int) -> None:
    source = f'extern "C" __global__ void k(int* o) {{\n{body}\n}}'
    with pytest.raises(UnsupportedInstruction) as caught:
        run_kernel(source, {"o": np.zeros(32, "i4")}, arch="compute_80")
    told = str(caught.value).splitlines()
    assert told[0] == "k is compiled for sm_80, which lacks:"
    assert told[1].startswith("    kernel.cu:2: ")
    assert f'dotcu.simulate(arch="sm_{needed}")' in told[-1]
    run_kernel(source, {"o": np.zeros(32, "i4")}, arch="compute_90")


def test_a_register_of_the_wrong_width_is_refused(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(int* o) {
      int v;
      asm volatile("mov.u64 %0, 1;" : "=r"(v));
      o[0] = v;
    }"""
    with pytest.raises(UnsupportedInstruction, match=r"kernel\.cu:3: mov\.u64"):
        run_kernel(source, {"o": np.zeros(32, "i4")})


INSTRUCTIONS = (
    "add.f32 %f0, %f1, %f2",
    "mad.lo.u32 %r0, %r1, %r2, %r3",
    "mov.b32 {%h0, %h1}, %r0",
    "mov.b128 %q0, {%d0, %d1}",
    "cvt.rn.f32.u32 %f0, %r0",
    "cvt.pack.sat.u8.s32.b32 %r0, %r1, %r2, %r3",
    "setp.lt.and.f32 %p0|%p1, %f0, %f1, %p2",
    "set.lt.u32.f32 %r0, %f0, %f1",
    "lop3.or.b32 %r0|%p0, %r1, %r2, %r3, 1, %p1",
    "dp4a.u32.u32 %r0, %r1, %r2, %r3",
    "testp.finite.f32 %p0, %f0",
    "ld.global.v2.u32 {%r0, %r1}, [%d0]",
    "st.shared.f32 [%r0], %f0",
    "atom.global.cas.b32 %r0, [%d0], %r1, %r2",
    "red.global.add.f32 [%d0], %f0",
    "shfl.sync.idx.b32 %r0|%p0, %r1, %r2, %r3, %r4",
    "vote.sync.ballot.b32 %r0, %p0, %r1",
    "match.any.sync.b32 %r0, %r1, %r2",
    "redux.sync.add.u32 %r0, %r1, %r2",
    "activemask.b32 %r0",
    "bar.sync 0, %r0",
    "bar.red.popc.u32 %r0, 0, %p0",
    "bar.warp.sync %r0",
    "barrier.cluster.arrive.aligned",
    "fence.acq_rel.gpu",
    "mapa.shared::cluster.u32 %r0, %r1, %r2",
    "cvta.to.global.u64 %d0, %d1",
    "isspacep.shared %p0, %d0",
    "alloca.u64 %d0, %d1, 8",
    "mbarrier.arrive.shared.b64 %d0, [%r0]",
    "mbarrier.try_wait.parity.shared.b64 %p0, [%r0], %r1",
    "cp.async.ca.shared.global [%r0], [%d0], 4",
    "cp.async.wait_group 0",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%d0], %r1, [%r2]",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d0], [%r0], %r1",
    "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%d0, {%r1}], [%r3]",
    "tensormap.replace.tile.rank.global.b1024.b32 [%d0], 3",
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0, %r1}, [%r2]",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%e0, %e1}, {%e2}, {%e3}, {%e4, %e5}",
    "wmma.load.a.sync.aligned.row.m8n8k4.global.f64 {%e0}, [%d0], %r0",
    "wgmma.wait_group.sync.aligned 0",
    "setmaxnreg.inc.sync.aligned.u32 64",
    "createpolicy.fractional.L2::evict_first.b64 %d0, 1.0",
)
REGISTERS = (
    ".reg .f32 %f<9>; .reg .f64 %e<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .b16 %h<9>; .reg .pred %p<9>; "
    ".reg .b128 %q<9>;"
)


def decoded(text: str) -> None:
    body = f"{REGISTERS}\n{text};\nret;\n"
    head = ".version 9.0\n.target sm_90a\n.address_size 64\n"
    Program.parse(f"{head}.visible .entry k()\n{{\n{body}}}\n").decoded("k")


def variants(text: str) -> list[str]:
    """The same without an operand, with more of them, with other types, with a modifier that there is not."""
    opcode, _, operands = text.partition(" ")
    some = operands.split(", ")
    kinds = [opcode.rpartition(".")[0] + f".{type_}" for type_ in ("b128", "pred", "s4", "f16x2")]
    names = opcode.split(".")
    shorter = [".".join(names[:at] + names[at + 1 :]) for at in range(1, len(names))]
    changed = [f"{opcode}.nothing", f"{names[0]}.nothing.{'.'.join(names[1:])}", *kinds, *shorter]
    counts = [", ".join(some[:-1]), ", ".join(some[1:]), f"{operands}, %r8, %r8", f"%r8, {operands}", ""]
    return [f"{other} {operands}" for other in changed] + [f"{opcode} {other}" for other in counts]


@pytest.mark.parametrize("text", INSTRUCTIONS)
def test_a_malformed_instruction_is_refused_or_executed_but_no_bug_of_ours(text: str) -> None:
    decoded(text)
    for variant in variants(text):
        with suppress(DotcuError):
            decoded(variant)


def test_a_bug_in_the_semantics_of_an_instruction_is_not_told_as_a_missing_feature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*given: object) -> None:
        raise TypeError("a bug")

    monkeypatch.setattr(decode, "bind", broken)
    with pytest.raises(TypeError, match="a bug"):
        decoded(INSTRUCTIONS[0])
