from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from dotcu.call_cache.arithmetic import compute
from dotcu.call_cache.evaluate import Effects, compare, evaluate, matches
from dotcu.call_cache.record import (
    Allocation,
    Field,
    FieldKind,
    Launch,
    RecordedCall,
    RecordedStep,
    StepOp,
    TensorKey,
)

CPU = torch.device("cpu")


def plan(*steps: RecordedStep, guards: Any = (), **more: Any) -> RecordedCall:
    keys = (
        TensorKey(dtype=torch.float32, dim=2, device=CPU),
        int,
        float,
        (None,),
    )
    parts = {"allocations": (), "launches": (), "results": (), "single": True, **more}
    return RecordedCall(keys=keys, device=CPU, steps=steps, guards=guards, **parts)


ARGS = [torch.ones(3, 4), 5, 0.5, None]


def launch(*fields: Field, grid: tuple[int, int, int], **more: Any) -> Launch:
    return Launch(
        kernel="k",
        function=0,
        device=CPU,
        parameters=bytes(32),
        offsets=(0, 16),
        fields=fields,
        grid=grid,
        block=(1, 1, 1),
        **more,
    )


# Keys.


@pytest.mark.parametrize(
    "args",
    [
        [torch.ones(3), 5, 0.5, None],
        [torch.ones(3, 4, dtype=torch.float64), 5, 0.5, None],
        [torch.ones(3, 4, device="meta"), 5, 0.5, None],
        [torch.ones(3, 4, dtype=torch.complex64).conj().imag, 5, 0.5, None],
        [None, 5, 0.5, None],
        [torch.ones(3, 4), True, 0.5, None],
        [torch.ones(3, 4), 5.0, 0.5, None],
        [torch.ones(3, 4), 5, 1, None],
        [torch.ones(3, 4), 5, 0.5, torch.ones(1)],
        [torch.ones(3, 4), 5, 0.5],
    ],
)
def test_arguments_of_other_types_do_not_match(args: list[Any]) -> None:
    assert matches(plan(), ARGS)
    assert not matches(plan(), args)


def test_a_constant_matches_itself_alone() -> None:
    keyed = dataclasses.replace(plan(), keys=((True,),))
    assert matches(keyed, [True])
    assert not matches(keyed, [1])
    assert not matches(keyed, [False])


# Steps.


def test_leaves_are_read_from_the_arguments() -> None:
    x = torch.ones(9, 8)[2:6, 1:5].T
    leaves = [
        (RecordedStep(StepOp.SIZE, 0, 1), 4),
        (RecordedStep(StepOp.STRIDE, 0, 1), 8),
        (RecordedStep(StepOp.NUMEL, 0), 16),
        (RecordedStep(StepOp.OFFSET, 0), 17),
        (RecordedStep(StepOp.ADDRESS, 0), x.data_ptr()),
        (RecordedStep(StepOp.CONTIGUOUS, 0), 0),
        (RecordedStep(StepOp.INT_ARGUMENT, 1), 5),
    ]
    for leaf, wanted in leaves:
        made = plan(leaf, guards=((0, wanted),))
        assert evaluate(made, [x, 5, 0.5, None]) is not None, leaf
        assert evaluate(dataclasses.replace(made, guards=((0, wanted + 1),)), [x, 5, 0.5, None]) is None


@pytest.mark.parametrize(
    ("op", "values", "expected"),
    [
        (StepOp.FLOORDIV, (-7, 2), -4),
        (StepOp.MOD, (-7, 2), 1),
        (StepOp.MOD, (7, -2), -1),
        (StepOp.FLOORDIV, (-(2**63), -1), None),
        (StepOp.FLOORDIV, (1, 0), None),
        (StepOp.MOD, (1, 0), None),
        (StepOp.ADD, (2**63 - 1, 1), None),
        (StepOp.MUL, (2**32, 2**31), None),
        (StepOp.MUL, (2**32, -(2**31)), -(2**63)),
        (StepOp.NEG, (-(2**63),), None),
        (StepOp.ABS, (-(2**63),), None),
        (StepOp.LSHIFT, (1, 62), 2**62),
        (StepOp.LSHIFT, (1, 63), None),
        (StepOp.LSHIFT, (0, 2**62), 0),
        (StepOp.LSHIFT, (1, 2**62), None),
        (StepOp.LSHIFT, (1, -1), None),
        (StepOp.RSHIFT, (-5, 2**62), -1),
        (StepOp.RSHIFT, (5, 64), 0),
        (StepOp.RSHIFT, (5, -1), None),
        (StepOp.XOR, (-1, 5), -6),
        (StepOp.LT, (1, 2), 1),
        (StepOp.TO_FLOAT, (2**53,), 2.0**53),
        (StepOp.TO_FLOAT, (2**53 + 1,), None),
        (StepOp.FDIV, (1.0, 0.0), None),
        (StepOp.FMUL, (1e308, 10.0), math.inf),
        (StepOp.FEQ, (0.0, -0.0), 1),
        (StepOp.SAME, (0.0, -0.0), 0),
        (StepOp.FEQ, (math.nan, math.nan), 0),
        (StepOp.SAME, (math.nan, math.nan), 1),
        (StepOp.TRUNC, (-2.5,), -2),
        (StepOp.FLOOR, (-2.5,), -3),
        (StepOp.CEIL, (-2.5,), -2),
        (StepOp.TRUNC, (1e19,), None),
        (StepOp.TRUNC, (math.nan,), None),
        (StepOp.FLOOR, (math.inf,), None),
    ],
)
def test_a_step_is_python_s_number_or_does_not_fit(op: StepOp, values: Any, expected: Any) -> None:
    if expected is None:
        with pytest.raises(OverflowError):
            compute(op, *values)
    else:
        found = compute(op, *values)
        assert (type(found), found) == (type(expected), expected)


def test_every_step_that_is_no_leaf_computes_something() -> None:
    leaves = {op for op in StepOp if op < StepOp.ADD}
    for op in set(StepOp) - leaves:
        unary = op in (
            StepOp.NEG,
            StepOp.ABS,
            StepOp.TO_FLOAT,
            StepOp.FNEG,
            StepOp.FABS,
            StepOp.TRUNC,
            StepOp.FLOOR,
            StepOp.CEIL,
        )
        doubles = op > StepOp.TO_FLOAT
        number: Any = 2.0 if doubles else 2
        compute(op, *([number] if unary else [number, number]))


# Launches.


def test_fields_are_written_at_their_places() -> None:
    steps = (
        RecordedStep(StepOp.SIZE, 0, 0),
        RecordedStep(StepOp.INT, value=1),
        RecordedStep(StepOp.INT, value=12),
    )
    made = plan(
        *steps,
        allocations=(Allocation(dtype=torch.float32, device=CPU, sizes=(0,), strides=(1,)),),
        launches=(
            launch(
                Field(offset=0, kind=FieldKind.ARGUMENT_ADDRESS, source=0, step=2),
                Field(offset=8, kind=FieldKind.ALLOCATION_ADDRESS, source=0),
                Field(offset=16, kind=FieldKind.INT16, step=0),
                grid=(0, 1, 1),
            ),
        ),
    )
    said = evaluate(made, ARGS)
    assert said is not None
    assert said.allocations == (Allocation(dtype=torch.float32, device=CPU, sizes=(3,), strides=(1,)),)
    assert said.launches[0].grid == (3, 1, 1)
    assert said.launches[0].parameters == bytes(16) + b"\3" + bytes(15)
    assert said.launches[0].fields == (
        Field(offset=0, kind=FieldKind.ARGUMENT_ADDRESS, source=0, step=12),
        Field(offset=8, kind=FieldKind.ALLOCATION_ADDRESS, source=0, step=0),
    )


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [
        (FieldKind.INT8, 127, True),
        (FieldKind.INT8, 128, False),
        (FieldKind.UINT8, 255, True),
        (FieldKind.UINT8, -1, False),
        (FieldKind.INT32, -(2**31), True),
        (FieldKind.INT32, 2**31, False),
        (FieldKind.UINT64, -1, False),
        (FieldKind.UINT64, 2**63 - 1, True),
        (FieldKind.FLOAT32, 3.4e38, True),
        (FieldKind.FLOAT32, 3.5e38, False),
        (FieldKind.FLOAT32, math.inf, True),
        (FieldKind.FLOAT64, 1e308, True),
    ],
)
def test_a_value_that_a_field_cannot_hold_does_not_fit(kind: FieldKind, value: Any, fits: bool) -> None:
    op = StepOp.FLOAT if isinstance(value, float) else StepOp.INT
    steps = (RecordedStep(op, value=value), RecordedStep(StepOp.INT, value=1))
    made = plan(*steps, launches=(launch(Field(offset=0, kind=kind, step=0), grid=(1, 1, 1)),))
    assert (evaluate(made, ARGS) is not None) is fits


@pytest.mark.parametrize(("size", "fits"), [(0, True), (65535, True), (65536, False), (-1, False)])
def test_a_grid_beyond_every_gpu_does_not_fit(size: int, fits: bool) -> None:
    steps = (RecordedStep(StepOp.INT, value=size), RecordedStep(StepOp.INT, value=1))
    made = plan(*steps, launches=(launch(grid=(1, 0, 1)),))
    assert (evaluate(made, ARGS) is not None) is fits


def test_a_cooperative_grid_that_cannot_run_at_once_does_not_fit() -> None:
    steps = (RecordedStep(StepOp.SIZE, 0, 0), RecordedStep(StepOp.INT, value=1))
    made = plan(*steps, launches=(launch(grid=(0, 1, 1), cooperative=True, most_blocks=4),))
    assert evaluate(made, [torch.ones(4, 1), 5, 0.5, None]) is not None
    assert evaluate(made, [torch.ones(5, 1), 5, 0.5, None]) is None


def test_memory_of_a_size_below_zero_does_not_fit() -> None:
    steps = (RecordedStep(StepOp.INT, value=-1), RecordedStep(StepOp.INT, value=1))
    made = plan(*steps, allocations=(Allocation(dtype=torch.float32, device=CPU, sizes=(0,), strides=(1,)),))
    assert evaluate(made, ARGS) is None


# Comparison.


def effects(**changes: Any) -> Effects:
    allocation = Allocation(dtype=torch.float32, device=CPU, sizes=(2,), strides=(1,))
    launched = launch(grid=(1, 1, 1))
    return dataclasses.replace(
        Effects(allocations=(allocation,), launches=(launched,), results=(0,)), **changes
    )


def test_equal_effects_have_no_difference() -> None:
    assert compare(effects(), effects()) is None


def test_a_difference_is_named_with_both_values() -> None:
    ran = dataclasses.replace(effects().launches[0], grid=(2, 1, 1))
    found = compare(effects(), effects(launches=(ran,)))
    assert found == "launch 0: grid is (1, 1, 1) in the recorded call, (2, 1, 1) in the body"
    assert compare(effects(), effects(launches=())) == "the recorded call has 1 launches, the body 0"
    assert compare(effects(), effects(results=(1,))) == "result 0: the recorded call has 0, the body 1"
