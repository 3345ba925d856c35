"""What tests of instructions with many registers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dotcu.simulator import Buffer, Memory, Program, Run, launch

Array = np.ndarray[Any, Any]


def on_registers(
    text: str,
    inputs: Sequence[Array],
    results: Sequence[str],
    *,
    block: int | None = None,
    live: int | None = None,
    collect: bool = False,
    declarations: str = "",
) -> tuple[list[Array], Run]:
    """Run PTX that reads %i0, %i1, ... and writes %o0, %o1, ...; each has one element a lane.

    Args:
        inputs: Words of 32 or 64 bits.
        results: Their dtypes.
        block: Threads of the block; those of the inputs unless told.
        live: Threads that come to the instruction; the others return before it.
        declarations: Further variables; %tid and %lane are there.
    """
    count = len(inputs[0])
    outs = [np.zeros(count, kind) for kind in results]
    arrays = [np.ascontiguousarray(a) for a in (*inputs, *outs)]
    names = [f"%i{n}" for n in range(len(inputs))] + [f"%o{n}" for n in range(len(outs))]
    declared = "".join(f".reg .b{8 * a.itemsize} {n};\n" for n, a in zip(names, arrays, strict=True))

    def move(number: int, form: str) -> str:
        size = arrays[number].itemsize
        return f"""
        ld.param.u64 %base, [k_{number}];
        mad.wide.u32 %at, %tid, {size}, %base;
        {form.format(bits=8 * size, name=names[number])}"""

    loads = "".join(move(n, "ld.global.b{bits} {name}, [%at];") for n in range(len(inputs)))
    stores = "".join(move(n, "st.global.b{bits} [%at], {name};") for n in range(len(inputs), len(arrays)))
    ptx = f"""
.version 9.0
.target sm_90
.address_size 64
.visible .entry k({", ".join(f".param .u64 k_{n}" for n in range(len(arrays)))})
{{
        .reg .b32 %tid, %lane;
        .reg .b64 %base, %at;
        .reg .pred %outside;
        {declared}
        {declarations}
        mov.u32 %tid, %tid.x;
        mov.u32 %lane, %laneid;
        setp.ge.u32 %outside, %tid, {count if live is None else live};
        @%outside ret;
        {loads}
        {text}
        {stores}
        ret;
}}
"""
    memory, run = Memory(), Run(on_finding="collect" if collect else "raise")
    params = [
        memory.map(Buffer(name=n, data=a.view(np.uint8))).to_bytes(8, "little")
        for n, a in zip(names, arrays, strict=True)
    ]
    launch(
        Program.parse(ptx),
        "k",
        params=params,
        memory=memory,
        grid=(1, 1, 1),
        block=(block or count, 1, 1),
        smem_bytes=0,
        run=run,
        kernel="k",
    )
    return arrays[len(inputs) :], run


@pytest.fixture(name="on_registers", scope="session")
def on_registers_fixture() -> Callable[..., tuple[list[Array], Run]]:
    return on_registers
