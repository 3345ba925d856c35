"""`--device-cuda-as-cpu`: code that asks for "cuda" gets tensors in the CPU's memory, and needs no GPU.

A `TorchFunctionMode` replaces the device in the arguments of torch's functions, and functions of `torch.cuda`
are replaced, for as long as the code runs. A copy between host and GPU stays a copy: `x.cpu()` does not see
what a kernel writes into `x` later. For that, storages that were not made on "cuda" are known as the host's.
Tensors of all others say that they are on "cuda:0", except to dotcu and Triton, which see the CPU.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import has_torch_function
from torch.utils._pytree import tree_map_only

from dotcu import torch_compat
from dotcu.kernel.config import MAX_THREADS_PER_BLOCK, WARP, limits
from dotcu.kernel.simulated_memory import FunctionMode

GPU = torch.device("cuda", 0)
HOST = torch.device("cpu")
MEMORY_BYTES = 80 << 30
"""What the GPU that is not there says of its memory."""

_set_default_device, _get_default_device = torch.set_default_device, torch.get_default_device
_load = torch.load
_backward: Callable[..., Any] = torch.autograd.function.BackwardCFunction.apply
_SEES_THE_HOST = ("dotcu", "triton")
"""Modules to which every tensor is where it is."""


@contextmanager
def replaced(owner: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """Give attributes other values until the block ends."""
    missing = object()
    earlier = {name: vars(owner).get(name, missing) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in earlier.items():
            if value is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


@contextmanager
def cuda_on_cpu(capability: tuple[int, int]) -> Iterator[None]:
    """Let what a block puts on "cuda" lie on the CPU.

    Args:
        capability: The compute capability that `torch.cuda` says the GPU has.
    """
    with ExitStack() as stack:
        devices = _Devices()
        for owner, values in _replacements(capability, devices):
            stack.enter_context(replaced(owner, values))
        stack.enter_context(FunctionMode(devices.call))
        yield


# ------------------------------------------------------------------ functions of tensors


_PLACES: dict[Any, Callable[[bool], Any]] = {
    Tensor.device.__get__: lambda on_host: HOST if on_host else GPU,
    Tensor.is_cuda.__get__: lambda on_host: not on_host,  # type: ignore[attr-defined]
    Tensor.is_cpu.__get__: lambda on_host: on_host,  # type: ignore[attr-defined]
    Tensor.get_device: lambda on_host: -1 if on_host else 0,
}
"""What asks for the place of a tensor, and the answer."""


class _Devices:
    """The functions of torch, with the CPU for each GPU in their arguments.

    Attributes:
        host: The storages that were not made on "cuda", by their number.
        default: The default device.
    """

    def __init__(self) -> None:
        self.host: dict[int, StorageWeakRef] = {}
        self.default = HOST
        self._prune_at = 1024

    def call(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if func in _PLACES:
            return self._place(func, args[0], sys._getframe(2).f_globals.get("__name__", ""))
        if func in _MOVES:
            return _MOVES[func](self, args[0], args[1:], named)
        if func is torch.device:  # a name, with no memory yet
            return func(*args, **named)
        is_for_gpu = any(map(_is_gpu, [a for a in args if not isinstance(a, int)]))
        args = tuple(_on_host(value) if isinstance(value, torch.device) else value for value in args)
        if named.get("device") is not None:
            is_for_gpu = is_for_gpu or _is_gpu(named["device"])
            named = {**named, "device": _on_host(named["device"])}
        if named.get("pin_memory"):
            named = {**named, "pin_memory": False}
        result = func(*args, **named)
        given = [*_tensors([args, named])]
        if named.get("device") is not None or is_for_gpu:
            is_for_host = not is_for_gpu
            if any(result is each for each in given) and self.is_on_host(result) is not is_for_host:
                result = result.clone()  # as torch.as_tensor copies
        else:
            is_for_host = all(map(self.is_on_host, given)) if given else self.default is HOST
        if is_for_host:
            self._mark(result)
        return result

    def backward(self, node: Any, *gradients: Any) -> Any:
        """Replace what calls the backward of an autograd function.

        The call that runs it, `Tensor.backward` say, went through the mode, and a mode is off in its calls.
        """
        if has_torch_function((None,)):
            return _backward(node, *gradients)
        with FunctionMode(self.call):
            return _backward(node, *gradients)

    def set_default(self, device: Any) -> None:
        """Replace `torch.set_default_device`."""
        self.default = GPU if device is not None and _is_gpu(device) else HOST
        _set_default_device(None if self.default is GPU else device)

    def get_default(self) -> torch.device:
        """Replace `torch.get_default_device`."""
        return GPU if self.default is GPU else _get_default_device()

    def is_on_host(self, tensor: Tensor) -> bool:
        """Return whether a tensor was made without "cuda", and not copied there."""
        return tensor.layout is torch.strided and torch_compat.storage_of(tensor) in self.host

    def _place(self, func: Any, tensor: Tensor, caller: str) -> Any:
        if tensor.device.type != "cpu" or caller.partition(".")[0] in _SEES_THE_HOST:
            return func(tensor)
        return _PLACES[func](self.is_on_host(tensor))

    def to(self, tensor: Tensor, args: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        """Call `Tensor.to`, by each of its signatures."""
        if args and isinstance(args[0], Tensor):
            place = HOST if self.is_on_host(args[0]) else GPU
            return self.move(tensor, place, args[0].dtype, *args[1:], **named)
        if args and not isinstance(args[0], torch.dtype):
            return self.move(tensor, *args, **named)
        others = {key: value for key, value in named.items() if key != "device"}
        return self.move(tensor, named.get("device"), *args, **others)

    def move(self, tensor: Tensor, device: Any, *args: Any, **named: Any) -> Tensor:
        """Convert a tensor, and copy it if it changes between host and GPU."""
        was_on_host = self.is_on_host(tensor)
        target = torch.device(HOST if device is None else _on_host(device))
        result = tensor.to(target, *args, **named)
        if target.type != "cpu":
            return result
        is_for_host = was_on_host if device is None else not _is_gpu(device)
        if was_on_host is not is_for_host and result is tensor:
            result = tensor.clone()
        if is_for_host:
            self._mark(result)
        return result

    def type(self, tensor: Tensor, dtype: Any = None, non_blocking: bool = False, **others: Any) -> Any:
        """Call `Tensor.type`, whose names of types have the place: `torch.cuda.FloatTensor`."""
        if dtype is None:
            name = tensor.type()
            return name if self.is_on_host(tensor) else name.replace("torch.", "torch.cuda.", 1)
        if not isinstance(dtype, str):
            return self.move(tensor, None, getattr(dtype, "dtype", dtype))
        place = GPU if dtype.startswith("torch.cuda.") else HOST
        return self.move(tensor.type(dtype.replace("torch.cuda.", "torch.", 1)), place)

    def load(self, file: Any, map_location: Any = None, *args: Any, **named: Any) -> Any:
        """Replace `torch.load`."""
        if not isinstance(map_location, (str, torch.device)):
            return _load(file, map_location, *args, **named)
        loaded = _load(file, _on_host(map_location), *args, **named)
        self._mark(loaded)
        return tree_map_only(Tensor, Tensor.cuda, loaded) if _is_gpu(map_location) else loaded

    def _mark(self, result: Any) -> None:
        """Note the storages of a result as the host's."""
        for tensor in _tensors([result]):
            if tensor.layout is torch.strided and tensor.device.type == "cpu":
                reference = StorageWeakRef(tensor.untyped_storage())
                self.host[reference.cdata] = reference
        if len(self.host) > self._prune_at:
            self.host = {key: row for key, row in self.host.items() if not row.expired()}
            self._prune_at = 2 * len(self.host) + 1024


_MOVES: dict[Any, Callable[[_Devices, Tensor, tuple[Any, ...], dict[str, Any]], Any]] = {
    Tensor.to: _Devices.to,
    Tensor.cuda: lambda devices, tensor, args, named: devices.move(tensor, GPU),
    Tensor.cpu: lambda devices, tensor, args, named: devices.move(tensor, HOST),
    Tensor.pin_memory: lambda devices, tensor, args, named: tensor,
    Tensor.type: lambda devices, tensor, args, named: devices.type(tensor, *args, **named),
}
"""What moves a tensor between host and GPU, prepares for it, or names the place in a type."""


def _on_host(device: Any) -> Any:
    """Return a device as the CPU's functions take it: the CPU for a GPU."""
    return HOST if _is_gpu(device) else device


def _is_gpu(device: Any) -> bool:
    if isinstance(device, int):
        return True
    kind = device.type if isinstance(device, torch.device) else device
    return isinstance(kind, str) and kind.partition(":")[0] == "cuda"


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors in arguments or results, also in lists, tuples and dicts."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())


# ------------------------------------------------------------------ torch.cuda


class _Event:
    """An event of a GPU that is done as soon as it is recorded."""

    def __init__(self, *settings: Any, **others: Any) -> None:
        self._time = time.perf_counter()

    def record(self, stream: Any = None) -> None:
        self._time = time.perf_counter()

    def elapsed_time(self, end: _Event) -> float:
        """Return milliseconds: of the simulation, not of a GPU."""
        return 1e3 * (end._time - self._time)

    def query(self) -> bool:
        return True

    def wait(self, stream: Any = None) -> None: ...

    def synchronize(self) -> None: ...


class _Stream:
    """A stream of a GPU; what is launched on it has run when the launch returns."""

    device, device_index, cuda_stream, stream_id, priority = GPU, 0, 0, 0, 0

    def __init__(self, *settings: Any, **others: Any) -> None: ...

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *error: object) -> None: ...

    def record_event(self, event: _Event | None = None) -> _Event:
        event = event or _Event()
        event.record()
        return event

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...


class _Generator(torch.Generator):
    """A generator that was asked for on "cuda", on the CPU."""

    _place: torch.device

    def __new__(cls, device: Any = HOST) -> _Generator:
        made = super().__new__(cls, _on_host(device))  # type: ignore[call-arg]
        made._place = GPU if _is_gpu(device) else torch.device(device)
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._place


class _Device(nullcontext[None]):
    """A block for one GPU, of which there is one."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self.idx, self.prev_idx = 0, -1


def _properties(capability: tuple[int, int]) -> SimpleNamespace:
    """Return what `torch.cuda.get_device_properties` says of a GPU."""
    found = limits(*capability)
    return SimpleNamespace(
        name="dotcu simulator of sm_{}{}".format(*capability),
        major=capability[0],
        minor=capability[1],
        total_memory=MEMORY_BYTES,
        multi_processor_count=found.multiprocessors,
        warp_size=WARP,
        max_threads_per_block=MAX_THREADS_PER_BLOCK,
        is_integrated=0,
        is_multi_gpu_board=0,
        max_threads_per_multi_processor=WARP * found.warps,
        regs_per_multiprocessor=found.registers,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=found.smem_block_bytes,
        shared_memory_per_multiprocessor=found.smem_bytes,
        L2_cache_size=MEMORY_BYTES >> 11,
        gcnArchName="",
    )


def _answers(capability: tuple[int, int]) -> Iterator[tuple[Any, str, Any]]:
    """Yield modules and classes, with the names of functions in them, and what these return meanwhile."""
    properties, stream = _properties(capability), _Stream()
    yield torch.cuda, "is_available is_initialized is_bf16_supported", True
    yield torch.cuda, "can_device_access_peer is_current_stream_capturing", False
    yield torch.cuda, "device_count", 1
    yield torch.cuda, "current_device memory_allocated max_memory_allocated", 0
    yield torch.cuda, "memory_reserved max_memory_reserved", 0
    yield torch.cuda, "mem_get_info", (MEMORY_BYTES, MEMORY_BYTES)
    yield torch.cuda, "memory_stats", {}
    yield torch.cuda, "memory_summary", ""
    yield torch.backends.cuda, "is_built", True
    yield torch.cuda, "get_device_capability", capability
    yield torch.cuda, "get_device_properties", properties
    yield torch.cuda, "get_device_name", properties.name
    yield torch.cuda, "get_arch_list", ["sm_{}{}".format(*capability)]
    yield torch.cuda, "current_stream default_stream", stream
    yield torch.cuda, "init synchronize set_device set_stream empty_cache ipc_collect", None
    yield torch.cuda, "reset_peak_memory_stats reset_max_memory_allocated", None
    yield torch.cuda, "reset_accumulated_memory_stats", None
    yield torch.cuda.nvtx, "range_push range_pop mark", None
    yield torch.accelerator, "is_available", True
    yield torch.accelerator, "device_count", 1
    yield torch.accelerator, "current_accelerator", torch.device("cuda")
    yield torch.accelerator, "current_device_index current_device_idx", 0
    yield torch.accelerator, "current_stream", stream
    yield torch.accelerator, "synchronize set_device_index set_device_idx set_stream", None
    yield Tensor, "record_stream", None


def _replacements(capability: tuple[int, int], devices: _Devices) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield modules and classes, each with attributes that have another value meanwhile."""
    for owner, names, value in _answers(capability):
        yield owner, {name: _answer(value) for name in names.split()}
    yield (
        torch.cuda,
        {
            "manual_seed": lambda seed: _seed(seed),
            "manual_seed_all": lambda seed: _seed(seed),
            "get_rng_state": lambda device=0: torch.get_rng_state(),
            "set_rng_state": lambda state, device=0: torch.set_rng_state(state),
            "get_rng_state_all": lambda: [torch.get_rng_state()],
            "set_rng_state_all": lambda states: torch.set_rng_state(states[0]),
            "seed": lambda: _seed(torch.seed()),
            "seed_all": lambda: _seed(torch.seed()),
            "initial_seed": lambda: torch.initial_seed(),
            "device": _Device,
            "device_of": _Device,
            "stream": lambda stream: nullcontext(),
            "Stream": _Stream,
            "ExternalStream": _Stream,
            "Event": _Event,
        },
    )
    yield torch.version, {"cuda": torch.version.cuda or "13.0"}
    yield (
        torch,
        {
            "Generator": _Generator,
            "load": devices.load,
            "set_default_device": devices.set_default,
            "get_default_device": devices.get_default,
            **{name: _by_device(getattr(torch, name)) for name in _BY_DEVICE_TYPE},
        },
    )
    yield (
        torch.autograd.function.BackwardCFunction,
        {"apply": lambda node, *gradients: devices.backward(node, *gradients)},
    )
    yield torch.amp.autocast_mode.autocast, {"__init__": _begin_autocast}


_autocast = torch.autocast.__init__


@functools.wraps(_autocast)
def _begin_autocast(self: Any, device_type: str, dtype: Any = None, *args: Any, **named: Any) -> None:
    """Let autocast for a GPU act on the CPU, with the dtype of a GPU unless another one is given."""
    if dtype is None and _is_gpu(device_type):
        dtype = torch.float16
    _autocast(self, _kind_on_host(device_type), dtype, *args, **named)


def _answer(value: Any) -> Callable[..., Any]:
    """Return a function of its own: torch.compile takes no function under two names."""
    return lambda *args, **named: value


def _seed(number: int) -> None:
    torch.default_generator.manual_seed(number)


_BY_DEVICE_TYPE = ("is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype", "set_autocast_dtype")


def _by_device(function: Callable[..., Any], at: int = 0) -> Callable[..., Any]:
    """Return a function with the CPU for a GPU in an argument, by its position or its name."""

    @functools.wraps(function)
    def on_host(*args: Any, **named: Any) -> Any:
        args = tuple(_kind_on_host(value) if number == at else value for number, value in enumerate(args))
        return function(
            *args,
            **{
                key: _kind_on_host(value) if key in ("device", "device_type") else value
                for key, value in named.items()
            },
        )

    return on_host


def _kind_on_host(device: Any) -> Any:
    """Return a device, or its type, for the CPU: a type stays a str."""
    return "cpu" if isinstance(device, str) and _is_gpu(device) else _on_host(device)
