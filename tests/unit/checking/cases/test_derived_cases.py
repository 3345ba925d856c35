"""Which derived cases are taken by what they end in."""

from __future__ import annotations

import torch

from dotcu.checking.cases.derived import derived_cases, size_pattern
from helpers.trial_operators import squaring, subject


def names(*endings: str, dtype: torch.dtype = torch.float32) -> list[str]:
    return [case.name for case in derived_cases(subject(squaring()), dtype, endings)]


def test_a_size_is_meant_whole() -> None:
    assert names(size_pattern(1, 33)) == ["float32-s0-n1", "float32-s0-n33"]
    assert {"float32-s0-n0", "float32-s0-n1009"} <= set(names(size_pattern()))


def test_a_layout_is_taken_in_whatever_rank_has_it() -> None:
    assert names("transposed", "sliced") == [
        "float32-s0-2d-transposed",
        "float32-s0-sliced",
        "float32-s0-2d-rows-sliced",
    ]


def test_of_a_dtype_that_the_operator_lacks_there_are_none() -> None:
    assert names("sliced", dtype=torch.float64) == []


def test_a_size_of_several_is_found_by_what_it_became() -> None:
    operator = squaring(sizes=((3, 7),))
    found = {case.name for case in derived_cases(subject(operator), torch.float32, [size_pattern(33)])}
    assert found == {"float32-s0-3as33", "float32-s0-7as33"}
