"""Arguments by position, by name and by default; and which overload takes them."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import torch

from dotcu.call_cache.native import Argument, ArgumentKind, entry
from dotcu.call_cache.record import Field, FieldKind, StepOp
from recorded_calls import (
    FLOAT,
    TENSOR,
    VECTOR,
    Driver,
    Operator,
    Steps,
    doubling,
    fallback,
    launch,
    plan,
    returning,
)

BOUND = [
    TENSOR,
    Argument(name="n", kinds=ArgumentKind.INT, default=(7,)),
    Argument(
        name="alpha",
        kinds=ArgumentKind.FLOAT | ArgumentKind.INT,
        makes_float=True,
        keyword_only=True,
        default=(2.0,),
    ),
]


def noting() -> Any:
    steps = Steps()
    n, alpha = steps.add(StepOp.INT_ARGUMENT, 1), steps.add(StepOp.FLOAT_ARGUMENT, 2)
    fields = (
        Field(offset=0, kind=FieldKind.INT64, step=n),
        Field(offset=16, kind=FieldKind.FLOAT64, step=alpha),
    )
    keys = [VECTOR, int, float]
    return plan(keys, steps, launches=(launch(steps, *fields),))


@pytest.mark.parametrize(
    ("args", "kwargs", "want"),
    [
        ((), {}, (7, 2.0)),
        ((5,), {}, (5, 2.0)),
        ((), {"n": 5}, (5, 2.0)),
        ((5,), {"alpha": 0.5}, (5, 0.5)),
        ((), {"alpha": 3, "n": 1}, (1, 3.0)),
    ],
)
def test_names_and_defaults_are_bound(driver: Driver, args: Any, kwargs: Any, want: Any) -> None:
    operator = Operator(driver, BOUND, noting())
    assert operator(torch.ones(1), *args, **kwargs) is None
    assert struct.unpack("<q8xd8x", operator.launched[0].parameters) == want


def test_the_first_argument_can_be_given_by_name(driver: Driver) -> None:
    operator = Operator(driver, BOUND, noting())
    assert operator(n=3, x=torch.ones(1)) is None
    assert len(operator.launched) == 1


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((3,), {}),
        ((torch.ones(1), 5, 2.0), {}),
        ((torch.ones(1), 5, 2.0, 1), {}),
        ((torch.ones(1), 5), {"n": 6}),
        ((torch.ones(1),), {"m": 6}),
        ((torch.ones(1), 2.5), {}),
        ((torch.ones(1), None), {}),
        ((torch.ones(1),), {"alpha": "x"}),
        (([1.0],), {}),
    ],
    ids=str,
)
def test_what_the_schema_does_not_take_as_it_is_goes_to_torch(driver: Driver, args: Any, kwargs: Any) -> None:
    operator = Operator(driver, BOUND, noting())
    assert operator(torch.ones(1)) is None, "from here on there is a plan to try first"
    assert operator(*args, **kwargs) == "torch"
    assert (operator.asked, len(operator.launched)) == ([], 1)


def test_an_argument_of_no_kind_leaves_every_call_to_torch(driver: Driver) -> None:
    listed = Argument(name="sizes", kinds=ArgumentKind(0), default=((1, 2),))
    operator = Operator(driver, [TENSOR, listed], returning([VECTOR, ((1, 2),)], 1))
    assert operator(torch.ones(1)) == "torch"


def test_a_call_without_a_tensor_is_left_to_torch(driver: Driver) -> None:
    """Nothing says the device that it is for."""
    assert Operator(driver, [])() == "torch"
    optional = Argument(name="x", kinds=ArgumentKind.TENSOR | ArgumentKind.NONE, default=(None,))
    without = [returning([(None,), int], 4)]
    operator = Operator(
        driver, [optional, Argument(name="n", kinds=ArgumentKind.INT, default=(7,))], *without
    )
    assert operator() == operator(None, 3) == operator(n=3) == "torch"
    assert operator(torch.ones(1)) == "body"
    assert operator.plans.run((None, 3)).shape == (4,), "below autograd torch has chosen the device"


def test_two_overloads_that_both_take_the_arguments_go_to_torch(driver: Driver) -> None:
    first, second = Operator(driver, [TENSOR], doubling()), Operator(driver, [TENSOR, FLOAT])
    third = Operator(driver, [TENSOR, Argument(name="n", kinds=ArgumentKind.INT, default=(1,))])
    x = torch.ones(4)
    clear = entry([first.plans, second.plans], fallback, autocasts=False)
    assert clear(x).shape == (4,)
    assert clear(x, 2.0) == "body"
    assert second.caller.calls == [("body", (x, 2.0), {})]
    unclear = entry([first.plans, third.plans], fallback, autocasts=False)
    assert unclear(x) == "torch"
    assert unclear(x, 5) == "body"


def test_run_takes_keyword_only_arguments_by_position(driver: Driver) -> None:
    operator = Operator(driver, BOUND, noting())
    assert operator.plans.run((torch.ones(1), 3, 0.25)) is None
    assert struct.unpack("<q8xd8x", operator.launched[0].parameters) == (3, 0.25)


def test_arguments_by_keyword_only_reach_the_body_by_keyword(driver: Driver) -> None:
    operator, x = Operator(driver, BOUND), torch.ones(1)
    for call in (operator, lambda *args, **kwargs: operator(n=args[1], x=args[0], **kwargs)):
        assert call(x, 3, alpha=0.25) == "body"
    assert operator(x) == "body"
    assert operator.plans.run((x, 5, 4.0)) == "body"
    assert operator.caller.calls == [
        ("body", (x, 3), {"alpha": 0.25}),
        ("body", (x, 3), {"alpha": 0.25}),
        ("body", (x, 7), {"alpha": 2.0}),
        ("body", (x, 5), {"alpha": 4.0}),
    ]


def test_run_refuses_what_no_call_could_have_given(driver: Driver) -> None:
    operator, x = Operator(driver, BOUND, noting()), torch.ones(1)
    for values in ((), (x,), (x, 3), (x, 3, 2.0, 1), (3, 3, 2.0), (x, "3", 2.0), (x, 3, "2")):
        with pytest.raises(TypeError, match="a value for each argument"):
            operator.plans.run(values)
    with pytest.raises(TypeError, match="a value for each argument"):
        operator.plans.run([x, 3, 2.0])
    assert operator.asked == []
