"""Staged launches: what does not change from call to call is checked and prepared once, and kept.

A `Stage` follows from kernel, device, block, shared memory, cluster and flags. The first such launch makes
it. Launches that find one are left with the grid and the arguments. The native part keeps the stages of GPUs
too, each for a range of shared memory, and launches without Python.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch

from dotcu import settings
from dotcu.errors import ToolchainError
from dotcu.kernel import native
from dotcu.kernel.arguments.pack import (
    MapPacker,
    PackingPlan,
    PointerPacker,
    RecordPacker,
    TensorPacker,
    count_writes,
    members_of,
)
from dotcu.kernel.arguments.values import BoolPacker, FloatPacker, IntPacker
from dotcu.kernel.config import (
    ArchLimits,
    KernelNeeds,
    LaunchConfig,
    read_config,
    read_grid,
    require_fit,
    require_grid,
    resident_blocks,
)
from dotcu.kernel.driver import cuda
from dotcu.kernel.driver.errors import LaunchLabel
from dotcu.kernel.scope import current_scope

if TYPE_CHECKING:
    from dotcu.kernel.compiled import CompilationUnit, CompiledUnit
    from dotcu.kernel.launch import LaunchDevice


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A launch that was checked except for its grid and its arguments.

    Attributes:
        plan: How the arguments are packed.
        most_blocks: The largest cooperative grid; 0 if there is no such limit.
        settings: Those in force when it was made.
    """

    code: CompiledUnit
    plan: PackingPlan
    needs: KernelNeeds
    arch: ArchLimits
    most_blocks: int
    settings: settings.Settings


MAX_STAGES = 1024

Shape = tuple[Any, Any, Any, bool, bool]
"""Block, dynamic shared memory, cluster, cooperative, programmatic."""


class Stages:
    """The stages of one kernel.

    Attributes:
        quick: Launch with (arguments, grid, block, smem_bytes, cluster, cooperative, programmatic, device);
            False where that is left to kernel/launch.py.
    """

    def __init__(self) -> None:
        self.quick: Callable[..., bool] = lambda *launch: False
        self._launcher: Any = None
        self._is_in_python = False
        self._plan: PackingPlan | None = None
        self._configs: dict[Shape, LaunchConfig] = {}
        self._stages: dict[tuple[object, Shape], Stage] = {}
        self._refused_by: set[bool] = set()
        _all.add(self)

    def config(self, kernel: str, grid: Any, shape: Shape) -> LaunchConfig:
        """Check a configuration within the limits that every GPU has.

        Args:
            kernel: Its name, for messages.
            grid, shape: As the caller passed them.
        """
        known = self._configs.get(shape) if _is_plain(shape) else None
        if known is not None:
            return read_grid(kernel, grid, known)
        config = read_config(kernel, grid, *shape)
        if _is_plain(shape):
            _keep(self._configs, shape, config)
        return config

    def stage(
        self, unit: CompilationUnit, kernel: str, on: LaunchDevice, config: LaunchConfig, shape: Shape
    ) -> Stage:
        """Return the stage of a launch, whose grid it fits.

        Args:
            unit, kernel, on: The unit that the kernel is compiled in, its name, and the device.
            config, shape: The configuration: checked, and as the caller passed it.
        """
        found = self._stages.get((on.key, shape)) if _is_plain(shape) else None
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
        stage = Stage(
            code=code,
            plan=code.plan(kernel),
            needs=needs,
            arch=arch,
            most_blocks=resident * arch.multiprocessors,
            settings=settings.current(),
        )
        if _is_plain(shape):
            _keep(self._stages, (on.key, shape), stage)
        return stage

    def keep(self, kernel: str, index: int, config: LaunchConfig, stage: Stage) -> None:
        """Prepare launches like one that has just happened, in native code or else in Python, if possible.

        Args:
            kernel, index, config, stage: The kernel's name, the GPU's index, and those of the launch.
        """
        in_python = bool(native.prepare())
        if in_python in self._refused_by or stage.settings != settings.current():
            return  # what is compiled may depend on them
        if self._launcher is None or self._is_in_python is not in_python:
            self._launcher, self._plan = _launcher(stage.plan, in_python), stage.plan
            self._is_in_python = in_python
        if self._launcher is None or self._plan != stage.plan:
            self._refused_by.add(in_python)
            return
        self._launcher.stage(
            (config.block, config.cluster or (0, 0, 0), config.cooperative, config.programmatic, index),
            _smem_range(config, stage.needs, stage.arch),
            int(stage.code.library(kernel).kernel(stage.code.symbol(kernel), index)),
            cuda.primary_context(index),
            stage.most_blocks,
            config.cluster or stage.needs.cluster or (1, 1, 1),
            cuda.supported(config, stage.arch.capability).programmatic,
            LaunchLabel("", kernel, config, index),
        )
        self.quick = self._launcher.launch

    def forget(self) -> None:
        """Prepare every launch again: the settings have changed, and with them what is compiled."""
        self._stages.clear()
        if self._launcher is not None:
            self._launcher.forget()


def _smem_range(config: LaunchConfig, needs: KernelNeeds, arch: ArchLimits) -> tuple[int, int]:
    """Return the least and the most dynamic shared memory, in bytes, that a stage holds for.

    Only the limit of a cooperative grid depends on the size; for another launch every size up to the
    architecture's limit is as good as the one that was checked.
    """
    if config.cooperative:
        return config.smem_bytes, config.smem_bytes
    return 0, arch.smem_block_bytes - needs.static_smem_bytes


_all: WeakSet[Stages] = WeakSet()

_READ_AT_EACH_CALL = ("simulate", "native", "launch_blocking", "debug")


def _forget_all(before: settings.Settings, after: settings.Settings) -> None:
    unchanged = {name: getattr(before, name) for name in _READ_AT_EACH_CALL}
    if replace(after, **unchanged) != before:
        for stages in tuple(_all):
            stages.forget()


settings.watch(_forget_all)


def _keep(rows: dict[Any, Any], key: object, value: object) -> None:
    """Keep a row; clear the rest where a new shape for each call would make it grow without end."""
    if len(rows) >= MAX_STAGES:
        rows.clear()
    rows[key] = value


def _is_plain(shape: Shape) -> bool:
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
