"""Python values -> checked, packed parameters.

A `PackingPlan` is made once for each instantiation of a kernel; `pack()` follows it at every launch. An
`Addresses` function gives the address of a tensor, so the GPU and the simulator share every check.

Only plain memory has a pointer. Conj and neg bits, zero tensors, sparse and quantized layouts, functorch's
wrappers and functional tensors each have a dispatch key, so one look-up in a set of known key sets clears the
usual tensor.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor

from dotcu.errors import ArgumentError, SourceError
from dotcu.kernel.arguments.signature import CType, KernelParameter
from dotcu.kernel.arguments.tensor_map import BYTES, TensorMap, Tiled, tiled
from dotcu.kernel.arguments.values import (
    ADDRESS,
    ELEMENTS,
    Element,
    Mismatch,
    StructPacker,
    ValuePacker,
    describe,
    dtype_names,
    same_bits,
    value_packer,
)

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


class _Stride(int):
    """A stride among the arguments; messages name it as one."""

    def __repr__(self) -> str:
        return f"{int(self)}, a stride of a dotcu.strided tensor"


Addresses = Callable[[Tensor, str, bool], int]
"""(tensor, parameter's name, whether the kernel may write it) -> the address that the kernel gets."""

Encode = Callable[[Tiled, int], bytes]
"""(checked tensor map, address of its tensor) -> what the kernel's instructions take for it."""


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
        _require_memory(tensor, self)
        if self.element is not None:
            _require_dtype(tensor, self.element, self)
            alignment = self.element.alignment
            off = tensor.data_ptr() % alignment
            if off:
                remedy = (
                    f"Ask dotcu.is_aligned(t, {alignment}) and take a kernel for {self.element.scalar}* "
                    "where it is not, or pass t.clone()."
                )
                raise Mismatch(
                    f"{describe(tensor)} that starts {off} bytes past an address divisible by {alignment}",
                    _without_copies(remedy, self, tensor),
                )
        if not any_layout and not tensor.is_contiguous():
            remedy = "Pass t.contiguous(), or dotcu.strided(t) to a kernel that takes strides."
            raise Mismatch(
                f"{describe(tensor)} with strides {tensor.stride()}", _without_copies(remedy, self, tensor)
            )
        return addresses(tensor, self.label, self.writes).to_bytes(8, "little")


@dataclass(frozen=True, kw_only=True)
class TensorPacker:
    """Packs a `dotcu::tensor<T, rank>` or PyTorch's accessor: a tensor of its dtype and rank, strided or not.

    Layout: `T* data; long long sizes[rank]; long long strides[rank];`, strides in elements.
    """

    element: Element
    rank: int
    label: str
    writes: bool
    is_written: Callable[[], bool] = field(default=lambda: True, compare=False, repr=False)

    @property
    def takes(self) -> str:
        return (
            f"a {dtype_names(self.element.dtypes)} tensor of {self.rank} dimensions, strided or not, or None"
        )

    def pack(self, value: Any, addresses: Addresses) -> bytes:
        if value is None:
            return bytes(8 + 16 * self.rank)
        _require_memory(value, self)
        _require_dtype(value, self.element, self)
        if value.dim() != self.rank:
            remedy = f"Reshape it to {self.rank} dimensions, or instantiate the kernel for {value.dim()}."
            raise Mismatch(describe(value), remedy)
        address = addresses(value, self.label, self.writes)
        return struct.pack(f"<Q{2 * self.rank}q", address, *value.shape, *value.stride())


@dataclass(frozen=True, kw_only=True)
class TensorInfoPacker(TensorPacker):
    """Packs PyTorch's `TensorInfo<T, index>`: a tensor of up to 25 dimensions, its `rank`, strided or not.

    Layout: `T* data; index sizes[25]; index strides[25]; int dims;`.

    Attributes:
        index: The type of sizes and strides, as `struct` writes it.
    """

    index: str
    rank: int = 25

    @property
    def takes(self) -> str:
        return super().takes.replace("of 25", "of up to 25")

    def pack(self, value: Any, addresses: Addresses) -> bytes:
        size = struct.calcsize(self.index)
        if value is None:
            return bytes(16 + 2 * size * self.rank)
        _require_memory(value, self)
        _require_dtype(value, self.element, self)
        if value.dim() > self.rank:
            raise Mismatch(describe(value), "Reshape it to 25 dimensions.")
        if max((0, *value.shape, *value.stride())) >= 2 ** (8 * size - 1):
            raise Mismatch(describe(value), "Instantiate the kernel for indices of 64 bits.")
        address = addresses(value, self.label, self.writes)
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
            raise Mismatch(mismatch.got, _without_copies(mismatch.remedy, self, value.tensor)) from None
        address = addresses(value.tensor, self.label, self.writes)
        return encode(checked, address) if value.tensor.numel() else bytes(BYTES)


def _require_memory(value: Any, packer: Packer) -> None:
    if not isinstance(value, Tensor):
        raise Mismatch(describe(value), "Pass a tensor; a number goes in a tensor of one element.")
    if not is_plain(value):
        mismatch = memory_fault(value)
        if mismatch is not None:
            raise Mismatch(mismatch.got, _without_copies(mismatch.remedy, packer, value))


def _require_dtype(tensor: Tensor, element: Element, packer: Packer) -> None:
    if tensor.dtype in element.dtypes:
        return
    wanted = element.dtypes[0]
    if tensor.is_complex() and tensor.dtype.to_real() == wanted:
        raise Mismatch(describe(tensor), "Pass torch.view_as_real(t): the same memory.")
    if same_bits(tensor.dtype, wanted):
        raise Mismatch(describe(tensor), f"Pass t.view({wanted}): the same memory, read as the kernel does.")
    remedy = f"Pass t.to({wanted}), or a kernel for {tensor.dtype}."
    raise Mismatch(describe(tensor), _without_copies(remedy, packer, tensor))


_COPY = re.compile(
    r"t\.(?:contiguous|to|clone|to_dense|to_padded_tensor|resolve_conj|resolve_neg|int_repr)\([^()]*\)"
)
"""The calls in remedies that give a copy."""


def _without_copies(remedy: str, packer: Packer, tensor: Tensor, device: object = None) -> str:
    """Return a remedy that loses no result: where the kernel may write, a new tensor instead of a copy."""
    if isinstance(packer, ValuePacker) or not (
        packer.writes and _COPY.search(remedy) and packer.is_written()
    ):
        return remedy
    element = None if isinstance(packer, MapPacker) else packer.element
    dtype = tensor.dtype if element is None or tensor.dtype in element.dtypes else element.dtypes[0]
    shape = "SHAPE" if tensor.is_nested else tuple(tensor.shape)
    place = str(device or tensor.device)
    fitting = f'an output that fits, tmp = torch.empty({shape}, dtype={dtype}, device="{place}")'
    return (
        f"{_COPY.sub(lambda _: fitting, remedy)}\nThe kernel may write it, and what it writes to a copy of t "
        "is lost, unless t.copy_(tmp) follows the launch."
    )


Packer = PointerPacker | TensorPacker | MapPacker | ValuePacker


@dataclass(frozen=True, kw_only=True)
class PackingPlan:
    """The parameters of one kernel, with a packer for each. `str()` gives its declaration."""

    kernel: str
    parameters: tuple[KernelParameter, ...]
    packers: tuple[Packer, ...]

    def __str__(self) -> str:
        return f"{self.kernel}({', '.join(map(str, self.parameters))})"


def is_map(parameter: KernelParameter) -> bool:
    """Return whether a parameter is a tensor map by value."""
    return parameter.ctype.kind == "named" and parameter.ctype.name == TENSOR_MAP


def packing_plan(
    kernel: str,
    parameters: Sequence[KernelParameter],
    maps: Mapping[int, MapUse] = MappingProxyType({}),
    is_written: Callable[[int], bool] = lambda index: True,
) -> PackingPlan:
    """Choose a packer for each parameter.

    Args:
        kernel, parameters: The kernel's name and parameters.
        maps: Its use of its tensor maps, by index of their parameter.
        is_written: Tells whether its code may write through the pointer at an index; asked for refusals.
    """
    for index, use in maps.items():
        if use == "copied":
            parameter = parameters[index]
            raise SourceError(
                f"{kernel}: parameter {index + 1}, {parameter}, is copied into each thread's own memory, "
                "where TMA cannot read it.\nA tensor map is read where the launch put it.\n"
                f"Declare it: const __grid_constant__ CUtensorMap {parameter.name or 'map'}"
            )
    packers = tuple(
        replace(packer, is_written=partial(is_written, index))
        if isinstance(packer, (PointerPacker, TensorPacker))
        else packer
        for index, packer in enumerate(_packer(parameter, maps) for parameter in parameters)
    )
    return PackingPlan(kernel=kernel, parameters=tuple(parameters), packers=packers)


def _packer(parameter: KernelParameter, maps: Mapping[int, MapUse]) -> Packer:
    ctype = parameter.ctype
    if parameter.index in maps:
        return MapPacker(label=parameter.label, writes=maps[parameter.index] == "stored")
    if ctype.kind == "pointer" and ctype.pointee.kind != "function":
        target = ctype.pointee
        while target.kind == "array":
            target = target.pointee
        element = ADDRESS if target.kind == "pointer" else ELEMENTS.get(target.name)
        return PointerPacker(element=element, label=parameter.label, writes=not target.const)
    if ctype.name in (*ACCESSORS, TENSOR_INFO) and len(ctype.arguments) >= 2:
        scalar, rank = ctype.arguments[:2]
        element = ELEMENTS.get(scalar.name) if isinstance(scalar, CType) else None
        if isinstance(scalar, CType) and element is not None and element.lanes == 1:
            about: Any = {"element": element, "label": parameter.label, "writes": not scalar.const}
            if isinstance(rank, int) and parameter.size == 8 + 16 * rank:
                return TensorPacker(rank=rank, **about)
            index = {216: "i", 416: "q"}.get(parameter.size)
            if ctype.name == TENSOR_INFO and index:
                return TensorInfoPacker(index=index, **about)
    return value_packer(parameter)


def tensors_in(args: Sequence[Any]) -> list[Tensor]:
    """Return the tensors among the arguments, those in `strided` and `tensor_map` included."""
    return [value for value in map(_tensor_of, args) if isinstance(value, Tensor)]


def _tensor_of(value: Any) -> Any:
    return value.tensor if type(value) in (Strided, TensorMap) else value


def expanded(
    args: Sequence[Any], strides: Callable[[Tensor], Iterable[Any]] = lambda t: map(_Stride, t.stride())
) -> list[Any]:
    """Return the arguments with the strides of each `strided` tensor after it."""
    values: list[Any] = []
    for value in args:
        values.append(value)
        if type(value) is Strided:
            if not isinstance(value.tensor, Tensor):
                raise ArgumentError(f"dotcu.strided takes a tensor, got {describe(value.tensor)}.")
            values.extend(strides(value.tensor))
    return values


def require_one_device(plan: PackingPlan, args: Sequence[Any], tensors: Sequence[Tensor]) -> None:
    """Refuse tensors of several devices.

    Args:
        plan, args, tensors: The kernel's plan, the arguments, and the tensors among them.
    """
    for tensor in tensors[1:]:
        device, parameters = tensors[0].device, plan.parameters
        if tensor.device != device:
            position = next(i for i, value in enumerate(expanded(args)) if _tensor_of(value) is tensor)
            where = f"{parameters[position]}" if position < len(parameters) else f"argument {position + 1}"
            remedy = f'All tensors of a launch must be on one device: pass t.to("{device}").'
            if position < len(parameters):
                remedy = _without_copies(remedy, plan.packers[position], tensor, device)
            raise ArgumentError(
                f"{plan.kernel}: {where} is on {tensor.device}, and the tensors before it on "
                f"{device}.\n{remedy}"
            )


def pack(
    plan: PackingPlan, args: Sequence[Any], addresses: Addresses, encode: Encode
) -> tuple[tuple[bytes, ...], tuple[Tensor, ...]]:
    """Check every argument, and return the bytes of each parameter, and the tensors that may be written.

    Args:
        plan, args: The kernel's, and its arguments; a `strided` tensor stands for several.
        addresses, encode: Called once for each tensor, after its checks, and for each tensor map.
    """
    values = args
    if any(type(value) is Strided for value in args):
        values = expanded(args)
        _refuse_strides(plan, values)
    wanted = plan.parameters
    if len(values) != len(wanted):
        missing, left = map(str, wanted[len(values) :]), map(describe, values[len(wanted) :])
        difference = (
            f"Left over: {', '.join(left)}" if len(values) > len(wanted) else f"Missing: {', '.join(missing)}"
        )
        raise ArgumentError(
            f"{plan.kernel} takes {len(wanted)} arguments, got {len(values)}.\n{difference}.\n"
            f"It is declared as {plan}; dotcu.strided(t) counts as a pointer and its strides."
        )
    packed: list[bytes] = []
    written: list[Tensor] = []
    for parameter, packer, value in zip(plan.parameters, plan.packers, values, strict=True):
        try:
            if isinstance(packer, MapPacker):
                packed.append(packer.pack(value, addresses, encode))
            elif isinstance(packer, (PointerPacker, TensorPacker)):
                packed.append(packer.pack(value, addresses))
            else:
                packed.append(packer.pack(value))
                continue
        except Mismatch as mismatch:
            raise _refusal(plan, parameter, value, mismatch) from None
        tensor = _tensor_of(value)
        if packer.writes and isinstance(tensor, Tensor):
            written.append(tensor)
    return tuple(packed), tuple(written)


def _refuse_strides(plan: PackingPlan, values: Sequence[Any]) -> None:
    """Refuse strides for a parameter that has its own, before they are counted as arguments."""
    for parameter, packer, value in zip(plan.parameters, plan.packers, values, strict=False):
        if type(value) is Strided and isinstance(packer, TensorPacker):
            mismatch = Mismatch("dotcu.strided(t)", f"Pass t itself: {TENSOR} has its strides.")
            raise _refusal(plan, parameter, value, mismatch)


def _refusal(plan: PackingPlan, parameter: KernelParameter, value: Any, mismatch: Mismatch) -> ArgumentError:
    packer = plan.packers[parameter.index]
    if type(value) is TensorMap and not isinstance(packer, MapPacker):
        remedy = "Pass the tensor itself, or declare the parameter const __grid_constant__ CUtensorMap."
        mismatch = Mismatch(repr(value), remedy)
    return ArgumentError(
        f"{plan.kernel}: parameter {parameter.index + 1}, {parameter}, takes {packer.takes}, "
        f"got {mismatch.got}.\n{mismatch.remedy}"
    )


_MEMORY_TYPES = (Tensor, torch.nn.Parameter)
_plain: set[int] = set()

_Key = torch._C.DispatchKey
_WRAPPED = (
    (_Key.FuncTorchBatched, "a tensor that torch.vmap batches"),
    (_Key.FuncTorchGradWrapper, "a tensor that torch.func differentiates"),
    (_Key.Functionalize, "a functional tensor"),
)


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor is memory of its own dtype and shape, which nothing but autograd observes."""
    if type(tensor) not in _MEMORY_TYPES:
        return False
    keys = torch._C._dispatch_keys(tensor).raw_repr()
    if keys in _plain:
        return True
    if trace_wrapper(tensor) is not None or memory_fault(tensor) is not None:
        return False
    _plain.add(keys)
    return True


def trace_wrapper(tensor: Tensor) -> str | None:
    """Name what traces or transforms this tensor, so that a launch would be lost; None if nothing does."""
    name = type(tensor).__name__
    if name in ("FakeTensor", "FunctionalTensor"):
        return f"a {name}"
    keys = torch._C._dispatch_keys(tensor)
    return next((what for key, what in _WRAPPED if keys.has(key)), None)


_FAULTS: tuple[tuple[Callable[[Tensor], bool], str, str], ...] = (
    (
        lambda t: type(t) not in _MEMORY_TYPES,
        "of type {type}, a subclass",
        "Pass the plain tensor inside it, or t.as_subclass(torch.Tensor) if the subclass adds no meaning.",
    ),
    (lambda t: t.is_meta, "without memory", 'Make it on a device: torch.empty_like(t, device="cuda").'),
    (lambda t: t.is_quantized, "quantized", "Pass t.int_repr()."),
    (lambda t: t.layout is not torch.strided, "of layout {layout}", "Pass t.to_dense()."),
    (lambda t: t.is_nested, "nested", "Pass t.to_padded_tensor(0.0), or its values and offsets."),
    (lambda t: t.is_conj(), "with a conj bit: its memory is not yet conjugated", "Pass t.resolve_conj()."),
    (lambda t: t.is_neg(), "with a neg bit: its memory is not yet negated", "Pass t.resolve_neg()."),
    (lambda t: t._is_zerotensor(), "that is a ZeroTensor, without memory", "Pass t.clone()."),
    (
        lambda t: t.device.type not in ("cpu", "cuda"),
        "on {device}",
        'Make it on device="cuda", or on "cpu" to simulate.',
    ),
)


def memory_fault(tensor: Tensor) -> Mismatch | None:
    """Return why no pointer to this tensor's elements can be passed, None if it can."""
    for holds, what, remedy in _FAULTS:
        if holds(tensor):
            text = what.format(type=type(tensor).__name__, layout=tensor.layout, device=tensor.device)
            return Mismatch(f"{describe(tensor)}, {text}", remedy)
    return None


def count_writes(written: Sequence[Tensor]) -> None:
    """Bump the version counter of each tensor; those of inference mode have none."""
    counted = [tensor for tensor in written if not tensor.is_inference()]
    if counted:
        torch.autograd.graph.increment_version(counted)
