"""ldmatrix, stmatrix and movmatrix, element by element, and the checks of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dotcu.errors import FindingError

Array = np.ndarray[Any, Any]


def load_source(count: int, trans: bool, offset: str = "0", generic: bool = False) -> str:
    names = ", ".join(f"%{n}" for n in range(count))
    outs = ", ".join(f'"=r"(r[{n}])' for n in range(count))
    name = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}"
    space, address = ("", '"l"(&tile[row][col])') if generic else (".shared", '"r"(at)')
    return rf"""
    extern "C" __global__ void k(const unsigned short* x, unsigned* out) {{
        __shared__ __align__(16) unsigned short tile[64][24];
        for (int i = threadIdx.x; i < 64 * 24; i += blockDim.x) tile[i / 24][i % 24] = x[i];
        __syncthreads();
        unsigned r[{count}];
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        int row = warp * 32 + (lane * 5) % 32, col = 8 * (lane % 2) + {offset};
        unsigned at = (unsigned)__cvta_generic_to_shared(&tile[row][col]);
        if (lane >= {8 * count}) at = 0xfffffff1u;  // only the first lanes' addresses count
        asm volatile("{name}{space}.b16 {{{names}}}, [%{count}];" : {outs} : {address});
        for (int j = 0; j < {count}; ++j) out[j * blockDim.x + threadIdx.x] = r[j];
    }}"""


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("generic", [False, True])
def test_ldmatrix_gives_each_lane_its_pair(run_kernel: Any, count: int, trans: bool, generic: bool) -> None:
    x = np.random.default_rng(0).integers(0, 1 << 16, (64, 24)).astype(np.uint16)
    out = np.zeros((count, 64), np.uint32)
    result = run_kernel(load_source(count, trans, generic=generic), {"x": x, "out": out}, block=64)
    for warp in range(2):
        for j in range(count):
            givers = [8 * j + i for i in range(8)]
            tile = np.array(
                [x[warp * 32 + (g * 5) % 32, 8 * (g % 2) : 8 * (g % 2) + 8] for g in givers], np.uint16
            )
            tile = tile.T if trans else tile
            for lane in range(32):
                low, high = (int(tile[lane // 4, 2 * (lane % 4) + e]) for e in range(2))
                assert int(out[j, warp * 32 + lane]) == low | high << 16
    assert result.findings == []


def test_a_row_that_is_not_16_byte_aligned_is_misaligned(run_kernel: Any) -> None:
    x, out = np.zeros((64, 24), np.uint16), np.zeros((4, 32), np.uint32)
    source = load_source(4, False, "(lane == 9 ? 4 : 0)")
    with pytest.raises(FindingError, match="misaligned read of 16 bytes") as caught:
        run_kernel(source, {"x": x, "out": out})
    finding = caught.value.finding
    assert (finding.kind, finding.thread, finding.lanes) == ("misaligned", (9, 0, 0), 1)
    assert finding.address_of == "tile"
    assert "ldmatrix" in source.splitlines()[finding.line - 1]


def test_a_row_outside_shared_memory_is_out_of_bounds(run_kernel: Any) -> None:
    x, out = np.zeros((64, 24), np.uint16), np.zeros((2, 32), np.uint32)
    with pytest.raises(FindingError, match="out-of-bounds read of 16 bytes"):
        run_kernel(load_source(2, False, "(lane == 3 ? 24 * 64 : 0)"), {"x": x, "out": out})


def test_a_generic_address_that_is_not_shared_is_out_of_bounds(run_kernel: Any) -> None:
    source = r"""
    extern "C" __global__ void k(const unsigned short* x, unsigned* out) {
        unsigned r;
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.b16 {%0}, [%1];" : "=r"(r) : "l"(x));
        out[threadIdx.x] = r;
    }"""
    x, out = np.zeros(64, np.uint16), np.zeros(32, np.uint32)
    with pytest.raises(FindingError, match="out-of-bounds read of 16 bytes"):
        run_kernel(source, {"x": x, "out": out})


def test_a_row_that_nothing_wrote_is_an_uninitialized_read(run_kernel: Any) -> None:
    source = r"""
    extern "C" __global__ void k(unsigned* out) {
        __shared__ __align__(16) unsigned short tile[8][8];
        if (threadIdx.x != 5) tile[threadIdx.x % 8][threadIdx.x / 8] = 1;
        if (threadIdx.x < 32) tile[threadIdx.x % 8][4 + threadIdx.x / 8] = 1;
        __syncthreads();
        unsigned r, at = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x % 8][0]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(at));
        out[threadIdx.x] = r;
    }"""
    with pytest.raises(FindingError) as caught:
        run_kernel(source, {"out": np.zeros(32, np.uint32)})
    assert (caught.value.finding.kind, caught.value.finding.lanes) == ("uninitialized-read", 1)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", [False, True])
def test_stmatrix_is_the_way_back(run_kernel: Any, count: int, trans: bool) -> None:
    operands = ", ".join(f"%{n + 1}" for n in range(count))
    values = ", ".join(f'"r"(x[{n} * blockDim.x + threadIdx.x])' for n in range(count))
    suffix = ".trans" if trans else ""
    source = rf"""
    extern "C" __global__ void k(const unsigned* x, unsigned short* out) {{
        __shared__ __align__(16) unsigned short tile[64][8];
        unsigned at = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x ^ 1][0]);
        asm volatile("stmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 [%0], {{{operands}}};"
                     :: "r"(at), {values} : "memory");
        __syncthreads();
        if (threadIdx.x % 32 < {8 * count})
            for (int c = 0; c < 8; ++c) out[threadIdx.x * 8 + c] = tile[threadIdx.x][c];
    }}"""
    x = np.random.default_rng(0).integers(0, 1 << 32, (count, 64)).astype(np.uint32)
    out = np.zeros((64, 8), np.uint16)
    result = run_kernel(source, {"x": x, "out": out}, block=64, arch="compute_90")
    expected = np.zeros((64, 8), np.uint16)
    for warp in range(2):
        for j in range(count):
            for lane in range(32):
                for e in range(2):
                    row, column = lane // 4, 2 * (lane % 4) + e
                    row, column = (column, row) if trans else (row, column)
                    half = int(x[j, warp * 32 + lane]) >> (16 * e) & 0xFFFF
                    expected[(warp * 32 + 8 * j + row) ^ 1, column] = half
    assert out.tolist() == expected.tolist()
    assert result.findings == []


def test_movmatrix_transposes_a_tile(on_registers: Any) -> None:
    tiles = np.arange(3 * 64, dtype=np.uint16).reshape(3, 8, 8)
    (out,), _ = on_registers(
        "movmatrix.sync.aligned.m8n8.trans.b16 %o0, %i0;", [tiles.reshape(-1).view(np.uint32)], ["u4"]
    )
    for warp in range(3):
        for lane in range(32):
            pair = [int(tiles[warp, 2 * (lane % 4) + e, lane // 4]) for e in range(2)]
            assert int(out[warp * 32 + lane]) == pair[0] | pair[1] << 16


def test_ldmatrix_of_fewer_lanes_is_a_finding(run_kernel: Any) -> None:
    source = load_source(1, False).replace("unsigned r[1];", "if (threadIdx.x == 7) return; unsigned r[1];")
    x, out = np.zeros((64, 24), np.uint16), np.zeros((1, 32), np.uint32)
    with pytest.raises(FindingError, match="only 31 of a warp's 32 threads") as caught:
        run_kernel(source, {"x": x, "out": out})
    assert caught.value.finding.kind == "barrier"
