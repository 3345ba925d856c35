"""What stands in an operator: below autograd, with what the body reads, as torch sees it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dotcu.replay import native
from dotcu.replay.plan import Read
from dotcu.replay.rows import rows
from replays import TENSOR, Driver, Operator, doubling, fallback


def test_run_replays_below_autograd(driver: Driver) -> None:
    double, x = Operator(driver, [TENSOR], doubling()), torch.ones(3, requires_grad=True)
    assert double.plans.run((x,)).shape == (3,)
    assert double.plans.run((torch.ones(3, 3),)) is NotImplemented
    assert double.plans.run((3,)) is NotImplemented
    assert double.plans.run(()) is NotImplemented
    assert double.asked == []


def test_what_the_body_reads_must_be_the_same_object(driver: Driver) -> None:
    names, held = {"SCALE": object()}, [object()]
    cell = (lambda: held).__closure__[0]  # type: ignore[index]
    reads = (Read(names=names, name="SCALE", value=names["SCALE"]), Read(names=cell, name="", value=held))
    double, x = Operator(driver, [TENSOR], doubling(), reads=rows(reads)), torch.ones(2)
    assert double(x).shape == (2,)
    before = names["SCALE"]
    names["SCALE"] = object()
    assert double(x) == "missed"
    assert double.asked == ["stale", "miss"]
    assert double.plans.run((x,)) is NotImplemented
    names["SCALE"] = before
    assert double(x).shape == (2,)
    held = []
    assert double(x) == "missed"
    del names["SCALE"]
    assert double(x) == "missed"
    assert double.asked == ["stale", "miss"] * 3


def test_a_function_must_have_the_code_and_the_defaults_that_it_had(driver: Driver) -> None:
    def scale(by: int = 2) -> int:
        return by

    def other() -> int:
        return 3

    reads = [
        Read(names=scale, name=name, value=getattr(scale, name)) for name in ("__code__", "__defaults__")
    ]
    plain = [Read(names=other, name="__defaults__", value=None)]
    double, x = Operator(driver, [TENSOR], doubling(), reads=rows([*reads, *plain])), torch.ones(2)
    assert double(x).shape == (2,)
    for function, name, value in (
        (scale, "__code__", other.__code__),
        (scale, "__defaults__", (3,)),
        (scale, "__defaults__", None),
        (other, "__defaults__", (1,)),
    ):
        before = getattr(function, name)
        setattr(function, name, value)
        assert double(x) == "missed"
        setattr(function, name, before)
        assert double(x).shape == (2,)
    assert double.asked == ["stale", "miss"] * 4


def test_an_empty_cell_is_stale(driver: Driver) -> None:
    def made() -> Any:
        value = object()

        def body() -> object:
            return value

        def forget() -> None:
            nonlocal value
            del value

        return body.__closure__[0], value, forget  # type: ignore[index]

    cell, value, forget = made()
    double = Operator(driver, [TENSOR], doubling(), reads=rows([Read(names=cell, name="", value=value)]))
    assert double(torch.ones(2)).shape == (2,)
    forget()
    assert double(torch.ones(2)) == "missed"
    assert double.asked == ["stale", "miss"]


def test_plans_dropped_during_a_call_are_not_taken_again(driver: Driver) -> None:
    double = Operator(driver, [TENSOR], doubling(), doubling())
    driver.before = lambda: double.plans.clear(())
    assert double(torch.ones(2)).shape == (2,)
    assert double(torch.ones(2)) == "missed"


def test_the_entry_looks_like_what_it_stands_for(driver: Driver) -> None:
    double = Operator(driver, [TENSOR], doubling())
    assert double.entry.fallback is fallback
    assert double.entry.__name__ == "fallback"
    assert hash(double.entry) == hash(fallback)
    with pytest.raises(AttributeError):
        double.entry.nothing_of_that_name  # noqa: B018


def test_it_can_stand_in_torchs_operator(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    overload = torch.ops.aten.sin.default
    double, before = Operator(driver, [TENSOR], doubling()), hash(overload)
    entry = native.entry([double.plans], overload._op, autocasts=False)
    monkeypatch.setattr(overload, "_op", entry)
    assert hash(overload) == before
    assert overload(torch.zeros(5)).shape == (5,)
    assert len(double.launched) == 1
    assert overload(torch.zeros(5, requires_grad=True)) == "recorded"


def test_hold_sends_every_call_to_torch_until_all_let_go(driver: Driver) -> None:
    double, x = Operator(driver, [TENSOR], doubling()), torch.ones(2)
    native.hold(1)
    native.hold(1)
    try:
        assert double(x) == "torch"
        native.hold(-1)
        assert double(x) == "torch"
    finally:
        native.hold(-1)
    assert double(x).shape == (2,)
