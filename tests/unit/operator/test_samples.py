"""A sample is one call's arguments, and says in words what they are."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import dotcu


def test_a_sample_keeps_positional_and_keyword_arguments() -> None:
    sample = dotcu.Sample(1, alpha=2)
    assert (sample.args, dict(sample.kwargs)) == ((1,), {"alpha": 2})


def test_a_sample_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="not changed"):
        dotcu.Sample(1).args = ()
    with pytest.raises(TypeError):
        dotcu.Sample(a=1).kwargs["a"] = 2  # type: ignore[index]


def test_tensors_are_mapped_wherever_they_stand() -> None:
    sample = dotcu.Sample([torch.ones(1), 3], x=torch.ones(2))
    doubled = sample.map_tensors(torch.Tensor.double)
    assert [t.dtype for t in doubled.tensors] == [torch.float64] * 2
    assert doubled.args[0][1] == 3


def test_the_repr_reports_layouts() -> None:
    view = torch.ones(4, 6).t()[1:]
    assert repr(dotcu.Sample(view, 2)) == "Sample(float32[5, 4] strides [1, 6] offset 1, 2)"


def test_tensors_come_in_the_order_of_the_arguments() -> None:
    first, second, named = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    assert [t.numel() for t in dotcu.Sample(first, [second], named=named).tensors] == [1, 2, 3]


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda sample: pickle.loads(pickle.dumps(sample))]
)
def test_a_sample_is_copied_and_pickled(again: object) -> None:
    sample = dotcu.Sample(torch.ones(3), [torch.zeros(2)], alpha=0.5)
    assert callable(again)
    other = again(sample)
    assert repr(other) == repr(sample)
    assert torch.equal(other.args[0], sample.args[0])
    assert dict(other.kwargs) == {"alpha": 0.5}
    with pytest.raises(AttributeError, match="not changed after it is made"):
        other.args = ()
