from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from dotcu.errors import GradientError, TracedLaunchError
from dotcu.kernel import load_inline
from dotcu.kernel.context import Place, entering

module = load_inline(
    """
    __global__ void twice(const float* x, float* out) { out[threadIdx.x] = 2 * x[threadIdx.x]; }
    template <typename T> __global__ void copy(const T* x, T* out) { out[threadIdx.x] = x[threadIdx.x]; }
    """
)
ADVICE = r"Wrap this launch in @dotcu\.op"


def twice(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    module.twice(x, out, grid=1, block=x.shape[0])
    return out


def copy(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    module.copy[x.dtype](x, out, grid=1, block=x.shape[0])
    return out


class Model(torch.nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x) + 1


@pytest.mark.parametrize("function", [twice, copy])
@pytest.mark.parametrize("fullgraph", [True, False])
def test_torch_compile_is_told(function: Callable[[Tensor], Tensor], fullgraph: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager", fullgraph=fullgraph)
    with pytest.raises(TracedLaunchError, match=ADVICE):
        compiled(torch.ones(4))


@pytest.mark.parametrize("strict", [True, False])
def test_export_is_told(strict: bool) -> None:
    torch._dynamo.reset()
    with pytest.raises(TracedLaunchError, match=ADVICE):
        torch.export.export(Model(twice), (torch.ones(4),), strict=strict)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_is_told(mode: str) -> None:
    with pytest.raises(TracedLaunchError, match=ADVICE):
        make_fx(twice, tracing_mode=mode)(torch.ones(4))


def test_make_fx_before_dispatch_is_told() -> None:
    with pytest.raises(TracedLaunchError, match=ADVICE):
        make_fx(twice, pre_dispatch=True)(torch.ones(4))


@pytest.mark.filterwarnings("ignore")
def test_jit_trace_is_told() -> None:
    with pytest.raises(TracedLaunchError, match=r"torch\.jit\.trace"):
        torch.jit.trace(twice, (torch.ones(4),))


def test_transforms_are_told() -> None:
    with pytest.raises(TracedLaunchError, match=r"a tensor that torch\.vmap batches"):
        torch.vmap(twice)(torch.ones(3, 4))
    with pytest.raises(TracedLaunchError, match=r"a tensor that torch\.func differentiates"):
        torch.func.grad(lambda x: twice(x).sum())(torch.ones(4))
    with pytest.raises(TracedLaunchError, match="a functional tensor"):
        torch.func.functionalize(twice)(torch.ones(4))


def test_fake_tensors_are_told() -> None:
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(4))
        with pytest.raises(TracedLaunchError, match=ADVICE):
            twice(fake)
    with pytest.raises(TracedLaunchError, match="a FakeTensor"):
        module.twice(fake, fake, grid=1, block=4)


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
    with entering(Place.BODY, operator="ns::twice"):
        assert twice(torch.ones(4, device=device, requires_grad=True)).tolist() == [2, 2, 2, 2]


def test_a_place_that_must_not_launch_refuses() -> None:
    with (
        entering(Place.REFUSE, operator="ns::twice", reason="in its backward"),
        pytest.raises(TracedLaunchError, match="twice was launched in ns::twice in its backward"),
    ):
        twice(torch.ones(4))


def test_the_place_holds_for_its_own_block_alone() -> None:
    with entering(Place.SKIP):
        pass
    assert twice(torch.ones(4)).tolist() == [2, 2, 2, 2]
