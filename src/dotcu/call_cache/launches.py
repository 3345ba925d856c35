"""Launches of a recorded call: the parameters in one block of memory, with fields to fill in."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from dotcu.call_cache.evaluate import FORMATS
from dotcu.call_cache.layouts import is_empty
from dotcu.call_cache.record import Field, FieldKind, Launch, Unsupported
from dotcu.call_cache.state import TracedTensor, TraceState
from dotcu.call_cache.symbols import as_float, identical, is_symbol, pinned, plain, step_of
from dotcu.kernel.arguments.pack import (
    WRAPPED,
    Extents,
    Placement,
    PointerPacker,
    Strided,
    TensorPacker,
    expanded,
    members_of,
    pack,
)
from dotcu.kernel.arguments.tensor_map import (
    ALIGNMENT,
    BYTES,
    MAP_ALIGNMENT,
    TensorMap,
    Tiled,
    layout_faults,
    outer_strides,
    tiled,
)
from dotcu.kernel.arguments.values import FloatPacker, IntPacker
from dotcu.kernel.scope import RecordedLaunch

PARAMETER_ALIGNMENT = 16


Map = tuple[Field, Tiled]


def _parts(state: TraceState, packer: Any, value: Any) -> Iterator[bytes | Field | Map]:
    """Yield a parameter as constant bytes, and fields and maps whose offset is not known yet."""
    is_pointer = isinstance(packer, (PointerPacker, TensorPacker))
    if isinstance(value, TensorMap):
        yield _map(state, pinned(value))
        return
    if isinstance(packer, TensorPacker) and packer.index:
        raise Unsupported("it passes a TensorInfo, whose sizes are not at fixed places")
    if is_pointer and value is not None:
        known = state.known(value.tensor if isinstance(value, WRAPPED) else value)
        if isinstance(packer, PointerPacker):  # guard what the packer has accepted of this call's tensor
            _guard_pointer(state, packer, value, known)
        yield _address(state, known)
        if isinstance(packer, TensorPacker):
            for number in (*known.layout.sizes, *known.layout.strides):
                yield Field(offset=0, kind=FieldKind.INT64, step=step_of(state.builder, number))
    elif is_symbol(value) and isinstance(packer, (IntPacker, FloatPacker)):
        yield _number(state, packer, value)
    else:
        yield packer.pack(None, lambda *_: 0) if is_pointer else packer.pack(pinned(value))


def _guard_pointer(state: TraceState, packer: PointerPacker, value: Any, known: TracedTensor) -> None:
    if not isinstance(value, Strided) and not state.is_contiguous(known):
        raise Unsupported("it launches on a tensor that is not contiguous")
    if not packer.promised.is_plain:
        raise Unsupported("its kernel assumes something of a number that is computed of an address")
    if packer.alignment > 1:
        state.is_aligned(known, packer.alignment)


def _number(state: TraceState, packer: IntPacker | FloatPacker, value: Any) -> bytes | Field:
    if isinstance(packer, FloatPacker):
        value, name = as_float(value), {"<f": "FLOAT32", "<d": "FLOAT64"}.get(packer.code, "")
    else:
        if packer.promised.promises and not packer.promised.holds(packer.as_signed(value)):  # a guard of each
            raise Unsupported("it breaks an assumption of its kernel")
        signed = bool(value < 0) if packer.either else packer.signed
        name = f"{'' if signed else 'U'}INT{8 * packer.size}"
    if name not in FieldKind.__members__ or not is_symbol(value):
        return packer.pack(pinned(value))
    return Field(offset=0, kind=FieldKind[name], step=step_of(state.builder, value))


def _address(state: TraceState, known: TracedTensor) -> bytes | Field:
    """Return an address; null for an empty part of memory that has elements."""
    if not known.whole and is_empty(known.layout.sizes):
        return bytes(8)
    kind = FieldKind.ARGUMENT_ADDRESS if known.argument else FieldKind.ALLOCATION_ADDRESS
    step = -1 if identical(known.layout.offset, 0) else step_of(state.builder, known.first_byte)
    return Field(offset=0, kind=kind, source=known.source, step=step)


def _map(state: TraceState, value: TensorMap) -> bytes | Map:
    """Return a tensor map with steps for sizes and strides, and guard what the launch accepted of them."""
    if value.lower_corner is not None:
        raise Unsupported("it passes a tensor map by im2col, which native code does not encode")
    known = state.known(value.tensor)
    sizes, strides, _ = known.layout
    if is_empty(sizes):
        return bytes(BYTES)
    itemsize = value.tensor.itemsize
    if any(layout_faults(sizes, strides, itemsize)) or not state.is_aligned(known, ALIGNMENT):
        raise Unsupported(f"it passes {value}, which no kernel takes")
    address = _address(state, known)
    assert isinstance(address, Field)
    layout = replace(tiled(value), sizes=sizes[::-1], strides_bytes=outer_strides(sizes, strides, itemsize))
    return address, layout.with_layout(partial(step_of, state.builder))


def expressed(state: TraceState, launch: RecordedLaunch) -> tuple[Launch, Launch]:
    """Return a launch in the steps of the call, and as it was in this call, as `evaluate` gives it."""
    symbolic = _symbolic(state, launch)
    return symbolic, _concrete(state, launch, symbolic)


def _symbolic(state: TraceState, launch: RecordedLaunch) -> Launch:
    if any(members_of(value) is not None or type(value) is list for value in launch.args):
        raise Unsupported(f"{launch.kernel} takes a list, or the members of a struct")
    if not any(isinstance(value, (Tensor, *WRAPPED)) for value in launch.args):
        raise Unsupported(f"{launch.kernel} is launched without a tensor, so on the current GPU")
    parameters, offsets, fields, maps = bytearray(), [], [], []
    for packer, value in zip(launch.plan.packers, _values(state, launch), strict=True):
        alignment = MAP_ALIGNMENT if isinstance(value, TensorMap) else PARAMETER_ALIGNMENT
        parameters += bytes(-len(parameters) % alignment)
        offsets.append(len(parameters))
        for part in _parts(state, packer, value):
            if isinstance(part, Field):
                fields.append(replace(part, offset=len(parameters)))
                part = bytes(struct.calcsize(FORMATS[part.kind]))
            elif isinstance(part, tuple):
                maps.append((replace(part[0], offset=len(parameters)), part[1]))
                part = bytes(BYTES)
            parameters += part
    parameters += bytes(-len(parameters) % PARAMETER_ALIGNMENT)
    config = launch.config
    pinned(launch.shape)
    return Launch(
        kernel=launch.kernel,
        function=launch.function,
        device=state.device,
        parameters=bytes(parameters),
        offsets=tuple(offsets),
        fields=tuple(fields),
        maps=tuple(maps),
        grid=_grid(state, launch),
        block=config.block,
        smem_bytes=config.smem_bytes,
        cluster=config.cluster,
        cooperative=config.cooperative,
        programmatic=config.programmatic,
        most_blocks=launch.most_blocks,
    )


def _values(state: TraceState, launch: RecordedLaunch) -> list[Any]:
    def dimensions(value: Strided | Extents) -> Sequence[Any]:
        layout = state.known(value.tensor).layout
        return layout.strides if isinstance(value, Strided) else layout.sizes

    return expanded(launch.args, dimensions)


def _grid(state: TraceState, launch: RecordedLaunch) -> tuple[int, int, int]:
    blocks = tuple(launch.grid) if isinstance(launch.grid, (tuple, list)) else (launch.grid,)
    sizes = (*blocks, 1, 1)[:3]
    if launch.config.cluster is not None:
        for size, each in zip(sizes, launch.config.cluster, strict=True):
            if size % each != 0:
                raise Unsupported("its grid is not a multiple of its cluster")
    x, y, z = (step_of(state.builder, size) for size in sizes)
    return x, y, z


def _concrete(state: TraceState, launch: RecordedLaunch, symbolic: Launch) -> Launch:
    tensors: list[Tensor] = []
    encoded: list[Tiled] = []

    def note(tensor: Tensor, name: str, writable: bool) -> int:
        tensors.append(tensor)
        return 0

    def encode(tiled: Tiled, address: int) -> bytes:
        encoded.append(tiled)
        return bytes(BYTES)

    packed, _ = pack(launch.plan, plain(list(launch.args)), Placement(note, encode, lambda *data: 0))
    parameters, fields, maps = bytearray(len(symbolic.parameters)), [], []
    rows = zip(launch.plan.packers, packed, _values(state, launch), symbolic.offsets, strict=True)
    for packer, parameter, value, offset in rows:
        parameters[offset : offset + len(parameter)] = parameter
        is_map = isinstance(value, TensorMap)
        if not (is_map or (isinstance(packer, (PointerPacker, TensorPacker)) and value is not None)):
            continue
        tensor = tensors.pop(0)
        known = state.known(tensor)
        if tensor.data_ptr():
            first_byte = tensor.data_ptr() - state.base(known).data_ptr()
            kind = FieldKind.ARGUMENT_ADDRESS if known.argument else FieldKind.ALLOCATION_ADDRESS
            field = Field(offset=offset, kind=kind, source=known.source, step=first_byte)
            if not is_map:
                fields.append(field)
            elif tensor.numel():
                maps.append((field, encoded.pop(0)))
    return replace(
        symbolic,
        grid=launch.config.grid,
        parameters=bytes(parameters),
        fields=tuple(fields),
        maps=tuple(maps),
    )
