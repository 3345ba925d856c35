"""What stands in an operator: below autograd, with what the body reads, as torch sees it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dotcu.call_cache import native as native_cache
from dotcu.call_cache.purity import guards_on
from dotcu.kernel.scope import observing_every_call
from recorded_calls import TENSOR, VECTOR, Driver, Operator, doubling, fallback, returning


def test_run_replays_below_autograd(driver: Driver) -> None:
    double, x = Operator(driver, [TENSOR], doubling()), torch.ones(3, requires_grad=True)
    result = double.plans.run((x,))
    assert (result.shape, result.requires_grad) == ((3,), False)
    assert double.asked == []
    assert double.plans.run((torch.ones(3, 3),)) == "body"


def test_a_call_that_the_dispatcher_brings_is_served_below_autograd_alone(driver: Driver) -> None:
    double, x = Operator(driver, [TENSOR], doubling()), torch.ones(3)
    assert double.plans.serve(x) is NotImplemented
    with torch._C._AutoDispatchBelowAutograd():
        assert double.plans.serve(x).shape == double.plans.serve(x=x).shape == (3,)
        assert double.plans.serve(torch.ones(3, 3)) == "body"
        assert double.plans.serve(2.0) is NotImplemented
    assert double.asked == ["body"]


@pytest.mark.parametrize("count", [66, 90, 300])
def test_more_arguments_than_a_call_is_recorded_for_are_left_to_the_body(driver: Driver, count: int) -> None:
    integer = native_cache.ArgumentKind.INT
    more = [native_cache.Argument(name=f"a{i}", kinds=integer) for i in range(1, count)]
    many, x = Operator(driver, [TENSOR, *more], doubling()), torch.ones(3)
    assert many.entry(x, *range(count - 1)) == "torch"
    with torch._C._AutoDispatchBelowAutograd():
        assert many.plans.serve(x, *range(count - 1)) is NotImplemented


def test_a_call_that_is_recorded_runs_the_plan_that_was_found_for_it(driver: Driver) -> None:
    double, x, given = Operator(driver, [TENSOR], doubling()), torch.ones(3, requires_grad=True), []

    def record(*values: Any) -> Any:
        given.append(values)
        return double.plans.run(values)

    plans = _recording(double, record)
    for n in (3, 5):
        x = torch.ones(n, requires_grad=True)
        assert plans(x).shape == (n,)
        assert given[-1][0] is x
    assert len(double.launched) == 2
    assert double.asked == []


def test_what_runs_while_a_call_is_recorded_does_not_take_its_plan(driver: Driver) -> None:
    """Its plan holds for its own values, once."""
    double, other = Operator(driver, [TENSOR], doubling()), torch.ones(7)
    results: list[Any] = []

    def record(x: Tensor) -> Any:
        results.append(double.plans.run((other,)))
        results.extend(double.plans.run((x,)) for _ in range(2))
        return double(torch.ones(2))

    assert _recording(double, record)(torch.ones(3, requires_grad=True)).shape == (2,)
    assert [tuple(result.shape) for result in results] == [(7,), (3,), (3,)]
    sizes = [struct.unpack_from("<q", launched.parameters, 32)[0] for launched in double.launched]
    assert sizes == [7, 3, 3, 2]


def test_plans_dropped_while_a_call_is_recorded_are_there_to_its_end(driver: Driver) -> None:
    double = Operator(driver, [TENSOR], doubling())

    def record(x: Tensor) -> Any:
        double.plans.clear((), False)
        return double.plans.run((x,))

    call, x = _recording(double, record), torch.ones(3, requires_grad=True)
    assert call(x).shape == (3,)
    assert call(x) == "body"


def test_what_recording_raises_ends_the_call(driver: Driver) -> None:
    double = Operator(driver, [TENSOR], doubling())

    def record(x: Tensor) -> Any:
        raise ValueError("no derivative")

    with pytest.raises(ValueError, match="no derivative"):
        _recording(double, record)(torch.ones(3, requires_grad=True))
    assert double(torch.ones(3)).shape == (3,)


def _recording(operator: Operator, record: Callable[..., Any]) -> Any:
    """Another entry for an operator's arguments, whose calls with a gradient do this, on its plans."""
    operator.caller.record = record  # type: ignore[method-assign]
    operator.plans = native_cache.make([TENSOR], operator.caller, returns=1)
    operator.again()
    return native_cache.entry([operator.plans], fallback, autocasts=False)


def test_what_the_body_reads_must_be_the_same_object(driver: Driver) -> None:
    names, held = {"SCALE": object()}, [object()]
    cell = (lambda: held).__closure__[0]  # type: ignore[index]
    reads = (
        (names, "SCALE", names["SCALE"]),
        (cell, "", held),
    )
    double, x = Operator(driver, [TENSOR], doubling(), reads=guards_on(reads)), torch.ones(2)
    assert double(x).shape == (2,)
    before = names["SCALE"]
    names["SCALE"] = object()
    assert double.plans.run((x,)) == "body", "it takes no plan"
    assert double(x) == "body"
    assert double.asked == ["stale", "body", "body"]
    names["SCALE"] = before
    double.again()
    assert double(x).shape == double.plans.run((x,)).shape == (2,)
    held = []
    assert double(x) == "body"
    double.again()
    del names["SCALE"]
    assert double(x) == "body"
    assert double.asked == ["stale", "body", "body"] + ["stale", "body"] * 2


def test_a_function_must_have_the_code_and_the_defaults_that_it_had(driver: Driver) -> None:
    def scale(by: int = 2) -> int:
        return by

    def other() -> int:
        return 3

    reads = [(scale, name, getattr(scale, name)) for name in ("__code__", "__defaults__")]
    plain = [(other, "__defaults__", None)]
    double, x = Operator(driver, [TENSOR], doubling(), reads=guards_on([*reads, *plain])), torch.ones(2)
    assert double(x).shape == (2,)
    for function, name, value in (
        (scale, "__code__", other.__code__),
        (scale, "__defaults__", (3,)),
        (scale, "__defaults__", None),
        (other, "__defaults__", (1,)),
    ):
        before = getattr(function, name)
        setattr(function, name, value)
        assert double(x) == "body"
        setattr(function, name, before)
        double.again()
        assert double(x).shape == (2,)
    assert double.asked == ["stale", "body"] * 4


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
    double = Operator(driver, [TENSOR], doubling(), reads=guards_on([(cell, "", value)]))
    assert double(torch.ones(2)).shape == (2,)
    forget()
    assert double(torch.ones(2)) == "body"
    assert double.asked == ["stale", "body"]


def test_a_call_for_which_the_plans_were_stale_takes_those_that_came_instead(driver: Driver) -> None:
    names = {"SCALE": 1}
    reads = guards_on([(names, "SCALE", names["SCALE"])])
    double, x = Operator(driver, [TENSOR], returning([VECTOR], 1), reads=reads), torch.ones(2)
    assert double(x).shape == (1,)

    def anew() -> None:
        double.plans.clear(guards_on([(names, "SCALE", names["SCALE"])]), False)
        double.add(returning([VECTOR], names["SCALE"]))

    double.caller.clear = anew
    names["SCALE"] = 5
    assert [double(x).numel() for _ in range(2)] == [5, 5]
    assert double.asked == ["stale"]


def test_what_stale_raises_ends_the_call(driver: Driver) -> None:
    reads = guards_on([((names := {"SCALE": 1}), "SCALE", 1)])
    double = Operator(driver, [TENSOR], doubling(), reads=reads)

    def fails() -> None:
        raise ValueError("no look")

    double.caller.clear = fails
    names["SCALE"] = 2
    with pytest.raises(ValueError, match="no look"):
        double(torch.ones(2))
    assert double.launched == []


def test_plans_dropped_during_a_call_are_not_taken_again(driver: Driver) -> None:
    double = Operator(driver, [TENSOR], doubling(), doubling())
    driver.before = lambda: double.plans.clear((), False)
    assert double(torch.ones(2)).shape == (2,)
    assert double(torch.ones(2)) == "body"


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
    entry = native_cache.entry([double.plans], overload._op, autocasts=False)
    monkeypatch.setattr(overload, "_op", entry)
    assert hash(overload) == before
    assert overload(torch.zeros(5)).shape == (5,)
    assert len(double.launched) == 1
    assert overload(torch.zeros(5, requires_grad=True)) == "recorded"


def test_hold_sends_every_call_to_torch_until_all_let_go(driver: Driver) -> None:
    double, x = Operator(driver, [TENSOR], doubling()), torch.ones(2)
    with observing_every_call():
        with observing_every_call():
            assert double(x) == "torch"
        assert double(x) == "torch"
    assert double(x).shape == (2,)
