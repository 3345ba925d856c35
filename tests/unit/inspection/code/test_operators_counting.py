from __future__ import annotations

import torch
from torch import Tensor

import dotcu
from dotcu.compile import Target
from dotcu.inspection.code.operators import MAX_ELEMENTS, count, trace_operators
from helpers.derivable_operators import operator

SM_90 = Target.parse("sm_90")
kernels = dotcu.load_inline("""
__global__ void one(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
__global__ void two(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += 1;
}
__global__ void surface(float* y) { asm volatile("sust.b.1d.b32.trap [%0, {%1}], {%1};" ::"l"(1LL), "r"(0)); }
""")


def both(x: Tensor) -> Tensor:
    y, n = torch.empty_like(x), x.numel()
    kernels.one(x, y, n, grid=dotcu.cdiv(n, 32), block=32)
    kernels.two(y, n, grid=dotcu.cdiv(n, 32), block=32)
    return y


def test_each_kernel_of_a_call_is_counted_for_itself() -> None:
    made = operator(both, dotcu.Sample(torch.ones(64)))
    found, notes = count(trace_operators([made], SM_90).calls, SM_90)
    assert notes == []
    one, two = found["one"], found["two"]
    assert {at.line for at in one.lines} == {2, 3, 4, 5}
    assert {at.line for at in two.lines} == {6, 7, 8, 9}
    assert one.total.launches == two.total.launches == 1
    assert one.total.loaded_bytes == two.total.loaded_bytes == 64 * 4


def test_the_largest_sample_that_is_not_too_large_is_run() -> None:
    many = MAX_ELEMENTS + 1
    made = operator(both, *(dotcu.Sample(torch.ones(n)) for n in (3, 200, many)))
    found, _ = count(trace_operators([made], SM_90).calls, SM_90)
    assert found["one"].call.endswith("sample 1")


def test_where_all_are_large_the_smallest_is_run() -> None:
    sizes = (MAX_ELEMENTS + 64, MAX_ELEMENTS + 32)
    made = operator(both, *(dotcu.Sample(torch.ones(n)) for n in sizes))
    found, _ = count(trace_operators([made], SM_90).calls, SM_90)
    assert found["one"].call.endswith("sample 1")


def test_what_the_simulator_cannot_run_is_noted() -> None:
    def through_a_surface(x: Tensor) -> Tensor:
        kernels.surface(x, grid=2, block=32)
        return x.clone()

    made = operator(through_a_surface, dotcu.Sample(torch.ones(64)))
    found, notes = count(trace_operators([made], SM_90).calls, SM_90)
    assert found == {}
    (note,) = notes
    assert "could not be counted in the simulator" in note
    assert "sust.b.1d" in note


def test_a_fault_in_a_kernel_does_not_stop_the_counting() -> None:
    def beyond(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        kernels.two(y, 2 * x.numel(), grid=4, block=32)
        return y

    made = operator(beyond, dotcu.Sample(torch.ones(64)))
    found, _ = count(trace_operators([made], SM_90).calls, SM_90)
    assert "two" in found
