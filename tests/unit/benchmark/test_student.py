"""Student's t against the printed tables."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest

from dotcu.benchmark import statistics


@pytest.mark.parametrize(
    ("freedom", "t"),
    [(1, 63.657), (2, 9.925), (3, 5.841), (4, 4.604), (9, 3.250), (10, 3.169), (39, 2.708), (60, 2.660)],
)
def test_quantiles_are_those_of_the_tables(freedom: int, t: float) -> None:
    assert statistics.t_quantile(0.99, freedom) == pytest.approx(t, abs=6e-4)


def test_many_degrees_of_freedom_are_the_normal_distribution() -> None:
    assert statistics.t_quantile(0.95, 5000) == pytest.approx(NormalDist().inv_cdf(0.975), abs=1e-3)


@pytest.mark.parametrize("freedom", [1, 2, 7, 8])
def test_nothing_lies_within_no_errors_and_all_within_many(freedom: int) -> None:
    assert statistics.t_probability(0.0, freedom) == 0.0
    assert math.isclose(statistics.t_probability(1e9, freedom), 1.0, abs_tol=1e-6)
