"""Faults of Triton kernels are found by kind and line; their repaired twins are silent in every order."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

import dotcu

triton: Any = pytest.importorskip("triton", reason="Triton is not installed")
import triton.language as tl  # noqa: E402

N = 1000


@triton.jit
def load_past_the_end(x_ptr, out_ptr, n, OK: tl.constexpr):
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    if OK:
        x = tl.load(x_ptr + at, mask=at < n)
    else:
        x = tl.load(x_ptr + at)  # out-of-bounds
    tl.store(out_ptr + at, x, mask=at < n)


@triton.jit
def store_past_the_end(x_ptr, out_ptr, n, OK: tl.constexpr):
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    x = tl.load(x_ptr + at, mask=at < n)
    if OK:
        tl.store(out_ptr + at, x, mask=at < n)
    else:
        tl.store(out_ptr + at, x)  # out-of-bounds


@triton.jit
def reversed_in_place(x_ptr, out_ptr, n, OK: tl.constexpr):
    at = tl.arange(0, 512)
    x = tl.load(x_ptr + 511 - at)
    if OK:
        tl.debug_barrier()
    tl.store(x_ptr + at, x)  # race


@triton.jit
def neighbours_through_scratch(x_ptr, out_ptr, n, OK: tl.constexpr):
    at = tl.arange(0, 512)
    tl.store(out_ptr + at, tl.load(x_ptr + at))
    if OK:
        tl.debug_barrier()
    left = tl.load(out_ptr + 511 - at)  # race
    tl.store(x_ptr + at, left)


@triton.jit
def sum_of_all_programs(x_ptr, out_ptr, n, OK: tl.constexpr):
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    part = tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), axis=0)
    if OK:
        tl.atomic_add(out_ptr, part)
    else:
        tl.store(out_ptr, tl.load(out_ptr) + part)  # race


@triton.jit
def stencil_in_place(x_ptr, out_ptr, n, OK: tl.constexpr):
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    right = tl.load(x_ptr + at + 1, mask=at + 1 < n, other=0.0)
    if OK:
        tl.store(out_ptr + at, right, mask=at < n)
    else:
        tl.store(x_ptr + at, right, mask=at < n)  # race


@triton.jit
def programs_that_overlap(x_ptr, out_ptr, n, OK: tl.constexpr):
    at = tl.program_id(0) * (256 if OK else 128) + tl.arange(0, 256)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x * (1 + tl.program_id(0)), mask=at < n)  # race


@triton.jit
def rows_that_share_a_place(x_ptr, out_ptr, n, OK: tl.constexpr):
    at = tl.arange(0, 256)
    x = tl.load(x_ptr + at)
    to = at if OK else at // 2
    tl.store(out_ptr + to, x)  # race


@triton.jit
def accumulate_into_empty(x_ptr, out_ptr, n, OK: tl.constexpr):
    at = tl.program_id(0) * 256 + tl.arange(0, 256)
    x = tl.load(x_ptr + at, mask=at < n)
    if not OK:
        x += tl.load(out_ptr + at, mask=at < n)  # uninitialized-read
    tl.store(out_ptr + at, x, mask=at < n)


@triton.jit
def columns_without_a_mask(x_ptr, out_ptr, n, OK: tl.constexpr):
    rows, columns = tl.arange(0, 16)[:, None], tl.arange(0, 64)[None, :]
    mask = (rows < 10) & (columns < 50 if OK else columns < 64)
    tl.store(
        out_ptr + rows * 100 + columns + 50, tl.load(x_ptr + rows * 100 + columns, mask=mask), mask=mask
    )  # race


@triton.jit
def promise_of_alignment(x_ptr, out_ptr, n, OK: tl.constexpr):
    at = tl.arange(0, 256)
    promised = tl.multiple_of(at + tl.program_id(0) + (4 if OK else 1), 4)
    x = tl.load(x_ptr + tl.max_contiguous(promised, 4))  # misaligned
    tl.store(out_ptr + at, x)


@triton.jit
def a_pointer_that_is_none(x_ptr, out_ptr, n, OK: tl.constexpr):
    at = tl.arange(0, 256)
    x = tl.load(x_ptr + at)
    if not OK:
        x += tl.load(tl.cast(tl.program_id(0).to(tl.int64), tl.pointer_type(tl.float32)) + at)  # null-pointer
    tl.store(out_ptr + at, x)


@triton.jit
def flag_without_an_order(x_ptr, out_ptr, n, OK: tl.constexpr):
    program = tl.program_id(0)
    if program == 0:
        tl.store(out_ptr + 1, 3.0)
        if OK:
            tl.atomic_add(x_ptr, 1.0, sem="release")
        else:
            tl.atomic_add(x_ptr, 1.0, sem="relaxed")
    if program == 1:
        while tl.atomic_add(x_ptr, 0.0, sem="acquire") < 1.0:
            pass
        tl.store(out_ptr + 2, tl.load(out_ptr + 1))  # race


CASES = [
    load_past_the_end, store_past_the_end, reversed_in_place, neighbours_through_scratch, sum_of_all_programs,
    stencil_in_place, programs_that_overlap, rows_that_share_a_place, accumulate_into_empty,
    promise_of_alignment, a_pointer_that_is_none, flag_without_an_order,
]  # fmt: skip


def launched(kernel: Any, *, ok: bool, seed: int | None, arch: str, warps: int) -> list[Any]:
    with dotcu.simulate(arch=arch, on_finding="collect", seed=seed) as run:
        x = torch.zeros(1) if kernel is flag_without_an_order else torch.randn(N)
        out = torch.zeros(N) if kernel in (sum_of_all_programs, promise_of_alignment) else torch.empty(N)
        programs = 2 if kernel is flag_without_an_order else 1
        if kernel in (load_past_the_end, store_past_the_end, sum_of_all_programs, stencil_in_place,
                      programs_that_overlap, accumulate_into_empty):  # fmt: skip
            programs = 4
        kernel[(programs,)](x, out, N, OK=ok, num_warps=warps)
    return run.findings


def faulty_line(kernel: Any) -> tuple[str, int]:
    lines, first = inspect.getsourcelines(kernel.fn)
    return next(
        (line.split("  # ")[1].strip(), first + number) for number, line in enumerate(lines) if "  # " in line
    )


@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("warps", [1, 4])
def test_a_fault_is_named_by_kind_and_line(kernel: Any, warps: int) -> None:
    kind, line = faulty_line(kernel)
    found = launched(kernel, ok=False, seed=None, arch="sm_90", warps=warps)
    assert (kind, line) in {(finding.kind, finding.line) for finding in found}, [str(f) for f in found]


@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("seed", [None, 0, 1])
def test_its_repaired_twin_is_silent(kernel: Any, seed: int | None) -> None:
    for warps in (1, 4):
        assert [str(f) for f in launched(kernel, ok=True, seed=seed, arch="sm_90", warps=warps)] == []
