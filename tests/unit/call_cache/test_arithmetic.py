"""What one step computes, and when it does not fit."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import torch

from dotcu.call_cache.record import StepOp
from exact import (
    DOUBLES,
    EXACT,
    FLOATS_OF,
    LEAST,
    MOST,
    REAL,
    ROUNDINGS,
    TESTS,
    WHOLE,
    WHOLE_NUMBERS,
    agree,
    noting,
    of_two,
    told,
    written,
)
from recorded_calls import FLOAT, INT, TENSOR, Driver, Operator, Steps, plan, tensor_key


@pytest.mark.parametrize("op", [*WHOLE, *TESTS, *REAL, *ROUNDINGS, StepOp.TO_FLOAT], ids=lambda op: op.name)
def test_an_op_gives_pythons_value_or_does_not_fit(driver: Driver, op: StepOp) -> None:
    values: tuple[Any, ...] = DOUBLES if op in {*REAL, *TESTS, *ROUNDINGS} else WHOLE_NUMBERS
    operator = of_two(driver, op, None, None)
    for a in values:
        for b in values:
            assert agree(told(operator, a, b), written(op, a, b), doubles=op in FLOATS_OF), (a, b)


@pytest.mark.parametrize("op", [*WHOLE, *TESTS, *REAL, *ROUNDINGS, StepOp.TO_FLOAT], ids=lambda op: op.name)
@pytest.mark.parametrize("left", [True, False], ids=["constant on the left", "constant on the right"])
def test_an_op_with_a_constant_gives_pythons_value_or_does_not_fit(
    driver: Driver, op: StepOp, left: bool
) -> None:
    values: tuple[Any, ...] = DOUBLES if op in {*REAL, *TESTS, *ROUNDINGS} else WHOLE_NUMBERS
    for constant in values:
        operator = of_two(driver, op, constant if left else None, None if left else constant)
        for other in values:
            want = written(op, *((constant, other) if left else (other, constant)))
            assert agree(told(operator, other, other), want, doubles=op in FLOATS_OF), (constant, other)


@pytest.mark.parametrize("op", [StepOp.LSHIFT, StepOp.RSHIFT])
def test_a_shift_by_very_much_takes_no_memory(driver: Driver, op: StepOp) -> None:
    steps = Steps()
    last = steps.add(op, steps.add(StepOp.INT_ARGUMENT, 0), steps.add(StepOp.INT_ARGUMENT, 1))
    keys = [int] * 2
    for a in (0, 1, -1):
        assert told(noting(driver, keys, [INT, INT], steps, last), a, MOST) == written(op, a, MOST)


def test_what_torch_says_of_a_tensor_can_be_used(driver: Driver) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    x = base[1:, ::2]
    leaves = [(StepOp.SIZE, 0), (StepOp.SIZE, 1), (StepOp.STRIDE, 0), (StepOp.STRIDE, 1)]
    leaves += [(op, 0) for op in (StepOp.NUMEL, StepOp.OFFSET, StepOp.ADDRESS, StepOp.CONTIGUOUS)]
    want = [3, 3, 6, 2, 9, 6, x.data_ptr(), 0]
    for (op, axis), value in zip(leaves, want, strict=True):
        steps = Steps()
        operator = noting(driver, [tensor_key(x)], [TENSOR], steps, steps.add(op, 0, axis))
        assert told(operator, x) == struct.pack("<q8x", value), op


@pytest.mark.parametrize("leaf", [StepOp.SIZE, StepOp.NUMEL])
def test_a_tensor_can_be_as_large_as_its_sizes_say(driver: Driver, leaf: StepOp) -> None:
    steps = Steps()
    last = steps.add(StepOp.MUL, steps.add(leaf, 0), steps.constant(4))
    operator = noting(driver, [tensor_key(torch.ones(1))], [TENSOR], steps, last)
    assert told(operator, torch.ones(1).expand(2**60)) == struct.pack("<q8x", 2**62)
    assert told(operator, torch.ones(1).expand(2**62)) == "body"


def test_contiguous_is_torchs_word(driver: Driver) -> None:
    steps = Steps()
    known = steps.add(StepOp.CONTIGUOUS, 0)
    made = plan([tensor_key(torch.ones(2, 3))], steps, guards=((known, 1),))
    operator = Operator(driver, [TENSOR], made)
    x = torch.ones(2, 3)
    assert [operator(t) for t in (x, x[:1], x[:, :0], torch.ones(3, 2).t())] == [None, None, None, "body"]


@pytest.mark.parametrize("number", [MOST, LEAST, MOST + 1, LEAST - 1, 10**400, -(10**400)])
def test_an_int_beyond_64_bits_does_not_fit_even_where_nothing_uses_it(driver: Driver, number: int) -> None:
    steps = Steps()
    steps.add(StepOp.INT_ARGUMENT, 0)
    operator = Operator(driver, [INT], plan([int], steps))
    assert operator(number) == (None if LEAST <= number <= MOST else "torch"), "which refuses it"


@pytest.mark.parametrize("number", [EXACT, -EXACT, EXACT + 1, -EXACT - 1, 10**400])
def test_an_int_that_is_no_double_does_not_count_as_a_float(driver: Driver, number: int) -> None:
    steps = Steps()
    operator = noting(driver, [float], [FLOAT], steps, steps.add(StepOp.FLOAT_ARGUMENT, 0))
    otherwise = "body" if abs(number) < 1e308 else "torch"  # which refuses it
    assert told(operator, number) == (struct.pack("<d8x", number) if abs(number) <= EXACT else otherwise)


@pytest.mark.parametrize(
    "op", [StepOp.FLOORDIV, StepOp.MOD, StepOp.FDIV, StepOp.ADD, StepOp.LSHIFT, StepOp.RSHIFT, StepOp.TRUNC]
)
def test_a_step_that_fails_counts_where_nothing_uses_it(driver: Driver, op: StepOp) -> None:
    steps, is_float = Steps(), op in (StepOp.FDIV, StepOp.TRUNC)
    leaf = StepOp.FLOAT_ARGUMENT if is_float else StepOp.INT_ARGUMENT
    steps.add(op, steps.add(leaf, 0), steps.add(leaf, 1))
    argument, fits = (FLOAT, (4.0, 2.0)) if is_float else (INT, (4, 2))
    operator = Operator(driver, [argument] * 2, plan([float if is_float else int] * 2, steps))
    fails = {
        StepOp.ADD: (MOST, 1),
        StepOp.LSHIFT: (1, -1),
        StepOp.RSHIFT: (1, -1),
        StepOp.TRUNC: (1e300, 0.0),
    }.get(op, (1, 0))
    assert operator(*fits) is None
    assert operator(*(map(float, fails) if is_float else fails)) == "body"
