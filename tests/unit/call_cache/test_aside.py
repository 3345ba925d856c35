"""When a call by plan steps aside: wherever the dispatcher would do more than call."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.profiler import ExecutionTraceObserver
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from dotcu.call_cache.record import Allocation
from recorded_calls import CPU, TENSOR, VECTOR, Driver, Operator, Steps, doubling, plan, tensor_key


@pytest.fixture
def double(driver: Driver) -> Iterator[Operator]:
    """An operator on a float vector, which a plain call takes by its plan before the test and after it."""
    operator = Operator(driver, [TENSOR], doubling())
    assert is_fast(operator)
    yield operator
    assert is_fast(operator)


def is_fast(operator: Operator) -> bool:
    return isinstance(operator(torch.ones(3)), Tensor)


class FunctionMode(TorchFunctionMode):
    """Any function mode."""


class DispatchMode(TorchDispatchMode):
    """Any dispatch mode."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def observed() -> Iterator[None]:
    """What sees every operator without the profiler being on."""
    observer = ExecutionTraceObserver()
    observer.register_callback("/dev/null")
    observer.start()
    try:
        yield
    finally:
        observer.stop()
        observer.unregister_callback()


WATCHERS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "a function mode": FunctionMode,
    "a default device": lambda: torch.device("cpu"),
    "a dispatch mode": DispatchMode,
    "fake tensors": FakeTensorMode,
    "a counter of FLOPs": lambda: FlopCounterMode(display=False),
    "autograd's profiler": torch.autograd.profiler.profile,
    "the profiler": lambda: torch.profiler.profile(acc_events=True),
    "an observer": observed,
    "deterministic mode": deterministic,
}


BELOW = {"at rest": nullcontext, "below autograd": torch._C._AutoDispatchBelowAutograd}


@pytest.mark.parametrize("watcher", WATCHERS)
@pytest.mark.parametrize("where", BELOW)
def test_a_call_that_is_watched_goes_to_torch(double: Operator, watcher: str, where: str) -> None:
    x = torch.ones(3)
    with BELOW[where](), WATCHERS[watcher]():
        assert double(x) == "torch"
        assert double.plans.serve(x) is NotImplemented
    assert double.asked == []


def inside(transform: Callable[[Callable[[Tensor], Tensor]], Any], double: Operator) -> list[Any]:
    """What calls give inside a transform: with its own tensor, with one from outside, and below autograd."""
    outside, seen = torch.ones(3), []

    def body(x: Tensor) -> Tensor:
        seen.extend([double(x), double(outside)])
        with torch._C._AutoDispatchBelowAutograd():
            seen.extend([double(x), double(outside)])
            assert double.plans.serve(x) is double.plans.serve(outside) is NotImplemented
        return x.sum()

    transform(body)
    return seen


def traced(body: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(body, torch.ones(3), check_trace=False)


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda body: torch.func.grad(body)(torch.ones(3)),
    "vmap": lambda body: torch.func.vmap(body)(torch.ones(2, 3)),
    "jvp": lambda body: torch.func.jvp(body, (torch.ones(3),), (torch.ones(3),)),
    "functionalize": lambda body: torch.func.functionalize(body)(torch.ones(3)),
    "a trace": traced,
    "make_fx": lambda body: make_fx(body)(torch.ones(3)),
    "make_fx with fake tensors": lambda body: make_fx(body, tracing_mode="fake")(torch.ones(3)),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_call_inside_a_transform_goes_to_torch(double: Operator, transform: str) -> None:
    assert inside(TRANSFORMS[transform], double) == ["torch"] * 4
    assert double.asked == []


class FunctionSubclass(Tensor):
    """A tensor with the keys of a plain one."""


class DispatchSubclass(Tensor):
    """A tensor that sees what is dispatched on it."""

    __torch_dispatch__ = classmethod(lambda cls, func, types, args=(), kwargs=None: NotImplemented)  # type: ignore[assignment]


def leaked() -> Tensor:
    """A tensor of a transform that is over."""
    kept: list[Tensor] = []
    torch.func.vmap(lambda x: (kept.append(x), x)[1])(torch.ones(2, 3))
    return kept[0]


STRANGE: dict[str, Callable[[], Any]] = {
    "a negative view": lambda: torch.ones(3, dtype=torch.complex64).conj().imag,
    "a conjugate": lambda: torch.ones(3, dtype=torch.complex64).conj(),
    "sparse": lambda: torch.ones(3).to_sparse(),
    "zeros without memory": lambda: torch._efficientzerotensor((3,)),
    "on no device": lambda: torch.ones(3, device="meta"),
    "functional": lambda: torch._to_functional_tensor(torch.ones(3)),
    "of a transform that is over": leaked,
    "with __torch_function__": lambda: torch.ones(3).as_subclass(FunctionSubclass),
    "with __torch_dispatch__": lambda: torch.ones(3).as_subclass(DispatchSubclass),
    "fake": lambda: FakeTensorMode().from_tensor(torch.ones(3)),
    "no tensor": lambda: [1.0, 1.0, 1.0],
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_tensor_that_is_not_plain_goes_to_torch(driver: Driver, kind: str) -> None:
    plans = [
        plan([tensor_key(torch.ones(1, dtype=dtype))], Steps()) for dtype in (torch.float32, torch.complex64)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of kinds that are not final
        operator, x = Operator(driver, [TENSOR], *plans), STRANGE[kind]()
    assert operator(torch.ones(3)) is None
    assert operator(torch.ones(3, dtype=torch.complex64)) is None
    assert operator(x) == "torch"
    assert operator(torch.ones(3)) is None
    assert operator.asked == []


def test_a_dual_tensor_goes_to_torch(double: Operator) -> None:
    x = torch.ones(3)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones(3))
        assert type(dual) is Tensor
        assert double(dual) == "torch"
    assert double.asked == []


@pytest.mark.parametrize(
    "leaf", [lambda x: x.requires_grad_(), torch.nn.Parameter], ids=["tensor", "parameter"]
)
def test_a_gradient_is_recorded_by_the_caller(double: Operator, leaf: Callable[[Tensor], Tensor]) -> None:
    x = leaf(torch.ones(3))
    assert double(x) == "recorded"
    assert double(x * 1) == "recorded"
    assert double.asked == ["record", "record"]
    assert double.caller.calls[0][1][0] is x


@pytest.mark.parametrize("quiet", [torch.no_grad, torch.inference_mode])
def test_without_a_gradient_to_record_the_plan_is_taken(double: Operator, quiet: Any) -> None:
    for x in (torch.ones(3), torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.ones(3))):
        with quiet():
            assert double(x).shape == (3,)
    assert double.asked == []


def test_every_value_is_given_to_the_recorder(driver: Driver) -> None:
    optional = [TENSOR, *[type(TENSOR)(name=name, kinds=TENSOR.kinds) for name in "yz"]]
    operator = Operator(driver, optional, plan([VECTOR] * 3, Steps()))
    x, y, z = torch.ones(3), torch.ones(3), torch.ones(3, requires_grad=True)
    assert operator(x, z=z, y=y) == "recorded"
    ((_, values),) = operator.caller.calls
    assert [value is of for value, of in zip(values, (x, y, z), strict=True)] == [True] * 3


def test_inference_mode_and_its_tensors_are_ordinary(double: Operator) -> None:
    with torch.inference_mode():
        x = torch.ones(3)
        result = double(x)
        assert result.is_inference()
        assert is_fast(double)
    assert double(x).shape == (3,)
    assert double.asked == []


@pytest.mark.parametrize("autocasts", [True, False])
def test_autocast_matters_where_the_operator_has_a_rule(driver: Driver, autocasts: bool) -> None:
    operator, x = Operator(driver, [TENSOR], doubling(), autocasts=autocasts), torch.ones(3)
    for device in ("cpu", "cuda"):
        torch.set_autocast_enabled(device, True)
        try:
            assert (operator(x) == "torch") == autocasts
        finally:
            torch.set_autocast_enabled(device, False)
    assert is_fast(operator)


def test_inside_an_autocast_rule_the_plan_is_taken(driver: Driver) -> None:
    operator, x = Operator(driver, [TENSOR], doubling(), autocasts=True), torch.ones(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert operator(x) == "torch"
        with torch._C._ExcludeDispatchKeyGuard(DispatchKeySet(DispatchKey.AutocastCPU)):
            assert operator(x).shape == (3,)


def test_below_autograd_the_plan_is_taken_and_nothing_recorded(double: Operator) -> None:
    x = torch.ones(3, requires_grad=True)
    with torch._C._AutoDispatchBelowAutograd():
        for given in (x, torch.ones(3), torch.nn.Parameter(torch.ones(3))):
            result = double(given)
            assert (result.shape, result.requires_grad) == ((3,), False)
        with torch.no_grad():
            assert is_fast(double)
        assert double(torch.ones(3, 3)) == "body"
    assert double.asked == ["body"]
    assert double(x) == "recorded"


PASSED_BY = (
    *("Conjugate", "Negative", "ZeroTensor", "ADInplaceOrView", "BackendSelect", "Functionalize"),
    *("Python", "PythonTLSSnapshot", "FuncTorchDynamicLayerFrontMode", "AutocastCPU", "AutocastCUDA"),
)


@pytest.mark.parametrize("key", PASSED_BY)
@pytest.mark.parametrize("where", BELOW)
def test_layers_that_are_passed_by_do_not_matter(double: Operator, key: str, where: str) -> None:
    """As inside a kernel that torch calls for one of those layers."""
    keys = DispatchKeySet(getattr(DispatchKey, key))
    x, leaf = torch.ones(3), torch.ones(3, requires_grad=True)
    with BELOW[where](), torch._C._ExcludeDispatchKeyGuard(keys):
        assert double(x).shape == (3,)
        with torch.inference_mode():
            assert double(x).shape == (3,)
        recorded = double(leaf)
    assert recorded == "recorded" if where == "at rest" else recorded.shape == (3,)
    assert double.asked == ["record"] * (where == "at rest")


@pytest.mark.parametrize("key", ["Python", "Functionalize", "FuncTorchDynamicLayerFrontMode", "Conjugate"])
@pytest.mark.parametrize("where", BELOW)
def test_a_layer_that_is_included_watches(double: Operator, key: str, where: str) -> None:
    x = torch.ones(3)
    with BELOW[where](), torch._C._IncludeDispatchKeyGuard(getattr(DispatchKey, key)):
        answer = double(x)
    assert answer == "torch"
    assert double.asked == []


@pytest.mark.parametrize("key", ["AutogradFunctionality", "AutogradOther"])
def test_where_only_some_of_autograds_layers_are_out_torch_is_called(double: Operator, key: str) -> None:
    x = torch.ones(3)
    with torch._C._ExcludeDispatchKeyGuard(DispatchKeySet(getattr(DispatchKey, key))):
        answer = double(x)
    assert answer == "torch"
    assert double.asked == []


def test_a_body_is_not_watched_by_what_torch_does_above_it(driver: Driver) -> None:
    """Inside a body the operators that it calls are replayed, below autograd as it is."""
    double, outer = Operator(driver, [TENSOR], doubling()), Operator(driver, [TENSOR])
    outer.caller.runs = double
    assert outer(torch.ones(3)).shape == (3,)
    with torch.no_grad():
        assert outer(torch.ones(3, requires_grad=True)).shape == (3,)
    assert len(double.launched) == 2
    assert double.asked == []


def test_a_thread_of_its_own_is_not_watched(double: Operator) -> None:
    seen: list[bool] = []
    with FunctionMode(), DispatchMode(), torch.inference_mode():
        thread = threading.Thread(target=lambda: seen.append(is_fast(double)))
        thread.start()
        thread.join()
    assert seen == [True]


def test_a_watcher_of_another_thread_does_not_slow_this_one(double: Operator) -> None:
    entered, leave, seen = threading.Event(), threading.Event(), []

    def watch() -> None:
        with DispatchMode():
            entered.set()
            leave.wait(10)
            seen.append(double(torch.ones(3)))

    thread = threading.Thread(target=watch)
    thread.start()
    entered.wait(10)
    assert is_fast(double)
    leave.set()
    thread.join()
    assert seen == ["torch"]


def test_zeroing_memory_is_not_dispatched_to_a_caller(driver: Driver) -> None:
    steps = Steps()
    two, one = steps.constant(2), steps.constant(1)
    zeros = Allocation(dtype=torch.float32, device=CPU, sizes=(two,), strides=(one,), zeroed=True)
    made = plan([tensor_key(torch.ones(1))], steps, allocations=(zeros,), results=(0,))
    with torch.inference_mode():
        assert Operator(driver, [TENSOR], made)(torch.ones(1)).tolist() == [0, 0]
    assert Operator(driver, [TENSOR], made).plans.run((torch.ones(1),)).requires_grad is False
