"""Arguments that an operator may refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking.cases.samples import Case
from dotcu.checking.trials.errors import DTYPES, wrong_calls
from helpers.derivable_operators import first, operator, subject


def added(a: Tensor, b: Tensor, alpha: int = 1, *, block_size: int = 256) -> Tensor:
    return a + alpha * b


def reference(a: Tensor, b: Tensor, alpha: int = 1, **launch: int) -> Tensor:
    return a + alpha * b


def of(
    *args: Any, body: Callable[..., Any] = added, refer: Callable[..., Any] | None = reference, **kwargs: Any
) -> dict[str, Case]:
    one = subject(operator(body, dotcu.Sample(*args, **kwargs), reference=refer))
    return {each.name.removeprefix("float32-s0-"): each for each in wrong_calls(one, first(one))}


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    return torch.randn(3, 4), torch.randn(3, 4)


def test_each_tensor_comes_in_each_other_dtype(pair: tuple[Tensor, Tensor]) -> None:
    made = of(*pair)
    for dtype in set(DTYPES) - {torch.float32}:
        a, b = made[f"b-{str(dtype).removeprefix('torch.')}"].sample.args
        assert (a.dtype, b.dtype) == (torch.float32, dtype)
    assert "a-float32" not in made


@pytest.mark.parametrize(
    ("word", "shape"),
    [
        ("unsqueezed", (1, 3, 4)),
        ("flattened", (12,)),
        ("0d", ()),
        ("wider", (3, 5)),
        ("taller", (4, 4)),
        ("emptied", (0, 4)),
    ],
)
def test_each_tensor_comes_in_other_shapes(
    pair: tuple[Tensor, Tensor], word: str, shape: tuple[int, ...]
) -> None:
    a, b = of(*pair)[f"a-{word}"].sample.args
    assert (a.shape, b.shape) == (shape, (3, 4))


def test_no_tensor_is_emptied_beside_indices_into_it() -> None:
    made = of(torch.randn(6, 2), torch.tensor([0, 2, 5]))
    assert "a-emptied" not in made
    assert {"a-taller", "b-emptied"} <= set(made)


def test_offsets_with_one_more_still_ascend() -> None:
    _, offsets = of(torch.randn(6), torch.tensor([0, 2, 6]))["b-wider"].sample.args
    assert offsets.tolist() == [0, 2, 6, 6]


def test_each_tensor_comes_on_another_device_and_not_at_all(pair: tuple[Tensor, Tensor]) -> None:
    made = of(*pair)
    assert [tensor.device.type for tensor in made["b-on-meta"].sample.args] == ["cpu", "meta"]
    assert made["b-none"].sample.args[1] is None


def test_shapes_that_a_rank_does_not_have_are_left_out() -> None:
    made = of(torch.randn(()), torch.randn(5))
    assert {"a-0d", "a-wider", "a-emptied", "b-taller", "b-flattened"}.isdisjoint(made)
    assert {"a-unsqueezed", "b-wider"} <= set(made)


def test_a_far_number_is_only_given_where_no_reference_reads_it(pair: tuple[Tensor, Tensor]) -> None:
    made = of(*pair, 2, block_size=64)
    numbers = [name for name in made if name.startswith(("alpha", "block_size"))]
    own = ["alpha-0", "alpha--1", "alpha-one-more", "alpha-threefold"]
    assert numbers == [*own, "block_size-0", "block_size--1", f"block_size-{2**40}"]
    assert made["block_size-0"].sample.kwargs == {"block_size": 0}


def test_a_number_that_is_given_is_not_given_again(pair: tuple[Tensor, Tensor]) -> None:
    assert "alpha-0" not in of(*pair, 0)


def test_calls_of_no_schema_can_never_be(pair: tuple[Tensor, Tensor]) -> None:
    made = {name: each.sample for name, each in of(*pair, 2, block_size=64).items() if each.never}
    calls = {"one-missing", "one-too-many", "unknown-keyword", "text-for-a-number"}
    assert set(made) == {"a-none", "b-none"} | calls
    assert "b" not in made["one-missing"].kwargs
    assert len(made["one-too-many"].args) == 4
    assert made["text-for-a-number"].args[2] == "1"


def test_every_call_is_in_memory_of_its_own(pair: tuple[Tensor, Tensor]) -> None:
    for each in of(*pair, 2).values():
        for tensor in each.sample.tensors:
            assert tensor.is_meta or tensor.data_ptr() not in {x.data_ptr() for x in pair}


def scaled(a: Tensor, scale: float, negate: bool) -> Tensor:
    return torch.empty_like(a)


def test_a_float_and_a_bool_are_other_ones(pair: tuple[Tensor, Tensor]) -> None:
    made = of(pair[0], 0.5, True, body=scaled, refer=None)
    given = {
        name: made[name].sample.args[1:]
        for name in ("scale-more", "scale-opposite", "scale-zero", "negate-negated")
    }
    assert given == {
        "scale-more": (1.0, True),
        "scale-opposite": (-0.5, True),
        "scale-zero": (0.0, True),
        "negate-negated": (0.5, False),
    }


def indexed(a: Tensor, b: Tensor | None) -> Tensor:
    return torch.empty_like(a)


def test_only_a_tensor_that_may_be_none_may_be_none(pair: tuple[Tensor, Tensor]) -> None:
    made = of(*pair, body=indexed, refer=None)
    assert (made["a-none"].never, made["b-none"].never) == (True, False)
