"""Memory that shows invalid accesses: guarded copies of inputs, and poison in what a body allocates.

A guarded tensor is in a buffer of its own, between two bands, with the same strides and the same
misalignment. The bytes around its elements, in the bands and in the gaps between rows, must not change.

A body that runs under `poisoning` gets memory from `torch.empty` and its like whose every byte is a
pattern: what it leaves unwritten shows, where two patterns give two results. On a GPU that memory has bands
too; on the CPU the simulator watches its edges.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from dotcu.errors import BodyError
from dotcu.kernel.arguments.memory import extent, is_plain
from dotcu.kernel.simulated_memory import ALLOCATE, OperatorMode
from dotcu.operator import Sample
from dotcu.operator.execution import around_bodies

BAND_BYTES = 512
"""The size of each band: a multiple of the alignment of torch's allocators, which is thereby kept."""

NAN_BYTE, OTHER_BYTE = 0xFF, 0x5A
"""Two patterns. The first makes NaN of every floating-point type."""

_BAND_BYTE = 0xC3


@dataclass(frozen=True, kw_only=True)
class GuardedTensor:
    """A tensor between two bands.

    Attributes:
        before: The bytes of the buffer when it was made.
        version: How often torch had counted a write of the tensor then.
    """

    tensor: Tensor
    buffer: Tensor
    before: Tensor
    version: int

    def changed(self) -> tuple[bool, bool]:
        """Return whether a byte of the tensor's elements has changed, and whether one around them."""
        if torch.equal(self.buffer, self.before):
            return False, False
        differs = self.buffer != self.before
        inside = torch.zeros_like(differs)
        _elements(inside, self.tensor).fill_(True)
        return bool((differs & inside).any()), bool((differs & ~inside).any())


def mapped(sample: Sample, change: Callable[[Tensor], Tensor]) -> Sample:
    """The same call with every tensor changed, where a tensor that is given twice stays one."""
    changed: dict[int, Tensor] = {}

    def once(tensor: Tensor) -> Tensor:
        if id(tensor) not in changed:
            changed[id(tensor)] = change(tensor).detach()
        return changed[id(tensor)]

    return sample.map_tensors(once)


def fresh(sample: Sample) -> Sample:
    """The same call in new memory: same values, strides and misalignment. One tensor stays one tensor."""
    return mapped(sample, lambda tensor: _copied(tensor)[0])


def guard(sample: Sample, poison: Mapping[str, int] | None = None) -> tuple[Sample, list[GuardedTensor]]:
    """The same call on guarded tensors, which require no gradient.

    Args:
        poison: The arguments by keyword whose elements are to be a byte's pattern instead, unless the
            call has the same tensor in another place too, and so may read it.
    """
    uses = Counter(map(id, sample.tensors))
    named = {id(sample.kwargs.get(name)): byte for name, byte in (poison or {}).items()}
    buffers: list[Tensor] = []

    def place(tensor: Tensor) -> Tensor:
        byte = named.get(id(tensor)) if uses[id(tensor)] == 1 else None
        copy, buffer = _copied(tensor) if byte is None else _placed(tensor)
        if byte is not None and copy.numel():
            _elements(buffer, copy).fill_(byte)
        buffers.append(buffer)
        return copy

    placed = mapped(sample, place)
    unique = {id(tensor): tensor for tensor in placed.tensors}.values()
    return placed, [
        GuardedTensor(tensor=tensor, buffer=buffer, before=buffer.clone(), version=tensor._version)
        for tensor, buffer in zip(unique, buffers, strict=True)
    ]


def _copied(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """The same elements in memory as `_placed` gives it."""
    copy, buffer = _placed(tensor)
    without_repeats(copy).copy_(without_repeats(_plain(tensor)))
    return copy, buffer


def _placed(like: Tensor) -> tuple[Tensor, Tensor]:
    """A tensor whose elements are yet to be written, with another's layout, and its buffer of bytes."""
    plain = _plain(like)
    return _between_bands(plain, int(plain.storage_offset()) * plain.itemsize % BAND_BYTES)


def _between_bands(like: Tensor, skip: int = 0) -> tuple[Tensor, Tensor]:
    """A tensor in another's layout, some bytes behind the first of two bands, and the buffer of all."""
    size = BAND_BYTES + skip + extent(like) * like.itemsize
    length = -(-size // 16) * 16 + BAND_BYTES
    buffer = torch.full((length,), _BAND_BYTE, dtype=torch.uint8, device=like.device)
    at = (BAND_BYTES + skip) // like.itemsize
    tensor = torch.empty(0, dtype=like.dtype, device=like.device)
    return tensor.set_(buffer.untyped_storage(), at, like.shape, like.stride()), buffer


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().resolve_conj().resolve_neg()


def without_repeats(tensor: Tensor) -> Tensor:
    """Each element once: a dimension of stride 0 has one."""
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor


def _elements(of_bytes: Tensor, like: Tensor) -> Tensor:
    """The bytes of a tensor's elements, in a flat tensor with an item for each byte of its memory."""
    size = like.itemsize
    strides = [stride * size for stride in like.stride()]
    return of_bytes.as_strided((*like.shape, size), (*strides, 1), like.storage_offset() * size)


PoisonedBuffers = list[tuple[Tensor, int]]
"""The memory that bodies allocated under `poisoning`, with its bands, and its size without them."""


def writes_outside(allocated: PoisonedBuffers) -> Iterator[str]:
    """Say where bands were written to."""
    for buffer, size in allocated:
        bands = {"before": buffer[:BAND_BYTES].flip(0), "after": buffer[BAND_BYTES + size :]}
        for side, band in bands.items():
            (damaged,) = (band != _BAND_BYTE).nonzero(as_tuple=True)
            if damaged.numel():
                nearest = int(damaged[0]) + 1
                yield f"{damaged.numel()} bytes {side} {size} allocated ones, the nearest {nearest} off"


@contextmanager
def poisoning(byte: int, native: Any = None, *, simulated: bool = False) -> Iterator[PoisonedBuffers]:
    """Fill what the bodies of operators allocate with a byte, until the block ends.

    Args:
        native: An OpOverload that a library computes. What that allocates of torch is filled as well.
        simulated: Its kernels run in the simulator, which watches the edges.
    """
    allocated: PoisonedBuffers = []
    in_library = _poison_native(
        native, _poison(byte, allocated, banded=("cuda",) if simulated else ("cpu", "cuda"))
    )
    with around_bodies(lambda: _poison(byte, allocated)), in_library if native else nullcontext():
        yield allocated


def _poison_native(operator: Any, poison: OperatorMode) -> OperatorMode:
    """Poison what a library allocates in its kernel for one operator."""

    def handle(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        places = {tensor.device.type if type(tensor) is Tensor else "" for tensor in tensors}
        if func is not operator or places not in ({"cpu"}, {"cuda"}):  # or not plain ones of one device
            return func(*args, **kwargs)
        key = torch._C.DispatchKey.CPU if places == {"cpu"} else torch._C.DispatchKey.CUDA
        with poison:  # called through the dispatcher again, it would come back here
            return func.redispatch(torch._C.DispatchKeySet(key), *args, **kwargs)

    return OperatorMode(handle)


def _poison(byte: int, allocated: PoisonedBuffers, *, banded: Sequence[str] = ("cuda",)) -> OperatorMode:
    def handle(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if not isinstance(func, torch._ops.OpOverload) or func.overloadpacket not in ALLOCATE:
            return result
        if type(result) is not Tensor or "out" in kwargs:
            return result
        size = result.untyped_storage().nbytes()
        if result.device.type in banded:
            inner, buffer = _between_bands(result)
            buffer[BAND_BYTES : BAND_BYTES + size].fill_(byte)
            allocated.append((buffer, size))
            return inner
        if result.device.type == "cpu":  # past the dispatcher: for the simulator it stays unwritten
            ctypes.memset(result.untyped_storage().data_ptr(), byte, size)
        return result

    return OperatorMode(handle)


def bits(tensor: Tensor) -> Tensor:
    """A tensor's elements as rows of bytes, `[numel, itemsize]`."""
    flat = _as_stored(tensor).contiguous().as_strided((tensor.numel(),), (1,))
    return flat.view(torch.uint8).view(-1, tensor.itemsize)


def snapshot(tensor: Tensor) -> Tensor:
    """A copy to the bit, with its strides where they leave no gaps."""
    return _as_stored(tensor).clone().view(tensor.dtype)


def _as_stored(tensor: Tensor) -> Tensor:
    """Return a view that copies keep to the bit: a bool that is neither 0 nor 1 would become one of them."""
    plain = _plain(tensor)
    return plain.view(torch.uint8) if plain.dtype is torch.bool else plain


def same_bits(a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    """Return whether tensors have the same shapes, dtypes and bits."""
    return [(t.shape, t.dtype) for t in a] == [(t.shape, t.dtype) for t in b] and all(
        torch.equal(bits(x), bits(y)) for x, y in zip(a, b, strict=True)
    )


def span(tensor: Tensor) -> range:
    """The addresses from a tensor's first byte to its last."""
    start = tensor.data_ptr()
    return range(start, start + extent(tensor) * tensor.itemsize)


def meet(a: range, b: range) -> bool:
    """Return whether two spans have an address in common."""
    return max(a.start, b.start) < min(a.stop, b.stop)


def opaque(tensors: Sequence[Tensor], device: torch.device) -> list[str]:
    """Name the outputs that are not plain tensors on the device, with the reason."""
    reasons = []
    for i, tensor in enumerate(tensors):
        if type(tensor) is not Tensor:
            reasons.append(f"output {i} is a {type(tensor).__name__}, not a torch.Tensor")
        elif tensor.device.type != device.type:
            reasons.append(f"output {i} is on {tensor.device}, its inputs on {device}")
        elif tensor.layout is not torch.strided:
            reasons.append(f"output {i} has the layout {tensor.layout}, not torch.strided")
    return reasons


def require_memory(tensors: Sequence[Tensor]) -> None:
    """Refuse outputs whose memory is smaller than their shape needs: reading one ends the process.

    Raises:
        BodyError: There is one.
    """
    for i, tensor in enumerate(tensors):
        if not is_plain(tensor) or tensor.numel() == 0:
            continue
        needed = (tensor.storage_offset() + extent(tensor)) * tensor.itemsize
        held = tensor.untyped_storage().nbytes()
        if held < needed:
            raise BodyError(
                f"output {i} needs {needed} bytes of memory, and has {held}.\n"
                "An operator's result has memory for each element: return what torch.empty gave."
            )


def shared(tensors: Sequence[Tensor], taken: Sequence[tuple[range, str]]) -> Iterator[str]:
    """Name the outputs that share memory with other tensors, or among their own elements.

    Args:
        taken: Spans of addresses, and whose they are.
    """
    owned = list(taken)
    for i, tensor in enumerate(tensors):
        still = any(n > 1 and stride == 0 for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
        if tensor.numel() > 0 and (still or extent(tensor) < tensor.numel()):
            yield f"output {i} has elements that share memory: its strides are {list(tensor.stride())}"
        others = (owner for area, owner in owned if meet(area, span(tensor)))
        yield from (f"output {i} is memory of {owner}" for owner in others)
        owned.append((span(tensor), f"output {i}"))
