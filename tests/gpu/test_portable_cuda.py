"""The portable path on a GPU: the same launches as the native one's, by ctypes."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu import settings
from dotcu.kernel import recent

pytestmark = pytest.mark.gpu

kernels = dotcu.load_inline("""
template <typename T> __global__ void scaled(const T* x, float by, T* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * T(by);
}
__global__ void ranks(int* out) {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) out[blockIdx.x] = rank;
}
""")


with settings.override(native=False):  # as where there is no native part

    @dotcu.op("gpu_portable::scaled")
    def scaled(x: Tensor, by: float = 2.0) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        kernels.scaled[x.dtype](x, by, out, n, grid=dotcu.cdiv(n, 256), block=256)
        return out

    @dotcu.op("gpu_portable::ranks", dtypes=(torch.int32,))
    def ranks(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        kernels.ranks(out, grid=x.numel(), block=32, cluster=2)
        return out


def calm(op: Any, *args: Any, **kwargs: Any) -> None:
    """Call until the plan is there."""
    for _ in range(3):
        op(*args, **kwargs)
    assert op.replay.path == "portable"
    assert op.replay.plans >= 1, str(op.replay)


def was_replayed() -> bool:
    return "replayed from a plan" in str(recent.launches()[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1000,), (3, 5), ()], ids=str)
def test_a_replayed_call_gives_what_the_body_gives(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, device="cuda", dtype=dtype)
    calm(scaled, x)
    assert torch.equal(scaled(x), x * 2)
    assert was_replayed()
    assert torch.equal(scaled(x, by=0.5), x * 0.5)
    assert was_replayed()


def test_an_empty_tensor_launches_nothing() -> None:
    calm(scaled, torch.ones(4, device="cuda"))
    assert scaled(torch.ones(0, device="cuda")).shape == (0,)


def test_clusters_are_launched() -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters need sm_90")
    x = torch.zeros(6, device="cuda", dtype=torch.int32)
    calm(ranks, x)
    assert ranks(x).tolist() == [0, 1] * 3
    assert was_replayed()


def test_a_call_on_a_side_stream_is_in_that_streams_order() -> None:
    x, side = torch.zeros(1 << 20, device="cuda"), torch.cuda.Stream()
    calm(scaled, x)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        x.fill_(3.0)
        result = scaled(x)
        assert was_replayed()
    torch.cuda.current_stream().wait_stream(side)
    assert result.unique().tolist() == [6.0]


def test_a_replayed_call_is_captured_in_a_graph() -> None:
    x = torch.ones(1000, device="cuda")
    calm(scaled, x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = scaled(scaled(x))
    x.fill_(2.0)
    graph.replay()
    assert result.unique().tolist() == [8.0]


def test_threads_that_are_new_to_cuda_replay() -> None:
    x = torch.full((1000,), 3.0, device="cuda")
    calm(scaled, x)
    results: list[Tensor] = []
    threads = [
        threading.Thread(target=lambda: results.extend(scaled(x) for _ in range(20))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.unique().tolist() for result in results] == [[6.0]] * 80


def test_a_tensor_on_a_device_that_is_not_current_is_replayed_there() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    x = torch.full((1000,), 3.0, device="cuda:1")
    calm(scaled, x)
    result = scaled(x)
    assert was_replayed()
    assert (result.device, torch.cuda.current_device()) == (x.device, 0)
    assert result.unique().tolist() == [6.0]


def test_the_profiler_sees_the_operator() -> None:
    x = torch.ones(8, device="cuda")
    calm(scaled, x)
    with torch.profiler.profile(acc_events=True) as profile:
        scaled(x)
    assert "gpu_portable::scaled" in {event.key for event in profile.key_averages()}
