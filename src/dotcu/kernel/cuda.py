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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from dotcu.errors import LaunchError, ToolchainError
from dotcu.kernel.config import LaunchConfig
from dotcu.kernel.locks import ForkSafeLock

_REMEDIES = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "A kernel before this one read or wrote outside its memory. Run it on CPU "
    "tensors: the simulator names the line. The process must be restarted.",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "A kernel before this one used a misaligned address. Run it on CPU "
    "tensors: the simulator names the line. The process must be restarted.",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "Use a smaller block, or __launch_bounds__(threads).",
    "CUDA_ERROR_INVALID_VALUE": "Compare the configuration with kernel.attributes.",
    "CUDA_ERROR_INVALID_IMAGE": "The code is not for this driver; see: dotcu doctor",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "The code is not for this GPU; see: dotcu doctor",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "The driver is older than the compiler; see: dotcu doctor",
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": "Use grid=dotcu.sm_count(t) * kernel.occupancy(block).",
    "CUDA_ERROR_OUT_OF_MEMORY": "Free memory on the device: torch.cuda.empty_cache().",
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": "Load everything before the capture: module.warm().",
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": "Load everything before the capture: module.warm().",
}


@functools.cache
def _driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise ToolchainError(
            f"The driver's bindings cannot be imported: {error}.\nThey are required for a launch on a GPU.\n"
            "Install them: pip install cuda-bindings"
        ) from error
    return driver


def _call(function: str, *args: Any, doing: str) -> Any:
    """Call the driver and give what it returns beside its status.

    Raises:
        LaunchError: It returned an error; `doing` says what was tried.
    """
    driver = _driver()
    status, *values = getattr(driver, function)(*args)
    if status == driver.CUresult.CUDA_SUCCESS:
        return values[0] if len(values) == 1 else values
    _, text = driver.cuGetErrorString(status)
    name = getattr(status, "name", str(status))
    explained = text.decode() if isinstance(text, bytes) else "no explanation"
    remedy = _REMEDIES.get(name, "See what fits together: dotcu doctor")
    raise LaunchError(f"{doing} failed: {function} gave {name} ({explained}).\n{remedy}")


def available() -> bool:
    """Whether torch can use a GPU here."""
    return torch.cuda.is_available()


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
            _call("cuCtxPopCurrent", doing="Leaving the device's context")


@functools.cache
def _device(index: int) -> _Device:
    return _Device(index)


def _stream(index: int) -> Any:
    """torch's current stream of a device, at this moment."""
    return _driver().CUstream(torch.cuda.current_stream(index).cuda_stream)


class Library:
    """Code in the driver, for every device.

    Args:
        name: Whose code it is, for messages.
        data: A cubin, or PTX that ends in a zero.
        initial: Gives what was written so far, by symbol, when a device first loads the code.
    """

    def __init__(self, name: str, data: bytes, initial: Callable[[], dict[str, bytes]]) -> None:
        self.name = name
        self._data = data
        self._initial = initial
        self._lock = ForkSafeLock()
        self._handle: Any = None
        self._kernels: dict[tuple[str, int], Any] = {}
        self._devices: set[int] = set()

    def kernel(self, symbol: str, index: int) -> Any:
        """A kernel that is loaded on a device, with its attributes set there."""
        found = self._kernels.get((symbol, index))
        if found is None:
            with self._lock:
                found = self._kernels.get((symbol, index)) or self._load(symbol, index)
                self._kernels[symbol, index] = found
        return found

    def _load(self, symbol: str, index: int) -> Any:
        device, doing = _device(index), f"Loading {symbol} of {self.name} on cuda:{index}"
        with device.current():
            self._open(index)
            kernel = _call("cuLibraryGetKernel", self._handle, symbol.encode(), doing=doing)
            _set_attributes(kernel, device, capability(index), doing)
            return _call("cuKernelGetFunction", kernel, doing=doing)  # loads it now, not at the first launch

    def _open(self, index: int) -> None:
        if self._handle is None:
            doing = f"Loading the code of {self.name}"
            self._handle = _call("cuLibraryLoadData", self._data, [], [], 0, [], [], 0, doing=doing)
        if index not in self._devices:
            for symbol, data in self._initial().items():
                self._write(symbol, data, index)
            self._devices.add(index)

    def write(self, symbol: str, data: bytes) -> None:
        """Write a variable on every device that has loaded the code, in order on torch's current streams."""
        with self._lock:
            for index in sorted(self._devices):
                with _device(index).current():
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


def launch(
    library: Library, symbol: str, index: int, config: LaunchConfig, parameters: Sequence[bytes], kernel: str
) -> None:
    """Launch on torch's current stream of a device; does not wait for it.

    Raises:
        LaunchError: The driver refused; names kernel and configuration.
    """
    function = library.kernel(symbol, index)
    block, pointers = parameter_block(parameters)
    with _device(index).current():
        native = native_config(config, _stream(index))
        doing = f"Launching {kernel} on cuda:{index} with {config}"
        _call("cuLaunchKernelEx", native, function, ctypes.addressof(pointers), 0, doing=doing)
    del block  # until here: the pointers point into it


def parameter_block(parameters: Sequence[bytes]) -> tuple[Any, Any]:
    """The parameters in one piece of memory, each 16-byte aligned, and an array of pointers to them."""
    offsets, size = [], 0
    for parameter in parameters:
        offsets.append(size)
        size += -(-len(parameter) // 16) * 16
    joined = b"".join(p.ljust(-(-len(p) // 16) * 16, b"\0") for p in parameters)
    block = ctypes.create_string_buffer(joined, max(1, size))
    base = ctypes.addressof(block)
    pointers = (ctypes.c_void_p * max(1, len(offsets)))(*(base + offset for offset in offsets))
    return block, pointers


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
