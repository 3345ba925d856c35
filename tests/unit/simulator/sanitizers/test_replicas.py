"""Threads that compute what another thread stores race with it, and nothing comes of it: in Triton alone."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from dotcu.simulator import Buffer, Memory, Program, Run, launch

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a)
{{
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [a];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 31;
    mad.wide.u32 %rd2, %r2, 4, %rd1;
    ld.global.u32 %r3, [%rd2];
    add.u32 %r4, %r3, 1;
    setp.lt.u32 %p1, %r1, {stores};
    @%p1 st.global.u32 [%rd2], %r4;
    ret;
}}
"""


def kinds(stores: int, language: Literal["cuda", "triton"], seed: int | None = None) -> list[str]:
    """Launch two warps that load the same 32 elements, of which the first threads store."""
    program = Program.parse(PTX.format(stores=stores), language=language)
    memory, run = Memory(), Run(on_finding="collect", seed=seed)
    address = memory.map(Buffer(name="a", data=np.zeros(128, np.uint8)))
    launch(
        program, "k", params=[address.to_bytes(8, "little")], memory=memory, grid=(1, 1, 1),
        block=(64, 1, 1), smem_bytes=0, run=run, kernel="k",
    )  # fmt: skip
    return [finding.kind for finding in run.findings]


@pytest.mark.parametrize("seed", [None, -1, 0, 1])
def test_a_second_warp_that_stores_nothing_is_silent_in_triton(seed: int | None) -> None:
    assert kinds(32, "triton", seed) == []
    assert kinds(32, "cuda", seed) == ["race"]


@pytest.mark.parametrize("seed", [None, -1, 0, 1])
def test_a_second_warp_that_stores_what_it_read_is_reported(seed: int | None) -> None:
    assert kinds(64, "triton", seed) == ["race"]
