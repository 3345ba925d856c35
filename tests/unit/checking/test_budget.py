"""A quick check in the simulator ends in time, whatever its samples, and says what it left out."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import dotcu
from dotcu.checking import budget
from dotcu.checking.cases.derived import choose
from dotcu.checking.cases.samples import Case
from dotcu.checking.catalogue import Level
from dotcu.checking.results import Failed, Skipped
from dotcu.checking.subject import Subject
from dotcu.operator import Operator

KERNELS = """
extern "C" __global__ void conv(const float* x, const float* w, float* out, int C, int K, int H, int W) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= K * H * W) return;
    int col = i % W, row = i / W % H, k = i / (W * H);
    float sum = 0;
    for (int c = 0; c < C; ++c)
        for (int n = 0; n < 9; ++n) {
            int y = row + n / 3 - 1, z = col + n % 3 - 1;
            bool inside = y >= 0 && y < H && z >= 0 && z < W;
            sum += (inside ? x[(c * H + y) * W + z] : 0.f) * w[(k * C + c) * 9 + n];
        }
    out[i] = sum;
}

extern "C" __global__ void spin(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, k = 0;
    if (i >= n) return;
    while (k >= 0)
        k = (k + 1) & 1023;
    out[i] = x[i] + k;
}

extern "C" __global__ void count(const float* x, float* out, volatile int* flag, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, k = 0;
    if (i >= n) return;
    while (*flag == 0)
        ++k;
    out[i] = x[i] + k;
}

extern "C" __global__ void settle(const float* x, float* out, int n, int steps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int s = 0; s < steps; ++s)
        v = 0.5f * v + 1.0f;
    out[i] = v + (i == n - 1 && n == 7);
}
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Any:
    source = tmp_path_factory.mktemp("budget") / "images.cu"
    source.write_text(KERNELS)
    return dotcu.load(source)


def convolution(kernels: Any, *shapes: tuple[int, int, int, int]) -> Operator:
    """A 3x3 convolution of images (C, H, W), a thread for each element; shapes with the outputs first."""

    def conv(x: Tensor, w: Tensor) -> Tensor:
        if x.dim() != 3 or w.shape[1:] != (x.shape[0], 3, 3) or not w.numel() or not x.numel():
            raise ValueError("conv takes (C, H, W) and (K, C, 3, 3)")
        x, w, out = x.contiguous(), w.contiguous(), x.new_empty(w.shape[0], *x.shape[1:])
        sizes = (x.shape[0], *out.shape)
        kernels.conv(x, w, out, *sizes, grid=-(-out.numel() // 256), block=256)
        return out

    def samples(device: torch.device, dtype: torch.dtype) -> Iterator[dotcu.Sample]:
        for k, c, h, w in shapes:
            x = torch.randn(c, h, w, device=device, dtype=dtype)
            yield dotcu.Sample(x, torch.randn(k, c, 3, 3, device=device, dtype=dtype) / 8)

    operator = dotcu.op(f"budget::conv{len(shapes)}_{shapes[0][0]}", dtypes=(torch.float32,))(conv)
    operator.reference(lambda x, w: F.conv2d(F.pad(x, (1, 1, 1, 1)), w))
    operator.samples(samples)
    return operator


@pytest.fixture(params=["spin", pytest.param("count", marks=pytest.mark.slow)])
def endless(kernels: Any, request: pytest.FixtureRequest) -> Operator:
    name = request.param

    def spin(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        more = [torch.zeros(1, dtype=torch.int32)] if name == "count" else []
        if x.numel():
            kernel = getattr(kernels, name)
            kernel(x.contiguous(), out, *more, x.numel(), grid=-(-x.numel() // 256), block=256)
        return out

    operator = dotcu.op(f"budget::{name}", dtypes=(torch.float32,))(spin)
    operator.reference(lambda x: x + 1)
    operator.samples(lambda device, dtype: [dotcu.Sample(torch.randn(2, 3, 64, 64, device=device))])
    return operator


def settling(kernels: Any, name: str, *samples: tuple[int, int]) -> Operator:
    """An operator whose samples, of some elements, each take some steps; 7 elements give a wrong result."""

    def settle(x: Tensor, steps: int) -> Tensor:
        out = torch.empty_like(x)
        if x.numel():
            kernels.settle(x.contiguous(), out, x.numel(), steps, grid=-(-x.numel() // 256), block=256)
        return out

    operator = dotcu.op(f"budget::{name}", dtypes=(torch.float32,))(settle)
    operator.reference(lambda x, steps: x / 2**steps + 2 - 2 / 2**steps if steps < 9 else 0 * x + 2)
    operator.samples(lambda device, dtype: [dotcu.Sample(torch.rand(n), steps) for n, steps in samples])
    return operator


def seconds(work: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and the time of this thread that it took."""
    start = time.thread_time()
    return work(), time.thread_time() - start


def test_derived_sizes_keep_an_image_small_where_another_size_is_large(kernels: Any) -> None:
    operator = convolution(kernels, (8, 3, 64, 64))
    (overload,) = operator.overloads.values()
    for case in choose(Subject(overload=overload, device=torch.device("cpu"), level=Level.QUICK)):
        x, w = (tensor.shape for tensor in case.sample.tensors)
        if case.derived:
            assert math.prod(w) * math.prod(x[1:]) < 9 * 2**17, case.name


def test_what_does_not_fit_is_left_out_and_counted(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CALL_S": 0.1, "CASES_S": 0.5, "OPERATOR_S": 1.0}.items():
        monkeypatch.setattr(budget, name, value)
    operator = convolution(kernels, (8, 3, 16, 16), (32, 32, 28, 28))
    only = "budget::conv2_8/call"
    report = dotcu.check(operator, level="quick", device="simulator", only=only)
    left = {str(result.trial) for result in report.results if isinstance(result, Skipped) and result.left_out}
    assert report.passed, str(report)
    assert "budget::conv2_8/call/float32-s1" in left
    assert "budget::conv2_8/call/float32-s0" not in left
    assert f"{len(left)} left out, which the standard level runs" in str(report)


def test_workers_share_what_an_operator_has() -> None:
    case = Case(dtype=torch.float32, number=0, variant="n7", build=lambda: dotcu.Sample(torch.ones(7)))
    one, half = budget.Budget(), budget.Budget(share=0.5)
    one.spent_s = half.spent_s = 0.6 * budget.CASES_S
    with one.of_case(case):
        pass
    with pytest.raises(budget.LeftOut, match="left out"), half.of_case(case):
        pass


@pytest.mark.slow
def test_an_operator_on_images_takes_less_than_half_a_minute(kernels: Any) -> None:
    operator = convolution(kernels, (8, 3, 64, 64), (64, 64, 56, 56), (32, 16, 96, 96))
    report, took = seconds(lambda: dotcu.check(operator, level="quick", device="simulator"))
    assert report.passed, str(report)
    assert took < 30


def test_a_loop_that_does_not_end_is_stopped_with_its_line(
    endless: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "CALL_S", 0.5)
    monkeypatch.setattr(budget, "PATIENCE", 50_000)
    report, took = seconds(lambda: dotcu.check(endless, level="quick", device="simulator"))
    assert took < 15
    (failure,) = report.failures
    assert failure.check == "sanitizer-barrier"
    assert isinstance(failure, Failed)
    assert re.search(r"images.cu:(20|27): step-limit: still running after", failure.evidence)
    assert "run the standard level" in failure.evidence
    assert "left out: a call did not end, at " in str(report)


@pytest.mark.slow
def test_a_long_loop_of_few_elements_is_no_failure(kernels: Any) -> None:
    report, took = seconds(
        lambda: dotcu.check(settling(kernels, "long", (4, 60_000)), level="quick", device="simulator")
    )
    assert report.passed, str(report)
    assert took < 25


@pytest.mark.slow
def test_a_sample_that_is_left_out_hides_no_other(kernels: Any) -> None:
    operator = settling(kernels, "hides", (7, 60_000), (7, 60_001), (7, 3))
    report = dotcu.check(operator, level="quick", device="simulator")
    assert "budget::hides/call/float32-s2" in {str(failure.trial) for failure in report.failures}, str(report)


def test_other_levels_leave_nothing_out(kernels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "CALL_S", 0.0)
    operator, only = convolution(kernels, (4, 2, 8, 8)), "budget::conv1_4/call/float32-s0"
    report = dotcu.check(operator, level="standard", device="simulator", only=only)
    assert report.passed
    assert "left out" not in str(report)
