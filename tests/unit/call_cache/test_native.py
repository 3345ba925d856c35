"""The native part: whether it is there, what it learns of torch, what it keeps."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from dotcu.call_cache import native as native_cache
from dotcu.kernel import native
from recorded_calls import (
    CPU,
    INT,
    TENSOR,
    Caller,
    Driver,
    Operator,
    Steps,
    X,
    configured,
    doubling,
    launch,
    plan,
)


@pytest.fixture
def there() -> Iterator[None]:
    """The native part, with nothing in it replaced; it is configured anew after the test."""
    with configured():
        yield


@pytest.mark.usefixtures("there")
def test_a_plan_that_is_too_large_is_not_kept() -> None:
    plans, steps = native_cache.make([INT], Caller(), returns=0), Steps()
    large = launch(steps, size=8192)
    made = plan([int], steps, launches=(large,))
    assert not native_cache.add(plans, made, "tests::large", 0)
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
    plans = native_cache.make([TENSOR], caller, returns=1)
    entry = native_cache.entry([plans], lambda *args: "torch", autocasts=False)
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
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_call_in_a_trace_is_traced_where_the_first_call_was_in_one_too() -> None:
    native.torch_layout.cache_clear()
    native._prepared.clear()
    plans, seen = native_cache.make([TENSOR], Caller(), returns=1), []

    def body(x: torch.Tensor) -> torch.Tensor:
        assert native.prepare(CPU) == ""
        seen.append(native_cache.entry([plans], lambda x: "torch", autocasts=False)(torch.ones(3)))
        return x + 1

    torch.jit.trace(body, torch.ones(2), check_trace=False)
    assert seen == ["torch"]
    assert native_cache.entry([plans], lambda x: "torch", autocasts=False)(X) == "body"


@pytest.mark.usefixtures("there")
def test_threads_that_prepare_it_at_once_leave_it_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    native.torch_layout.cache_clear()
    native._prepared.clear()
    symbols, order = native.symbols, iter(range(9))
    inside, done, reasons = threading.Event(), threading.Event(), []

    def slow_for_the_first(*args: Any) -> Any:
        if next(order) == 0:
            inside.set()
            done.wait(0.3)  # the other thread waits for this one
        return symbols(*args)

    monkeypatch.setattr(native, "symbols", slow_for_the_first)
    thread = threading.Thread(target=lambda: reasons.append(native.prepare(CPU)))
    thread.start()
    inside.wait(10)
    other = threading.Thread(target=lambda: (reasons.append(native.prepare(CPU)), done.set()))
    other.start()
    for each in (thread, other):
        each.join()
    assert reasons == ["", ""]
    plans = native_cache.make([TENSOR], Caller(), returns=1)
    assert native_cache.entry([plans], lambda x: "torch", autocasts=False)(X) == "body"
