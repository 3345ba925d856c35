"""Planted faults of Triton kernels: programs, and elements of one program, that nothing orders."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.helpers.triton_faults import Fault

triton: Any = pytest.importorskip("triton", reason="Triton is not installed")
import triton.language as tl  # noqa: E402


@triton.jit
def gradient_of_a_norm(x_ptr, grad_ptr, OK: tl.constexpr):
    at = tl.arange(0, 64)
    part = tl.load(x_ptr + tl.program_id(0) * 64 + at)
    if OK:
        tl.atomic_add(grad_ptr + at, part)
    else:
        tl.store(grad_ptr + at, tl.load(grad_ptr + at) + part)  # race grad_ptr[0]


@triton.jit
def spin_lock(x_ptr, lock_ptr, sum_ptr, OK: tl.constexpr):
    at = tl.arange(0, 64)
    x = tl.load(x_ptr + tl.program_id(0) * 64 + at)
    while tl.atomic_cas(lock_ptr, 0, 1, sem="acquire" if OK else "relaxed") == 1:
        pass
    tl.store(sum_ptr + at, tl.load(sum_ptr + at) + x)  # race sum_ptr[0]
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0, sem="release" if OK else "relaxed")


@triton.jit
def histogram(x_ptr, count_ptr, OK: tl.constexpr):
    value = tl.load(x_ptr + tl.program_id(0) * 64 + tl.arange(0, 64))
    if OK:
        tl.atomic_add(count_ptr + value, 1)
    else:
        tl.store(count_ptr + value, tl.load(count_ptr + value) + 1)  # race


@triton.jit
def split_k(x_ptr, out_ptr, OK: tl.constexpr):
    at = tl.arange(0, 64)
    part = tl.load(x_ptr + tl.program_id(0) * 64 + at)
    if OK:
        tl.atomic_add(out_ptr + at, part)
    else:
        tl.store(out_ptr + at, part)  # race out_ptr[0]


@triton.jit
def scatter(x_ptr, index_ptr, out_ptr, OK: tl.constexpr):
    at = tl.arange(0, 64)
    to = tl.load(index_ptr + at)
    if OK:
        tl.atomic_add(out_ptr + to, tl.load(x_ptr + at))
    else:
        tl.store(out_ptr + to, tl.load(x_ptr + at))  # race


@triton.jit
def transposed(x_ptr, out_ptr, M, OK: tl.constexpr):
    row = tl.program_id(0) * 16 + tl.arange(0, 16)[:, None]
    column = tl.arange(0, 32)[None, :]
    x = tl.load(x_ptr + row * 32 + column)
    tl.store(out_ptr + column * (M if OK else M // 2) + row, x)  # race


@triton.jit
def running_sum(x_ptr, part_ptr, out_ptr, OK: tl.constexpr):
    program, at = tl.program_id(0), tl.arange(0, 64)
    x = tl.cumsum(tl.load(x_ptr + program * 64 + at), axis=0)
    tl.store(part_ptr + program, tl.sum(tl.load(x_ptr + program * 64 + at), axis=0))
    if not OK:
        x += tl.load(part_ptr + program - 1, mask=program > 0, other=0.0)  # race part_ptr[0]
    tl.store(out_ptr + program * 64 + at, x)


@triton.jit
def barrier_of_one_program(x_ptr, out_ptr, OK: tl.constexpr):
    program, at = tl.program_id(0), tl.arange(0, 64)
    tl.store(x_ptr + program * 64 + at, at * 1.0)
    tl.debug_barrier()
    other = program if OK else (program + 1) % tl.num_programs(0)
    tl.store(out_ptr + program * 64 + at, tl.load(x_ptr + other * 64 + 63 - at))  # race


@triton.jit
def last_program_sums(x_ptr, part_ptr, count_ptr, out_ptr, OK: tl.constexpr):
    program = tl.program_id(0)
    tl.store(part_ptr + program, tl.sum(tl.load(x_ptr + program * 64 + tl.arange(0, 64)), axis=0))
    tl.debug_barrier()
    if tl.atomic_add(count_ptr, 1, sem="acq_rel" if OK else "relaxed") == tl.num_programs(0) - 1:
        tl.store(out_ptr, tl.sum(tl.load(part_ptr + tl.arange(0, 4)), axis=0))  # race


@triton.jit
def sum_within_a_block(x_ptr, out_ptr, OK: tl.constexpr):
    part = tl.sum(tl.load(x_ptr + tl.program_id(0) * 64 + tl.arange(0, 64)), axis=0)
    tl.atomic_add(out_ptr, part, scope="gpu" if OK else "cta")  # race out_ptr[0]


@triton.jit
def flag_of_a_plain_load(x_ptr, flag_ptr, out_ptr, OK: tl.constexpr):
    if tl.program_id(0) == 0:
        tl.store(x_ptr, 3.0)
        tl.debug_barrier()
        tl.atomic_xchg(flag_ptr, 1, sem="release")
    elif OK:
        while tl.atomic_add(flag_ptr, 0, sem="acquire") == 0:
            pass
        tl.store(out_ptr, tl.load(x_ptr))
    else:
        while tl.load(flag_ptr, volatile=True) == 0:
            pass
        tl.store(out_ptr, tl.load(x_ptr))  # race x_ptr[0]


@triton.jit
def tiles_taken_twice(x_ptr, tiles, OK: tl.constexpr):
    step = tl.num_programs(0) if OK else 1
    for tile in range(tl.program_id(0), tiles, step):
        at = tile * 64 + tl.arange(0, 64)
        tl.store(x_ptr + at, 2 * tl.load(x_ptr + at))  # race


@triton.jit
def tiles_that_overlap(x_ptr, out_ptr, OK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, shape=[64, 32], strides=[32, 1], block_shape=[16, 32])
    out = tl.make_tensor_descriptor(out_ptr, shape=[64, 32], strides=[32, 1], block_shape=[16, 32])
    tile = x.load([16 * tl.program_id(0), 0])
    out.store([(16 if OK else 8) * tl.program_id(0), 0], tile)  # race


def ints(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.int32)


def numbers(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape)


FAULTS = [
    Fault(
        kernel=gradient_of_a_norm, shape=(64,),
        launch=lambda ok: gradient_of_a_norm[(4,)](numbers(4, 64), torch.zeros(64), OK=ok),
    ),
    Fault(
        kernel=spin_lock, shape=(64,),
        launch=lambda ok: spin_lock[(4,)](numbers(4, 64), ints(1), torch.zeros(64), OK=ok),
    ),
    Fault(kernel=histogram, launch=lambda ok: histogram[(4,)](ints(4, 64) + 3, ints(10), OK=ok)),
    Fault(
        kernel=split_k, shape=(64,),
        launch=lambda ok: split_k[(4,)](numbers(4, 64), torch.zeros(64), OK=ok),
    ),
    Fault(
        kernel=scatter,
        launch=lambda ok: scatter[(1,)](numbers(64), torch.arange(64) // 2, torch.zeros(64), OK=ok),
    ),
    Fault(
        kernel=transposed,
        launch=lambda ok: transposed[(2,)](numbers(32, 32), torch.zeros(32, 32), 32, OK=ok),
    ),
    Fault(
        kernel=running_sum, shape=(4,),
        launch=lambda ok: running_sum[(4,)](numbers(4, 64), torch.zeros(4), torch.zeros(4, 64), OK=ok),
    ),
    Fault(
        kernel=barrier_of_one_program,
        launch=lambda ok: barrier_of_one_program[(4,)](torch.zeros(4, 64), torch.zeros(4, 64), OK=ok),
    ),
    Fault(
        kernel=last_program_sums,
        launch=lambda ok: last_program_sums[(4,)](
            numbers(4, 64), torch.zeros(4), ints(1), torch.zeros(1), OK=ok),
    ),
    Fault(
        kernel=sum_within_a_block, shape=(1,),
        launch=lambda ok: sum_within_a_block[(4,)](numbers(4, 64), torch.zeros(1), OK=ok),
    ),
    Fault(
        kernel=flag_of_a_plain_load, shape=(1,),
        launch=lambda ok: flag_of_a_plain_load[(2,)](torch.zeros(1), ints(1), torch.zeros(1), OK=ok),
    ),
    Fault(
        kernel=tiles_taken_twice,
        launch=lambda ok: tiles_taken_twice[(3,)](numbers(7, 64), 7, OK=ok),
    ),
    Fault(
        kernel=tiles_that_overlap,
        launch=lambda ok: tiles_that_overlap[(4,)](numbers(64, 32), torch.zeros(64, 32), OK=ok),
    ),
    Fault(
        kernel=tiles_that_overlap, arch="sm_90",
        launch=lambda ok: tiles_that_overlap[(4,)](numbers(64, 32), torch.zeros(64, 32), OK=ok),
    ),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_is_named_by_kind_line_and_element(fault: Fault) -> None:
    fault.require_found()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
@pytest.mark.parametrize("seed", [None, 0, 1])
def test_its_repaired_twin_is_silent(fault: Fault, seed: int | None) -> None:
    assert [str(finding) for finding in fault.run(ok=True, seed=seed)] == []
