"""The same call with other values."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

import dotcu
from dotcu.checking.cases.samples import Case
from dotcu.checking.subject import Subject
from dotcu.checking.trials.fresh_values import doubled, moved, with_new_values, write
from helpers.trial_operators import device, squaring, subject


def case_of(*tensors: Any, **options: Any) -> Case:
    return Case(dtype=tensors[0].dtype, number=0, build=lambda: dotcu.Sample(*tensors, **options))


def constant(make: Any, dtype: torch.dtype = torch.float32) -> tuple[Subject, Case]:
    """A subject whose author gives the same values each time, and its first case."""
    operator = squaring(dtypes=(dtype,))
    operator.samples(lambda place, dtype: [dotcu.Sample(make().to(place, dtype))])
    checked = subject(operator)
    return checked, checked.given(dtype)[0]


def test_values_are_the_authors_own_for_other_random_numbers() -> None:
    checked = subject(squaring(sizes=((4, 5),)))
    case = checked.given(torch.float32)[0]
    turns = [with_new_values(checked, case, turn) for turn in (1, 2)]
    values = [case.sample.args[0], *(turn.args[0] for turn in turns if turn is not None)]
    assert len(values) == 3
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(values, 2))
    assert all(bool(((tensor >= 1) & (tensor < 100)).all()) for tensor in values)


def test_the_same_turn_gives_the_same_values() -> None:
    checked = subject(squaring())
    case = checked.given(torch.float32)[0]
    one, two = with_new_values(checked, case, 1), with_new_values(checked, case, 1)
    assert one is not None
    assert two is not None
    assert torch.equal(one.args[0], two.args[0])


def test_constant_samples_change_places_and_shrink() -> None:
    checked, case = constant(lambda: torch.tensor([4.0, 8.0, 16.0]))
    changed = with_new_values(checked, case, 1)
    assert changed is not None
    assert changed.args[0].tolist() == [12.0, 3.0, 6.0]


def test_constant_whole_numbers_change_places_alone() -> None:
    checked, case = constant(lambda: torch.tensor([1, 2, 3]), torch.int32)
    changed = with_new_values(checked, case, 1)
    assert changed is not None
    assert changed.args[0].tolist() == [3, 1, 2]


def test_where_nothing_can_change_there_is_none() -> None:
    checked, case = constant(lambda: torch.tensor([7, 7, 7]), torch.int32)
    assert with_new_values(checked, case, 1) is None


def test_the_layout_of_the_case_is_kept() -> None:
    def make() -> Tensor:
        return torch.arange(12.0).view(3, 4).t()[1:]

    checked, case = constant(make)
    case = Case(dtype=case.dtype, number=0, build=lambda: dotcu.Sample(make().to(device())))
    changed = with_new_values(checked, case, 1)
    assert changed is not None
    assert changed.args[0].stride() == case.sample.args[0].stride() != (4, 1)


def test_an_expanded_tensor_gets_one_value_for_each_element_of_memory() -> None:
    checked, case = constant(lambda: torch.tensor([2.0, 4.0]))
    wide = dotcu.Sample(torch.tensor([2.0, 4.0], device=device()).expand(3, 2))
    changed = with_new_values(checked, Case(dtype=case.dtype, number=0, build=lambda: wide), 1)
    assert changed is not None
    assert changed.args[0].stride() == (0, 1)
    assert changed.args[0].tolist() == [[3.0, 1.5]] * 3


def test_whole_numbers_beside_floating_ones_stay_for_they_may_be_indices() -> None:
    index = torch.tensor([0, 2, 1])
    changed = moved(case_of(torch.tensor([1.0, 2.0]), index), 1)
    assert changed.args[1] is index


def test_a_doubled_call_is_twice_as_long_in_all_that_has_more_than_one_element() -> None:
    other = doubled(case_of(torch.ones(3, 1), torch.ones(4), factor=2.0))
    assert other is not None
    assert [tensor.shape for tensor in other.tensors] == [(6, 1), (8,)]
    assert other.kwargs["factor"] == 2.0


def test_a_call_with_indices_is_not_doubled() -> None:
    assert doubled(case_of(torch.ones(3), torch.tensor([0, 1]))) is None


def test_writing_reaches_each_element_of_memory_once() -> None:
    memory = torch.zeros(2)
    write(memory.expand(3, 2), torch.tensor([[1.0, 2.0]]).expand(3, 2))
    assert memory.tolist() == [1.0, 2.0]
