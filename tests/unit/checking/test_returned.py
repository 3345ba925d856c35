"""A result is plain memory of its own, each element of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dotcu import errors
from dotcu.checking.memory import opaque, require_memory, shared, span

CPU = torch.device("cpu")


class Named(torch.Tensor):
    """A tensor by another name."""


def without_memory() -> Tensor:
    tensor = torch.ones(5)
    tensor.untyped_storage().resize_(12)
    return tensor


OPAQUE = [
    (torch.ones(2).as_subclass(Named), "output 0 is a Named, not a torch.Tensor"),
    (torch.nn.Parameter(torch.ones(2)), "output 0 is a Parameter, not a torch.Tensor"),
    (torch.ones(2, device="meta"), "output 0 is on meta, its inputs on cpu"),
    (torch.eye(2).to_sparse(), "output 0 has the layout torch.sparse_coo, not torch.strided"),
]


@pytest.mark.parametrize(("tensor", "said"), OPAQUE)
def test_what_cannot_be_read_as_it_seems_is_reported(tensor: Tensor, said: str) -> None:
    assert opaque([tensor], CPU) == [said]


@pytest.mark.parametrize("tensor", [torch.ones(3), torch.ones(6)[::2], torch.ones(()), torch.ones(0, 3)])
def test_plain_memory_is_readable_and_its_own(tensor: Tensor) -> None:
    assert opaque([tensor], CPU) == []
    assert list(shared([tensor], [(span(torch.ones(3)), "argument 0")])) == []


def test_memory_that_is_too_small_is_refused() -> None:
    require_memory([torch.ones(3), torch.ones(0), torch.ones(2, device="meta"), torch.eye(2).to_sparse()])
    with pytest.raises(errors.BodyError, match="output 1 needs 20 bytes of memory, and has 12"):
        require_memory([torch.ones(3), without_memory()])


def test_the_output_is_named() -> None:
    assert opaque([torch.ones(1), torch.ones(1, device="meta")], CPU)[0].startswith("output 1 ")


@pytest.mark.parametrize("at", [slice(0, 4), slice(3, 8), slice(None, None, 2)])
def test_memory_of_an_input_is_reported_also_in_part(at: slice) -> None:
    x = torch.ones(8)
    assert list(shared([x[at]], [(span(x), "argument 0")])) == ["output 0 is memory of argument 0"]


def test_memory_of_another_output_is_reported() -> None:
    x = torch.ones(8)
    assert list(shared([x[:5], x[4:]], [])) == ["output 1 is memory of output 0"]
    assert list(shared([x[:4], x[4:]], [])) == []


REPEATING = [torch.ones(1).expand(4), torch.ones(3, 1).expand(3, 2), torch.ones(9).unfold(0, 4, 1)]


@pytest.mark.parametrize("tensor", REPEATING)
def test_elements_that_share_memory_are_reported(tensor: Tensor) -> None:
    said = f"output 0 has elements that share memory: its strides are {list(tensor.stride())}"
    assert list(shared([tensor], [])) == [said]


def test_a_stride_of_0_that_means_nothing_is_none_of_these() -> None:
    assert list(shared([torch.ones(1).as_strided((1, 1), (0, 0)), torch.ones(1).expand(0)], [])) == []
