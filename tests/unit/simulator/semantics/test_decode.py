"""Instructions that are not executed: the error lists each, with all of its lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dotcu.errors import UnsupportedInstruction

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
