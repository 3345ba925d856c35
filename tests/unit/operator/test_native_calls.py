"""Calls of operators in native code: on a GPU that is none, where CPU tensors stand for those of a GPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.types import Number
from torch.utils._python_dispatch import TorchDispatchMode

import dotcu
from dotcu import settings
from dotcu.errors import BodyError, GradientError
from dotcu.kernel.launch_policy import LaunchPolicy, current_scope
from dotcu.operator.execution import around_bodies
from helpers.fake_gpu import Driver, configured

NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def gpu() -> Iterator[Driver]:
    made = Driver()
    with configured(made.functions):
        yield made


class Made:
    """An operator `a + alpha * b` whose native kernels are those of CPU tensors.

    Attributes:
        scopes: The scope of each run of its body.
    """

    def __init__(self, result: Callable[[Tensor, Tensor, float], Any] | None = None) -> None:
        self.scopes: list[Any] = []
        compute = result or (lambda a, b, alpha: a + alpha * b)
        name = f"native_calls::add_{next(NUMBERS)}"

        @dotcu.op(name)
        def add(a: Tensor, b: Tensor, alpha: float = 1.0) -> Tensor:
            self.scopes.append(current_scope())
            return compute(a, b, alpha)

        @add.reference
        def _(a: Tensor, b: Tensor, alpha: float = 1.0) -> Tensor:
            return a + alpha * b

        @add.setup_context
        def _(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.alpha = inputs[2]

        @add.backward
        def _(ctx: Any, grad: Tensor) -> Any:
            return grad, ctx.alpha * grad, None

        self.op: Any = add
        for_gpu(add)
        self.of_torch = getattr(torch.ops.native_calls, name.partition("::")[2])

    @property
    def runs(self) -> int:
        return len(self.scopes)


def for_gpu(operator: Any) -> None:
    """Let an operator's native kernels take CPU tensors."""
    for overload in operator.overloads.values():
        overload._registration.implement("AutogradCPU", overload._native.autograd)


A, B = torch.arange(4.0), torch.ones(4)
WANT = A + 2 * B


@pytest.mark.parametrize("way", ["op", "of_torch"])
def test_a_call_runs_the_body_once_in_its_scope(way: str) -> None:
    made = Made()
    assert torch.equal(getattr(made, way)(A, B, 2.0), WANT)
    assert torch.equal(getattr(made, way)(A, B, alpha=2.0), WANT)
    assert made.runs == 2
    for scope in made.scopes:
        assert (scope.policy, scope.operator, scope.gpu) == (LaunchPolicy.BODY, made.op.qualified_name, 0)
    assert current_scope().policy is LaunchPolicy.OUTSIDE


def test_a_call_with_out_returns_it() -> None:
    @dotcu.op(f"native_calls::twice_{next(NUMBERS)}")
    def twice(x: Tensor) -> Tensor:
        return 2 * x

    @twice.overload("out", mutates_args=("out",))
    def _(x: Tensor, *, out: Tensor) -> None:
        torch.mul(x, 2, out=out)

    for_gpu(twice)
    out = torch.zeros(4)
    for _ in range(2):
        assert twice(A, out=out) is out
    assert torch.equal(out, 2 * A)


class Sees(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class SeesFunctions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("way", ["op", "of_torch"])
@pytest.mark.parametrize("mode", [Sees, SeesFunctions])
def test_a_mode_sees_the_operator(mode: Any, way: str) -> None:
    made, sees = Made(), mode()
    with sees:
        assert torch.equal(getattr(made, way)(A, B, 2.0), WANT)
    assert any(made.op.signature.name in each for each in sees.seen), sees.seen


@pytest.mark.filterwarnings("ignore:.*Profiler clears events")  # of torch 2.11
@pytest.mark.parametrize("way", ["op", "of_torch"])
def test_a_profiler_sees_the_operator(way: str) -> None:
    made = Made()
    with torch.profiler.profile() as profile:
        getattr(made, way)(A, B, 2.0)
    assert made.op.signature.packet_name in {event.name for event in profile.events()}


@pytest.mark.parametrize("way", ["op", "of_torch"])
def test_a_gradient_is_recorded_where_it_is_asked_for(way: str) -> None:
    made, leaf = Made(), A.clone().requires_grad_()
    call = getattr(made, way)
    out = call(leaf, B, 2.0)
    assert torch.equal(out.detach(), WANT)
    gradient = torch.autograd.grad(out, leaf, torch.full((4,), 3.0))[0]
    assert torch.equal(gradient, torch.full((4,), 3.0))
    with torch.no_grad():
        assert not call(leaf, B, 2.0).requires_grad
    assert not call(A, B, 2.0).requires_grad
    assert not call(leaf.detach(), B).requires_grad
    by_b = B.clone().requires_grad_()
    assert torch.autograd.grad(call(A, by_b, alpha=2.0).sum(), by_b)[0].tolist() == [2.0] * 4
    assert torch.autograd.grad(call(A, by_b).sum(), by_b)[0].tolist() == [1.0] * 4, "alpha is left out"


@pytest.mark.parametrize("way", ["op", "of_torch"])
def test_transforms_of_torch_func_see_the_operator(way: str) -> None:
    call = getattr(Made(), way)
    assert torch.equal(torch.func.grad(lambda x: call(x, B, 2.0).sum())(A), torch.ones(4))
    twice = torch.func.grad(lambda x: torch.func.grad(lambda y: (call(y, B, 2.0) ** 2).sum())(x).sum())
    assert torch.equal(twice(A), torch.full((4,), 2.0))
    with pytest.raises(GradientError, match="forward-mode"):
        torch.func.jvp(lambda x: call(x, B), (A,), (B,))


@pytest.mark.parametrize("way", ["op", "of_torch"])
def test_a_dual_tensor_is_refused(way: str) -> None:
    call, forward = getattr(Made(), way), torch.autograd.forward_ad
    with forward.dual_level(), pytest.raises(GradientError, match="forward-mode"):
        call(forward.make_dual(A, B), B)


@pytest.mark.parametrize("way", ["op", "of_torch"])
def test_bits_are_resolved_by_the_dispatcher(way: str) -> None:
    """The body gets memory that is conjugated and negated already, as a kernel in C++ does."""
    seen: list[bool] = []
    made = Made(lambda a, b, alpha: seen.append(a.is_neg()) or a + alpha * b)
    negated = torch.complex(B, A).conj().imag
    assert negated.is_neg()
    assert torch.equal(getattr(made, way)(negated, B, 2.0), -A + 2)
    assert seen == [False], "for its shapes, beside the reference"


@pytest.mark.parametrize("way", ["op", "of_torch"])
@pytest.mark.parametrize(
    "result",
    [
        lambda a, b, alpha: a,
        lambda a, b, alpha: b[1:],
        lambda a, b, alpha: a.view(2, 2),
        lambda a, b, alpha: (a + b, a - b),
        lambda a, b, alpha: None,
        lambda a, b, alpha: 3.0,
    ],
    ids=["an input", "a part of one", "a view of one", "two", "nothing", "a number"],
)
def test_a_result_that_breaks_the_contract_is_an_error(way: str, result: Any) -> None:
    with pytest.raises(BodyError):
        getattr(Made(result), way)(A, B)


def test_parts_of_one_new_memory_are_an_error() -> None:
    @dotcu.op(f"native_calls::halves_{next(NUMBERS)}")
    def halves(a: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([a, a])
        return both, both[2:]

    for_gpu(halves)
    with pytest.raises(BodyError, match="another of its results"):
        halves(A)


def test_an_error_of_the_body_is_the_callers_and_leaves_the_scope() -> None:
    def fail(a: Tensor, b: Tensor, alpha: float) -> Any:
        raise KeyboardInterrupt("stop" if alpha else "")

    made = Made(fail)
    for call in (made.op, made.of_torch):
        with pytest.raises(KeyboardInterrupt):
            call(A, B)
        assert current_scope().policy is LaunchPolicy.OUTSIDE


WRONG: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((A,), {}),
    ((A, B, 1.0, 2.0), {}),
    ((A, B), {"beta": 1.0}),
    ((A, B, 1.0), {"alpha": 1.0}),
    ((A, "text"), {}),
    ((A, B, "text"), {}),
    ((A, B, B), {}),
    ((1.0, B), {}),
]


@pytest.mark.parametrize(("args", "kwargs"), WRONG)
def test_wrong_arguments_are_refused_as_torch_refuses_them(args: Any, kwargs: Any) -> None:
    made = Made()
    with pytest.raises(Exception) as of_torch:
        made.of_torch(*args, **kwargs)
    with pytest.raises(type(of_torch.value)) as own:
        made.op(*args, **kwargs)
    assert str(own.value) == str(of_torch.value)
    assert not made.runs


@pytest.mark.parametrize("alpha", [2, True, torch.tensor(2.0), 2.0])
def test_a_value_that_torch_converts_reaches_the_body_converted(alpha: Any) -> None:
    seen: list[Any] = []
    made = Made(lambda a, b, alpha: seen.append(alpha) or a + alpha * b)
    made.op(A, B, alpha)
    made.of_torch(A, B, alpha)
    assert len(seen) == 2
    assert {type(each) for each in seen} == {float}


def overloaded() -> tuple[Any, list[str]]:
    ran: list[str] = []
    name = f"native_calls::over_{next(NUMBERS)}"

    @dotcu.op(name)
    def over(a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
        ran.append("")
        return a + b * scale

    @over.overload("Scalar")
    def of_number(a: Tensor, b: Number, scale: float = 1.0) -> Tensor:
        ran.append("Scalar")
        return a + b * scale

    @over.overload("Steps")
    def of_steps(a: Tensor, b: float, steps: int) -> Tensor:
        ran.append("Steps")
        return a + b * steps

    @over.overload("out", mutates_args=("out",))
    def into(a: Tensor, b: Tensor, scale: float = 1.0, *, out: Tensor) -> None:
        ran.append("out")
        out.copy_(a + b * scale)

    for_gpu(over)
    return over, ran


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((A, B), {}),
    ((A, B, 2.0), {}),
    ((A, B, 2), {}),
    ((A, 2.0), {}),
    ((A, 2), {}),
    ((A, True), {}),
    ((A, torch.tensor(3.0)), {}),
    ((A, torch.ones(1)), {}),
    ((A, 2.0, 3), {}),
    ((A, 2.0), {"steps": 3}),
    ((A,), {"b": 2.0, "scale": 4.0}),
    ((), {"a": A, "b": B}),
]


@pytest.mark.parametrize(("args", "kwargs"), CALLS)
def test_native_code_takes_the_overload_that_torch_takes(args: Any, kwargs: Any) -> None:
    over, ran = overloaded()
    of_torch = getattr(torch.ops.native_calls, over.signature.name)(*args, **kwargs)
    assert torch.equal(over(*args, **kwargs), of_torch)
    assert ran[0] == ran[1]


def test_an_observer_sees_the_body_through_python() -> None:
    made, entered = Made(), []

    class Around:
        def __enter__(self) -> None:
            entered.append(current_scope().operator)

        def __exit__(self, *error: object) -> None: ...

    with around_bodies(Around), dotcu.simulate():
        made.op(A, B)
    assert entered == [made.op.qualified_name]


def test_nothing_is_native_while_the_setting_says_so() -> None:
    made = Made()
    with settings.override(native=False):
        assert torch.equal(made.op(A, B, 2.0), WANT)
        assert "every call goes through Python: DOTCU_NATIVE=0" in repr(made.op)
    assert [scope.policy for scope in made.scopes] == [LaunchPolicy.SKIP], (
        "for its shapes, beside the reference"
    )
    assert "Python" not in repr(made.op)


def test_an_autocast_rule_is_the_dispatchers() -> None:
    seen: list[torch.dtype] = []
    made = Made(lambda a, b, alpha: seen.append(a.dtype) or a + alpha * b)
    made.op.autocast(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made.op(A, B)
    made.op(A, B)
    assert seen == [torch.bfloat16, torch.float32]


def test_an_operator_within_a_body_has_a_scope_of_its_own() -> None:
    inner = Made()
    outer = Made(
        lambda a, b, alpha: inner.op(a, b, alpha) + (current_scope().operator == outer.op.qualified_name)
    )
    assert torch.equal(outer.op(A, B, 2.0), WANT + 1)
    assert inner.scopes[0].operator == inner.op.qualified_name


def test_threads_call_at_once() -> None:
    import threading

    made, wrong = Made(), []

    def call(number: int) -> None:
        a = torch.full((8,), float(number))
        for turn in range(200):
            if made.op(a, a, float(turn))[0].item() != number + turn * number:
                wrong.append((number, turn))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert made.runs == 800
