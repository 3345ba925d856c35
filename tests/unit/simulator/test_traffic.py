"""Counters: what a kernel's accesses, branches and arithmetic cost, by source line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dotcu.ptx.instructions import NOWHERE, Instruction
from dotcu.simulator import Counters
from dotcu.simulator.program.opcodes import CLASSES, work_of
from dotcu.simulator.semantics import dispatch


def aligned(dtype: Any, count: int, skew: int = 0) -> Any:
    """An array whose address lies `skew` bytes behind a multiple of 32, as far as the simulator keeps it."""
    size = np.dtype(dtype).itemsize * count
    data = np.zeros(size + 64, np.uint8)
    start = -data.ctypes.data % 32 + skew
    return data[start : start + size].view(dtype)


# A vector that is only copied is loaded at the line that stores it.
USED = "v.x += 1;"


def counted(run_kernel: Any, source: str, arguments: Any, **options: Any) -> Counters:
    counters: Counters = run_kernel(source, arguments, **options).run.counters
    return counters


def gather(run_kernel: Any, index: Any, kind: str = "float", size: int = 1) -> Any:
    """The line that loads x[index[i]], for arrays of a kind of `size` floats; lanes in blocks of 96."""
    source = f"""extern "C" __global__ void k(const {kind}* x, {kind}* y, const int* index) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x, j = index[i];
        {kind} v = x[j];
        {USED if size > 1 else ""}
        y[i] = v;
    }}"""
    arguments = {
        "x": aligned("f4", size * (int(index.max()) + 1)),
        "y": aligned("f4", size * len(index)),
        "index": index.astype("i4"),
    }
    block = min(96, len(index))
    counters = counted(run_kernel, source, arguments, grid=len(index) // block, block=block)
    return counters.lines["kernel.cu", 3]


# Global memory


@pytest.mark.parametrize(
    ("stride", "sectors", "ideal"), [(1, 4, 4), (2, 8, 4), (3, 12, 4), (4, 16, 4), (8, 32, 4), (100, 32, 4)]
)
def test_sectors_of_strided_floats(run_kernel: Any, stride: int, sectors: int, ideal: int) -> None:
    line = gather(run_kernel, np.arange(96 * 5) * stride)
    assert line.global_requests == 15
    assert line.sectors_per_request == sectors
    assert line.ideal_sectors == 15 * ideal
    assert line.sector_efficiency == ideal / sectors
    assert line.global_bytes == line.loaded_bytes == 96 * 5 * 4


def test_sectors_of_scattered_floats_are_one_for_each_lane(run_kernel: Any) -> None:
    index = np.random.default_rng(0).permutation(960) * 8
    line = gather(run_kernel, index)
    assert line.sectors_per_request == 32
    assert line.sector_efficiency == 4 / 32


@pytest.mark.parametrize(("kind", "size", "sectors"), [("float2", 2, 8), ("float4", 4, 16)])
def test_sectors_of_vectors(run_kernel: Any, kind: str, size: int, sectors: int) -> None:
    line = gather(run_kernel, np.arange(192), kind, size)
    assert line.sectors_per_request == sectors
    assert line.sector_efficiency == 1


def test_sectors_when_lanes_of_a_warp_want_the_same(run_kernel: Any) -> None:
    everyone = gather(run_kernel, np.full(96, 17))
    assert (everyone.global_sectors, everyone.ideal_sectors) == (3, 3)
    halves = gather(run_kernel, np.arange(96) // 16 * 100)
    assert (halves.global_sectors, halves.ideal_sectors) == (6, 3)
    assert halves.global_bytes == 96 * 4


def test_sectors_are_those_that_python_counts(run_kernel: Any) -> None:
    index = np.random.default_rng(1).integers(0, 700, 96 * 3)
    line = gather(run_kernel, index)
    warps = index.reshape(-1, 32).tolist()
    assert line.global_sectors == sum(len({i * 4 // 32 for i in warp}) for warp in warps)
    assert line.ideal_sectors == sum(-(-len(set(warp)) * 4 // 32) for warp in warps)


COPY = """extern "C" __global__ void k(const float* x, float* y, int n, int from) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] =
            x[i + from];
}"""


@pytest.mark.parametrize(("first", "sectors"), [(0, 4), (1, 5), (4, 5), (8, 4)])
def test_a_base_that_is_not_aligned_costs_a_sector_more(run_kernel: Any, first: int, sectors: int) -> None:
    arguments = {"x": aligned("f4", 300), "y": aligned("f4", 256), "n": np.int32(256)}
    counters = counted(run_kernel, COPY, {**arguments, "from": np.int32(first)}, grid=4, block=64)
    assert counters.lines["kernel.cu", 5].sectors_per_request == sectors
    assert counters.lines["kernel.cu", 4].sectors_per_request == 4
    assert counters.ideal_sectors == 2 * 8 * 4


def test_sectors_of_warps_of_which_some_lanes_take_part(run_kernel: Any) -> None:
    arguments = {"x": aligned("f4", 256), "y": aligned("f4", 256), "n": np.int32(75), "from": np.int32(0)}
    counters = counted(run_kernel, COPY, arguments, grid=2, block=50)  # padded to 64 lanes
    store = counters.lines["kernel.cu", 4]
    # Block 0 has lanes 0-31 and 32-49, block 1 25 lanes from element 50.
    assert store.global_requests == 3
    touched = [range(32), range(32, 50), range(50, 75)]
    assert store.global_sectors == sum(len({i * 4 // 32 for i in lanes}) for lanes in touched)
    assert store.ideal_sectors == sum(-(-len(lanes) * 4 // 32) for lanes in touched)
    assert store.stored_bytes == 75 * 4


def test_each_turn_of_a_loop_is_counted(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(const float* x, float* y, int stride) {
        float sum = 0;
        for (int j = 0; j < 6; ++j)
            sum += x[threadIdx.x * stride + 5 * j];
        y[threadIdx.x] = sum;
    }"""
    arguments = {"x": aligned("f4", 1024), "y": aligned("f4", 64), "stride": np.int32(3)}
    line = counted(run_kernel, source, arguments, block=64).lines["kernel.cu", 4]
    wanted = [[{(t * 3 + 5 * j) * 4 // 32 for t in range(w, w + 32)} for w in (0, 32)] for j in range(6)]
    assert line.global_requests == 12
    assert line.global_sectors == sum(len(s) for both in wanted for s in both)


# Shared memory


def bank_line(run_kernel: Any, index: str, kind: str = "float", lanes: int = 64) -> Any:
    """The line that loads from shared memory; what the index is worth is known to nobody beforehand."""
    source = f"""extern "C" __global__ void k({kind}* out, int stride) {{
        extern __shared__ {kind} tile[];
        int t = threadIdx.x;
        for (int i = t; i < 4096 / sizeof({kind}); i += blockDim.x) tile[i] = {kind}();
        __syncthreads();
        {kind} v =
            tile[{index}];
        {USED if kind == "float4" else ""}
        out[t] = v;
    }}"""
    arguments = {"out": aligned("f4", 4 * lanes), "stride": np.int32(32)}
    counters = counted(run_kernel, source, arguments, block=lanes, smem_bytes=4096)
    return counters.lines["kernel.cu", 7]


@pytest.mark.parametrize(
    ("stride", "degree"), [(1, 1), (2, 2), (3, 1), (4, 4), (8, 8), (16, 16), (32, 32), (33, 1)]
)
def test_bank_conflicts_of_strided_floats(run_kernel: Any, stride: int, degree: int) -> None:
    line = bank_line(run_kernel, f"t % 32 * {stride} % 1024 + t / 32 % (stride - 31)", lanes=128)
    assert line.shared_requests == 4
    assert line.shared_wavefronts == 4 * degree
    assert line.bank_conflicts == 4 * (degree - 1)
    assert line.shared_bytes == 128 * 4


@pytest.mark.parametrize("index", ["stride", "t / 32", "t % 32 / 4", "t % 2 * 33 + t / 32"])
def test_a_word_that_many_lanes_want_is_no_conflict(run_kernel: Any, index: str) -> None:
    assert bank_line(run_kernel, index).bank_conflicts == 0


@pytest.mark.parametrize(
    ("kind", "index", "wavefronts"),
    [
        ("double", "t", 2),  # half warps
        ("double", "t % 32 * 2", 4),
        ("float4", "t", 4),  # quarter warps
        ("float4", "t % 32 * 2", 8),
        ("char", "t", 1),
        ("char", "t % 32 * 4", 1),
        ("char", "t % 32 * 8", 2),
        ("short", "t % 32 * 2", 1),
    ],
)
def test_wavefronts_by_width(run_kernel: Any, kind: str, index: str, wavefronts: int) -> None:
    source_index = f"({index}) + t / 32"
    line = bank_line(run_kernel, source_index, kind)
    assert line.shared_wavefronts == 2 * wavefronts
    assert line.ideal_wavefronts == 2 * {"double": 2, "float4": 4}.get(kind, 1)


def test_conflicts_of_blocks_that_are_no_multiple_of_a_warp(run_kernel: Any) -> None:
    line = bank_line(run_kernel, "t * 8 % 1000", lanes=41)  # a warp of 32 lanes, and one of 9
    assert line.shared_requests == 2
    words = [[t * 8 % 1000 for t in lanes] for lanes in (range(32), range(32, 41))]
    degrees = [max(sum(w % 32 == bank for w in set(warp)) for bank in range(32)) for warp in words]
    assert line.shared_wavefronts == sum(degrees)


# Divergence


def test_half_of_the_lanes_are_active_where_odd_ones_branch_away(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(int* x) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i & 1)
            atomicAdd(x + i, 1);
        else
            atomicMax(x + i, 1);
    }"""
    counters = counted(run_kernel, source, {"x": aligned("i4", 256)}, grid=2, block=128)
    assert counters.lines["kernel.cu", 3].divergent_branches == 8
    assert counters.lines["kernel.cu", 4].active_lanes == 16
    assert counters.lines["kernel.cu", 6].active_lanes == 16
    assert counters.lines["kernel.cu", 2].active_lanes == 32
    assert counters.divergent_branches == 8


def test_warps_that_branch_as_one_do_not_diverge(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(float* x) {
        if (threadIdx.x / 32 & 1) x[threadIdx.x] = sinf(x[threadIdx.x]);
        else x[threadIdx.x] = cosf(x[threadIdx.x]);
    }"""
    counters = counted(run_kernel, source, {"x": aligned("f4", 128)}, block=128)
    assert counters.branches >= 4
    assert counters.divergent_branches == 0
    assert counters.active_lanes == 32


def test_a_table_branch_diverges_once_for_each_warp_whose_lanes_part(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(int* x, const int* which) {
        int v = which[threadIdx.x];
        asm volatile("{ts: .branchtargets a, b, c; brx.idx %0, ts;"
            " a: add.s32 %0, %0, 5; bra.uni c; b: mul.lo.s32 %0, %0, 7; c: }" : "+r"(v));
        x[threadIdx.x] = v; }"""
    which = np.concatenate((np.full(32, 1), np.arange(32) % 3, np.arange(32) // 31)).astype("i4")
    x = np.zeros(96, "i4")
    counters = counted(run_kernel, source, {"x": x, "which": which}, block=96)
    assert x.tolist() == [(5, 7, 2)[w] for w in which]
    assert counters.divergent_branches == 2


def test_guarded_loads_count_the_lanes_that_load(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(const float* x, float* y, int n) {
        float v = 1;
        asm("{.reg .pred p; setp.lt.s32 p, %1, %2; @p ld.global.f32 %0, [%3]; @p fma.rn.f32 %0, %0, %0, %0;}"
            : "+f"(v) : "r"((int)threadIdx.x), "r"(n), "l"(x + threadIdx.x));
        y[threadIdx.x] = v;
    }"""
    arguments = {"x": aligned("f4", 64), "y": aligned("f4", 64), "n": np.int32(40)}
    counters = counted(run_kernel, source, arguments, block=64)
    assert counters.loaded_bytes == 40 * 4
    assert counters.flops == 40 * 2
    assert counters.global_requests == 2 + 2
    assert counters.classes["memory"] == counters.lane_instructions - sum(
        count for kind, count in counters.classes.items() if kind != "memory"
    )


# Arithmetic


def test_flops_of_a_matrix_product(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(const float* a, const float* b, float* c, int n) {
        float sum = 0;
        for (int i = 0; i < n; ++i)
            sum += a[threadIdx.y * n + i] * b[i * n + threadIdx.x];
        c[threadIdx.y * n + threadIdx.x] = sum;
    }"""
    n = 16
    arguments = {name: aligned("f4", n * n) for name in "abc"}
    counters = counted(run_kernel, source, {**arguments, "n": np.int32(n)}, block=(n, n, 1))
    assert counters.flops == counters.operations["f32"] == 2 * n**3
    assert counters.lines["kernel.cu", 4].flops == 2 * n**3
    assert counters.classes["float"] == n**3
    assert counters.loaded_bytes == 2 * 4 * n**3


@pytest.mark.parametrize(
    ("statement", "type_", "operations"),
    [
        ("x[i] = x[i] + 1.5;", "f64", 1),
        ("x[i] = x[i] / 3.0;", "f64", 1),
        ("x[i] = fma(x[i], 2.0, 1.0);", "f64", 2),
        ("h[i] = __hfma2(h[i], h[i], h[i]);", "f16", 4),
        ("h[i] = __hadd2(h[i], h[i]);", "f16", 2),
        ("atomicAdd(x, 1.0);", "f64", 1),
        ("atomicExch((int*)x, 1);", "f64", 0),
        ("x[i] = fmax(x[i], 0.0);", "f64", 0),
    ],
)
def test_operations_by_type(run_kernel: Any, statement: str, type_: str, operations: int) -> None:
    source = f"""#include <cuda_fp16.h>
    extern "C" __global__ void k(double* x, half2* h) {{ int i = threadIdx.x; {statement} }}"""
    counters = counted(run_kernel, source, {"x": aligned("f8", 32), "h": aligned("u4", 32)})
    assert counters.operations[type_] == 32 * operations
    assert counters.flops == 32 * operations


def instruction(text: str) -> Instruction:
    """An instruction by its first word alone: what its class depends on."""
    opcode, *parts = text.split(".")
    known = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64", "tf32", "s8", "s32", "u32", "b16", "b32")
    types = tuple(p for p in parts if p in known)
    flags = tuple(p for p in parts if p not in known)
    return Instruction(opcode, flags, types, (), None, NOWHERE, text)


@pytest.mark.parametrize(
    ("text", "work"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", ("matrix", "f16", 2 * 16 * 8 * 16)),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", ("matrix", "tf32", 2 * 16 * 8 * 8)),
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", ("matrix", "s8", 2 * 16 * 8 * 32)),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", ("matrix", "f64", 2 * 8 * 8 * 4)),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", ("matrix", "f16", 4 * 2 * 8 * 8 * 4)),
        ("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32", ("matrix", "f16", 2 * 16**3)),
        ("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16", ("matrix", "bf16", 2 * 16 * 256 * 16)),
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.f16", ("matrix", "", 0)),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ("matrix", "", 0)),
        ("ex2.approx.ftz.f32", ("special", "f32", 32)),
        ("sqrt.rn.f32", ("float", "f32", 32)),
        ("mad.lo.s32", ("integer", "", 0)),
        ("min.bf16x2", ("half", "", 0)),
        ("fma.rn.bf16x2", ("half", "bf16", 4 * 32)),
        ("cp.async.ca.shared.global", ("async", "", 0)),
        ("shfl.sync.bfly.b32", ("warp", "", 0)),
    ],
)
def test_work_of_a_warp(text: str, work: tuple[str, str, int]) -> None:
    kind, type_, operations = work_of(instruction(text))
    assert (kind, type_, operations * 32) == work


def test_every_instruction_that_is_no_arithmetic_has_its_class() -> None:
    assert set(dispatch._MORE) - set(CLASSES) == {"setp", "addc", "subc", "madc", "lop3"}


def test_totals_are_the_sums_of_all_lines(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(const float* x, float* y, int* hits) {
        __shared__ float tile[64];
        int i = threadIdx.x;
        tile[i * 3 % 64] = x[i];
        __syncthreads();
        if (tile[i] >= 0) y[i] = tile[63 - i] + 1;
        atomicAdd(hits, 1);
    }"""
    arguments = {"x": np.ones(64, "f4"), "y": np.zeros(64, "f4"), "hits": np.zeros(1, "i4")}
    counters = counted(run_kernel, source, arguments, block=64)
    lines = counters.lines.values()
    for name in vars(next(iter(lines))):
        parts = [getattr(line, name) for line in lines]
        assert getattr(counters, name) == sum(parts[1:], parts[0])
    assert counters.atomics == 64
    assert counters.classes["atomic"] == 64
    assert counters.lines["kernel.cu", 7].stored_bytes == 64 * 4
    assert counters.shared_requests == 3 * 2
