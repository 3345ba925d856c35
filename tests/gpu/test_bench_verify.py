"""Verification where it counts: on a GPU, of large tensors, in a time that nobody minds."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor

from dotcu.benchmark import workloads as module
from dotcu.benchmark.results import OWN
from dotcu.benchmark.targets import OperatorTarget, contenders, prepare_calls
from dotcu.benchmark.verify import TimedResults, verify
from dotcu.benchmark.workloads import InputValues, UntimedCase, Workload, parse_shapes, workloads
from dotcu.checking.memory import same_bits
from dotcu.checking.numerics import difference
from dotcu.checking.subject import Subject
from dotcu.operator import Operator
from helpers.trial_operators import squaring

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda", 0)
GIB = 2**30


def ready(
    operator: Operator, shapes: str, *against: Any, sets: int = 1
) -> tuple[OperatorTarget, InputValues, list[Any], dict[str, Any]]:
    subject = Subject(overload=operator, device=DEVICE)
    (case,) = workloads(subject, shapes=parse_shapes(shapes))
    assert isinstance(case, Workload)
    samples = case.sets(sets, 0, DEVICE)
    calls, _ = prepare_calls(contenders(subject, against))
    target = OperatorTarget(subject, case.dtype)
    return target, target.input_values(samples), samples, calls


def wrong_at_one_place(x: Tensor) -> Tensor:
    result = x * x
    result.view(-1)[-5] += 1
    return result


@pytest.mark.parametrize("shapes", ["3", "1000x33", "2^20", "2^26"])
def test_right_and_wrong_are_distinguished_at_every_size(shapes: str) -> None:
    target, values, (sample,), calls = ready(squaring(), shapes, "eager", wrong_at_one_place)
    found = verify(target, calls, sample, values)
    assert not {OWN, "eager"} & found.keys()
    if sample.tensors[0].numel() > 5:
        assert found["wrong_at_one_place"][0] == "wrong"


def test_four_contenders_at_2_to_the_28_take_a_few_seconds() -> None:
    if module.free_bytes(DEVICE) < 60 * GIB:
        pytest.skip("needs 60 GiB of free memory")
    target, values, (sample,), calls = ready(squaring(), "2^28", "eager", torch.square, wrong_at_one_place)
    verify(target, {OWN: calls[OWN]}, sample, values)
    torch.cuda.synchronize()
    start = time.perf_counter()
    found = verify(target, calls, sample, values)
    torch.cuda.synchronize()
    assert time.perf_counter() - start < 5
    assert {name: status for name, (status, _) in found.items()} == {"wrong_at_one_place": "wrong"}


def test_the_oracle_on_the_gpu_bounds_as_the_one_on_the_cpu() -> None:
    target, _, (sample,), calls = ready(squaring(dtypes=(torch.bfloat16,)), "500x70")
    x = sample.tensors[0]
    off = (x * x).clone()
    off[7, 3] *= 2
    for inputs in (sample, sample.map_tensors(Tensor.cpu)):
        results = {"right": (calls[OWN](sample),), "off": (off,)}
        found = target.find_errors(
            inputs, {k: tuple(t.to(inputs.tensors[0].device) for t in v) for k, v in results.items()}
        )
        assert found["right"] == ""
        assert "output 0[7, 3]" in found["off"]


def test_where_float64_does_not_fit_the_operators_dtype_judges() -> None:
    target, values, (sample,), calls = ready(squaring(), "2^20", "eager", wrong_at_one_place)

    def in_float32_alone(x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            torch.empty(2**50, dtype=torch.uint8, device=DEVICE)
        return x * x

    target.subject.overload.reference(in_float32_alone)
    found = verify(target, calls, sample, values)
    assert {name: status for name, (status, _) in found.items()} == {"wrong_at_one_place": "wrong"}


def test_a_case_that_no_memory_holds_is_skipped_before_it_is_allocated() -> None:
    subject = Subject(overload=squaring(), device=DEVICE)
    held = torch.cuda.memory_allocated(DEVICE)
    unfit, fit = workloads(subject, shapes=parse_shapes("2^40,2^10"))
    assert isinstance(unfit, UntimedCase)
    assert unfit.status == "skipped"
    assert "GiB of memory on the GPU" in unfit.reason
    assert isinstance(fit, Workload)
    assert torch.cuda.memory_allocated(DEVICE) - held < GIB


def test_new_values_cost_a_copy_and_reach_every_set() -> None:
    _, values, sets, _ = ready(squaring(), "2^26", sets=3)
    for sample in sets:
        values(sample, 5)
    assert all(same_bits(sample.tensors, values.inputs(5).tensors) for sample in sets)
    assert len({sample.tensors[0].data_ptr() for sample in sets}) == 3
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for turn in range(10):
        values(sets[0], turn)
    end.record()
    end.synchronize()
    slow_ms = 10 * 2 * sets[0].tensors[0].nbytes / 0.2e12 * 1e3  # at 0.2 TB/s
    assert start.elapsed_time(end) < slow_ms


def test_results_are_those_on_the_stream_when_they_were_copied() -> None:
    target, values, sets, calls = ready(squaring(), "2^20", sets=2)
    timed = TimedResults(target, values)
    for turn in range(6):
        sample = sets[turn % 2]
        values(sample, turn)
        result = calls[OWN](sample)
        timed.take(OWN, sample, result)
        timed.take("stale", sample, result if turn < 3 else torch.zeros_like(result))
        result.zero_()
    assert not timed.missed
    found = timed.verify()
    assert set(found) == {"stale"}


def test_work_on_a_stream_that_nobody_waits_for_is_wrong() -> None:
    def elsewhere(x: Tensor) -> Tensor:
        out, side = torch.empty_like(x), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.mul(x, x, out=out)
        return out

    target, values, (sample,), calls = ready(squaring(), "2^20", elsewhere)
    found = verify(target, calls, sample, values)
    assert {name: status for name, (status, _) in found.items()} == {"elsewhere": "wrong"}


def test_what_leaves_its_result_unwritten_finds_nothing_right_in_old_memory() -> None:
    target, values, (sample,), calls = ready(squaring(), "2^22", "eager", torch.empty_like)
    found = verify(target, calls, sample, values)
    assert found["empty_like"][0] == "wrong"


def test_a_compiled_reference_is_a_contender() -> None:
    pytest.importorskip("triton")
    target, values, (sample,), calls = ready(squaring(), "2^20", "compile", "max-autotune")
    found = verify(target, calls, sample, values)
    for name in ("compile", "max-autotune"):
        if name in found:
            status, reason = found[name]
            assert (status, "compiler" in reason.lower()) == ("failed", True), reason


def test_differences_of_many_elements_are_found_chunk_by_chunk() -> None:
    a = torch.randn(2**27 + 5, device=DEVICE)
    b = a.clone()
    assert difference((a,), (b,), a.numel()) == ""
    b[-2] += 1
    assert f"output 0[{2**27 + 3}]" in difference((a,), (b,), a.numel())
