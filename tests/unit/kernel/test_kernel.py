from __future__ import annotations

from typing import Any

import pytest
import torch

from dotcu.errors import ArgumentError, LaunchConfigError
from dotcu.kernel import Module, cuda, load_inline, simulate
from dotcu.kernel.launch_policy import LaunchPolicy, entering_scope

SOURCE = """
__global__ void tile(float* x) {
    __shared__ float all[1024];
    all[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = all[blockDim.x - 1 - threadIdx.x];
}
__global__ void __launch_bounds__(128) bounded(float* x) { x[threadIdx.x] = 1; }
template <typename T> __global__ void copy(const T* x, T* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void stacked(float* x, int n) {
    float all[64];
    for (int i = 0; i < n; ++i) all[(i * 7) & 63] = x[i];
    for (int i = 0; i < n; ++i) x[i] = all[(i * 5) & 63];
}
"""


@pytest.fixture(scope="module")
def kernels() -> Module:
    return load_inline(SOURCE)


def test_attributes_are_what_the_assembler_reports(kernels: Module) -> None:
    attributes = kernels.tile.attributes
    assert attributes.static_smem_bytes == 4096
    assert 1 <= attributes.registers <= 255
    assert attributes.max_threads_per_block == 1024
    assert attributes.target.startswith("sm_")
    assert kernels.bounded.attributes.max_threads_per_block == 128
    assert kernels.stacked.attributes.local_bytes >= 256
    assert kernels.copy[torch.float32].attributes.static_smem_bytes == 0


def test_occupancy_follows_block_and_shared_memory(kernels: Module) -> None:
    with simulate(arch="sm_80"):
        assert kernels.tile.occupancy(256) == 8
        assert kernels.tile.occupancy((16, 16)) == 8
        assert kernels.tile.occupancy(1024) == 2
        assert kernels.tile.occupancy(32) == 32
        assert kernels.tile.occupancy(32, smem_bytes=49 * 1024) == 3
    with simulate(arch="sm_86"):
        assert kernels.tile.occupancy(32) == 16


@pytest.mark.parametrize("place", [LaunchPolicy.BODY, LaunchPolicy.SKIP])
def test_a_body_on_cpu_tensors_starts_no_cuda_to_ask_for_the_occupancy(
    kernels: Module, place: LaunchPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(cuda, "available", lambda: pytest.fail("torch was asked for a GPU"))
    with entering_scope(place, operator="ns::tile"):
        assert kernels.tile.occupancy(1024) == 2, "as on the GPU that the simulator stands for"


def test_occupancy_is_the_same_where_only_shapes_are_asked_for(kernels: Module) -> None:
    with entering_scope(LaunchPolicy.SKIP):
        skipped = kernels.tile.occupancy(256)
    assert skipped == kernels.tile.occupancy(256)


def test_occupancy_of_a_block_that_cannot_be_launched_is_refused(kernels: Module) -> None:
    with pytest.raises(LaunchConfigError, match="got 2048"):
        kernels.tile.occupancy(2048)
    with simulate(arch="sm_80"), pytest.raises(LaunchConfigError, match="shared memory is the limit"):
        kernels.tile.occupancy(256, smem_bytes=200 * 1024)


def test_a_template_has_no_attributes_of_its_own(kernels: Module) -> None:
    with pytest.raises(ArgumentError, match="without template arguments"):
        _ = kernels.copy.attributes
    with pytest.raises(ArgumentError, match="without template arguments"):
        kernels.copy.occupancy(256)


@pytest.mark.parametrize("block", [1.5, 256.0, (16, 16.0), "256", True, 0, (1, 1, 1, 1)])
def test_occupancy_of_what_is_no_block_is_refused(kernels: Module, block: Any) -> None:
    kernels.tile.occupancy(256)
    kernels.tile.occupancy(1)
    with pytest.raises(LaunchConfigError, match="tile: got block with"):
        kernels.tile.occupancy(block)
    with pytest.raises(LaunchConfigError, match=r"got smem_bytes with (float 0\.5|-1)"):
        kernels.tile.occupancy(256, smem_bytes=0.5 if block else -1)  # type: ignore[arg-type]


def test_occupancy_is_asked_of_the_architecture_in_use_each_time(kernels: Module) -> None:
    with simulate(arch="sm_80"):
        assert kernels.tile.occupancy(32) == 32
    with simulate(arch="sm_86"):
        assert kernels.tile.occupancy(32) == 16
    with simulate(arch="sm_80"):
        assert kernels.tile.occupancy(32) == 32


def test_a_device_that_is_none_is_refused(kernels: Module) -> None:
    for device in (object(), 1.5, "foo", True):
        with pytest.raises(LaunchConfigError, match='pass "cuda:0" or "cpu"'):
            kernels.tile(torch.zeros(4), grid=1, block=4, device=device)  # type: ignore[arg-type]
