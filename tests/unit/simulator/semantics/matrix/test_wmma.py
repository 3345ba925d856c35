"""wmma from CUDA C++: loads, products and stores of every shape, type and order."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from dotcu.errors import FindingError

Array = np.ndarray[Any, Any]

SOURCE = r"""
#include <mma.h>
using namespace nvcuda::wmma;
template <class T> struct Held { using type = T; };
template <> struct Held<precision::tf32> { using type = float; };

template <int M, int N, int K, class T, class S, class LA, class LB>
__device__ void work(const typename Held<T>::type* a, const typename Held<T>::type* b, const S* c, S* d,
                     int lda, int ldb, int ldc, int ldd, bool c_rows, bool d_rows) {
    int warp = threadIdx.x / 32;
    a += warp * 1024; b += warp * 1024; c += warp * 2048; d += warp * 2048;
    fragment<matrix_a, M, N, K, T, LA> fa;
    fragment<matrix_b, M, N, K, T, LB> fb;
    fragment<accumulator, M, N, K, S> fc, fd;
    load_matrix_sync(fa, a, lda);
    load_matrix_sync(fb, b, ldb);
    load_matrix_sync(fc, c, ldc, c_rows ? mem_row_major : mem_col_major);
    fill_fragment(fd, S(7));
    if constexpr (sizeof(S) != 2)
        for (int i = 0; i < fc.num_elements; ++i) fc.x[i] = fc.x[i] + fd.x[i];
    if constexpr (sizeof(typename Held<T>::type) == 1)
        for (int i = 0; i < fa.num_elements; ++i) fa.x[i] = fa.x[i] / 2;
    mma_sync(fd, fa, fb, fc);
    store_matrix_sync(d, fd, ldd, d_rows ? mem_row_major : mem_col_major);
}
#define KERNEL(NAME, M, N, K, T, S, LA, LB)                                                           \
    extern "C" __global__ void NAME(const Held<T>::type* a, const Held<T>::type* b, const S* c, S* d, \
                                    int lda, int ldb, int ldc, int ldd, bool c_rows, bool d_rows) {   \
        work<M, N, K, T, S, LA, LB>(a, b, c, d, lda, ldb, ldc, ldd, c_rows, d_rows);                  \
    }
#define ORDERS(NAME, M, N, K, T, S)                                  \
    KERNEL(NAME##_row_row, M, N, K, T, S, row_major, row_major)      \
    KERNEL(NAME##_row_col, M, N, K, T, S, row_major, col_major)      \
    KERNEL(NAME##_col_row, M, N, K, T, S, col_major, row_major)      \
    KERNEL(NAME##_col_col, M, N, K, T, S, col_major, col_major)
#define SHAPES(NAME, T, S)                  \
    ORDERS(NAME##_16_16_16, 16, 16, 16, T, S) \
    ORDERS(NAME##_32_8_16, 32, 8, 16, T, S)   \
    ORDERS(NAME##_8_32_16, 8, 32, 16, T, S)
"""
ROWS = {
    "half_float": ("__half", "float", np.float16, np.float32),
    "half_half": ("__half", "__half", np.float16, np.float16),
    "bf16": ("__nv_bfloat16", "float", ml_dtypes.bfloat16, np.float32),
    "s8": ("signed char", "int", np.int8, np.int32),
    "u8": ("unsigned char", "int", np.uint8, np.int32),
    "tf32": ("precision::tf32", "float", np.float32, np.float32),
    "f64": ("double", "double", np.float64, np.float64),
}
SIZES = ["16_16_16", "32_8_16", "8_32_16"]
CASES = [(name, size) for name in ("half_float", "half_half", "bf16", "s8", "u8") for size in SIZES]
CASES += [("tf32", "16_16_8"), ("f64", "8_8_4")]


def source_of(name: str) -> str:
    kind, sums, *_ = ROWS[name]
    if name in ("tf32", "f64"):
        shape = dict(CASES)[name]
        m, n, k = shape.split("_")
        return SOURCE + f"ORDERS({name}_{shape}, {m}, {n}, {k}, {kind}, {sums})"
    return SOURCE + f"SHAPES({name}, {kind}, {sums})"


class Matrices(NamedTuple):
    """Warps' matrices in memory: where row r and column c of the warp's w-th is."""

    data: Array
    pitch: int
    by_rows: bool

    def indices(self, warp: int, rows: int, columns: int) -> Array:
        row, column = np.ogrid[:rows, :columns]
        line, at = (row, column) if self.by_rows else (column, row)
        index: Array = warp * (len(self.data) // 3) + line * self.pitch + at
        return index

    def values(self, warp: int, rows: int, columns: int) -> Array:
        found: Array = self.data[self.indices(warp, rows, columns)]
        return found


ORDERS = ["row_row", "row_col", "col_row", "col_col"]
BY_ROWS = [(True, True), (False, False), (True, False), (False, True)]  # of C and D


@pytest.mark.parametrize(("name", "size"), CASES)
@pytest.mark.parametrize(("orders", "accumulators"), list(zip(ORDERS, BY_ROWS, strict=True)))
def test_every_shape_type_and_order(
    run_kernel: Any, name: str, size: str, orders: str, accumulators: tuple[bool, bool]
) -> None:
    _, _, kind, sums = ROWS[name]
    m, n, k = map(int, size.split("_"))
    rng = np.random.default_rng(1)
    low, high = (0, 256) if name == "u8" else (-128, 128) if name == "s8" else (-8, 9)
    data = [rng.integers(low, high, 3 * room).astype(t) for room, t in ((1024, kind), (1024, kind))]
    data.append(rng.integers(-50, 50, 3 * 2048).astype(sums))
    data.append(np.full(3 * 2048, -1, sums))
    a_rows, b_rows = (order == "row" for order in orders.split("_"))
    pad = 16 // np.dtype(kind).itemsize  # a line may be longer than the matrix, in steps of 16 bytes
    sum_pad = 16 // np.dtype(sums).itemsize
    pitches = [(k if a_rows else m) + pad, (n if b_rows else k) + pad]
    pitches += [(n if rows else m) + s * sum_pad for rows, s in zip(accumulators, (1, 2), strict=True)]
    arguments: dict[str, Any] = dict(zip("abcd", data, strict=True))
    arguments |= {f"ld{x}": np.int32(p) for x, p in zip("abcd", pitches, strict=True)}
    arguments |= {"c_rows": np.bool_(accumulators[0]), "d_rows": np.bool_(accumulators[1])}
    result = run_kernel(source_of(name), arguments, block=96, entry=f"{name}_{size}_{orders}")
    assert result.findings == []
    wide = np.int64 if name in ("s8", "u8") else np.float64
    orders_of = (a_rows, b_rows, *accumulators)
    a, b, c, d = (Matrices(*parts) for parts in zip(data, pitches, orders_of, strict=True))
    for warp in range(3):
        left, right = a.values(warp, m, k).astype(wide), b.values(warp, k, n).astype(wide)
        left = np.trunc(left / 2).astype(wide) if name in ("s8", "u8") else left
        added = c.values(warp, m, n).astype(wide) + (0 if name == "half_half" else 7)
        assert (d.values(warp, m, n) == left @ right + added).all()
        d.data[d.indices(warp, m, n)] = -1
    assert (d.data == -1).all()  # nothing was written outside the matrix


def test_small_integers_and_bits(run_kernel: Any) -> None:
    source = r"""
    #include <mma.h>
    using namespace nvcuda::wmma;
    namespace ex = nvcuda::wmma::experimental;
    template <class T> __device__ void nibbles(const void* a, const void* b, int* d) {
        fragment<matrix_a, 8, 8, 32, T, row_major> fa;
        fragment<matrix_b, 8, 8, 32, T, col_major> fb;
        fragment<accumulator, 8, 8, 32, int> fd;
        load_matrix_sync(fa, a, 64);
        load_matrix_sync(fb, b, 32);
        fill_fragment(fd, 1);
        mma_sync(fd, fa, fb, fd);
        store_matrix_sync(d, fd, 8, mem_row_major);
    }
    extern "C" __global__ void s4(const void* a, const void* b, int* d) {
        nibbles<ex::precision::s4>(a, b, d);
    }
    extern "C" __global__ void u4(const void* a, const void* b, int* d) {
        nibbles<ex::precision::u4>(a, b, d);
    }
    template <ex::bmmaBitOp OP> __device__ void bits(const void* a, const void* b, int* d) {
        fragment<matrix_a, 8, 8, 128, ex::precision::b1, row_major> fa;
        fragment<matrix_b, 8, 8, 128, ex::precision::b1, col_major> fb;
        fragment<accumulator, 8, 8, 128, int> fd;
        load_matrix_sync(fa, a, 256);
        load_matrix_sync(fb, b, 128);
        fill_fragment(fd, 1);
        bmma_sync(fd, fa, fb, fd, OP);
        store_matrix_sync(d, fd, 8, mem_col_major);
    }
    extern "C" __global__ void b_xor(const void* a, const void* b, int* d) {
        bits<ex::bmmaBitOpXOR>(a, b, d);
    }
    extern "C" __global__ void b_and(const void* a, const void* b, int* d) {
        bits<ex::bmmaBitOpAND>(a, b, d);
    }
    """
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 256, (8, 32)).astype(np.uint8), rng.integers(0, 256, (8, 16)).astype(np.uint8)
    for entry in ("s4", "u4", "b_xor", "b_and"):
        d = np.zeros((8, 8), np.int32)
        run_kernel(source, {"a": a, "b": b, "d": d}, entry=entry)
        for row in range(8):
            for column in range(8):
                x, y = a[row, :16].tolist(), b[column].tolist()
                if entry in ("s4", "u4"):
                    left = [v for byte in x for v in (byte & 15, byte >> 4)]
                    right = [v for byte in y for v in (byte & 15, byte >> 4)]
                    if entry == "s4":
                        left, right = ([v - 16 if v > 7 else v for v in side] for side in (left, right))
                    assert d[row, column] == 1 + sum(p * q for p, q in zip(left, right, strict=True))
                else:
                    pairs = zip(x, y, strict=True)
                    counted = sum((p ^ q if entry == "b_xor" else p & q).bit_count() for p, q in pairs)
                    assert d[column, row] == 1 + counted


SHARED = r"""
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const half* a, float* d, int start, int rows) {
    __shared__ __align__(32) half tile[16 * 24 + 64];
    for (int i = threadIdx.x; i < rows * 24; i += 32) tile[i] = a[i];
    __syncwarp();
    fragment<matrix_a, 16, 16, 16, half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, half, col_major> fb;
    fragment<accumulator, 16, 16, 16, float> fd;
    load_matrix_sync(fa, tile + start, 24);
    load_matrix_sync(fb, tile + start, 24);
    fill_fragment(fd, 0.0f);
    mma_sync(fd, fa, fb, fd);
    for (int i = 0; i < fd.num_elements; ++i) fd.x[i] *= 0.5f;
    store_matrix_sync(d, fd, 16, mem_row_major);
}"""


def shared(run_kernel: Any, start: int = 0, rows: int = 16, size: int = 256) -> tuple[Array, Array]:
    a = np.random.default_rng(5).integers(-9, 9, (16, 24)).astype(np.float16)
    d = np.zeros(size, np.float32)
    run_kernel(SHARED, {"a": a, "d": d, "start": np.int32(start), "rows": np.int32(rows)})
    return a, d


def test_padded_tiles_in_shared_memory(run_kernel: Any) -> None:
    a, d = shared(run_kernel)
    tile = a[:, :16].astype(np.float64)
    assert (d.reshape(16, 16) == tile @ tile.T / 2).all()


def test_a_tile_that_begins_in_the_middle_of_32_bytes_is_misaligned(run_kernel: Any) -> None:
    with pytest.raises(FindingError) as caught:
        shared(run_kernel, start=8)
    finding = caught.value.finding
    assert (finding.kind, finding.address_of) == ("misaligned", "tile")
    assert "a 32-byte access needs a multiple of 32" in finding.message


def test_a_tile_whose_last_row_nothing_wrote_is_an_uninitialized_read(run_kernel: Any) -> None:
    with pytest.raises(FindingError) as caught:
        shared(run_kernel, rows=15)
    assert (caught.value.finding.kind, caught.value.finding.address_of) == ("uninitialized-read", "tile")


def test_a_store_past_the_end_is_out_of_bounds(run_kernel: Any) -> None:
    with pytest.raises(FindingError) as caught:
        shared(run_kernel, size=248)
    finding = caught.value.finding
    assert (finding.kind, finding.address_of) == ("out-of-bounds", "d")
    assert "d`[248]" in finding.message


def test_addresses_of_32_bits_in_shared_memory_and_default_strides(on_registers: Any) -> None:
    x = np.random.default_rng(4).integers(0, 1 << 16, (16, 16)).astype(np.uint16)
    words = x.reshape(32, 8).view(np.uint32)
    text = """
        mov.b32 %to, tile;
        mad.lo.u32 %from, %lane, 16, %to;
        st.shared.v4.b32 [%from], {%i0, %i1, %i2, %i3};
        bar.warp.sync 0xffffffff;
        wmma.load.c.sync.aligned.row.m16n16k16.shared.f16 {%o0, %o1, %o2, %o3}, [%to];
        wmma.store.d.sync.aligned.col.m16n16k16.shared.f16 [tile + 512], {%o0, %o1, %o2, %o3}, 16;
        bar.warp.sync 0xffffffff;
        ld.shared.v4.b32 {%o0, %o1, %o2, %o3}, [%from + 512];
    """
    declarations = ".reg .b32 %to, %from;\n.shared .align 32 .b8 tile[1024];"
    inputs = [np.ascontiguousarray(words[:, i]) for i in range(4)]
    outs, run = on_registers(text, inputs, ["u4"] * 4, declarations=declarations)
    got = np.stack(outs, axis=1).view(np.uint16).reshape(16, 16)
    assert (got == x.T).all()
    assert run.findings == []
