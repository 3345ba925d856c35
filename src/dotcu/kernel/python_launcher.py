"""The prepared launches of one kernel in Python: what native/launch.c does, where there is no native code.

    Launcher.launch -> who watches -> the arguments -> the plan of the shape -> cuLaunchKernelEx

What it does not take goes to kernel/launch.py, which launches it or raises the error: tensor maps, lists,
structs with tensors, strided tensors for a pointer, and whatever does not fit.

Source: cuda.h, CUDA 12.0, CUlaunchConfig and CUlaunchAttribute.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from dotcu import settings, torch_compat
from dotcu.kernel import cuda, native
from dotcu.kernel.arguments.memory import count_writes, is_plain
from dotcu.kernel.arguments.pack import Packer, PackingPlan, PointerPacker, TensorPacker
from dotcu.kernel.arguments.values import BoolPacker, FloatPacker, IntPacker, Mismatch, StructPacker
from dotcu.kernel.config import MAX_GRID
from dotcu.kernel.faults import LaunchLabel, forked_with_cuda, record_launch
from dotcu.kernel.launch_policy import LaunchPolicy, Scope, current_scope, is_observed


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("smem_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )  # fmt: skip


_CLUSTER, _COOPERATIVE, _PROGRAMMATIC = 4, 2, 6
"""CUlaunchAttributeID in cuda.h."""

_Dim3 = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The functions that launch: the driver's, and the one for torch's current stream.

    Attributes:
        context: cuCtxGetCurrent.
        launch: cuLaunchKernelEx.
        stream: Returns the handle of torch's current stream of a device.
        on_cpu: It launches on tensors of the CPU, in tests.
    """

    context: Callable[[Any], int]
    launch: Callable[[Any, int, Any, None], int]
    stream: Callable[[int], int]
    on_cpu: bool = False


@functools.cache
def gpu_driver() -> Driver:
    """Return the driver of this machine's GPUs.

    Raises:
        ToolchainError: It cannot be loaded.
    """
    functions, word, status = native.driver_functions(), ctypes.c_void_p, ctypes.c_int
    launch = ctypes.CFUNCTYPE(status, word, word, ctypes.POINTER(word), word)
    return Driver(
        context=ctypes.CFUNCTYPE(status, ctypes.POINTER(ctypes.c_uint64))(functions["context"]),
        launch=launch(functions["launch"]),
        stream=lambda index: int(torch.cuda.current_stream(index).cuda_stream),
    )


@dataclass(kw_only=True)
class _Plan:
    """The launches of one shape.

    Attributes:
        smem_bytes: The least and the most dynamic shared memory that it holds for.
        multiple: The grid is a multiple of it, in each dimension.
        free: Configurations that no launch uses now.
    """

    block: _Dim3
    cluster: _Dim3
    cooperative: bool
    programmatic: bool
    smem_bytes: tuple[int, int]
    function: int
    context: int
    most_blocks: int
    multiple: _Dim3
    label: LaunchLabel
    free: list[_Config] = field(default_factory=list)

    def config(self) -> _Config:
        """Return a configuration that lacks the grid, the shared memory and the stream."""
        rows = [(_CLUSTER, self.cluster)] if self.cluster[0] else []
        rows += [(_COOPERATIVE, (1, 0, 0))] if self.cooperative else []
        rows += [(_PROGRAMMATIC, (1, 0, 0))] if self.programmatic else []
        attributes = (_Attribute * max(1, len(rows)))(
            *(_Attribute(id=number, value=value) for number, value in rows)
        )
        return _Config(block=self.block, attributes=attributes, attribute_count=len(rows))

    def fits(self, grid: _Dim3) -> bool:
        """Return whether a grid is within the limits."""
        for size, most, multiple in zip(grid, MAX_GRID, self.multiple, strict=True):
            if not 0 <= size <= most or size % multiple:
                return False
        return not self.most_blocks or math.prod(grid) <= self.most_blocks


class Launcher:
    """The prepared launches of one kernel.

    Args:
        on_failure: Raises the driver's refusal, of a plan's label, a grid, shared memory and a status.

    Raises:
        ValueError: The kernel takes other than plain values.
    """

    def __init__(self, plan: PackingPlan, on_failure: Callable[..., object], driver: Driver) -> None:
        self._driver, self._on_failure = driver, on_failure
        sizes = [parameter.size for parameter in plan.parameters]
        self._parameters = list(map(_parameter, plan.packers, sizes))
        self._offsets: list[int] = []
        codes, offset = "<", 0
        for size, (code, *_) in zip(sizes, self._parameters, strict=True):
            self._offsets.append(offset)
            codes += f"{code}{-size % 16}x"
            offset += size + -size % 16
        self._format = struct.Struct(codes)
        self._blocks: list[tuple[Any, Any]] = []
        self._plans: dict[Any, list[_Plan]] = {}

    def add(
        self, shape: Any, smem_bytes: tuple[int, int], function: int, context: int, most_blocks: int,
        multiple: _Dim3, programmatic: bool, label: LaunchLabel,
    ) -> None:  # fmt: skip
        """Add a launch plan.

        Args:
            shape: (block, cluster, cooperative, programmatic, the GPU's index); zeros without clusters.
            most_blocks: Of a cooperative launch; 0 for no limit.
            multiple: The grid is a multiple of it, in each dimension.
        """
        block, cluster, cooperative, _, _ = shape
        made = _Plan(
            block=block, cluster=cluster, cooperative=cooperative, programmatic=programmatic,
            smem_bytes=smem_bytes, function=function, context=context, most_blocks=most_blocks,
            multiple=multiple, label=label,
        )  # fmt: skip
        if len(self._plans) >= MAX_SHAPES:
            self._plans.clear()
        rows = [row for row in self._plans.get(shape, ()) if row.smem_bytes != smem_bytes]
        self._plans[shape] = [made, *rows][:MAX_SIZES]

    def forget(self) -> None:
        """Drop all plans."""
        self._plans.clear()

    def launch(
        self, args: tuple[Any, ...], grid: Any, block: Any, smem_bytes: Any, cluster: Any, cooperative: Any,
        programmatic: Any, device: Any,
    ) -> bool:  # fmt: skip
        """Launch as the native launcher does; False if nothing was done, since no plan fits."""
        scope = current_scope()
        if device is not None or len(args) != len(self._parameters) or not _may_launch(scope):
            return False
        blocks, threads = _dimensions(grid), _dimensions(block)
        clusters = _NO_CLUSTER if cluster is None else _dimensions(cluster)
        if cluster is not None and not (clusters and min(clusters) > 0):
            return False
        is_plain_shape = type(smem_bytes) is int and type(cooperative) is type(programmatic) is bool
        outside = scope.policy is LaunchPolicy.OUTSIDE
        taken = self._take(args, outside)
        if not is_plain_shape or blocks is None or taken is None:
            return False
        values, written, index = taken
        for plan in self._plans.get((threads, clusters, cooperative, programmatic, index), ()):
            if plan.smem_bytes[0] <= smem_bytes <= plan.smem_bytes[1]:
                break
        else:
            return False
        if not plan.fits(blocks) or not self._is_current(plan.context):
            return False
        if 0 in blocks:
            return True
        if not self._run(plan, blocks, smem_bytes, index, values, scope):
            return False
        if outside:
            count_writes(written)
        return True

    def _take(self, args: tuple[Any, ...], outside: bool) -> tuple[list[Any], list[Tensor], int] | None:
        """Return the values that are packed, the tensors that may be written, and the GPU's index.

        None if one does not fit, or if no tensor says which GPU.
        """
        asks_for_gradients = outside and torch.is_grad_enabled()
        values: list[Any] = []
        written: list[Tensor] = []
        found = None
        for (_, memory, take), value in zip(self._parameters, args, strict=True):
            number = None
            if take is not None:
                number = take(value)
            elif value is None:
                number = memory.null
            elif is_plain(value) and not (asks_for_gradients and value.requires_grad):
                index, number = value.get_device(), memory.take(value)
                if found is None:
                    found = index
                if index != found:
                    return None
                if memory.writes:
                    written.append(value)
            if number is None:
                return None
            values.append(number)
        if found is None or (found < 0) is not self._driver.on_cpu:
            return None
        return values, written, max(0, found)

    def _is_current(self, context: int) -> bool:
        """Return whether a context is this thread's, as it is after any work of torch's on its GPU."""
        now = ctypes.c_uint64()
        return not self._driver.context(ctypes.byref(now)) and now.value == context

    def _run(
        self, plan: _Plan, grid: _Dim3, smem_bytes: int, index: int, values: list[Any], scope: Scope
    ) -> bool:
        """Launch; False if a value does not fit its parameter."""
        block, pointers = _popped(self._blocks) or self._block()
        config = _popped(plan.free) or plan.config()
        try:
            self._format.pack_into(block, 0, *values)
        except (struct.error, OverflowError):
            return False
        config.grid, config.smem_bytes, config.stream = grid, smem_bytes, self._driver.stream(index)
        status = self._driver.launch(
            ctypes.byref(config), plan.function, pointers, None
        )  # which has read both when it returns
        if status:
            self._on_failure(plan.label, grid, smem_bytes, status)
        record_launch(plan.label, scope, grid, smem_bytes)
        self._blocks.append((block, pointers))
        plan.free.append(config)
        return True

    def _block(self) -> tuple[Any, Any]:
        block = ctypes.create_string_buffer(max(1, self._format.size))
        base = ctypes.addressof(block)
        addresses = [base + offset for offset in self._offsets]
        return block, (ctypes.c_void_p * max(1, len(addresses)))(*addresses)


Kept = TypeVar("Kept")


def _popped(free: list[Kept]) -> Kept | None:
    """Take one of what is free; None if all are in use. Safe from any thread."""
    try:
        return free.pop()
    except IndexError:
        return None


MAX_SHAPES = 256
"""Shapes of one kernel that are kept; one more clears them."""

MAX_SIZES = 16
"""Plans of one shape, each for one size of shared memory: only those of cooperative launches are several."""

_NO_CLUSTER = (0, 0, 0)


def _may_launch(scope: Scope) -> bool:
    """Return whether a launch in a scope needs no more than to happen: nothing watches, and nobody waits."""
    if scope.policy is LaunchPolicy.OUTSIDE:
        if torch_compat.dispatch_modes() or torch_compat.dual_level():
            return False
        if torch_compat.jit_trace() or torch_compat.pre_dispatch():
            return False
    elif scope.policy is not LaunchPolicy.BODY:
        return False
    if is_observed() or settings.current().launch_blocking or forked_with_cuda() or native.is_ready():
        return False
    return not cuda.ranges_wanted()


def _dimensions(value: Any) -> _Dim3 | None:
    """Return a number of one to three dimensions; None if it is left to the checks."""
    if type(value) is int:
        return value, 1, 1
    if type(value) not in (tuple, list) or not 1 <= len(value) <= 3:
        return None
    if any(type(size) is not int for size in value):
        return None
    x, y, z = (*value, 1, 1)[:3]
    return x, y, z


@dataclass(frozen=True, kw_only=True)
class _Memory:
    """A parameter that takes a tensor.

    Attributes:
        dtypes: Of its elements; empty for any.
        null: What the kernel gets for None.
        rank: Of a `dotcu::tensor`; None for a pointer, whose tensor is contiguous.
    """

    dtypes: tuple[torch.dtype, ...]
    alignment: int
    writes: bool
    null: int | bytes = 0
    rank: int | None = None

    def take(self, tensor: Tensor) -> int | bytes | None:
        """Return what is packed for a tensor; None if it does not fit."""
        address = tensor.data_ptr()
        if (self.dtypes and tensor.dtype not in self.dtypes) or address % self.alignment:
            return None
        if not address and tensor.numel():  # its storage was freed
            return None
        if self.rank is None:
            return address if tensor.is_contiguous() else None
        if tensor.dim() != self.rank:
            return None
        return struct.pack(f"<Q{2 * self.rank}q", address, *tensor.shape, *tensor.stride())


_Parameter = tuple[str, Any, Callable[[Any], Any] | None]
"""How `struct` writes it; then what takes a tensor, or a function that takes a value: None for a misfit."""


def _parameter(packer: Packer, size: int) -> _Parameter:
    if isinstance(packer, PointerPacker) and packer.promised.is_plain:
        dtypes = packer.element.dtypes if packer.element is not None else ()
        return "Q", _Memory(dtypes=dtypes, alignment=packer.alignment, writes=packer.writes), None
    if isinstance(packer, TensorPacker) and not packer.index:
        about: Any = {"dtypes": packer.element.dtypes, "alignment": 1, "writes": packer.writes}
        return f"{size}s", _Memory(**about, null=bytes(size), rank=packer.rank), None
    if isinstance(packer, IntPacker) and packer.size in _INT_CODES and not packer.promised.promises:
        is_signed = packer.signed and not packer.either
        code = _INT_CODES[packer.size] if is_signed else _INT_CODES[packer.size].upper()
        bits = 8 * packer.size - is_signed
        return code, None, _number(packer, code, int, -(1 << bits) * is_signed, 1 << bits)
    if isinstance(packer, FloatPacker) and packer.code in ("<f", "<d"):
        return packer.code[1:], None, _number(packer, packer.code[1:], float, -math.inf, math.inf)
    if isinstance(packer, (BoolPacker, FloatPacker, StructPacker)):
        return f"{size}s", None, functools.partial(_pack, packer)
    raise ValueError(f"the launcher in Python does not take {packer.takes}")


_INT_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}


def _number(
    packer: IntPacker | FloatPacker, code: str, kind: type[Any], low: float, high: float
) -> Callable[[Any], Any]:
    """Return what takes numbers: at once those of a type from `low` to below `high`, others as packed."""
    read = struct.Struct("<" + code).unpack

    def take(value: Any) -> Any:
        if type(value) is kind and low <= value < high:
            return value
        packed = _pack(packer, value)
        return None if packed is None else read(packed)[0]

    return take


def _pack(packer: IntPacker | BoolPacker | FloatPacker | StructPacker, value: Any) -> bytes | None:
    try:
        return packer.pack(value)
    except Mismatch:
        return None
