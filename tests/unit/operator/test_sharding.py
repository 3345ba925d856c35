"""Words for how tensors are split over ranks: what they mean, and which are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu.gallery
from dotcu.errors import UsageError
from dotcu.operator.sharding import Sharding
from helpers.derivable_operators import operator


def norm(x: Tensor, weight: Tensor, eps: float = 1.0) -> tuple[Tensor, Tensor]:
    return x * weight, x.sum(-1)


def meaning(sharding: Sharding, *args: object, body: object = norm) -> list[str]:
    """The rules of a declaration for a call."""
    op = operator(body)  # type: ignore[arg-type]
    op.sharding(sharding)
    return [str(rule) for rule in op.sharding_rules(args, {})]


def test_rows_are_every_dimension_but_the_last() -> None:
    said = meaning("x:rows -> rows, rows", torch.empty(2, 3, 4), torch.empty(4))
    assert said == ["x:0 -> 0, 0", "x:1 -> 1, 1"]
    assert meaning("x:rows -> rows, rows", torch.empty(4), torch.empty(4)) == []


def test_a_rule_for_more_dimensions_than_a_tensor_has_is_left_out() -> None:
    words = ("x:0 -> 0, 0", "x:1 -> 1, sum")
    assert meaning(words, torch.empty(4), torch.empty(4)) == ["x:0 -> 0, 0"]


@pytest.mark.parametrize(
    ("shapes", "rules"),
    [
        (((4, 5), (4, 5)), ["a:0 b:0 -> 0", "a:1 b:1 -> 1"]),
        (((4, 5), (5,)), ["a:0 -> 0", "a:1 b:0 -> 1"]),
        (((7, 1, 5), (3, 1)), ["a:0 -> 0", "b:0 -> 1", "a:2 -> 2"]),
        (((), ()), []),
    ],
)
def test_elementwise_splits_what_is_broadcast_where_it_has_the_dimension(
    shapes: Sequence[Sequence[int]], rules: list[str]
) -> None:
    def add(a: Tensor, b: Tensor) -> Tensor:
        return a + b

    assert meaning("elementwise", *map(torch.empty, shapes), body=add) == rules


def test_a_function_says_rules_by_the_arguments() -> None:
    def along(x: Tensor, dim: int = -1) -> Tensor:
        return x.cumsum(dim)

    op = operator(along)

    @op.sharding
    def _(x: Tensor, dim: int = -1) -> list[str]:
        return [f"x:{other} -> {other}" for other in range(x.ndim) if other != dim % x.ndim]

    assert [str(rule) for rule in op.sharding_rules((torch.empty(2, 3, 4), 1), {})] == [
        "x:0 -> 0",
        "x:2 -> 2",
    ]


@pytest.mark.parametrize("many", [False, True])
def test_a_function_that_asks_more_of_a_tensor_than_its_shape_fails_without_dtensors_too(many: bool) -> None:
    def along(x: list[Tensor]) -> Tensor:
        return x[0].clone()

    def by_numel(x: Any, *rest: Any) -> list[str]:
        return ["x:0 -> 0"] * (x[0] if many else x).numel()

    x = torch.empty(2, 3)
    with pytest.raises(AttributeError, match=r"asks a tensor for numel(.|\n)*type: x\.shape\.numel\(\)"):
        meaning(by_numel, [x], body=along) if many else meaning(by_numel, x, torch.empty(3))


def test_scales_of_rows_are_split_with_the_rows_and_one_scale_is_whole() -> None:
    a, b = torch.empty(4, 3).to(torch.float8_e4m3fn), torch.empty(3, 5).to(torch.float8_e4m3fn)

    def said(*rest: Tensor) -> list[str]:
        return [str(rule) for rule in dotcu.gallery.matmul_fp8.sharding_rules((a, b, *rest), {})]

    assert said(torch.empty(1), torch.empty(1)) == ["a:0 -> 0"]
    assert said(torch.empty(4, 1), torch.empty(1, 5), torch.empty(5)) == [
        "a:0 scale_a:0 -> 0",
        "b:1 scale_b:1 bias:0 -> 1",
    ]
    assert said(torch.empty(1, 4), torch.empty(5, 1)) == ["a:0 scale_a:1 -> 0", "b:1 scale_b:0 -> 1"]
    assert said(torch.empty(2, 2), torch.empty(5)) == ["b:1 scale_b:0 -> 1"]


def test_an_out_overload_is_split_as_its_result() -> None:
    rules = dotcu.gallery.matmul.overloads["out"].sharding_rules(
        (torch.empty(2, 3), torch.empty(3, 4)), {"out": torch.empty(2, 4)}
    )
    assert [str(rule) for rule in rules] == ["a:0 -> 0", "b:1 -> 1", "a:1 b:0 -> sum"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("x:0", "it has another form"),
        ("x -> 0, 0", "it has another form"),
        ("y:0 -> 0, 0", "y is no argument; tensors are x, weight"),
        ("x:0 eps:0 -> 0, 0", "eps is no tensor"),
        ("x:0 -> 0", "it has 1 places for 2 results"),
        ("x:-1 -> 0, 0", "'-1' is no place"),
        ("x:0 -> 0, total", "'total' is no place"),
        (("x:0 -> 0, 0", 3), "a rule is text"),
    ],
)
def test_words_of_another_form_are_refused_with_a_line_to_type(words: Sharding, why: str) -> None:
    with pytest.raises(UsageError, match="cannot be sharded by") as caught:
        meaning(words, torch.empty(2, 3), torch.empty(3))
    assert why in str(caught.value)
    assert "sharding='x:0 -> 0, 0'" in str(caught.value)


def test_every_operator_of_the_gallery_declares_its_sharding() -> None:
    ops = (getattr(dotcu.gallery, name) for name in dotcu.gallery.__all__)
    silent = [o.qualified_name for op in ops for o in op.overloads.values() if o.declared_sharding is None]
    assert silent == []


def test_every_function_of_the_gallery_asks_for_shapes_alone_on_its_samples() -> None:
    ops = (getattr(dotcu.gallery, name) for name in dotcu.gallery.__all__)
    overloads = [o for op in ops for o in op.overloads.values() if callable(o.declared_sharding)]
    assert len(overloads) > 10
    for overload in overloads:
        for sample in overload.make_samples(torch.device("cpu"), overload.dtypes[0]):
            overload.sharding_rules(sample.args, sample.kwargs)
