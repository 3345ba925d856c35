"""Configurations in torch.compile: the operator that takes one as text, and what Inductor is handed."""

from __future__ import annotations

import logging
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import dotcu
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.kernel.launch import listening_for_kernels
from dotcu.operator import inductor

kernels = dotcu.load_inline("""
__global__ void scale(const float* x, float* out, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = by * x[i];
}
""")


class Launch(NamedTuple):
    block: int


@dotcu.op("test_inductor::scale")
def scale(x: Tensor, by: float = 2.0) -> Tensor:
    out, n = torch.empty_like(x), x.numel()
    block = scale.configuration(n).block
    kernels.scale(x, out, by, n, grid=dotcu.cdiv(n, block), block=block)
    return out


scale.configurations(lambda: map(Launch, (32, 64, 128)))
scale.reference(lambda x, by=2.0: by * x)


@dotcu.op("test_inductor::pair")
def pair(x: Tensor) -> tuple[Tensor, Tensor]:
    pair.configuration(x.numel())
    return torch.empty_like(x), torch.empty_like(x)


pair.configurations(lambda: [Launch(32)])


@dotcu.op("test_inductor::add")
def add(x: Tensor, y: Tensor) -> Tensor:
    return torch.empty_like(x)


add.reference(torch.add)


@dotcu.op("test_inductor::negate")
def negate(x: Tensor) -> Tensor:
    return torch.empty_like(x)


negate.reference(torch.neg)


def configured(x: Tensor, text: str) -> Tensor:
    result: Tensor = torch.ops.test_inductor.scale_configured(x, by=3.0, configuration=text)
    return result


@pytest.mark.parametrize(("text", "block"), [("block=64", 64), ("block=96", 32)])
def test_a_configuration_as_text_is_used_and_an_unknown_one_is_left_to_the_look_up(
    text: str, block: int
) -> None:
    requests: list[Any] = []
    x = torch.randn(100)
    assert torch.equal(configured(x, text), 3 * x)
    with dotcu.simulate(), listening_for_kernels(requests.append):
        assert torch.equal(configured(x, text), 3 * x)
    assert [request.config.block for request in requests] == [(block, 1, 1)]


def test_inductor_is_handed_all_or_those_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[Any] = []
    lowerings: dict[Any, Any] = {}

    def hand(op: Any, configs: list[str]) -> None:
        handed.append((op, configs))
        lowerings[op] = None

    of_torch = SimpleNamespace(
        CustomOpConfig=lambda call: call.__name__,
        register_custom_op_autotuning=hand,
        user_lowerings=lowerings,
    )
    monkeypatch.setattr(inductor, "import_module", lambda name: of_torch)
    scale.autotune_in_inductor()
    scale.autotune_in_inductor([Launch(64)])
    ((op, every), (_, some)) = handed
    assert op is scale.torch_op
    assert [name.rpartition("_")[2] for name in every] == ["32", "64", "128"]
    assert some == ["test_inductor_scale_configured_default_block_64"]
    with pytest.raises(UsageError, match=r"Launch\(block=7\).* is none of its configurations"):
        scale.autotune_in_inductor([Launch(7)])


def test_what_inductor_cannot_choose_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from dotcu.gallery import square

    with pytest.raises(UsageError, match="returns 2 values"):
        pair.autotune_in_inductor()
    with pytest.raises(UsageError, match="declares no configurations"):
        square.autotune_in_inductor()
    monkeypatch.setattr(inductor, "import_module", lambda name: SimpleNamespace())
    with pytest.raises(EnvironmentFault, match=r"pip install --upgrade \"torch>=2.11\""):
        scale.autotune_in_inductor()


@pytest.mark.slow  # Inductor compiles C++ for each
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor compiles C++ for the CPU by g++")
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # torch's own
def test_inductor_times_the_configurations_and_the_result_is_right() -> None:
    from torch._inductor.utils import run_and_get_code

    scale.autotune_in_inductor([Launch(64), Launch(128)])
    x = torch.randn(1000)
    with torch._inductor.config.patch(fx_graph_cache=False, max_autotune=True):
        for by in (3.0, 5.0):
            compiled = torch.compile(lambda x, by=by: scale(x, by) + scale(x, by=-1.0), fullgraph=True)
            out, codes = run_and_get_code(compiled, x)
            torch.testing.assert_close(out, (by - 1) * x)
            # Which is the fastest is the machine's: one of the two, or the operator with its own look-up.
            named = r"configuration='(block=(64|128))?'|test_inductor\.scale\.default"
            assert re.search(named, "".join(codes))


@pytest.mark.slow  # torch 2.11 times the configurations for it, too
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # torch's own
def test_a_call_that_leaves_out_a_tensor_before_another_compiles() -> None:
    @dotcu.op("test_inductor::shifted")
    def shifted(x: Tensor, left: Tensor | None = None, right: Tensor | None = None) -> Tensor:
        return torch.empty_like(x)

    shifted.configurations(lambda: [Launch(32)])
    shifted.reference(lambda x, left=None, right=None: x - right)
    shifted.autotune_in_inductor()
    x, y = torch.randn(2, 5)
    with torch._inductor.config.patch(fx_graph_cache=False):
        out = torch.compile(lambda x, y: shifted(x, right=y), fullgraph=True)(x, y)
    torch.testing.assert_close(out, x - y)


@pytest.fixture
def announced(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail if Inductor meets an operator in a graph that it has not heard of: its log says so."""
    graph = logging.getLogger("torch._inductor.graph")
    with torch._inductor.config.patch(fx_graph_cache=False), caplog.at_level(logging.INFO, graph.name):
        graph.addHandler(caplog.handler)
        try:
            yield
        finally:
            graph.removeHandler(caplog.handler)
    assert "implicit fallback" not in "".join(record.getMessage() for record in caplog.get_records("call"))


@pytest.mark.usefixtures("announced")
def test_inductor_does_not_write_out_the_arguments_of_operators() -> None:
    # torch 2.11 writes out what an operator that it has not heard of depends on, for its log: here as many
    # lines as there are ways through the additions, thousands. torch 2.13 does so where the log is read.
    x = torch.ones(3)

    def doubled(x: Tensor) -> Tensor:
        for _ in range(12):
            x = add(x, x)
        return negate(x)  # not scale, whose configurations the test above leaves to Inductor

    torch.testing.assert_close(torch.compile(doubled, fullgraph=True)(x), -(2**12) * x)


@pytest.mark.usefixtures("announced")
def test_inductor_knows_an_operator_that_torch_met_before_it_had_an_overload() -> None:
    @dotcu.op("test_inductor::later")
    def later(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    later.reference(torch.neg)
    x = torch.ones(3)
    with FakeTensorMode(allow_non_fake_inputs=True):
        later(x)

    @later.overload("Scalar")
    def later_scalar(x: Tensor, by: float) -> Tensor:
        return torch.empty_like(x)

    torch.testing.assert_close(torch.compile(lambda x: later(x), fullgraph=True)(x), -x)


def test_an_operator_that_inductor_decomposes_is_not_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    @dotcu.op("test_inductor::decomposed")
    def decomposed(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    decomposed.reference(torch.neg)
    lowering = import_module("torch._inductor.lowering")
    monkeypatch.setitem(lowering.decompositions, decomposed.torch_op, torch.neg)
    x = torch.ones(3)
    compiled = torch.compile(lambda x: decomposed(x), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), -x)
    assert decomposed.torch_op not in lowering.lowerings


def test_an_operator_of_torch_is_left_to_inductor() -> None:
    lowering = import_module("torch._inductor.lowering")
    gradient = dotcu.op.existing("aten::_dirichlet_grad")
    gradient.fake(lambda x, alpha, total: torch.empty_like(x))
    x = torch.full((2, 3), 0.3)
    compiled = torch.compile(lambda x: gradient(x, x, x), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), gradient(x, x, x))
    assert gradient.torch_op not in lowering.lowerings


def test_an_operator_takes_a_lowering_after_its_shape_was_asked_for() -> None:
    @dotcu.op("test_inductor::lowered")
    def lowered(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    lowering = import_module("torch._inductor.lowering")
    assert lowered(torch.ones(3, device="meta")).shape == (3,)

    def own(x: Any) -> Any:
        return x

    lowering.register_lowering(torch.ops.test_inductor.lowered)(own)
    assert lowering.lowerings[lowered.torch_op].__wrapped__ is own


def test_an_operator_is_traced_while_another_thread_imports_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    @dotcu.op("test_inductor::early")
    def early(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    early.reference(torch.neg)
    monkeypatch.setitem(sys.modules, "torch._inductor.lowering", SimpleNamespace(lowerings={}))
    x = torch.ones(3)
    torch.testing.assert_close(torch.compile(lambda x: early(x), backend="eager", fullgraph=True)(x), -x)
