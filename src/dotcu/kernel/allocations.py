"""Which bytes nobody has written yet: what `torch.empty` allocated and no operator has filled.

The simulator reports a read of them. A dispatch mode sees the allocations; a mask for each
storage, one byte for each of its bytes, is shared with the simulator, which sets what kernels store.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

_aten = torch.ops.aten
ALLOCATE = {
    _aten.empty,
    _aten.empty_like,
    _aten.empty_permuted,
    _aten.empty_strided,
    _aten.new_empty,
    _aten.new_empty_strided,
}
"""The operators of torch that allocate without writing."""
_PRUNE_AT = 64


class Allocations:
    """The masks of the storages that `torch.empty` made while this was tracking."""

    def __init__(self) -> None:
        self._masks: dict[int, tuple[StorageWeakRef, NDArray[np.uint8]]] = {}

    def allocated(self, tensor: Tensor) -> None:
        """Take a new storage in, with nothing written."""
        if len(self._masks) >= _PRUNE_AT:
            self._masks = {key: row for key, row in self._masks.items() if not row[0].expired()}
        reference = StorageWeakRef(tensor.untyped_storage())
        self._masks[reference.cdata] = (reference, np.zeros(tensor.untyped_storage().nbytes(), np.uint8))

    def mask(self, tensor: Tensor) -> NDArray[np.uint8] | None:
        """The mask of a tensor's whole storage, None where all of it counts as written."""
        if not self._masks:
            return None
        row = self._masks.get(tensor.untyped_storage()._cdata)
        return row[1] if row is not None else None

    def written(self, tensor: Tensor) -> None:
        """Mark a tensor's elements as written."""
        mask = self.mask(tensor)
        if mask is None or tensor.numel() == 0:
            return
        size = tensor.itemsize
        if mask.size < (tensor.storage_offset() + extent(tensor)) * size:  # it was resized since
            self._masks.pop(tensor.untyped_storage()._cdata)
            return
        np.lib.stride_tricks.as_strided(
            mask[tensor.storage_offset() * size :],
            (*tensor.shape, size),
            (*(stride * size for stride in tensor.stride()), 1),
        )[...] = 1


def extent(tensor: Tensor) -> int:
    """How many elements lie from a tensor's first to its last, both included."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


_tracked: ContextVar[Allocations | None] = ContextVar("dotcu_allocations", default=None)


def tracked() -> Allocations | None:
    """The masks in force, None outside `tracking_allocations()`."""
    return _tracked.get()


@contextmanager
def tracking_allocations() -> Iterator[Allocations]:
    """Count what `torch.empty` and its like allocate as unwritten, until something writes it.

    Inside another such block the masks are shared, so what a body left unwritten stays so.

    Note:
        It sees what goes through torch's dispatcher: a write through `tensor.numpy()` does not.
    """
    known = _tracked.get()
    mode = _get_current_dispatch_mode()
    if known is not None and isinstance(mode, _TrackingMode) and mode.allocations is known:
        yield known
        return
    allocations = known if known is not None else Allocations()
    token = _tracked.set(allocations)
    try:
        with _TrackingMode(allocations):
            yield allocations
    finally:
        _tracked.reset(token)


class _TrackingMode(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, allocations: Allocations) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.allocations = allocations

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        result = func(*args, **given)
        if not isinstance(func, torch._ops.OpOverload):  # a higher-order operator: its parts were not seen
            return result
        if func.overloadpacket in ALLOCATE and "out" not in given:
            if _in_memory(result):
                self.allocations.allocated(result)
            return result
        for position, name in _written_arguments(func):
            value = args[position] if position < len(args) else given.get(name)
            _each(value, self.allocations.written)
        return result


@functools.cache
def _written_arguments(func: Any) -> tuple[tuple[int, str], ...]:
    """Position and name of each argument that an operator writes into, by its schema."""
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _each(value: Any, act: Callable[[Tensor], None]) -> None:
    if isinstance(value, (list, tuple)):
        for item in value:
            _each(item, act)
    elif _in_memory(value):
        act(value)


def _in_memory(value: Any) -> bool:
    if type(value) not in (Tensor, torch.nn.Parameter):
        return False
    return value.device.type == "cpu" and value.layout is torch.strided
