"""Dtypes by name."""

from __future__ import annotations

import pytest
import torch

from dotcu.benchmark.workloads import choose_dtypes
from dotcu.errors import UsageError
from dotcu.operator import Operator
from helpers.derivable_operators import operator


@pytest.fixture(scope="module")
def overload() -> Operator:
    def body(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    return operator(body, dtypes=(torch.float32, torch.bfloat16, torch.int8))


def test_names_and_dtypes_pick_and_none_takes_all(overload: Operator) -> None:
    assert choose_dtypes(overload, ["float32", "bf16", torch.int8, "torch.int8"]) == (
        torch.float32,
        torch.bfloat16,
        torch.int8,
    )
    assert len(choose_dtypes(overload, [])) == 3


def test_an_unknown_one_is_answered_with_the_nearest(overload: Operator) -> None:
    with pytest.raises(UsageError, match=r"no dtype 'float16'; it has[\s\S]*--dtypes \w*float\w*"):
        choose_dtypes(overload, ["half"])
