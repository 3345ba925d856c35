"""The CUDA driver: libraries, kernel attributes, variables, launches, tensor maps, and ranges for profilers.

Nothing here runs, or is imported, before a CUDA tensor or device comes. Libraries are context free and
shared by all devices; they are never unloaded, so that a captured graph stays valid. Every launch makes the
primary context of the tensor's device current for its own length: on a thread that is new to CUDA none is,
or another device's.

The launch goes through cuda.bindings and not `cuda.core.launch`, which takes numbers alone: a struct by
value, such as `dotcu::tensor`, needs its own parameter block.

Sources: NVIDIA/cuda-python pull request 1692 (tensor maps); nvtx3/nvtxDetail/nvtxInit.h
(NVTX_INJECTION64_PATH); CUPTI's documentation, "CUPTI Injection" (CUDA_INJECTION64_PATH).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NoReturn

import torch
from torch import Tensor

from dotcu import settings, telemetry, torch_compat
from dotcu.compile import driver
from dotcu.errors import LaunchConfigError, LaunchError, ToolchainError
from dotcu.kernel.arguments.tensor_map import BYTES, DTYPES, Tiled
from dotcu.kernel.config import LaunchConfig
from dotcu.kernel.faults import (
    FAULTS,
    LaunchLabel,
    driver_error,
    fault_suspects,
    forked_with_cuda,
    record_launch,
    require_own_cuda,
)
from dotcu.kernel.launch_policy import current_scope
from dotcu.locks import ForkSafeLock


@functools.cache
def _driver() -> Any:
    try:
        with telemetry.during("bindings"):
            from cuda.bindings import driver
    except ImportError as error:
        raise ToolchainError(
            f"The driver's bindings cannot be imported: {error}.\nThey are required for a launch on a GPU.\n"
            "Install them: pip install cuda-bindings"
        ) from error
    return driver


def _call(function: str, *args: Any, doing: str | LaunchLabel, waited: LaunchLabel | None = None) -> Any:
    """Call the driver and return its values without the status; `doing` and `waited` as `fail` takes them."""
    status, *values = getattr(_driver(), function)(*args)
    if status != _driver().CUresult.CUDA_SUCCESS:
        fail(int(status), doing if isinstance(doing, str) else f"Launching {doing}", function, waited)
    return values[0] if len(values) == 1 else values


def fail(
    status: int, doing: str, function: str = "cuLaunchKernelEx", waited: LaunchLabel | None = None
) -> NoReturn:
    """Raise the error for a status of the driver, a `CUresult` as a number."""
    raise driver_error(doing, function, *_explain(status), waited)


def _explain(status: int) -> tuple[str, str]:
    """Return the driver's name of a status, and its explanation."""
    try:
        known = _driver().CUresult(status)
    except ValueError:  # of a driver that is newer than its bindings
        return f"status {status}", "no explanation"
    _, text = _driver().cuGetErrorString(known)
    return known.name, text.decode() if isinstance(text, bytes) else "no explanation"


def fault_story(error: BaseException) -> str | None:
    """List the launches that a fault which torch raised may come from; None for any other error."""
    status = getattr(error, "error_code", None) if isinstance(error, torch.AcceleratorError) else None
    if not isinstance(status, int):
        return None
    name, _ = _explain(status)  # the runtime numbers faults as the driver does
    return fault_suspects(name) if name in FAULTS else None


def available() -> bool:
    """Return whether torch can use a GPU here, in this process."""
    return not forked_with_cuda() and (torch.cuda.is_initialized() or torch.cuda.is_available())


def capturing() -> bool:
    """Return whether torch's current stream of the current device is being captured in a CUDA graph."""
    return torch.cuda.is_initialized() and _captured(torch.cuda.current_device())


def _captured(index: int) -> bool:
    """Return whether torch's current stream of a device is being captured; the default stream never is."""
    stream = _stream(index)
    if int(stream) == 0:
        return False
    status = _call("cuStreamIsCapturing", stream, doing="Asking whether a CUDA graph is being captured")
    return bool(status != _driver().CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)


@contextmanager
def _allowed_during_capture() -> Iterator[None]:
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
    """Return the compute capability of a device."""
    return torch.cuda.get_device_capability(index)


@functools.cache
def _device(index: int) -> tuple[Any, Any, int]:
    """Return a device, its primary context, retained for good, and the shared memory of a block in bytes."""
    torch.cuda.init()
    doing = f"Opening cuda:{index}"
    device = _call("cuDeviceGet", index, doing=doing)  # torch counts the visible ones alike
    context = _call("cuDevicePrimaryCtxRetain", device, doing=doing)
    attribute = _driver().CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    return device, context, _call("cuDeviceGetAttribute", attribute, device, doing=doing)


def primary_context(index: int) -> int:
    """Return the CUcontext that a device's launches need current on their thread."""
    return int(_device(index)[1])


@contextmanager
def entered(index: int) -> Iterator[None]:
    """Make a device's primary context current on this thread until the block ends."""
    context = _device(index)[1]
    now = _call("cuCtxGetCurrent", doing="Asking for the current context")
    if int(now) == int(context):
        yield
        return
    _call("cuCtxPushCurrent", context, doing="Entering the device's context")
    try:
        yield
    finally:
        _driver().cuCtxPopCurrent()  # it fails only in a context that has: the fault is reported already


def _stream(index: int) -> Any:
    """Return torch's current stream of a device, at this moment."""
    return _driver().CUstream(torch.cuda.current_stream(index).cuda_stream)


class Library:
    """Code in the driver, for every device.

    Args:
        name: Whose code it is, for messages.
        data: A cubin, or PTX that ends in a zero.
        initial: Gives what was written so far, by symbol, when a device first loads the code.
        names: Kernels by symbol, as users know them.
        is_tile: They are tile kernels, which take no attributes.
    """

    def __init__(
        self,
        name: str,
        data: bytes,
        initial: Callable[[], dict[str, bytes]],
        names: Mapping[str, str] = MappingProxyType({}),
        *,
        is_tile: bool = False,
    ) -> None:
        self.name = name
        self._is_tile = is_tile
        self._names = names
        self._data = data
        self._is_ptx = not data.startswith(b"\x7fELF")  # as a cubin does
        self._initial = initial
        self._lock = ForkSafeLock()
        self._handle: Any = None
        self._kernels: dict[tuple[str, int], Any] = {}
        self._devices: set[int] = set()

    def kernel(self, symbol: str, index: int) -> Any:
        """Return a kernel that is loaded on a device, with its attributes set there."""
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
            from dotcu.kernel.launch_policy import refuse_captured_load

            refuse_captured_load(shown, self.name, index)
        device, _, smem_bytes = _device(index)
        loading = telemetry.span("load", file=self.name, kernels=shown, device=str(index))
        with loading, entered(index), _allowed_during_capture():
            self._open(index)
            with telemetry.during("jit" if self._is_ptx else "kernel"):
                kernel = _call("cuLibraryGetKernel", self._handle, symbol.encode(), doing=doing)
                if self._is_tile:  # its compiler has settled shared memory and clusters
                    return _call("cuKernelGetFunction", kernel, doing=doing)
                # All of the device's shared memory and, where there are clusters, large ones.
                names = _driver().CUfunction_attribute
                shared = names.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
                static = _call("cuKernelGetAttribute", shared, kernel, device, doing=doing)
                values = {names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: smem_bytes - static}
                if capability(index) >= (9, 0):
                    values[names.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] = 1
                for attribute, value in values.items():
                    _call("cuKernelSetAttribute", attribute, value, kernel, device, doing=doing)
                return _call("cuKernelGetFunction", kernel, doing=doing)  # loads it now, not at a launch

    def _open(self, index: int) -> None:
        if self._handle is None:
            doing = f"Loading the code of {self.name}"
            with telemetry.during("jit" if self._is_ptx else "library"):
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
                with entered(index), _allowed_during_capture():
                    self._write(symbol, data, index)

    def _write(self, symbol: str, data: bytes, index: int) -> None:
        doing = f"Writing {symbol} of {self.name} on cuda:{index}"
        address, size = _call("cuLibraryGetGlobal", self._handle, symbol.encode(), doing=doing)
        host = ctypes.create_string_buffer(data, len(data))
        count = min(len(data), int(size))
        _call("cuMemcpyHtoDAsync", address, ctypes.addressof(host), count, _stream(index), doing=doing)
        _call("cuStreamSynchronize", _stream(index), doing=doing)  # the host's bytes are free after this


def launch(
    library: Library, symbol: str, index: int, config: LaunchConfig, parameters: Sequence[bytes], kernel: str
) -> None:
    """Launch on torch's current stream of a device.

    Waits for it under CUDA_LAUNCH_BLOCKING=1, outside captures, so that a fault is this kernel's own.

    Args:
        library, symbol, kernel: The code, the kernel's symbol in it, and its name for messages.
        index, config, parameters: The device's, a checked configuration, and the bytes of each parameter.
    """
    function = library.kernel(symbol, index)
    block, pointers = parameter_block(parameters)
    label = LaunchLabel(current_scope().operator, kernel, config, index)
    with entered(index):
        stream = _stream(index)
        waited = label if settings.current().launch_blocking and not _captured(index) else None
        if waited is not None:  # a fault after this is the kernel's own
            _call("cuStreamSynchronize", stream, doing=f"Waiting for what comes before {label}")
        native = native_config(supported(config, capability(index)), stream)
        with telemetry.during("launch"):
            what = native, function, ctypes.addressof(pointers), 0
            _call("cuLaunchKernelEx", *what, doing=label, waited=waited)
        record_launch(label)
        if waited is not None:
            _call("cuStreamSynchronize", stream, doing=label, waited=waited)
    del block  # until here: the pointers point into it


def supported(config: LaunchConfig, arch: tuple[int, int]) -> LaunchConfig:
    """Return a configuration without permissions that a GPU does not know: it starts no kernel early."""
    if config.programmatic and arch < (9, 0):
        return replace(config, programmatic=False)
    return config


def parameter_block(parameters: Sequence[bytes]) -> tuple[Any, Any]:
    """Return the parameters in one block of memory, each 16-byte aligned, and an array of their addresses."""
    offsets, size, pointers = _parameter_layout(tuple(map(len, parameters)))
    block = ctypes.create_string_buffer(size)
    base = ctypes.addressof(block)
    for offset, parameter in zip(offsets, parameters, strict=True):
        ctypes.memmove(base + offset, parameter, len(parameter))
    return block, pointers(*[base + offset for offset in offsets])


@functools.lru_cache(maxsize=1024)
def _parameter_layout(sizes: tuple[int, ...]) -> tuple[tuple[int, ...], int, Any]:
    """Return the offsets of parameters of these sizes, their total, and the type of as many pointers."""
    offsets, size = [], 0
    for each in sizes:
        offsets.append(size)
        size += -(-each // 16) * 16
    return tuple(offsets), max(1, size), ctypes.c_void_p * max(1, len(sizes))


def native_config(config: LaunchConfig, stream: Any) -> Any:
    """Return a configuration as the driver has it, which counts the grid in blocks too."""
    native, ids = _driver().CUlaunchConfig(), _driver().CUlaunchAttributeID
    native.gridDimX, native.gridDimY, native.gridDimZ = config.grid
    native.blockDimX, native.blockDimY, native.blockDimZ = config.block
    native.sharedMemBytes = config.smem_bytes
    native.hStream = stream
    attributes = []

    def add(attribute: Any) -> Any:
        attributes.append(_driver().CUlaunchAttribute())
        attributes[-1].id = attribute
        return attributes[-1].value

    if config.cluster is not None:
        size = add(ids.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim
        size.x, size.y, size.z = config.cluster
    if config.cooperative:
        add(ids.CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1
    if config.programmatic:
        serialization = add(ids.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
        serialization.programmaticStreamSerializationAllowed = 1
    native.attrs = attributes
    native.numAttrs = len(attributes)
    return native


# Tensor maps. The driver writes one to an address divisible by 64; the bindings keep theirs inside a Python
# object, whose memory is aligned to 16 bytes, so the function is called by its address.


_ALIGNMENT = 64

# cuda.h, of CUDA 12.0 and later: CUtensorMapDataType, ...Swizzle, ...L2promotion, ...FloatOOBfill.
_TYPE_NUMBERS = {
    "UINT8": 0, "UINT16": 1, "UINT32": 2, "INT32": 3, "UINT64": 4, "INT64": 5, "FLOAT16": 6, "FLOAT32": 7,
    "FLOAT64": 8, "BFLOAT16": 9,
}  # fmt: skip
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}
_FILLS = {"zeros": 0, "nan": 1}
_NO_INTERLEAVE = 0


def encode_tensor_map(tiled: Tiled, address: int, index: int) -> bytes:
    """Return the 128 bytes that a kernel on a GPU takes for a map."""
    major, minor = capability(index)
    if major < 9:
        raise LaunchConfigError(
            f"A tensor map was passed to a kernel on cuda:{index}, which is sm_{major}{minor}.\n"
            "TMA begins with sm_90.\nPass the tensor for a pointer, to a kernel that loads it by itself."
        )
    name = "cuTensorMapEncodeIm2col" if tiled.lower_corner else "cuTensorMapEncodeTiled"
    function = _encoder(name)
    storage = ctypes.create_string_buffer(BYTES + _ALIGNMENT)
    target = -(-ctypes.addressof(storage) // _ALIGNMENT) * _ALIGNMENT
    with entered(index):
        dtype, rank, *rest = _arguments(tiled)
        status = function(target, dtype, rank, address, *rest)
    if status:
        raise LaunchError(
            f"Encoding {tiled} at {address:#x} on cuda:{index} failed: {name} gave error {status}.\n"
            "It keeps every limit that the driver documents.\nSee what fits together: dotcu doctor"
        )
    return ctypes.string_at(target, BYTES)


def device_copy(data: bytes, index: int) -> Tensor:
    """Return a tensor with some bytes on a GPU, without a wait for it.

    While a CUDA graph is captured, kernels write the copy, with the words among their own arguments, so that
    each replay of the graph writes it again, into memory that the graph has.
    """
    words = torch.frombuffer(bytearray(data + bytes(-len(data) % 8)), dtype=torch.int64)
    device = torch.device("cuda", index)
    if not _captured(index):
        words = words.pin_memory() if torch.cuda.is_available() else words
        return words.to(device, non_blocking=True)
    copy = torch.empty(len(words), dtype=torch.int64, device=device)
    for at, word in enumerate(words.tolist()):
        copy[at].fill_(word)
    return copy


@functools.lru_cache(maxsize=256)
def _arguments(tiled: Tiled) -> tuple[Any, ...]:
    """Return the arguments of the encoding function, which it only reads, except for the two addresses."""

    def array(kind: Any, values: Sequence[int]) -> Any:
        return (kind * max(1, len(values)))(*values)

    dtype, rank, *words = tensor_map_numbers(tiled)
    box: tuple[Any, ...] = (array(ctypes.c_uint32, tiled.box),)
    if tiled.lower_corner:
        corners = tiled.lower_corner, tiled.upper_corner
        box = (*(array(ctypes.c_int, corner) for corner in corners), *tiled.box)
    return (
        dtype,
        rank,
        array(ctypes.c_uint64, tiled.sizes),
        array(ctypes.c_uint64, tiled.strides_bytes),
        *box,
        array(ctypes.c_uint32, tiled.element_strides),
        *words,
    )


def tensor_map_numbers(tiled: Tiled) -> tuple[int, int, int, int, int, int]:
    """Return type, rank, interleave, swizzle, L2 promotion and fill, as cuTensorMapEncodeTiled takes them."""
    type_number = _TYPE_NUMBERS[DTYPES[tiled.dtype]]
    words = _SWIZZLES[tiled.swizzle], _PROMOTIONS[tiled.l2_promotion], _FILLS[tiled.fill]
    return type_number, len(tiled.sizes), _NO_INTERLEAVE, *words


@functools.cache
def _encoder(name: str) -> Callable[..., int]:
    pointer, number = ctypes.c_void_p, ctypes.c_uint
    corners = [pointer, pointer, number, number]
    boxes: list[Any] = corners if name == "cuTensorMapEncodeIm2col" else [pointer]
    takes = [pointer, number, number, *[pointer] * 3, *boxes, pointer, *[number] * 4]
    try:
        return ctypes.CFUNCTYPE(number, *takes)(driver.function(name))
    except ToolchainError as error:
        raise LaunchError(f"A tensor map cannot be made: {error}.\nSee: dotcu doctor") from error


# Ranges around launches, named after their kernels, while a profiler looks on.


def ranges_wanted() -> bool:
    """Return whether a profiler would see a range; one look at torch and one at the settings."""
    return torch_compat.profiling() or profiler_attached()


def profiler_attached() -> bool:
    """Return whether a tool outside this process profiles it, for all of its life."""
    now = settings.current()
    if torch.version.cuda is None or (now.nvtx_injection or now.cuda_injection) is None:
        return False
    # Some containers name CUPTI there for every process: a range would take it from torch's profiler.
    return now.nvtx_injection is None or not now.nvtx_injection.name.startswith("libcupti")


def kernel_range(kernel: str) -> AbstractContextManager[object]:
    """Return a range of a kernel's name: torch's where its profiler runs, else NVTX's."""
    if torch_compat.profiling():
        return torch.profiler.record_function(kernel)
    return torch.cuda.nvtx.range(kernel.replace("{", "{{").replace("}", "}}"))  # torch formats the name
