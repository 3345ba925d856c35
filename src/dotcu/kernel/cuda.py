"""The CUDA driver: libraries, kernel attributes, variables, launches.

Nothing here runs, or is imported, before a CUDA tensor or device comes. Libraries are context
free and shared by all devices; they are never unloaded, so that a captured graph stays valid.
Every launch makes the primary context of the tensor's device current for its own length: on a
thread that is new to CUDA none is, or another device's.

The launch goes through cuda.bindings and not `cuda.core.launch`, which takes numbers alone: a
struct by value, such as `dotcu::tensor`, needs a parameter block of its own.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

import torch

from dotcu import settings, stopwatch
from dotcu.errors import LaunchError, ToolchainError
from dotcu.kernel import context, recent
from dotcu.kernel.config import LaunchConfig
from dotcu.kernel.forked import forked_with_cuda, require_own_cuda
from dotcu.kernel.locks import ForkSafeLock
from dotcu.kernel.recent import Launched


@functools.cache
def _driver() -> Any:
    try:
        with stopwatch.during("bindings"):
            from cuda.bindings import driver
    except ImportError as error:
        raise ToolchainError(
            f"The driver's bindings cannot be imported: {error}.\nThey are required for a launch on a GPU.\n"
            "Install them: pip install cuda-bindings"
        ) from error
    return driver


def _call(function: str, *args: Any, doing: object, waited: Launched | None = None) -> Any:
    """Call the driver and give what it returns beside its status.

    Raises:
        LaunchError: It returned an error; `doing`, put into text only then, says what was tried.
    """
    status, *values = getattr(_driver(), function)(*args)
    if status != _driver().CUresult.CUDA_SUCCESS:
        fail(int(status), str(doing), function, waited)
    return values[0] if len(values) == 1 else values


def fail(
    status: int, doing: str, function: str = "cuLaunchKernelEx", waited: Launched | None = None
) -> NoReturn:
    """Raise the error for a status of the driver.

    Args:
        status: A `CUresult` as a number.
        doing: What was tried: `Launching scale on cuda:0 with grid=(1, 1, 1), block=(32, 1, 1)`.
        function: The driver's function that gave the status.
        waited: The launch that a fault comes from, where every launch is waited for.

    Raises:
        CaptureError: A capture of a CUDA graph forbids it.
        LaunchError: Otherwise; a kernel's fault names the launches that it may come from.
    """
    from dotcu.kernel import failures

    name, text = _explain(status)
    if waited is not None and name in failures.FAULTS:
        raise failures.own_fault(waited, name, text)
    raise failures.failure(doing, function, name, text)


def _explain(status: int) -> tuple[str, str]:
    """The driver's name of a status, and its explanation."""
    try:
        known = _driver().CUresult(status)
    except ValueError:  # of a driver that is newer than its bindings
        return f"status {status}", "no explanation"
    _, text = _driver().cuGetErrorString(known)
    return known.name, text.decode() if isinstance(text, bytes) else "no explanation"


def fault_story(error: BaseException) -> str | None:
    """Which launches a fault that torch has raised may come from; None for any other error."""
    status = getattr(error, "error_code", None) if isinstance(error, torch.AcceleratorError) else None
    if not isinstance(status, int):
        return None
    from dotcu.kernel import failures

    name, _ = _explain(status)  # the runtime numbers faults as the driver does
    return failures.suspects(name) if name in failures.FAULTS else None


def available() -> bool:
    """Whether torch can use a GPU here, in this process."""
    return not forked_with_cuda() and torch.cuda.is_available()


def capturing() -> bool:
    """Whether torch's current stream of the current device is being captured in a CUDA graph."""
    return torch.cuda.is_initialized() and _captured(torch.cuda.current_device())


def _captured(index: int) -> bool:
    """Whether torch's current stream of a device is being captured; the default stream never is."""
    stream = _stream(index)
    if int(stream) == 0:
        return False
    status = _call("cuStreamIsCapturing", stream, doing="Asking whether a CUDA graph is being captured")
    return bool(status != _driver().CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)


@contextmanager
def _beside_captures() -> Iterator[None]:
    """Load and write while another thread captures a graph, as torch's allocator does.

    What this thread does goes to no stream that is being captured. Without this the driver would
    refuse it, and spoil the other thread's capture.
    """
    relaxed = _driver().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = _call("cuThreadExchangeStreamCaptureMode", relaxed, doing="Setting this thread's capture mode")
    try:
        yield
    finally:
        _driver().cuThreadExchangeStreamCaptureMode(before)


@functools.cache
def capability(index: int) -> tuple[int, int]:
    """The compute capability of a device."""
    return torch.cuda.get_device_capability(index)


@functools.cache
def multiprocessors(index: int) -> int:
    """The number of multiprocessors of a device."""
    return torch.cuda.get_device_properties(index).multi_processor_count


class _Device:
    """A device and its primary context, retained for good."""

    def __init__(self, index: int) -> None:
        torch.cuda.init()
        doing = f"Opening cuda:{index}"
        self.handle = _call("cuDeviceGet", index, doing=doing)  # torch counts the visible ones alike
        self.context = _call("cuDevicePrimaryCtxRetain", self.handle, doing=doing)
        attribute = _driver().CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        self.smem_bytes = _call("cuDeviceGetAttribute", attribute, self.handle, doing=doing)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the primary context current on this thread until the block ends."""
        now = _call("cuCtxGetCurrent", doing="Asking for the current context")
        if int(now) == int(self.context):
            yield
            return
        _call("cuCtxPushCurrent", self.context, doing="Entering the device's context")
        try:
            yield
        finally:
            _driver().cuCtxPopCurrent()  # it fails only in a context that has: the fault is told already


@functools.cache
def _device(index: int) -> _Device:
    return _Device(index)


def primary_context(index: int) -> int:
    """The CUcontext that a device's launches need current on their thread."""
    return int(_device(index).context)


def entered(index: int) -> AbstractContextManager[None]:
    """Make a device's primary context current on this thread until the block ends."""
    return _device(index).current()


@functools.cache
def address_of(function: str) -> int:
    """Where the driver has a function of CUDA 12.0, for a call that its bindings cannot make.

    Raises:
        LaunchError: It has none.
    """
    address, _ = _call("cuGetProcAddress", function.encode(), 12000, 0, doing=f"Looking up {function}")
    if not address:
        raise LaunchError(f"The driver has no {function}.\nIt comes with CUDA 12.0.\nSee: dotcu doctor")
    return int(address)


def _stream(index: int) -> Any:
    """torch's current stream of a device, at this moment."""
    return _driver().CUstream(torch._C._cuda_getCurrentRawStream(index))


class Library:
    """Code in the driver, for every device.

    Args:
        name: Whose code it is, for messages.
        data: A cubin, or PTX that ends in a zero.
        initial: Gives what was written so far, by symbol, when a device first loads the code.
        names: Kernels by symbol, as users know them.
    """

    def __init__(
        self,
        name: str,
        data: bytes,
        initial: Callable[[], dict[str, bytes]],
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self._names = names
        self._data = data
        self._is_ptx = not data.startswith(b"\x7fELF")  # as a cubin does
        self._initial = initial
        self._lock = ForkSafeLock()
        self._handle: Any = None
        self._kernels: dict[tuple[str, int], Any] = {}
        self._devices: set[int] = set()

    def kernel(self, symbol: str, index: int) -> Any:
        """A kernel that is loaded on a device, with its attributes set there.

        Raises:
            CaptureError: It is not loaded yet, and a CUDA graph is being captured.
            LaunchError: The driver refused it, or a fork has made the driver unusable.
        """
        found = self._kernels.get((symbol, index))
        if found is None:
            with self._lock:
                found = self._kernels.get((symbol, index)) or self._load(symbol, index)
                self._kernels[symbol, index] = found
        return found

    def _load(self, symbol: str, index: int) -> Any:
        shown = self._names.get(symbol, symbol)
        doing = f"Loading {shown} of {self.name} on cuda:{index}"
        require_own_cuda(doing)
        if torch.cuda.is_initialized() and (_captured(index) or capturing()):
            from dotcu.kernel import captures

            captures.refuse_load(shown, self.name, index)
        device = _device(index)
        with device.current(), _beside_captures():
            self._open(index)
            with stopwatch.during("jit" if self._is_ptx else "kernel"):
                kernel = _call("cuLibraryGetKernel", self._handle, symbol.encode(), doing=doing)
                _set_attributes(kernel, device, capability(index), doing)
                return _call("cuKernelGetFunction", kernel, doing=doing)  # loads it now, not at a launch

    def _open(self, index: int) -> None:
        if self._handle is None:
            doing = f"Loading the code of {self.name}"
            with stopwatch.during("jit" if self._is_ptx else "library"):
                self._handle = _call("cuLibraryLoadData", self._data, [], [], 0, [], [], 0, doing=doing)
        if index not in self._devices:
            for symbol, data in self._initial().items():
                self._write(symbol, data, index)
            self._devices.add(index)

    def write(self, symbol: str, data: bytes) -> None:
        """Write a variable on every device that has loaded the code, in order on torch's current streams."""
        if forked_with_cuda():
            return  # what the parent loaded is out of reach here, and no kernel will read it
        with self._lock:
            for index in sorted(self._devices):
                with _device(index).current(), _beside_captures():
                    self._write(symbol, data, index)

    def _write(self, symbol: str, data: bytes, index: int) -> None:
        doing = f"Writing {symbol} of {self.name} on cuda:{index}"
        address, size = _call("cuLibraryGetGlobal", self._handle, symbol.encode(), doing=doing)
        host = ctypes.create_string_buffer(data, len(data))
        count = min(len(data), int(size))
        _call("cuMemcpyHtoDAsync", address, ctypes.addressof(host), count, _stream(index), doing=doing)
        _call("cuStreamSynchronize", _stream(index), doing=doing)  # the host's bytes are free after this


def _set_attributes(kernel: Any, device: _Device, arch: tuple[int, int], doing: str) -> None:
    """Let a kernel use all of the device's shared memory and, where there are clusters, large ones."""
    names = _driver().CUfunction_attribute
    static = _call(
        "cuKernelGetAttribute", names.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel, device.handle, doing=doing
    )
    values = {names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: device.smem_bytes - static}
    if arch >= (9, 0):
        values[names.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] = 1
    for attribute, value in values.items():
        _call("cuKernelSetAttribute", attribute, value, kernel, device.handle, doing=doing)


class _Launching(NamedTuple):
    """What a launch does; `str()` says it."""

    kernel: str
    config: LaunchConfig
    device: int

    def __str__(self) -> str:
        return f"Launching {self.kernel} on cuda:{self.device} with {self.config}"


def launch(
    library: Library, symbol: str, index: int, config: LaunchConfig, parameters: Sequence[bytes], kernel: str
) -> None:
    """Launch on torch's current stream of a device; does not wait for it.

    Waits under CUDA_LAUNCH_BLOCKING=1, outside captures, so that a fault is this kernel's own.

    Raises:
        CaptureError: The kernel is not loaded yet, and a CUDA graph is being captured.
        LaunchError: The driver refused; names kernel and configuration.
    """
    function = library.kernel(symbol, index)
    block, pointers = parameter_block(parameters)
    launched = Launched(context.current().operator, kernel, config, index)
    doing = _Launching(kernel, config, index)
    with _device(index).current():
        stream = _stream(index)
        waited = launched if settings.current().launch_blocking and not _captured(index) else None
        if waited is not None:  # a fault after this is the kernel's own
            _call("cuStreamSynchronize", stream, doing=f"Waiting for what comes before {launched}")
        native = native_config(supported(config, capability(index)), stream)
        with stopwatch.during("launch"):
            what = native, function, ctypes.addressof(pointers), 0
            _call("cuLaunchKernelEx", *what, doing=doing, waited=waited)
        recent.note(launched)
        if waited is not None:
            _call("cuStreamSynchronize", stream, doing=doing, waited=waited)
    del block  # until here: the pointers point into it


def supported(config: LaunchConfig, arch: tuple[int, int]) -> LaunchConfig:
    """A configuration without permissions that a GPU does not know: it starts no kernel early anyway."""
    if config.programmatic and arch < (9, 0):
        return replace(config, programmatic=False)
    return config


def parameter_block(parameters: Sequence[bytes]) -> tuple[Any, Any]:
    """The parameters in one piece of memory, each 16-byte aligned, and an array of pointers to them."""
    offsets, size, pointers = _places(tuple(map(len, parameters)))
    block = ctypes.create_string_buffer(size)
    base = ctypes.addressof(block)
    for offset, parameter in zip(offsets, parameters, strict=True):
        ctypes.memmove(base + offset, parameter, len(parameter))
    return block, pointers(*[base + offset for offset in offsets])


@functools.lru_cache(maxsize=1024)
def _places(sizes: tuple[int, ...]) -> tuple[tuple[int, ...], int, Any]:
    """Where parameters of these sizes begin, how much they take, and the type of as many pointers."""
    offsets, size = [], 0
    for each in sizes:
        offsets.append(size)
        size += -(-each // 16) * 16
    return tuple(offsets), max(1, size), ctypes.c_void_p * max(1, len(sizes))


def native_config(config: LaunchConfig, stream: Any) -> Any:
    """A configuration as the driver has it. The driver counts the grid in blocks too."""
    native = _driver().CUlaunchConfig()
    native.gridDimX, native.gridDimY, native.gridDimZ = config.grid
    native.blockDimX, native.blockDimY, native.blockDimZ = config.block
    native.sharedMemBytes = config.smem_bytes
    native.hStream = stream
    attributes = _launch_attributes(config)
    native.attrs = attributes
    native.numAttrs = len(attributes)
    return native


def _launch_attributes(config: LaunchConfig) -> list[Any]:
    ids = _driver().CUlaunchAttributeID
    found = []
    if config.cluster is not None:
        cluster = _driver().CUlaunchAttribute()
        cluster.id = ids.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dim = cluster.value.clusterDim
        dim.x, dim.y, dim.z = config.cluster
        found.append(cluster)
    if config.cooperative:
        cooperative = _driver().CUlaunchAttribute()
        cooperative.id = ids.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        cooperative.value.cooperative = 1
        found.append(cooperative)
    if config.programmatic:
        programmatic = _driver().CUlaunchAttribute()
        programmatic.id = ids.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        programmatic.value.programmaticStreamSerializationAllowed = 1
        found.append(programmatic)
    return found
