"""Other values in the same memory: what changes, what stays, and who is told."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dotcu.benchmark.workloads.refresh import EDGE, Refresh
from dotcu.checking.memory import same_bits, without_repeats
from dotcu.checking.subject import Subject
from dotcu.operator import Sample
from subjects import operator, subject


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


def refreshed(of: Subject, *sets: Sample, turn: int = 5) -> Refresh:
    refresh = Refresh(of, sets)
    for sample in sets:
        refresh(sample, turn)
    return refresh


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.float8_e4m3fn])
def test_values_move_between_ends_that_stay_unseen_by_torch(of_one: Subject, dtype: torch.dtype) -> None:
    x = torch.randn(1000).to(dtype)
    refresh = Refresh(of_one, [Sample(x)])
    before, version = x.clone(), x._version
    refresh(Sample(x), 3)
    assert x._version == version
    assert same_bits([x[:EDGE]], [before[:EDGE]])
    assert same_bits([x[-EDGE:]], [before[-EDGE:]])
    assert bool((x[EDGE:-EDGE] != before[EDGE:-EDGE]).float().mean() > 0.5)
    assert refresh.changes


def test_sums_change_too_and_no_two_of_many_turns_are_alike(of_one: Subject) -> None:
    x = torch.rand(500)
    refresh = Refresh(of_one, [Sample(x)])
    sums = set()
    for turn in range(50):
        refresh(Sample(x), turn)
        sums.add(float(x.double().sum()))
    assert len(sums) == 50
    assert 0.4 < float(x.mean()) / 0.5 <= 1.1, "values shrink to half at most, and come back"


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
    refresh = Refresh(of_one, [Sample(x)])
    before, values = storage.clone(), x.clone()
    refresh(Sample(x), 4)
    assert not torch.equal(x, values)
    assert torch.equal(storage[beside], before[beside])
    assert same_bits(refresh.inputs(4).tensors, [x])
    assert refresh.inputs(4).tensors[0].stride() == x.stride()


def test_all_sets_have_the_same_values_in_a_turn_and_the_turn_is_known(of_one: Subject) -> None:
    a, b = Sample(torch.randn(100)), Sample(torch.randn(100))
    refresh = refreshed(of_one, a, b, turn=7)
    assert same_bits(a.tensors, b.tensors)
    refresh(a, 8)
    assert (refresh.turn_of(a), refresh.turn_of(b)) == (8, 7)
    assert same_bits(refresh.inputs(8).tensors, a.tensors)
    assert refresh.inputs(7).tensors[0].data_ptr() != b.tensors[0].data_ptr()


def test_indices_are_those_of_one_set_all_together() -> None:
    of = subject(operator(indexed))
    sets = [Sample(torch.randn(20), torch.randint(0, 20, (30,))) for _ in range(3)]
    kept = [sample.tensors[1].clone() for sample in sets]
    refresh = Refresh(of, sets)
    for turn in range(6):
        refresh(sets[1], turn)
        assert torch.equal(sets[1].tensors[1], kept[turn % 3])


def test_whole_numbers_alone_change_only_where_the_sets_differ(of_one: Subject) -> None:
    assert not Refresh(of_one, [Sample(torch.arange(5)), Sample(torch.arange(5))]).changes
    assert Refresh(of_one, [Sample(torch.arange(5)), Sample(torch.arange(5) + 1)]).changes


def test_rows_that_ascend_go_on_ascending(of_one: Subject) -> None:
    x = torch.arange(1.0, 200.0)
    refreshed(of_one, Sample(x), turn=9)
    assert bool((x.diff() > 0).all())
    assert float(x[0]) != 1.0


@pytest.mark.parametrize("declared", [True, False])
def test_what_a_call_changed_is_written_anew_to_its_ends(declared: bool) -> None:
    of = subject(operator(in_place, mutates_args=("x",)) if declared else operator(unary))
    sample = Sample(torch.randn(200))
    refresh = refreshed(of, sample, turn=2)
    sample.tensors[0].add_(100)
    refresh(sample, 3)
    assert same_bits(sample.tensors, refresh.inputs(3).tensors)


def test_what_a_call_only_writes_stays_as_the_last_call_left_it() -> None:
    of = subject(operator(into, mutates_args=("out",)))
    sample = Sample(torch.randn(100), out=torch.full((100,), 7.0))
    refreshed(of, sample)
    assert bool((sample.kwargs["out"] == 7).all())


def test_a_tensor_that_is_given_twice_stays_one() -> None:
    of = subject(operator(indexed))
    x = torch.randn(100)
    refresh = Refresh(of, [Sample(x, x)])
    made = refresh.inputs(1)
    assert made.args[0] is made.args[1]


@pytest.mark.parametrize(
    "kind", ["positive definite", "causal mask", "triangular", "probabilities", "0 and 1"]
)
def test_values_with_structure_are_those_of_one_set_all_together(kind: str) -> None:
    of = subject(operator(indexed))
    sets = [Sample(_with_structure(kind), torch.randint(0, 20, (30,))) for _ in range(3)]
    kept = [tuple(tensor.clone() for tensor in sample.tensors) for sample in sets]
    refresh = Refresh(of, sets)
    for turn in range(6):
        refresh(sets[1], turn)
        assert same_bits(sets[1].tensors, kept[turn % 3])
        assert same_bits(refresh.inputs(turn).tensors, kept[turn % 3])
    assert refresh.changes


def _with_structure(kind: str) -> Tensor:
    x = torch.randn(70, 70)
    return {
        "positive definite": x @ x.T + 70 * torch.eye(70),
        "causal mask": torch.full((70, 70), -torch.inf).triu(1),
        "triangular": x.tril(),
        "probabilities": x.softmax(-1),
        "0 and 1": (x > 0).float(),
    }[kind]
