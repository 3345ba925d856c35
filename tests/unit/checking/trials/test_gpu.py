"""What the trials for GPUs share, on the CPU: which calls, which other values, and what is right."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking.cases.samples import Case
from dotcu.checking.catalogue import Level
from dotcu.checking.planning import plan
from dotcu.checking.results import Failed, Passed, Skipped
from dotcu.checking.subject import Subject
from dotcu.checking.trials import gpu
from dotcu.checking.trials.fresh_values import with_new_values
from dotcu.operator import Sample
from helpers.quick_cases import quick

_names = (f"trials_gpu_test::op{i}" for i in itertools.count())


def make(samples: Any, *, tags: tuple[torch.Tag, ...] = (), reference: Any = torch.neg) -> Subject:
    """A subject on the CPU, whose calls give the reference."""

    @dotcu.op(next(_names), tags=tags)
    def negate(x: Tensor) -> Tensor:
        return torch.neg(x)

    if reference is not None:
        negate.reference(reference)
    negate.samples(samples)
    return Subject(overload=negate, device=torch.device("cpu"))


def other_values(subject: Subject, case: Case, variant: int) -> Sample:
    values = with_new_values(subject, case, variant)
    assert values is not None
    return values


def random(*shapes: tuple[int, ...]) -> Any:
    return lambda device, dtype: [Sample(torch.randn(shape, device=device, dtype=dtype)) for shape in shapes]


def test_the_smallest_and_the_largest_call_are_chosen_and_no_empty_one() -> None:
    subject = make(random((5,), (0,), (2,), (7, 9)))
    assert [case.sample.tensors[0].numel() for case in gpu.chosen(subject)] == [2, 63]
    assert len(gpu.chosen(make(random((5,))))) == 1
    assert gpu.chosen(make(random((0,)))) == []


def test_other_values_are_the_authors_own_from_another_seed() -> None:
    subject = make(random((5,), (4,)))
    case = subject.given(torch.float32)[1]
    first, again, second = (other_values(subject, case, turn).tensors[0] for turn in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert not torch.equal(first, case.sample.tensors[0])
    assert first.shape == (4,)


def test_where_the_author_gives_the_same_values_each_time_floats_change_and_integers_stay() -> None:
    def samples(device: torch.device, dtype: torch.dtype) -> list[Sample]:
        rising = torch.arange(6.0).view(2, 3).T
        return [Sample(rising), Sample(torch.arange(6)), Sample(torch.arange(3.0).expand(2, 3))]

    subject = make(samples)
    first, second, third = subject.given(torch.float32)
    strided, expanded = (other_values(subject, case, 1).tensors[0] for case in (first, third))
    assert strided.stride() == (1, 3)
    assert sorted(strided.flatten().tolist()) == [0, 0.75, 1.5, 2.25, 3, 3.75]
    assert not torch.equal(strided, torch.arange(6.0).view(2, 3).T)
    assert with_new_values(subject, second, 1) is None
    assert torch.equal(expanded[0], expanded[1])
    assert not torch.equal(expanded[0], torch.arange(3.0))


def test_a_sample_with_other_numbers_beside_its_tensors_is_another_call() -> None:
    def samples(device: torch.device, dtype: torch.dtype) -> list[Sample]:
        return [Sample(torch.randn(3), float(torch.rand(())))]

    subject = make(samples)
    (case,) = subject.given(torch.float32)
    assert other_values(subject, case, 1).args[1] == case.sample.args[1]


def test_a_call_is_refilled_where_it_lies() -> None:
    subject = make(random((4, 3)))
    (case,) = subject.given(torch.float32)
    target, values = case.make().map_tensors(lambda x: x.T), case.make().map_tensors(lambda x: x.T + 1)
    address = target.tensors[0].data_ptr()
    gpu.refill(target, values)
    assert torch.equal(target.tensors[0], values.tensors[0])
    assert target.tensors[0].data_ptr() == address


def test_results_are_judged_by_an_ordinary_call_or_by_the_reference() -> None:
    subject = make(random((5,)))
    (case,) = subject.given(torch.float32)
    right = (torch.neg(case.sample.tensors[0]),)
    assert isinstance(gpu.judged(subject, case.make(), right), Passed)
    nearly = (right[0] * (1 + 1e-7),)
    assert isinstance(gpu.judged(subject, case.make(), nearly), Passed)
    wrong = gpu.judged(subject, case.make(), (right[0] + 1,))
    assert isinstance(wrong, Failed)
    assert "5 of 5 elements are wrong" in wrong.reason


def test_without_a_reference_bits_decide_where_they_can() -> None:
    subject = make(random((5,)), reference=None)
    (case,) = subject.given(torch.float32)
    x = case.sample.tensors[0]
    with subject.place():
        assert isinstance(gpu.judged(subject, case.make(), (-x,)), Passed)
        assert isinstance(gpu.judged(subject, case.make(), (-x + 1,)), Failed)
    loose = make(random((5,)), reference=None, tags=(torch.Tag.nondeterministic_bitwise,))
    assert isinstance(gpu.judged(loose, loose.given(torch.float32)[0].make(), (x,)), Skipped)


@pytest.mark.parametrize("level", quick([Level.STANDARD], Level))
def test_without_a_gpu_each_check_of_a_level_that_needs_one_says_so(level: Level) -> None:
    if torch.cuda.is_available():
        pytest.skip("for machines without one")
    subject = make(random((5,)))
    subject = Subject(overload=subject.overload, device=subject.device, level=level)
    skipped = [outcome for trial in plan(subject) if trial.kind != "call" for outcome in trial.run()]
    whys = [outcome.reason for outcome in skipped if isinstance(outcome, Skipped)]
    assert whys.count(gpu.NEEDS_GPU) == {Level.QUICK: 0, Level.STANDARD: 3, Level.FULL: 8}[level]
