"""The same call at other sizes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking.cases import derived
from dotcu.checking.cases.derived import _alike
from dotcu.checking.cases.samples import Case
from dotcu.checking.subject import Subject
from helpers.derivable_operators import first, operator, subject


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def added(a: Tensor, b: Tensor) -> Tensor:
    return a + b


def rows(weight: Tensor, index: Tensor) -> Tensor:
    return weight[index]


def matrices() -> Subject:
    sample = dotcu.Sample(torch.randn(64, 48), torch.randn(48, 32))
    return subject(operator(product, sample, reference=torch.matmul))


def of(subject: Subject, numbers: list[int]) -> dict[str, Case]:
    return {case.name: case for case in derived._sizes(subject, first(subject), numbers)}


def shapes(case: Case) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in case.sample.tensors]


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_a_row_that_ascends_has_a_scalar_of_its_range() -> None:
    assert 3 <= int(_alike(torch.arange(3, 9), (), generator())) <= 8


def test_an_equal_size_changes_in_every_tensor() -> None:
    made = of(matrices(), [7])
    assert {name: shapes(case) for name, case in made.items()} == {
        "float32-s0-64as7": [(7, 48), (48, 32)],
        "float32-s0-48as7": [(64, 7), (7, 32)],
        "float32-s0-32as7": [(64, 48), (48, 7)],
    }


def test_a_size_of_one_broadcasts_and_stays() -> None:
    made = of(subject(operator(added, dotcu.Sample(torch.randn(5, 1), torch.randn(5)))), [7])
    assert [shapes(case) for case in made.values()] == [[(7, 1), (7,)]]


def test_the_size_that_is_there_makes_no_case() -> None:
    assert not of(subject(operator(added, dotcu.Sample(torch.randn(7), torch.randn(7)))), [7])


def test_where_one_is_large_the_others_are_small() -> None:
    made = of(matrices(), [4099])
    assert shapes(made["float32-s0-48as4099"]) == [(2, 4099), (4099, 4)]


def test_many_cases_are_derived_from_one_that_is_little_work() -> None:
    one = subject(operator(product, dotcu.Sample(torch.randn(64, 480), torch.randn(480, 32))))
    less = derived.modest(one, first(one))
    assert less is not None
    assert less.name == "float32-s0-small"
    assert shapes(less) == [(36, 37), (37, 32)]
    assert derived.modest(one, less) is less


def test_a_tensor_too_large_for_the_simulator_makes_no_case() -> None:
    sample = dotcu.Sample(torch.randn(1, 4), torch.randn(1, 4))
    assert not of(subject(operator(added, sample)), [derived.LARGEST["cpu"] + 1])


def test_a_case_has_the_same_values_each_time_and_others_by_another_seed() -> None:
    overload, name = matrices().overload, "float32-s0-48as33"
    one, again, other = (of(subject(overload, seed=seed), [33])[name] for seed in (0, 0, 1))
    tensors = [case.sample.tensors[0] for case in (one, one, again, other)]
    assert [torch.equal(tensors[0], tensor) for tensor in tensors] == [True, True, True, False]


def test_new_numbers_are_in_the_range_of_the_old() -> None:
    old = torch.rand(100) + 5
    new = _alike(old, (1000,), generator())
    assert 5 <= float(new.min()) < float(new.max()) <= 6
    assert float(new.std()) > 0.1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn])
def test_new_numbers_have_the_old_dtype(dtype: torch.dtype) -> None:
    new = _alike(torch.randn(9).to(dtype), (40,), generator())
    assert new.dtype == dtype
    assert len(new.double().unique()) > 3


def test_what_is_not_finite_says_nothing_of_a_range() -> None:
    old = torch.tensor([0.0, 1.0, torch.inf, torch.nan])
    assert bool(_alike(old, (50,), generator()).isfinite().all())


def test_new_integers_are_in_the_range_of_the_old() -> None:
    new = _alike(torch.tensor([3, 9, 4], dtype=torch.int16), (500,), generator())
    assert (int(new.min()), int(new.max()), new.dtype) == (3, 9, torch.int16)


def test_offsets_that_ascend_ascend_again_between_the_same_ends() -> None:
    new = _alike(torch.tensor([0, 4, 4, 20]), (9,), generator())
    assert bool((new.diff() >= 0).all())
    assert (int(new[0]), int(new[-1])) == (0, 20)


def test_new_truth_values_are_mixed() -> None:
    assert len(_alike(torch.tensor([True]), (50,), generator()).unique()) == 2


def test_the_whole_range_of_an_integer_is_no_error() -> None:
    info = torch.iinfo(torch.int64)
    assert _alike(torch.tensor([info.min, info.max, 0]), (5,), generator()).shape == (5,)


def test_a_strided_tensor_becomes_contiguous() -> None:
    sample = dotcu.Sample(torch.randn(6, 4).T, torch.randn(4, 6))
    made = of(subject(operator(added, sample)), [9])
    assert all(tensor.is_contiguous() for case in made.values() for tensor in case.sample.tensors[:1])


def test_indices_that_no_longer_fit_make_no_case() -> None:
    sample = dotcu.Sample(torch.randn(20, 4), torch.tensor([3, 19, 0]))
    one = subject(operator(rows, sample, reference=rows))
    made = filter(one.takes, of(one, [2, 33]).values())
    assert {case.name.rpartition("-")[2] for case in made} == {"20as33", "4as2", "4as33", "3as2", "3as33"}


def test_outputs_are_made_for_the_new_sizes() -> None:

    def product_out(a: Tensor, b: Tensor, *, out: Tensor) -> None:
        out.copy_(a @ b)

    out = matrices().overload.overload("out", mutates_args=("out",))(product_out)
    made = of(subject(out), [7])["float32-s0-64as7"]
    assert made.sample.kwargs["out"].shape == (7, 32)
    assert bool(made.sample.kwargs["out"].isnan().all())


def test_one_shape_is_tried_in_other_ranks() -> None:
    one = subject(operator(added, dotcu.Sample(torch.randn(9), torch.randn(9))))
    assert [shapes(case)[1] for case in derived._ranks(one, first(one), ("0d", "2d"))] == [(), (6, 10)]
    two = subject(operator(added, dotcu.Sample(torch.randn(9, 2), torch.randn(2))))
    assert not list(derived._ranks(two, first(two), ("0d", "2d")))


def test_numbers_among_the_arguments_have_two_sides() -> None:
    sample = dotcu.Sample(torch.randn(3), 100, True, 2.5, 5000, n=3)
    case = Case(dtype=torch.float32, number=0, build=lambda: sample)
    assert derived.around_integers(case) == (2, 3, 4, 99, 100, 101)
