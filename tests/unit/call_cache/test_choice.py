"""Which plan takes a call: types, constants, guards."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from dotcu.call_cache.native import Argument, ArgumentKind, add
from dotcu.call_cache.record import StepOp, TensorKey
from recorded_calls import FLOAT, INT, TENSOR, VECTOR, Driver, Operator, Steps, plan, returning, tensor_key


def test_the_plan_with_the_right_types_is_taken(driver: Driver) -> None:
    examples = [
        torch.ones(2), torch.ones(2, 2), torch.ones(()), torch.ones(2, dtype=torch.float64),
        torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.int64),
    ]  # fmt: skip
    plans = [returning([tensor_key(x)], i) for i, x in enumerate(examples)]
    operator = Operator(driver, [TENSOR], *plans)
    for _ in range(2):
        assert [operator(x).numel() for x in examples] == list(range(len(examples)))
    assert operator(torch.ones(2, dtype=torch.complex64)) == "body"
    assert operator(torch.ones(2, 2, 2)) == "body"


def test_a_plan_for_another_device_is_not_taken(driver: Driver) -> None:
    elsewhere = TensorKey(dtype=torch.float32, dim=1, device=torch.device("cuda", 1))
    assert Operator(driver, [TENSOR], returning([elsewhere], 1))(torch.ones(2)) == "body"


def test_guards_choose_among_plans_of_the_same_types(driver: Driver) -> None:
    def for_remainder(value: int) -> Any:
        steps = Steps()
        found = steps.add(StepOp.MOD, steps.add(StepOp.SIZE, 0, 0), steps.constant(3))
        made = returning([VECTOR], value + 10)
        shift = len(made.steps)
        moved = [
            s if s.op in (StepOp.SIZE, StepOp.INT) else s._replace(a=s.a + shift, b=s.b + shift)
            for s in steps
        ]
        guards = ((found + shift, value),)
        return dataclasses.replace(made, steps=(*made.steps, *moved), guards=guards)

    operator = Operator(driver, [TENSOR], for_remainder(0), for_remainder(1))
    assert [operator(torch.ones(n)).numel() for n in (3, 4, 6, 7, 9)] == [10, 11, 10, 11, 10]
    assert operator(torch.ones(5)) == "body"


def test_the_plan_of_the_last_call_is_tried_first(driver: Driver) -> None:
    steps = Steps()
    even = steps.add(StepOp.MOD, steps.add(StepOp.INT_ARGUMENT), steps.constant(2))
    key = int
    operator = Operator(driver, [INT], plan([key], steps, guards=((even, 0),)), returning([key], 1))
    assert operator(4) is None
    assert [operator(n).numel() for n in (3, 4)] == [1, 1]


def test_a_plan_for_distinct_tensors_does_not_take_one_twice(driver: Driver) -> None:
    optional = Argument(name="y", kinds=ArgumentKind.TENSOR | ArgumentKind.NONE)
    made = dataclasses.replace(returning([VECTOR, VECTOR], 4), distinct=True)
    without = dataclasses.replace(returning([VECTOR, (None,)], 5), distinct=True)
    operator, x = Operator(driver, [TENSOR, optional], made, without), torch.ones(2)
    assert operator(x, torch.ones(2)).shape == operator(x, x.view(-1)).shape == (4,)
    assert operator(x, x) == "body"
    assert operator.plans.run((x, x)) == "body"
    assert operator(x, None).shape == (5,)


@pytest.mark.parametrize(
    ("kinds", "constant", "others"),
    [
        (ArgumentKind.TENSOR | ArgumentKind.NONE, None, [torch.ones(1)]),
        (ArgumentKind.BOOL, True, [False]),
        (ArgumentKind.STR, "mean", ["sum", "Mean"]),
        (ArgumentKind.DTYPE | ArgumentKind.INT, torch.float32, [torch.float64, 6]),
        (
            ArgumentKind.DEVICE | ArgumentKind.STR | ArgumentKind.NONE,
            torch.device("cpu"),
            [torch.device("meta"), "cpu", None],
        ),
        (ArgumentKind.INTS, (2, 3), [(2, 4), [2], (), [2, 3, 4]]),
    ],
    ids=str,
)
def test_a_constant_is_taken_as_just_that_value(
    driver: Driver, kinds: Any, constant: Any, others: Any
) -> None:
    arguments = [TENSOR, Argument(name="how", kinds=kinds)]
    operator = Operator(driver, arguments, returning([VECTOR, (constant,)], 3))
    equal = torch.device("cpu") if isinstance(constant, torch.device) else constant
    if isinstance(constant, str):
        equal = "".join(constant)
    if isinstance(constant, tuple):
        equal = list(constant)  # torch makes one of it before a body sees it
        assert operator(torch.ones(2), constant).shape == (3,)
    assert operator(torch.ones(2), equal).shape == (3,)
    assert [operator(torch.ones(2), other) for other in others] == ["body"] * len(others)


def test_one_is_not_true_and_an_int_not_a_float(driver: Driver) -> None:
    number = Argument(name="s", kinds=ArgumentKind.INT | ArgumentKind.FLOAT | ArgumentKind.BOOL)
    whole = returning([int], 1)
    real = returning([float], 2)
    truth = returning([(True,)], 3)
    operator = Operator(driver, [number], whole, real, truth)
    assert [operator(value).numel() for value in (1, 1.0, True, 0, 0.0)] == [1, 2, 3, 1, 2]
    assert operator(False) == "body"


def test_an_int_counts_as_a_float_where_the_schema_says_float(driver: Driver) -> None:
    operator = Operator(driver, [FLOAT], returning([float], 2))
    assert operator(1).shape == operator(1.0).shape == (2,)
    assert operator(True) == "torch", "torch converts it, or refuses"


def test_without_a_plan_the_body_runs(driver: Driver) -> None:
    operator, x = Operator(driver, [TENSOR, INT]), torch.ones(1)
    assert operator(x, n=3) == "body"
    assert operator.plans.run((x, 4)) == "body"
    assert operator.caller.calls == [("body", (x, 3), {}), ("body", (x, 4), {})]
    assert len(operator.plans) == 0


def test_a_body_is_followed_64_times_for_calls_of_the_same_kinds(driver: Driver) -> None:
    optional = Argument(name="n", kinds=ArgumentKind.INT | ArgumentKind.NONE)
    operator, x = Operator(driver, [TENSOR, optional], follows=True), torch.ones(1)
    operator.caller.counts = False
    assert {operator(x, n) for n in range(70)} == {"followed"}, "none counts that was not followed"
    assert operator(x, 69) == "body", "but not to be followed is asked once"
    operator.caller.counts = True
    assert [operator(x, n) for n in range(100, 168)] == ["followed"] * 64 + ["body"] * 4
    assert operator(torch.ones(1, 1), 0) == "followed", "another rank has branches of its own"
    assert operator(torch.ones(1, dtype=torch.float64), 0) == "followed"
    assert operator(x, None) == "followed"
    assert operator(x, 0) == "body"
    operator.plans.clear((), True)
    assert operator(x, 0) == "followed"
    operator.plans.clear((), False)
    assert operator(x, 0) == "body"


def test_a_body_is_not_followed_where_a_plan_fits(driver: Driver) -> None:
    operator = Operator(driver, [TENSOR], returning([VECTOR], 2), follows=True)
    assert operator(torch.ones(1)).shape == (2,)
    assert operator.asked == []
    assert operator(torch.ones(1, 1)) == "followed"


def test_plans_are_counted_and_there_is_a_most(driver: Driver) -> None:
    operator = Operator(driver, [TENSOR], *[returning([VECTOR], i) for i in range(256)])
    assert len(operator.plans) == 256
    assert not add(operator.plans, returning([VECTOR], 1), "tests::many", 0)
    operator.plans.clear((), False)
    assert len(operator.plans) == 0
    assert operator(torch.ones(1)) == "body"
