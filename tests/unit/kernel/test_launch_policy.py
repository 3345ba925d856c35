"""Where launches happen, who observes them, and where they are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from dotcu.errors import CaptureError, FindingError, GradientError, LaunchConfigError, TracedLaunchError
from dotcu.kernel import Module, cuda, load_inline
from dotcu.kernel.launch import KernelRequest, listening_for_kernels
from dotcu.kernel.launch_policy import LaunchPolicy, entering_scope

SOURCE = """
template <typename T> __global__ void fill(T* x, int n) {
    extern __shared__ char unused[];
    if (threadIdx.x < n) x[threadIdx.x] = 1;
}
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return load_inline(SOURCE)


def launch(module: Module, n: int = 8) -> torch.Tensor:
    x = torch.zeros(8)
    module.fill[x.dtype](x, n, grid=2, block=(32, 2), smem_bytes=48)
    return x


@pytest.mark.parametrize("skipped", [False, True])
def test_a_listener_hears_what_is_launched_and_how(module: Module, skipped: bool) -> None:
    heard: list[KernelRequest] = []
    with (
        listening_for_kernels(heard.append),
        entering_scope(LaunchPolicy.SKIP if skipped else LaunchPolicy.BODY),
    ):
        x = launch(module)
    (one,) = heard
    assert one.kernel == "fill<float>"
    assert one.unit.names == ("fill<float>",)
    assert (one.config.grid, one.config.block, one.config.smem_bytes) == ((2, 1, 1), (32, 2, 1), 48)
    assert x.eq(0 if skipped else 1).all()


def test_a_listener_hears_a_launch_before_it_fails(module: Module) -> None:
    heard: list[KernelRequest] = []
    with listening_for_kernels(heard.append), pytest.raises(FindingError):
        launch(module, n=64)
    assert len(heard) == 1


def test_every_listener_hears_until_its_block_ends(module: Module) -> None:
    outer: list[KernelRequest] = []
    inner: list[KernelRequest] = []
    with listening_for_kernels(outer.append):
        with listening_for_kernels(inner.append):
            launch(module)
        launch(module)
    launch(module)
    assert (len(outer), len(inner)) == (2, 1)


def test_a_skipped_launch_that_nobody_hears_is_not_even_looked_at(module: Module) -> None:
    x = torch.zeros(8)
    with entering_scope(LaunchPolicy.SKIP):
        module.fill[x.dtype](x, 8, grid="wrong", block=None)


def test_a_skipped_launch_that_somebody_hears_must_be_one(module: Module) -> None:
    x = torch.zeros(8)
    with listening_for_kernels(print), entering_scope(LaunchPolicy.SKIP), pytest.raises(LaunchConfigError):
        module.fill[x.dtype](x, 8, grid="wrong", block=32)


module_of_tracing = load_inline(
    """
    __global__ void twice(const float* x, float* out) { out[threadIdx.x] = 2 * x[threadIdx.x]; }
    template <typename T> __global__ void copy(const T* x, T* out) { out[threadIdx.x] = x[threadIdx.x]; }
    """
)
ADVICE = r"Wrap this launch in @dotcu\.op"


def twice(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    module_of_tracing.twice(x, out, grid=1, block=x.shape[0])
    return out


def copy(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    module_of_tracing.copy[x.dtype](x, out, grid=1, block=x.shape[0])
    return out


class Model(torch.nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x) + 1


@pytest.mark.parametrize("function", [twice, copy])
@pytest.mark.parametrize("fullgraph", [True, False])
def test_torch_compile_is_reported(function: Callable[[Tensor], Tensor], fullgraph: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager", fullgraph=fullgraph)
    with pytest.raises(TracedLaunchError, match=ADVICE):
        compiled(torch.ones(4))


@pytest.mark.parametrize("strict", [True, False])
def test_export_is_reported(strict: bool) -> None:
    torch._dynamo.reset()
    with pytest.raises(TracedLaunchError, match=ADVICE):
        torch.export.export(Model(twice), (torch.ones(4),), strict=strict)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_is_reported(mode: str) -> None:
    with pytest.raises(TracedLaunchError, match=ADVICE):
        make_fx(twice, tracing_mode=mode)(torch.ones(4))


def test_make_fx_before_dispatch_is_reported() -> None:
    with pytest.raises(TracedLaunchError, match=ADVICE):
        make_fx(twice, pre_dispatch=True)(torch.ones(4))


@pytest.mark.filterwarnings("ignore")
def test_jit_trace_is_reported() -> None:
    with pytest.raises(TracedLaunchError, match=r"torch\.jit\.trace"):
        torch.jit.trace(twice, (torch.ones(4),))


def test_transforms_are_reported() -> None:
    with pytest.raises(TracedLaunchError, match=r"a tensor that torch\.vmap batches"):
        torch.vmap(twice)(torch.ones(3, 4))
    with pytest.raises(TracedLaunchError, match=r"a tensor that torch\.func differentiates"):
        torch.func.grad(lambda x: twice(x).sum())(torch.ones(4))
    with pytest.raises(TracedLaunchError, match="a functional tensor"):
        torch.func.functionalize(twice)(torch.ones(4))


def test_fake_tensors_are_reported() -> None:
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(4))
        with pytest.raises(TracedLaunchError, match=ADVICE):
            twice(fake)
    with pytest.raises(TracedLaunchError, match="a FakeTensor"):
        module_of_tracing.twice(fake, fake, grid=1, block=4)


def test_a_gradient_that_nobody_would_record_is_refused(device: torch.device) -> None:
    x = torch.ones(4, device=device, requires_grad=True)
    with pytest.raises(GradientError, match=r"t\.detach\(\).*\n.*@dotcu\.op"):
        twice(x)
    with torch.no_grad():
        assert twice(x).tolist() == [2, 2, 2, 2]
    assert twice(x.detach()).tolist() == [2, 2, 2, 2]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_forward_mode_is_refused() -> None:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(4), torch.ones(4))
        with pytest.raises(GradientError, match="forward-mode"):
            twice(dual)
        assert twice(torch.ones(4)).tolist() == [2, 2, 2, 2]


def test_the_body_of_an_operator_may_launch_on_anything_with_memory(device: torch.device) -> None:
    with entering_scope(LaunchPolicy.BODY, operator="ns::twice"):
        assert twice(torch.ones(4, device=device, requires_grad=True)).tolist() == [2, 2, 2, 2]


def test_a_place_that_must_not_launch_refuses() -> None:
    with (
        entering_scope(LaunchPolicy.REFUSE, operator="ns::twice", reason="in its backward"),
        pytest.raises(TracedLaunchError, match="twice was launched in ns::twice in its backward"),
    ):
        twice(torch.ones(4))


def test_the_place_holds_for_its_own_block_alone() -> None:
    with entering_scope(LaunchPolicy.SKIP):
        pass
    assert twice(torch.ones(4)).tolist() == [2, 2, 2, 2]


# While a CUDA graph is captured nothing is loaded and nothing written, and the driver is not even asked.


CAPTURED = 77  # what a FakeDriver takes for a stream that is being captured
ASKED = {"cuStreamIsCapturing"}


@pytest.fixture
def library(driver: Any) -> cuda.Library:
    return cuda.Library("scale.cu", b"code", dict, {"_Z5scalePf": "scale<float>"})


def test_a_kernel_that_is_not_loaded_is_refused_by_name(library: cuda.Library, driver: Any) -> None:
    driver.streams[0] = CAPTURED
    with (
        entering_scope(LaunchPolicy.BODY, operator="mylib::scale.out"),
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
