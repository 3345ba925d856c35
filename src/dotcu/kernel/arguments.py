"""Python values -> checked, packed parameters.

A `Plan` is made once for each instantiation of a kernel; `pack()` runs it at every launch. What
address a tensor has is asked of an `Addresses`, so the GPU and the simulator share every check.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dotcu.errors import ArgumentError, SourceError
from dotcu.kernel.elements import ADDRESS, ELEMENTS, Element, dtype_names
from dotcu.kernel.mangling import CType
from dotcu.kernel.packers import Mismatch, StructPacker, ValuePacker, describe, value_packer
from dotcu.kernel.signature import Parameter, Signature
from dotcu.kernel.tensor_maps import BYTES, TensorMap, Tiled, tiled
from dotcu.kernel.tensors import fault, is_plain

if TYPE_CHECKING:
    from dotcu.kernel.map_uses import MapUse

TENSOR = "dotcu::tensor"
TENSOR_MAP = "CUtensorMap_st"


@dataclass(frozen=True)
class Strided:
    """A tensor that is passed with its strides; see `strided()`."""

    tensor: Tensor


def strided(tensor: Tensor) -> Strided:
    """Pass a tensor of any layout for a pointer, followed by its strides.

    It takes the place of 1 + tensor.dim() arguments: the pointer to the first element, then for
    each dimension its stride in elements, as an integer parameter of any width.

    Example:
        `__global__ void row_sums(const float* x, long long x_rows, long long x_columns, ...)` is
        called as `kernels.row_sums(dotcu.strided(x), ...)` with a matrix x.
    """
    return Strided(tensor)


class _Stride(int):
    """A stride among the arguments; it says so in messages."""

    def __repr__(self) -> str:
        return f"{int(self)}, a stride of a dotcu.strided tensor"


Addresses = Callable[[Tensor, str, bool], int]
"""(tensor, parameter's name, whether the kernel may write it) -> the address that the kernel gets."""

Encode = Callable[[Tiled, int], bytes]
"""(checked tensor map, address of its tensor) -> what the kernel's instructions take for it."""


@dataclass(frozen=True, kw_only=True)
class PointerPacker:
    """A pointer: a contiguous tensor whose elements fit, or None."""

    element: Element | None
    label: str
    const: bool

    @property
    def takes(self) -> str:
        if self.element is None:
            return "a contiguous tensor of any dtype, or None"
        aligned = f", {self.element.alignment}-byte aligned" if self.element.lanes > 1 else ""
        return f"a contiguous {dtype_names(self.element.dtypes)} tensor{aligned}, or None"

    def pack(self, value: Any, addresses: Addresses) -> bytes:
        if value is None:
            return bytes(8)
        any_layout = type(value) is Strided
        tensor = value.tensor if any_layout else value
        _require_memory(tensor)
        if self.element is not None:
            _require_dtype(tensor, self.element)
            _require_alignment(tensor, self.element)
        if not any_layout and not tensor.is_contiguous():
            raise Mismatch(
                f"{describe(tensor)} with strides {tensor.stride()}",
                "Pass t.contiguous(), or dotcu.strided(t) to a kernel that takes strides.",
            )
        return addresses(tensor, self.label, not self.const).to_bytes(8, "little")


@dataclass(frozen=True, kw_only=True)
class TensorPacker:
    """A `dotcu::tensor<T, rank>`: a tensor of that dtype and rank, strided or not, or None.

    Layout: `T* data; long long sizes[rank]; long long strides[rank];`, strides in elements.
    """

    element: Element
    rank: int
    label: str
    const: bool
    layout: struct.Struct = field(compare=False)

    @property
    def takes(self) -> str:
        return (
            f"a {dtype_names(self.element.dtypes)} tensor of {self.rank} dimensions, strided or not, or None"
        )

    def pack(self, value: Any, addresses: Addresses) -> bytes:
        if value is None:
            return bytes(self.layout.size)
        _require_memory(value)
        _require_dtype(value, self.element)
        if value.dim() != self.rank:
            remedy = f"Reshape it to {self.rank} dimensions, or instantiate the kernel for {value.dim()}."
            raise Mismatch(describe(value), remedy)
        address = addresses(value, self.label, not self.const)
        return self.layout.pack(address, *value.shape, *value.stride())


@dataclass(frozen=True, kw_only=True)
class MapPacker:
    """A `CUtensorMap`: a `TensorMap`, or the 128 bytes of a map that the caller encoded.

    An empty tensor has no map: as it has no address either, the kernel gets zeros.
    """

    label: str
    stored: bool

    @property
    def takes(self) -> str:
        return "a dotcu.tensor_map"

    def pack(self, value: Any, addresses: Addresses, encode: Encode) -> bytes:
        if type(value) is not TensorMap:
            return self._own_bytes(value)
        _require_memory(value.tensor)
        checked, address = tiled(value), addresses(value.tensor, self.label, self.stored)
        return encode(checked, address) if value.tensor.numel() else bytes(BYTES)

    def _own_bytes(self, value: Any) -> bytes:
        if isinstance(value, Tensor):
            box = f"({', '.join(['64'] * value.dim())})" if value.dim() > 1 else "64"
            remedy = f"Pass dotcu.tensor_map(t, box={box}), with the box that the kernel copies."
            raise Mismatch(describe(value), remedy)
        return StructPacker(name=TENSOR_MAP, size=BYTES).pack(value)


def _require_memory(value: Any) -> None:
    if not isinstance(value, Tensor):
        raise Mismatch(describe(value), "Pass a tensor; a number goes in a tensor of one element.")
    if not is_plain(value):
        mismatch = fault(value)
        if mismatch is not None:
            raise mismatch


def _require_dtype(tensor: Tensor, element: Element) -> None:
    if tensor.dtype not in element.dtypes:
        wanted = element.dtypes[0]
        remedy = f"Pass t.to({wanted}), or a kernel for {tensor.dtype}."
        raise Mismatch(describe(tensor), remedy)


def _require_alignment(tensor: Tensor, element: Element) -> None:
    off = tensor.data_ptr() % element.alignment
    if off:
        raise Mismatch(
            f"{describe(tensor)} that starts {off} bytes past an address divisible by {element.alignment}",
            f"Ask dotcu.is_aligned(t, {element.alignment}) and take a kernel for {element.scalar}* where it "
            "is not, or pass t.clone().",
        )


Packer = PointerPacker | TensorPacker | MapPacker | ValuePacker


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the arguments of one kernel are packed."""

    signature: Signature
    packers: tuple[Packer, ...]


@dataclass(frozen=True, kw_only=True)
class Packed:
    """The bytes of every parameter, and the tensors that the kernel may write."""

    parameters: tuple[bytes, ...]
    written: tuple[Tensor, ...]


def is_map(parameter: Parameter) -> bool:
    """Whether a parameter is a tensor map by value."""
    return parameter.ctype.kind == "named" and parameter.ctype.name == TENSOR_MAP


_NO_MAPS: Mapping[int, MapUse] = MappingProxyType({})


def plan(signature: Signature, maps: Mapping[int, MapUse] = _NO_MAPS) -> Plan:
    """Choose a packer for each parameter.

    Args:
        maps: What the kernel does with its tensor maps, by index of their parameter.

    Raises:
        SourceError: It copies one to where the hardware cannot read it.
    """
    packers = [
        _map_packer(signature, parameter, maps[parameter.index]) if is_map(parameter) else _packer(parameter)
        for parameter in signature.parameters
    ]
    return Plan(signature=signature, packers=tuple(packers))


def _map_packer(signature: Signature, parameter: Parameter, use: MapUse) -> MapPacker:
    if use.copied:
        raise SourceError(
            f"{signature.kernel}: parameter {parameter.index + 1}, {parameter}, is copied into each thread's "
            "own memory, where TMA cannot read it.\nA tensor map is read where the launch put it.\n"
            f"Declare it: const __grid_constant__ CUtensorMap {parameter.name or 'map'}"
        )
    return MapPacker(label=parameter.label, stored=use.stored)


def _packer(parameter: Parameter) -> Packer:
    ctype = parameter.ctype
    if ctype.kind == "pointer" and ctype.pointee.kind != "function":
        target = ctype.pointee
        while target.kind == "array":
            target = target.pointee
        return PointerPacker(element=_element(target), label=parameter.label, const=target.const)
    if ctype.name == TENSOR and len(ctype.arguments) == 2:
        return _tensor_packer(parameter)
    return value_packer(parameter)


def _element(target: CType) -> Element | None:
    return ADDRESS if target.kind == "pointer" else ELEMENTS.get(target.name)


def _tensor_packer(parameter: Parameter) -> Packer:
    target, rank = parameter.ctype.arguments
    element = ELEMENTS.get(target.name) if isinstance(target, CType) else None
    if element is None or element.lanes > 1 or not isinstance(rank, int):
        return value_packer(parameter)
    assert isinstance(target, CType)
    layout = struct.Struct(f"<Q{2 * rank}q")
    return TensorPacker(element=element, rank=rank, label=parameter.label, const=target.const, layout=layout)


def tensors(args: Sequence[Any]) -> list[Tensor]:
    """The tensors among the arguments, those in `strided` and `tensor_map` included."""
    return [value for value in map(_tensor_of, args) if isinstance(value, Tensor)]


def _expanded(args: Sequence[Any]) -> list[Any]:
    values: list[Any] = []
    for value in args:
        values.append(value)
        if type(value) is Strided:
            if not isinstance(value.tensor, Tensor):
                raise ArgumentError(f"dotcu.strided takes a tensor, got {describe(value.tensor)}.")
            values.extend(map(_Stride, value.tensor.stride()))
    return values


def require_count(plan: Plan, values: Sequence[Any]) -> None:
    """Refuse too few or too many arguments.

    Raises:
        ArgumentError: With the kernel's parameter list, and what is missing or left over.
    """
    wanted = plan.signature.parameters
    if len(values) == len(wanted):
        return
    if len(values) < len(wanted):
        what = "Missing: " + ", ".join(str(p) for p in wanted[len(values) :])
    else:
        what = "Left over: " + ", ".join(describe(value) for value in values[len(wanted) :])
    raise ArgumentError(
        f"{plan.signature.kernel} takes {len(wanted)} arguments, got {len(values)}.\n{what}.\n"
        f"It is declared as {plan.signature}; dotcu.strided(t) counts as a pointer and its strides."
    )


def require_device(plan: Plan, args: Sequence[Any]) -> torch.device | None:
    """The one device that all tensors are on; None where there is no tensor.

    Raises:
        ArgumentError: Tensors are on several devices.
    """
    device: torch.device | None = None
    for tensor in tensors(args):
        if device is None:
            device = tensor.device
        elif tensor.device != device:
            position = next(i for i, v in enumerate(_expanded(args)) if _tensor_of(v) is tensor)
            parameters = plan.signature.parameters
            where = f"{parameters[position]}" if position < len(parameters) else f"argument {position + 1}"
            raise ArgumentError(
                f"{plan.signature.kernel}: {where} is on {tensor.device}, and the tensors before it on "
                f'{device}.\nAll tensors of a launch must be on one device: pass t.to("{device}").'
            )
    return device


def _tensor_of(value: Any) -> Any:
    return value.tensor if type(value) in (Strided, TensorMap) else value


def pack(plan: Plan, args: Sequence[Any], addresses: Addresses, encode: Encode) -> Packed:
    """Check every argument against its parameter and pack it.

    Args:
        addresses: Called once for each tensor, after its checks.
        encode: Called once for each tensor map.

    Raises:
        ArgumentError: A value does not fit; names kernel, parameter, what it takes and what it got.
    """
    values = args
    if any(type(value) is Strided for value in args):
        values = _expanded(args)
        _refuse_strided(plan, values)
    require_count(plan, values)
    packed: list[bytes] = []
    written: list[Tensor] = []
    for parameter, packer, value in zip(plan.signature.parameters, plan.packers, values, strict=True):
        try:
            if isinstance(packer, (PointerPacker, TensorPacker)):
                packed.append(packer.pack(value, addresses))
                if not packer.const and value is not None:
                    written.append(_tensor_of(value))
            elif isinstance(packer, MapPacker):
                packed.append(packer.pack(value, addresses, encode))
                if packer.stored and type(value) is TensorMap:
                    written.append(value.tensor)
            else:
                packed.append(packer.pack(value))
        except Mismatch as mismatch:
            misplaced = type(value) is TensorMap and not isinstance(packer, MapPacker)
            why = Mismatch(repr(value), _MISPLACED_MAP) if misplaced else mismatch
            raise _refusal(plan, parameter, packer, why) from None
    return Packed(parameters=tuple(packed), written=tuple(written))


_MISPLACED_MAP = "Pass the tensor itself, or declare the parameter const __grid_constant__ CUtensorMap."


def _refuse_strided(plan: Plan, values: Sequence[Any]) -> None:
    """Refuse strides for a parameter that brings its own, before they are counted as arguments."""
    for parameter, packer, value in zip(plan.signature.parameters, plan.packers, values, strict=False):
        if type(value) is Strided and isinstance(packer, TensorPacker):
            mismatch = Mismatch("dotcu.strided(t)", f"Pass t itself: {TENSOR} brings its strides.")
            raise _refusal(plan, parameter, packer, mismatch)


def _refusal(plan: Plan, parameter: Parameter, packer: Packer, mismatch: Mismatch) -> ArgumentError:
    return ArgumentError(
        f"{plan.signature.kernel}: parameter {parameter.index + 1}, {parameter}, takes {packer.takes}, "
        f"got {mismatch.got}.\n{mismatch.remedy}"
    )
