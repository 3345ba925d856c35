"""Launches by the driver: streams, contexts, captures, limits. What the simulator shares is in tests/unit."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd.function import once_differentiable

from dotcu.errors import LaunchConfigError
from dotcu.kernel import Module, cuda, load_inline, sm_count
from dotcu.kernel.compiled import target_of

pytestmark = pytest.mark.gpu

SOURCE = """
__global__ void scale(const float* x, float* out, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = by * x[i];
}
__global__ void tile(float* x) {
    __shared__ float line[1024];
    line[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = line[blockDim.x - 1 - threadIdx.x];
}
__global__ void many_registers(const float* x, float* out, int n) {
    float v[48];
    #pragma unroll
    for (int i = 0; i < 48; ++i) v[i] = x[i * 32 + threadIdx.x];
    for (int j = 0; j < n; ++j) {
        #pragma unroll
        for (int i = 0; i < 48; ++i) v[i] = v[i] * v[(i + 1) % 48] + x[j];
    }
    float sum = 0;
    #pragma unroll
    for (int i = 0; i < 48; ++i) sum += v[i];
    out[threadIdx.x] = sum;
}
__global__ void __launch_bounds__(128) bounded(float* x) { x[threadIdx.x] = 1; }
__global__ void dynamic(float* x, int n) {
    extern __shared__ float line[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) line[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) *x = line[n - 1];
}
__global__ void cluster_size(int* out) {
    unsigned blocks;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
    out[blockIdx.x] = blocks;
}
__constant__ float table[4];
__global__ void look_up(float* out) { out[threadIdx.x] = table[threadIdx.x]; }
__global__ void wild(float* x, long long at) { x[at] = 1; }
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return load_inline(SOURCE)


def scale(module: Module, x: torch.Tensor, by: float) -> torch.Tensor:
    out = torch.empty_like(x)
    module.scale(x, out, by, x.numel(), grid=-(-x.numel() // 256), block=256)
    return out


def require_clusters() -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters need compute capability 9.0")


def test_a_launch_is_on_torchs_current_stream(module: Module) -> None:
    side = torch.cuda.Stream()
    x = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        x.fill_(3)
        out = scale(module, x, 2.0)  # on another stream it would read zeros
    side.synchronize()
    assert out.eq(6).all()


def test_a_launch_does_not_wait_for_the_gpu(module: Module) -> None:
    x = torch.ones(256, device="cuda")
    scale(module, x, 2.0)
    torch.cuda.synchronize()
    torch.cuda._sleep(500_000_000)
    scale(module, x, 2.0)
    assert not torch.cuda.current_stream().query()
    torch.cuda.synchronize()


def test_a_warm_module_can_be_captured_and_replayed(module: Module) -> None:
    fresh = load_inline(SOURCE + "// captured\n")
    fresh.variable("table").write(torch.tensor([1.0, 2, 3, 4]))
    fresh.warm()
    x, out = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
    looked_up = torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fresh.scale(x, out, 3.0, 1000, grid=4, block=256)
        fresh.look_up(looked_up, grid=1, block=4)
    assert out.sum().item() == 0
    x.fill_(5)
    graph.replay()
    assert out.eq(15).all()
    assert looked_up.tolist() == [1, 2, 3, 4]


def test_a_thread_that_is_new_to_cuda_can_launch(module: Module) -> None:
    x = torch.ones(1000, device="cuda")
    results: list[Any] = []

    def work() -> None:
        try:
            results.append(scale(module, x, 2.0))
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert isinstance(results[0], torch.Tensor), results[0]
    assert results[0].eq(2).all()


def test_a_thread_of_autograd_can_launch(module: Module) -> None:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return scale(module, x, 2.0)

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return scale(module, grad.contiguous(), 2.0)

    x = torch.ones(10, device="cuda", requires_grad=True)
    Scale.apply(x).sum().backward()
    assert x.grad is not None
    assert x.grad.eq(2).all()


def test_every_device_has_its_own_copy(module: Module) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    module.variable("table").write(torch.tensor([1.0, 2, 3, 4]))
    for index in reversed(range(torch.cuda.device_count())):
        x = torch.ones(10, device=f"cuda:{index}")
        assert scale(module, x, 2.0).eq(2).all()
        out = torch.zeros(4, device=f"cuda:{index}")
        module.look_up(out, grid=1, block=4)
        assert out.tolist() == [1, 2, 3, 4]
        assert torch.cuda.current_device() == 0


def test_cpu_tensors_are_simulated_beside_a_gpu(module: Module) -> None:
    assert scale(module, torch.ones(10), 2.0).eq(2).all()


@pytest.mark.parametrize("kernel", ["scale", "tile", "many_registers", "bounded"])
@pytest.mark.parametrize("threads", [32, 96, 128, 256, 512, 1024])
@pytest.mark.parametrize("smem_bytes", [0, 1000, 20_000, 48 * 1024, 100_000])
def test_occupancy_is_the_drivers(module: Module, kernel: str, threads: int, smem_bytes: int) -> None:
    chosen = module.kernels[kernel]
    if threads > chosen.attributes.max_threads_per_block:
        pytest.skip("the kernel's bounds do not allow this block")
    code = chosen.unit.code(target_of(0))
    function = code.library(kernel).kernel(code.symbol(kernel), 0)
    with cuda.entered(0):
        held = cuda._call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor", function, threads, smem_bytes, doing="Asking"
        )
    assert chosen.occupancy(threads, smem_bytes) == held


@pytest.mark.parametrize("kernel", ["scale", "tile", "many_registers", "bounded"])
def test_attributes_are_the_drivers(module: Module, kernel: str) -> None:
    code = module.kernels[kernel].unit.code(target_of(0))
    function = code.library(kernel).kernel(code.symbol(kernel), 0)
    names = cuda._driver().CUfunction_attribute
    attributes = module.kernels[kernel].attributes

    def asked(name: str) -> int:
        return int(cuda._call("cuFuncGetAttribute", getattr(names, name), function, doing="Asking"))

    with cuda.entered(0):
        assert attributes.registers == asked("CU_FUNC_ATTRIBUTE_NUM_REGS")
        assert attributes.static_smem_bytes == asked("CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES")
        assert attributes.max_threads_per_block == asked("CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK")


def test_all_of_the_opt_in_shared_memory_can_be_used(module: Module) -> None:
    most = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
    x = torch.zeros(1, device="cuda")
    module.dynamic(x, most // 4, grid=1, block=256, smem_bytes=most)
    assert x.item() == most // 4 - 1
    with pytest.raises(LaunchConfigError, match=f"has {most}"):
        module.dynamic(x, 1, grid=1, block=256, smem_bytes=most + 1)


@pytest.mark.parametrize("size", [2, 8, 16])
def test_clusters_just_work_and_the_grid_counts_blocks(module: Module, size: int) -> None:
    require_clusters()
    out = torch.zeros(32, dtype=torch.int32, device="cuda")
    module.cluster_size(out, grid=32, block=32, cluster=size)
    assert out.eq(size).all()


def test_cooperative_and_programmatic_launches_just_work(module: Module) -> None:
    x, out = torch.ones(1024, device="cuda"), torch.zeros(1024, device="cuda")
    module.scale(x, out, 2.0, 1024, grid=4, block=256, cooperative=True)
    assert out.eq(2).all()
    if torch.cuda.get_device_capability() >= (9, 0):
        module.scale(out, x, 2.0, 1024, grid=4, block=256, programmatic=True)
        assert x.eq(4).all()


def test_a_cooperative_grid_that_cannot_be_resident_is_refused(module: Module) -> None:
    x = torch.ones(1024, device="cuda")
    most = sm_count(x) * module.scale.occupancy(1024)
    module.scale(x, x.clone(), 2.0, 1024, grid=most, block=1024, cooperative=True)
    with pytest.raises(LaunchConfigError, match=f"a cooperative grid of {most + 1} blocks"):
        module.scale(x, x.clone(), 2.0, 1024, grid=most + 1, block=1024, cooperative=True)


def run_script(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_kernel_that_faults_is_named_by_what_comes_after() -> None:
    output = run_script(
        f"""
import torch
from dotcu.kernel import load_inline
from dotcu.errors import LaunchError
module = load_inline({SOURCE!r})
x = torch.zeros(4, device="cuda")
module.wild(x, 1 << 45, grid=1, block=1)
try:
    torch.cuda.synchronize()
except Exception:
    pass
try:
    module.bounded(x, grid=1, block=4)
except LaunchError as error:
    print(error)
"""
    )
    assert "bounded" in output
    assert "the simulator names the line" in output


def test_a_child_of_a_fork_before_cuda_can_launch() -> None:
    run_script(
        f"""
import os, torch
from dotcu.kernel import load_inline
module = load_inline({SOURCE!r})
module.scale(torch.ones(4), torch.zeros(4), 2.0, 4, grid=1, block=4)
child = os.fork()
if child == 0:
    x, out = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
    module.scale(x, out, 2.0, 4, grid=1, block=4)
    os._exit(0 if out.eq(2).all().item() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    )


def test_what_was_compiled_by_another_process_before_has_its_registers(tmp_path: Path) -> None:
    """NVRTC has a cache of its own, beside dotcu's; what comes out of that has no log."""
    for cache in ("first", "second"):
        script = f"""
import pathlib
from dotcu import settings
from dotcu.kernel import load_inline
with settings.override(cache_dir=pathlib.Path({str(tmp_path / cache)!r})):
    print(load_inline({SOURCE!r}).many_registers.attributes.registers)
"""
        assert int(run_script(script)) > 40
