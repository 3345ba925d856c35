"""The large trial with a few dozen elements in place of 2^31: which sizes grow, and with what."""

from __future__ import annotations

import math

import pytest
import torch

from dotcu.checking.cases.samples import Case
from dotcu.checking.trials import gpu
from dotcu.checking.trials.gpu import enlarged, growing
from dotcu.operator import Sample


def sample(*shapes: tuple[int, ...]) -> Sample:
    return Sample(*(torch.randn(shape) for shape in shapes))


@pytest.mark.parametrize(
    ("shape", "old", "count"), [((1000,), 1000, 1), ((3, 7), 7, 1), ((20, 20), 20, 2), ((2, 5, 5, 5), 5, 3)]
)
def test_a_size_grows_to_the_least_that_is_enough(shape: tuple[int, ...], old: int, count: int) -> None:
    new = growing(sample(shape))[old]
    rest = math.prod(shape) // old**count
    assert rest * new**count >= gpu.ELEMENTS > rest * (new - 1) ** count


def test_sizes_of_the_largest_tensor_grow_and_ones_and_strided_tensors_do_not() -> None:
    assert set(growing(sample((4, 6), (6, 2)))) == {4, 6}
    assert set(growing(sample((1, 6), (3,)))) == {6}
    assert growing(Sample(torch.randn(4, 6).T)) == {}
    assert growing(Sample(3)) == {}


def test_equal_sizes_grow_together_and_elements_are_those_of_the_sample_in_no_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu, "CHUNK", 16)
    a, b = torch.arange(4.0), torch.arange(8.0).view(2, 4)
    case = Case(dtype=torch.float32, number=0, build=lambda: Sample(a, b, a, scale=4))
    made = enlarged(case.sample, old=4, new=11)
    assert [tuple(tensor.shape) for tensor in made.tensors] == [(11,), (2, 11), (11,)]
    assert made.args[0] is made.args[2], "one tensor stays one tensor"
    assert made.kwargs["scale"] == 4
    assert set(made.args[0].tolist()) <= set(range(4))
    elements = made.args[1].flatten().tolist()
    assert 3 < len(set(elements)) <= 8
    assert elements[:16] != elements[-16:], "no part of it is another"
    again = enlarged(case.sample, old=4, new=11)
    assert torch.equal(again.args[1], made.args[1])
