"""Numba's CUDA kernels in `simulate()`: compiled by `numba.cuda.compile`, and launched in the simulator.

Numba has no public hook for a launch. For as long as a thread has a run, functions of its dispatcher are
replaced, `REPLACED`, by ones that pass everything on in a thread without one. The layout of a kernel's
parameters is not documented either: their number is held against that of the PTX before each launch.

Source: numba/cuda/dispatcher.py (`CUDADispatcher`, `_Kernel._prepare_args`); seen in numba-cuda
0.30.4, and in the `numba.cuda` of Numba 0.68.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from numba import cuda, types
from numba.cuda import dispatcher as numba_dispatcher
from torch import Tensor

from dotcu.errors import SimulationError
from dotcu.kernel.languages.arguments import LaunchArguments
from dotcu.kernel.simulated_memory import active_run, capability_of, print_output
from dotcu.locks import ForkSafeLock
from dotcu.simulator import Buffer, Program, Run, launch

MAX_PROGRAMS = 256
"""Kernels whose PTX stays read."""

BLOCK = 128
"""Threads of a block where `forall` chooses, for which Numba asks the driver."""

OPTIONS = ("debug", "fastmath", "opt", "launch_bounds")
"""The options of `cuda.jit` that `cuda.compile` takes, too."""

GRID_BARRIER = """
.global .align 4 .u32 dotcu_grid_barrier;
.func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
    .reg .b64 %one;
    mov.u64 %one, 1;
    st.param.b64 [handle], %one;
    ret;
}
.func (.param .b32 status) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
    .reg .pred %p;
    .reg .b32 %r, %x, %y, %z, %step, %old, %new;
    .reg .b64 %at;
    bar.sync 0;
    mov.u32 %x, %tid.x;
    mov.u32 %y, %tid.y;
    mov.u32 %z, %tid.z;
    or.b32 %r, %x, %y;
    or.b32 %r, %r, %z;
    setp.ne.u32 %p, %r, 0;
    @%p bra $together;
    mov.u32 %x, %nctaid.x;
    mov.u32 %y, %nctaid.y;
    mul.lo.u32 %x, %x, %y;
    mov.u32 %z, %nctaid.z;
    mul.lo.u32 %x, %x, %z;
    sub.u32 %step, 0x80000001, %x;
    mov.u32 %x, %ctaid.x;
    mov.u32 %y, %ctaid.y;
    mov.u32 %z, %ctaid.z;
    or.b32 %r, %x, %y;
    or.b32 %r, %r, %z;
    setp.ne.u32 %p, %r, 0;
    selp.b32 %step, 1, %step, %p;
    mov.u64 %at, dotcu_grid_barrier;
    cvta.global.u64 %at, %at;
    atom.acq_rel.gpu.add.u32 %old, [%at], %step;
$wait:
    ld.acquire.gpu.u32 %new, [%at];
    xor.b32 %new, %new, %old;
    setp.ge.s32 %p, %new, 0;
    @%p bra $wait;
$together:
    bar.sync 0;
    mov.u32 %r, 0;
    st.param.b32 [status], %r;
    ret;
}
"""
"""The functions of CUDA's device runtime behind `cuda.cg.this_grid().sync()`.

Each block adds one, and the first what turns the sign bit once all are there."""

_EXTERN = re.compile(
    r"\.extern \.func\s+\([^)]*\)\s*(?:cudaCGGetIntrinsicHandle|cudaCGSynchronize)\s*\([^)]*\)\s*;", re.DOTALL
)


@functools.lru_cache(maxsize=MAX_PROGRAMS)
def compiled(dispatcher: Any, signature: tuple[Any, ...], capability: tuple[int, int]) -> tuple[Program, str]:
    """Compile a kernel for the types of its arguments; return its program and its name in that."""
    options = {name: dispatcher.targetoptions.get(name) for name in OPTIONS}
    options = {name: value for name, value in options.items() if value is not None}
    ptx, _ = cuda.compile(
        dispatcher.py_func,
        signature,
        device=False,
        abi="numba",
        lineinfo=not options.get("debug"),
        cc=capability,
        output="ptx",
        **options,
    )
    if isinstance(ptx, bytes):
        ptx = ptx.decode()
    ptx, count = _EXTERN.subn("", ptx)
    if count:
        ptx = re.sub(r"(\.address_size 64\n)", lambda match: match[0] + GRID_BARRIER, ptx, count=1)
    program = Program.parse(ptx, language="numba")
    entries = [name for name in program.module.bodies if program.module.headers[name].is_entry]
    return program, entries[0]


class NumbaArguments(LaunchArguments):
    """Arguments by the types that Numba gives them."""

    def add(self, label: str, kind: Any, value: Any) -> None:
        """Pack an argument.

        Args:
            label: Its name in findings.
            kind: Its type as Numba has inferred or been given it.
            value: What was passed.
        """
        if isinstance(kind, types.Array):
            self._array(label, value)
        elif isinstance(kind, types.Record):
            self.put(label, "Q", self._address(label, value, np.asarray(value).reshape(1)))
        elif isinstance(kind, types.BaseTuple):
            for number, (each, inner) in enumerate(zip(kind, value, strict=True)):
                self.add(f"{label}[{number}]", each, inner)
        elif isinstance(kind, types.EnumMember):
            self.add(label, kind.dtype, value.value)
        elif isinstance(kind, types.CPointer):
            self.put(label, "Q", value)
        elif isinstance(kind, (types.NPDatetime, types.NPTimedelta)):
            self.put_bytes(label, value.view(np.int64).tobytes())
        elif isinstance(kind, types.Complex):
            part = kind.underlying_float
            self.add(f"{label}.real", part, value.real)
            self.add(f"{label}.imag", part, value.imag)
        elif isinstance(kind, (types.Number, types.Boolean)):
            self.put_bytes(label, np.dtype(str(kind).replace("boolean", "bool")).type(value).tobytes())
        else:
            raise SimulationError(
                f"The argument {label} of {self.kernel} has the type {kind}, which the simulator does not "
                "pass.\nPass arrays of NumPy, CPU tensors, numbers, records or tuples of these."
            )

    def _array(self, label: str, value: Any) -> None:
        """Pass an array as Numba's kernels take it: sizes in elements, strides in bytes."""
        array = host_array(value)
        address = self._address(label, value, array)
        for number in (0, 0, array.size, array.itemsize, address, *array.shape, *array.strides):
            self.put(label, "q", number)

    def _address(self, label: str, value: Any, array: np.ndarray[Any, Any]) -> int:
        """Return the address of the first element; with negative strides it is not the lowest."""
        if isinstance(value, Tensor):
            return self.address(label, value)
        low, high = np.lib.array_utils.byte_bounds(array)
        if not array.size:
            return 0
        key = (low, high, array.dtype.str)
        if key not in self._mapped:
            memory: Any = (ctypes.c_uint8 * (high - low)).from_address(low)
            memory.owner = array  # alive as long as the bytes
            whole: Any = array
            while isinstance(whole.base, np.ndarray):
                whole = whole.base
            start, end = np.lib.array_utils.byte_bounds(whole)
            buffer = Buffer(
                name=label,
                data=np.frombuffer(memory, np.uint8),
                read_only=not array.flags.writeable,
                storage=(start, end - start),
                itemsize=array.itemsize,
            )
            self._mapped[key] = self.memory.map(buffer)
        return self._mapped[key] + array.ctypes.data - low


def host_array(value: Any) -> Any:
    """Return what Numba knows the type of: a tensor's array of NumPy; another value as it is."""
    return value.detach().numpy() if isinstance(value, Tensor) and value.device.type == "cpu" else value


_signatures: dict[Any, list[tuple[Any, ...]]] = {}
"""Those that kernels were declared with in a run, by dispatcher."""


def _simulate(run: Run, dispatcher: Any, args: Sequence[Any], grid: Any, block: Any, smem_bytes: int) -> None:
    kernel = dispatcher.py_func.__name__
    given = NumbaArguments(kernel)
    names = dispatcher.py_func.__code__.co_varnames[: dispatcher.py_func.__code__.co_argcount]
    if len(names) != len(args):
        raise TypeError(f"{kernel}() takes {len(names)} arguments ({', '.join(names)}), got {len(args)}.")
    for name, value in zip(names, args, strict=True):
        if isinstance(value, Tensor):
            given.address(name, value)  # refuses one that is not on the CPU
    declared = _signatures.get(dispatcher)
    signature = declared[0] if declared else tuple(dispatcher.typeof_pyval(host_array(a)) for a in args)
    program, entry = compiled(dispatcher, signature, capability_of(run.arch))
    for name, kind, value in zip(names, signature, args, strict=True):
        given.add(name, kind, value)
    taken = len(program.module.headers[entry].params)
    if len(given.packed) != taken:
        raise SimulationError(
            f"The kernel {kernel} takes {taken} parameters as Numba compiled it; dotcu packed "
            f"{len(given.packed)}.\n"
            "This Numba passes arguments in another way than the one that dotcu knows.\n"
            "Type: pip install numba-cuda==0.30.4"
        )
    printed = len(run.output)
    failed = program.variables.get(f"{entry}__errcode__")
    if failed is not None:
        failed[:] = 0
    try:
        launch(
            program,
            entry,
            params=given.packed,
            memory=given.memory,
            grid=grid,
            block=block,
            smem_bytes=smem_bytes,
            run=run,
            kernel=kernel,
            parameter_names=tuple(given.names),
            cooperative="dotcu_grid_barrier" in program.variables,
        )
    finally:
        print_output(run, printed)
    if failed is not None and failed.any():
        at = {
            name: tuple(int(program.variables[f"{entry}__{name}{i}__"].view(np.int32)[0]) for i in "xyz")
            for name in ("tid", "ctaid")
        }
        raise SimulationError(
            f"The kernel {kernel} raised an exception in thread {at['tid']} of block {at['ctaid']}.\n"
            "Required: no assert that fails, no division by zero, and no raise that is reached.\n"
            f"Look for them in {dispatcher.py_func.__code__.co_filename}:"
            f"{dispatcher.py_func.__code__.co_firstlineno}"
        )


_originals: dict[str, Any] = {
    name: getattr(numba_dispatcher.CUDADispatcher, name)
    for name in ("call", "compile", "disable_compile", "specialize", "forall")
}
_get_current_device: Callable[[], Any] = numba_dispatcher.get_current_device


def _call(self: Any, args: Sequence[Any], configured: Any, *others: Any) -> Any:
    """Launch; numba-cuda passes a configuration, Numba grid, block, stream and shared memory."""
    run = active_run()
    if run is None:
        return _originals["call"](self, args, configured, *others)
    if others:
        return _simulate(run, self, args, configured, others[0], others[2])
    return _simulate(run, self, args, configured.griddim, configured.blockdim, configured.sharedmem)


def _compile(self: Any, sig: Any) -> Any:
    """Note a signature that a kernel is declared with: it is compiled when it is launched."""
    if active_run() is None:
        return _originals["compile"](self, sig)
    return _signatures.setdefault(self, []).append(tuple(sig))


def _disable_compile(self: Any, val: bool = True) -> None:
    """Leave a kernel with declared signatures as it is: none of them is compiled yet."""
    if active_run() is None:
        _originals["disable_compile"](self, val)


def _specialize(self: Any, *args: Any) -> Any:
    return self if active_run() is not None else _originals["specialize"](self, *args)


def _forall(self: Any, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0) -> Any:
    if active_run() is None:
        return _originals["forall"](self, ntasks, tpb, stream, sharedmem)
    block = tpb or BLOCK
    return self[max(0, -(-ntasks // block)), block, stream, sharedmem]


def _device() -> Any:
    """Return what Numba asks of the GPU when it compiles a device function: its compute capability."""
    run = active_run()
    return (
        _get_current_device() if run is None else SimpleNamespace(compute_capability=capability_of(run.arch))
    )


REPLACED: tuple[tuple[Any, dict[str, Any]], ...] = (
    (
        numba_dispatcher.CUDADispatcher,
        {
            "call": _call,
            "compile": _compile,
            "disable_compile": _disable_compile,
            "specialize": _specialize,
            "forall": _forall,
        },
    ),
    (numba_dispatcher, {"get_current_device": _device}),
)
"""What stands in for functions of Numba while there is a run."""

_lock = ForkSafeLock()
_runs = 0


@contextmanager
def simulated() -> Iterator[None]:
    """Take the launches of Numba's kernels into the simulator, in threads that have a run."""
    global _runs
    with _lock:
        _runs += 1
        if _runs == 1:
            for owner, values in REPLACED:
                for name, value in values.items():
                    setattr(owner, name, value)
    try:
        yield
    finally:
        with _lock:
            _runs -= 1
            if not _runs:
                for name, value in _originals.items():
                    setattr(numba_dispatcher.CUDADispatcher, name, value)
                numba_dispatcher.get_current_device = _get_current_device
