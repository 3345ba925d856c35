"""The same values in other memory layouts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking.cases.derived import LAYOUTS, _in_layouts
from dotcu.checking.cases.samples import Case
from dotcu.checking.subject import Subject
from helpers.derivable_operators import first, operator, subject

RANKS = [(), (5,), (3, 4), (3, 4, 5), (2, 3, 4, 5), (3, 0), (1, 1)]


def added(a: Tensor, b: Tensor) -> Tensor:
    return a + b


def pair(*shape: int) -> Subject:
    return subject(operator(added, dotcu.Sample(torch.randn(shape), torch.randn(shape)), reference=added))


def of(subject: Subject, *names: str) -> list[Case]:
    return list(_in_layouts(subject, first(subject), names))


@pytest.mark.parametrize("shape", RANKS)
@pytest.mark.parametrize("name", sorted(set(LAYOUTS) - {"expanded"}))
def test_a_layout_keeps_shape_dtype_and_values(name: str, shape: tuple[int, ...]) -> None:
    before = torch.randn(shape, dtype=torch.float64)
    after = LAYOUTS[name](before)
    if after is not None:
        assert (after.shape, after.dtype) == (before.shape, before.dtype)
        assert torch.equal(after, before)


@pytest.mark.parametrize(
    ("name", "shape", "strides"),
    [
        ("transposed", (3, 4), (1, 3)),
        ("transposed", (2, 3, 4), (12, 1, 3)),
        ("reversed", (2, 3, 4), (1, 2, 6)),
        ("permuted", (2, 3, 4), (1, 8, 2)),
        ("channels-last", (2, 3, 4, 5), (60, 1, 15, 3)),
        ("sliced", (3, 4), (8, 2)),
        ("rows-sliced", (3, 4), (7, 1)),
        ("expanded", (3, 4), (0, 1)),
        ("expanded", (1, 4), (0, 0)),
        ("offset-3", (3, 4), (4, 1)),
    ],
)
def test_a_layout_has_its_strides(name: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    after = LAYOUTS[name](torch.randn(shape))
    assert after is not None
    meant = [stride for size, stride in zip(shape, strides, strict=True) if size > 1]
    assert [s for size, s in zip(shape, after.stride(), strict=True) if size > 1] == meant


def test_an_expanded_tensor_repeats_its_first_row() -> None:
    before = torch.randn(3, 4)
    after = LAYOUTS["expanded"](before)
    assert after is not None
    assert torch.equal(after, before[:1].expand(3, 4))


@pytest.mark.parametrize("n", range(1, 16))
def test_an_offset_counts_elements(n: int) -> None:
    (case,) = of(pair(6), f"offset-{n}")
    assert [tensor.storage_offset() for tensor in case.sample.tensors] == [n, n]
    assert all(tensor.data_ptr() % 64 == 4 * n % 64 for tensor in case.make().tensors)


def test_a_layout_of_another_rank_makes_no_case() -> None:
    assert not of(pair(9), "transposed", "reversed", "permuted", "channels-last", "rows-sliced")
    assert not of(pair(), "transposed", "sliced", "expanded")


@pytest.mark.parametrize("shape", [(1, 1), (3, 0), (1, 6)])
def test_a_layout_that_changes_nothing_makes_no_case(shape: tuple[int, ...]) -> None:
    assert not of(pair(*shape), "transposed")


def test_the_layout_is_that_of_the_call_that_is_made() -> None:
    (case,) = of(pair(3, 4), "transposed")
    assert case.name == "float32-s0-transposed"
    assert [tensor.stride() for tensor in case.make().tensors] == [(1, 3), (1, 3)]


def test_one_argument_alone_leaves_the_others() -> None:
    one = pair(3, 4)
    cases = {case.name: case for case in _in_layouts(one, first(one), ("transposed",), alone=True)}
    assert list(cases) == ["float32-s0-transposed-a", "float32-s0-transposed-b"]
    strides = [tensor.stride() for tensor in cases["float32-s0-transposed-b"].sample.tensors]
    assert strides == [(4, 1), (1, 3)]


def test_a_call_with_one_tensor_has_nothing_alone() -> None:
    def negated(a: Tensor) -> Tensor:
        return -a

    one = subject(operator(negated, dotcu.Sample(torch.randn(3, 4)), reference=negated))
    assert not list(_in_layouts(one, first(one), ("transposed",), alone=True))


def test_a_tensor_given_twice_stays_one() -> None:
    x = torch.randn(3, 4)
    one = subject(operator(added, reference=added))
    (case,) = _in_layouts(
        one, Case(dtype=torch.float32, number=0, build=lambda: dotcu.Sample(x, x)), ["transposed"]
    )
    a, b = case.sample.args
    assert a is b


def test_what_is_written_is_never_expanded() -> None:
    def increment(y: Tensor, by: Tensor) -> None:
        y.add_(by)

    sample = dotcu.Sample(torch.randn(3, 4), torch.randn(3, 4))
    one = subject(operator(increment, sample, mutates_args=("y",)))
    (case,) = _in_layouts(one, first(one), ["expanded"])
    assert [tensor.stride() for tensor in case.sample.tensors] == [(4, 1), (0, 1)]


def test_indices_that_fit_no_longer_when_expanded_make_no_case() -> None:
    def spread(x: Tensor, offsets: Tensor) -> Tensor:
        return x.new_empty(offsets.numel() - 1)

    def segments(x: Tensor, offsets: Tensor) -> Tensor:
        return torch.stack([part.sum() for part in x.split(offsets.diff().tolist())])

    sample = dotcu.Sample(torch.randn(6), torch.tensor([0, 2, 6]))
    one = subject(operator(spread, sample, reference=segments))
    made = list(filter(one.takes, _in_layouts(one, first(one), ["expanded"], alone=True)))
    assert [case.name for case in made] == ["float32-s0-expanded-x"]
