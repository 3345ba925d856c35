"""The driver's calls, on a driver that notes them."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from dotcu import settings, telemetry
from dotcu.compile import driver
from dotcu.errors import FindingError, LaunchConfigError, LaunchError
from dotcu.kernel import Module, cuda, load_inline
from dotcu.kernel.arguments.tensor_map import tensor_map, tiled
from dotcu.kernel.config import read_config
from dotcu.kernel.faults import recent_launches
from dotcu.kernel.launch_policy import LaunchPolicy, entering_scope
from dotcu.telemetry import Stopwatch
from helpers import forked_scripts

CONFIG = read_config("k", grid=3, block=64)
ILLEGAL_ADDRESS, OUT_OF_MEMORY = 700, 2
CAPTURED = 77  # what a FakeDriver takes for a stream that is being captured


@pytest.fixture
def library(driver: Any) -> cuda.Library:
    return cuda.Library("k.cu", b"code", dict, {"_Z1k": "k<float>"})


def launch(library: cuda.Library, operator: str = "mylib::k") -> None:
    with entering_scope(LaunchPolicy.BODY, operator=operator):
        cuda.launch(library, "_Z1k", 0, CONFIG, [b"abcd"], "k<float>")


def test_attributes_are_set_on_each_device(library: cuda.Library, driver: Any) -> None:
    for index in (0, 1):
        driver.calls.clear()
        library.kernel("_Z1k", index)
        assert driver.called.count("cuKernelSetAttribute") == 2, "shared memory and large clusters"
        assert ("cuLibraryLoadData" in driver.called) == (index == 0), "the code is shared"


@pytest.mark.parametrize(
    ("data", "steps"),
    [(b"\x7fELF and so on", ["library", "kernel", "launch"]), (b".version 9.0", ["jit", "launch"])],
    ids=["a cubin", "PTX"],
)
def test_a_first_launch_reports_its_steps_and_whether_the_driver_compiles(
    driver: Any, data: bytes, steps: list[str]
) -> None:
    library, watch = cuda.Library("k.cu", data, dict), Stopwatch("call")
    with telemetry.listening(watch):
        launch(library)
        assert list(watch.times) == ["call", *steps]
        launch(library)
    assert [step for step in steps if watch.times[step] > 1][-1] == "launch"
    assert (watch.times["library"], watch.times["kernel"]) in ((1, 1), (0, 0)), "once for all launches"


def test_a_launch_does_not_wait(library: cuda.Library, driver: Any) -> None:
    launch(library)
    assert "cuStreamSynchronize" not in driver.called
    assert str(recent_launches()[0]) == f"k<float> of mylib::k on cuda:0 with {CONFIG}"


def test_a_launch_that_the_driver_refuses_is_not_among_the_suspects(
    library: cuda.Library, driver: Any
) -> None:
    launch(library, "mylib::earlier")
    driver.statuses["cuLaunchKernelEx"] = ILLEGAL_ADDRESS
    with pytest.raises(LaunchError) as caught:
        launch(library, "mylib::later")
    first, *rest = str(caught.value).splitlines()
    assert first.startswith(f"Launching k<float> of mylib::later on cuda:0 with {CONFIG} failed")
    assert "mylib::earlier" in rest[1]
    assert not any("mylib::later" in line for line in rest)


@pytest.mark.parametrize("where", ["cuLaunchKernelEx", "cuStreamSynchronize"])
def test_with_launch_blocking_a_fault_is_the_kernels_own(
    library: cuda.Library, driver: Any, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    launch(library, "mylib::innocent")
    call, before = cuda._call, []

    def fail_after_the_first_wait(function: str, *args: Any, **kwargs: Any) -> Any:
        before.append(function)
        driver.statuses[where] = ILLEGAL_ADDRESS if before.count("cuStreamSynchronize") > 1 else 0
        driver.statuses["cuLaunchKernelEx"] = ILLEGAL_ADDRESS if where == "cuLaunchKernelEx" else 0
        return call(function, *args, **kwargs)

    monkeypatch.setattr(cuda, "_call", fail_after_the_first_wait)
    with settings.override(launch_blocking=True), pytest.raises(LaunchError) as caught:
        launch(library)
    message = str(caught.value)
    assert message.startswith(
        f"k<float> of mylib::k on cuda:0 with {CONFIG} failed: CUDA_ERROR_ILLEGAL_ADDRESS"
    )
    assert "innocent" not in message


def test_with_launch_blocking_a_fault_from_before_is_not_the_kernels(
    library: cuda.Library, driver: Any
) -> None:
    launch(library, "mylib::earlier")
    driver.statuses["cuStreamSynchronize"] = ILLEGAL_ADDRESS
    with settings.override(launch_blocking=True), pytest.raises(LaunchError) as caught:
        launch(library)
    assert str(caught.value).startswith("Waiting for what comes before k<float> of mylib::k")
    assert "mylib::earlier" in str(caught.value)


def test_with_launch_blocking_a_captured_launch_is_not_waited_for(library: cuda.Library, driver: Any) -> None:
    launch(library)
    driver.streams[0] = CAPTURED
    with settings.override(launch_blocking=True):
        launch(library)
    assert "cuStreamSynchronize" not in driver.called


def test_a_status_by_its_number_is_the_same_error(driver: Any) -> None:
    with pytest.raises(LaunchError, match=r"Launching k failed: cuLaunchKernelEx gave CUDA_ERROR_OUT_OF"):
        cuda.fail(OUT_OF_MEMORY, "Launching k")
    with pytest.raises(LaunchError, match="status 123456"):
        cuda.fail(123456, "Launching k")


def test_a_fault_that_torch_raises_has_its_story(library: cuda.Library, driver: Any) -> None:
    launch(library)
    error = torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
    error.error_code = ILLEGAL_ADDRESS  # type: ignore[attr-defined]
    assert "k<float> of mylib::k" in (cuda.fault_story(error) or "")
    error.error_code = OUT_OF_MEMORY  # type: ignore[attr-defined]
    assert cuda.fault_story(error) is None
    assert cuda.fault_story(RuntimeError("CUDA error")) is None


def test_parameters_lie_aligned_in_one_block_that_the_pointers_lead_into() -> None:
    parameters = [b"\1", b"abcdefgh", bytes(range(40)), b"xy"]
    block, pointers = cuda.parameter_block(parameters)
    base = ctypes.addressof(block)
    assert [ctypes.string_at(p, len(q)) for p, q in zip(pointers, parameters, strict=True)] == parameters
    assert [(p - base) % 16 for p in pointers] == [0, 0, 0, 0]


def test_a_kernel_without_parameters_has_a_block_too() -> None:
    _, pointers = cuda.parameter_block([])
    assert list(pointers) == [None]


def test_a_configuration_is_handed_to_the_driver_in_blocks() -> None:
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    config = read_config(
        "k", grid=(8, 2), block=64, smem_bytes=100, cluster=4, cooperative=True, programmatic=True
    )
    native = cuda.native_config(config, driver.CUstream(0))
    assert (native.gridDimX, native.gridDimY, native.gridDimZ) == (8, 2, 1)
    assert (native.blockDimX, native.sharedMemBytes, native.numAttrs) == (64, 100, 3)
    cluster, cooperative, programmatic = native.attrs
    assert (cluster.value.clusterDim.x, cluster.value.clusterDim.y) == (4, 1)
    assert cooperative.value.cooperative == 1
    assert programmatic.value.programmaticStreamSerializationAllowed == 1
    assert cuda.native_config(read_config("k", grid=1, block=1), driver.CUstream(0)).numAttrs == 0


@pytest.mark.parametrize(("arch", "asked"), [((8, 0), False), ((9, 0), True)])
def test_an_older_gpu_is_not_asked_to_start_a_kernel_early(arch: tuple[int, int], asked: bool) -> None:
    config = read_config("k", grid=1, block=32, programmatic=True, cooperative=True)
    assert cuda.supported(config, arch).programmatic == asked
    assert cuda.supported(config, arch).cooperative


def test_neither_import_nor_load_touches_the_driver() -> None:
    script = (
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "import dotcu.kernel as kernel\n"
        "kernel.load_inline('__global__ void k() {}').k\n"
        "assert not any(name.startswith('cuda') for name in set(sys.modules) - before)\n"
        "assert not torch.cuda.is_initialized()\n"
    )
    done = forked_scripts.run(script)
    assert done.returncode == 0, done.stderr


# Copies that a launch reads


def test_a_copy_for_a_launch_is_not_waited_for(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: asked.append("pinned") or self)
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *args, **kw: asked.append((args, kw)) or self)
    assert cuda.device_copy(bytes(range(16)) + b"abc", 1).view(torch.uint8)[:19].tolist() == [
        *range(16), *b"abc",
    ]  # fmt: skip
    assert asked == ["pinned", ((torch.device("cuda", 1),), {"non_blocking": True})]


def test_in_a_capture_kernels_write_the_copy(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.streams[1] = CAPTURED
    empty, devices = torch.empty, []

    def on_cpu(size: int, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        devices.append(device)
        return empty(size, dtype=dtype)

    monkeypatch.setattr(torch, "empty", on_cpu)
    data = (1 << 63 | 5).to_bytes(8, "little") + (7).to_bytes(8, "little")
    copy = cuda.device_copy(data, 1)
    assert bytes(copy.view(torch.uint8).tolist()) == data
    assert devices == [torch.device("cuda", 1)]


# How the driver is asked to encode a map; what it makes of it is in tests/gpu/test_tensor_map_cuda.py.


class Driver:
    """cuTensorMapEncodeTiled as the driver has it, and what it was called with."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.target = 0
        self.values: tuple[Any, ...] = ()
        self.inside: list[int] = []

    def __call__(self, target: int, *args: Any) -> int:
        self.target = target
        self.values = tuple(list(arg) if isinstance(arg, ctypes.Array) else arg for arg in args)
        ctypes.memmove(target, bytes(range(128)), 128)
        return self.status

    @contextlib.contextmanager
    def entered(self, index: int) -> Any:
        self.inside.append(index)
        yield


SIZES, STRIDES = [64, 8, 3], [128, 1024]
CORNERS = {"lower_corner": -1, "upper_corner": -2, "channels_per_pixel": 32, "pixels_per_column": 640}


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        ({"box": (1, 4, 32)}, "cuTensorMapEncodeTiled", [[32, 4, 1], [1, 1, 1]]),
        (CORNERS, "cuTensorMapEncodeIm2col", [[-1], [-2], 32, 640, [1, 1, 1]]),
    ],
)  # fmt: skip
def test_the_function_is_called_as_c_has_it(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], name: str, expected: list[Any]
) -> None:
    """Through a real function pointer, whose arguments are then read back as C would read them."""
    u32, i32, pointer = ctypes.c_uint32, ctypes.c_int32, ctypes.c_void_p
    seen: list[Any] = []
    by_im2col = name == "cuTensorMapEncodeIm2col"
    arrays = [i32 * 1, i32 * 1, None, None, u32 * 3] if by_im2col else [u32 * 3, u32 * 3]

    def stand_in(*args: Any) -> int:
        target, dtype, rank, address, sizes, strides, *rest = args
        ctypes.memset(target, 5, 128)
        words = [(ctypes.c_uint64 * 3).from_address(sizes), (ctypes.c_uint64 * 2).from_address(strides)]
        seen.extend([target % 64, dtype, rank, address, *map(list, words)])
        for value, array in zip(rest, [*arrays, *[None] * 4], strict=True):
            seen.append(value if array is None else list(array.from_address(value)))
        return 0

    takes = [u32 if array is None else pointer for array in arrays]
    kind = ctypes.CFUNCTYPE(u32, pointer, u32, u32, *[pointer] * 3, *takes, *[u32] * 4)
    kept = kind(stand_in)
    made = Driver()
    monkeypatch.setattr(driver, "function", {name: ctypes.cast(kept, pointer).value}.__getitem__)
    monkeypatch.setattr(cuda, "entered", made.entered)
    monkeypatch.setattr(cuda, "capability", lambda index: (9, 0))
    cuda._encoder.cache_clear()
    try:
        x = torch.zeros(3, 8, 64, dtype=torch.bfloat16)
        checked = tiled(tensor_map(x, **given, swizzle=64))
        assert cuda.encode_tensor_map(checked, (1 << 47) + 16, 0) == b"\5" * 128
    finally:
        cuda._encoder.cache_clear()
    assert seen == [0, 9, 3, (1 << 47) + 16, SIZES, STRIDES, *expected, 0, 2, 0, 0]


@pytest.fixture
def map_driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(cuda, "_encoder", lambda name: made)
    monkeypatch.setattr(cuda, "entered", made.entered)
    monkeypatch.setattr(cuda, "capability", lambda index: (9, 0))
    return made


def encoded(x: torch.Tensor, index: int = 0, **given: Any) -> bytes:
    return cuda.encode_tensor_map(tiled(tensor_map(x, **given)), 4096, index)


def test_the_driver_writes_the_map_to_an_address_divisible_by_64(map_driver: Driver) -> None:
    x = torch.zeros(8, 64, dtype=torch.bfloat16)
    assert [encoded(x, box=(8, 64)) for _ in range(20)] == [bytes(range(128))] * 20
    assert map_driver.target % 64 == 0


def test_every_argument_has_its_place(map_driver: Driver) -> None:
    x = torch.zeros(3, 8, 64, dtype=torch.bfloat16)
    encoded(x, 1, box=(1, 4, 32), element_strides=(1, 2, 1), swizzle=64, l2_promotion=256, fill="nan")
    assert map_driver.values == (
        9, 3, 4096, [64, 8, 3], [128, 1024], [32, 4, 1], [1, 2, 1], 0, 2, 3, 1
    )  # fmt: skip
    assert map_driver.inside == [1]


def test_one_dimension_has_no_strides_to_tell(map_driver: Driver) -> None:
    encoded(torch.zeros(64), box=64)
    assert map_driver.values[1] == 1


def test_numbers_are_those_of_the_bindings() -> None:
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    types, swizzles = driver.CUtensorMapDataType, driver.CUtensorMapSwizzle
    promotions = driver.CUtensorMapL2promotion
    for name, number in cuda._TYPE_NUMBERS.items():
        assert int(getattr(types, f"CU_TENSOR_MAP_DATA_TYPE_{name}")) == number
    for span, number in cuda._SWIZZLES.items():
        name = f"{span}B" if span else "NONE"
        assert int(getattr(swizzles, f"CU_TENSOR_MAP_SWIZZLE_{name}")) == number
    for span, number in cuda._PROMOTIONS.items():
        name = f"L2_{span}B" if span else "NONE"
        assert int(getattr(promotions, f"CU_TENSOR_MAP_L2_PROMOTION_{name}")) == number


def test_an_older_gpu_is_refused_by_name(map_driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "capability", lambda index: (8, 0))
    with pytest.raises(LaunchConfigError, match=r"cuda:0, which is sm_80\.\nTMA begins with sm_90"):
        encoded(torch.zeros(64), box=64)


def test_what_the_driver_refuses_names_the_map(map_driver: Driver) -> None:
    map_driver.status = 1
    with pytest.raises(LaunchError, match=r"sizes=\(64,\).* at 0x1000 on cuda:0 failed: .* gave error 1\."):
        encoded(torch.zeros(64), box=64)


# Ranges around launches: for torch's profiler, and for tools that see NVTX.


SOURCE = """
template <typename T>
__global__ void fill(T* x, int n) { x[threadIdx.x] = n; }
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return load_inline(SOURCE)


def fill(module: Module, size: int = 8) -> None:
    module.fill[torch.float32](torch.zeros(size), 3, grid=1, block=8, device="cpu")


@pytest.fixture
def nvtx(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is pushed and popped; torch looks like one with CUDA."""
    said: list[str] = []

    @contextmanager
    def seen(message: str) -> Iterator[None]:
        said.append(f"push {message.format()}")
        try:
            yield
        finally:
            said.append("pop")

    monkeypatch.setattr(torch.cuda.nvtx, "range", seen)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    return said


def names(prof: Any) -> dict[str, int]:
    return {event.key: event.count for event in prof.key_averages()}


def test_torchs_profiler_shows_each_launch_by_its_kernels_name(module: Module) -> None:
    fill(module)  # compiled before, so that the range holds the launch alone
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as prof:
        fill(module)
        fill(module)
    assert names(prof)["fill<float>"] == 2


def test_a_launch_that_fails_ends_its_range(module: Module) -> None:
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as prof:
        with pytest.raises(FindingError):
            fill(module, size=4)
        torch.ones(3)
    event = next(event for event in prof.events() if event.name == "fill<float>")
    ones = next(event for event in prof.events() if event.name == "aten::ones")
    assert event.time_range.end <= ones.time_range.start


def test_nobody_is_reported_where_nobody_looks_on(module: Module, nvtx: list[str]) -> None:
    assert not cuda.ranges_wanted()
    fill(module)
    assert nvtx == []


@pytest.mark.parametrize("variable", ["nvtx_injection", "cuda_injection"])
def test_a_tool_outside_the_process_gets_nvtx_ranges(module: Module, nvtx: list[str], variable: str) -> None:
    with settings.override(**{variable: Path("/opt/nsight/libToolsInjection64.so")}):
        fill(module)
    assert nvtx == ["push fill<float>", "pop"]


def test_a_range_ends_where_a_launch_fails(module: Module, nvtx: list[str]) -> None:
    with settings.override(nvtx_injection=Path("/opt/tool.so")), pytest.raises(FindingError):
        fill(module, size=4)
    assert nvtx == ["push fill<float>", "pop"]


def test_braces_in_a_kernels_name_are_shown_as_they_are(nvtx: list[str]) -> None:
    with settings.override(nvtx_injection=Path("/opt/tool.so")), cuda.kernel_range("k<S{1}>"):
        pass
    assert nvtx == ["push k<S{1}>", "pop"]


def test_a_torch_without_cuda_has_no_nvtx(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with settings.override(nvtx_injection=Path("/opt/tool.so")):
        fill(module)


def test_cupti_is_left_to_torchs_profiler(module: Module, nvtx: list[str]) -> None:
    with settings.override(nvtx_injection=Path("/usr/local/cuda/lib64/libcupti.so")):
        fill(module)
    assert nvtx == []


def test_the_variables_are_those_that_profilers_set() -> None:
    read = settings.read({"NVTX_INJECTION64_PATH": "/a.so", "CUDA_INJECTION64_PATH": "/b.so"})
    assert (read.nvtx_injection, read.cuda_injection) == (Path("/a.so"), Path("/b.so"))
