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
