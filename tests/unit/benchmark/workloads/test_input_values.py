"""New values in the same memory: what changes, and what stays."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from dotcu.benchmark.workloads import InputValues
from dotcu.checking.memory import same_bits, without_repeats
from dotcu.checking.subject import Subject
from dotcu.operator import Sample
from helpers.derivable_operators import operator, subject


def unary(x: Tensor) -> Tensor:
    return x + 1


def indexed(x: Tensor, i: Tensor) -> Tensor:
    return x[i]


def in_place(x: Tensor) -> None:
    x.add_(1)


def into(x: Tensor, *, out: Tensor) -> None:
    out.copy_(x)


@pytest.fixture(scope="module")
def of_one() -> Subject:
    return subject(operator(unary))


def values_of(of: Subject, sets: Sequence[Sample]) -> InputValues:
    return InputValues(sets, outs=of.overload.signature.outs)


def refreshed(of: Subject, *sets: Sample, turn: int = 5) -> InputValues:
    values = values_of(of, sets)
    for sample in sets:
        values(sample, turn)
    return values


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.float8_e4m3fn])
def test_values_change_behind_a_first_element_that_stays_uncounted_by_torch(
    of_one: Subject, dtype: torch.dtype
) -> None:
    x = torch.randn(1000).to(dtype)
    values = values_of(of_one, [Sample(x), Sample(torch.randn(1000).to(dtype))])
    before, version = x.clone(), x._version
    values(Sample(x), 3)
    assert x._version == version
    assert same_bits([x[:1]], [before[:1]])
    assert bool((x[1:] != before[1:]).float().mean() > 0.5)
    assert float(x.to(torch.complex128).sum().abs()) != float(before.to(torch.complex128).sum().abs())
    assert values.vary


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(9, 5).T,
        torch.randn(40, 30)[2:, ::3],
        torch.randn(7, 1).expand(7, 4),
        torch.randn(()),
        torch.randn(1),
        torch.randn(3),
        torch.randn(70, 70)[1],
    ],
    ids=["transposed", "sliced", "expanded", "0d", "one", "three", "row"],
)
def test_every_layout_is_written_within_its_own_elements(of_one: Subject, x: Tensor) -> None:
    storage = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    beside = torch.ones_like(storage, dtype=torch.bool)
    without_repeats(beside.as_strided(x.shape, x.stride(), x.storage_offset())).fill_(False)
    values = values_of(of_one, [Sample(x)])
    before, old = storage.clone(), x.clone()
    values(Sample(x), 5)
    assert not torch.equal(x, old)
    assert torch.equal(storage[beside], before[beside])
    assert same_bits(values.inputs(5).tensors, [x])
    assert values.inputs(5).tensors[0].stride() == x.stride()


def test_all_sets_have_the_same_values_in_a_turn_and_the_turn_is_known(of_one: Subject) -> None:
    a, b = Sample(torch.randn(100)), Sample(torch.randn(100))
    values = refreshed(of_one, a, b, turn=7)
    assert same_bits(a.tensors, b.tensors)
    values(a, 8)
    assert (values.turns[id(a)], values.turns[id(b)]) == (8, 7)
    assert same_bits(values.inputs(8).tensors, a.tensors)
    assert values.inputs(7).tensors[0].data_ptr() != b.tensors[0].data_ptr()


def test_indices_are_those_of_one_set_all_together() -> None:
    of = subject(operator(indexed))
    sets = [Sample(torch.randn(20), torch.randint(0, 20, (30,))) for _ in range(3)]
    kept = [sample.tensors[1].clone() for sample in sets]
    values = values_of(of, sets)
    for turn in range(6):
        values(sets[1], turn)
        assert torch.equal(sets[1].tensors[1], kept[turn % 3])


def test_whole_numbers_alone_change_only_where_the_sets_differ(of_one: Subject) -> None:
    assert not values_of(of_one, [Sample(torch.arange(5)), Sample(torch.arange(5))]).vary
    assert values_of(of_one, [Sample(torch.arange(5)), Sample(torch.arange(5) + 1)]).vary


def test_rows_that_ascend_go_on_ascending(of_one: Subject) -> None:
    x = torch.arange(1.0, 200.0)
    refreshed(of_one, Sample(x), Sample(x + 500), turn=9)
    assert bool((x.diff() > 0).all())
    assert float(x[0]) == 501.0


@pytest.mark.parametrize("sets", [1, 3])
def test_numbers_that_all_sets_have_alike_are_scaled_and_masks_are_not(of_one: Subject, sets: int) -> None:
    x, mask = torch.rand(500), (torch.rand(500) > 0.5).float()
    values = values_of(of_one, [Sample(x.clone(), mask.clone()) for _ in range(sets)])
    sums = {float(values.inputs(turn).tensors[0].double().sum()) for turn in range(6)}
    assert len(sums) == max(2, sets)
    assert all(torch.equal(values.inputs(turn).tensors[1], mask) for turn in range(6))
    assert values.vary


@pytest.mark.parametrize("declared", [True, False])
def test_what_a_call_changed_is_written_again_to_its_ends(declared: bool) -> None:
    of = subject(operator(in_place, mutates_args=("x",)) if declared else operator(unary))
    sample = Sample(torch.randn(200))
    values = refreshed(of, sample, turn=2)
    sample.tensors[0].add_(100)
    values(sample, 3)
    assert same_bits(sample.tensors, values.inputs(3).tensors)


def test_what_a_call_only_writes_stays_as_the_last_call_wrote_it() -> None:
    of = subject(operator(into, mutates_args=("out",)))
    sample = Sample(torch.randn(100), out=torch.full((100,), 7.0))
    refreshed(of, sample)
    assert bool((sample.kwargs["out"] == 7).all())


def test_a_tensor_that_is_passed_twice_stays_one() -> None:
    of = subject(operator(indexed))
    x = torch.randn(100)
    values = values_of(of, [Sample(x, x)])
    made = values.inputs(1)
    assert made.args[0] is made.args[1]


def test_indices_and_masks_are_those_of_one_set_all_together() -> None:
    of = subject(operator(indexed))
    sets = [Sample((torch.randn(70, 70) > 0).float(), torch.randint(0, 20, (30,))) for _ in range(3)]
    copies = [tuple(tensor.clone() for tensor in sample.tensors) for sample in sets]
    values = values_of(of, sets)
    for turn in range(6):
        values(sets[1], turn)
        assert same_bits(sets[1].tensors, copies[turn % 3])
        assert same_bits(values.inputs(turn).tensors, copies[turn % 3])
    assert values.vary


def test_a_matrix_stays_positive_definite(of_one: Subject) -> None:
    a, b = (x @ x.T + 70 * torch.eye(70) for x in (torch.randn(70, 70), torch.randn(70, 70)))
    values = values_of(of_one, [Sample(a), Sample(b)])
    for turn in range(4):
        values(Sample(a), turn)
        assert torch.equal(a, a.T)
        torch.linalg.cholesky(a)
