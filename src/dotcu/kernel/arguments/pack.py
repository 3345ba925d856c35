"""Python values -> checked, packed parameters.

A `PackingPlan` is made once for each instantiation of a kernel; `pack()` follows it at every launch. A
`Placement` gives the addresses of tensors, so the GPU and the simulator share every check.

A struct takes its members by name, and a pointer to pointers a list. What is in them is packed by the packers
that parameters have; the layout of a struct is asked for when the first such value is passed.

Only plain memory has a pointer: conj and neg bits, zero tensors, sparse and quantized layouts, subclasses and
what wraps a tensor are refused by name.
"""

from __future__ import annotations

import ctypes
import math
import operator
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dotcu.errors import ArgumentError, SourceError
from dotcu.kernel.arguments.memory import memory_fault
from dotcu.kernel.arguments.signature import CType, KernelParameter, TypeLayout
from dotcu.kernel.arguments.tensor_map import BYTES, TensorMap, Tiled, tiled
from dotcu.kernel.arguments.values import (
    ADDRESS,
    ELEMENTS,
    NOTHING_PROMISED,
    Element,
    IntPacker,
    Mismatch,
    Promised,
    StructPacker,
    ValuePacker,
    describe,
    dtype_names,
    holds_objects,
    same_bits,
    value_packer,
)

if TYPE_CHECKING:
    from dotcu.tile_ir import Promise

TENSOR = "dotcu::tensor"
ACCESSORS = (TENSOR, "at::GenericPackedTensorAccessor")
TENSOR_INFO = "at::cuda::detail::TensorInfo"
TENSOR_MAP = "CUtensorMap_st"

MapUse = Literal["loaded", "stored", "copied"]
"""A kernel's use of a tensor map: it reads the tensor, may write it, or copies the map into each thread."""


@dataclass(frozen=True)
class Strided:
    """A tensor that is passed with its strides; see `strided()`."""

    tensor: Tensor


def strided(tensor: Tensor) -> Strided:
    """Pass a tensor of any layout for a pointer, followed by its strides.

    It stands for 1 + tensor.dim() arguments: the pointer to the first element, then for each dimension its
    stride in elements, as an integer parameter of any width.

    Example:
        `__global__ void row_sums(const float* x, long long x_rows, long long x_columns, ...)` is
        called as `kernels.row_sums(dotcu.strided(x), ...)` with a matrix x.
    """
    return Strided(tensor)


@dataclass(frozen=True)
class Extents:
    """A tensor that is passed with its sizes; see `extents()`."""

    tensor: Tensor


def extents(tensor: Tensor) -> Extents:
    """Pass a contiguous tensor for a pointer, followed by its sizes.

    It stands for 1 + tensor.dim() arguments: the pointer to the first element, then the size of each
    dimension, as an integer parameter of any width. Tile kernels, which take no struct such as
    `dotcu::tensor`, take these.

    Example:
        `__tile_global__ void scale(float* x, int rows, int columns, float by)` is called as
        `kernels.scale(dotcu.extents(x), 2.0, grid=...)` with a matrix x.
    """
    return Extents(tensor)


WRAPPED = (Strided, Extents)
"""What stands for a pointer and the integers after it."""


def _dimensions(value: Strided | Extents) -> Sequence[int]:
    return value.tensor.stride() if type(value) is Strided else value.tensor.shape


Addresses = Callable[[Tensor, str, bool], int]
"""(tensor, parameter's name, whether the kernel may write it) -> the address that the kernel gets."""

Encode = Callable[[Tiled, int], bytes]
"""(checked tensor map, address of its tensor) -> what the kernel's instructions take for it."""

StoreBytes = Callable[[bytes, str, bool], int]
"""(bytes, their name, whether the kernel may write them) -> the address of a copy for the launch."""


class Placement(NamedTuple):
    """The addresses that a device gives to tensors and to bytes, and its encoding of tensor maps."""

    addresses: Addresses
    encode: Encode
    store: StoreBytes


@dataclass(frozen=True, kw_only=True)
class PointerPacker:
    """Packs a pointer: a contiguous tensor whose elements fit, or None.

    Attributes:
        writes: It is declared as a pointer to memory that may be written.
        is_written: Tells whether the kernel's code may write it.
    """

    element: Element | None
    label: str
    writes: bool
    is_written: Callable[[], bool] = field(default=lambda: True, compare=False, repr=False)
    promised: Promised = field(default=NOTHING_PROMISED, kw_only=True)

    @property
    def alignment(self) -> int:
        """The bytes that its address is a multiple of: by its type, and as a tile kernel assumes."""
        return math.lcm(self.element.alignment if self.element is not None else 1, self.promised.divisor)

    @property
    def takes(self) -> str:
        named = dtype_names(self.element.dtypes) if self.element is not None else ""
        is_wide = self.promised.divisor > 1 or (self.element is not None and self.element.lanes > 1)
        aligned = f", {self.alignment}-byte aligned" if is_wide else ""
        if not named:
            return f"a contiguous tensor of any dtype{aligned}, or None"
        return f"a contiguous {named} tensor{aligned}{self.promised.where}, or None"

    def pack(self, value: Any, addresses: Addresses, label: str = "") -> bytes:
        if value is None:
            return bytes(8)
        any_layout = type(value) is Strided
        tensor = value.tensor if type(value) in WRAPPED else value
        _require_memory(tensor, self)
        if self.element is not None:
            _require_dtype(tensor, self.element, self)
        self._require_aligned(tensor)
        if not any_layout and not tensor.is_contiguous():
            remedy = "Pass t.contiguous(), or dotcu.strided(t) to a kernel that takes strides."
            strides = zip(tensor.shape, tensor.stride(), strict=True)
            overlaps = any(size > 1 and stride == 0 for size, stride in strides)
            raise Mismatch(
                f"{describe(tensor)} with strides {tensor.stride()}",
                _without_copies(remedy, self, overlaps=overlaps),
            )
        return addresses(tensor, label or self.label, self.writes).to_bytes(8, "little")

    def _require_aligned(self, tensor: Tensor) -> None:
        alignment = self.alignment
        off = tensor.data_ptr() % alignment
        if off:
            other = f"a kernel for {self.element.scalar}*" if self.element is not None else "another kernel"
            if self.promised.divisor > 1:
                other = "a kernel without that assumption"
            asked = f"Ask dotcu.is_aligned(t, {alignment})"
            remedy = f"{asked} and take {other} where it is not, or pass t.clone()."
            raise Mismatch(
                f"{describe(tensor)} that starts {off} bytes past an address divisible by {alignment}",
                _without_copies(remedy, self),
            )
        if self.promised is not NOTHING_PROMISED:
            self.promised.require(tensor.data_ptr(), describe(tensor))


@dataclass(frozen=True, kw_only=True)
class TensorPacker:
    """Packs a `dotcu::tensor<T, rank>` or PyTorch's accessor: a tensor of its dtype and rank, strided or not.

    Layout: `T* data; long long sizes[rank]; long long strides[rank];`, strides in elements. PyTorch's
    `TensorInfo<T, index>` is for up to `rank` dimensions: `T* data; index sizes[25], strides[25]; int dims;`.

    Attributes:
        index: The type of sizes and strides of a `TensorInfo`, as `struct` writes it; "" of another.
    """

    element: Element
    rank: int
    label: str
    writes: bool
    index: str = ""
    is_written: Callable[[], bool] = field(default=lambda: True, compare=False, repr=False)

    @property
    def takes(self) -> str:
        named, most = dtype_names(self.element.dtypes), "up to " if self.index else ""
        article = "an" if named.startswith("i") else "a"
        return f"{article} {named} tensor of {most}{self.rank} dimensions, strided or not, or None"

    def pack(self, value: Any, addresses: Addresses, label: str = "") -> bytes:
        if value is None:
            return bytes(
                16 + 2 * struct.calcsize(self.index) * self.rank if self.index else 8 + 16 * self.rank
            )
        _require_memory(value, self)
        _require_dtype(value, self.element, self)
        if self.index:
            return self._pack_info(value, addresses, label or self.label)
        if value.dim() != self.rank:
            remedy = f"Reshape it to {self.rank} dimensions, or instantiate the kernel for {value.dim()}."
            raise Mismatch(describe(value), remedy)
        address = addresses(value, label or self.label, self.writes)
        return struct.pack(f"<Q{2 * self.rank}q", address, *value.shape, *value.stride())

    def _pack_info(self, value: Tensor, addresses: Addresses, label: str) -> bytes:
        if value.dim() > self.rank:
            raise Mismatch(describe(value), f"Reshape it to {self.rank} dimensions.")
        last = sum((n - 1) * stride for n, stride in zip(value.shape, value.stride(), strict=True))
        most = 2 ** (8 * struct.calcsize(self.index) - 1)
        if max((last, value.numel(), *value.shape, *value.stride())) >= most:
            raise Mismatch(describe(value), "Instantiate the kernel for indices of 64 bits.")
        address = addresses(value, label, self.writes)
        blanks = [0] * (self.rank - value.dim())
        numbers = (*value.shape, *blanks, *value.stride(), *blanks)
        return struct.pack(f"<Q{len(numbers)}{self.index}q", address, *numbers, value.dim())


@dataclass(frozen=True, kw_only=True)
class MapPacker:
    """Packs a `CUtensorMap`: a `TensorMap`, or the 128 bytes of a map that the caller encoded.

    An empty tensor has no map: as it has no address either, the kernel gets zeros.
    """

    label: str
    writes: bool

    takes = "a dotcu.tensor_map"
    is_written = staticmethod(lambda: True)

    def pack(self, value: Any, addresses: Addresses, encode: Encode) -> bytes:
        if isinstance(value, Tensor):
            box = f"({', '.join(['64'] * value.dim())})" if value.dim() > 1 else "64"
            remedy = f"Pass dotcu.tensor_map(t, box={box}), with the box that the kernel copies."
            raise Mismatch(describe(value), remedy)
        if type(value) is not TensorMap:
            return StructPacker(name=TENSOR_MAP, size=BYTES).pack(value)
        _require_memory(value.tensor, self)
        try:
            checked = tiled(value)
        except Mismatch as mismatch:
            raise Mismatch(mismatch.got, _without_copies(mismatch.remedy, self)) from None
        address = addresses(value.tensor, self.label, self.writes)
        return encode(checked, address) if value.tensor.numel() else bytes(BYTES)


def _require_memory(value: Any, packer: Packer) -> None:
    if not isinstance(value, Tensor):
        made = "torch.from_numpy(x)" if isinstance(value, np.ndarray) else "torch.tensor(x)"
        one = (
            ""
            if isinstance(value, (np.ndarray, list, tuple))
            else "; a number goes in a tensor of one element"
        )
        raise Mismatch(describe(value), f"Pass a tensor{one}: {made}.")
    mismatch = memory_fault(value)
    if mismatch is not None:
        raise Mismatch(mismatch.got, _without_copies(mismatch.remedy, packer))


def _require_dtype(tensor: Tensor, element: Element, packer: Packer) -> None:
    if tensor.dtype in element.dtypes:
        return
    wanted = element.dtypes[0]
    if tensor.is_complex() and tensor.dtype.to_real() == wanted:
        raise Mismatch(describe(tensor), "Pass torch.view_as_real(t): the same memory.")
    if same_bits(tensor.dtype, wanted):
        if not (tensor.dtype.is_signed or wanted is torch.bool) or tensor.is_floating_point():
            raise Mismatch(
                describe(tensor), f"Pass t.view({wanted}): the same memory, read as the kernel does."
            )
        remedy = f"Pass t.to({wanted}) for the values, or t.view({wanted}) if it holds the bits."
    elif element.lanes > 1 and (view := _view_as(tensor, wanted)):
        raise Mismatch(
            describe(tensor),
            f"If {element.name} is for moving words, pass {view}: the same memory.\n"
            + _without_copies(f"If the kernel computes with {element.scalar}, pass t.to({wanted}).", packer),
        )
    else:
        remedy = f"Pass t.to({wanted}), or a kernel for {tensor.dtype}."
    raise Mismatch(describe(tensor), _without_copies(remedy, packer))


def _view_as(tensor: Tensor, wanted: torch.dtype) -> str:
    """Return the view of a contiguous tensor's memory in another dtype, as text; "" if there is none."""
    given, size = tensor.dtype.itemsize, wanted.itemsize
    if not tensor.is_contiguous() or tensor.numel() * given % size:
        return ""
    flat = "" if tensor.dim() and tensor.shape[-1] * given % size == 0 else ".view(-1)"
    return f"t{flat}.view({wanted})"


_COPY = re.compile(
    r"t\.(?:(contiguous|to|clone|resolve_conj|resolve_neg)|to_dense|to_padded_tensor|int_repr)\([^()]*\)"
)
"""The calls in remedies that give a copy; by name those whose copy `t.copy_` takes back."""


def _without_copies(remedy: str, packer: Packer, *, overlaps: bool = False) -> str:
    """Return a remedy that loses no result: a copy that the kernel may write is read afterwards.

    Args:
        overlaps: Several elements of the tensor are one in memory, so that torch copies nothing into it.
    """
    copy = _COPY.search(remedy)
    if copy is None or isinstance(packer, ValuePacker) or not (packer.writes and packer.is_written()):
        return remedy
    then = "t.copy_(tmp)" if copy[1] and not overlaps else "take the result from tmp"
    return (
        f"{remedy.replace(copy[0], f'tmp = {copy[0]}', 1)}\n"
        f"After the launch {then}: the kernel may write it, and the result would be lost in the copy."
    )


@dataclass(frozen=True, kw_only=True)
class ListPacker(PointerPacker):
    """Packs a pointer to pointers, structs or tensor maps: a list of their values; or a value for a pointer.

    Attributes:
        item: Packs each of the list.
        is_const: The kernel does not write the array that is made of the list.
    """

    item: Packer
    is_const: bool

    @property
    def takes(self) -> str:
        return f"a list, each item {self.item.takes}; or {super().takes}"

    def place(self, value: Any, to: Placement, label: str) -> bytes:
        is_struct = isinstance(self.item, RecordPacker)
        if is_struct and (type(value) is TensorMap or members_of(value) is not None):
            data = _part(self.item, value, label, to)
        elif isinstance(value, (list, tuple)):
            data = _items(self.item, value, label, to)
        else:
            if isinstance(value, Tensor) and self.element is ADDRESS and value.dtype not in ADDRESS.dtypes:
                raise Mismatch(describe(value), "Pass a list of tensors, of which dotcu makes an array: [t].")
            return self.pack(value, to.addresses, label)
        return (to.store(data, label, not self.is_const) if data else 0).to_bytes(8, "little")


@dataclass(frozen=True, kw_only=True)
class ArrayPacker(StructPacker):
    """Packs an array in a struct: up to as many values as it has elements, then zeros; or its bytes."""

    item: Packer
    length: int

    @property
    def takes(self) -> str:
        return f"a list of up to {self.length}, each item {self.item.takes}"

    def place(self, value: Any, to: Placement, label: str) -> bytes:
        if isinstance(value, ctypes.Array):
            value = _objects_in(value, range(len(value)), operator.getitem)
        elif isinstance(value, np.ndarray):
            value = list(value)
        if not isinstance(value, (list, tuple)):
            return self.pack(value)
        if len(value) > self.length:
            raise Mismatch(f"{len(value)} values", f"Pass at most {self.length}; what is left is zeros.")
        return _items(self.item, value, label, to).ljust(self.size, b"\0")


@dataclass(frozen=True, kw_only=True)
class RecordPacker(StructPacker):
    """Packs a struct: from values for its members, by name, or from its bytes.

    Attributes:
        size: 0 if the layout has to say it.
        layout: Gives the members.
        stores: Tells whether the kernel may store through a tensor map in it; None where there is none.
    """

    layout: Callable[[], TypeLayout] = field(compare=False, repr=False)
    stores: Stores = field(compare=False, repr=False)

    @property
    def takes(self) -> str:
        size = f"its {self.size} bytes" if self.size else "its bytes"
        return f"its members in a dataclass, a dict or a ctypes.Structure, or {size}"

    def place(self, value: Any, to: Placement, label: str) -> bytes:
        if type(value) is TensorMap:
            if self.stores is None or (self.size or self.layout().size) != BYTES:
                raise Mismatch(repr(value), _NO_MAP)
            return MapPacker(label=label, writes=self.stores()).pack(value, to.addresses, to.encode)
        given = members_of(value)
        size, members = self.size or self.layout().size, {} if given is None else self._members
        if given is None:
            return StructPacker(name=self.name, size=size).pack(value)
        if given.keys() != members.keys():
            self._require_names(given, is_padded=isinstance(value, ctypes.Structure))
        for one, other in self._shared if given else ():
            if one in given and other in given:
                raise Mismatch(f"{one} and {other}, which share bytes", "Pass one of them.")
        data = bytearray(size)
        for name, (offset, _, packer) in members.items():
            if name not in given:
                continue
            part = _part(packer, given[name], f"{label}.{name}", to)
            data[offset : offset + len(part)] = part
        return bytes(data)

    @cached_property
    def _members(self) -> dict[str, _Member]:
        for name in self.layout().bit_fields():
            raise Mismatch(
                f"values for a struct whose member {name} is a bit-field",
                "Pass a ctypes.Structure without tensors, or its bytes.",
            )
        rows = self.layout().members()
        return {name: (at, layout, _packer_of(layout, name, self.stores)) for name, at, layout in rows}

    @cached_property
    def _shared(self) -> list[tuple[str, str]]:
        """Pairs of members that have bytes in common, as those of a union."""
        pairs = combinations(self._members.items(), 2)
        return [(name, other) for (name, one), (other, two) in pairs if _overlaps(one, [two])]

    def _require_names(self, given: Mapping[str, Any], *, is_padded: bool) -> None:
        """Refuse names that the struct lacks, and members without a value."""
        members = self._members
        shown = {name: f"{name} ({layout.ctype})" for name, (_, layout, _) in members.items()}
        remedy = f"The members: {', '.join(shown.values())}."
        unknown = [name for name in given if name not in members and not (is_padded and name[:1] == "_")]
        if unknown:
            import difflib

            near = difflib.get_close_matches(unknown[0], members, n=1, cutoff=0.0)
            meant = f"Did you mean {near[0]}? " if near else ""
            raise Mismatch(f"a value for {unknown[0]}, which is no member", meant + remedy)
        known = [members[name] for name in given if name in members]
        missing = [name for name in members if name not in given and not _overlaps(members[name], known)]
        if missing:
            raise Mismatch(f"no value for {', '.join(shown[name] for name in missing)}", remedy)


def _overlaps(member: _Member, others: Iterable[_Member]) -> bool:
    """Return whether one of some members has bytes of this one, as in a union."""
    start, end = member[0], member[0] + member[1].size
    return any(start < at + layout.size and at < end for at, layout, _ in others)


def members_of(value: Any) -> dict[str, Any] | None:
    """Return the values of a struct's members by name; None if a value has no members."""
    if isinstance(value, (Tensor, Strided, Extents, TensorMap)):
        return None
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if isinstance(value, ctypes.Structure) and holds_objects(type(value)):
        bases = [getattr(base, "_fields_", ()) for base in reversed(type(value).__mro__)]
        keys = [one[0] for names in bases for one in names]
        return dict(zip(keys, _objects_in(value, keys, getattr), strict=True))
    return None


def _objects_in(value: Any, keys: Iterable[Any], get: Callable[[Any, Any], Any]) -> list[Any]:
    """Return values in a structure or an array of ctypes; None for a py_object that was not assigned."""
    found = []
    for key in keys:
        try:
            found.append(get(value, key))
        except ValueError:
            found.append(None)
    return found


def _items(packer: Packer, values: Sequence[Any], label: str, to: Placement) -> bytes:
    return b"".join(_part(packer, value, f"{label}[{index}]", to) for index, value in enumerate(values))


def _part(packer: Packer, value: Any, label: str, to: Placement) -> bytes:
    """Pack a part of an argument; what does not fit is named by its place in the argument."""
    try:
        return _packed(packer, value, to, label)
    except Mismatch as mismatch:
        if not mismatch.part:
            mismatch.part, mismatch.takes = label, packer.takes
        raise


def _packed(packer: Packer, value: Any, to: Placement, label: str) -> bytes:
    if isinstance(packer, (RecordPacker, ListPacker, ArrayPacker)):
        return packer.place(value, to, label)
    if isinstance(packer, MapPacker):
        return packer.pack(value, to.addresses, to.encode)
    if isinstance(packer, (PointerPacker, TensorPacker)):
        return packer.pack(value, to.addresses, label)
    return packer.pack(value)


Stores = Callable[[], bool] | None
Packer = PointerPacker | TensorPacker | MapPacker | ValuePacker
_Member = tuple[int, TypeLayout, Packer]
"""A member of a struct: its offset in bytes, its type, and what packs it."""


@dataclass(frozen=True, kw_only=True)
class PackingPlan:
    """The parameters of one kernel, with a packer for each. `str()` gives its declaration."""

    kernel: str
    parameters: tuple[KernelParameter, ...]
    packers: tuple[Packer, ...]

    def __str__(self) -> str:
        name = self.kernel.partition("(")[0] if self.kernel.endswith(")") else self.kernel  # of `k(float*)`
        return f"{name}({', '.join(map(str, self.parameters))})"


def _no_layout(index: int) -> TypeLayout:
    raise Mismatch("values for its members, whose places are not known", "Pass its bytes.")


def packing_plan(
    kernel: str,
    parameters: Sequence[KernelParameter],
    maps: Mapping[int, MapUse] = MappingProxyType({}),
    is_written: Callable[[int], bool] = lambda index: True,
    layouts: Callable[[int], TypeLayout] = _no_layout,
    stores: Callable[[int], bool] = lambda index: True,
    promises: Sequence[Promise] = (),
) -> PackingPlan:
    """Choose a packer for each parameter.

    Args:
        maps: Its use of its tensor maps, by index of their parameter.
        is_written: Tells whether its code may write through the pointer at an index; asked for refusals.
        layouts: Gives the type of a parameter, by its index, as the compiler lays it out.
        stores: Tells whether the kernel may store through tensor maps that are in, or behind, a parameter.
        promises: What a tile kernel assumes of its parameters.
    """
    for index, use in maps.items():
        parameter = parameters[index]
        if use == "copied" and parameter.ctype.name == TENSOR_MAP:
            raise SourceError(
                f"{kernel}: parameter {index + 1}, {parameter}, is copied into each thread's own memory, "
                "where TMA cannot read it.\nA tensor map is read where the launch put it.\n"
                f"Declare it: const __grid_constant__ CUtensorMap {parameter.name or 'map'}"
            )
    _refuse_references(kernel, parameters)
    packers: list[Packer] = []
    for parameter in parameters:
        index, map_use = parameter.index, maps.get(parameter.index)
        if map_use is not None and parameter.ctype.name == TENSOR_MAP:
            packers.append(MapPacker(label=parameter.label, writes=map_use == "stored"))
            continue
        asked: Stores = partial(stores, index)
        if parameter.ctype.kind == "named" and parameter.size == BYTES:
            asked = partial(_stores_through, parameter, map_use) if map_use else None
        packer = _packer(parameter, partial(layouts, index), asked)
        if isinstance(packer, (PointerPacker, TensorPacker)):
            packer = replace(packer, is_written=partial(is_written, index))
        assumed = tuple(promise for promise in promises if promise.parameter == index)
        if assumed and isinstance(packer, (PointerPacker, IntPacker)):
            packer = replace(packer, promised=Promised(assumed))
        packers.append(packer)
    return PackingPlan(kernel=kernel, parameters=tuple(parameters), packers=tuple(packers))


def _refuse_references(kernel: str, parameters: Sequence[KernelParameter]) -> None:
    for parameter in parameters:
        if parameter.ctype.kind == "reference":
            name, value = parameter.name or "value", parameter.ctype.pointee
            raise SourceError(
                f"{kernel}: parameter {parameter.index + 1}, {parameter}, is a reference, which leads to "
                "memory of the host.\nA kernel takes values and pointers.\n"
                f"Declare it: {value} {name}, or {value}* {name}"
            )


def _stores_through(parameter: KernelParameter, use: MapUse) -> bool:
    if use == "copied":
        raise Mismatch(
            "a tensor map for a parameter that is copied into each thread's own memory",
            f"Declare it: const __grid_constant__ {parameter.ctype.name} {parameter.name or 'map'}",
        )
    return use == "stored"


def _packer(parameter: KernelParameter, layout: Callable[[], TypeLayout], stores: Stores) -> Packer:
    """Choose the packer of a parameter, or of a member of a struct.

    Args:
        parameter: Its name is that by which findings call what it leads to.
        layout: Gives its type as the compiler lays it out.
        stores: As in `RecordPacker`.
    """
    ctype, label = parameter.ctype, parameter.label
    if ctype.kind == "pointer" and ctype.pointee.kind != "function":
        target = ctype.pointee
        while target.kind == "array":
            target = target.pointee
        element = ADDRESS if target.kind == "pointer" else ELEMENTS.get(target.name)
        pointer = PointerPacker(element=element, label=label, writes=not target.const)
        is_struct = target.kind == "named" and element is None
        if target is not ctype.pointee or not (is_struct or target.kind == "pointer"):
            return pointer
        size = 8 if target.kind == "pointer" else BYTES if target.name == TENSOR_MAP else 0
        pointee = replace(parameter, name=label, ctype=target, size=size, ptx_type="b8")
        item = _packer(pointee, lambda: layout().target, stores)
        return ListPacker(**vars(pointer), item=item, is_const=target.const)
    if ctype.kind == "array":
        inner = layout().target
        item = _packer_of(inner, label, stores)
        size = ctype.length * inner.size
        return ArrayPacker(name=label, size=size, item=item, length=ctype.length)
    if ctype.name in (*ACCESSORS, TENSOR_INFO) and len(ctype.arguments) >= 2:
        scalar, rank = ctype.arguments[:2]
        element = ELEMENTS.get(scalar.name) if isinstance(scalar, CType) else None
        if isinstance(scalar, CType) and element is not None and element.lanes == 1:
            about: Any = {"element": element, "label": label, "writes": not scalar.const}
            if isinstance(rank, int) and parameter.size == 8 + 16 * rank:
                return TensorPacker(rank=rank, **about)
            index = {216: "i", 416: "q"}.get(parameter.size)
            if ctype.name == TENSOR_INFO and index:
                return TensorPacker(rank=25, index=index, **about)
    packer = value_packer(parameter)
    if type(packer) is StructPacker and packer.lane is None and ctype.kind == "named":
        return RecordPacker(name=packer.name, size=packer.size, layout=layout, stores=stores)
    return packer


def _packer_of(layout: TypeLayout, label: str, stores: Stores) -> Packer:
    parameter = KernelParameter(
        index=0, name=label, ctype=layout.ctype, size=layout.size, ptx_type=layout.ptx_type
    )
    return _packer(parameter, lambda: layout, stores)


MAX_NESTED = 100


def tensors_in(args: Iterable[Any], depth: int = 0) -> list[Tensor]:
    """Return the tensors among the arguments, and those in their lists, structs and tensor maps."""
    if depth > MAX_NESTED:
        raise ArgumentError(f"An argument is nested more than {MAX_NESTED} deep.\nDoes it hold itself?")
    found: list[Tensor] = []
    for value in args:
        if isinstance(value, Tensor):
            found.append(value)
        elif type(value) in (Strided, Extents, TensorMap):
            found += tensors_in([value.tensor])
        elif type(value) not in _NUMBERS:
            members = members_of(value)
            if members is not None:
                found += tensors_in(members.values(), depth + 1)
            elif isinstance(value, (list, tuple)):
                found += tensors_in(value, depth + 1)
            elif isinstance(value, ctypes.Array) and holds_objects(type(value)):
                found += tensors_in(_objects_in(value, range(len(value)), operator.getitem), depth + 1)
    return found


_NUMBERS = (int, float, bool, bytes, type(None))


def expanded(
    args: Sequence[Any], dimensions: Callable[[Strided | Extents], Iterable[Any]] = _dimensions
) -> list[Any]:
    """Return the arguments with the strides, or the sizes, of each wrapped tensor after it."""
    values: list[Any] = []
    for value in args:
        values.append(value)
        if type(value) in WRAPPED:
            if not isinstance(value.tensor, Tensor):
                name = type(value).__name__.lower()
                raise ArgumentError(f"dotcu.{name} takes a tensor, got {describe(value.tensor)}.")
            values.extend(dimensions(value))
    return values


def require_one_device(plan: PackingPlan, args: Sequence[Any], tensors: Sequence[Tensor]) -> None:
    """Refuse tensors of several devices."""
    for tensor in tensors[1:]:
        device, parameters = tensors[0].device, plan.parameters
        if tensor.device != device:
            values = enumerate(expanded(args))
            position = next(i for i, value in values if any(one is tensor for one in tensors_in([value])))
            where = f"{parameters[position]}" if position < len(parameters) else f"argument {position + 1}"
            remedy = f'All tensors of a launch must be on one device: pass t.to("{device}").'
            if position < len(parameters):
                remedy = _without_copies(remedy, _innermost(plan.packers[position]))
            raise ArgumentError(
                f"{plan.kernel}: {where} is on {tensor.device}, and the tensors before it on "
                f"{device}.\n{remedy}"
            )


def _innermost(packer: Packer) -> Packer:
    return _innermost(packer.item) if isinstance(packer, ListPacker) else packer


def pack(
    plan: PackingPlan, args: Sequence[Any], placement: Placement
) -> tuple[tuple[bytes, ...], tuple[Tensor, ...]]:
    """Check every argument, and return the bytes of each parameter, and the tensors that may be written.

    Args:
        placement: Asked once for each tensor, after its checks, and for each tensor map and list.
    """
    values = args
    if any(type(value) in WRAPPED for value in args):
        values = expanded(args)
        _refuse_strides(plan, values)
    wanted = plan.parameters
    if len(values) != len(wanted):
        missing = map(str, wanted[len(values) :])
        left = map("".join, zip(map(describe, values), _origins(args), strict=True))
        difference = (
            f"Left over: {', '.join([*left][len(wanted) :])}"
            if len(values) > len(wanted)
            else f"Missing: {', '.join(missing)}"
        )
        raise ArgumentError(
            f"{plan.kernel} takes {len(wanted)} arguments, got {len(values)}.\n{difference}.\n"
            f"It is declared as {plan}; {_counted(args)}."
        )
    packed: list[bytes] = []
    written: list[Tensor] = []

    def address(tensor: Tensor, name: str, writes: bool) -> int:
        if writes:
            written.append(tensor)
        return placement.addresses(tensor, name, writes)

    to = placement._replace(addresses=address)
    for parameter, packer, value in zip(plan.parameters, plan.packers, values, strict=True):
        try:
            packed.append(_packed(packer, value, to, parameter.label))
        except Mismatch as mismatch:
            mismatch.got += _origins(args)[parameter.index]
            raise _refusal(plan, parameter, value, mismatch) from None
    return tuple(packed), tuple(written)


def _origins(args: Sequence[Any]) -> list[str]:
    """Return for each value of `expanded` the words by which messages call it a stride or a size."""
    found: list[str] = []
    for value in args:
        found.append("")
        if type(value) in WRAPPED:
            what = "a stride of a dotcu.strided" if type(value) is Strided else "a size of a dotcu.extents"
            found += [f", {what} tensor"] * value.tensor.dim()
    return found


def _counted(args: Sequence[Any]) -> str:
    """Say how many arguments each tensor stands for that is passed with its strides or sizes."""
    told = []
    for value in args:
        if type(value) in WRAPPED:
            name, numbers = type(value).__name__.lower(), "strides" if type(value) is Strided else "sizes"
            count = value.tensor.dim()
            told.append(
                f"dotcu.{name} of {describe(value.tensor)} counts as a pointer and its {count} {numbers}"
            )
    return ", ".join(told) or (
        "dotcu.strided(t) counts as a pointer and its strides, dotcu.extents(t) as a pointer and its sizes"
    )


def _refuse_strides(plan: PackingPlan, values: Sequence[Any]) -> None:
    """Refuse strides for a parameter that has its own, before they are counted as arguments."""
    for parameter, packer, value in zip(plan.parameters, plan.packers, values, strict=False):
        if type(value) in WRAPPED and isinstance(packer, TensorPacker):
            name = type(value).__name__.lower()
            mismatch = Mismatch(f"dotcu.{name}(t)", f"Pass t itself: {TENSOR} has its sizes and strides.")
            raise _refusal(plan, parameter, value, mismatch)


def _refusal(plan: PackingPlan, parameter: KernelParameter, value: Any, mismatch: Mismatch) -> ArgumentError:
    packer = plan.packers[parameter.index]
    if type(value) is TensorMap and not isinstance(packer, (MapPacker, RecordPacker)) and not mismatch.part:
        mismatch = Mismatch(repr(value), _NO_MAP)
    part = f": {mismatch.part}" if mismatch.part else ""
    return ArgumentError(
        f"{plan.kernel}: parameter {parameter.index + 1}, {parameter}{part}, takes "
        f"{mismatch.takes or packer.takes}, got {mismatch.got}.\n{mismatch.remedy}"
    )


_NO_MAP = "Pass the tensor itself, or declare the parameter const __grid_constant__ CUtensorMap."
