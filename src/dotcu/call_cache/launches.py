"""Launches of a recorded call: the parameters in one block of memory, with fields to fill in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from dotcu.call_cache.layouts import is_empty
from dotcu.call_cache.record import Field, FieldKind, Launch, Unsupported
from dotcu.call_cache.state import TracedTensor, TraceState
from dotcu.call_cache.symbols import as_float, identical, is_symbol, pinned, plain, step_of
from dotcu.kernel.arguments.pack import PointerPacker, Strided, TensorPacker, pack
from dotcu.kernel.arguments.tensor_map import TensorMap
from dotcu.kernel.arguments.values import FloatPacker, IntPacker
from dotcu.kernel.scope import RecordedLaunch

PARAMETER_ALIGNMENT = 16
ALLOCATOR_ALIGNMENT = 16
"""The alignment of new memory that every allocator of torch guarantees, in bytes."""

_INTEGERS = {
    (1, True): FieldKind.INT8, (2, True): FieldKind.INT16,
    (4, True): FieldKind.INT32, (8, True): FieldKind.INT64,
    (1, False): FieldKind.UINT8, (2, False): FieldKind.UINT16,
    (4, False): FieldKind.UINT32, (8, False): FieldKind.UINT64,
}  # fmt: skip
_FLOATS = {"<f": FieldKind.FLOAT32, "<d": FieldKind.FLOAT64}


@dataclass
class _Parameters:
    """The parameters of one launch while they are put together."""

    state: TraceState
    data: bytearray = field(default_factory=bytearray)
    offsets: list[int] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)

    def add(self, packer: Any, value: Any) -> None:
        """Add a parameter, on a boundary of 16 bytes."""
        self.offsets.append(len(self.data))
        is_pointer = isinstance(packer, (PointerPacker, TensorPacker))
        if isinstance(value, TensorMap):
            raise Unsupported("it passes a tensor map, which the driver encodes again for each address")
        if is_pointer and value is not None:
            self._tensor(packer, value)
        elif is_symbol(value) and isinstance(packer, (IntPacker, FloatPacker)):
            self._number(packer, value)
        else:
            self.data += packer.pack(None, _no_address) if is_pointer else packer.pack(pinned(value))
        self.data += bytes(-len(self.data) % PARAMETER_ALIGNMENT)

    def _put(self, kind: FieldKind, size: int, **more: Any) -> None:
        self.fields.append(Field(offset=len(self.data), kind=kind, **more))
        self.data += bytes(size)

    def _step(self, number: Any) -> int:
        return step_of(self.state.builder, number)

    def _number(self, packer: IntPacker | FloatPacker, value: Any) -> None:
        if isinstance(packer, FloatPacker):
            kind, number = _FLOATS.get(packer.code), as_float(value)
            size = 4 if kind is FieldKind.FLOAT32 else 8
        else:
            signed = bool(value < 0) if packer.either else packer.signed
            kind, number, size = _INTEGERS.get((packer.size, signed)), value, packer.size
        if kind is None or not is_symbol(number):
            self.data += packer.pack(pinned(value))
        else:
            self._put(kind, size, step=self._step(number))

    def _tensor(self, packer: PointerPacker | TensorPacker, value: Any) -> None:
        known = self.state.known(value.tensor if isinstance(value, Strided) else value)
        if isinstance(packer, PointerPacker):
            self._guard_layout(packer, known, any_layout=isinstance(value, Strided))
        self._address(known)
        if isinstance(packer, TensorPacker):
            for number in (*known.layout.sizes, *known.layout.strides):
                self._put(FieldKind.INT64, 8, step=self._step(number))

    def _guard_layout(self, packer: PointerPacker, known: TracedTensor, *, any_layout: bool) -> None:
        """Guard what the packer has accepted of this call's tensor."""
        if not any_layout and not self.state.is_contiguous(known):
            raise Unsupported("it launches on a tensor that is not contiguous")
        if packer.element is not None and packer.element.alignment > 1:
            is_aligned(self.state, known, packer.element.alignment)

    def _address(self, known: TracedTensor) -> None:
        """Add an address; null for an empty part of memory that has elements."""
        if not known.whole and is_empty(known.layout.sizes):
            self.data += bytes(8)
            return
        kind = FieldKind.ARGUMENT_ADDRESS if known.argument else FieldKind.ALLOCATION_ADDRESS
        offset = known.layout.offset
        step = -1 if identical(offset, 0) else self._step(offset * known.tensor.itemsize)
        self._put(kind, 8, source=known.source, step=step)


def is_aligned(state: TraceState, known: TracedTensor, bytes: int) -> bool:
    """Ask if a tensor's first element is aligned to `bytes`, and guard the answer.

    Args:
        state: The state of the trace.
        known: The tensor.
        bytes: The alignment.

    Raises:
        Unsupported: It is an allocation of the body, whose address may have that alignment or not.
    """
    if not known.whole and is_empty(known.layout.sizes):
        return True
    if known.argument:
        return state.is_aligned(known, bytes)
    if ALLOCATOR_ALIGNMENT % bytes:
        raise Unsupported(f"it asks whether new memory is aligned to {bytes} bytes")
    return bool(known.layout.offset * known.tensor.itemsize % bytes == 0)


def _no_address(tensor: Tensor, name: str, writable: bool) -> int:
    return 0


def _no_map(tiled: Any, address: int) -> bytes:
    raise AssertionError("a launch with a tensor map is never recorded")


def symbolic_launch(state: TraceState, launch: RecordedLaunch) -> Launch:
    """Express a launch in the steps of the call.

    Raises:
        Unsupported: That is not possible.
    """
    if not any(isinstance(value, (Tensor, Strided)) for value in launch.args):
        raise Unsupported(f"{launch.kernel} is launched without a tensor, so on the current GPU")
    parameters = _Parameters(state)
    values = _with_strides(state, launch.args)
    for packer, value in zip(launch.plan.packers, values, strict=True):
        parameters.add(packer, value)
    config = launch.config
    pinned(launch.shape)
    return Launch(
        kernel=launch.kernel,
        function=launch.function,
        device=state.device,
        parameters=bytes(parameters.data),
        offsets=tuple(parameters.offsets),
        fields=tuple(parameters.fields),
        grid=_grid(state, launch),
        block=config.block,
        smem_bytes=config.smem_bytes,
        cluster=config.cluster,
        cooperative=config.cooperative,
        programmatic=config.programmatic,
        most_blocks=launch.most_blocks,
    )


def _with_strides(state: TraceState, args: Sequence[Any]) -> list[Any]:
    """Return the arguments, with the strides of each `dotcu.strided` after it."""
    values: list[Any] = []
    for value in args:
        values.append(value)
        if isinstance(value, Strided):
            values.extend(state.known(value.tensor).layout.strides)
    return values


def _grid(state: TraceState, launch: RecordedLaunch) -> tuple[int, int, int]:
    blocks = tuple(launch.grid) if isinstance(launch.grid, (tuple, list)) else (launch.grid,)
    sizes = (*blocks, 1, 1)[:3]
    if launch.config.cluster is not None:
        for size, each in zip(sizes, launch.config.cluster, strict=True):
            if size % each != 0:
                raise Unsupported("its grid is not a multiple of its cluster")
    x, y, z = (step_of(state.builder, size) for size in sizes)
    return x, y, z


def concrete_launch(state: TraceState, launch: RecordedLaunch, symbolic: Launch) -> Launch:
    """Return a launch as it was in this call, as `evaluate` gives it of the symbolic one.

    Args:
        state: The state of the trace.
        launch: The launch that happened.
        symbolic: The same launch in steps.
    """
    tensors: list[Tensor] = []

    def note(tensor: Tensor, name: str, writable: bool) -> int:
        tensors.append(tensor)
        return 0

    packed = pack(launch.plan, plain(list(launch.args)), note, _no_map)
    data, fields = b"", []
    for packer, parameter, value in zip(
        launch.plan.packers, packed.parameters, _with_strides(state, launch.args), strict=True
    ):
        if isinstance(packer, (PointerPacker, TensorPacker)) and value is not None:
            tensor = tensors.pop(0)
            if tensor.data_ptr():
                fields.append(_concrete_address(state, len(data), tensor))
        data += parameter + bytes(-len(parameter) % PARAMETER_ALIGNMENT)
    return replace(symbolic, grid=launch.config.grid, parameters=data, fields=tuple(fields))


def _concrete_address(state: TraceState, offset: int, tensor: Tensor) -> Field:
    known = state.known(tensor)
    return Field(
        offset=offset,
        kind=FieldKind.ARGUMENT_ADDRESS if known.argument else FieldKind.ALLOCATION_ADDRESS,
        source=known.source,
        step=tensor.data_ptr() - state.base(known).data_ptr(),
    )
