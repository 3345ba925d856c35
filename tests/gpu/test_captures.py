"""CUDA graphs: what is warm is captured and replayed, what is not is refused; a capture ends cleanly."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu import settings
from dotcu.errors import CaptureError
from dotcu.operator import Operator
from helpers import sample_operators

pytestmark = pytest.mark.gpu


def random(n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, n, generator=generator).cuda()
    return a, b


@pytest.fixture(scope="module")
def warm() -> Operator:
    operator = sample_operators.make_axpy()
    operator.warm()
    return operator


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    torch.cuda.synchronize()  # fails where a test has left CUDA broken
    assert not torch.cuda.is_current_stream_capturing()


@pytest.mark.parametrize("n", [1, 1000, 70_001])
def test_a_warm_operator_is_captured_and_replayed_on_new_inputs(warm: Operator, n: int) -> None:
    a, b = random(n, 0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = warm(warm(a, b, 2.0), b, 3.0)
    for seed in range(1, 4):
        for static, new in zip((a, b), random(n, seed), strict=True):
            static.copy_(new)
        graph.replay()
        torch.testing.assert_close(out, a + 2 * b + 3 * b)


def test_a_list_of_tensors_is_written_again_at_each_replay() -> None:
    module = dotcu.load_inline("""
        __global__ void add(float* const* xs, int n) {
            if (threadIdx.x < n) xs[blockIdx.x][threadIdx.x] += 1;
        }
    """)
    xs = [torch.zeros(8, device="cuda") for _ in range(3)]
    module.add(xs, 8, grid=3, block=32)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(2):
            module.add(xs, 8, grid=3, block=32)
            module.add(xs[::-1], 8, grid=1, block=32)
    other = [torch.full((1000,), float(i), device="cuda") for i in range(50)]
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert [x[0].item() for x in xs] == [7, 7, 13]
    assert [x.sum().item() for x in other] == [1000.0 * i for i in range(50)]


def test_calls_between_captures_and_replays_go_their_own_way(warm: Operator) -> None:
    graphs = []
    for n in (300, 5000, 300):
        a, b = random(n, n)
        torch.testing.assert_close(warm(a, b, 0.5), a + 0.5 * b)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = warm(a, b, 4.0)
        torch.testing.assert_close(warm(a, b, 0.25), a + 0.25 * b)
        graphs.append((graph, a, b, out))
    for graph, a, b, out in graphs:
        b.add_(1)
        graph.replay()
        torch.testing.assert_close(out, a + 4 * b)


def test_warm_kernels_of_a_fresh_module_are_captured_instantiations_too() -> None:
    kernels = sample_operators.fresh_module()
    kernels.variable("table").write(torch.tensor([1.0, 2, 3, 4]))
    times = kernels.times[torch.float32]
    kernels.warm()
    x, out, looked_up = (
        torch.ones(1000, device="cuda"),
        torch.zeros(1000, device="cuda"),
        torch.zeros(4).cuda(),
    )
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        times(x, 3.0, out, 1000, grid=8, block=128)
        kernels.look_up(looked_up, grid=1, block=4)
        kernels.last_of(x, 25_000, grid=1, block=256, smem_bytes=100_000)
    assert out.sum().item() == 0
    x.fill_(5)
    graph.replay()
    assert out.eq(15).all()
    assert looked_up.tolist() == [1, 2, 3, 4]
    assert x[0].item() == 24_999


@pytest.mark.parametrize("compiled", [False, True], ids=["never compiled", "compiled but not loaded"])
def test_an_operator_that_is_not_warm_is_refused_and_can_be_captured_later(compiled: bool) -> None:
    kernels = sample_operators.fresh_module()
    axpy = sample_operators.make_axpy(kernels)
    if compiled:
        kernels.times[torch.float32].compile()
    a, b = random(1000, 0)
    with pytest.raises(CaptureError) as caught, torch.cuda.graph(torch.cuda.CUDAGraph()):
        axpy(a.mul(2), b, 2.0)
    message, name = str(caught.value), axpy.qualified_name
    for part in ("times<float>", name, "cuda:0", f"{name.split('::')[1]}.warm()", "kernels.warm()"):
        assert part in message
    torch.testing.assert_close(axpy(a, b, 2.0), a + 2 * b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = axpy(a, b, 2.0)
    b.fill_(1)
    graph.replay()
    torch.testing.assert_close(out, a + 2)


def test_a_refusal_that_is_caught_leaves_the_capture_usable(warm: Operator) -> None:
    cold = sample_operators.make_axpy()
    a, b = random(100, 0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(CaptureError):
            cold(a, b)
        out = warm(a, b, 2.0)
    a.fill_(1)
    graph.replay()
    torch.testing.assert_close(out, 1 + 2 * b)


def test_a_variable_is_not_written_in_a_capture() -> None:
    kernels = sample_operators.fresh_module()
    kernels.variable("table").write(torch.tensor([1.0, 2, 3, 4]))
    kernels.warm()
    out = torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for value in (torch.zeros(4), torch.zeros(4, device="cuda")):
            with pytest.raises(CaptureError, match="table"):
                kernels.variable("table").write(value)
        kernels.look_up(out, grid=1, block=4)
    graph.replay()
    assert out.tolist() == [1, 2, 3, 4]
    kernels.variable("table").write(torch.tensor([5.0, 6, 7, 8]))
    graph.replay()
    assert out.tolist() == [5, 6, 7, 8]


def test_warming_in_a_capture_is_refused(warm: Operator) -> None:
    x = torch.ones(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(CaptureError, match=r"\.warm\(\) was called while"):
            warm.warm()
        y = x * 2
    graph.replay()
    assert y.tolist() == [2] * 4


def test_a_training_step_is_captured_after_warm_alone() -> None:
    axpy = sample_operators.make_axpy()
    axpy.warm()  # its backward calls another operator, which is warm by this too
    a, b = (tensor.requires_grad_() for tensor in random(500, 0))
    seed_grad = torch.ones(500, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        grads = torch.autograd.grad(axpy(a, b, 2.0), (a, b), seed_grad)
    for factor in (1.0, 3.0, 7.0):
        seed_grad.fill_(factor)
        graph.replay()
        assert grads[0].eq(factor).all()
        assert grads[1].eq(2 * factor).all()


@pytest.mark.filterwarnings("ignore:.*AccumulateGrad")  # torch's own, of the side stream that it captures on
def test_make_graphed_callables_trains_a_layer() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.axpy = sample_operators.make_axpy()
            self.weight = torch.nn.Parameter(torch.randn(200, device="cuda"))

        def forward(self, x: Tensor) -> Tensor:
            return self.axpy(x, self.weight, 3.0).sin()

    layer = Layer()
    weight = layer.weight.detach().clone()
    graphed = torch.cuda.make_graphed_callables(layer, (torch.randn(200, device="cuda", requires_grad=True),))
    for seed in range(3):
        x = random(200, seed)[0].requires_grad_()
        layer.weight.grad = None
        got = graphed(x)
        got.sum().backward()
        inner = x.detach() + 3 * weight
        torch.testing.assert_close(got, inner.sin())
        torch.testing.assert_close(x.grad, inner.cos())
        torch.testing.assert_close(layer.weight.grad, 3 * inner.cos())


def test_another_thread_may_load_while_this_one_captures() -> None:
    kernels = sample_operators.fresh_module()
    kernels.variable("table").write(torch.tensor([1.0, 2, 3, 4]))
    x, out, wrong = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda"), []

    def load() -> None:
        try:
            kernels.look_up(out, grid=1, block=4)
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=load)
    kernels.look_up.compile()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2
        thread.start()
        thread.join()
        z = y + 1
    assert wrong == []
    graph.replay()
    torch.cuda.synchronize()
    assert z.tolist() == [3] * 4
    assert out.tolist() == [1, 2, 3, 4]


def test_launch_blocking_does_not_disturb_a_capture(warm: Operator) -> None:
    a, b = random(100, 0)
    graph = torch.cuda.CUDAGraph()
    with settings.override(launch_blocking=True):
        warm(a, b)
        with torch.cuda.graph(graph):
            out = warm(a, b, 2.0)
    graph.replay()
    torch.testing.assert_close(out, a + 2 * b)


def test_the_gallery_is_captured_after_warm() -> None:
    from dotcu import gallery

    x = torch.randn(1000, device="cuda")
    for name in ("square", "sum"):
        getattr(gallery, name).warm()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = gallery.sum(gallery.square(x))
    x.fill_(2)
    graph.replay()
    torch.testing.assert_close(out, torch.tensor(4000.0, device="cuda"))
    assert isinstance(gallery.square, dotcu.operator.Operator)
