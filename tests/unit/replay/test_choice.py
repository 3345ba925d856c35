"""Which plan takes a call, both ways: types, constants, guards."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from dotcu.replay.arguments import Argument, Kinds
from dotcu.replay.plan import ConstantKey, NumberKey, Op, TensorKey
from replays import FLOAT, INT, TENSOR, VECTOR, Steps, Way, plan, returning, tensor_key


def test_the_plan_with_the_right_types_is_taken(way: Way) -> None:
    examples = [
        torch.ones(2), torch.ones(2, 2), torch.ones(()), torch.ones(2, dtype=torch.float64),
        torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.int64),
    ]  # fmt: skip
    plans = [returning([tensor_key(x)], i) for i, x in enumerate(examples)]
    operator = way.operator([TENSOR], *plans)
    for _ in range(2):
        assert [operator(x).numel() for x in examples] == list(range(len(examples)))
    assert operator(torch.ones(2, dtype=torch.complex64)) == "missed"
    assert operator(torch.ones(2, 2, 2)) == "missed"


def test_a_plan_for_another_device_is_not_taken(way: Way) -> None:
    elsewhere = TensorKey(dtype=torch.float32, dim=1, device=torch.device("cuda", 1))
    assert way.operator([TENSOR], returning([elsewhere], 1))(torch.ones(2)) == "missed"


def test_guards_choose_among_plans_of_the_same_types(way: Way) -> None:
    def for_remainder(value: int) -> Any:
        steps = Steps()
        found = steps.add(Op.MOD, steps.add(Op.SIZE, 0, 0), steps.constant(3))
        made = returning([VECTOR], value + 10)
        shift = len(made.steps)
        moved = [s if s.op in (Op.SIZE, Op.INT) else s._replace(a=s.a + shift, b=s.b + shift) for s in steps]
        guards = ((found + shift, value),)
        return dataclasses.replace(made, steps=(*made.steps, *moved), guards=guards)

    operator = way.operator([TENSOR], for_remainder(0), for_remainder(1))
    assert [operator(torch.ones(n)).numel() for n in (3, 4, 6, 7, 9)] == [10, 11, 10, 11, 10]
    assert operator(torch.ones(5)) == "missed"


def test_the_plan_of_the_last_call_is_tried_first(way: Way) -> None:
    steps = Steps()
    even = steps.add(Op.MOD, steps.add(Op.INT_ARGUMENT), steps.constant(2))
    key = NumberKey(is_float=False)
    operator = way.operator([INT], plan([key], steps, guards=((even, 0),)), returning([key], 1))
    assert operator(4) is None
    assert [operator(n).numel() for n in (3, 4)] == [1, 1]


def test_a_plan_for_distinct_tensors_does_not_take_one_twice(way: Way) -> None:
    optional = Argument(name="y", kinds=Kinds.TENSOR | Kinds.NONE)
    made = dataclasses.replace(returning([VECTOR, VECTOR], 4), distinct=True)
    without = dataclasses.replace(returning([VECTOR, ConstantKey(value=None)], 5), distinct=True)
    operator, x = way.operator([TENSOR, optional], made, without), torch.ones(2)
    assert operator(x, torch.ones(2)).shape == operator(x, x.view(-1)).shape == (4,)
    assert operator(x, x) == "missed"
    assert operator.plans.run((x, x)) is NotImplemented
    assert operator(x, None).shape == (5,)


@pytest.mark.parametrize(
    ("kinds", "constant", "others"),
    [
        (Kinds.TENSOR | Kinds.NONE, None, [torch.ones(1)]),
        (Kinds.BOOL, True, [False]),
        (Kinds.OTHER, "mean", ["sum", "Mean"]),
        (Kinds.OTHER | Kinds.INT, torch.float32, [torch.float64, 6]),
        (Kinds.OTHER | Kinds.NONE, torch.device("cpu"), [torch.device("meta"), "cpu", None]),
    ],
    ids=str,
)
def test_a_constant_is_taken_as_just_that_value(way: Way, kinds: Any, constant: Any, others: Any) -> None:
    arguments = [TENSOR, Argument(name="how", kinds=kinds)]
    operator = way.operator(arguments, returning([VECTOR, ConstantKey(value=constant)], 3))
    equal = torch.device("cpu") if isinstance(constant, torch.device) else constant
    if isinstance(constant, str):
        equal = "".join(constant)
    assert operator(torch.ones(2), equal).shape == (3,)
    assert [operator(torch.ones(2), other) for other in others] == ["missed"] * len(others)


def test_one_is_not_true_and_an_int_not_a_float(way: Way) -> None:
    number = Argument(name="s", kinds=Kinds.INT | Kinds.FLOAT | Kinds.BOOL)
    whole = returning([NumberKey(is_float=False)], 1)
    real = returning([NumberKey(is_float=True)], 2)
    truth = returning([ConstantKey(value=True)], 3)
    operator = way.operator([number], whole, real, truth)
    assert [operator(value).numel() for value in (1, 1.0, True, 0, 0.0)] == [1, 2, 3, 1, 2]
    assert operator(False) == "missed"


def test_an_int_counts_as_a_float_where_the_schema_says_float(way: Way) -> None:
    operator = way.operator([FLOAT], returning([NumberKey(is_float=True)], 2))
    assert operator(1).shape == operator(1.0).shape == (2,)
    assert operator(True) == "torch", "torch converts it, or refuses"


def test_without_a_plan_the_caller_is_asked(way: Way) -> None:
    operator, x = way.operator([TENSOR, INT]), torch.ones(1)
    assert operator(x, n=3) == "missed"
    assert operator.caller.calls == [("miss", (x,), {"n": 3})]
    assert len(operator.plans) == 0


def test_plans_are_counted_and_there_is_a_most(way: Way) -> None:
    operator = way.operator([TENSOR], *[returning([VECTOR], i) for i in range(256)])
    assert len(operator.plans) == 256
    assert not way.module.add(operator.plans, returning([VECTOR], 1), "tests::many", 0)
    operator.plans.clear(())
    assert len(operator.plans) == 0
    assert operator(torch.ones(1)) == "missed"
