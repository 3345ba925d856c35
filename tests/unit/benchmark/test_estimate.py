from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.benchmark.estimate import _bound, estimate
from dotcu.benchmark.limits.datasheet import named
from dotcu.benchmark.work import Work
from dotcu.errors import UsageError
from dotcu.operator import Operator, Sample

_names = (f"bench_estimate::op{i}" for i in itertools.count())

kernels = dotcu.load_inline("""
__global__ void axpy(const float* x, const float* y, float* out, float alpha, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = alpha * x[i] + y[i];
}
__global__ void gather(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[8 * i];
}
""")


def axpy(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    for _ in range(2):
        kernels.axpy(x, y, out, 2.0, n, grid=dotcu.cdiv(n, 64), block=64)
    return out


def made(body: Any = axpy) -> Operator:
    return dotcu.op(next(_names))(body)


PAIR = Sample(torch.ones(6400), torch.ones(6400))


def test_a_call_has_its_counts_and_a_bound() -> None:
    operator = made()
    found = estimate([(operator, "float32-6400", PAIR)])
    sheet, (call,) = found.sheet, found.calls
    assert (sheet.name, call.op, call.case) == ("H200", operator.qualified_name, "float32-6400")
    assert "H200" in sheet.source
    assert call.asked_bytes == 2 * 3 * 4 * 6400
    assert call.operations == {"f32": 2 * 2 * 6400}
    assert call.work.bytes == 3 * 4 * 6400
    assert call.bound_us == pytest.approx(3 * 4 * 6400 / 4800e3)
    assert call.what == "memory, 4.8 TB/s"
    assert call.notes == ()


def test_launches_have_the_compile_times_of_their_kernels() -> None:
    (call,) = estimate([(made(), "s0", PAIR)]).calls
    assert [launch.kernel for launch in call.launches] == ["axpy", "axpy"]
    assert call.launches[0].compile_s > 0


def test_scattered_accesses_show_in_the_sectors() -> None:
    def gather(x: Tensor) -> Tensor:
        out = x.new_empty(x.numel() // 8)
        kernels.gather(x, out, out.numel(), grid=dotcu.cdiv(out.numel(), 64), block=64)
        return out

    (call,) = estimate([(made(gather), "s0", Sample(torch.ones(6400)))]).calls
    assert call.sector_efficiency is not None
    assert call.sector_efficiency < 0.5


def test_the_bound_is_that_of_the_gpu_that_was_named() -> None:
    (call,) = estimate([(made(), "s0", PAIR)], gpu="rtx 4090").calls
    assert call.bound_us == pytest.approx(3 * 4 * 6400 / 1008e3)


def test_a_gpu_that_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match="no datasheet"):
        estimate([(made(), "s0", PAIR)], gpu="H2000")


def test_what_cannot_be_simulated_says_so_and_keeps_the_bound_of_its_inputs() -> None:
    def fails(x: Tensor, y: Tensor) -> Tensor:
        raise RuntimeError("only on a GPU")

    failed, sound = estimate([(made(fails), "s0", PAIR), (made(), "s1", PAIR)]).calls
    assert failed.notes == ("the simulator cannot run it: only on a GPU",)
    assert failed.asked_bytes is None
    assert failed.bound_us == pytest.approx(2 * 4 * 6400 / 4800e3)
    assert sound.asked_bytes


def test_code_that_does_not_compile_fails_and_shows_what_the_compiler_said() -> None:
    broken = dotcu.load_inline("__global__ void broken(float* out) { out[0] = y; }")

    def fails(x: Tensor, y: Tensor) -> Tensor:
        out = torch.empty_like(x)
        broken.broken(out, grid=1, block=1)
        return out

    report = dotcu.bench(made(fails), samples=[PAIR], gpu="H100", device="simulator")
    assert not report.passed
    assert 'identifier "y" is undefined' in str(report)
    assert str(report).splitlines()[-1] == "FAILED: 1 of 1 call does not compile"


def test_work_that_is_wrong_is_a_note() -> None:
    operator = made()
    operator.work(lambda x, y: (1.5, 2))
    (call,) = estimate([(operator, "s0", PAIR)]).calls
    assert "returned (1.5, 2)" in call.notes[0]
    assert call.asked_bytes


H200 = named("H200")


def test_operations_that_were_done_set_the_bound_where_they_take_longer() -> None:
    work = Work(read_bytes=1000, written_bytes=0, flops=1, dtype="bfloat16", declared=True)
    time_us, what = _bound(work, {"bf16": 10**12, "f32": 10**9}, H200)
    assert time_us == pytest.approx(10**12 / 989.4e6)
    assert what == "bfloat16 arithmetic, 989.4 TFLOP/s"


def test_without_counts_the_declared_operations_bound() -> None:
    work = Work(read_bytes=1000, written_bytes=0, flops=10**12, dtype="float32", declared=True)
    assert _bound(work, {}, H200)[0] == pytest.approx(10**12 / 66.9e6)


def test_nothing_has_no_bound() -> None:
    assert _bound(Work(read_bytes=0, written_bytes=0), {}, H200) == (0.0, "")


def test_a_call_that_launches_triton_kernels_has_counts() -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    from helpers import triton_operators as ops

    operator = ops.registered(ops.doubled, lambda x: 2 * x)
    idle = ops.registered(lambda x: 2 * x, lambda x: 2 * x)
    sample = Sample(torch.ones(6400))
    call, without = estimate([(operator, "float32-6400", sample), (idle, "float32-6400", sample)]).calls
    assert call.asked_bytes == 3 * 4 * 6400  # each half of 128 threads loads all 64 elements of a block
    assert (call.sector_efficiency, call.notes) == (1.0, ())
    assert call.operations["f32"] >= 6400
    assert without.notes == ("a library computes it, and launches no kernel that can run in the simulator",)
