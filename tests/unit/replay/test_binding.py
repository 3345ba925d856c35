"""Arguments by position, by name and by default, both ways; and which overload takes them."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import torch

from dotcu.replay.arguments import Argument, Kinds
from dotcu.replay.plan import ConstantKey, Field, FieldKind, NumberKey, Op
from replays import (
    FLOAT,
    TENSOR,
    VECTOR,
    Steps,
    Way,
    doubling,
    fallback,
    launch,
    plan,
    returning,
)

BOUND = [
    TENSOR,
    Argument(name="n", kinds=Kinds.INT, default=(7,)),
    Argument(
        name="alpha", kinds=Kinds.FLOAT | Kinds.INT, makes_float=True, keyword_only=True, default=(2.0,)
    ),
]


def noting() -> Any:
    steps = Steps()
    n, alpha = steps.add(Op.INT_ARGUMENT, 1), steps.add(Op.FLOAT_ARGUMENT, 2)
    fields = (
        Field(offset=0, kind=FieldKind.INT64, step=n),
        Field(offset=16, kind=FieldKind.FLOAT64, step=alpha),
    )
    keys = [VECTOR, NumberKey(is_float=False), NumberKey(is_float=True)]
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
def test_names_and_defaults_are_bound(way: Way, args: Any, kwargs: Any, want: Any) -> None:
    operator = way.operator(BOUND, noting())
    assert operator(torch.ones(1), *args, **kwargs) is None
    assert struct.unpack("<q8xd8x", operator.launched[0].parameters) == want


def test_the_first_argument_can_be_given_by_name(way: Way) -> None:
    operator = way.operator(BOUND, noting())
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
def test_what_the_schema_does_not_take_as_it_is_goes_to_torch(way: Way, args: Any, kwargs: Any) -> None:
    operator = way.operator(BOUND, noting())
    assert operator(torch.ones(1)) is None, "from here on there is a plan to try first"
    assert operator(*args, **kwargs) == "torch"
    assert (operator.asked, len(operator.launched)) == ([], 1)


def test_an_argument_of_no_kind_leaves_every_call_to_torch(way: Way) -> None:
    listed = Argument(name="sizes", kinds=Kinds(0), default=((1, 2),))
    operator = way.operator([TENSOR, listed], returning([VECTOR, ConstantKey(value=(1, 2))], 1))
    assert operator(torch.ones(1)) == "torch"


def test_an_operator_without_arguments_is_left_to_torch(way: Way) -> None:
    assert way.operator([])() == "torch"


def test_two_overloads_that_both_take_the_arguments_go_to_torch(way: Way) -> None:
    first, second = way.operator([TENSOR], doubling()), way.operator([TENSOR, FLOAT])
    third = way.operator([TENSOR, Argument(name="n", kinds=Kinds.INT, default=(1,))])
    x = torch.ones(4)
    clear = way.module.entry([first.plans, second.plans], fallback, autocasts=False)
    assert clear(x).shape == (4,)
    assert clear(x, 2.0) == "missed"
    assert second.asked == ["miss"]
    unclear = way.module.entry([first.plans, third.plans], fallback, autocasts=False)
    assert unclear(x) == "torch"
    assert unclear(x, 5) == "missed"


def test_run_takes_keyword_only_arguments_by_position(way: Way) -> None:
    operator = way.operator(BOUND, noting())
    assert operator.plans.run((torch.ones(1), 3, 0.25)) is None
    assert struct.unpack("<q8xd8x", operator.launched[0].parameters) == (3, 0.25)
