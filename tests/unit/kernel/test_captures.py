"""While a CUDA graph is captured nothing is loaded and nothing written, and the driver is not even asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dotcu.errors import CaptureError
from dotcu.kernel import cuda, load_inline
from dotcu.kernel.context import Place, entering

CAPTURED = 77  # what a FakeDriver takes for a stream that is being captured
ASKED = {"cuStreamIsCapturing"}


@pytest.fixture
def library(driver: Any) -> cuda.Library:
    return cuda.Library("scale.cu", b"code", dict, {"_Z5scalePf": "scale<float>"})


def test_a_kernel_that_is_not_loaded_is_refused_by_name(library: cuda.Library, driver: Any) -> None:
    driver.streams[0] = CAPTURED
    with (
        entering(Place.BODY, operator="mylib::scale.out"),
        pytest.raises(CaptureError) as caught,
    ):
        library.kernel("_Z5scalePf", 0)
    message = str(caught.value)
    for part in ("scale<float> of scale.cu", "mylib::scale.out", "cuda:0", "scale.warm()", "kernels.warm()"):
        assert part in message
    assert set(driver.called) == ASKED


def test_after_the_capture_it_is_loaded(library: cuda.Library, driver: Any) -> None:
    driver.streams[0] = CAPTURED
    with pytest.raises(CaptureError):
        library.kernel("_Z5scalePf", 0)
    driver.streams[0] = 0
    library.kernel("_Z5scalePf", 0)
    driver.calls.clear()
    driver.streams[0] = CAPTURED
    library.kernel("_Z5scalePf", 0)
    assert driver.called == [], "a kernel that is loaded asks the driver nothing"


def test_a_capture_on_one_device_refuses_what_would_be_loaded_on_another(
    library: cuda.Library, driver: Any
) -> None:
    library.kernel("_Z5scalePf", 0)
    driver.streams[0] = CAPTURED  # the current device's; the kernel would run on the other one
    with pytest.raises(CaptureError, match="not loaded on cuda:1"):
        library.kernel("_Z5scalePf", 1)


def test_loading_lets_another_threads_capture_go_on(library: cuda.Library, driver: Any) -> None:
    library.kernel("_Z5scalePf", 0)
    modes = driver.CUstreamCaptureMode
    exchanged = [args for name, *args in driver.calls if name == "cuThreadExchangeStreamCaptureMode"]
    assert exchanged == [
        [modes.CU_STREAM_CAPTURE_MODE_RELAXED],
        [modes.CU_STREAM_CAPTURE_MODE_GLOBAL],
    ]
    assert driver.called[0] == driver.called[-1] == "cuThreadExchangeStreamCaptureMode"


def test_a_variable_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load_inline("__constant__ float table[2]; __global__ void k(float* x) { *x = table[0]; }")
    monkeypatch.setattr(cuda, "capturing", lambda: True)
    with pytest.raises(CaptureError, match=r'table of .*(.|\n)*kernels\.variable\("table"\)\.write'):
        module.variable("table").write(torch.ones(2))
    assert module.contents == {}


def test_without_cuda_nothing_is_captured() -> None:
    if torch.cuda.is_initialized():
        pytest.skip("CUDA is up in this process")
    assert not cuda.capturing()
