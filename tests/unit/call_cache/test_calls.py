"""Calls by plan: what is allocated, launched and returned, and what stops a call."""

from __future__ import annotations

import dataclasses
import struct
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._C import DispatchKey

from dotcu.call_cache import native as native_cache
from dotcu.call_cache.native import Argument, ArgumentKind
from dotcu.call_cache.record import Allocation, Field, FieldKind, RecordedCall, StepOp, TensorKey
from dotcu.kernel import native
from dotcu.kernel.arguments.tensor_map import Tiled
from dotcu.kernel.driver.errors import LaunchLabel, recent_launches, record_launch
from dotcu.kernel.scope import OUTSIDE, current_scope, in_body, scope_variable
from recorded_calls import (
    CPU,
    FUNCTION,
    INT,
    TENSOR,
    VECTOR,
    Caller,
    Devices,
    Driver,
    Operator,
    Steps,
    doubling,
    fallback,
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
    n = steps.add(StepOp.INT_ARGUMENT)
    parameters = bytes(range(1, 81))
    fields = (Field(offset=20, kind=FieldKind.INT16, step=n), Field(offset=64, kind=FieldKind.UINT8, step=n))
    launched = launch(steps, *fields, parameters=parameters, offsets=(0, 16, 32, 48, 64))
    operator = Operator(driver, [INT], plan([int], steps, launches=(launched,)))
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


def test_a_tensor_map_is_encoded_at_each_launch_from_the_calls_tensors(driver: Driver) -> None:
    steps = Steps()
    rows, columns, pitch = (
        steps.add(op, 0, dim) for op, dim in ((StepOp.SIZE, 0), (StepOp.SIZE, 1), (StepOp.STRIDE, 0))
    )
    pitch_bytes, sixteen, half = (
        steps.add(StepOp.MUL, pitch, steps.constant(4)),
        steps.constant(16),
        steps.constant(64),
    )
    given = Tiled(
        dtype=torch.float32, sizes=(columns, rows), strides_bytes=(pitch_bytes,), box=(32, 8),
        element_strides=(1, 2), swizzle=128, l2_promotion=256, fill="nan",
    )  # fmt: skip
    own = Tiled(
        dtype=torch.float32, sizes=(sixteen,), strides_bytes=(), box=(16,), element_strides=(1,),
        swizzle=0, l2_promotion=0, fill="zeros",
    )  # fmt: skip
    maps = (
        (Field(offset=64, kind=FieldKind.ARGUMENT_ADDRESS), given),
        (Field(offset=192, kind=FieldKind.ALLOCATION_ADDRESS, step=half), own),
    )
    number = Field(offset=0, kind=FieldKind.INT32, step=rows)
    launched = launch(steps, number, maps=maps, parameters=bytes(320), offsets=(0, 64, 192))
    memory = Allocation(dtype=torch.float32, device=CPU, sizes=(half,), strides=(steps.constant(1),))
    key = TensorKey(dtype=torch.float32, dim=2, device=CPU)
    made = plan([key], steps, launches=(launched,), allocations=(memory,), results=(0,))
    operator = Operator(driver, [TENSOR], made)
    for x in (torch.ones(5, 40), torch.ones(9, 64)[:, :36]):
        driver.encoded.clear()
        out = operator(x)
        first = (7, x.data_ptr(), (x.shape[1], len(x)), (4 * x.stride(0),), (32, 8), (1, 2), 0, 3, 3, 1)
        second = (7, out.data_ptr() + 64, (16,), (), (16,), (1,), 0, 0, 0, 0)
        assert driver.encoded == [first, second]
        images = bytes([1]) * 128 + bytes([2]) * 128
        assert driver.launches[-1].parameters == struct.pack("<i60x", len(x)) + images
    driver.map_status = 1
    with pytest.raises(RuntimeError, match="launch 0 of plan 0: 1"):
        operator(torch.ones(5, 40))
    assert len(driver.launches) == 2


def test_the_configuration_says_shared_memory_cluster_and_kind_of_launch(driver: Driver) -> None:
    steps = Steps()
    n, one = steps.add(StepOp.INT_ARGUMENT), steps.constant(1)
    launched = launch(
        steps, grid=(n, one, one), block=(64, 2, 1), smem_bytes=49152, cluster=(2, 1, 1),
        cooperative=True, programmatic=True, most_blocks=8,
    )  # fmt: skip
    operator = Operator(driver, [INT], plan([int], steps, launches=(launched,)))
    assert operator(4) is None
    (seen,) = operator.launched
    assert (seen.grid, seen.block, seen.smem_bytes) == ((4, 1, 1), (64, 2, 1), 49152)
    assert seen.attributes == {4: (2, 1, 1), 2: (1, 0, 0), 6: (1, 0, 0)}
    assert (operator(3), operator(10)) == ("body", "body"), "no whole clusters; too many at once"


@pytest.mark.parametrize(("axis", "most"), [(0, 2**31 - 1), (1, 65535), (2, 65535)])
def test_a_grid_beyond_every_gpu_misses(driver: Driver, axis: int, most: int) -> None:
    steps = Steps()
    n, one = steps.add(StepOp.INT_ARGUMENT), steps.constant(1)
    grid = tuple(n if i == axis else one for i in range(3))
    operator = Operator(driver, [INT], plan([int], steps, launches=(launch(steps, grid=grid),)))
    assert [operator(size) for size in (most, most + 1, -1)] == [None, "body", "body"]
    assert operator.launched[0].grid[axis] == most


@pytest.mark.parametrize("constant", [True, False])
def test_a_grid_with_a_zero_runs_nothing(driver: Driver, constant: bool) -> None:
    steps = Steps()
    n, one = steps.add(StepOp.INT_ARGUMENT), steps.constant(1)
    empty = launch(steps, grid=(one, steps.constant(0) if constant else n, one))
    full = launch(steps, function=FUNCTION + 1)
    operator = Operator(driver, [INT], plan([int], steps, launches=(empty, full)))
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


@pytest.fixture(params=["by plan", "by the body"])
def writer(driver: Driver, request: pytest.FixtureRequest) -> Operator:
    """An operator that writes two arguments, the second of which may be left out, and gives nothing."""
    written = Argument(name="x", kinds=ArgumentKind.TENSOR, written=True)
    optional = Argument(
        name="y", kinds=ArgumentKind.TENSOR | ArgumentKind.NONE, written=True, default=(None,)
    )
    keys = [[VECTOR, VECTOR, VECTOR], [VECTOR, VECTOR, (None,)]]
    plans = [plan(each, Steps()) for each in keys] if request.param == "by plan" else []
    operator = Operator(driver, [TENSOR, written, optional], *plans, returns=0)
    operator.caller.runs = lambda *args, **kwargs: None
    return operator


@pytest.mark.parametrize("run", [False, True], ids=["call", "run"])
def test_each_tensor_that_is_written_counts_one_write(writer: Operator, run: bool) -> None:
    a, x, y = torch.ones(2), torch.ones(2), torch.ones(2)
    call = (lambda *args: writer.plans.run((*args, None)[:3])) if run else writer
    assert call(a, x) is None
    assert (a._version, x._version, y._version) == (0, 1, 0)
    assert call(a, x, y) is None
    assert (a._version, x._version, y._version) == (0, 2, 1)
    assert writer.caller.checked == []


def test_a_tensor_of_inference_mode_has_no_version_to_count(writer: Operator) -> None:
    with torch.inference_mode():
        x = torch.ones(2)
        assert writer(torch.ones(2), x) is None
    assert writer(torch.ones(2), x) is None
    y = torch.ones(2)
    assert writer(x, y) is None
    assert y._version == 1
    with torch.inference_mode():
        assert writer(x, y) is None
    assert y._version == 2, "that of an ordinary tensor is counted there too"


def test_nothing_is_counted_of_a_body_that_raises(driver: Driver) -> None:
    operator = Operator(driver, [Argument(name="x", kinds=ArgumentKind.TENSOR, written=True)], returns=0)

    def refuse(x: Tensor) -> None:
        raise ValueError("no")

    operator.caller.runs, x = refuse, torch.ones(2)
    with pytest.raises(ValueError, match="no"):
        operator(x)
    assert x._version == 0


def test_what_launches_wrote_before_one_was_refused_is_counted(driver: Driver) -> None:
    """As where the body launches them."""
    steps, written = Steps(), Argument(name="x", kinds=ArgumentKind.TENSOR, written=True)
    launches = tuple(launch(steps, function=FUNCTION + i) for i in range(2))
    made, x = plan([VECTOR], steps, launches=launches), torch.ones(2)
    operator = Operator(driver, [written], made, returns=0)
    driver.statuses = [0, 701]
    with pytest.raises(RuntimeError, match="launch 1 of plan 0: 701"):
        operator(x)
    assert x._version == 1


def test_memory_that_cannot_be_had_is_left_to_the_body(driver: Driver) -> None:
    operator, x = Operator(driver, [TENSOR], returning([VECTOR], 2**60)), torch.ones(1)
    assert operator(x) == "body"
    assert operator.plans.run((x,)) == "body"
    assert operator.caller.calls == [("body", (x,), {})] * 2


def test_a_refused_launch_is_named_and_ends_the_call(driver: Driver) -> None:
    steps = Steps()
    launches = tuple(launch(steps, function=FUNCTION + i) for i in range(3))
    other = returning([(None,)], 1)
    operator = Operator(driver, [TENSOR], other, plan([VECTOR], steps, launches=launches), context=77)
    driver.statuses = [0, 701]
    with pytest.raises(RuntimeError, match="launch 1 of plan 1: 701"):
        operator(torch.ones(1))
    assert len(operator.launched) == 2
    assert operator.asked == ["failure"]
    assert driver.pushed == [], "the context is popped all the same"


def test_launches_are_kept_for_a_fault_to_name(driver: Driver) -> None:
    steps = Steps()
    launches = tuple(launch(steps, function=FUNCTION + i, kernel=f"kernel{i}") for i in range(3))
    record_launch(LaunchLabel("", "earlier", "", 0))
    driver.statuses = [0, 0, 1]
    with pytest.raises(RuntimeError, match="launch 2"):
        Operator(driver, [TENSOR], plan([VECTOR], steps, launches=launches))(torch.ones(1))
    assert [(told.operator, told.kernel) for told in recent_launches()[:3]] == [
        ("tests::noted", "kernel1"),
        ("tests::noted", "kernel0"),
        ("", "earlier"),
    ]


# ------------------------------------------------------------------ the body


def test_the_body_runs_below_autograd_in_the_scope_of_its_device(driver: Driver) -> None:
    operator, x, seen = Operator(driver, [TENSOR]), torch.ones(2, requires_grad=True), []

    def look(x: Tensor) -> Tensor:
        excluded = torch._C._dispatch_tls_is_dispatch_key_excluded(DispatchKey.AutogradFunctionality)
        seen.append((excluded, current_scope(), (x * 2).requires_grad))
        return torch.ones(3)

    operator.caller.runs = look
    with torch.no_grad():
        assert operator(x).shape == (3,)
    assert operator.plans.run((x,)).shape == (3,)
    scope = in_body("tests::noted", None)
    assert seen == [(True, scope, False)] * 2
    assert current_scope() is OUTSIDE
    assert len(operator.caller.scopes) == 1, "it is asked for once"
    assert operator.caller.scopes[0] < 0


@pytest.mark.parametrize("way", ["returns", "raises"])
@pytest.mark.parametrize(
    "state", [nullcontext, torch.no_grad, torch.inference_mode, torch._C._AutoDispatchBelowAutograd]
)
def test_the_threads_state_is_as_before_when_the_body_is_done(driver: Driver, way: str, state: Any) -> None:
    operator, x, outer = Operator(driver, [TENSOR]), torch.ones(2), in_body("tests::outer", None)

    def body(x: Tensor) -> Tensor:
        if way == "raises":
            raise ValueError("not today")
        return torch.ones(3)

    operator.caller.runs = body
    token = scope_variable.set(outer)
    try:
        with state():
            for call in (operator, lambda x: operator.plans.run((x,))):
                before = native.library().dispatch_keys(), torch.is_grad_enabled()
                with pytest.raises(ValueError, match="not today") if way == "raises" else nullcontext():
                    assert call(x).shape == (3,)
                assert (native.library().dispatch_keys(), torch.is_grad_enabled()) == before
                assert current_scope() is outer
    finally:
        scope_variable.reset(token)
    y = torch.ones(2, requires_grad=True) * 1
    assert y.requires_grad


class Named(Tensor):
    """A tensor that only has another name."""


NOT_NEW: dict[str, Callable[[Tensor], Any]] = {
    "the argument": lambda x: x,
    "a view of it": lambda x: x[1:],
    "nothing": lambda x: None,
    "a number": lambda x: 1.0,
    "a tuple": lambda x: (torch.ones(1),),
    "a list": lambda x: [torch.ones(1)],
    "a subclass": lambda x: torch.ones(1).as_subclass(Named),
}


@pytest.mark.parametrize("kind", NOT_NEW)
def test_what_is_not_new_memory_of_a_plain_tensor_is_checked_by_python(driver: Driver, kind: str) -> None:
    operator, x, n = Operator(driver, [TENSOR, INT]), torch.ones(3), 5
    given = NOT_NEW[kind](x)
    operator.caller.runs = lambda x, n: given
    assert operator(x, n) is given
    ((checked, values),) = operator.caller.checked
    assert checked is given
    assert values[0] is x
    assert values[1] == n


def test_a_new_tensor_needs_no_check(driver: Driver) -> None:
    operator = Operator(driver, [TENSOR])
    for made in (torch.ones(3), torch.ones(0), torch.ones(3, 3).t(), torch.nn.Parameter(torch.ones(1))):
        operator.caller.runs = lambda x, made=made: made
        assert operator(torch.ones(2)) is made
    assert operator.caller.checked == []


@pytest.mark.parametrize(
    ("results", "checked"),
    [
        (lambda x: (torch.ones(1), torch.ones(1)), False),
        (lambda x: (torch.ones(1), x), True),
        (lambda x: (x[:1], torch.ones(1)), True),
        (lambda x: (torch.ones(1),) * 2, True),
        (lambda x: tuple(torch.ones(2)), True),
        (lambda x: (torch.ones(1),), True),
        (lambda x: (torch.ones(1),) * 3, True),
        (lambda x: [torch.ones(1), torch.ones(1)], True),
        (lambda x: None, True),
    ],
    ids=["two", "an argument", "a view", "one twice", "views of one", "one", "three", "a list", "nothing"],
)
def test_several_results_are_each_of_their_own_memory(driver: Driver, results: Any, checked: bool) -> None:
    operator = Operator(driver, [TENSOR], returns=2)
    operator.caller.runs = results
    operator(torch.ones(3))
    assert bool(operator.caller.checked) == checked


def test_a_body_that_promises_nothing_gives_none(driver: Driver) -> None:
    operator, x = Operator(driver, [TENSOR], returns=0), torch.ones(1)
    operator.caller.runs = lambda x: None
    assert operator(x) is None
    assert operator.caller.checked == []
    operator.caller.runs = lambda x: x
    assert operator(x) is x
    assert len(operator.caller.checked) == 1


def test_what_the_check_raises_ends_the_call(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    class Strict(Caller):
        """Takes nothing."""

        def check(self, result: Any, given: tuple[Any, ...]) -> Any:
            raise ValueError(f"{result!r} is no tensor")

    caller = Strict()
    plans = native_cache.make([TENSOR], caller, returns=1)
    with pytest.raises(ValueError, match="'body' is no tensor"):
        native_cache.entry([plans], fallback, autocasts=False)(torch.ones(1))


def test_a_fault_of_the_gpu_is_reported_and_raised_on(driver: Driver) -> None:
    operator, fault = Operator(driver, [TENSOR]), torch.AcceleratorError("CUDA error: misaligned address")

    def fails(x: Tensor) -> Tensor:
        raise fault

    operator.caller.runs = fails
    with pytest.raises(torch.AcceleratorError, match="misaligned"):
        operator(torch.ones(1))
    assert operator.caller.calls[1:] == [("error", fault)]

    operator.caller.runs = lambda x: 1 / 0
    with pytest.raises(ZeroDivisionError):
        operator(torch.ones(1))
    assert operator.asked == ["body", "error", "body"], "of others there is nothing to say"


def test_a_fault_that_is_explained_is_raised_as_that(driver: Driver) -> None:
    class Explaining(Caller):
        """Knows what an error means."""

        def error(self, error: BaseException) -> None:
            raise RuntimeError("it was the kernel before") from error

    caller, fault = Explaining(), torch.AcceleratorError("CUDA error: misaligned address")

    def fails(x: Tensor) -> Tensor:
        raise fault

    caller.runs = fails
    plans = native_cache.make([TENSOR], caller, returns=1)
    with pytest.raises(RuntimeError, match="it was the kernel before") as raised:
        native_cache.entry([plans], fallback, autocasts=False)(torch.ones(1))
    assert raised.value.__cause__ is fault


# ------------------------------------------------------------------ contexts


def test_the_context_of_the_plan_is_current_at_its_launches(driver: Driver) -> None:
    operator, x = Operator(driver, [TENSOR], doubling(), context=77), torch.ones(2)
    for current in (77, 78, 0):
        driver.context = current
        assert operator(x).shape == (2,)
        assert operator.plans.run((x,)).shape == (2,)
        assert driver.pushed == []
    assert driver.contexts == [77] * 6


def test_a_context_that_is_current_is_not_pushed(driver: Driver) -> None:
    operator, pushed = Operator(driver, [TENSOR], doubling(), context=77), []
    driver.before = lambda: pushed.append(list(driver.pushed))
    for current in (77, 78):
        driver.context = current
        operator(torch.ones(2))
    assert pushed == [[], [77]]


# ------------------------------------------------------------------ devices

GPU = torch.device("cuda", 1)


def on_gpu(made: RecordedCall) -> RecordedCall:
    """The same plan for tensors of the GPU 1."""
    return dataclasses.replace(made, device=GPU, keys=(dataclasses.replace(VECTOR, device=GPU),))


def test_a_device_that_is_not_current_is_entered_and_left(driver: Driver, devices: Devices) -> None:
    operator, x = Operator(driver, [TENSOR], on_gpu(doubling())), devices.put(torch.ones(2), 1)
    for call in (operator, lambda x: operator.plans.run((x,))):
        out = call(x)
        assert devices.place(out) == 1
        assert operator.launched[-1].parameters == addresses(x, out) + struct.pack("<q8x", 2)
    assert devices.entered == [1, 1]
    assert (devices.left, devices.current) == (2, 0)
    assert len(operator.launched) == 2
    devices.current = 1
    assert devices.place(operator(x)) == 1
    assert devices.entered == [1, 1], "it is torch's current one"
    assert operator.asked == []


def test_a_device_is_left_again_when_the_driver_refuses_a_launch(driver: Driver, devices: Devices) -> None:
    operator = Operator(driver, [TENSOR], on_gpu(doubling()))
    driver.statuses = [701]
    with pytest.raises(RuntimeError, match="701"):
        operator(devices.put(torch.ones(2), 1))
    assert (devices.entered, devices.left, devices.current) == ([1], 1, 0)


def test_a_device_that_cannot_be_entered_is_left_to_the_body(driver: Driver, devices: Devices) -> None:
    operator, x = Operator(driver, [TENSOR], on_gpu(doubling())), devices.put(torch.ones(2), 1)
    devices.broken = True
    assert operator(x) == "body"
    assert (operator.launched, devices.left) == ([], 0)
    assert operator.caller.scopes == [1]


def test_a_body_is_given_the_scope_of_each_gpu(driver: Driver, devices: Devices) -> None:
    operator, seen = Operator(driver, [TENSOR]), []
    operator.caller.runs = lambda x: seen.append(current_scope().gpu)
    for gpu in (0, 0, 1, 0):
        operator(devices.put(torch.ones(1), gpu))
    assert seen == [0, 0, 1, 0]
