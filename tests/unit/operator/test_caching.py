"""Calls by plan, seen from the operator: which are replayed, which step aside, and that none is wrong."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Optional

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import BaseTorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import dotcu
from dotcu import errors, settings
from dotcu.call_cache import native as native_cache
from dotcu.kernel import native
from dotcu.kernel.driver import cuda
from dotcu.kernel.driver.errors import recent_launches
from dotcu.kernel.scope import OUTSIDE, current_scope
from dotcu.operator import caching, execution
from fake_launch import Driver, fake_launch

pytestmark = pytest.mark.skipif(bool(native.missing()), reason=native.missing() or "the native part is there")

SOURCE = """
__global__ void scale_add(const float* a, const float* b, float alpha, float* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + alpha * b[i];
}
"""
kernels = dotcu.load_inline(SOURCE)
BLOCK = 128
_names = (f"replaying_test::op{i}" for i in itertools.count())


def scale_add(a: Tensor, b: Tensor, alpha: float = 1.0) -> Tensor:
    if a.shape != b.shape:
        raise ValueError(f"takes tensors of one shape, got {tuple(a.shape)} and {tuple(b.shape)}")
    out = torch.empty_like(a)
    n = a.numel()
    kernels.scale_add(a, b, alpha, out, n, grid=dotcu.cdiv(n, BLOCK), block=BLOCK)
    return out


def make(body: Callable[..., Any] = scale_add, **options: Any) -> Any:
    """An operator whose calls are taken, as the first one on a GPU would have done."""
    made = dotcu.op(next(_names), **options)(body)
    made._put_entries()
    return made


class Counted:
    """What a call asks of an overload, with its body counted."""

    def __init__(self, caller: Any, ran: list[str]) -> None:
        self._caller, self._ran = caller, ran

    def __getattr__(self, name: str) -> Any:
        return getattr(self._caller, name)

    def body(self, *args: Any, **kwargs: Any) -> Any:
        self._ran.append(self._caller.signature.qualified_name)
        return self._caller.body(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        self._ran.append(self._caller.signature.qualified_name)
        return self._caller.trace(*args, **kwargs)


@pytest.fixture
def dispatched() -> list[str]:
    """The names of operators whose body was run by torch's dispatcher, in order."""
    return []


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch, dispatched: list[str]) -> list[str]:
    """The names of operators whose body ran, by native code or by the dispatcher, in order."""
    ran: list[str] = []
    compute, make_native = execution.compute, native_cache.make

    def counted(signature: Any, *args: Any) -> Any:
        ran.append(signature.qualified_name)
        dispatched.append(signature.qualified_name)
        return compute(signature, *args)

    def of_counted(arguments: Any, caller: Any, **more: Any) -> Any:
        return make_native(arguments, Counted(caller, ran), **more)

    monkeypatch.setattr(execution, "compute", counted)
    monkeypatch.setattr(native_cache, "make", of_counted)
    return ran


@pytest.fixture
def driver(bodies: list[str]) -> Iterator[Driver]:
    with fake_launch() as fake, settings.override(simulate=True):
        yield fake


def pair(n: int = 1000) -> tuple[Tensor, Tensor]:
    a, b = torch.randint(-99, 100, (2, n), dtype=torch.float32)
    return a, b


def test_the_body_runs_once_and_is_replayed_for_every_size(driver: Driver, bodies: list[str]) -> None:
    op = make()
    for n in (1000, 1000, 7, 12_345, 1, 0):
        a, b = pair(n)
        assert torch.equal(op(a, b, 2.0), a + 2 * b)
    assert len(bodies) == 1
    assert driver.grids == [(8, 1, 1), (1, 1, 1), (97, 1, 1), (1, 1, 1)]  # none for no elements
    assert op.call_cache.recorded == 1


def test_torch_ops_and_its_overload_are_replayed_too(driver: Driver, bodies: list[str]) -> None:
    op, (a, b) = make(), pair()
    packet = op._call
    for call in (op, packet, packet.default, op.torch_op):
        assert torch.equal(call(a, b), a + b)
        assert torch.equal(call(a, b=b, alpha=2), a + 2 * b)
    assert len(bodies) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda op, a, b: op(a),
        lambda op, a, b: op(a, b, 1.0, 2.0),
        lambda op, a, b: op(a, b, beta=1.0),
        lambda op, a, b: op(a, a=a, b=b),
        lambda op, a, b: op(a, b, "1"),
        lambda op, a, b: op(a, None),
        lambda op, a, b: op(a, b[1:]),
        lambda op, a, b: op(a, b.double()),
        lambda op, a, b: op(a, b, 1e300),
    ],
    ids=["too few", "too many", "unknown", "twice", "text", "None", "shape", "dtype", "range"],
)
def test_a_wrong_call_is_refused_as_before_there_was_a_plan(
    call: Callable[..., Any], driver: Driver, bodies: list[str]
) -> None:
    fresh, planned, (a, b) = make(), make(), pair()
    with pytest.raises(Exception) as before:
        call(fresh, a, b)
    planned(a, b)
    planned(a, b)
    launched = driver.launches
    with pytest.raises(type(before.value)) as after:
        call(planned, a, b)
    before_text = str(before.value).replace(fresh.signature.name, planned.signature.name)
    assert str(after.value).splitlines()[0] == before_text.splitlines()[0]
    assert driver.launches == launched


def test_a_number_that_the_plan_cannot_hold_takes_the_body(driver: Driver, bodies: list[str]) -> None:
    op, (a, b) = make(), pair()
    op(a, b)
    assert torch.equal(op(a, b, 2**60), a + float(2**60) * b)
    assert len(bodies) == 2


# Gradients.


def differentiable(**options: Any) -> Any:
    op = make(**options)
    op.backward(lambda ctx, grad: (grad, grad * ctx.alpha, None))

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.alpha = inputs[2]

    op.setup_context(keep)
    return op


@pytest.mark.parametrize("way", ["direct", "torch.ops", "overload"])
def test_a_replayed_call_is_recorded(way: str, driver: Driver, bodies: list[str]) -> None:
    op = differentiable()
    call = {"direct": op, "torch.ops": op._call, "overload": op.torch_op}[way]
    for n in (5, 1000, 300):
        a, b = (tensor.requires_grad_() for tensor in pair(n))
        result = call(a, b, 3.0)
        assert torch.equal(result, a.detach() + 3 * b.detach())
        result.sum().backward()
        assert torch.equal(a.grad, torch.ones(n))
        assert torch.equal(b.grad, torch.full((n,), 3.0))
    assert len(bodies) == 1


def test_the_default_of_an_argument_reaches_the_backward(driver: Driver) -> None:
    op = differentiable()
    for _ in range(3):
        a, b = pair()
        b.requires_grad_()
        op(a, b).sum().backward()
        assert torch.equal(b.grad, torch.ones(1000))


def test_differentiating_without_a_backward_raises_after_replay_too(driver: Driver) -> None:
    op = make()
    for _ in range(3):
        a, b = pair()
        result = op(a.requires_grad_(), b)
        with pytest.raises(errors.GradientError, match="has no backward"):
            result.sum().backward()


def test_without_grad_mode_nothing_is_recorded(driver: Driver, bodies: list[str]) -> None:
    op = differentiable()
    a, b = (tensor.requires_grad_() for tensor in pair())
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            results = [op(a, b) for _ in range(3)]
        assert not any(result.requires_grad for result in results)
        assert all(result.is_inference() == (mode is torch.inference_mode) for result in results)
    assert len(bodies) == 1


def test_parameters_are_tensors(driver: Driver, bodies: list[str]) -> None:
    op, (a, b) = differentiable(), pair()
    weight = torch.nn.Parameter(a)
    for _ in range(3):
        op(weight, b).sum().backward()
    assert torch.equal(weight.grad, torch.full((1000,), 3.0))
    assert len(bodies) == 1


# Arguments that are written.


def scale_add_into(a: Tensor, b: Tensor, alpha: float, *, out: Tensor) -> None:
    n = a.numel()
    kernels.scale_add(a, b, alpha, out, n, grid=dotcu.cdiv(n, BLOCK), block=BLOCK)


def test_a_replayed_write_is_counted_once(driver: Driver, bodies: list[str], dispatched: list[str]) -> None:
    op = make(scale_add_into, mutates_args=("out",))
    for n in (100, 1000, 300):
        a, b = pair(n)
        out = torch.zeros(n)
        assert op(a, b, 1.0, out=out) is out
        version = out._version
        assert version >= 1
        assert op(a, b, 2.0, out=out) is out
        assert op.torch_op(a, b, 2.0, out=out) is None
        assert out._version == version + 2
        assert (a._version, b._version) == (0, 0)
        assert torch.equal(out, a + 2 * b)
    assert len(bodies) == 1
    assert dispatched == []


def test_a_write_that_autograd_has_to_know_of_is_seen(driver: Driver) -> None:
    op, (a, b) = make(scale_add_into, mutates_args=("out",)), pair()
    for _ in range(2):
        weight, out = torch.ones(1000, requires_grad=True), torch.zeros(1000)
        product = weight * out
        op(a, b, 1.0, out=out)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()


def test_a_replayed_write_of_what_requires_a_gradient_raises(driver: Driver) -> None:
    op, (a, b) = make(scale_add_into, mutates_args=("out",)), pair()
    out = torch.zeros(1000)
    op(a, b, 1.0, out=out)
    op(a, b, 1.0, out=out)
    with pytest.raises(errors.GradientError):
        op(a.requires_grad_(), b, 1.0, out=out)


# Bodies that native code runs.


def test_the_dispatcher_is_asked_for_nothing(driver: Driver, dispatched: list[str]) -> None:
    op = make()
    for n in (1000, 7, 300):
        op(*pair(n))
    assert dispatched == []


@pytest.mark.parametrize("replay", [True, False], ids=["followed", "cache_calls=False"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_body_that_raises_leaves_the_thread_as_it_was(
    driver: Driver, replay: bool, requires_grad: bool
) -> None:
    op, read = make(cache_calls=replay), native.library().dispatch_keys
    (a, b), before = pair(), read()
    for _ in range(3):
        with pytest.raises(ValueError, match="tensors of one shape"):
            op(a.requires_grad_(requires_grad), b[1:])
        assert read() == before
        assert current_scope() is OUTSIDE
    assert (a.clone().requires_grad_() * 1).requires_grad
    assert torch.equal(op(a, b), a + b)


@pytest.mark.parametrize("replay", [True, False], ids=["followed", "cache_calls=False"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_body_that_returns_its_argument_is_refused(
    driver: Driver, dispatched: list[str], replay: bool, requires_grad: bool
) -> None:
    def same(a: Tensor, way: int) -> Tensor:
        return a if way == 0 else a[1:]

    op, read = make(same, cache_calls=replay), native.library().dispatch_keys
    for way in (0, 1):
        a, before = pair()[0].requires_grad_(requires_grad), read()
        with pytest.raises(errors.BodyError, match="returned memory of one of its inputs"):
            op(a, way)
        assert read() == before
    assert dispatched == []


def test_a_body_that_returns_one_memory_twice_is_refused(driver: Driver) -> None:
    def halves(a: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.empty(2 * a.numel())
        return both[: a.numel()], both[a.numel() :]

    op = make(halves)
    for _ in range(2):
        with pytest.raises(errors.BodyError, match="returned memory of another of its results"):
            op(pair()[0])


@pytest.mark.parametrize(
    ("result", "got"), [(None, "nothing"), (1.0, "float"), ((), "nothing"), ("text", "str")], ids=str
)
def test_a_body_that_returns_something_else_is_refused(driver: Driver, result: Any, got: str) -> None:
    def wrong(a: Tensor) -> Tensor:
        return result  # type: ignore[no-any-return]

    op = make(wrong)
    for _ in range(2):
        with pytest.raises(errors.BodyError, match=f"returned {got}"):
            op(pair()[0])


def test_arguments_by_keyword_only_reach_the_body(
    driver: Driver, bodies: list[str], dispatched: list[str]
) -> None:
    seen: list[Any] = []

    def scaled(a: Tensor, *, by: float = 2.0, b: Optional[Tensor] = None) -> Tensor:  # noqa: UP045
        seen.append((by, b))
        return scale_add(a, a if b is None else b, by)

    op, (a, b) = make(scaled, cache_calls=False), pair()
    calls: list[dict[str, Any]] = [{}, {"by": 3.0}, {"b": b}, {"b": b, "by": 0.5}]
    for call in calls:
        by, other = call.get("by", 2.0), call.get("b", a)
        assert torch.equal(op(a, **call), a + by * other)
        leaf = a.clone().requires_grad_()
        assert op(leaf, **call).requires_grad
    assert [by for by, _ in seen] == [2.0, 2.0, 3.0, 3.0, 2.0, 2.0, 0.5, 0.5]
    assert [other is b for _, other in seen] == [False] * 4 + [True] * 4
    assert len(bodies) == 8
    assert dispatched == []


def test_an_int_reaches_the_body_as_the_float_that_the_schema_says(driver: Driver) -> None:
    seen: list[Any] = []

    def scaled(a: Tensor, by: float, *, more: float = 1) -> Tensor:
        seen.extend([by, more])
        return scale_add(a, a, by * more)

    op, a = make(scaled, cache_calls=False), pair()[0]
    for _ in range(2):
        op(a, 3, more=2)
        op(a.clone().requires_grad_(), 3)
    assert [type(value) for value in seen] == [float] * 8


def test_a_body_below_autograd_records_nothing_of_what_it_calls(driver: Driver, bodies: list[str]) -> None:
    inner = differentiable()
    seen: list[bool] = []

    def doubled_sum(a: Tensor, b: Tensor) -> Tensor:
        result = inner(a, b)
        seen.append(result.requires_grad)
        return inner(result, result)

    op, (a, b) = make(doubled_sum, cache_calls=False), pair()
    for _ in range(3):
        leaf = a.clone().requires_grad_()
        result = op(leaf, b)
        assert torch.equal(result.detach(), 2 * (a + b))
        assert result.requires_grad
    assert seen == [False] * 3
    assert bodies.count(inner.qualified_name) == 1, "inside of a body it is replayed"


def test_below_autograd_a_call_is_replayed(driver: Driver, bodies: list[str], dispatched: list[str]) -> None:
    op = differentiable()
    op(*pair())
    a, b = pair()
    a.requires_grad_()
    with torch._C._AutoDispatchBelowAutograd():
        result = op(a, b)
    assert not result.requires_grad
    assert torch.equal(result, a.detach() + b)
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.Conjugate)
    with torch._C._ExcludeDispatchKeyGuard(keys):
        assert op(a, b).requires_grad
    assert len(bodies) == 1
    assert dispatched == []


# Who must see a call sees it.


class Seeing(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class SeeingFunctions(BaseTorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return super().__torch_function__(func, types, args, kwargs)


@pytest.fixture
def planned(driver: Driver, bodies: list[str]) -> Any:
    op = differentiable()
    for n in (3, 1000):
        op(*pair(n))
    assert driver.launches == 1
    bodies.clear()
    return op


@pytest.mark.parametrize("mode", [Seeing, SeeingFunctions])
def test_a_mode_sees_the_call(mode: Any, planned: Any) -> None:
    a, b = pair()
    with mode() as seeing:
        planned(a, b)
    assert any(planned.signature.name in name for name in seeing.seen)


def test_a_profiler_sees_the_call(planned: Any) -> None:
    with torch.profiler.profile(acc_events=True) as profile:
        planned(*pair())
    assert any(event.key == planned.qualified_name for event in profile.key_averages())


def test_fake_tensors_stay_fake(planned: Any, driver: Driver) -> None:
    launched = driver.launches
    with FakeTensorMode():
        assert planned(*pair()).shape == (1000,)
    assert driver.launches == launched


def test_a_trace_holds_the_operator(planned: Any) -> None:
    graph = make_fx(lambda a, b: planned(a, b))(*pair()).graph
    assert planned.torch_op in [node.target for node in graph.nodes]
    a, b = pair()
    compiled = torch.compile(lambda a, b: planned(a, b) * 2, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(a, b), (a + b) * 2)
    assert torch.equal(compiled(a, b), (a + b) * 2)


def test_torchscript_knows_the_operator(planned: Any) -> None:
    packet, (a, b) = planned._call, pair()
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        traced = torch.jit.trace(lambda a, b: packet(a, b), (a, b))
    assert planned.signature.packet_name in str(traced.graph)
    assert torch.equal(traced(a, b), a + b)


def test_transforms_and_dual_tensors_are_seen(planned: Any) -> None:
    a, b = pair()
    assert torch.equal(torch.func.grad(lambda a: planned(a, b).sum())(a), torch.ones(1000))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(a, b)
        with pytest.raises(errors.GradientError, match="forward-mode"):
            planned(dual, b)


def test_deterministic_mode_fills_what_is_allocated(planned: Any, bodies: list[str]) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        planned(*pair())
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(bodies) == 1


def test_lazy_conjugation_and_subclasses_are_not_read_as_memory(planned: Any, driver: Driver) -> None:
    class Named(Tensor):
        pass

    a, b = pair()
    launched = driver.launches
    assert torch.equal(planned(a.as_subclass(Named), b).as_subclass(Tensor), a + b)
    negated = torch.randn(1000, dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    assert torch.allclose(planned(negated, b), negated + b)
    assert driver.launches == launched


def test_autocast_casts_where_there_is_a_rule_for_it(driver: Driver, bodies: list[str]) -> None:
    op, (a, b) = make(), pair()
    op(a, b)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(op(a, b), a + b)
    assert len(bodies) == 1
    op.autocast(torch.float32)
    op._put_entries()
    a, b = a.bfloat16(), b.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert op(a, b).dtype == torch.float32


def test_while_launches_are_watched_the_body_runs(planned: Any, bodies: list[str]) -> None:
    with dotcu.kernel.scope.watching_launches() as seen:
        planned(*pair())
    assert len(seen) == len(bodies) == 1


def test_a_body_that_calls_the_operator_for_shapes_gets_no_launch(planned: Any, driver: Driver) -> None:
    launched = driver.launches
    with dotcu.kernel.scope.entering_scope(dotcu.kernel.scope.LaunchPolicy.SKIP):
        assert planned(*pair()).shape == (1000,)
    assert driver.launches == launched


# End of recorded calls.


def test_a_constant_that_is_bound_anew_is_seen(
    driver: Driver, bodies: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    op = make()
    for block in (128, 64):
        monkeypatch.setitem(globals(), "BLOCK", block)
        for _ in range(3):
            op(*pair())
    assert [grid[0] for grid in driver.grids] == [8, 8, 16, 16]


def test_a_definition_that_replaces_another_is_called(driver: Driver) -> None:
    name = next(_names)

    def define(sign: float) -> Any:
        def body(a: Tensor, b: Tensor) -> Tensor:
            out = torch.empty_like(a)
            kernels.scale_add(a, b, sign, out, a.numel(), grid=dotcu.cdiv(a.numel(), 32), block=32)
            return out

        made = dotcu.op(name)(body)
        made._put_entries()
        return made

    (a, b), first = pair(), define(1.0)
    for _ in range(3):
        assert torch.equal(first(a, b), a + b)
    second = define(-1.0)
    for _ in range(3):
        assert torch.equal(second(a, b), a - b)
        assert torch.equal(first(a, b), a - b)  # as for a name in a module that was reloaded


def test_an_overload_that_comes_later_is_chosen(driver: Driver, bodies: list[str]) -> None:
    op, (a, b) = make(), pair()
    op(a, b)

    @op.overload("Scalar")
    def by(a: Tensor, b: int) -> Tensor:
        out = torch.empty_like(a)
        kernels.scale_add(a, a, float(b), out, a.numel(), grid=dotcu.cdiv(a.numel(), 32), block=32)
        return out

    op._put_entries()
    for _ in range(3):
        assert torch.equal(op(a, 2), a + 2.0 * a)
        assert torch.equal(op(a, b), a + b)
    assert bodies == [op.qualified_name, by.qualified_name]


def test_where_two_overloads_would_do_torch_chooses(driver: Driver) -> None:
    op, a = make(), pair(100)[0]

    def scaled(a: Tensor, by: Any) -> Tensor:
        out = torch.empty_like(a)
        kernels.scale_add(a, a, float(by), out, a.numel(), grid=dotcu.cdiv(a.numel(), 32), block=32)
        return out

    @op.overload("whole")
    def whole(a: Tensor, by: int) -> Tensor:
        return scaled(a, by)

    @op.overload("fraction")
    def fraction(a: Tensor, by: float) -> Tensor:
        return scaled(a, by)

    op._put_entries()
    fraction(a, 2.0)
    for by in (2, 2.5, 2):
        assert torch.equal(op(a, by), a + float(by) * a)


TWO = {
    "float or Tensor": (float, Tensor, torch.tensor(2.0)),
    "int or Tensor": (int, Tensor, torch.tensor(2)),
    "bool or int": (bool, int, 1),
    "int or bool": (int, bool, True),
    "float or bool": (float, bool, True),
    "bool or float": (bool, float, 2.0),
}


@pytest.mark.parametrize("kinds", TWO)
def test_an_overload_that_torch_would_convert_for_comes_first(kinds: str, driver: Driver) -> None:
    first, second, given = TWO[kinds]

    def define() -> Any:
        def one(a: Tensor, by: Any) -> Tensor:
            return scale_add(a, a, 1.0)

        def other(a: Tensor, by: Any) -> Tensor:
            return scale_add(a, a, 3.0)

        one.__annotations__ |= {"a": Tensor, "by": first, "return": Tensor}
        other.__annotations__ |= {"a": Tensor, "by": second, "return": Tensor}
        made = dotcu.op(next(_names))(one)
        return made, made.overload("other")(other)

    a, _ = pair(100)
    plain, _ = define()
    expected = plain(a, given)
    op, other = define()
    op._put_entries()
    exact = {Tensor: torch.tensor(2.0), int: 2, bool: True, float: 2.5}
    for _ in range(3):
        other(a, exact[second])
    for _ in range(3):
        assert torch.equal(op(a, given), expected)


def test_settings_that_change_later_are_heeded(
    driver: Driver, bodies: list[str], dispatched: list[str]
) -> None:
    op = make()
    for _ in range(3):
        op(*pair())
    bodies.clear()
    for change in ({"check_replay": True}, {"launch_blocking": True}, {"native": False}):
        with settings.override(**change):
            op(*pair())
    assert len(bodies) == len(dispatched) == 3
    op(*pair())
    assert len(bodies) == 3


def test_without_replay_the_body_runs_and_afterwards_calls_are_replayed_again(
    driver: Driver, bodies: list[str], dispatched: list[str]
) -> None:
    op = make()
    for _ in range(2):
        op(*pair())
    launched = driver.launches
    bodies.clear()
    with settings.override(replay=False):
        for n in (1000, 7, 1000):
            a, b = pair(n)
            assert torch.equal(op(a, b), a + b)
        assert "DOTCU_REPLAY=0" in str(op.call_cache)
    assert len(bodies) == 3
    assert driver.launches == launched
    for n in (1000, 7, 1000):
        a, b = pair(n)
        assert torch.equal(op(a, b), a + b)
    assert driver.launches >= launched + 2, "the first may make the plan"
    assert dispatched == []


def test_an_operator_that_was_first_called_without_replay_is_replayed_later(
    driver: Driver, bodies: list[str]
) -> None:
    with settings.override(replay=False):
        op = make()
        for _ in range(3):
            op(*pair())
        assert (op.call_cache.recorded, len(bodies)) == (0, 3)
    for _ in range(3):
        op(*pair())
    assert (op.call_cache.recorded, driver.launches) == (1, 2)


def test_a_dtype_by_default_reaches_a_body_that_is_followed(driver: Driver, bodies: list[str]) -> None:
    def cast(a: Tensor, b: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        out = torch.empty(a.shape, dtype=dtype, device=a.device)
        kernels.scale_add(a, b, 1.0, out, a.numel(), grid=dotcu.cdiv(a.numel(), 32), block=32)
        return out

    op, (a, b) = make(cast), pair()
    for _ in range(3):
        assert torch.equal(op(a, b), a + b)
        assert torch.equal(op(a, b, torch.float32), a + b)


def shaped(a: Tensor, sizes: list[int], scale: float = 1.0) -> Tensor:
    out = torch.empty(sizes, dtype=a.dtype, device=a.device)
    kernels.scale_add(a, a, scale, out, a.numel(), grid=dotcu.cdiv(a.numel(), 32), block=32)
    return out


def test_a_list_of_ints_is_replayed_for_just_those(
    driver: Driver, bodies: list[str], dispatched: list[str]
) -> None:
    op, a = make(shaped), pair(12)[0]
    for _ in range(3):
        for sizes in ([3, 4], [2, 6], [12], (3, 4)):
            assert torch.equal(op(a, sizes), (a + a).reshape(sizes))
    assert len(bodies) == op.call_cache.recorded == 3
    assert dispatched == []


def test_a_shape_of_a_tensor_is_replayed_as_a_list_of_its_sizes(driver: Driver, bodies: list[str]) -> None:
    op, a = make(shaped), pair(12)[0]
    for _ in range(4):
        assert torch.equal(op(a, a.reshape(3, 4).shape), (a + a).reshape(3, 4))
    assert len(bodies) == op.call_cache.recorded == 1


def test_a_list_of_ints_has_no_gradient(driver: Driver, dispatched: list[str]) -> None:
    op, given = make(shaped), []
    op.backward(lambda ctx, grad: (2 * grad.reshape(-1), None, None))
    op.setup_context(lambda ctx, inputs, output: given.append(inputs[1]))
    for sizes in ([3, 4], (2, 6), [3, 4]):
        a = pair(12)[0].requires_grad_()
        op(a, sizes).sum().backward()
        assert torch.equal(a.grad, torch.full((12,), 2.0))
    assert given == [[3, 4], [2, 6], [3, 4]]
    assert dispatched == []


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**400], ids=["2^63", "-2^63 - 1", "10^400"])
def test_an_int_that_torch_refuses_is_refused(driver: Driver, number: int) -> None:
    def filled(a: Tensor, n: int) -> Tensor:
        return torch.zeros_like(a)

    fresh, taken, (a, _) = dotcu.op(next(_names))(filled), make(filled), pair()
    for op in (fresh, taken):
        with pytest.raises(RuntimeError, match="Expected a value of type 'int' for argument 'n'"):
            op(a, number)


def doubled(a: Tensor, b: Tensor) -> float:
    return 2.0


def tripled(a: Tensor, b: Tensor) -> float:
    return 3.0


def test_a_helper_that_is_reloaded_in_place_is_seen(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(a: Tensor, b: Tensor) -> Tensor:
        out = torch.empty_like(a)
        by = doubled(a, b)
        kernels.scale_add(a, b, by, out, a.numel(), grid=dotcu.cdiv(a.numel(), 32), block=32)
        return out

    op, (a, b) = make(body), pair()
    for _ in range(3):
        assert torch.equal(op(a, b), a + 2 * b)
    monkeypatch.setattr(doubled, "__code__", tripled.__code__)
    for _ in range(3):
        assert torch.equal(op(a, b), a + 3 * b)


def test_a_rule_for_autocast_that_another_library_gave_is_applied(driver: Driver) -> None:
    op = dotcu.op(next(_names))(scale_add)
    seen: list[str] = []

    def rule(a: Tensor, b: Tensor, alpha: float = 1.0) -> Tensor:
        seen.append("rule")
        return a

    library = torch.library.Library(op.signature.namespace, "FRAGMENT")
    library.impl(op.signature.name, rule, "AutocastCPU")
    op._put_entries()
    for _ in range(2):
        op(*pair())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        op(*pair())
    library._destroy()
    assert seen == ["rule"]


def test_an_overload_that_came_later_is_replayed_by_its_own_object(driver: Driver, bodies: list[str]) -> None:
    op = dotcu.op(next(_names))(scale_add)
    into = op.overload("out", mutates_args=("out",))(scale_add_into)
    op._put_entries()
    a, b = pair()
    out = torch.zeros(1000)
    for _ in range(4):
        into(a, b, 1.0, out=out)
    assert len(bodies) == 1
    kept = into.torch_op
    op.overload("third")(alone)
    with pytest.raises(errors.GradientError):
        kept(a.clone().requires_grad_(), b, 1.0, out=out)


def alone(a: Tensor) -> Tensor:
    return scale_add(a, a)


def test_replay_can_be_left_out(driver: Driver, bodies: list[str], dispatched: list[str]) -> None:
    op, (a, b) = make(cache_calls=False), pair()
    for _ in range(3):
        assert torch.equal(op(a, b), a + b)
    assert len(bodies) == 3
    assert dispatched == [], "native code runs the body"
    assert op.call_cache.status == "native"
    assert "cache_calls=False" in str(op.call_cache)


def test_what_is_never_replayed_has_gradients_all_the_same(
    driver: Driver, bodies: list[str], dispatched: list[str]
) -> None:
    op = differentiable(cache_calls=False)
    for n in (5, 1000):
        a, b = (tensor.requires_grad_() for tensor in pair(n))
        result = op(a, b, alpha=3.0)
        assert torch.equal(result, a.detach() + 3 * b.detach())
        result.sum().backward()
        assert torch.equal(a.grad, torch.ones(n))
        assert torch.equal(b.grad, torch.full((n,), 3.0))
    assert len(bodies) == 2
    assert dispatched == []


def test_the_native_part_can_be_turned_off_for_a_while(
    driver: Driver, bodies: list[str], dispatched: list[str]
) -> None:
    op, taken = dotcu.op(next(_names))(scale_add), make()
    with settings.override(native=False):
        op.install_entries(torch.device("cpu"))
        for each in (op, taken):
            a, b = pair()
            assert torch.equal(each(a, b), a + b)
    assert len(dispatched) == len(bodies) == 2
    assert op.call_cache.status == "DOTCU_NATIVE=0: the native part is not used"
    taken(*pair())
    assert len(dispatched) == 2


def test_a_torch_that_is_too_new_is_named_and_every_call_takes_the_dispatcher(
    driver: Driver, bodies: list[str], dispatched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", "99.1.0+cu999")
    op, (a, b) = dotcu.op(next(_names))(scale_add), pair()
    op.install_entries(torch.device("cpu"))
    for _ in range(3):
        assert torch.equal(op(a, b), a + b)
    assert len(bodies) == len(dispatched) == 3
    reason = native.missing()
    assert "tested on torch up to" in reason
    assert "this is torch 99.1.0+cu999" in reason
    assert op.call_cache.status == reason
    assert str(op.call_cache) == f"0 recorded calls, {reason}"


@pytest.mark.parametrize("reason", ["", "dotcu's native part is missing: no compiler"])
def test_without_the_native_part_every_call_runs_the_body(
    driver: Driver, bodies: list[str], monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr(native, "prepare", lambda device: reason)
    op, (a, b) = dotcu.op(next(_names))(scale_add), pair()
    assert op.call_cache.status == "not called on a GPU yet"
    op.install_entries(torch.device("cpu"))
    for _ in range(3):
        assert torch.equal(op(a, b), a + b)
    assert len(bodies) == (3 if reason else 1)
    assert op.call_cache.status == (reason or "native")
    assert reason in str(op.call_cache)


def test_a_body_that_cannot_be_followed_says_why(driver: Driver, bodies: list[str]) -> None:
    def counting(a: Tensor, b: Tensor) -> Tensor:
        bodies_of_mine.append(1)
        return scale_add(a, b)

    op = make(counting)
    for _ in range(3):
        op(*pair())
    assert len(bodies) == 3
    assert "bodies_of_mine" in str(op.call_cache)


bodies_of_mine: list[int] = []


def test_a_body_that_is_refused_is_soon_no_longer_traced(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ordered(a: Tensor, b: Tensor) -> Tensor:
        return scale_add(a.sort()[0], b)

    traced: list[object] = []
    trace = caching.trace
    monkeypatch.setattr(caching, "trace", lambda *args, **more: traced.append(args) or trace(*args, **more))
    op, (a, b) = make(ordered), pair()
    for n in (10, 11, 12, 13, 14):
        a, b = pair(n)
        assert torch.equal(op(a, b), a.sort()[0] + b)
    assert len(traced) == caching.MOST_REFUSALS
    assert "sort" in str(op.call_cache)


def test_sizes_whose_body_cannot_be_recorded_leave_others_their_calls(
    driver: Driver, bodies: list[str]
) -> None:
    def copying(a: Tensor, b: Tensor) -> Tensor:
        return scale_add(a.clone() if a.numel() % 4 else a, b)

    op = make(copying)
    for n in (9, 10, 11, 9, 9, 9, *[7] * 70):
        a, b = pair(n)
        assert torch.equal(op(a, b), a + b)
    for n in (8, 12, 400):
        a, b = pair(n)
        assert torch.equal(op(a, b), a + b)
    assert (op.call_cache.recorded, len(bodies)) == (1, 77)


def test_the_debug_mode_compares_plan_and_body(driver: Driver) -> None:
    op = dotcu.op(next(_names))(scale_add)
    with settings.override(check_replay=True):
        for n in (10, 1000, 3):
            a, b = pair(n)
            assert torch.equal(op(a, b), a + b)
    assert driver.launches == 0

    def drifting(a: Tensor, b: Tensor) -> Tensor:
        bodies_of_mine.append(1)
        out = torch.empty_like(a)
        kernels.scale_add(a, b, 1.0, out, a.numel(), grid=len(bodies_of_mine) + 8, block=128)
        return out

    bodies_of_mine.clear()
    drift = dotcu.op(next(_names))(drifting)
    with settings.override(check_replay=True):
        drift(*pair())
        with pytest.raises(errors.CallCacheMismatch, match=r"grid .*cache_calls=False|cache_calls=False"):
            drift(*pair())


def test_the_plans_that_are_reported_are_those_that_are_kept(driver: Driver) -> None:
    op = make()
    with settings.override(check_replay=True):
        op(*pair())
    for _ in range(2):
        op(*pair())
    assert op.call_cache.recorded == len(op._cache.native) == 1


def test_a_launch_that_the_driver_refuses_names_operator_and_kernel(
    planned: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(status: int, doing: str) -> None:
        raise errors.LaunchError(f"{status} {doing}")

    monkeypatch.setattr(cuda, "fail", fail)  # the driver's own words need a driver
    driver.status = 700
    with pytest.raises(errors.LaunchError, match=r"700 .*scale_add") as refusal:
        planned(*pair())
    assert planned.qualified_name in str(refusal.value)
    launched = recent_launches()
    driver.status = 0
    planned(*pair())
    assert planned.qualified_name in str(recent_launches()[0])
    assert recent_launches()[1] is launched[0]


def test_threads_replay_one_operator_at_once(planned: Any, bodies: list[str]) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for i in range(200):
            a, b = torch.randint(-99, 100, (2, 50 + i), generator=generator).float()
            if not torch.equal(planned(a, b, float(seed)), a + seed * b):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert not bodies


def test_what_torch_hashes_and_asks_of_an_operator_is_unchanged(driver: Driver) -> None:
    op = dotcu.op(next(_names))(scale_add)
    packet, overload = op._call, op.torch_op
    before = hash(packet), hash(overload), packet.__module__, str(overload), packet.overloads()
    op._put_entries()
    assert (hash(packet), hash(overload), packet.__module__, str(overload), packet.overloads()) == before
    assert {overload: 1}[op.torch_op] == 1


# A body that runs natively gives, takes and records what it does by way of torch's dispatcher.


def pieces(x: Tensor) -> list[Tensor]:
    return [x * 2, x * 3]


def test_a_list_of_results_has_gradients(driver: Driver) -> None:
    op = make(pieces, cache_calls=False)
    op.backward(lambda ctx, grads: 2 * grads[0] + 3 * grads[1])
    x = torch.ones(4, requires_grad=True)
    first, second = op(x)
    (first + second).sum().backward()
    assert torch.equal(x.grad, torch.full((4,), 5.0))


Returned = tuple[Callable[..., Any], Any]
WRONG: dict[str, Returned] = {
    "a tuple of one": (lambda x: (x.clone(),), Tensor),
    "a list of one": (lambda x: [x.clone()], Tensor),
    "no list": (lambda x: x.clone(), list[Tensor]),
    "a list in a tuple": (lambda x: ([x.clone()], x.clone()), tuple[Tensor, Tensor]),
    "too few": (lambda x: x.clone(), tuple[Tensor, Tensor]),
    "a text": (lambda x: "text", Tensor),
}


@pytest.mark.parametrize(("returned", "promised"), WRONG.values(), ids=list(WRONG))
@pytest.mark.parametrize("natively", [False, True])
def test_a_result_that_is_not_as_promised_is_an_error(
    driver: Driver, returned: Callable[..., Any], promised: Any, natively: bool
) -> None:
    def body(x: Tensor) -> Any:
        return returned(x)

    body.__annotations__ = {"x": Tensor, "return": promised}
    made = dotcu.op(next(_names), cache_calls=False)(body)
    if natively:
        made._put_entries()
    with pytest.raises(errors.BodyError, match="Its schema promises"):
        made(torch.ones(3))


def test_a_list_of_ints_is_the_bodys_own(driver: Driver) -> None:
    kept: list[list[int]] = []

    def body(x: Tensor, sizes: list[int]) -> Tensor:
        kept.append(sizes)
        sizes.append(5)
        return torch.empty_like(x)

    op, given = make(body, cache_calls=False), [1, 2]
    op(torch.ones(3), given)
    assert given == [1, 2]
    assert kept == [[1, 2, 5]]


@pytest.mark.parametrize("sizes", [[2**70], (1, -(2**63) - 1), [1.5], "12"], ids=str)
def test_a_list_that_torch_refuses_is_refused(driver: Driver, sizes: Any) -> None:
    def body(x: Tensor, sizes: list[int]) -> Tensor:
        return torch.empty_like(x)

    with pytest.raises((RuntimeError, TypeError, OverflowError)):
        make(body, cache_calls=False)(torch.ones(3), sizes)


def test_a_fault_that_torch_finds_keeps_the_line_of_the_body(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(x: Tensor) -> Tensor:
        raise torch.AcceleratorError("an illegal memory access was encountered")

    monkeypatch.setattr(execution, "fault_story", lambda error: "It may come from these launches.")
    with pytest.raises(errors.LaunchError, match=r"The body of .* failed") as caught:
        make(body, cache_calls=False)(torch.ones(3))
    cause = caught.value.__cause__
    assert cause is not None
    trace = cause.__traceback__
    assert trace is not None
    assert trace.tb_frame.f_code.co_name == "body"
