"""A launch in Python: the device of its tensors decides whether a GPU or the simulator runs it.

find the tensors -> refuse what a trace would lose -> check the configuration -> choose the device
-> find the stage (compile if needed, check the limits) -> pack the arguments and run -> bump version counters

`Kernel.__call__` asks native code first (kernel/staging.py); what that leaves comes here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dotcu.errors import ArgumentError, LaunchConfigError
from dotcu.kernel.arguments.pack import (
    PackingPlan,
    Placement,
    pack,
    require_one_device,
    tensors_in,
)
from dotcu.kernel.config import ArchLimits, LaunchConfig, limits
from dotcu.kernel.declarations import overload_key
from dotcu.kernel.driver import cuda
from dotcu.kernel.driver.fork import require_own_cuda
from dotcu.kernel.scope import (
    KernelRequest,
    LaunchPolicy,
    LaunchRecord,
    count_launch_writes,
    current_scope,
    kernel_listeners,
    launch_watchers,
    require_seen,
)
from dotcu.kernel.simulation import SimulatedDevice, active_run, simulated_device
from dotcu.kernel.staging import Shape, Stages

if TYPE_CHECKING:
    from dotcu.kernel.compiled import CompilationUnit, CompiledUnit

DeviceLike = torch.device | str | int


@dataclass(frozen=True, kw_only=True)
class GpuDevice:
    """A GPU to launch on."""

    index: int

    def __str__(self) -> str:
        return f"cuda:{self.index}"

    @property
    def key(self) -> object:  # the devices that stages are made for differ in it
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


LaunchDevice = GpuDevice | SimulatedDevice


def _launch_device(kernel: str, tensors: Sequence[Tensor], device: DeviceLike | None) -> LaunchDevice:
    """Choose the device of a launch: that of its first tensor, else `device`, else torch's current one."""
    asked = _read_device(kernel, device) if device is not None else None
    if not tensors:
        if asked is not None:
            return _device(asked)
        if active_run() is None:
            require_own_cuda(f"Launching {kernel}")
        return default_device()
    here = tensors[0].device
    if asked is not None and asked != here:
        raise ArgumentError(
            f"{kernel}: device={str(asked)!r} was requested, and its tensors are on {here}.\n"
            f'A launch runs where its tensors are: leave device out, or pass t.to("{asked}").'
        )
    return _device(here)


def default_device() -> LaunchDevice:
    """Return the device of a kernel without tensors: a `simulate()` block, the current GPU, the simulator."""
    if active_run() is None and cuda.available():
        return GpuDevice(index=torch.cuda.current_device())
    return simulated_device()


def _device(device: torch.device) -> LaunchDevice:
    if device.type == "cuda":
        require_own_cuda(f"Launching on {device}")
        return GpuDevice(index=device.index)
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


def launch(
    unit: CompilationUnit,
    kernel: str,
    stages: Stages,
    args: Sequence[Any],
    *,
    grid: Any,
    shape: Shape,
    device: DeviceLike | None,
) -> None:
    """Check a launch and run it.

    Args:
        unit, kernel, stages: The unit that the kernel is compiled in, its name, and its stages so far.
        args, grid, shape, device: As the caller passed them.
    """
    tensors, shown = tensors_in(args), overload_key(kernel)
    if current_scope().policy is LaunchPolicy.OUTSIDE:
        require_seen(shown, tensors)
    config = stages.config(shown, grid, shape)
    on = _launch_device(shown, tensors, device)
    stage = stages.stage(unit, kernel, on, config, shape)
    code, plan = stage.code, stage.plan
    require_one_device(plan, args, tensors)
    announce(unit, kernel, config)
    with cuda.kernel_range(kernel) if cuda.ranges_wanted() else nullcontext():
        on.run(code, kernel, plan, args, config)
    if not config.blocks:
        return
    if isinstance(on, GpuDevice):
        stages.keep(kernel, on.index, config, stage)
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


def announce(unit: CompilationUnit, kernel: str, config: LaunchConfig | None) -> None:
    """Call the listeners for a launch that happens next or is skipped, or a kernel that is asked about.

    Args:
        unit: The unit that the kernel is compiled in.
        kernel: Its name.
        config: None if its attributes or its occupancy are asked for.
    """
    for listener in kernel_listeners():
        listener(KernelRequest(kernel=kernel, unit=unit, config=config))
