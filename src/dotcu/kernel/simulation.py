"""The simulator as a device: `simulate()`, launches on CPU tensors, and which bytes are still unwritten.

CPU tensors are mapped into simulated addresses without a copy. The simulator reports a read of bytes that
`torch.empty` allocated and nothing has filled: a dispatch mode sees the allocations, and a mask for each
storage, one byte for each of its bytes, is shared with the simulator, which marks what kernels store.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from dotcu import torch_compat
from dotcu.compile.target import Target
from dotcu.errors import CompileError, SimulationError, UsageError, escaped
from dotcu.kernel.arguments.memory import extent
from dotcu.kernel.arguments.pack import PackingPlan, Placement, pack, tensors_in
from dotcu.kernel.arguments.tensor_map import DTYPES, Tiled
from dotcu.kernel.config import ArchLimits, LaunchConfig, limits
from dotcu.kernel.declarations import overload_key
from dotcu.kernel.launch_policy import count_launch_writes
from dotcu.simulator import CHECKS, ON_REQUEST
from dotcu.tracebacks import caller_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dotcu.kernel.compiled import CompilationUnit, CompiledUnit
    from dotcu.simulator import Buffer, Run


DEFAULT_ARCH = "sm_80"
_OF_SM_90A = re.compile(r"^\s*(wgmma|setmaxnreg)\.", re.MULTILINE)
"""Instructions for which the default gives way: no other architecture has them."""
OLDEST = (7, 5)

_active: ContextVar[Run | None] = ContextVar("dotcu_run", default=None)

active_run = _active.get
"""Return the run of the `simulate()` block that this thread is in, None outside."""


_threads: Counter[int] = Counter()
"""How many `simulate()` blocks each thread is in."""


def simulating_elsewhere() -> bool:
    """Return whether another thread is in a `simulate()` block that this thread is not in."""
    return bool(_threads) and active_run() is None and any(each != get_ident() for each in list(_threads))


active_rank: ContextVar[tuple[Any, int]] = ContextVar("dotcu_rank", default=(None, 0))
"""The ranks of `dotcu.simulate_ranks`, and which of them this thread is; None and 0 outside."""


def capability_of(arch: str) -> tuple[int, int]:
    """Return the compute capability that an architecture's name stands for."""
    target = Target.parse(arch)
    return target.major, target.minor


@contextmanager
def simulate(
    arch: str = DEFAULT_ARCH,
    on_finding: Literal["raise", "collect"] = "raise",
    seed: int | None = None,
    checks: Collection[str] = CHECKS,
    step_limit: int | None = None,
) -> Iterator[Run]:
    """Run operators on CPU tensors in the simulator, and gather what it finds and counts.

    Args:
        arch: The architecture that kernels are compiled for; by default sm_80, or sm_90a for a kernel with
            wgmma, setmaxnreg or __cluster_dims__.
        on_finding: "raise" stops at the first finding with a `FindingError`; "collect" goes on.
        seed: Shuffles which warps run ahead of others, and the order in which atomics that meet at
            one address take effect; None keeps all warps in step, and -1 reverses its order: the last
            blocks, and of these the last warps, run first.
        checks: Which of "bounds" (and alignment), "init" (reads of what nothing wrote), "race" and
            "barrier" are on, and whether "divergence" is: a __syncthreads() that not all threads of a block
            reach together, which hardware tolerates. A faulty access is left out in any case.
        step_limit: Instructions that blocks which run together may issue before a launch ends with a
            `step-limit` finding. None allows any number, as long as every 5 million of them end some thread
            or reach code for the first time.

    Yields:
        The run: `.findings`, `.counters`.

    Note:
        It holds for this thread and task. An operator that is called on another thread computes its
        reference and warns, unless the call is made in a copy of this context. CUDA tensors still go to
        their GPU. What `torch.empty` allocates inside counts as unwritten until something writes it.
    """
    from dotcu.simulator import Run
    from dotcu.simulator.run import REVERSED

    if not isinstance(arch, str):
        raise UsageError(f'arch is the name of an architecture, such as "sm_80", got {arch!r}.')
    if capability_of(arch) < OLDEST:
        raise UsageError(f'arch is "sm_75" or newer, which the compiler has code for, got {arch!r}.')
    if seed is not None and seed < REVERSED:
        raise UsageError(f"seed is None, -1 for the reversed order, or a number from 0 on, got {seed}.")
    if on_finding not in ("raise", "collect"):
        raise UsageError(f'on_finding is "raise" or "collect", got {on_finding!r}.')
    if isinstance(checks, str) or not (CHECKS | ON_REQUEST).issuperset(checks):
        raise UsageError(f"checks are some of {sorted(CHECKS | ON_REQUEST)}, got {checks!r}.")
    if step_limit is not None and step_limit < 1:
        raise UsageError(f"step_limit is a positive number of instructions, got {step_limit}.")
    run = Run(arch=arch, on_finding=on_finding, seed=seed, checks=frozenset(checks), step_limit=step_limit)
    token, thread = _active.set(run), get_ident()
    _threads[thread] += 1
    try:
        with tracking_allocations():
            yield run
    finally:
        _threads[thread] -= 1
        if not _threads[thread]:
            _threads.pop(thread, None)
        _active.reset(token)


def tensor_bytes(tensor: Tensor) -> NDArray[np.uint8]:
    """Return the bytes from a tensor's first element to its last, shared with it."""
    count = extent(tensor) * tensor.itemsize
    if count == 0:
        return np.empty(0, np.uint8)
    memory: Any = (ctypes.c_uint8 * count).from_address(tensor.data_ptr())
    memory.owner = tensor  # alive as long as the array
    return np.frombuffer(memory, np.uint8)


def _buffer(tensor: Tensor, name: str, writable: bool, shared: Collection[int] = ()) -> Buffer:
    """Describe a tensor to the simulator: its own elements, and which of them are written.

    Args:
        shared: The addresses of storages that several ranks reach.
    """
    from dotcu.simulator import Buffer

    data, allocations = tensor_bytes(tensor), active_allocations()
    mask = allocations.mask(tensor) if allocations is not None else None
    written = None
    if mask is not None:
        start = tensor.storage_offset() * tensor.itemsize
        part = mask[start : start + data.size]
        written = part if part.size == data.size else None
    storage = tensor.untyped_storage()
    protected = writable and data.size > 0 and not _may_be_written(tensor.data_ptr())
    return Buffer(
        name=name,
        data=data,
        written=written,
        read_only=protected or not writable,
        protected=protected,
        storage=(storage.data_ptr(), storage.nbytes()) if data.size else None,
        itemsize=tensor.itemsize,
        shared=storage.data_ptr() in shared,
    )


_POPULATE_WRITE = 23
"""The advice that prepares a page for writing, and fails where it may not be written.

Source: madvise(2), Linux 5.14 and later."""


@functools.cache
def _madvise() -> Callable[..., int] | None:
    function: Callable[..., int] | None = getattr(ctypes.CDLL(None), "madvise", None)
    return function


def _may_be_written(address: int) -> bool:
    """Return whether this process may write to an address: a tensor may be a file that is mapped to read."""
    advise, page = _madvise(), mmap.PAGESIZE
    start = ctypes.c_void_p(address - address % page)
    if advise is not None and advise(start, ctypes.c_size_t(page), _POPULATE_WRITE) == 0:
        return True
    with suppress(OSError), Path("/proc/self/maps").open("rb") as maps:  # also where the system is older
        for line in maps:
            span, rights = line.split(maxsplit=2)[:2]
            first, end = (int(bound, 16) for bound in span.split(b"-"))
            if first <= address < end:
                return b"w" in rights
    return True


def _caller(plan: PackingPlan, passed: Mapping[str, Tensor], name: str) -> str:
    """Return the tensor that findings call by a name, such as `params.x`, and the line of the launch."""
    label = re.split(r"[.\[]", name)[0]
    number = next((p.index + 1 for p in plan.parameters if p.label in (name, label)), 0)
    told = [f"launched at {line}"] if (line := caller_line()) else []
    if number and name in passed:
        tensor = passed[name]
        dtype = str(tensor.dtype).removeprefix("torch.")
        place = "argument" if name == label else "in argument"
        what = f"`{name}`, {place} {number} of `{plan.kernel}`"
        told.insert(0, f"{what}, shape {tuple(tensor.shape)} {dtype}")
    return ", ".join(told)


_MAP_TYPES = {
    "UINT8": "u8", "UINT16": "u16", "UINT32": "u32", "INT32": "s32", "UINT64": "u64", "INT64": "s64",
    "FLOAT16": "f16", "FLOAT32": "f32", "FLOAT64": "f64", "BFLOAT16": "bf16",
}  # fmt: skip
"""PTX's names of the element types of tensor maps."""


def _encode_map(tiled: Tiled, address: int) -> bytes:
    """Encode a tensor map in the simulator's own format."""
    from dotcu.simulator import Map

    if tiled.fill == "nan":
        raise SimulationError(
            'A tensor map has fill="nan"; the simulator fills what lies outside a tensor with zeros.\n'
            'Pass fill="zeros", or launch on CUDA tensors.'
        )
    return Map(
        address=address,
        sizes=tiled.sizes,
        strides_bytes=tiled.strides_bytes,
        box=tiled.box,
        steps=tiled.element_strides,
        type=_MAP_TYPES[DTYPES[tiled.dtype]],
        swizzle=tiled.swizzle,
        lower_corner=tiled.lower_corner,
        upper_corner=tiled.upper_corner,
    ).encode()


@dataclass(frozen=True, kw_only=True)
class SimulatedDevice:
    """The simulator, to launch on CPU tensors; the run collects findings and counters."""

    simulation: Run

    def __str__(self) -> str:
        return "simulator"

    @property
    def key(self) -> object:  # the devices that stages are made for differ in it
        return self.simulation.arch

    def arch(self, code: CompiledUnit) -> ArchLimits:
        return limits(code.object.target.major, code.object.target.minor)

    def code(self, unit: CompilationUnit) -> CompiledUnit:
        is_default, newer = self.simulation.arch == DEFAULT_ARCH, Target.parse("sm_90a").virtual
        try:
            code = unit.code(Target.parse(self.simulation.arch).virtual, simulated=True)
        except CompileError as error:
            if is_default and "__cluster_dims__ is not supported" in str(error):
                return unit.code(newer, simulated=True)
            raise
        if is_default and _OF_SM_90A.search(code.object.ptx):
            return unit.code(newer, simulated=True)
        return code

    def run(
        self, code: CompiledUnit, kernel: str, plan: PackingPlan, args: Sequence[Any], config: LaunchConfig
    ) -> None:
        ranks, number = active_rank.get()
        if ranks is None or not any(
            tensor.untyped_storage().data_ptr() in ranks.shared for tensor in tensors_in(args)
        ):
            self._run(code, kernel, plan, [args], config)
            return

        def together(launches: Sequence[Any]) -> list[None]:
            self._run(code, kernel, plan, list(launches), config, ranks.shared)
            return [None] * len(launches)

        what = f"the launch of {kernel} with grid {config.grid} and block {config.block}"
        ranks.meet(number, what, args, together)

    def _run(
        self,
        code: CompiledUnit,
        kernel: str,
        plan: PackingPlan,
        ranks: Sequence[Sequence[Any]],
        config: LaunchConfig,
        shared: Collection[int] = (),
    ) -> None:
        """Run a launch, or those of several ranks at once.

        Args:
            ranks: The arguments of each rank.
            shared: The addresses of storages that several ranks reach.
        """
        from dotcu.simulator import Buffer, Memory, launch

        memory = Memory()

        def store(data: bytes, name: str, writable: bool) -> int:
            copy = np.frombuffer(data, np.uint8).copy()
            return memory.map(Buffer(name=name, data=copy, read_only=not writable))

        passed: dict[str, Tensor] = {}

        def address(tensor: Tensor, name: str, writable: bool) -> int:
            passed[name] = tensor
            return memory.map(_buffer(tensor, name, writable, shared))

        to = Placement(address, _encode_map, store)
        packed = [pack(plan, args, to) for args in ranks]
        if not config.blocks:
            return
        printed = len(self.simulation.output)
        given: Any = {
            "params": packed[0][0],
            "memory": memory,
            "grid": config.grid,
            "run": self.simulation,
            "kernel": overload_key(kernel),
            "parameter_names": tuple(p.label for p in plan.parameters),
            "caller": lambda name: _caller(plan, passed, name),
        }
        try:
            if code.is_tile(kernel):
                from dotcu.simulator.tile.launch import launch_tile  # few files have tile kernels

                if len(packed) > 1:
                    raise SimulationError(
                        f"{kernel} is a tile kernel, which the simulator does not run on peers.\n"
                        "Write what meets other GPUs as a __global__ kernel."
                    )
                launch_tile(code.tile_program(), code.symbol(kernel), **given)
                self.simulation.earlier = ()
            else:
                launch(
                    code.program(),
                    code.symbol(kernel),
                    block=config.block,
                    smem_bytes=config.smem_bytes,
                    cluster=config.cluster,
                    cooperative=config.cooperative,
                    programmatic=config.programmatic and self.arch(code).capability >= (9, 0),
                    others=[parameters for parameters, _ in packed[1:]],
                    **given,
                )
        finally:  # also after a finding, which may come late in the kernel
            for line in self.simulation.output[printed:]:  # by printf; on a GPU the driver passes it on
                sys.stdout.write(escaped(line if line.endswith("\n") else line + "\n"))
            for _, written in packed:
                count_launch_writes(written)


def simulated_device() -> SimulatedDevice:
    """Return the run of the `simulate()` block that this thread is in, or a new one."""
    from dotcu.simulator import Run

    return SimulatedDevice(simulation=active_run() or Run())


ALLOCATE = {
    getattr(torch.ops.aten, name)
    for name in ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
}
"""The operators of torch that allocate without writing."""
_PRUNE_AT = 64


Handler: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Takes a function of torch and its arguments, and returns the result of the call."""


class OperatorMode(TorchDispatchMode):
    """A dispatch mode that calls `handle`, and leaves torch._dynamo to those who compile: seconds of imports.

    torch imports it at the first operation in a mode, to keep the mode from being compiled. Until something
    else has imported it, nothing is compiled.
    """

    supports_higher_order_operators = True

    def __init__(self, handle: Handler) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._handle = handle

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def _call(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return self._handle(func, args, kwargs or {})

    __torch_dispatch__ = _call


_uncompiled = OperatorMode.__torch_dispatch__  # as torch has wrapped it


def _dispatch(mode: OperatorMode, *args: Any) -> Any:
    return _uncompiled(mode, *args) if "torch._dynamo" in sys.modules else mode._call(*args)


OperatorMode.__torch_dispatch__ = _dispatch  # type: ignore[assignment]


class FunctionMode(TorchFunctionMode):
    """A mode that calls `handle` for the functions of torch, before they reach the dispatcher."""

    def __init__(self, handle: Handler) -> None:
        super().__init__()
        self._handle = handle

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._handle(func, args, kwargs or {})


class Allocations(OperatorMode):
    """The masks of the storages that `torch.empty` allocated while this mode was active."""

    def __init__(self) -> None:
        super().__init__(self._run)
        self._masks: dict[int, tuple[StorageWeakRef, NDArray[np.uint8]]] = {}

    def _run(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        result = func(*args, **named)
        if not isinstance(func, torch._ops.OpOverload):  # a higher-order operator: its parts were not seen
            return result
        if func.overloadpacket in ALLOCATE and "out" not in named:
            if _in_memory(result):
                self._add(result)
            return result
        for position, name in _written_arguments(func):
            value = args[position] if position < len(args) else named.get(name)
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if _in_memory(tensor):
                    self._mark_written(tensor)
        return result

    def _add(self, tensor: Tensor) -> None:
        if len(self._masks) >= _PRUNE_AT:
            self._masks = {key: row for key, row in self._masks.items() if not row[0].expired()}
        storage = tensor.untyped_storage()
        reference = StorageWeakRef(storage)
        self._masks[reference.cdata] = (reference, np.zeros(storage.nbytes(), np.uint8))

    def mask(self, tensor: Tensor) -> NDArray[np.uint8] | None:
        """Return the mask of a tensor's whole storage, None where all of it counts as written."""
        if not self._masks:
            return None
        row = self._masks.get(torch_compat.storage_of(tensor))
        return row[1] if row is not None else None

    def _mark_written(self, tensor: Tensor) -> None:
        mask = self.mask(tensor)
        if mask is None or tensor.numel() == 0:
            return
        size = tensor.itemsize
        if mask.size < (tensor.storage_offset() + extent(tensor)) * size:  # it was resized since
            self._masks.pop(torch_compat.storage_of(tensor))
            return
        np.lib.stride_tricks.as_strided(
            mask[tensor.storage_offset() * size :],
            (*tensor.shape, size),
            (*(stride * size for stride in tensor.stride()), 1),
        )[...] = 1


_allocations: ContextVar[Allocations | None] = ContextVar("dotcu_allocations", default=None)

active_allocations = _allocations.get
"""Return the masks in force, None outside `tracking_allocations()`."""


@contextmanager
def tracking_allocations() -> Iterator[Allocations]:
    """Count what `torch.empty` and its like allocate as unwritten, until something writes it.

    Inside another such block the masks are shared, so what a body left unwritten stays so.

    Note:
        It sees what goes through torch's dispatcher: a write through `tensor.numpy()` does not.
    """
    known = _allocations.get()
    if known is not None and _get_current_dispatch_mode() is known:
        yield known
        return
    allocations = known if known is not None else Allocations()
    token = _allocations.set(allocations)
    try:
        with allocations:
            yield allocations
    finally:
        _allocations.reset(token)


@functools.cache
def _written_arguments(func: Any) -> tuple[tuple[int, str], ...]:
    """Return position and name of each argument that an operator writes into, by its schema."""
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _in_memory(value: Any) -> bool:
    if type(value) not in (Tensor, torch.nn.Parameter):
        return False
    return value.device.type == "cpu" and value.layout is torch.strided
