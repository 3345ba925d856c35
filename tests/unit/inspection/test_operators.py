from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu import gallery
from dotcu.compile import Target
from dotcu.inspection.build import LaunchShape
from dotcu.inspection.operators import MAX_ELEMENTS, TracedKernels, count, kernels_of, trace_operators
from helpers.derivable_operators import operator

OLD, NEW = Target.parse("sm_80"), Target.parse("sm_90")
hopper_kernels = dotcu.load_inline("""
__global__ void hopper(float* y) {
#if __CUDA_ARCH__ < 900
#error "for Hopper"
#endif
    y[0] = 1;
}
""")


def asks(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    hopper_kernels.hopper(y, grid=hopper_kernels.hopper.occupancy(32), block=32)
    return y


def launches(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    hopper_kernels.hopper(y, grid=1, block=32)
    return y


@pytest.mark.slow
def test_an_architecture_that_fails_leaves_the_others() -> None:
    for body in (asks, launches):
        built, _ = kernels_of([operator(body, dotcu.Sample(torch.ones(3)))], [OLD, NEW], counts=True)
        (failure,) = built.failed
        assert (failure.arch, failure.names) == (OLD, ("hopper",))
        assert "for Hopper" in failure.message
        assert [code.name for code, _ in built.kernels] == ["hopper"]
        assert [code.arch for code, _ in built.kernels] == [NEW]


def test_where_no_architecture_works_the_compilers_messages_are_kept() -> None:
    built, _ = kernels_of([operator(asks, dotcu.Sample(torch.ones(3)))], [OLD], counts=True)
    assert built.kernels == ()
    (failure,) = built.failed
    assert (failure.arch, failure.names) == (OLD, ())
    assert "for Hopper" in failure.message


def test_counting_is_done_for_an_architecture_that_works() -> None:
    _, counts = kernels_of([operator(asks, dotcu.Sample(torch.ones(3)))], [OLD, NEW], counts=True)
    assert "hopper" in counts


def test_counting_can_be_left_out() -> None:
    _, counts = kernels_of([operator(launches, dotcu.Sample(torch.ones(3)))], [NEW], counts=False)
    assert counts == {}


kernels = dotcu.load_inline("""
template <typename T, int N> __global__ void twice(const T* x, T* y, int n) {
    extern __shared__ char unused[];
    int i = blockIdx.x * N + threadIdx.x;
    if (i < n) y[i] = x[i] + x[i];
}
__global__ void __launch_bounds__(64) fill(float* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] = 1;
}
__global__ void needs_hopper(float* y) {
#if __CUDA_ARCH__ < 900
#error "for Hopper"
#endif
    y[0] = 1;
}
""")
SM_90 = Target.parse("sm_90")


def twice(x: Tensor, *, wide: bool = False) -> Tensor:
    y, size = torch.empty_like(x), 128 if wide else 32
    kernel = kernels.twice[x.dtype, size]
    kernel(x, y, x.numel(), grid=dotcu.cdiv(x.numel(), size), block=size, smem_bytes=64 if wide else 0)
    return y


def names(found: TracedKernels) -> dict[str, list[LaunchShape]]:
    return {name: shapes for by_name in found.kernels.values() for name, shapes in by_name.items()}


def test_what_samples_launch_is_reported_with_its_shapes() -> None:
    samples = dotcu.Sample(torch.ones(50)), dotcu.Sample(torch.ones(50), wide=True)
    found = trace_operators([operator(twice, *samples, dtypes=(torch.float32, torch.float16))], SM_90)
    assert names(found) == {
        f"twice<{name}, {size}>": [LaunchShape(block=(size, 1, 1), smem_bytes=64 if size == 128 else 0)]
        for name in ("float", "__half")
        for size in (32, 128)
    }
    assert found.notes == []


def test_each_call_knows_its_kernels() -> None:
    found = trace_operators([operator(twice, dotcu.Sample(torch.ones(50)))], SM_90)
    (call,) = found.calls
    assert call.kernels == ("twice<float, 32>",)
    assert call.elements == 50
    assert call.name.endswith(", float32, sample 0")


def test_nothing_is_computed() -> None:
    """A sample of many elements costs no more than a small one: its launches are skipped."""
    ran: list[str] = []
    with dotcu.kernel.launch_policy.watching_launches() as launches:
        trace_operators([operator(twice, dotcu.Sample(torch.ones(1 << 24)))], SM_90)
    assert launches == ran


def test_a_launch_of_nothing_is_reported_too() -> None:
    assert "twice<float, 32>" in names(trace_operators([operator(twice, dotcu.Sample(torch.ones(0)))], SM_90))


def test_an_operator_without_samples_is_noted() -> None:
    found = trace_operators([operator(twice)], SM_90)
    assert names(found) == {}
    (note,) = found.notes
    assert "has no samples" in note


def test_a_body_with_a_fake_of_its_own_computes_nothing_either() -> None:
    def large(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        kernels.twice[x.dtype, 32](x, y, 1 << 30, grid=1 << 25, block=32)  # out of bounds, if it ran
        kernels.fill(y, 4, grid=1, block=64)
        return y

    made = operator(large, dotcu.Sample(torch.ones(4)))

    @made.fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    assert list(names(trace_operators([made], SM_90))) == ["twice<float, 32>", "fill"]


READS: dict[str, Callable[[Tensor], float]] = {
    "item": lambda y: y.item(),
    "float": float,
    "tolist": lambda y: y.tolist()[0],
    "numpy": lambda y: float(y.numpy()[0]),
    "nonzero": lambda y: len((y > 0).nonzero()),
}


@pytest.mark.parametrize("read", READS)
def test_a_body_that_reads_what_a_kernel_wrote_runs_in_the_simulator(read: str) -> None:
    def again(x: Tensor) -> Tensor:
        y = torch.full_like(x, -1)
        kernels.fill(y, 1, grid=1, block=64)
        kernels.fill(y, 1, grid=1, block=64 if READS[read](y) == 1 else 32)
        return y

    made = operator(again, dotcu.Sample(torch.zeros(1)))

    @made.fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    assert names(trace_operators([made], SM_90)) == {"fill": [LaunchShape(block=(64, 1, 1))]}


def test_a_body_that_reads_values_runs_in_the_simulator() -> None:
    def first_positive(x: Tensor) -> Tensor:
        count = int((x > 0).sum())
        y = x.new_empty(count)
        kernels.fill(y, count, grid=1, block=64)
        return y

    made = operator(first_positive, dotcu.Sample(torch.tensor([1.0, -1.0, 2.0])))

    @made.fake
    def _(x: Tensor) -> Tensor:
        return x.new_empty(torch.library.get_ctx().new_dynamic_size())

    assert names(trace_operators([made], SM_90)) == {"fill": [LaunchShape(block=(64, 1, 1))]}


def test_a_kernel_that_does_not_compile_is_reported_by_the_compilers_words() -> None:
    def hopper(x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        kernels.needs_hopper(y, grid=kernels.needs_hopper.occupancy(32), block=32)
        return y

    found = trace_operators([operator(hopper, dotcu.Sample(torch.ones(3)))], Target.parse("sm_80"))
    assert names(found) == {}
    assert found.notes == []
    (message,) = found.compile_errors
    assert "for Hopper" in message


def test_a_body_that_fails_is_noted_by_its_sample() -> None:
    def wrong(x: Tensor) -> Tensor:
        kernels.fill(x, grid=1, block=1, smem_bytes=-1)
        return x

    found = trace_operators([operator(wrong, dotcu.Sample(torch.ones(3)))], SM_90)
    (note,) = found.notes
    assert "float32, sample 0 could not be traced" in note
    assert "smem_bytes" in note


def test_bodies_ask_for_the_architecture_that_is_inspected() -> None:
    asked: list[int] = []

    def asks(x: Tensor) -> Tensor:
        asked.append(dotcu.sm_count(x))
        return x.clone()

    for arch, sms in (("sm_80", 108), ("sm_90a", 132), ("compute_120", 188)):
        trace_operators([operator(asks, dotcu.Sample(torch.ones(3)))], Target.parse(arch))
        assert asked[-1] == sms


def test_every_kernel_of_the_gallery_is_reached() -> None:
    found: Any = names(trace_operators([gallery.add, gallery.matmul], SM_90))
    plain = {name.partition("<")[0] for name in found}
    assert plain == {"add", "add_number", "matmul", "matmul_lines", "matmul_tiled", "matmul_naive"}
    with_and_without_a_tail = 2
    of_bytes_at_odd_addresses = 2
    of_matmul = {"matmul": 10, "matmul_lines": 4, "matmul_tiled": 6, "matmul_naive": 4}
    assert Counter(name.partition("<")[0] for name in found if name.startswith("matmul")) == of_matmul
    of_add = with_and_without_a_tail * (9 + 9) + of_bytes_at_odd_addresses
    assert len(found) == of_add + sum(of_matmul.values())


@pytest.mark.parametrize("seed", [1, 2])
def test_torchs_random_numbers_stay_as_they_were(seed: int) -> None:
    torch.manual_seed(seed)
    before = torch.random.get_rng_state()
    trace_operators([gallery.square], SM_90)
    assert torch.equal(torch.random.get_rng_state(), before)


anywhere = dotcu.load_inline("""
template <int N> __global__ void copy(const float* x, float* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x];
}
""")


def in_clusters(x: Tensor) -> Tensor:
    """Fill by clusters on a GPU that has them."""
    y = torch.empty_like(x)
    if x.is_cuda and anywhere.copy[1].occupancy(32, 70 * 1024) >= 3:
        anywhere.copy[2](x, y, x.numel(), grid=2, block=32, cluster=2)
        anywhere.copy[3](x, y, x.numel(), grid=1, block=32)
    else:
        anywhere.copy[4](x, y, x.numel(), grid=1, block=32)
    return y


@pytest.mark.parametrize("has_fake", [False, True])
def test_a_body_is_traced_as_on_the_gpu_that_is_asked_for(has_fake: bool) -> None:
    made = operator(in_clusters, dotcu.Sample(torch.ones(3)))
    if has_fake:
        made.fake(torch.empty_like)
    assert names(trace_operators([made], SM_90)).keys() == {"copy<2>", "copy<3>"}
    for other in ("sm_80", "compute_80"):
        assert names(trace_operators([made], Target.parse(other))).keys() == {"copy<4>"}


def test_a_kernel_whose_occupancy_is_asked_for_is_kept_apart() -> None:
    found = trace_operators([operator(in_clusters, dotcu.Sample(torch.ones(3)))], SM_90)
    assert {name for unit in found.queried for name in unit.names} == {"copy<1>"}


def test_a_body_that_asks_torch_for_its_gpu_is_traced_as_on_the_cpu() -> None:
    def picky(x: Tensor) -> Tensor:
        if x.is_cuda:
            raise AssertionError("Torch not compiled with CUDA enabled")
        return twice(x)

    found = trace_operators([operator(picky, dotcu.Sample(torch.ones(3)))], SM_90)
    assert names(found).keys() == {"twice<float, 32>"}
    (note,) = found.notes
    assert "traced as on the CPU, since as on a GPU it failed: Torch not compiled" in note


counted_kernels = dotcu.load_inline("""
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
    counted_kernels.one(x, y, n, grid=dotcu.cdiv(n, 32), block=32)
    counted_kernels.two(y, n, grid=dotcu.cdiv(n, 32), block=32)
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
        counted_kernels.surface(x, grid=2, block=32)
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
        counted_kernels.two(y, 2 * x.numel(), grid=4, block=32)
        return y

    made = operator(beyond, dotcu.Sample(torch.ones(64)))
    found, _ = count(trace_operators([made], SM_90).calls, SM_90)
    assert "two" in found
