"""The native part: whether it is there, what it learns of torch, what it keeps."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dotcu import settings
from dotcu.call_cache import native as replay
from dotcu.call_cache.plan import NumberKey
from dotcu.compile import torch_build
from dotcu.kernel import layout, native
from replays import CPU, INT, TENSOR, Caller, Driver, Operator, Steps, X, configured, doubling, launch, plan


@pytest.fixture
def there() -> Iterator[None]:
    """The native part, with nothing in it replaced; it is configured anew after the test."""
    with configured():
        yield


def test_the_native_part_serves_this_torch() -> None:
    """On a torch that is laid out in another way nothing is replayed, and all other tests of it skip."""
    if isinstance(native.library(), str):
        pytest.skip(native.library())
    if torch_build.untried(torch.__version__):
        pytest.skip(torch_build.untried(torch.__version__))
    assert native.missing() == ""
    assert native.prepare(CPU) == ""


def test_without_the_library_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: "dotcu's native part is not there: no compiler")
    native._prepared.clear()
    assert native.prepare(CPU) == "dotcu's native part is not there: no compiler"
    assert native._prepared == {}, "it is asked again"


def test_it_can_be_turned_off() -> None:
    with settings.override(native=False):
        assert native.prepare(CPU) == "DOTCU_NATIVE=0: the native part is not used"


@pytest.mark.parametrize(
    ("version", "is_newer"),
    [("2.11.0", False), ("2.13.1+cu130", False), ("2.14.0a0+git5a4a", True), ("3.0.0", True), ("10.1", True)],
)
def test_a_torch_that_it_was_not_tried_on_is_named(
    monkeypatch: pytest.MonkeyPatch, version: str, is_newer: bool
) -> None:
    monkeypatch.setattr(torch_build, "NEWEST_TRIED", (2, 13))
    monkeypatch.setattr(torch, "__version__", version)
    said = "dotcu's native part is not used: it was tried on torch up to 2.13, and this is torch " + version
    assert (native.missing() == said) == is_newer
    assert (native.prepare(CPU) == said) == is_newer


@pytest.mark.usefixtures("there")
def test_a_plan_that_is_too_large_is_not_kept() -> None:
    plans, steps = replay.plans([INT], Caller(), returns=0), Steps()
    large = launch(steps, size=8192)
    made = plan([NumberKey(is_float=False)], steps, launches=(large,))
    assert not replay.add(plans, made, "tests::large", 0)
    assert len(plans) == 0


def test_dropped_plans_are_freed_with_what_they_read(driver: Driver) -> None:
    class Value:
        """Something that can be referred to weakly."""

    value = Value()
    gone = weakref.ref(value)
    double = Operator(driver, [TENSOR], doubling(), reads=(({"V": value}, "V", value),))
    del double._reads
    double.plans.clear((), False)
    del value
    gc.collect()
    assert gone() is None


def test_an_overload_that_nobody_calls_any_more_is_freed_with_its_caller(driver: Driver) -> None:
    operator = Operator(driver, [TENSOR], doubling())
    assert operator(torch.ones(2)).shape == (2,)
    assert operator(torch.ones(2, 2)) == "body"  # so that it has a scope, too
    gone = weakref.ref(operator.caller)
    del operator
    gc.collect()
    assert gone() is None


@pytest.mark.usefixtures("there")
def test_what_a_call_is_given_is_not_kept() -> None:
    class Held:
        """Something that can be referred to weakly."""

    caller = Caller()
    caller.runs = lambda x: torch.ones(1)
    plans = replay.plans([TENSOR], caller, returns=1)
    entry = replay.entry([plans], lambda *args: "torch", autocasts=False)
    for requires_grad in (False, True):
        x = torch.ones(3, requires_grad=requires_grad)
        gone = weakref.ref(x)
        entry(x)
        plans.run((x,))
        caller.calls.clear()
        del x
        gc.collect()
        assert gone() is None


@pytest.mark.usefixtures("there")
def test_a_device_that_torch_cannot_allocate_on_is_named() -> None:
    assert native.prepare(torch.device("meta")) == "torch has no _empty_strided_meta"


INSIDE: dict[str, Callable[[Callable[[], None]], Any]] = {
    "fake tensors": lambda learn: _within(FakeTensorMode(), learn),
    "inference mode": lambda learn: _within(torch.inference_mode(), learn),
    "autocast": lambda learn: _within(torch.autocast("cpu", dtype=torch.bfloat16), learn),
    "vmap": lambda learn: torch.func.vmap(lambda x: (learn(), x)[1])(torch.ones(2)),
    "a trace": lambda learn: torch.jit.trace(lambda x: (learn(), x + 1)[1], torch.ones(2)),
    "a call below autograd": lambda learn: _within(torch._C._AutoDispatchBelowAutograd(), learn),
}
LEARNT = ("rest", "inference_included", "autograd_excluded", "autocast", "impl", "key_set", "storage")


def _within(context: Any, learn: Callable[[], None]) -> None:
    with context:
        learn()


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("where", INSIDE)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_learnt_does_not_depend_on_who_asks_first(where: str) -> None:
    def found() -> tuple[Any, ...]:
        made = native._Found()
        return made.reason, *(made.values[name] for name in LEARNT)

    want, seen = found(), []
    INSIDE[where](lambda: seen.append(found()))
    assert want[0] == ""
    assert set(map(str, seen)) == {str(want)}


@pytest.mark.usefixtures("there")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_call_in_a_trace_is_traced_where_the_first_call_was_in_one_too() -> None:
    native._found.cache_clear()
    native._prepared.clear()
    plans, seen = replay.plans([TENSOR], Caller(), returns=1), []

    def body(x: torch.Tensor) -> torch.Tensor:
        assert native.prepare(CPU) == ""
        seen.append(replay.entry([plans], lambda x: "torch", autocasts=False)(torch.ones(3)))
        return x + 1

    torch.jit.trace(body, torch.ones(2), check_trace=False)
    assert seen == ["torch"]
    assert replay.entry([plans], lambda x: "torch", autocasts=False)(X) == "body"


@pytest.mark.usefixtures("there")
def test_threads_that_prepare_it_at_once_leave_it_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    native._found.cache_clear()
    native._prepared.clear()
    symbols, order = layout.symbols, iter(range(9))
    inside, done, reasons = threading.Event(), threading.Event(), []

    def slow_for_the_first(*args: Any) -> Any:
        if next(order) == 0:
            inside.set()
            done.wait(2)
        return symbols(*args)

    monkeypatch.setattr(layout, "symbols", slow_for_the_first)
    thread = threading.Thread(target=lambda: reasons.append(native.prepare(CPU)))
    thread.start()
    inside.wait(10)
    other = threading.Thread(target=lambda: (reasons.append(native.prepare(CPU)), done.set()))
    other.start()
    for each in (thread, other):
        each.join()
    assert reasons == ["", ""]
    plans = replay.plans([TENSOR], Caller(), returns=1)
    assert replay.entry([plans], lambda x: "torch", autocasts=False)(X) == "body"
