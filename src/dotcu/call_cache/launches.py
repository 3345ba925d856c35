"""Launches as a plan has them: parameters in one piece of memory, with places to fill in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dotcu.call_cache.effects import Address, Ran
from dotcu.call_cache.layouts import is_empty
from dotcu.call_cache.plan import Field, FieldKind, Launch
from dotcu.call_cache.symbols import as_float, identical, is_symbol, step_of
from dotcu.call_cache.tracer import Known, Tracer, Untold
from dotcu.call_cache.values import pinned, plain
from dotcu.kernel.arguments import PointerPacker, Strided, TensorPacker, pack
from dotcu.kernel.packers import FloatPacker, IntPacker
from dotcu.kernel.recording import Launched
from dotcu.kernel.tensor_maps import TensorMap

PARAMETER_ALIGNMENT = 16
SURE_ALIGNMENT = 16
"""What every allocator of torch's gives, in bytes; that of CUDA gives more."""

_INTEGERS = {
    (1, True): FieldKind.INT8, (2, True): FieldKind.INT16,
    (4, True): FieldKind.INT32, (8, True): FieldKind.INT64,
    (1, False): FieldKind.UINT8, (2, False): FieldKind.UINT16,
    (4, False): FieldKind.UINT32, (8, False): FieldKind.UINT64,
}  # fmt: skip
_FLOATS = {"<f": FieldKind.FLOAT32, "<d": FieldKind.FLOAT64}


@dataclass
class _Parameters:
    """The parameters of one launch, as they are put together."""

    tracer: Tracer
    data: bytearray = field(default_factory=bytearray)
    offsets: list[int] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)

    def add(self, packer: Any, value: Any) -> None:
        """Add a parameter, on a boundary of 16 bytes."""
        self.offsets.append(len(self.data))
        if isinstance(value, TensorMap):
            raise Untold("it passes a tensor map, which the driver encodes anew for each address")
        if isinstance(packer, (PointerPacker, TensorPacker)) and value is not None:
            self._tensor(packer, value)
        elif is_symbol(value) and isinstance(packer, (IntPacker, FloatPacker)):
            self._number(packer, value)
        else:
            is_pointer = isinstance(packer, (PointerPacker, TensorPacker))
            constant = packer.pack(None, _no_address) if is_pointer else packer.pack(pinned(value))
            self.data += constant
        self.data += bytes(-len(self.data) % PARAMETER_ALIGNMENT)

    def _put(self, kind: FieldKind, size: int, **more: Any) -> None:
        self.fields.append(Field(offset=len(self.data), kind=kind, **more))
        self.data += bytes(size)

    def _step(self, number: Any) -> int:
        return step_of(self.tracer.builder, number)

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
        tensor = value.tensor if isinstance(value, Strided) else value
        known = self.tracer.known(tensor)
        self._demand(packer, known, any_layout=isinstance(value, Strided))
        self._address(known)
        if isinstance(packer, TensorPacker):
            for number in (*known.layout.sizes, *known.layout.strides):
                self._put(FieldKind.INT64, 8, step=self._step(number))

    def _demand(self, packer: PointerPacker | TensorPacker, known: Known, *, any_layout: bool) -> None:
        """Guard what the packer has found good of this call's tensor."""
        if not isinstance(packer, PointerPacker):
            return
        if not any_layout and not self.tracer.is_contiguous(known):
            raise Untold("it launches on a tensor that is not contiguous")
        if packer.element is not None and packer.element.alignment > 1:
            is_aligned(self.tracer, known, packer.element.alignment)

    def _address(self, known: Known) -> None:
        """An address; null for a part without elements of memory that has some."""
        if not known.whole and is_empty(known.layout.sizes):
            self.data += bytes(8)
            return
        kind = FieldKind.ARGUMENT_ADDRESS if known.argument else FieldKind.ALLOCATION_ADDRESS
        offset = known.layout.offset
        step = -1 if identical(offset, 0) else self._step(offset * known.tensor.itemsize)
        self._put(kind, 8, source=known.source, step=step)


def is_aligned(tracer: Tracer, known: Known, bytes: int) -> bool:
    """Whether a tensor's first element lies at an address divisible by `bytes`, as a guard.

    Raises:
        Untold: It is memory of the body's own, whose address may be aligned so or not.
    """
    if not known.whole and is_empty(known.layout.sizes):
        return True
    if known.argument:
        return tracer.is_aligned(known, bytes)
    if SURE_ALIGNMENT % bytes:
        raise Untold(f"it asks whether new memory is aligned to {bytes} bytes")
    return bool(known.layout.offset * known.tensor.itemsize % bytes == 0)


def _no_address(tensor: Tensor, name: str, writable: bool) -> int:
    return 0


def _no_map(tiled: Any, address: int) -> bytes:
    raise AssertionError("a launch with a tensor map has no plan")


def planned(tracer: Tracer, launch: Launched, device: torch.device) -> Launch:
    """A launch in the steps of the call.

    Raises:
        Untold: A plan cannot say it.
    """
    if not any(isinstance(value, (Tensor, Strided)) for value in launch.args):
        raise Untold(f"{launch.kernel} is launched without a tensor, so on the GPU that is the current one")
    parameters = _Parameters(tracer)
    values = _expanded(tracer, launch.args)
    for packer, value in zip(launch.plan.packers, values, strict=True):
        parameters.add(packer, value)
    config = launch.config
    pinned(launch.shape)
    return Launch(
        kernel=launch.kernel,
        function=launch.function,
        device=device,
        parameters=bytes(parameters.data),
        offsets=tuple(parameters.offsets),
        fields=tuple(parameters.fields),
        grid=_grid(tracer, launch),
        block=config.block,
        smem_bytes=config.smem_bytes,
        cluster=config.cluster,
        cooperative=config.cooperative,
        programmatic=config.programmatic,
        most_blocks=launch.most_blocks,
    )


def _expanded(tracer: Tracer, args: Sequence[Any]) -> list[Any]:
    """The arguments with the strides of each `dotcu.strided`."""
    values: list[Any] = []
    for value in args:
        values.append(value)
        if isinstance(value, Strided):
            values.extend(tracer.known(value.tensor).layout.strides)
    return values


def _grid(tracer: Tracer, launch: Launched) -> tuple[int, int, int]:
    given = tuple(launch.grid) if isinstance(launch.grid, (tuple, list)) else (launch.grid,)
    sizes = (*given, 1, 1)[:3]
    if launch.config.cluster is not None:
        for blocks, each in zip(sizes, launch.config.cluster, strict=True):
            if blocks % each != 0:
                raise Untold("its grid is no multiple of its cluster")
    x, y, z = (step_of(tracer.builder, size) for size in sizes)
    return x, y, z


def ran(tracer: Tracer, launch: Launched) -> Ran:
    """The same launch as it was, in this call."""
    addresses: list[Tensor] = []

    def address(tensor: Tensor, name: str, writable: bool) -> int:
        addresses.append(tensor)
        return 0

    packed = pack(launch.plan, plain(list(launch.args)), address, _no_map)
    data, places = b"", []
    for packer, parameter, value in zip(
        launch.plan.packers, packed.parameters, _expanded(tracer, launch.args), strict=True
    ):
        if isinstance(packer, (PointerPacker, TensorPacker)) and value is not None:
            places.append(_place(tracer, len(data), addresses.pop(0)))
        data += parameter + bytes(-len(parameter) % PARAMETER_ALIGNMENT)
    config = launch.config
    return Ran(
        kernel=launch.kernel,
        grid=config.grid,
        block=config.block,
        smem_bytes=config.smem_bytes,
        cluster=config.cluster,
        cooperative=config.cooperative,
        programmatic=config.programmatic,
        parameters=data,
        addresses=tuple(place for place in places if place.source >= 0),
    )


def _place(tracer: Tracer, offset: int, tensor: Tensor) -> Address:
    known, start = tracer.known(tensor), tensor.data_ptr()
    if not start:
        return Address(offset=offset, argument=True, source=-1, bytes=0)
    base = tracer.base(known).data_ptr()
    return Address(offset=offset, argument=known.argument, source=known.source, bytes=start - base)
