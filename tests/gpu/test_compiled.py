"""Operators in compiled and exported programs: on the GPU where there is one, else on the CPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from dotcu import gallery
from dotcu.operator import Operator
from helpers import forked_scripts, sample_operators
from helpers.quick_cases import quick

SIZES = (64, 200, 64, 1000)

# torch's own first graph is an empty one, and its warning about that becomes an error here.
pytestmark = pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")

needs_inductor = pytest.mark.skipif(
    not torch.cuda.is_available() and shutil.which("g++") is None,
    reason="inductor needs a GPU or a C++ compiler, and there is neither",
)


@pytest.fixture
def axpy() -> Operator:
    torch._dynamo.reset()
    counters.clear()
    return sample_operators.make_axpy()


class Model(torch.nn.Module):
    """An operator between torch's own."""

    def __init__(self, operator: Operator) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.operator(a.sin(), b, 2.0).cos() + self.operator(a, b)


class Alone(Model):
    """An operator by itself, for which Inductor writes no code that a C++ compiler would take seconds for."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.operator(a, b, 2.0)


def inputs(n: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, n, generator=generator).to(device)
    return a.requires_grad_(), b.requires_grad_()


def compare(compiled: Model, model: Model, n: int, seed: int, device: torch.device) -> None:
    """One step, forwards and backwards, of two models."""
    given, again = inputs(n, seed, device), inputs(n, seed, device)
    torch.compiler.cudagraph_mark_step_begin()
    got = compiled(*given)
    grads = torch.autograd.grad(got.sum(), given)
    expected = model(*again)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(grads, torch.autograd.grad(expected.sum(), again))


@pytest.mark.parametrize("dynamic", quick([True], [True, False]))
@pytest.mark.parametrize(
    "kind",
    [Alone, pytest.param(Model, marks=[needs_inductor, pytest.mark.slow])],
    ids=["alone", "among others"],
)
def test_inductor_gives_results_and_gradients_for_new_inputs(
    axpy: Operator, device: torch.device, kind: type[Model], dynamic: bool
) -> None:
    """Without vectors in the C++ that Inductor writes for the CPU: g++ takes half as long for it."""
    model = kind(axpy)
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic)
    with torch._inductor.config.patch({"cpp.simdlen": 1}):
        for seed, n in enumerate(SIZES):
            compare(compiled, model, n, seed, device)


@pytest.mark.gpu
@pytest.mark.parametrize("dynamic", [True, False])
def test_reduce_overhead_replays_graphs_on_new_inputs(
    axpy: Operator, device: torch.device, dynamic: bool
) -> None:
    compiled = torch.compile(Model(axpy), mode="reduce-overhead", fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        for seed, n in enumerate((64, 64, 64, 200, 200, 200, 64, 200)):  # warm-up, capture, replay; and again
            a, b = inputs(n, seed, device)
            torch.compiler.cudagraph_mark_step_begin()
            torch.testing.assert_close(compiled(a, b), (a.sin() + 2 * b).cos() + (a + b))
    assert counters["inductor"]["cudagraph_skips"] == 0


@pytest.mark.gpu
def test_reduce_overhead_trains(axpy: Operator, device: torch.device) -> None:
    model = Model(axpy)
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    for step in range(6):
        compare(compiled, model, 300, step, device)
    assert counters["inductor"]["cudagraph_skips"] == 0


@pytest.mark.parametrize("strict", [True, False])
def test_an_exported_program_runs_on_other_sizes(axpy: Operator, device: torch.device, strict: bool) -> None:
    a, b = (tensor.detach() for tensor in inputs(8, 0, device))
    n = torch.export.Dim("n", min=2)
    exported = torch.export.export(Model(axpy), (a, b), dynamic_shapes=({0: n}, {0: n}), strict=strict)
    assert axpy.torch_op in [node.target for node in exported.graph.nodes]
    for seed, n in enumerate(SIZES):
        a, b = (tensor.detach() for tensor in inputs(n, seed, device))
        torch.testing.assert_close(exported.module()(a, b), Model(axpy)(a, b))


def test_an_exported_program_is_saved_and_loaded(
    axpy: Operator, device: torch.device, tmp_path: Path
) -> None:
    a, b = (tensor.detach() for tensor in inputs(8, 0, device))
    exported = torch.export.export(Model(axpy), (a, b))
    torch.export.save(exported, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2")
    for seed in range(3):
        a, b = (tensor.detach() for tensor in inputs(8, seed, device))
        torch.testing.assert_close(loaded.module()(a, b), Model(axpy)(a, b))


def test_another_process_runs_an_exported_program_once_it_has_imported_the_operator(tmp_path: Path) -> None:
    class Square(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return gallery.square(x) + 1

    torch._dynamo.reset()
    file = tmp_path / "square.pt2"
    torch.export.save(torch.export.export(Square(), (torch.ones(5),)), file)
    script = (
        "import torch\n"
        "from dotcu import gallery\n"
        "gallery.square\n"
        f"program = torch.export.load({str(file)!r}).module()\n"
        "print(program(torch.arange(5.0)).tolist())\n"
    )
    done = forked_scripts.run(script)
    assert done.stdout.strip() == "[1.0, 2.0, 5.0, 10.0, 17.0]", done.stderr
