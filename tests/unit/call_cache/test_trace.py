from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from torch import Tensor

import bodies
import dotcu
from body_calls import attempt, pairs, traced, values
from dotcu.call_cache.evaluate import compare, evaluate, matches
from dotcu.call_cache.purity import dependencies
from dotcu.call_cache.record import FieldKind, RecordedCall
from dotcu.gallery.add.op import add
from dotcu.gallery.fast_add.op import fast_add
from dotcu.gallery.matmul.op import matmul
from dotcu.gallery.square.op import square
from dotcu.gallery.sum.op import sum as total
from dotcu.kernel.scope import LaunchPolicy, entering_scope

kernels = bodies.kernels


# What a plan says is what the body does.


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(pairs())
def test_a_plan_does_what_the_body_does_or_does_not_fit(
    row: tuple[Callable[..., Any], dict[str, Any], dict[str, Any]],
) -> None:
    body, first, second = row
    made = attempt(body, first)
    assume(made is not None and made.recorded is not None)
    args = values(body, **second)
    assume(matches(made.recorded, args))
    said, real = evaluate(made.recorded, args), attempt(body, second)
    if said is not None:
        assert real is not None, "the plan fits a call that the body refuses"
        assert real.effects is not None, f"the plan fits a call that cannot be followed: {real.reason}"
        assert compare(said, real.effects) is None


def test_a_call_with_tensor_maps_fits_other_sizes_but_nothing_that_a_map_does_not_take() -> None:
    made, y = attempt(bodies.boxes, {"x": torch.ones(8, 12), "y": torch.ones(6, 9)}), torch.ones(7, 10)
    assert made is not None
    assert made.recorded is not None, made.reason
    wide = torch.ones(1 + 40 * 20)
    for x, fits in (
        (torch.ones(5, 8), True),
        (torch.ones(2, 64), True),
        (torch.ones(5, 7), False),  # lines that do not start at multiples of 16 bytes
        (wide[:800].view(40, 20), True),
        (wide[1:].view(40, 20), False),  # an address that is none
        (torch.ones(1, 8), False),  # a stride that stands for any
        (torch.ones(8, 5).T, False),
        (torch.ones(1, 8).expand(5, 8), False),
        (torch.ones(0, 8), False),
    ):
        said = evaluate(made.recorded, [x, y])
        assert (said is not None) is fits, (x.shape, x.stride())
        if said is not None:
            real = attempt(bodies.boxes, {"x": x, "y": y})
            assert real is not None
            assert real.effects is not None
            assert compare(said, real.effects) is None
            (of_x, _), (of_y, map_of_y) = said.launches[1].maps
            assert (of_x.kind, of_y.kind) == (FieldKind.ARGUMENT_ADDRESS, FieldKind.ALLOCATION_ADDRESS)
            assert (of_y.step, map_of_y.sizes, map_of_y.strides_bytes) == (48, (10, 7), (48,))


IMAGES = dotcu.load_inline("""
#include <cuda.h>
__global__ void first(const __grid_constant__ CUtensorMap x, float* out) { out[0] = 1; }
""")


def first_image(x: torch.Tensor) -> torch.Tensor:
    corners = {"lower_corner": (0,), "upper_corner": (0,)}
    out = x.new_empty(1)
    columns = dotcu.tensor_map(x, **corners, channels_per_pixel=x.shape[2], pixels_per_column=8)
    IMAGES.first(columns, out, grid=1, block=1)
    return out


def test_a_call_with_a_map_for_im2col_is_not_served() -> None:
    made = attempt(first_image, {"x": torch.ones(2, 9, 8)})
    assert made is not None
    assert made.recorded is None
    assert "a tensor map by im2col, which native code does not encode" in made.reason


@settings(max_examples=20, deadline=None)
@given(pairs())
def test_a_body_gives_the_same_whether_it_is_followed_or_not(
    row: tuple[Callable[..., Any], dict[str, Any], dict[str, Any]],
) -> None:
    body, call, _ = row
    assume(
        body not in (bodies.corner, bodies.optional, bodies.shaped, bodies.numbers)
    )  # these leave memory unwritten
    made = attempt(body, call)
    expected = outcome(body, call)
    if made is None:
        assert isinstance(expected, str)
    else:
        torch.testing.assert_close(made.result, expected, rtol=0, atol=0, equal_nan=True)


def outcome(body: Callable[..., Any], call: dict[str, Any]) -> Any:
    """A body's result, or the name of what it raises."""
    with dotcu.simulate(on_finding="collect"), entering_scope(LaunchPolicy.BODY):
        try:
            return body(**call)
        except Exception as error:
            return type(error).__name__


# The gallery.


def plans(operator: Any, dtype: torch.dtype = torch.float32) -> list[bool]:
    """For each sample whether there is a plan for it."""
    with dotcu.simulate(checks=()):
        return [
            traced(operator.body, *sample.args, **sample.kwargs).recorded is not None
            for sample in operator.make_samples(torch.device("cpu"), dtype)
        ]


def test_samples_of_the_gallery_have_plans_where_nothing_must_be_copied() -> None:
    # Those that have none are not contiguous, so the body copies them.
    assert plans(add) == [True, True, True, True, False, False, True]
    assert plans(add.overloads["Scalar"]) == [True] * 10
    assert plans(fast_add) == [True, True, True, True, True, True, False, True]
    assert plans(square) == [True, True, True, False, False, True]


def test_a_result_that_is_converted_at_the_end_has_no_plan() -> None:
    def body(x: Tensor) -> Tensor:
        return bodies.broadcast_add(x, x).to(torch.float64)

    assert traced(body, torch.ones(3, dtype=torch.float32)).recorded is None


def test_every_body_of_the_gallery_may_be_followed() -> None:
    for operator in (add, fast_add, square, matmul, total):
        for overload in operator.overloads.values():
            assert dependencies(overload.body), overload


def test_memory_that_is_asked_for_in_zeros_is_zeroed() -> None:
    plan = traced(bodies.corner, torch.ones(5, 6), 1).recorded
    assert isinstance(plan, RecordedCall)
    assert [allocation.zeroed for allocation in plan.allocations] == [True]


def test_one_plan_serves_all_sizes_until_the_body_branches() -> None:
    plan = traced(square.body, torch.ones(1000)).recorded
    assert isinstance(plan, RecordedCall)
    for n in (0, 1, 31, 123_457):
        said = evaluate(plan, [torch.ones(n), 128])
        assert said is not None
        assert said.allocations[0].sizes == (n,)
    assert evaluate(plan, [torch.ones(2000)[::2], 128]) is None
    assert evaluate(plan, [torch.ones(1000), 256]) is None  # occupancy was asked for 128 threads


# What a plan cannot say ends it, and the body stays right.


def cut(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernels.scale(x, out, 1.0, 0.0, x.numel(), grid=1, block=64)
    return out


def reads_a_value(x: Tensor) -> Tensor:
    return cut(x) if x[1, 1].item() > 0 else cut(x.new_empty(3))


def branches_on_a_value(x: Tensor) -> Tensor:
    return cut(x) if x.sum() > 0 else cut(x.new_empty(3))


def reads_a_pointer(x: Tensor) -> Tensor:
    return cut(x) if x.data_ptr() % 64 else cut(x.clone())


def adds_in_place(x: Tensor) -> Tensor:
    out = cut(x)
    out += 1
    return out


def adds(x: Tensor) -> Tensor:
    return cut(x) + 1


def copies(x: Tensor) -> Tensor:
    return cut(x.t().contiguous())


def fills(x: Tensor) -> Tensor:
    out = cut(x)
    out[0] = 5.0
    return out


def gives_the_default_dtype(x: Tensor) -> Tensor:
    return cut(torch.empty(0, device=x.device))


def gives_the_default_device(x: Tensor) -> Tensor:
    return cut(torch.empty(0, dtype=torch.float32))


def asks_for_gradients(x: Tensor) -> Tensor:
    return cut(x) if not x.requires_grad else cut(x.detach())


def shows(x: Tensor) -> Tensor:
    return cut(x) if "tensor" in str(x) else x


ENDS = {
    reads_a_value: "Tensor.item",
    branches_on_a_value: "Tensor.sum",
    reads_a_pointer: "Tensor.data_ptr",
    adds_in_place: "Tensor.__iadd__|Tensor.add_",
    adds: "Tensor.add",
    copies: "contiguous\\(\\) copies",
    fills: "Tensor.__setitem__",
    gives_the_default_dtype: "name the dtype",
    gives_the_default_device: "x.device",
    asks_for_gradients: "Tensor.requires_grad",
    shows: "Tensor.__repr__",
}


@pytest.mark.parametrize("body", ENDS, ids=lambda body: body.__name__)
def test_what_no_plan_can_say_ends_it(body: Callable[..., Any]) -> None:
    x = torch.arange(1.0, 17.0).view(4, 4)
    made = traced(body, x.clone())
    assert made.recorded is None
    assert re.search(ENDS[body], made.reason), made.reason
    assert "in test_trace.py:" in made.reason
    torch.testing.assert_close(made.result, outcome(body, {"x": x.clone()}))


def returns_a_part(x: Tensor) -> Tensor:
    out = x.new_empty(8)
    kernels.scale(x, out, 1.0, 0.0, 8, grid=1, block=32)
    return out[:4]


def returns_it_twice(x: Tensor) -> tuple[Tensor, Tensor]:
    out = cut(x)
    return out, out.view(-1)


@pytest.mark.parametrize("body", [returns_a_part, returns_it_twice])
def test_a_result_is_the_whole_of_an_allocation_and_its_own(body: Callable[..., Any]) -> None:
    assert traced(body, torch.ones(8)).recorded is None


def turned(x: Tensor) -> Tensor:
    out = x.new_empty(x.numel())
    kernels.scale(x, out, 1.0, 0.0, x.numel(), grid=1, block=64)
    return out.view(x.shape)


def test_a_result_may_be_a_view_of_the_whole() -> None:
    plan = traced(turned, torch.ones(3, 4)).recorded
    assert isinstance(plan, RecordedCall)
    said = evaluate(plan, [torch.ones(5, 6)])
    assert said is not None
    assert (said.allocations[0].sizes, said.allocations[0].strides) == ((5, 6), (6, 1))


# Errors.


def picky(x: Tensor) -> Tensor:
    if x.dim() != 1:
        raise ValueError(f"takes one dimension, got {tuple(x.shape)}")
    return cut(x)


def test_an_error_of_the_body_passes_through() -> None:
    with pytest.raises(ValueError, match=r"got \(2, 2\)"):
        traced(picky, torch.ones(2, 2))


def test_an_error_of_a_launch_passes_through() -> None:
    with pytest.raises(dotcu.errors.ArgumentError, match=r"takes a contiguous .* tensor"):
        traced(cut, torch.ones(4, dtype=torch.int32))


def needs_a_real_int(x: Tensor, n: int) -> Tensor:
    return cut(x) if int.__index__(n) == 3 else cut(x.new_empty(2))


def test_a_body_that_does_not_bear_to_be_followed_runs_without() -> None:
    made = traced(needs_a_real_int, torch.ones(4), 3)
    assert made.recorded is None
    assert made.result.shape == (4,)


def test_where_torch_hides_its_functions_from_modes_nothing_is_followed() -> None:
    with torch._C.DisableTorchFunction():
        made = traced(cut, torch.ones(4))
    assert made.recorded is None
    assert made.result.shape == (4,)


# Arguments.


def test_lists_are_not_followed() -> None:
    def first(tensors: list[Tensor]) -> Tensor:
        return cut(tensors[0])

    made = traced(first, [torch.ones(3)])
    assert made.recorded is None
    assert made.result.shape == (3,)


def test_a_plan_made_of_one_tensor_twice_serves_two_tensors() -> None:
    x = torch.ones(50)
    plan = traced(add.body, x, x).recorded
    assert isinstance(plan, RecordedCall)
    said = evaluate(plan, [torch.ones(50), torch.ones(50), 128])
    assert said is not None
    assert [(address.kind, address.source) for address in said.launches[0].fields] == [
        (FieldKind.ARGUMENT_ADDRESS, 0),
        (FieldKind.ARGUMENT_ADDRESS, 1),
        (FieldKind.ALLOCATION_ADDRESS, 0),
    ]


def in_place_if_same(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernels.scale(x, out, 2.0 if x is y else 1.0, 0.0, x.numel(), grid=1, block=64)
    return out


def test_a_body_that_compares_tensors_by_identity_has_plans_for_different_ones_alone() -> None:
    x, y = torch.ones(8), torch.ones(8)
    assert traced(in_place_if_same, x, x).recorded is None
    plan = traced(in_place_if_same, x, y).recorded
    assert isinstance(plan, RecordedCall)
    assert matches(plan, [y, x])
    assert not matches(plan, [x, x])


def test_the_written_argument_is_named() -> None:
    plan = traced(bodies.written, torch.ones(9), out=torch.ones(9), writes=("out",)).recorded
    assert isinstance(plan, RecordedCall)
    assert plan.writes == (1,)
    assert plan.results == ()


# Parameters.


def kinds(plan: Any) -> list[FieldKind]:
    assert isinstance(plan, RecordedCall), plan
    return [field.kind for field in plan.launches[0].fields]


def test_numbers_become_fields_of_their_parameters_types() -> None:
    made = traced(bodies.two_launches, torch.ones(8), 2.0, 1.0)
    address, out, *rest = kinds(made.recorded)
    assert (address, out) == (FieldKind.ARGUMENT_ADDRESS, FieldKind.ALLOCATION_ADDRESS)
    assert rest == [FieldKind.FLOAT32, FieldKind.FLOAT64, FieldKind.INT32]


def test_a_number_that_does_not_fit_its_parameter_does_not_fit_the_plan() -> None:
    plan = traced(bodies.optional, torch.ones(8), None, True, 5).recorded
    assert isinstance(plan, RecordedCall)
    assert evaluate(plan, [torch.ones(8), None, True, -128]) is not None
    assert evaluate(plan, [torch.ones(8), None, True, 128]) is None


def test_a_grid_beyond_every_gpu_does_not_fit() -> None:
    plan = traced(bodies.numbers, torch.ones(1), 3, 3).recorded
    assert isinstance(plan, RecordedCall)
    launch = dataclasses.replace(plan.launches[0], grid=(plan.launches[0].grid[1],) * 3)
    wide = dataclasses.replace(plan, launches=(launch,))
    assert evaluate(wide, [torch.ones(1), 3, 3]) is not None
    limited = dataclasses.replace(launch, most_blocks=1)
    assert evaluate(dataclasses.replace(plan, launches=(limited,)), [torch.ones(1), 3, 3]) is None


def test_strides_of_a_view_follow_its_argument() -> None:
    plan = traced(bodies.strided_rows, torch.ones(4, 6)).recorded
    assert isinstance(plan, RecordedCall)
    args = [torch.ones(8, 7).T]
    said, real = evaluate(plan, args), traced(bodies.strided_rows, *args).effects
    assert said is not None
    assert real is not None
    assert compare(said, real) is None


# On a GPU.


@pytest.mark.gpu
@pytest.mark.parametrize(
    "operator", [add, fast_add, square, matmul, total], ids=lambda operator: operator.__name__
)
def test_on_a_gpu_a_plan_has_the_drivers_function_and_says_what_the_body_does(operator: Any) -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    calls = [
        (sample.args, sample.kwargs)
        for sample in operator.make_samples(device, torch.float32)
        if all(value.is_contiguous() for value in sample.args if isinstance(value, Tensor))
    ]
    fitting = 0
    for args, kwargs in calls:
        made = traced(operator.body, *args, **kwargs)
        if "contiguous() copies" in made.reason:  # broadcast operands are not contiguous
            continue
        assert made.recorded is not None, made.reason
        assert made.recorded.device == device
        assert all(launch.function for launch in made.recorded.launches)
        torch.testing.assert_close(made.result, operator.reference_function(*args, **kwargs))
        for other_args, other_kwargs in calls:
            others = values(operator.body, *other_args, **other_kwargs)
            said = evaluate(made.recorded, others) if matches(made.recorded, others) else None
            real = traced(operator.body, *other_args, **other_kwargs).effects
            if said is not None:
                fitting += 1
                assert real is not None
                assert compare(said, real) is None
    assert fitting >= 3


@pytest.mark.gpu
def test_a_device_without_an_index_hangs_on_the_current_gpu_and_has_no_plan() -> None:
    def body(x: Tensor) -> Tensor:
        return torch.empty(x.shape, dtype=x.dtype, device="cuda")

    assert traced(body, torch.ones(3, device="cuda")).recorded is None


@pytest.mark.gpu
def test_where_a_simulation_is_active_gpu_tensors_are_not_followed() -> None:
    with dotcu.simulate():
        made = traced(square.body, torch.ones(3, device="cuda"))
    assert made.recorded is None
