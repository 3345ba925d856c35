"""A launch: where its tensors live decides whether the GPU or the simulator runs it.

check the place -> read the configuration -> choose where -> compile if need be -> check and pack
the arguments -> check the limits -> run -> bump version counters
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dotcu.compile import Target
from dotcu.errors import ArgumentError, LaunchConfigError
from dotcu.kernel import context, cuda, ranges
from dotcu.kernel.arguments import pack, tensors
from dotcu.kernel.config import LaunchConfig
from dotcu.kernel.forked import forked_with_cuda, require_own_cuda
from dotcu.kernel.occupancy import ArchLimits, limits
from dotcu.kernel.runs import active_run, capability_of
from dotcu.kernel.staging import Shape, Stage, Stages
from dotcu.kernel.tensors import count_writes
from dotcu.kernel.tracing import require_seen
from dotcu.kernel.units import Code, Unit

if TYPE_CHECKING:
    from dotcu.kernel.recording import Launched
    from dotcu.kernel.tensor_maps import Tiled
    from dotcu.simulator import Run

DeviceLike = torch.device | str | int


@dataclass(frozen=True, kw_only=True)
class OnCuda:
    """A launch on a GPU."""

    index: int

    def __str__(self) -> str:
        return f"cuda:{self.index}"

    @property
    def key(self) -> object:
        """What tells the places apart that stages are made for."""
        return self.index

    @property
    def arch(self) -> ArchLimits:
        return limits(*cuda.capability(self.index))

    @property
    def multiprocessors(self) -> int:
        return cuda.multiprocessors(self.index)

    def code(self, unit: Unit) -> Code:
        return unit.on_gpu(self.index)

    def encode(self, tiled: Tiled, address: int) -> bytes:
        from dotcu.kernel import encoding

        return encoding.encode(tiled, address, self.index)


@dataclass(frozen=True, kw_only=True)
class InSimulator:
    """A launch in the simulator."""

    run: Run

    def __str__(self) -> str:
        return "simulator"

    @property
    def key(self) -> object:
        """What tells the places apart that stages are made for."""
        return self.run.arch

    @property
    def arch(self) -> ArchLimits:
        return limits(*capability_of(self.run.arch))

    @property
    def multiprocessors(self) -> int:
        return self.arch.multiprocessors

    def code(self, unit: Unit) -> Code:
        return unit.code(Target.parse(self.run.arch).virtual, simulated=True)


Where = OnCuda | InSimulator


def where(kernel: str, found: Sequence[Tensor], device: DeviceLike | None) -> Where:
    """Where a launch runs: with its tensors, else on `device`, else where torch would.

    Raises:
        ArgumentError: The tensors are elsewhere than `device` says.
        LaunchConfigError: `device` is neither a GPU of this machine nor the CPU.
        LaunchError: It would be a GPU, in a process that was forked after CUDA was up.
    """
    asked = _read_device(kernel, device) if device is not None else None
    if not found and asked is None and active_run() is None:
        require_own_cuda(f"Launching {kernel}")
    if not found:
        return default_place() if asked is None else _at(asked)
    here = found[0].device
    if asked is not None and asked != here:
        raise ArgumentError(
            f"{kernel}: device={str(asked)!r} was asked for, and its tensors are on {here}.\n"
            f'A launch runs where its tensors are: leave device out, or pass t.to("{asked}").'
        )
    return _at(here)


def default_place() -> Where:
    """Where a kernel without tensors runs: a `simulate()` block, the current GPU, the simulator."""
    run = active_run()
    if run is None and cuda.available():
        return OnCuda(index=torch.cuda.current_device())
    return InSimulator(run=run if run is not None else _default_run())


def _default_run() -> Run:
    from dotcu.simulator import Run

    return Run()


def _at(device: torch.device) -> Where:
    if device.type == "cuda":
        if forked_with_cuda():
            require_own_cuda(f"Launching on {device}")
        return OnCuda(index=_index(device))
    run = active_run()
    return InSimulator(run=run if run is not None else _default_run())


def _index(device: torch.device) -> int:
    index: int | None = device.index
    return torch.cuda.current_device() if index is None else index


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
    return torch.device("cuda", _index(asked))


def launch(
    unit: Unit,
    name: str,
    stages: Stages,
    args: Sequence[Any],
    *,
    grid: Any,
    shape: Shape,
    device: DeviceLike | None,
) -> None:
    """Check a launch and run it."""
    scope = context.current()
    recorder = scope.recorder
    given = (args, grid, shape[:3])
    if recorder is not None:
        recorder.launching()
        args, grid, plain = recorder.plain(given)
        shape = (*plain, *shape[3:])
    found = tensors(args)
    if scope.place is context.Place.OUTSIDE:
        require_seen(name, found)
    config = stages.config(name, grid, shape)
    place = where(name, found, device)
    stage = stages.stage(unit, name, place, config, shape, args)
    announce(unit, name, config)
    runs = recorder is None or recorder.runs
    if runs:
        _run(place, name, stage, args, config)
    if recorder is not None:
        recorder.launched(_launched(name, unit, place, stage, config, given))
    if not (runs and config.blocks):
        return
    if recorder is None and isinstance(place, OnCuda):
        stages.keep_native(name, place, config, stage)
    for watcher in context.watched():
        watcher.append(_seen(name, place, stage.code))


def announce(unit: Unit, name: str, config: LaunchConfig | None) -> None:
    """Tell those who listen of a launch that happens next or is skipped, or of a kernel asked after."""
    for listener in context.listeners():
        listener(context.Intended(kernel=name, unit=unit, config=config))


def launch_unseen(*args: Any, **kwargs: Any) -> None:
    """Launch in a body that is followed: what a launch asks of its tensors, the body did not ask."""
    with torch._C.DisableTorchFunction():
        launch(*args, **kwargs)


def _launched(
    name: str,
    unit: Unit,
    place: Where,
    stage: Stage,
    config: LaunchConfig,
    given: tuple[Any, Any, tuple[Any, ...]],
) -> Launched:
    from dotcu.kernel.recording import Launched

    args, grid, shape = given
    return Launched(
        kernel=name,
        unit=unit,
        plan=stage.plan,
        args=args,
        grid=grid,
        shape=shape,
        config=cuda.supported(config, place.arch.capability),
        function=_function(place, stage.code, name),
        most_blocks=stage.most_blocks,
    )


def _function(place: Where, code: Code, name: str) -> int:
    return int(code.library().kernel(code.symbol(name), place.index)) if isinstance(place, OnCuda) else 0


def _seen(name: str, place: Where, code: Code) -> context.Launch:
    return context.Launch(
        kernel=name,
        where=str(place),
        digest=code.object.build_digest,
        compile_s=code.object.seconds,
        cached=code.object.cached,
        files=code.object.files,
    )


def _run(place: Where, name: str, stage: Stage, args: Sequence[Any], config: LaunchConfig) -> None:
    """Run, in a range of the kernel's name for profilers that want one."""
    if ranges.wanted():
        with ranges.named(name):
            _run_packed(place, name, stage, args, config)
    else:
        _run_packed(place, name, stage, args, config)


def _run_packed(place: Where, name: str, stage: Stage, args: Sequence[Any], config: LaunchConfig) -> None:
    """Pack and run, and count the writes; those too that were made before a finding stopped it."""
    code, plan = stage.code, stage.plan
    if isinstance(place, OnCuda):
        packed = pack(plan, args, _data_ptr, place.encode)
        if config.blocks:
            cuda.launch(code.library(), code.symbol(name), place.index, config, packed.parameters, name)
            count_writes(packed.written)
        return
    from dotcu.kernel import simulated

    packed, memory = simulated.pack_simulated(plan, args)
    if config.blocks:
        try:
            simulated.launch(code, name, packed, memory, config, place.run, name)
        finally:
            count_writes(packed.written)


def _data_ptr(tensor: Tensor, name: str, writable: bool) -> int:
    return tensor.data_ptr()
