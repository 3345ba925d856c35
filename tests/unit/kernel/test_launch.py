from __future__ import annotations

import copy
import ctypes
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from dotcu import process
from dotcu.errors import (
    ArgumentError,
    FindingError,
    LaunchConfigError,
)
from dotcu.kernel import Module, load_inline, simulate, strided
from dotcu.kernel.launch_policy import LaunchPolicy, entering_scope

SOURCE = """
#include <dotcu/tensor.cuh>

struct Affine { int shift; double scale; };
enum class Mode { ADD, MULTIPLY };
__constant__ float table[4];

__global__ void add(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}
__global__ void affine(double* x, Affine by) { x[threadIdx.x] = by.scale * x[threadIdx.x] + by.shift; }
__global__ void apply(float* x, Mode mode, float by) {
    x[threadIdx.x] = mode == Mode::ADD ? x[threadIdx.x] + by : x[threadIdx.x] * by;
}
__global__ void is_null(const float* x, int* out) { *out = x == nullptr; }
__global__ void copy4(const float4* x, float4* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void row_sums(const float* x, long long rows, int columns, float* out, int n) {
    float sum = 0;
    for (int j = 0; j < n; ++j) sum += x[threadIdx.x * rows + j * columns];
    out[threadIdx.x] = sum;
}
__global__ void transpose(dotcu::tensor<const float, 2> x, dotcu::tensor<float, 2> out) {
    out(threadIdx.y, threadIdx.x) = x(threadIdx.x, threadIdx.y);
}
__global__ void reverse(float* x, int n) {
    extern __shared__ float line[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) line[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = line[n - 1 - i];
}
__global__ void __launch_bounds__(64) bounded(float* x) { x[threadIdx.x] = 1; }
__global__ void where(int* out) {
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}
__global__ void nothing() {}
__global__ void take_bool(bool* out, bool value) { *out = value; }
"""


@pytest.fixture(scope="module")
def kernels() -> Module:
    return load_inline(SOURCE)


class Affine(ctypes.Structure):
    _fields_ = (("shift", ctypes.c_int), ("scale", ctypes.c_double))


def test_a_launch_computes_where_its_tensors_live(kernels: Module, device: torch.device) -> None:
    a, b = torch.randn(1000, device=device), torch.randn(1000, device=device)
    out = torch.zeros(1000, device=device)
    kernels.add(a, b, out, 1000, grid=4, block=256)
    assert torch.equal(out, a + b)


def test_grid_and_block_have_up_to_three_dimensions(kernels: Module, device: torch.device) -> None:
    out = torch.zeros(24 * 30, dtype=torch.int32, device=device)
    kernels.where(out, grid=(2, 3, 4), block=(5, 3, 2))
    expected = [block * 1000 + thread for block in range(24) for thread in range(30)]
    assert out.tolist() == expected


def test_a_struct_goes_by_value(kernels: Module, device: torch.device) -> None:
    x = torch.arange(3.0, dtype=torch.float64, device=device)
    kernels.affine(x, Affine(5, 0.5), grid=1, block=3)
    assert x.tolist() == [5.0, 5.5, 6.0]


def test_an_enum_and_a_bool_go_by_value(kernels: Module, device: torch.device) -> None:
    x = torch.ones(2, device=device)
    kernels.apply(x, 0, 2.0, grid=1, block=2)
    kernels.apply(x, 1, 2, grid=1, block=2)
    assert x.tolist() == [6, 6]
    flag = torch.zeros(1, dtype=torch.bool, device=device)
    kernels.take_bool(flag, True, grid=1, block=1)
    assert flag.item() is True


@pytest.mark.parametrize("null", [True, False])
def test_none_is_null(kernels: Module, device: torch.device, null: bool) -> None:
    out = torch.zeros(1, dtype=torch.int32, device=device)
    kernels.is_null(None if null else torch.zeros(1, device=device), out, grid=1, block=1)
    assert out.item() == null


def test_vector_types_take_aligned_tensors(kernels: Module, device: torch.device) -> None:
    x, y = torch.randn(64, device=device), torch.zeros(64, device=device)
    kernels.copy4(x, y, grid=1, block=16)
    assert torch.equal(x, y)
    with pytest.raises(ArgumentError, match="4 bytes past an address divisible by 16"):
        kernels.copy4(x[1:], y, grid=1, block=1)


def test_strided_passes_strides(kernels: Module, device: torch.device) -> None:
    x = torch.randn(7, 5, device=device).t()
    out = torch.zeros(5, device=device)
    kernels.row_sums(strided(x), out, 7, grid=1, block=5)
    assert torch.allclose(out, x.sum(1))


def test_a_tensor_struct_brings_sizes_and_strides(kernels: Module, device: torch.device) -> None:
    x = torch.randn(8, 4, device=device)[::2, 1:]
    out = torch.zeros(3, 4, device=device)
    kernels.transpose(x, out, grid=1, block=(4, 3))
    assert torch.equal(out, x.t())


def test_more_than_48_kib_of_dynamic_shared_memory_just_works(kernels: Module, device: torch.device) -> None:
    n = 16000
    x = torch.arange(float(n), device=device)
    kernels.reverse(x, n, grid=1, block=256, smem_bytes=4 * n)
    assert torch.equal(x.cpu(), torch.arange(n - 1.0, -1.0, -1.0))


def test_a_grid_with_a_zero_checks_its_arguments_and_runs_nothing(
    kernels: Module, device: torch.device
) -> None:
    x = torch.zeros(0, device=device)
    kernels.add(x, x, x, 0, grid=0, block=256)
    assert x._version == 0
    with pytest.raises(ArgumentError, match="takes 4 arguments, got 3"):
        kernels.add(x, x, x, grid=0, block=256)


def test_a_kernel_without_parameters_runs_where_it_is_reported(kernels: Module, device: torch.device) -> None:
    kernels.nothing(grid=1, block=32)
    kernels.nothing(grid=1, block=32, device=device)
    kernels.nothing(grid=1, block=32, device="cpu")
    with simulate() as run:
        kernels.nothing(grid=1, block=32)
    assert run.counters != simulate_nothing()


def simulate_nothing() -> object:
    with simulate() as run:
        return run.counters


@pytest.mark.parametrize("device_name", ["meta", "nonsense", "cuda:99", 99])
def test_a_device_that_is_not_there_is_refused(kernels: Module, device_name: Any) -> None:
    with pytest.raises(
        LaunchConfigError, match=f"got device='?{device_name if device_name != 99 else '.*99'}"
    ):
        kernels.nothing(grid=1, block=1, device=device_name)


@pytest.mark.gpu
def test_tensors_elsewhere_than_device_says_are_refused(kernels: Module) -> None:
    x = torch.zeros(1, device="cuda")
    with pytest.raises(ArgumentError, match="device='cpu' was requested, and its tensors are on cuda:0"):
        kernels.bounded(x, grid=1, block=1, device="cpu")
    with pytest.raises(ArgumentError, match=r"float\* out is on cpu, and the tensors before it on cuda:0"):
        kernels.add(x, x, torch.zeros(1), 1, grid=1, block=1)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"grid": 1, "block": 2048}, "block.x=2048; the limit is 1024"),
        ({"grid": 1, "block": 0}, "the least is 1"),
        ({"grid": -1, "block": 32}, "the least is 0"),
        ({"grid": (1, 70000), "block": 32}, "grid.y=70000; the limit is 65535"),
        ({"grid": 1, "block": 65}, "its __launch_bounds__ allow 64"),
        ({"grid": 1, "block": 32, "smem_bytes": 300 * 1024}, "bytes of shared memory per block"),
    ],
)
def test_a_broken_limit_is_named_before_anything_runs(
    kernels: Module, device: torch.device, given: dict[str, Any], says: str
) -> None:
    x = torch.zeros(2048, device=device)
    with pytest.raises(LaunchConfigError, match=says):
        kernels.bounded(x, **given)
    assert x.sum().item() == 0
    assert x._version == 0


def test_clusters_are_limited_by_the_simulated_architecture(kernels: Module) -> None:
    x = torch.zeros(64)
    with simulate(arch="sm_80"), pytest.raises(LaunchConfigError, match="sm_80 has no clusters"):
        kernels.bounded(x, grid=2, block=32, cluster=2)
    with simulate(arch="sm_90"):
        kernels.bounded(x, grid=2, block=32, cluster=2)
        with pytest.raises(LaunchConfigError, match="multiple"):
            kernels.bounded(x, grid=3, block=32, cluster=2)


def test_shared_memory_is_limited_by_the_simulated_architecture(kernels: Module) -> None:
    x = torch.zeros(64)
    with simulate(arch="sm_90"):
        kernels.reverse(x, 64, grid=1, block=32, smem_bytes=227 * 1024)
    with simulate(arch="sm_86"), pytest.raises(LaunchConfigError, match="sm_86 has 101376"):
        kernels.reverse(x, 64, grid=1, block=32, smem_bytes=227 * 1024)


def test_version_counters_of_what_a_kernel_may_write_are_bumped(
    kernels: Module, device: torch.device
) -> None:
    a, b = torch.zeros(4, device=device), torch.zeros(4, device=device)
    out = torch.zeros(4, device=device)
    kernels.add(a, b, out, 4, grid=1, block=4)
    assert (a._version, b._version, out._version) == (0, 0, 1)
    kernels.transpose(a.view(2, 2), out.view(2, 2), grid=1, block=(2, 2))
    assert (a._version, out._version) == (0, 2)


def test_inference_tensors_can_be_written(kernels: Module, device: torch.device) -> None:
    with torch.inference_mode():
        x = torch.zeros(4, device=device)
        kernels.bounded(x, grid=1, block=4)
    assert x.sum().item() == 4


def test_where_only_shapes_are_asked_for_nothing_is_looked_at(device: torch.device) -> None:
    broken = load_inline("__global__ void k(float* x) { syntax error }")
    with entering_scope(LaunchPolicy.SKIP, operator="ns::k"):
        broken.k(object(), "too many", grid=object(), block=None)


def test_threads_launch_at_the_same_time_and_compile_once(device: torch.device) -> None:
    module = load_inline("__global__ void fill(float* x, float v) { x[threadIdx.x] = v; }")
    tensors = [torch.zeros(32, device=device) for _ in range(8)]
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            for _ in range(5):
                module.fill(tensors[index], float(index), grid=1, block=32)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [t.mean().item() for t in tensors] == [float(i) for i in range(8)]
    assert len(module.units()[0].codes()) == 1


def test_a_view_of_a_larger_storage_ends_where_the_view_does(kernels: Module) -> None:
    storage = torch.zeros(100)
    with pytest.raises(FindingError) as caught:
        kernels.bounded(storage[10:20], grid=1, block=16)
    finding = caught.value.finding
    assert (finding.kind, finding.address_of, finding.lanes) == ("out-of-bounds", "x", 6)
    assert storage[20:].sum() == 0


def test_outside_simulate_a_finding_is_raised(kernels: Module) -> None:
    with pytest.raises(FindingError, match="out-of-bounds"):
        kernels.add(torch.zeros(3), torch.zeros(3), torch.zeros(4), 4, grid=1, block=32)


def test_an_enum_takes_negative_values(device: torch.device) -> None:
    module = load_inline("""
enum Flag { minus = -1, zero };
enum class Wide : unsigned long long { top = 1ull << 63 };
__global__ void store(Flag flag, Wide wide, long long* out) { out[0] = flag; out[1] = (long long)wide; }
""")
    out = torch.zeros(2, dtype=torch.int64, device=device)
    module.store(-1, 1 << 63, out, grid=1, block=1)
    assert out.tolist() == [-1, -(1 << 63)]
    with pytest.raises(ArgumentError, match="from -2147483648 to 4294967295"):
        module.store(1 << 32, 0, out, grid=1, block=1)


def test_a_narrow_float_is_rounded_once(device: torch.device) -> None:
    module = load_inline("""
#include <cuda_bf16.h>
__global__ void store(__nv_bfloat16 value, float* out) { *out = __bfloat162float(value); }
""")
    out = torch.zeros(1, device=device)
    module.store(1 + 2**-8 + 2**-30, out, grid=1, block=1)
    assert out.item() == 1 + 2**-7


def test_a_template_with_defaults_alone_is_instantiated_by_an_empty_tuple(device: torch.device) -> None:
    module = load_inline(
        "template <typename T = float, int N = 4> __global__ void fill(T* out) { *out = N; }"
    )
    out = torch.zeros(1, device=device)
    module.fill[()](out, grid=1, block=1)
    assert out.item() == 4


def test_a_bool_macro_is_a_number(device: torch.device) -> None:
    module = load_inline(
        "__global__ void fill(int* out) { *out = 10 * ON + OFF; }", define={"ON": True, "OFF": False}
    )
    out = torch.zeros(1, dtype=torch.int32, device=device)
    module.fill(out, grid=1, block=1)
    assert out.item() == 10


def test_modules_and_kernels_are_pickled_by_their_source(tmp_path: Path) -> None:
    text = "template <typename T> __global__ void fill(T* x) { x[threadIdx.x] = 7; }"
    module = load_inline(text)
    assert pickle.loads(pickle.dumps(module)) is module
    assert pickle.loads(pickle.dumps(module.fill)) is module.fill
    kernel = module.fill[torch.float32]
    assert pickle.loads(pickle.dumps(kernel)) is kernel
    (tmp_path / "kernel.pkl").write_bytes(pickle.dumps({"kernel": kernel}))
    script = (
        "import pickle, pathlib, sys, torch, dotcu\n"
        "kernel = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())['kernel']\n"
        "x = torch.zeros(2)\n"
        "kernel(x, grid=1, block=2)\n"
        "print(x.tolist())\n"
    )
    done = process.run([sys.executable, "-c", script, str(tmp_path / "kernel.pkl")])
    assert done.stdout.strip() == "[7.0, 7.0]", done


def test_modules_and_kernels_survive_a_deepcopy() -> None:
    module = load_inline("__global__ void fill(int* out) { *out = 1; }")
    assert copy.deepcopy(module) is module
    assert copy.deepcopy(module.fill) is module.fill


CHAIN = """
#include <cooperative_groups.h>
#include <cuda_runtime.h>

__global__ void shift(const float* x, float* out, int n) {
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[(i + 1) % n] + 1;
}
__global__ void shift_often(float* x, float* y, int n, int times) {
    auto grid = cooperative_groups::this_grid();
    int i = grid.thread_rank();
    for (int round = 0; round < times; ++round) {
        if (i < n) y[i] = x[(i + 1) % n] + 1;
        grid.sync();
        float* other = x;
        x = y;
        y = other;
    }
}
"""


@pytest.mark.slow
def test_a_chain_of_programmatic_launches_keeps_its_order(device: torch.device) -> None:
    module = load_inline(CHAIN)
    n, times = 5000, 12
    x, y = torch.randn(n, device=device), torch.zeros(n, device=device)
    expected = x.roll(-times)
    for _ in range(times):
        expected = expected + 1
    with simulate(arch="sm_90"):
        for _ in range(times):
            module.shift(x, y, n, grid=20, block=256, programmatic=True)
            x, y = y, x
    assert torch.equal(x, expected)


@pytest.mark.slow
def test_a_cooperative_grid_synchronizes(device: torch.device) -> None:
    module = load_inline(CHAIN)
    n, times = 1000, 6
    x, y = torch.randn(n, device=device), torch.zeros(n, device=device)
    expected = x.roll(-times)
    for _ in range(times):
        expected = expected + 1
    module.shift_often(x, y, n, times, grid=4, block=256, cooperative=True)
    assert torch.equal(x, expected)


def test_a_kernels_own_clusters_limit_its_grid() -> None:
    module = load_inline("__global__ void __cluster_dims__(2, 1, 1) pairs(int* out) { atomicMax(out, 1); }")
    out = torch.zeros(1, dtype=torch.int32)
    with simulate(arch="sm_90"):
        with pytest.raises(LaunchConfigError, match=r"grid=\(3, 1, 1\) with cluster=\(2, 1, 1\)"):
            module.pairs(out, grid=3, block=32)
        with pytest.raises(LaunchConfigError, match=r"compiled for __cluster_dims__\(2, 1, 1\)"):
            module.pairs(out, grid=4, block=32, cluster=4)
        module.pairs(out, grid=4, block=1)
    assert out.item() == 1


def test_of_pointers_without_const_only_one_that_is_written_takes_no_copy() -> None:
    kernel = load_inline("__global__ void k(float* x, float* out) { out[threadIdx.x] = x[threadIdx.x]; }").k
    wide, tall = torch.zeros(3, 4), torch.zeros(4, 3).t()
    with pytest.raises(ArgumentError, match=r"Pass t.contiguous\(\), or"):
        kernel(tall, wide, grid=1, block=12)
    with pytest.raises(ArgumentError, match=r"tmp = t.contiguous\(\), .*\n.*t.copy_\(tmp\)"):
        kernel(wide, tall, grid=1, block=12)
