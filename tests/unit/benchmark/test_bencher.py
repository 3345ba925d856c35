"""What is planned for operators, and what of it fails alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
import dotcu.gallery
from dotcu.benchmark.bencher import BenchPlan, _cases, _run_plan
from dotcu.benchmark.results import BenchRow, Protocol
from dotcu.benchmark.targets import contenders
from dotcu.benchmark.timing import TimedCase
from dotcu.errors import EnvironmentFault, OperatorError, UsageError
from dotcu.operator import Operator, Sample
from helpers.derivable_operators import operator, subject
from helpers.fake_device import FakeDevice

QUICK = Protocol(
    warmup_s=0.0, warmup_most_s=0.1, block_s=0.0, calls=4, blocks=4, most_blocks=6, least_s=0.0, sets=2
)


def triple(x: Tensor) -> Tensor:
    return x * 3


def good() -> Operator:
    return operator(triple, Sample(torch.randn(100)), reference=triple)


def without_samples() -> Operator:
    return operator(triple, reference=triple)


def with_samples_that_fail() -> Operator:
    made = operator(triple, reference=triple)

    def samples(device: torch.device, dtype: torch.dtype) -> Any:
        raise ValueError("no such file")

    made.samples(samples)
    return made


def planned(*operators: Operator, against: tuple[str, ...] = (), dtypes: tuple[str, ...] = ()) -> BenchPlan:
    subjects = [subject(one) for one in operators]
    cases = [(one, _cases(one, (), (), dtypes)) for one in subjects]
    rivals = {one.name: contenders(one, against) for one in subjects}
    return _run_plan(cases, rivals, ("cold",), FakeDevice(), QUICK)


@pytest.mark.parametrize(
    ("bad", "words"), [(without_samples, "nothing to time"), (with_samples_that_fail, "no such file")]
)
def test_an_operator_that_cannot_be_planned_is_a_row_and_others_are_timed(bad: Any, words: str) -> None:
    first, second = planned(bad(), good()).cases
    assert isinstance(first, BenchRow)
    assert first.status == "failed"
    assert words in first.reason
    assert isinstance(second, TimedCase)


def test_work_that_fails_is_a_mark_on_rows() -> None:
    bad = good()
    bad.work(lambda x: (1, 2, 3))
    plan = planned(bad)
    with plan.cases[0].target.context():  # type: ignore[union-attr]
        (row,) = plan.run()
    assert row.status == "measured"
    assert any("two whole numbers" in mark for mark in row.marks)


def test_options_that_are_wrong_end_the_command() -> None:
    with pytest.raises(UsageError, match="no dtype 'int3'"):
        planned(good(), dtypes=("int3",))
    with pytest.raises(UsageError, match="no baseline 'eagle'"):
        planned(good(), against=("eagle",))


def test_without_a_gpu_bounds_are_reported_and_no_rows() -> None:
    report = dotcu.bench(good(), device="simulator")
    assert report.rows == ()
    assert report.estimate is not None


def test_without_a_gpu_an_operator_that_cannot_be_called_is_a_note_beside_others() -> None:
    report = dotcu.bench([without_samples(), good()], device="simulator")
    assert any("nothing to time" in note for note in report.notes)
    with pytest.raises(OperatorError, match="nothing to time"):
        dotcu.bench(without_samples(), device="simulator")


def test_a_gpu_to_give_bounds_for_must_be_known() -> None:
    with pytest.raises(UsageError, match="no such GPU"):
        dotcu.bench(good(), device="simulator", gpu="no such GPU")


def test_a_bare_callable_without_a_gpu_is_refused_with_the_reason() -> None:
    with pytest.raises(EnvironmentFault, match="Device time was asked for on cpu"):
        dotcu.bench(lambda: None, device="simulator")


def test_arguments_that_would_mean_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="shapes= was passed"):
        dotcu.bench(lambda: None, shapes="2^4", device="simulator")
    with pytest.raises(UsageError, match="flops= was passed"):
        dotcu.bench(dotcu.gallery.square, flops=3, device="simulator")


def test_an_unknown_baseline_is_refused_without_a_gpu_too() -> None:
    with pytest.raises(UsageError, match="there is no baseline 'egaer'"):
        dotcu.bench(dotcu.gallery.square, against=("egaer",), device="simulator")
