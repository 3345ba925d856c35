"""Planted faults of Triton kernels: accesses that miss their tensor, and reads of what nothing wrote."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.helpers.triton_faults import Fault

triton: Any = pytest.importorskip("triton", reason="Triton is not installed")
import triton.language as tl  # noqa: E402


@triton.jit
def rows_only_masked(x_ptr, out_ptr, M, N, OK: tl.constexpr):
    row, column = tl.arange(0, 16)[:, None], tl.arange(0, 64)[None, :]
    inside = (row < M) & (column < N)
    x = tl.load(x_ptr + row * N + column, mask=inside if OK else row < M)  # out-of-bounds x_ptr[500]
    tl.store(out_ptr + row * N + column, x, mask=inside)


@triton.jit
def mask_with_sizes_swapped(x_ptr, out_ptr, M, N, OK: tl.constexpr):
    row, column = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    mask = (row < M) & (column < N) if OK else (row < N) & (column < M)
    x = tl.load(x_ptr + row * N + column, mask=mask, other=0.0)  # out-of-bounds x_ptr[500]
    tl.store(out_ptr + row * N + column, x, mask=(row < M) & (column < N))


@triton.jit
def strides_swapped(x_ptr, out_ptr, M, N, stride_m, stride_n, OK: tl.constexpr):
    row, column = tl.arange(0, 16)[:, None], tl.arange(0, 64)[None, :]
    mask = (row < M) & (column < N)
    at = row * stride_m + column * stride_n if OK else row * stride_n + column * stride_m
    tl.store(out_ptr + row * N + column, tl.load(x_ptr + at, mask=mask), mask=mask)  # out-of-bounds


@triton.jit
def one_step_of_k_too_many(x_ptr, out_ptr, K, STEP: tl.constexpr, OK: tl.constexpr):
    total = tl.zeros((STEP,), tl.float32)
    for k in range(tl.cdiv(K, STEP) if OK else K // STEP + 1):
        total += tl.load(x_ptr + k * STEP + tl.arange(0, STEP))  # out-of-bounds x_ptr[256]
    tl.store(out_ptr + tl.arange(0, STEP), total)


@triton.jit
def remainder_of_k_not_masked(a_ptr, b_ptr, out_ptr, K, OK: tl.constexpr):
    i, j, k = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :], tl.arange(0, 16)
    total = tl.zeros((16, 16), tl.float32)
    for start in range(0, K, 16):
        there = k < (K - start if OK else 16)
        a = tl.load(a_ptr + i * K + start + k[None, :], mask=there[None, :], other=0.0)  # out-of-bounds
        b = tl.load(b_ptr + (start + k[:, None]) * 16 + j, mask=there[:, None], other=0.0)
        total = tl.dot(a, b, total)
    tl.store(out_ptr + i * 16 + j, total)


@triton.jit
def into_the_next_tensor(x_ptr, y_ptr, n, OK: tl.constexpr):
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    tl.store(x_ptr + at, 0.0 * at, mask=at < (n if OK else 512))  # out-of-bounds x_ptr[500]
    tl.store(y_ptr + at, 1.0 + at, mask=at < n)


@triton.jit
def elements_of_twice_the_size(x_ptr, out_ptr, OK: tl.constexpr):
    at = tl.arange(0, 128)
    if not OK:
        x_ptr = x_ptr.to(tl.pointer_type(tl.int64))
    tl.store(out_ptr + at, tl.load(x_ptr + at).to(tl.int32))  # out-of-bounds x_ptr[128]


@triton.jit
def packed_bytes_past_the_end(x_ptr, out_ptr, n, OK: tl.constexpr):
    word = tl.arange(0, 32)
    packed = tl.load(x_ptr + word, mask=word < 30, other=0)
    wide = out_ptr.to(tl.pointer_type(tl.int32))
    tl.store(wide + word, packed, mask=word < n // (4 if OK else 2))  # out-of-bounds out_ptr[120]


@triton.jit
def neighbour_to_the_left(x_ptr, out_ptr, n, OK: tl.constexpr):
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    mask = (at < n) & (at > 0) if OK else at < n
    left = tl.load(x_ptr + at - 1, mask=mask, other=0.0)  # out-of-bounds x_ptr[-1]
    tl.store(out_ptr + at, left, mask=at < n)


@triton.jit
def offset_of_32_bits(x_ptr, out_ptr, stride, OK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) if OK else tl.program_id(0)
    at = tl.arange(0, 32)
    x = tl.load(x_ptr + row * stride + at)  # out-of-bounds x_ptr[-2147483648]
    tl.store(out_ptr + tl.program_id(0) * 32 + at, x)


@triton.jit
def embedding(ids_ptr, weight_ptr, out_ptr, rows, OK: tl.constexpr):
    number, at = tl.load(ids_ptr + tl.program_id(0)), tl.arange(0, 32)
    mask = (number < rows) & (at < 32) if OK else at < 32
    x = tl.load(weight_ptr + number * 32 + at, mask=mask, other=0.0)  # out-of-bounds weight_ptr[320]
    tl.store(out_ptr + tl.program_id(0) * 32 + at, x)


@triton.jit
def cross_entropy(x_ptr, label_ptr, loss_ptr, N, IGNORED: tl.constexpr, OK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, 64)
    label = tl.load(label_ptr + row)
    x = tl.load(x_ptr + row * N + column, mask=column < N, other=float("-inf"))
    largest = tl.max(x, axis=0)
    norm = largest + tl.log(tl.sum(tl.exp(x - largest), axis=0))
    used = label != IGNORED if OK else label == label
    own = tl.load(x_ptr + row * N + label, mask=used, other=norm)  # out-of-bounds x_ptr[-100]
    tl.store(loss_ptr + row, norm - own)


@triton.jit
def paged_keys(key_ptr, table_ptr, length_ptr, out_ptr, PAGES: tl.constexpr, OK: tl.constexpr):
    sequence, at = tl.program_id(0), tl.arange(0, 64)
    total = tl.zeros((64,), tl.float32)
    length = tl.load(length_ptr + sequence)
    for page in range(tl.cdiv(length, 4) if OK else PAGES):
        number = tl.load(table_ptr + sequence * PAGES + page)
        total += tl.load(key_ptr + number * 64 + at)  # out-of-bounds key_ptr[-64]
    tl.store(out_ptr + sequence * 64 + at, total)


@triton.jit
def rotary(x_ptr, out_ptr, D, OK: tl.constexpr):
    half = D // 2 if OK else (D + 1) // 2
    at = tl.arange(0, 16)
    mask, row = at < half, tl.program_id(0) * D
    first = tl.load(x_ptr + row + at, mask=mask)
    second = tl.load(x_ptr + row + half + at, mask=mask)  # out-of-bounds x_ptr[27]
    tl.store(out_ptr + row + at, first * 0.6 - second * 0.8, mask=mask)


@triton.jit
def sequences_of_different_lengths(x_ptr, starts_ptr, out_ptr, count, OK: tl.constexpr):
    for number in range(count if OK else count + 1):
        start = tl.load(starts_ptr + number)
        end = tl.load(starts_ptr + number + 1)  # out-of-bounds starts_ptr[4]
        at = start + tl.arange(0, 32)
        tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < end), mask=at < end)


@triton.jit
def rows_of_an_expanded_tensor(x_ptr, out_ptr, stride, N, OK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, 64)
    x = tl.load(x_ptr + row * (stride if OK else N) + at)  # out-of-bounds x_ptr[64]
    tl.store(out_ptr + row * N + at, x)


@triton.jit
def descriptor_of_a_larger_tensor(x_ptr, out_ptr, M, N, OK: tl.constexpr):
    shape = M if OK else M + 16
    x = tl.make_tensor_descriptor(x_ptr, shape=[shape, N], strides=[N, 1], block_shape=[16, 32])
    tile = x.load([16 * tl.program_id(0), 0])  # out-of-bounds
    at = tl.program_id(0) * 512 + tl.arange(0, 16)[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(out_ptr + at, tile)


@triton.jit
def pointer_that_is_not_aligned(x_ptr, out_ptr, OK: tl.constexpr):
    at = tl.arange(0, 256)
    pointers = x_ptr + at if OK else tl.max_contiguous(tl.multiple_of(x_ptr + at, 16), 4)
    tl.store(out_ptr + at, tl.load(pointers))  # misaligned


@triton.jit
def sum_of_two(x_ptr, y_ptr, out_ptr, n, OK: tl.constexpr):
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    mask = at < n
    total = tl.load(x_ptr + at, mask=mask) + tl.load(y_ptr + at, mask=mask)  # uninitialized-read y_ptr[256]
    tl.store(out_ptr + at, total, mask=mask)


@triton.jit
def persistent_tiles(x_ptr, y_ptr, out_ptr, tiles, OK: tl.constexpr):
    for tile in range(tl.program_id(0), tiles if OK else tiles - 1, tl.num_programs(0)):
        at = tile * 64 + tl.arange(0, 64)
        tl.store(y_ptr + at, 2 * tl.load(x_ptr + at))


@triton.jit
def reader_of_tiles(x_ptr, y_ptr, out_ptr, tiles, OK: tl.constexpr):
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(out_ptr + at, tl.load(y_ptr + at))  # uninitialized-read y_ptr[384]


@triton.jit
def split_k_into_empty(x_ptr, out_ptr, OK: tl.constexpr):
    at = tl.arange(0, 64)
    tl.atomic_add(out_ptr + at, tl.load(x_ptr + tl.program_id(0) * 64 + at))  # uninitialized-read out_ptr[0]


@triton.jit
def gradient_into_empty(x_ptr, grad_ptr, OK: tl.constexpr):
    at = tl.arange(0, 64)
    for row in range(4):
        x = tl.load(x_ptr + row * 64 + at)
        before = tl.load(grad_ptr + at) if not OK or row > 0 else x * 0  # uninitialized-read grad_ptr[0]
        tl.store(grad_ptr + at, before + x)


@triton.jit
def statistics_of_some_rows(x_ptr, mean_ptr, out_ptr, OK: tl.constexpr):
    at, row = tl.arange(0, 64), tl.program_id(0)
    x = tl.load(x_ptr + row * 64 + at)
    if OK or row > 0:
        tl.store(mean_ptr + row, tl.sum(x, axis=0) / 64)
    tl.debug_barrier()
    mean = tl.load(mean_ptr + row)  # uninitialized-read mean_ptr[0]
    tl.store(out_ptr + row * 64 + at, x - mean)


@triton.jit
def columns_of_empty(x_ptr, out_ptr, OK: tl.constexpr):
    at = tl.arange(0, 64)
    x = tl.load(x_ptr + at, mask=at < (50 if OK else 64), other=0.0)
    tl.store(out_ptr, tl.sum(x * x, axis=0))  # uninitialized-read


@triton.jit
def cast_to_fp8(x_ptr, out_ptr, n, OK: tl.constexpr):
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float8e5)
    tl.store(out_ptr + at, x, mask=at < (n if OK else 128))  # out-of-bounds out_ptr[100]


@triton.jit
def assertion(x_ptr, OK: tl.constexpr):
    at = tl.arange(0, 32)
    x = tl.load(x_ptr + at)
    tl.device_assert(x < (10 if OK else 5), "too large")  # trap


@triton.jit
def inline_load(x_ptr, out_ptr, n, OK: tl.constexpr):
    at = tl.arange(0, 64)
    x = tl.inline_asm_elementwise(  # out-of-bounds x_ptr[50]
        "ld.global.b32 $0, [$1];",
        "=r,l",
        [x_ptr + (tl.minimum(at, n - 1) if OK else at)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.store(out_ptr + at, x)


@triton.jit
def nothing_to_load(x_ptr, out_ptr, n, OK: tl.constexpr):
    at = tl.arange(0, 32)
    x = tl.load(x_ptr + at, mask=at < n if OK else at < 32, other=0.0)  # out-of-bounds x_ptr[0]
    tl.store(out_ptr + at, x)


@triton.jit
def two_blocks_for_a_program(x_ptr, out_ptr, n, OK: tl.constexpr):
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x, mask=at < (n if OK else 512))  # out-of-bounds out_ptr[500]


def launch_tiles(ok: bool) -> None:
    x, y, out = torch.randn(448), torch.empty(448), torch.empty(448)
    persistent_tiles[(3,)](x, y, out, 7, OK=ok)
    reader_of_tiles[(7,)](x, y, out, 7, OK=ok)


def launch_sums(ok: bool) -> None:
    y = torch.empty(500)
    two_blocks_for_a_program[(2 if ok else 1,)](torch.randn(500), y, 500 if ok else 256, OK=True)
    sum_of_two[(2,)](torch.randn(500), y, torch.empty(500), 500, OK=ok)


def launch_into_the_next(ok: bool) -> None:
    both = torch.randn(1000)
    into_the_next_tensor[(2,)](both[:500], both[500:], 500, OK=ok)


def matrix_launch(kernel: Any, *more: int) -> Any:
    return lambda ok: kernel[(1,)](torch.randn(10, 50), torch.empty(10, 50), 10, 50, *more, OK=ok)


def of_columns(ok: bool) -> None:
    x = torch.empty(64)
    x[:50] = 1
    columns_of_empty[(1,)](x, torch.empty(1), OK=ok)


def launch_split_k(ok: bool) -> None:
    out = torch.zeros(64) if ok else torch.empty(64)
    split_k_into_empty[(3,)](torch.randn(192), out, OK=ok)


def launch_paged(ok: bool) -> None:
    table, lengths = torch.tensor([[2, 0, -1], [1, -1, -1]]), torch.tensor([7, 3])
    paged_keys[(2,)](torch.randn(3, 64), table, lengths, torch.empty(2, 64), PAGES=3, OK=ok)


def launch_varlen(ok: bool) -> None:
    starts = torch.tensor([0, 10, 25, 40], dtype=torch.int32)
    sequences_of_different_lengths[(1,)](torch.randn(40), starts, torch.empty(40), 3, OK=ok)


def launch_descriptor(ok: bool) -> None:
    out = torch.empty(48, 32)
    descriptor_of_a_larger_tensor[(3 if not ok else 2,)](torch.randn(32, 32), out, 32, 32, OK=ok)


def ints(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int32)


FAULTS = [
    Fault(kernel=rows_only_masked, launch=matrix_launch(rows_only_masked), shape=(10, 50)),
    Fault(kernel=mask_with_sizes_swapped, launch=matrix_launch(mask_with_sizes_swapped), shape=(10, 50)),
    Fault(kernel=strides_swapped, launch=matrix_launch(strides_swapped, 50, 1)),
    Fault(
        kernel=one_step_of_k_too_many, shape=(256,),
        launch=lambda ok: one_step_of_k_too_many[(1,)](
            torch.randn(256), torch.empty(64), 256, STEP=64, OK=ok),
    ),
    Fault(
        kernel=remainder_of_k_not_masked,
        launch=lambda ok: remainder_of_k_not_masked[(1,)](
            torch.randn(16, 40), torch.randn(40, 16), torch.empty(16, 16), 40, OK=ok),
    ),
    Fault(kernel=into_the_next_tensor, launch=launch_into_the_next, shape=(500,)),
    Fault(
        kernel=elements_of_twice_the_size, shape=(128,),
        launch=lambda ok: elements_of_twice_the_size[(1,)](ints(128), ints(128), OK=ok),
    ),
    Fault(
        kernel=packed_bytes_past_the_end, shape=(120,),
        launch=lambda ok: packed_bytes_past_the_end[(1,)](
            ints(30), torch.empty(120, dtype=torch.uint8), 120, OK=ok),
    ),
    Fault(
        kernel=neighbour_to_the_left, shape=(500,),
        launch=lambda ok: neighbour_to_the_left[(2,)](torch.randn(500), torch.empty(500), 500, OK=ok),
    ),
    Fault(
        kernel=offset_of_32_bits, shape=(3, 32),
        launch=lambda ok: offset_of_32_bits[(3,)](
            torch.empty_strided((3, 32), (2**30, 1), dtype=torch.uint8).zero_(),
            torch.empty(3, 32, dtype=torch.uint8), 2**30, OK=ok),
    ),
    Fault(
        kernel=embedding, shape=(10, 32),
        launch=lambda ok: embedding[(3,)](
            torch.tensor([1, 10, 3]), torch.randn(10, 32), torch.empty(3, 32), 10, OK=ok),
    ),
    Fault(
        kernel=cross_entropy, shape=(3, 50),
        launch=lambda ok: cross_entropy[(3,)](
            torch.randn(3, 50), torch.tensor([-100, 3, 49]), torch.empty(3), 50, IGNORED=-100, OK=ok),
    ),
    Fault(kernel=paged_keys, launch=launch_paged, shape=(3, 64)),
    Fault(
        kernel=rotary, shape=(3, 9),
        launch=lambda ok: rotary[(3,)](torch.randn(3, 9), torch.empty(3, 9), 9, OK=ok),
    ),
    Fault(kernel=sequences_of_different_lengths, launch=launch_varlen, shape=(4,)),
    Fault(
        kernel=rows_of_an_expanded_tensor, shape=(10, 64),
        launch=lambda ok: rows_of_an_expanded_tensor[(10,)](
            torch.randn(1, 64).expand(10, 64), torch.empty(10, 64), 0, 64, OK=ok),
    ),
    Fault(kernel=descriptor_of_a_larger_tensor, launch=launch_descriptor),
    Fault(kernel=descriptor_of_a_larger_tensor, launch=launch_descriptor, arch="sm_90"),
    Fault(
        kernel=pointer_that_is_not_aligned,
        launch=lambda ok: pointer_that_is_not_aligned[(1,)](torch.randn(257)[1:], torch.empty(256), OK=ok),
    ),
    Fault(kernel=sum_of_two, launch=launch_sums, shape=(500,)),
    Fault(kernel=reader_of_tiles, launch=launch_tiles, shape=(448,)),
    Fault(kernel=split_k_into_empty, launch=launch_split_k, shape=(64,)),
    Fault(
        kernel=gradient_into_empty, shape=(64,),
        launch=lambda ok: gradient_into_empty[(1,)](torch.randn(4, 64), torch.empty(64), OK=ok),
    ),
    Fault(
        kernel=statistics_of_some_rows, shape=(3,),
        launch=lambda ok: statistics_of_some_rows[(3,)](
            torch.randn(3, 64), torch.empty(3), torch.empty(3, 64), OK=ok),
    ),
    Fault(kernel=columns_of_empty, launch=of_columns),
    Fault(
        kernel=cast_to_fp8, shape=(100,), arch="sm_90",
        launch=lambda ok: cast_to_fp8[(2,)](
            torch.randn(100), torch.empty(100, dtype=torch.float8_e5m2), 100, OK=ok),
    ),
    Fault(
        kernel=assertion,
        launch=lambda ok: assertion[(1,)](torch.full((32,), 7.0), OK=ok, debug=True),
    ),
    Fault(
        kernel=inline_load, shape=(50,),
        launch=lambda ok: inline_load[(1,)](ints(50), ints(64), 50, OK=ok),
    ),
    Fault(
        kernel=nothing_to_load,
        launch=lambda ok: nothing_to_load[(1,)](torch.randn(0), torch.empty(32), 0, OK=ok),
    ),
    Fault(
        kernel=two_blocks_for_a_program, shape=(500,), arch="sm_90",
        launch=lambda ok: two_blocks_for_a_program[(2,)](
            torch.randn(500), torch.empty(500), 500, OK=ok, num_ctas=2),
    ),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_is_named_by_kind_line_and_element(fault: Fault) -> None:
    fault.require_found()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
@pytest.mark.parametrize("seed", [None, 0, 1])
def test_its_repaired_twin_is_silent(fault: Fault, seed: int | None) -> None:
    assert [str(finding) for finding in fault.run(ok=True, seed=seed)] == []
