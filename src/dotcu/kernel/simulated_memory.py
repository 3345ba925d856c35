"""CPU tensors as the memory of simulated launches: their bytes, and which of these are still unwritten.

Tensors are mapped into simulated addresses without a copy. The simulator reports a read of bytes that
`torch.empty` allocated and nothing has filled: a dispatch mode sees the allocations, and a mask for each
storage, one byte for each of its bytes, is shared with the simulator, which marks what kernels store.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from dotcu import torch_compat
from dotcu.compile.target import Target
from dotcu.errors import escaped
from dotcu.files import read_file
from dotcu.kernel.arguments.memory import extent
from dotcu.tracebacks import file_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dotcu.simulator import Buffer, Memory, Run


run_in_force: ContextVar[Run | None] = ContextVar("dotcu_run", default=None)

active_run = run_in_force.get
"""Return the run of the `simulate()` block that this thread is in, None outside."""


def capability_of(arch: str) -> tuple[int, int]:
    """Return the compute capability that an architecture's name stands for."""
    target = Target.parse(arch)
    return target.major, target.minor


def tensor_bytes(tensor: Tensor) -> NDArray[np.uint8]:
    """Return the bytes from a tensor's first element to its last, shared with it."""
    return _bytes_at(tensor.data_ptr(), extent(tensor) * tensor.itemsize, tensor)


def _bytes_at(address: int, count: int, owner: Any) -> NDArray[np.uint8]:
    if count == 0:
        return np.empty(0, np.uint8)
    memory: Any = (ctypes.c_uint8 * count).from_address(address)
    memory.owner = owner  # alive as long as the array
    return np.frombuffer(memory, np.uint8)


def tensor_buffer(tensor: Tensor, name: str, writable: bool, shared: Collection[int] = ()) -> Buffer:
    """Describe a tensor to the simulator: its own elements, and which of them are written.

    Args:
        shared: The addresses of storages that several ranks reach.
    """
    from dotcu.simulator import Buffer

    data, allocations, pointers = tensor_bytes(tensor), active_allocations(), _pointers.get()
    mask = allocations.mask(tensor) if allocations is not None else None
    written = None
    if mask is not None:
        start = tensor.storage_offset() * tensor.itemsize
        part = mask[start : start + data.size]
        written = part if part.size == data.size else None
    storage = tensor.untyped_storage()
    protected = writable and data.size > 0 and not _may_be_written(tensor.data_ptr())
    return Buffer(
        name=name,
        data=data,
        written=written,
        read_only=protected or not writable,
        protected=protected,
        storage=(storage.data_ptr(), storage.nbytes()) if data.size else None,
        itemsize=tensor.itemsize,
        shared=storage.data_ptr() in shared,
        base=pointers.address(tensor) if pointers is not None else 0,
    )


_POPULATE_WRITE = 23
"""The advice that prepares a page for writing, and fails where it may not be written.

Source: madvise(2), Linux 5.14 and later."""


@functools.cache
def _madvise() -> Callable[..., int] | None:
    function: Callable[..., int] | None = getattr(ctypes.CDLL(None), "madvise", None)
    return function


def _may_be_written(address: int) -> bool:
    """Return whether this process may write to an address: a tensor may be a file that is mapped to read."""
    advise, page = _madvise(), mmap.PAGESIZE
    start = ctypes.c_void_p(address - address % page)
    if advise is not None and advise(start, ctypes.c_size_t(page), _POPULATE_WRITE) == 0:
        return True
    with suppress(OSError):  # also where the system is older
        for line in read_file("/proc/self/maps").splitlines():
            span, rights = line.split(maxsplit=2)[:2]
            first, end = (int(bound, 16) for bound in span.split(b"-"))
            if first <= address < end:
                return b"w" in rights
    return True


def print_output(run: Run, first: int) -> None:
    """Print what kernels have printed by printf, from an item on: on a GPU the driver passes it on."""
    for line in run.output[first:]:
        sys.stdout.write(escaped(line if line.endswith("\n") else line + "\n"))


ALLOCATE = {
    getattr(torch.ops.aten, name)
    for name in ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
}
"""The operators of torch that allocate without writing."""
CHANGE_STORAGE = {torch.ops.aten.set_}
"""Those whose schema says that they write into a tensor, and that give it another storage."""
_PRUNE_AT = 64


Handler: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Takes a function of torch and its arguments, and returns the result of the call."""


class OperatorMode(TorchDispatchMode):
    """A dispatch mode that calls `handle`, and leaves torch._dynamo to those who compile: seconds of imports.

    torch imports it at the first operation in a mode, to keep the mode from being compiled. Until something
    else has imported it, nothing is compiled.
    """

    supports_higher_order_operators = True

    def __init__(self, handle: Handler) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._handle = handle

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def _call(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return self._handle(func, args, kwargs or {})

    __torch_dispatch__ = _call


_uncompiled = OperatorMode.__torch_dispatch__  # as torch has wrapped it


def _dispatch(mode: OperatorMode, *args: Any) -> Any:
    return _uncompiled(mode, *args) if "torch._dynamo" in sys.modules else mode._call(*args)


OperatorMode.__torch_dispatch__ = _dispatch  # type: ignore[assignment]


class FunctionMode(TorchFunctionMode):
    """A mode that calls `handle` for the functions of torch, before they reach the dispatcher."""

    def __init__(self, handle: Handler) -> None:
        super().__init__()
        self._handle = handle

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._handle(func, args, kwargs or {})


@dataclass(frozen=True, kw_only=True)
class _Pointed:
    """The part of a storage that a tensor begins at, whose address was asked for.

    Attributes:
        name: What findings call it: the line that asked.
        offset, nbytes, itemsize: Where it lies in the storage, and of what size it and its elements are.
    """

    name: str
    offset: int
    nbytes: int
    itemsize: int


class Pointers(FunctionMode):
    """Addresses for `data_ptr()`: those in the simulator's memory, so that kernels may load them.

    An address stays the same for as long as this mode is active, and tensors that share memory or follow
    each other in it get what `data_ptr()` returns elsewhere: the same addresses. Libraries get the host's.
    """

    def __init__(self) -> None:
        super().__init__(self._call)
        self._bases: dict[int, int] = {}
        self._parts: dict[int, tuple[StorageWeakRef, dict[tuple[int, int], _Pointed]]] = {}

    def address(self, tensor: Tensor) -> int:
        """Return the address of a tensor if one in its storage was asked for, else 0."""
        start = tensor.untyped_storage().data_ptr()
        return self._bases[start] + tensor.data_ptr() - start if start in self._bases else 0

    def base(self, start: int) -> int:
        """Return the address that stands for that of a storage; its own if none was asked for."""
        return self._bases.get(start, start)

    def buffers(self) -> Iterator[Buffer]:
        """Yield the memory whose addresses are known, for a launch."""
        from dotcu.simulator import Buffer

        allocations = active_allocations()
        self._parts = {key: row for key, row in self._parts.items() if not row[0].expired()}
        for reference, parts in self._parts.values():
            storage = torch_compat.storage_behind(reference)
            start = storage.data_ptr()
            mask = allocations.storage_mask(reference.cdata) if allocations is not None else None
            for part in parts.values():
                end = part.offset + part.nbytes
                if end <= storage.nbytes() and start in self._bases:  # it was not resized
                    yield Buffer(
                        name=part.name,
                        data=_bytes_at(start + part.offset, part.nbytes, storage),
                        written=mask[part.offset : end] if mask is not None and end <= mask.size else None,
                        storage=(start, storage.nbytes()),
                        itemsize=part.itemsize,
                        handed_out=True,
                        base=self._bases[start] + part.offset,
                    )

    def _call(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        result = func(*args, **named)
        if func is not Tensor.data_ptr or not result or not _in_memory(args[0]):
            return result
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__") in _MODES:
            frame = frame.f_back
        caller = frame.f_globals.get("__name__", "") if frame is not None else ""
        if frame is None or caller.partition(".")[0] in _SEES_THE_HOST:
            return result
        return self._hand_out(args[0], file_line(frame.f_code.co_filename, frame.f_lineno))

    def _hand_out(self, tensor: Tensor, line: str) -> int:
        from dotcu.simulator.machine.memory import allocate

        storage = tensor.untyped_storage()
        start, offset = storage.data_ptr(), int(tensor.storage_offset()) * tensor.itemsize
        if start not in self._bases:
            self._bases[start] = allocate() + start % PAGE
        reference = StorageWeakRef(storage)
        _, parts = self._parts.setdefault(reference.cdata, (reference, {}))
        part = _Pointed(
            name=f"data_ptr() at {line}",
            offset=offset,
            nbytes=extent(tensor) * tensor.itemsize,
            itemsize=tensor.itemsize,
        )
        parts.setdefault((offset, part.nbytes), part)
        return self.address(tensor)


PAGE = 4096
"""Addresses from `data_ptr()` are the host's modulo this, and so aligned alike."""
_MODES = (__name__, "dotcu.sanitizing.cuda_as_cpu")
"""Modules whose modes pass calls on."""
_SEES_THE_HOST = ("", "dotcu", "numpy", "torch", "triton")
"""Libraries for which `data_ptr()` stays the host's address; code that Triton generates has no name."""

_pointers: ContextVar[Pointers | None] = ContextVar("dotcu_pointers", default=None)


@contextmanager
def handing_out_addresses() -> Iterator[None]:
    """Let `data_ptr()` return addresses that kernels in the simulator may load from memory and use."""
    if _pointers.get() is not None:
        yield
        return
    pointers = Pointers()
    token = _pointers.set(pointers)
    try:
        with pointers:
            yield
    finally:
        _pointers.reset(token)


def offset_in(storage: torch.UntypedStorage, address: int) -> int:
    """Return the offset in a storage of an address in it, the host's or one that was handed out."""
    pointers, start = _pointers.get(), storage.data_ptr()
    base = pointers.base(start) if pointers is not None else start
    return address - (base if base <= address <= base + storage.nbytes() else start)


def simulated_memory() -> Memory:
    """Return memory for a launch, with the tensors whose addresses `data_ptr()` has returned."""
    from dotcu.simulator import Memory

    memory, pointers = Memory(), _pointers.get()
    for buffer in pointers.buffers() if pointers is not None else ():
        memory.map(buffer)
    return memory


class Allocations(OperatorMode):
    """The masks of the storages that `torch.empty` allocated while this mode was active."""

    def __init__(self) -> None:
        super().__init__(self._run)
        self._masks: dict[int, tuple[StorageWeakRef, NDArray[np.uint8]]] = {}

    def _run(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        result = func(*args, **named)
        if not isinstance(func, torch._ops.OpOverload):  # a higher-order operator: its parts were not seen
            return result
        if func.overloadpacket in ALLOCATE and "out" not in named:
            if _in_memory(result):
                self._add(result)
            return result
        for position, name in _written_arguments(func):
            value = args[position] if position < len(args) else named.get(name)
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if _in_memory(tensor):
                    self._mark_written(tensor)
        return result

    def _add(self, tensor: Tensor) -> None:
        if len(self._masks) >= _PRUNE_AT:
            self._masks = {key: row for key, row in self._masks.items() if not row[0].expired()}
        storage = tensor.untyped_storage()
        reference = StorageWeakRef(storage)
        self._masks[reference.cdata] = (reference, np.zeros(storage.nbytes(), np.uint8))

    def mask(self, tensor: Tensor) -> NDArray[np.uint8] | None:
        """Return the mask of a tensor's whole storage, None where all of it counts as written."""
        if not self._masks:
            return None
        return self.storage_mask(torch_compat.storage_of(tensor))

    def storage_mask(self, number: int) -> NDArray[np.uint8] | None:
        """Return the mask of a storage by its number, None where all of it counts as written."""
        row = self._masks.get(number)
        return row[1] if row is not None else None

    def _mark_written(self, tensor: Tensor) -> None:
        mask = self.mask(tensor)
        if mask is None or tensor.numel() == 0:
            return
        size = tensor.itemsize
        if mask.size < (tensor.storage_offset() + extent(tensor)) * size:  # it was resized since
            self._masks.pop(torch_compat.storage_of(tensor))
            return
        np.lib.stride_tricks.as_strided(
            mask[tensor.storage_offset() * size :],
            (*tensor.shape, size),
            (*(stride * size for stride in tensor.stride()), 1),
        )[...] = 1


_allocations: ContextVar[Allocations | None] = ContextVar("dotcu_allocations", default=None)

active_allocations = _allocations.get
"""Return the masks in force, None outside `tracking_allocations()`."""


@contextmanager
def tracking_allocations() -> Iterator[Allocations]:
    """Count what `torch.empty` and its like allocate as unwritten, until something writes it.

    Inside another such block the masks are shared, so what a body left unwritten stays so.

    Note:
        It sees what goes through torch's dispatcher: a write through `tensor.numpy()` does not.
    """
    known = _allocations.get()
    if known is not None and _get_current_dispatch_mode() is known:
        yield known
        return
    allocations = known if known is not None else Allocations()
    token = _allocations.set(allocations)
    try:
        with allocations:
            yield allocations
    finally:
        _allocations.reset(token)


@functools.cache
def _written_arguments(func: Any) -> tuple[tuple[int, str], ...]:
    """Return position and name of each argument that an operator writes into, by its schema."""
    if func.overloadpacket in CHANGE_STORAGE:
        return ()
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _in_memory(value: Any) -> bool:
    if type(value) not in (Tensor, torch.nn.Parameter):
        return False
    return value.device.type == "cpu" and value.layout is torch.strided
