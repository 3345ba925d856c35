"""Calls by plan: what is allocated, launched and returned, and what stops a call."""

from __future__ import annotations

import dataclasses
import struct
import threading

import pytest
import torch
from torch import Tensor

from dotcu.kernel import recent
from dotcu.replay.arguments import Argument, Kinds
from dotcu.replay.plan import Allocation, ConstantKey, Field, FieldKind, NumberKey, Op
from replays import (
    CPU,
    FUNCTION,
    INT,
    TENSOR,
    VECTOR,
    Driver,
    Operator,
    Steps,
    doubling,
    launch,
    plan,
    returning,
)


def addresses(*tensors: Tensor) -> bytes:
    return b"".join(struct.pack("<Q8x", tensor.data_ptr()) for tensor in tensors)


def test_a_call_allocates_launches_and_returns(driver: Driver) -> None:
    double, x = Operator(driver, [TENSOR], doubling()), torch.ones(1000)
    out = double(x)
    assert (out.shape, out.stride(), out.dtype) == ((1000,), (1,), torch.float32)
    (launched,) = double.launched
    assert launched.function == FUNCTION
    assert (launched.grid, launched.block, launched.stream) == ((4, 1, 1), (32, 1, 1), 0)
    assert launched.parameters == addresses(x, out) + struct.pack("<q8x", 1000)
    assert double.asked == []


def test_calls_do_not_see_each_others_parameters(driver: Driver) -> None:
    double = Operator(driver, [TENSOR], doubling())
    for n in (5, 3, 700):
        x = torch.ones(n)
        out = double(x)
        assert double.launched[-1].parameters == addresses(x, out) + struct.pack("<q8x", n)


def test_threads_launch_at_once_with_their_own_parameters(driver: Driver) -> None:
    double, meet, seen = Operator(driver, [TENSOR], doubling()), threading.Barrier(4), []
    driver.before = lambda: meet.wait(10) and None

    def call(n: int) -> None:
        seen.append((n, double(torch.ones(n)).numel()))

    threads = [threading.Thread(target=call, args=(n,)) for n in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(seen) == [(n, n) for n in (1, 2, 3, 4)]
    sizes = [struct.unpack_from("<q", launched.parameters, 32)[0] for launched in double.launched]
    assert sorted(sizes) == [1, 2, 3, 4]


def test_bytes_between_the_fields_stay(driver: Driver) -> None:
    steps = Steps()
    n = steps.add(Op.INT_ARGUMENT)
    parameters = bytes(range(1, 81))
    fields = (Field(offset=20, kind=FieldKind.INT16, step=n), Field(offset=64, kind=FieldKind.UINT8, step=n))
    launched = launch(steps, *fields, parameters=parameters, offsets=(0, 16, 32, 48, 64))
    operator = Operator(driver, [INT], plan([NumberKey(is_float=False)], steps, launches=(launched,)))
    for number in (0x55, 0x66):
        operator(number)
        want = parameters[:20] + bytes([number, 0]) + parameters[22:64] + bytes([number]) + parameters[65:]
        assert operator.launched[-1].parameters == want


def test_an_address_can_have_an_offset_in_bytes(driver: Driver) -> None:
    steps = Steps()
    four = steps.constant(4)
    field = Field(offset=0, kind=FieldKind.ARGUMENT_ADDRESS, step=four)
    operator = Operator(driver, [TENSOR], plan([VECTOR], steps, launches=(launch(steps, field),)))
    x = torch.ones(3)
    operator(x)
    assert operator.launched[0].parameters == struct.pack("<Q8x", x.data_ptr() + 4)


def test_the_configuration_says_shared_memory_cluster_and_kind_of_launch(driver: Driver) -> None:
    steps = Steps()
    n, one = steps.add(Op.INT_ARGUMENT), steps.constant(1)
    launched = launch(
        steps, grid=(n, one, one), block=(64, 2, 1), smem_bytes=49152, cluster=(2, 1, 1),
        cooperative=True, programmatic=True, most_blocks=8,
    )  # fmt: skip
    operator = Operator(driver, [INT], plan([NumberKey(is_float=False)], steps, launches=(launched,)))
    assert operator(4) is None
    (seen,) = operator.launched
    assert (seen.grid, seen.block, seen.smem_bytes) == ((4, 1, 1), (64, 2, 1), 49152)
    assert seen.attributes == {4: (2, 1, 1), 2: (1, 0, 0), 6: (1, 0, 0)}
    assert (operator(3), operator(10)) == ("body", "body"), "no whole clusters; too many at once"


@pytest.mark.parametrize(("axis", "most"), [(0, 2**31 - 1), (1, 65535), (2, 65535)])
def test_a_grid_beyond_every_gpu_misses(driver: Driver, axis: int, most: int) -> None:
    steps = Steps()
    n, one = steps.add(Op.INT_ARGUMENT), steps.constant(1)
    grid = tuple(n if i == axis else one for i in range(3))
    operator = Operator(
        driver, [INT], plan([NumberKey(is_float=False)], steps, launches=(launch(steps, grid=grid),))
    )
    assert [operator(size) for size in (most, most + 1, -1)] == [None, "body", "body"]
    assert operator.launched[0].grid[axis] == most


@pytest.mark.parametrize("constant", [True, False])
def test_a_grid_with_a_zero_runs_nothing(driver: Driver, constant: bool) -> None:
    steps = Steps()
    n, one = steps.add(Op.INT_ARGUMENT), steps.constant(1)
    empty = launch(steps, grid=(one, steps.constant(0) if constant else n, one))
    full = launch(steps, function=FUNCTION + 1)
    operator = Operator(driver, [INT], plan([NumberKey(is_float=False)], steps, launches=(empty, full)))
    assert operator(0) is None
    assert [launched.function for launched in operator.launched] == [FUNCTION + 1]


def test_several_results_come_as_a_tuple_and_zeroed_ones_are_zero(driver: Driver) -> None:
    steps = Steps()
    three, one = steps.constant(3), steps.constant(1)
    zeros = Allocation(dtype=torch.int32, device=CPU, sizes=(three,), strides=(one,), zeroed=True)
    left = Allocation(dtype=torch.bfloat16, device=CPU, sizes=(), strides=())
    made = plan([VECTOR], steps, allocations=(left, zeros), results=(1, 0), single=False)
    first, second = Operator(driver, [TENSOR], made)(torch.ones(1))
    assert first.tolist() == [0, 0, 0]
    assert (second.shape, second.dtype) == ((), torch.bfloat16)


def test_one_result_of_a_tuple_stays_in_it(driver: Driver) -> None:
    made = dataclasses.replace(returning([VECTOR], 2), single=False)
    (only,) = Operator(driver, [TENSOR], made)(torch.ones(1))
    assert only.shape == (2,)


def test_writes_are_counted_once_the_launches_are_done(driver: Driver) -> None:
    made = plan([VECTOR, ConstantKey(value=None)], Steps(), writes=(0, 1))
    optional = Argument(name="y", kinds=Kinds.TENSOR | Kinds.NONE, default=(None,))
    operator, x = Operator(driver, [TENSOR, optional], made), torch.ones(2)
    assert operator(x) is None
    ((asked, tensors),) = operator.caller.calls
    assert asked == "write"
    assert len(tensors) == 1
    assert tensors[0] is x


def test_memory_that_cannot_be_had_is_left_to_the_body(driver: Driver) -> None:
    operator = Operator(driver, [TENSOR], returning([VECTOR], 2**60))
    assert operator(torch.ones(1)) == "torch"
    assert operator.asked == []
    assert operator.plans.run((torch.ones(1),)) is NotImplemented


def test_a_refused_launch_is_named_and_ends_the_call(driver: Driver) -> None:
    steps = Steps()
    launches = tuple(launch(steps, function=FUNCTION + i) for i in range(3))
    operator = Operator(driver, [TENSOR], returning([VECTOR], 1), plan([VECTOR], steps, launches=launches))
    operator.plans.clear(())
    operator.add(returning([ConstantKey(value=None)], 1))
    operator.add(plan([VECTOR], steps, launches=launches))
    driver.statuses = [0, 701]
    with pytest.raises(RuntimeError, match="launch 1 of plan 1: 701"):
        operator(torch.ones(1))
    assert len(operator.launched) == 2


def test_launches_are_kept_for_a_fault_to_name(driver: Driver) -> None:
    recent._launches.clear()
    steps = Steps()
    launches = tuple(launch(steps, function=FUNCTION + i, kernel=f"kernel{i}") for i in range(3))
    driver.statuses = [0, 0, 1]
    with pytest.raises(RuntimeError, match="launch 2"):
        Operator(driver, [TENSOR], plan([VECTOR], steps, launches=launches))(torch.ones(1))
    assert [(told.operator, told.kernel) for told in recent.launches()] == [
        ("tests::noted", "kernel1"),
        ("tests::noted", "kernel0"),
    ]


# ------------------------------------------------------------------ contexts


def test_another_context_is_asked_elsewhere(driver: Driver) -> None:
    operator, x = Operator(driver, [TENSOR], doubling(), context=77), torch.ones(2)
    driver.context = 77
    assert operator(x).shape == (2,)
    driver.context = 78
    assert operator(x) == "torch"
    assert operator.caller.calls == [("elsewhere", 0, (x,))]
    assert operator.plans.run((x,)) is NotImplemented
    operator.caller.elsewhere_gives = "moved"
    assert operator(x) == "moved"
    assert operator.plans.run((x,)) == "moved"
    assert len(operator.launched) == 1
