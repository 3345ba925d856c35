"""The native part: whether it is there, what it learns of torch, what it keeps."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dotcu.replay import native
from dotcu.replay.plan import NumberKey
from replays import CPU, INT, TENSOR, Caller, Driver, Operator, Steps, doubling, launch, plan


@pytest.fixture
def there() -> None:
    if native.missing():
        pytest.skip(native.missing())


def test_without_the_library_it_says_so_and_holding_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_library", lambda: "dotcu's native part is not there: no compiler")
    native._prepared.clear()
    assert native.prepare(CPU) == "dotcu's native part is not there: no compiler"
    native.hold(1)
    native.hold(-1)


@pytest.mark.usefixtures("there")
def test_a_plan_that_is_too_large_is_not_kept() -> None:
    plans, steps = native.plans([INT], Caller()), Steps()
    large = launch(steps, size=8192)
    made = plan([NumberKey(is_float=False)], steps, launches=(large,))
    assert not native.add(plans, made, "tests::large", 0)
    assert len(plans) == 0


def test_dropped_plans_are_freed_with_what_they_read(driver: Driver) -> None:
    class Value:
        """Something that can be referred to weakly."""

    value = Value()
    gone = weakref.ref(value)
    double = Operator(driver, [TENSOR], doubling(), reads=(({"V": value}, "V", value),))
    double.plans.clear(())
    del value
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
}


def _within(context: Any, learn: Callable[[], None]) -> None:
    with context:
        learn()


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("where", INSIDE)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_learnt_does_not_depend_on_who_asks_first(where: str) -> None:
    def found() -> tuple[Any, ...]:
        made = native._Found()
        return made.reason, made.values.get("calm_words"), made.values.get("autocast_words")

    want, seen = found(), []
    INSIDE[where](lambda: seen.append(found()))
    assert want[0] == ""
    assert set(map(str, seen)) == {str(want)}


@pytest.mark.usefixtures("there")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_call_in_a_trace_is_traced_where_the_first_call_was_in_one_too() -> None:
    native._found.cache_clear()
    native._prepared.clear()
    plans, seen = native.plans([TENSOR], Caller()), []

    def body(x: torch.Tensor) -> torch.Tensor:
        assert native.prepare(CPU) == ""
        seen.append(native.entry([plans], lambda x: "torch", autocasts=False)(torch.ones(3)))
        return x + 1

    torch.jit.trace(body, torch.ones(2), check_trace=False)
    assert seen == ["torch"]
