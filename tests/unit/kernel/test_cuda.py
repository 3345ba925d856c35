"""What of the driver's part needs no driver; the rest is in tests/gpu/test_launch_cuda.py."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import pytest
import torch

from dotcu import settings, stopwatch
from dotcu.errors import LaunchError
from dotcu.kernel import cuda, recent
from dotcu.kernel.config import read_config
from dotcu.kernel.context import Place, entering
from dotcu.stopwatch import Stopwatch

CONFIG = read_config("k", grid=3, block=64)
ILLEGAL_ADDRESS, OUT_OF_MEMORY = 700, 2
CAPTURED = 77  # what a FakeDriver takes for a stream that is being captured


@pytest.fixture
def library(driver: Any) -> cuda.Library:
    return cuda.Library("k.cu", b"code", dict, {"_Z1k": "k<float>"})


def launch(library: cuda.Library, operator: str = "mylib::k") -> None:
    with entering(Place.BODY, operator=operator):
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
def test_a_first_launch_tells_its_steps_and_whether_the_driver_compiles(
    driver: Any, data: bytes, steps: list[str]
) -> None:
    library, watch = cuda.Library("k.cu", data, dict), Stopwatch("call")
    with stopwatch.listening(watch):
        launch(library)
        assert list(watch.times) == ["call", *steps]
        launch(library)
    assert [step for step in steps if watch.times[step] > 1][-1] == "launch"
    assert (watch.times["library"], watch.times["kernel"]) in ((1, 1), (0, 0)), "once for all launches"


def test_a_launch_does_not_wait(library: cuda.Library, driver: Any) -> None:
    launch(library)
    assert "cuStreamSynchronize" not in driver.called
    assert str(recent.launches()[0]) == f"k<float> of mylib::k on cuda:0 with {CONFIG}"


def test_a_launch_that_the_driver_refuses_is_not_among_the_suspects(
    library: cuda.Library, driver: Any
) -> None:
    launch(library, "mylib::earlier")
    driver.statuses["cuLaunchKernelEx"] = ILLEGAL_ADDRESS
    with pytest.raises(LaunchError) as caught:
        launch(library, "mylib::later")
    first, *rest = str(caught.value).splitlines()
    assert first.startswith(f"Launching k<float> on cuda:0 with {CONFIG} failed")
    assert "mylib::earlier" in rest[1]
    assert "mylib::later" not in str(caught.value)


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
    subprocess.run([sys.executable, "-c", script], check=True)
