"""Steps upon steps: native code agrees with Python's numbers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dotcu.call_cache.record import Field, FieldKind, RecordedStep, StepOp
from exact import (
    DOUBLES,
    FLOATS_OF,
    LEAST,
    MOST,
    REAL,
    ROUNDINGS,
    TESTS,
    WHOLE,
    WHOLE_NUMBERS,
    Unfit,
    agree,
    compute,
)
from recorded_calls import FLOAT, INT, TENSOR, Driver, Operator, Steps, launch, plan, tensor_key

Program = tuple[list[RecordedStep], list[tuple[int, int]]]
INTS, FLOATS = 3, 2
ARGUMENTS = [TENSOR, *[INT] * INTS, *[FLOAT] * FLOATS]
_BY_TYPES = [
    (True, True, list(WHOLE)), (False, True, [*TESTS, *ROUNDINGS]), (False, False, list(REAL)),
    (True, False, [StepOp.TO_FLOAT]),
]  # fmt: skip


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Steps that are integers (even) or doubles by their ops, and guards on some of them."""
    steps = [
        RecordedStep(StepOp.SIZE, 0, 0),
        RecordedStep(StepOp.STRIDE, 0, 1),
        RecordedStep(StepOp.NUMEL, 0),
    ]
    steps += [RecordedStep(StepOp.INT_ARGUMENT, 1 + i) for i in range(INTS)]
    steps += [RecordedStep(StepOp.FLOAT_ARGUMENT, 1 + INTS + i) for i in range(FLOATS)]
    steps += [
        RecordedStep(StepOp.INT, value=draw(whole_numbers)),
        RecordedStep(StepOp.FLOAT, value=draw(doubles)),
    ]
    for _ in range(draw(st.integers(1, 12))):
        takes_int, _, ops = draw(st.sampled_from(_BY_TYPES))
        of_type = [i for i, step in enumerate(steps) if is_whole(step) == takes_int]
        a, b = draw(st.sampled_from(of_type)), draw(st.sampled_from(of_type))
        steps.append(RecordedStep(draw(st.sampled_from(ops)), a, b))
    wholes = [i for i, step in enumerate(steps) if is_whole(step)]
    guards = draw(st.lists(st.tuples(st.sampled_from(wholes), st.sampled_from((0, 1, 2))), max_size=2))
    return steps, sorted(guards)  # in the order of their steps, as a trace has them


def is_whole(step: RecordedStep) -> bool:
    return step.op not in FLOATS_OF | {StepOp.FLOAT, StepOp.FLOAT_ARGUMENT}


whole_numbers = st.one_of(st.sampled_from(WHOLE_NUMBERS), st.integers(-300, 300), st.integers(LEAST, MOST))
doubles = st.one_of(st.sampled_from(DOUBLES), st.floats())
sizes = st.tuples(st.integers(0, 5), st.integers(1, 5))


def evaluated(program: Program, x: torch.Tensor, numbers: Sequence[Any]) -> list[Any] | None:
    """The value of every step, or None where the plan does not fit."""
    steps, guards = program
    leaves: dict[StepOp, Callable[[RecordedStep], Any]] = {
        StepOp.SIZE: lambda s: x.shape[s.b],
        StepOp.STRIDE: lambda s: x.stride(s.b),
        StepOp.NUMEL: lambda s: x.numel(),
        StepOp.INT_ARGUMENT: lambda s: numbers[s.a - 1],
        StepOp.FLOAT_ARGUMENT: lambda s: numbers[s.a - 1],
        StepOp.INT: lambda s: s.value,
        StepOp.FLOAT: lambda s: s.value,
    }
    values: list[Any] = []
    try:
        for step in steps:
            if step.op in leaves:
                values.append(leaves[step.op](step))
            else:
                values.append(compute(step.op, values[step.a], values[step.b]))
    except Unfit:
        return None
    return values if all(values[step] == value for step, value in guards) else None


@given(
    program=programs(),
    size=sizes,
    ints=st.tuples(*[whole_numbers] * INTS),
    floats=st.tuples(*[doubles] * FLOATS),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_programs_agree_with_python(
    driver: Driver, program: Program, size: tuple[int, int], ints: tuple[int, ...], floats: Any
) -> None:
    x, numbers = torch.ones(size), [*ints, *floats]
    values = evaluated(program, x, numbers)
    steps, guards = program
    kinds = [FieldKind.INT64 if is_whole(step) else FieldKind.FLOAT64 for step in steps]
    fields = tuple(Field(offset=16 * i, kind=kind, step=i) for i, kind in enumerate(kinds))
    keys = [tensor_key(x), *[int] * INTS, *[float] * FLOATS]
    written = Steps(steps)
    made = plan(keys, written, launches=(launch(written, *fields),), guards=tuple(guards))
    driver.launches.clear()
    answer = Operator(driver, ARGUMENTS, made)(x, *numbers)
    assert answer == (None if values is not None else "body")
    if values is not None:
        parameters = driver.launches[0].parameters
        for i, (kind, value) in enumerate(zip(kinds, values, strict=True)):
            code = "<q8x" if kind is FieldKind.INT64 else "<d8x"
            found, doubles = parameters[16 * i : 16 * i + 16], kind is FieldKind.FLOAT64
            assert agree(found, struct.pack(code, value), doubles=doubles), i
