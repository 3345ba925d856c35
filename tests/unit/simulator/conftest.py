"""What the simulator's tests share: one instruction run on arrays, and kernels from CUDA C++."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dotcu.compile import CompileOptions, Target, build, inline_source
from dotcu.simulator import CHECKS, Buffer, Memory, Program, Run, launch

Array = np.ndarray[Any, Any]

_REGISTER = {"f4": "f32", "f8": "f64", "u1": "b16", "u2": "b16", "u4": "b32", "u8": "b64", "b1": "pred"}
_STORED = {"f4": "f32", "f8": "f64", "u1": "u8", "u2": "b16", "u4": "b32", "u8": "b64"}


def _kind(array: Array) -> str:
    kind = array.dtype.str[1:]
    return "u" + kind[1] if kind[0] in "iu" else kind


def _load(name: str, number: int, array: Array) -> str:
    kind = _kind(array)
    size = array.itemsize
    lines = f"""
        ld.param.u64 %base, [k_param_{number}];
        mad.wide.u32 %at, %i, {size}, %base;"""
    if kind == "b1":
        return lines + f"\n        ld.global.u8 %byte, [%at];\n        setp.ne.u16 %{name}, %byte, 0;"
    return lines + f"\n        ld.global.{_STORED[kind]} %{name}, [%at];"


def instruction_ptx(text: str, inputs: Sequence[Array], results: Sequence[np.dtype[Any]]) -> str:
    """A kernel that runs one piece of PTX on a, b, c, ... and keeps d, e, ..."""
    names = "abcdefgh"[: len(inputs)]
    outs = [f"r{n}" for n in range(len(results))]
    declared = "".join(
        f"        .reg .{_REGISTER[_kind(x)]} %{n};\n" for n, x in zip(names, inputs, strict=False)
    )
    empty = [np.zeros(1, r) for r in results]
    declared += "".join(
        f"        .reg .{_REGISTER[_kind(x)]} %{n};\n" for n, x in zip(outs, empty, strict=False)
    )
    loads = "".join(_load(n, i, x) for i, (n, x) in enumerate(zip(names, inputs, strict=False)))
    stores = ""
    for number, (name, array) in enumerate(zip(outs, empty, strict=False), len(inputs)):
        kind, value = _kind(array), f"%{name}"
        stores += f"""
        ld.param.u64 %base, [k_param_{number}];
        mad.wide.u32 %at, %i, {array.itemsize}, %base;"""
        if kind == "b1":
            stores += f"\n        selp.u16 %byte, 1, 0, %{name};"
            kind, value = "u1", "%byte"
        stores += f"\n        st.global.{_STORED[kind]} [%at], {value};"
    total = len(inputs) + len(results)
    params = ", ".join(f".param .u64 k_param_{n}" for n in range(total))
    return f"""
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k({params}, .param .u32 k_count)
{{
        .reg .b32 %i, %n, %block, %size;
        .reg .b64 %base, %at;
        .reg .b16 %byte;
        .reg .pred %outside;
{declared}
        mov.u32 %i, %tid.x;
        mov.u32 %block, %ctaid.x;
        mov.u32 %size, %ntid.x;
        mad.lo.u32 %i, %block, %size, %i;
        ld.param.u32 %n, [k_count];
        setp.ge.u32 %outside, %i, %n;
        @%outside ret;
        {loads}
        {text}
        {stores}
        ret;
}}
"""


def execute(text: str, *inputs: Array, result: Any = None, results: Sequence[Any] = ()) -> Any:
    """Run PTX that reads %a, %b, ... and writes %r0, %r1, ...; one lane for each element."""
    kinds = [np.dtype(r) for r in (results or [result])]
    count = len(inputs[0])
    outs = [np.zeros(count, k) for k in kinds]
    memory, run = Memory(), Run()
    arrays = [np.ascontiguousarray(x) for x in (*inputs, *outs)]
    params = [
        memory.map(Buffer(name=str(n), data=x.view(np.uint8))).to_bytes(8, "little")
        for n, x in enumerate(arrays)
    ]
    program = Program.parse(instruction_ptx(text, inputs, kinds))
    launch(
        program,
        "k",
        params=[*params, np.uint32(count).tobytes()],
        memory=memory,
        grid=(-(-count // 64), 1, 1),
        block=(64, 1, 1),
        smem_bytes=0,
        run=run,
        kernel="k",
    )
    produced = arrays[len(inputs) :]
    return produced if results else produced[0]


@dataclass
class Result:
    """What a kernel left behind."""

    run: Run
    loaded: Program
    arrays: Mapping[str, Array]

    @property
    def findings(self) -> list[Any]:
        return self.run.findings


def compile_ptx(
    source: str, *, arch: str = "compute_80", name: str = "kernel.cu", debug: bool = False
) -> str:
    """CUDA C++ to PTX, with every header that dotcu gives a kernel."""
    compiled = build(
        inline_source(source, name), options=CompileOptions(debug=debug), target=Target.parse(arch), names=()
    )
    ptx = compiled.ptx
    for at, path in compiled.files.items():
        ptx = ptx.replace(f'"{at}"', f'"/dotcu/{name}"' if path == name else f'"{path}"')
    return ptx


_compiled: dict[tuple[str, str, bool], str] = {}


def run_kernel(
    source: str,
    arguments: Mapping[str, Any],
    *,
    grid: Any = 1,
    block: Any = 32,
    smem_bytes: int = 0,
    entry: str = "k",
    collect: bool = False,
    unwritten: Sequence[str] = (),
    read_only: Sequence[str] = (),
    arch: str = "compute_80",
    seed: int | None = None,
    step_limit: int | None = None,
    checks: frozenset[str] = CHECKS,
    debug: bool = False,
) -> Result:
    """Compile and launch `extern "C" __global__ void k(...)`; arrays are passed by address."""
    key = (source, arch, debug)
    ptx = _compiled.get(key) or _compiled.setdefault(key, compile_ptx(source, arch=arch, debug=debug))
    run = Run(on_finding="collect" if collect else "raise", seed=seed, checks=checks)
    if step_limit is not None:
        run.step_limit = step_limit
    memory = Memory()
    loaded = Program.parse(ptx, {"/dotcu/kernel.cu": "kernel.cu"})
    params = []
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            mask = np.zeros(value.nbytes, bool) if name in unwritten else None
            buffer = Buffer(
                name=name,
                data=value.reshape(-1).view(np.uint8),
                written=mask,
                read_only=name in read_only,
                itemsize=value.itemsize,
            )
            params.append(memory.map(buffer).to_bytes(8, "little"))
        else:
            params.append(value.tobytes() if isinstance(value, np.generic) else bytes(value))
    launch(
        loaded,
        entry,
        params=params,
        memory=memory,
        grid=grid if isinstance(grid, tuple) else (grid, 1, 1),
        block=block if isinstance(block, tuple) else (block, 1, 1),
        smem_bytes=smem_bytes,
        run=run,
        kernel=entry,
    )
    return Result(run, loaded, {k: v for k, v in arguments.items() if isinstance(v, np.ndarray)})


@pytest.fixture(name="execute", scope="session")
def execute_fixture() -> Callable[..., Any]:
    return execute


@pytest.fixture(name="run_kernel", scope="session")
def run_kernel_fixture() -> Callable[..., Result]:
    return run_kernel


@pytest.fixture(name="compile_ptx", scope="session")
def compile_ptx_fixture() -> Callable[..., str]:
    return compile_ptx
