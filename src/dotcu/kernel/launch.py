"""Launches and their plans: the device of a launch's tensors decides whether a GPU or the simulator runs it.

find the tensors -> refuse what a trace would lose -> check the configuration -> choose the device
-> find the launch plan (compile if needed, check the limits) -> pack the arguments and run
-> bump version counters

A launch plan has what does not change from call to call: it follows from kernel, device, block, shared
memory, cluster and flags. The first such launch makes it. Launches that find one are left with the grid and
the arguments. The native part keeps the plans of GPUs too, each for a range of shared memory, and launches
without Python. `Kernel.__call__` asks it first; what it leaves comes to `launch`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakSet

import torch
from torch import Tensor

from dotcu import settings
from dotcu.errors import ArgumentError, LaunchConfigError, ToolchainError
from dotcu.kernel import cuda, native
from dotcu.kernel.arguments.memory import count_writes
from dotcu.kernel.arguments.pack import (
    MapPacker,
    PackingPlan,
    Placement,
    PointerPacker,
    RecordPacker,
    TensorPacker,
    members_of,
    pack,
    require_one_device,
    tensors_in,
)
from dotcu.kernel.arguments.values import BoolPacker, FloatPacker, IntPacker
from dotcu.kernel.compiled import CompilationUnit, CompiledUnit
from dotcu.kernel.config import (
    ArchLimits,
    BlockConfig,
    KernelNeeds,
    LaunchConfig,
    limits,
    read_config,
    read_grid,
    require_fit,
    require_grid,
    resident_blocks,
)
from dotcu.kernel.declarations import overload_key
from dotcu.kernel.faults import LaunchLabel, require_own_cuda
from dotcu.kernel.launch_policy import (
    LaunchPolicy,
    LaunchRecord,
    count_launch_writes,
    current_scope,
    launch_watchers,
    require_seen,
    subscribed,
)

if TYPE_CHECKING:
    from dotcu.kernel.simulation import SimulatedDevice

DeviceLike = torch.device | str | int


@dataclass(frozen=True, kw_only=True)
class GpuDevice:
    """A GPU to launch on."""

    index: int

    def __str__(self) -> str:
        return f"cuda:{self.index}"

    @property
    def key(self) -> object:  # the devices that plans are made for differ in it
        return self.index

    def arch(self, code: CompiledUnit) -> ArchLimits:
        count = torch.cuda.get_device_properties(self.index).multi_processor_count
        return replace(limits(*cuda.capability(self.index)), multiprocessors=count)

    def code(self, unit: CompilationUnit) -> CompiledUnit:
        return unit.on_gpu(self.index)

    def run(
        self, code: CompiledUnit, kernel: str, plan: PackingPlan, args: Sequence[Any], config: LaunchConfig
    ) -> None:
        copies: list[Tensor] = []  # what the launch reads; freed after it, in the order of the stream

        def store(data: bytes, name: str, writable: bool) -> int:
            copies.append(cuda.device_copy(data, self.index))
            return copies[-1].data_ptr()

        parameters, written = pack(
            plan,
            args,
            Placement(
                addresses=lambda tensor, name, writable: tensor.data_ptr(),
                encode=lambda tiled, address: cuda.encode_tensor_map(tiled, address, self.index),
                store=store,
            ),
        )
        if config.blocks:  # on torch's current stream
            cuda.launch(code.library(kernel), code.symbol(kernel), self.index, config, parameters, kernel)
            count_launch_writes(written)


LaunchDevice: TypeAlias = "GpuDevice | SimulatedDevice"


def _launch_device(kernel: str, tensors: Sequence[Tensor], device: DeviceLike | None) -> LaunchDevice:
    """Choose the device of a launch: that of its first tensor, else `device`, else torch's current one."""
    asked = _read_device(kernel, device) if device is not None else None
    if not tensors:
        if asked is not None:
            return _device(asked)
        return default_device(kernel)
    here = tensors[0].device
    if asked is not None and asked != here:
        raise ArgumentError(
            f"{kernel}: device={str(asked)!r} was requested, and its tensors are on {here}.\n"
            f'A launch runs where its tensors are: leave device out, or pass t.to("{asked}").'
        )
    return _device(here)


def default_device(launched: str = "") -> LaunchDevice:
    """Return the device of a kernel without tensors: a `simulate()` block, the current GPU, the simulator."""
    from dotcu.kernel.simulated_memory import active_run
    from dotcu.kernel.simulation import simulated_device

    if active_run() is None:
        if launched:
            require_own_cuda(f"Launching {launched}")
        if cuda.available():
            return GpuDevice(index=torch.cuda.current_device())
    return simulated_device()


def _device(device: torch.device) -> LaunchDevice:
    if device.type == "cuda":
        require_own_cuda(f"Launching on {device}")
        return GpuDevice(index=device.index)
    from dotcu.kernel.simulation import simulated_device

    return simulated_device()


def _read_device(kernel: str, device: DeviceLike) -> torch.device:
    try:
        is_index = isinstance(device, int) and not isinstance(device, bool)
        asked = torch.device(f"cuda:{device}" if is_index else device)
    except (RuntimeError, TypeError) as error:
        raise LaunchConfigError(f'{kernel}: got device={device!r}; pass "cuda:0" or "cpu".') from error
    if asked.type == "cpu":
        return torch.device("cpu")
    require_own_cuda(f"Launching {kernel} on {asked}")
    if asked.type != "cuda" or not cuda.available() or (asked.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count() if cuda.available() else 0
        raise LaunchConfigError(
            f"{kernel}: got device={str(asked)!r}; torch sees {count} CUDA devices here.\n"
            'Pass device="cpu" to simulate.'
        )
    index: int | None = asked.index
    return torch.device("cuda", torch.cuda.current_device() if index is None else index)


# Launch plans.


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """A launch that was checked except for its grid and its arguments.

    Attributes:
        packing: How the arguments are packed.
        most_blocks: The largest cooperative grid; 0 if there is no such limit.
        settings: Those in force when it was made.
    """

    code: CompiledUnit
    packing: PackingPlan
    needs: KernelNeeds
    arch: ArchLimits
    most_blocks: int
    settings: settings.Settings


MAX_PLANS = 1024


class LaunchPlans:
    """The launch plans of one kernel.

    Attributes:
        quick: Launch with (arguments, grid, block, smem_bytes, cluster, cooperative, programmatic, device);
            False where that is left to kernel/launch.py.
    """

    def __init__(self) -> None:
        self.quick: Callable[..., bool] = lambda *launch: False
        self._launcher: Any = None
        self._is_in_python = False
        self._packing: PackingPlan | None = None
        self._configs: dict[BlockConfig, LaunchConfig] = {}
        self._plans: dict[tuple[object, BlockConfig], LaunchPlan] = {}
        self._refused_by: set[bool] = set()
        _all.add(self)

    def config(self, kernel: str, grid: Any, shape: BlockConfig) -> LaunchConfig:
        """Check a configuration within the limits that every GPU has."""
        known = self._configs.get(shape) if _is_plain(shape) else None
        if known is not None:
            return read_grid(kernel, grid, known)
        config = read_config(kernel, grid, *shape)
        if _is_plain(shape):
            _keep(self._configs, shape, config)
        return config

    def plan(
        self, unit: CompilationUnit, kernel: str, on: LaunchDevice, config: LaunchConfig, shape: BlockConfig
    ) -> LaunchPlan:
        """Return the plan of a launch, whose grid it fits."""
        found = self._plans.get((on.key, shape)) if _is_plain(shape) else None
        if found is not None:
            require_grid(kernel, config, found.needs, found.arch)
            return found
        code = on.code(unit)
        code.claim(kernel)
        needs, arch = code.needs(kernel), on.arch(code)
        require_fit(kernel, config, needs, arch)
        resident = 0
        if config.cooperative and needs.registers:
            resident = resident_blocks(needs, config.threads, config.smem_bytes, arch).blocks
        plan = LaunchPlan(
            code=code,
            packing=code.plan(kernel),
            needs=needs,
            arch=arch,
            most_blocks=resident * arch.multiprocessors,
            settings=settings.current(),
        )
        if _is_plain(shape):
            _keep(self._plans, (on.key, shape), plan)
        return plan

    def keep(self, kernel: str, index: int, config: LaunchConfig, plan: LaunchPlan) -> None:
        """Prepare launches like one that has just happened, in native code or else in Python, if possible."""
        in_python = bool(native.prepare())
        if in_python in self._refused_by or plan.settings != settings.current():
            return  # what is compiled may depend on them
        if self._launcher is None or self._is_in_python is not in_python:
            self._launcher, self._packing = _launcher(plan.packing, in_python), plan.packing
            self._is_in_python = in_python
        if self._launcher is None or self._packing != plan.packing:
            self._refused_by.add(in_python)
            return
        self._launcher.add(
            (config.block, config.cluster or (0, 0, 0), config.cooperative, config.programmatic, index),
            _smem_range(config, plan.needs, plan.arch),
            int(plan.code.library(kernel).kernel(plan.code.symbol(kernel), index)),
            cuda.primary_context(index),
            plan.most_blocks,
            config.cluster or plan.needs.cluster or (1, 1, 1),
            cuda.supported(config, plan.arch.capability).programmatic,
            LaunchLabel("", kernel, config, index),
        )
        self.quick = self._launcher.launch

    def forget(self) -> None:
        """Prepare every launch again: the settings have changed, and with them what is compiled."""
        self._plans.clear()
        if self._launcher is not None:
            self._launcher.forget()


def _smem_range(config: LaunchConfig, needs: KernelNeeds, arch: ArchLimits) -> tuple[int, int]:
    """Return the least and the most dynamic shared memory, in bytes, that a plan holds for.

    Only the limit of a cooperative grid depends on the size; for another launch every size up to the
    architecture's limit is as good as the one that was checked.
    """
    if config.cooperative:
        return config.smem_bytes, config.smem_bytes
    return 0, arch.smem_block_bytes - needs.static_smem_bytes


_all: WeakSet[LaunchPlans] = WeakSet()


def _forget_all(before: settings.Settings, after: settings.Settings) -> None:
    if before.lasting() != after.lasting():
        for plans in tuple(_all):
            plans.forget()


settings.watch(_forget_all)


def _keep(rows: dict[Any, Any], key: object, value: object) -> None:
    """Keep a row; clear the rest where a new shape for each call would make it grow without end."""
    if len(rows) >= MAX_PLANS:
        rows.clear()
    rows[key] = value


def _is_plain(shape: BlockConfig) -> bool:
    """Return whether a shape is made of plain ints, which compare as they are checked."""
    block, smem_bytes, cluster, _, _ = shape
    return _are_ints(block) and type(smem_bytes) is int and (cluster is None or _are_ints(cluster))


def _are_ints(value: Any) -> bool:
    return type(value) is int or (type(value) is tuple and all(type(size) is int for size in value))


# The kinds of parameters and their flags in native/launch.c.
_POINTER, _VIEW, _INTEGER, _BOOLEAN, _FLOATING, _MAP, _BYTES = range(7)
_WRITTEN, _SIGNED, _EITHER, _AT_LEAST, _AT_MOST = 1, 2, 4, 8, 16
_ROW = struct.Struct("<8i")
_ANY_DTYPE = (-1, -1)


def _launcher(plan: PackingPlan, in_python: bool = False) -> Any:
    """Make the launcher of a kernel, in native code or in Python; None if it does not take its parameters."""
    if in_python:
        from dotcu.kernel import python_launcher  # which native code does without

        try:
            return python_launcher.Launcher(plan, _fail, python_launcher.gpu_driver())
        except (ValueError, ToolchainError):
            return None
    if any(isinstance(packer, TensorPacker) and packer.index for packer in plan.packers):
        return None
    if any(isinstance(packer, PointerPacker) and not packer.promised.is_plain for packer in plan.packers):
        return None
    rows, packs, offset = [], [], 0
    for parameter, packer in zip(plan.parameters, plan.packers, strict=True):
        rows.append(_row(packer, offset, parameter.size))
        own: Any = {MapPacker: _pack_map, RecordPacker: _pack_record}.get(type(packer))
        packs.append(own(packer) if own else packer.pack)
        offset += -(-parameter.size // 16) * 16
    try:
        return native.library().Launcher(b"".join(rows), tuple(packs), offset, _fail, count_writes)
    except ValueError:
        return None


def _row(packer: Any, offset: int, size: int) -> bytes:
    """A parameter: kind, offset, size, two dtypes, alignment, rank, flags."""
    kind, dtypes, alignment, rank, flags = _BYTES, _ANY_DTYPE, 1, 0, 0
    if isinstance(packer, PointerPacker):
        kind, flags, alignment = _POINTER, _WRITTEN * packer.writes, packer.alignment
        if packer.element is not None:
            dtypes = _codes(packer.element.dtypes)
    elif isinstance(packer, TensorPacker):
        kind, dtypes, rank = _VIEW, _codes(packer.element.dtypes), packer.rank
        flags = _WRITTEN * packer.writes
    elif isinstance(packer, MapPacker):
        kind, flags = _MAP, _WRITTEN * packer.writes
    elif isinstance(packer, IntPacker) and packer.size <= 8:
        assumed = _assumed(packer)
        if assumed is not None:
            alignment, dtypes, flags = assumed
            kind, flags = _INTEGER, flags | _SIGNED * packer.signed | _EITHER * packer.either
    elif isinstance(packer, BoolPacker):
        kind = _BOOLEAN
    elif isinstance(packer, FloatPacker) and packer.code in ("<f", "<d"):
        kind = _FLOATING
    return _ROW.pack(kind, offset, size, *dtypes, alignment, rank, flags)


def _assumed(packer: IntPacker) -> tuple[int, tuple[int, int], int] | None:
    """Return divisor, bounds and flags of what a kernel assumes; None where Python has to look at it."""
    promised, most = packer.promised, 2 ** (8 * packer.size - 1) - 1
    low, high = promised.low, promised.high
    if not packer.signed and low is not None:  # the kernel takes a larger one for a negative
        high = most if high is None else min(high, most)
    flags = _AT_LEAST * (low is not None) | _AT_MOST * (high is not None and packer.size < 8)
    bounds = (low or 0, high if high is not None and flags & _AT_MOST else 0)
    if not promised.is_plain or any(not -(2**31) <= number < 2**31 for number in (promised.divisor, *bounds)):
        return None
    return promised.divisor, bounds, flags


def _codes(dtypes: tuple[torch.dtype, ...]) -> tuple[int, int]:
    first, *others = map(native.dtype_code, dtypes)
    return first, others[0] if others else first


def _pack_map(packer: MapPacker) -> Callable[..., bytes]:
    """Return the packing of a tensor map for native code: of (value, GPU's index)."""
    return lambda value, index=0: packer.pack(
        value,
        lambda tensor, label, writable: tensor.data_ptr(),
        lambda tiled, address: cuda.encode_tensor_map(tiled, address, index),
    )


def _pack_record(packer: RecordPacker) -> Callable[[Any], bytes]:
    """Return the packing of a struct's bytes for native code; values for its members are left to Python."""

    def pack(value: Any) -> bytes:
        if members_of(value) is not None:
            raise TypeError
        return packer.pack(value)

    return pack


def _fail(label: LaunchLabel, grid: tuple[int, int, int], smem_bytes: int, status: int) -> None:
    """Raise the driver's refusal of a launch."""
    launched = label.at(grid, smem_bytes)._replace(operator=current_scope().operator)
    cuda.fail(status, f"Launching {launched}")


# The launch.


def launch(
    unit: CompilationUnit,
    kernel: str,
    plans: LaunchPlans,
    args: Sequence[Any],
    *,
    grid: Any,
    shape: BlockConfig,
    device: DeviceLike | None,
) -> None:
    """Check a launch and run it.

    Args:
        unit, kernel, plans: The unit that the kernel is compiled in, its name, and its plans so far.
        args, grid, shape, device: As the caller passed them.
    """
    tensors, shown = tensors_in(args), overload_key(kernel)
    if current_scope().policy is LaunchPolicy.OUTSIDE:
        require_seen(shown, tensors)
    config = plans.config(shown, grid, shape)
    on = _launch_device(shown, tensors, device)
    plan = plans.plan(unit, kernel, on, config, shape)
    code, packing = plan.code, plan.packing
    require_one_device(packing, args, tensors)
    announce(unit, kernel, config)
    with cuda.kernel_range(kernel) if cuda.ranges_wanted() else nullcontext():
        on.run(code, kernel, packing, args, config)
    if not config.blocks:
        return
    if isinstance(on, GpuDevice):
        plans.keep(kernel, on.index, config, plan)
    for watcher in launch_watchers():
        watcher.append(
            LaunchRecord(
                kernel=kernel,
                where=str(on),
                digest=code.object.build_digest,
                compile_s=code.object.seconds,
                cached=code.object.cached,
                files=code.object.files,
            )
        )


# Listeners, which see each request for a kernel.


@dataclass(frozen=True, kw_only=True)
class KernelRequest:
    """A launch that is about to happen, or that is skipped where only shapes are asked for.

    Attributes:
        kernel: The kernel with its template arguments.
        unit: Where its code comes from.
        config: None if its attributes or its occupancy are asked for, which needs its code as well.
    """

    kernel: str
    unit: CompilationUnit
    config: LaunchConfig | None


_listeners: ContextVar[tuple[Callable[[KernelRequest], object], ...]] = ContextVar(
    "dotcu_listeners", default=()
)

kernel_listeners = _listeners.get
"""Return the functions that are called with each request for a kernel."""


def listening_for_kernels(listener: Callable[[KernelRequest], object]) -> AbstractContextManager[None]:
    """Call a function with each of this thread's requests for a kernel, until the block ends."""
    return subscribed(_listeners, listener)


def announce(unit: CompilationUnit, kernel: str, config: LaunchConfig | None) -> None:
    """Call the listeners for a launch that happens next or is skipped, or a kernel that is asked about.

    Args:
        config: None if its attributes or its occupancy are asked for.
    """
    for listener in kernel_listeners():
        listener(KernelRequest(kernel=kernel, unit=unit, config=config))
