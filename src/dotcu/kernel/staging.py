"""Staged launches: what does not change from call to call is checked and prepared once, and kept.

A `Stage` follows from kernel, device, block, shared memory, cluster and flags. The first such launch
makes it. Launches that find one are left with the grid and the arguments. Where the native part can be
used, it keeps the stages of GPUs too, and then launches without Python.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch

from dotcu import settings
from dotcu.kernel import arguments, cuda, native
from dotcu.kernel.arguments import MapPacker, PointerPacker, TensorPacker
from dotcu.kernel.config import (
    KernelNeeds,
    LaunchConfig,
    most_blocks,
    read_config,
    read_grid,
    require_fit,
    require_grid,
)
from dotcu.kernel.occupancy import ArchLimits
from dotcu.kernel.packers import BoolPacker, FloatPacker, IntPacker
from dotcu.kernel.recent import Shown

if TYPE_CHECKING:
    from dotcu.kernel.launch import OnCuda, Where
    from dotcu.kernel.units import Code, Unit


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A launch that was checked but for its grid and its arguments.

    Attributes:
        code: What runs.
        plan: How the arguments are packed.
        most_blocks: The largest cooperative grid; 0 where there is no such limit.
        settings: In force when it was made.
    """

    code: Code
    plan: arguments.Plan
    needs: KernelNeeds
    arch: ArchLimits
    multiprocessors: int
    most_blocks: int
    settings: settings.Settings


MOST_STAGES = 1024

Shape = tuple[Any, Any, Any, bool, bool]
"""Block, dynamic shared memory, cluster, cooperative, programmatic."""


class Stages:
    """The stages of one kernel.

    Attributes:
        native: Launch with (arguments, grid, block, smem_bytes, cluster, cooperative, programmatic, device);
            False where that is left to Python.
    """

    def __init__(self) -> None:
        self.native: Callable[..., bool] = _never
        self._launcher: Any = None
        self._native_plan: arguments.Plan | None = None
        self._configs: dict[Shape, LaunchConfig] = {}
        self._stages: dict[tuple[object, Shape], Stage] = {}
        self._is_refused = False
        _all.add(self)

    def config(self, kernel: str, grid: Any, shape: Shape) -> LaunchConfig:
        """Check a configuration within the limits that every GPU has.

        Raises:
            LaunchConfigError: A size is no whole number, negative, zero (block, cluster) or too large.
        """
        known = self._configs.get(shape) if _is_plain(shape) else None
        if known is not None:
            return read_grid(kernel, grid, known)
        block, smem_bytes, cluster, cooperative, programmatic = shape
        config = read_config(
            kernel,
            grid=grid,
            block=block,
            smem_bytes=smem_bytes,
            cluster=cluster,
            cooperative=cooperative,
            programmatic=programmatic,
        )
        if _is_plain(shape):
            _bound(self._configs)
            self._configs[shape] = config
        return config

    def stage(
        self, unit: Unit, kernel: str, place: Where, config: LaunchConfig, shape: Shape, args: Any
    ) -> Stage:
        """Return the stage of a launch, whose grid it fits.

        Raises:
            ArgumentError: Tensors are on several devices.
            LaunchConfigError: The kernel, or the architecture, cannot run the configuration.
        """
        key = (place.key, shape)
        found = self._stages.get(key) if _is_plain(shape) else None
        if found is not None:
            arguments.require_device(found.plan, args)
            require_grid(kernel, config, found.needs, found.arch, multiprocessors=found.multiprocessors)
            return found
        code = place.code(unit)
        code.claim(kernel)
        plan, needs, arch, count = code.plan(kernel), code.needs(kernel), place.arch, place.multiprocessors
        arguments.require_device(plan, args)
        require_fit(kernel, config, needs, arch, multiprocessors=count)
        made = Stage(
            code=code,
            plan=plan,
            needs=needs,
            arch=arch,
            multiprocessors=count,
            most_blocks=most_blocks(config, needs, arch, multiprocessors=count),
            settings=settings.current(),
        )
        if _is_plain(shape):
            _bound(self._stages)
            self._stages[key] = made
        return made

    def keep_native(self, kernel: str, place: OnCuda, config: LaunchConfig, stage: Stage) -> None:
        """Let native code take launches like one that has just been made, if it can."""
        if self._is_refused or native.prepare(torch.device("cuda", place.index)):
            return
        if stage.settings is not settings.current():
            return  # what is compiled may depend on them
        if self._launcher is None:
            self._launcher = _launcher(stage.plan)
            self._native_plan = stage.plan
        if self._launcher is None or self._native_plan != stage.plan:
            self._is_refused = True
            return
        function = stage.code.library().kernel(stage.code.symbol(kernel), place.index)
        own = config.cluster or stage.needs.cluster or (1, 1, 1)
        made = cuda.supported(config, stage.arch.capability)
        self._launcher.stage(
            (
                config.block,
                config.smem_bytes,
                config.cluster or (0, 0, 0),
                config.cooperative,
                config.programmatic,
                place.index,
            ),
            int(function),
            cuda.primary_context(place.index),
            stage.most_blocks,
            own,
            config.cluster or (0, 0, 0),
            made.cooperative,
            made.programmatic,
            Shown(kernel, config, place.index),
        )
        self.native = self._launcher.launch

    def forget(self) -> None:
        """Prepare every launch anew: the settings have changed, and with them what is compiled."""
        self._stages.clear()
        if self._launcher is not None:
            self._launcher.forget()


_all: WeakSet[Stages] = WeakSet()


_ASKED_AT_EACH_CALL = ("simulate", "replay", "check_replay", "native", "launch_blocking", "debug")


def _forget_all(before: settings.Settings, after: settings.Settings) -> None:
    asked = {name: getattr(before, name) for name in _ASKED_AT_EACH_CALL}
    if replace(after, **asked) != before:
        for stages in tuple(_all):
            stages.forget()


settings.watch(_forget_all)


def _bound(kept: dict[Any, Any]) -> None:
    """Begin anew where a shape of its own for each call would grow without end."""
    if len(kept) >= MOST_STAGES:
        kept.clear()


def _never(*launch: Any) -> bool:
    return False


def _is_plain(shape: Shape) -> bool:
    """Return whether a shape is made of plain ints, which compare as they are checked."""
    block, smem_bytes, cluster, _, _ = shape
    return _are_ints(block) and type(smem_bytes) is int and (cluster is None or _are_ints(cluster))


def _are_ints(value: Any) -> bool:
    return type(value) is int or (type(value) is tuple and all(type(size) is int for size in value))


# The kinds of parameters and their flags in native/launch.c.
_POINTER, _VIEW, _INTEGER, _BOOLEAN, _FLOATING, _MAP, _BYTES = range(7)
_WRITTEN, _SIGNED, _EITHER = 1, 2, 4
_ROW = struct.Struct("<8i")
_ANY_DTYPE = (-1, -1)


def _launcher(plan: arguments.Plan) -> Any:
    """Make the native launcher of a kernel; None where its parameters are too large for it."""
    rows, packs, offset = [], [], 0
    for parameter, packer in zip(plan.signature.parameters, plan.packers, strict=True):
        rows.append(_row(packer, offset, parameter.size))
        packs.append(_pack_map(packer) if isinstance(packer, MapPacker) else packer.pack)
        offset += -(-parameter.size // 16) * 16
    try:
        return native.launcher(b"".join(rows), tuple(packs), offset, _fail)
    except ValueError:
        return None


def _row(packer: Any, offset: int, size: int) -> bytes:
    """A parameter: kind, offset, size, two dtypes, alignment, rank, flags."""
    kind, dtypes, alignment, rank, flags = _BYTES, _ANY_DTYPE, 1, 0, 0
    if isinstance(packer, PointerPacker):
        kind, flags = _POINTER, 0 if packer.const else _WRITTEN
        if packer.element is not None:
            dtypes, alignment = _codes(packer.element.dtypes), packer.element.alignment
    elif isinstance(packer, TensorPacker):
        kind, dtypes, rank = _VIEW, _codes(packer.element.dtypes), packer.rank
        flags = 0 if packer.const else _WRITTEN
    elif isinstance(packer, MapPacker):
        kind, flags = _MAP, _WRITTEN if packer.stored else 0
    elif isinstance(packer, IntPacker) and packer.size <= 8:
        kind, flags = _INTEGER, _SIGNED * packer.signed | _EITHER * packer.either
    elif isinstance(packer, BoolPacker):
        kind = _BOOLEAN
    elif isinstance(packer, FloatPacker) and packer.code in ("<f", "<d"):
        kind = _FLOATING
    return _ROW.pack(kind, offset, size, *dtypes, alignment, rank, flags)


def _codes(dtypes: tuple[torch.dtype, ...]) -> tuple[int, int]:
    first, *others = (native.code(dtype) for dtype in dtypes)
    return first, others[0] if others else first


def _pack_map(packer: MapPacker) -> Callable[..., bytes]:
    from dotcu.kernel import encoding

    def pack(value: Any, index: int = 0) -> bytes:
        return packer.pack(
            value,
            lambda tensor, label, writable: tensor.data_ptr(),
            lambda tiled, address: encoding.encode(tiled, address, index),
        )

    return pack


def _fail(shown: Shown, grid: tuple[int, int, int], status: int) -> None:
    """Raise the driver's refusal of a launch."""
    config = replace(shown.config, grid=grid)
    cuda.fail(status, f"Launching {shown.kernel} on cuda:{shown.device} with {config}")
