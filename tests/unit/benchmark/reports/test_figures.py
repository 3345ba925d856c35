"""Numbers as people read them."""

from __future__ import annotations

import pytest

from dotcu.benchmark.reports.table import merged, ratio_text, reached_rate, si, us
from dotcu.benchmark.statistics import Ratio
from dotcu.benchmark.work import Work
from helpers.bench_reports import near, row


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 B"),
        (12, "12 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (9.996e3, "10.0 kB"),
        (99.96e3, "100 kB"),
        (999_600, "1.00 MB"),
        (201_326_592, "201 MB"),
        (4.374e12, "4.37 TB"),
        (0.5, "0.50 B"),
        (3e18, "3000 PB"),
    ],
)
def test_three_digits_and_a_prefix(value: float, expected: str) -> None:
    assert si(value, "B") == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(46.023, "46.02"), (2934.74, "2934.74"), (0.00281, "0.0028"), (2.5e-6, "<0.001"), (0.0, "0.00")],
)
def test_times_have_two_decimals_unless_nothing_would_remain(value: float, expected: str) -> None:
    assert us(value) == expected


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (near(1.124), "1.12"),
        (near(0.94), "0.94"),
        (near(1.001), "≈1.00"),
        (Ratio(value=12.34, low=12.0, high=12.9), "12.3"),
        (Ratio(value=123.4, low=120.0, high=129.0), "123"),
    ],
)
def test_a_ratio_says_whether_it_is_one(ratio: Ratio, expected: str) -> None:
    assert ratio_text(ratio) == expected


def test_a_rate_is_in_the_unit_of_what_limits_it() -> None:
    work = Work(read_bytes=67_108_864, written_bytes=33_554_432, flops=2 * 4096**3, dtype="bfloat16")
    assert reached_rate(row(175.1, work=work, what="matrix, bfloat16, 794 TFLOP/s")) == "785 TFLOP/s"
    assert reached_rate(row(175.1, work=work, what="memory, 2 reads to 1 write, 4.39 TB/s")) == "575 GB/s"
    assert reached_rate(row(175.1, work=work, limit_us=None)) == "575 GB/s"


def test_what_moves_nothing_has_the_rate_of_its_operations_or_none() -> None:
    busy = Work(read_bytes=0, written_bytes=0, flops=10**9)
    assert reached_rate(row(10.0, work=busy, limit_us=None)) == "100 TFLOP/s"
    assert reached_rate(row(10.0, work=Work(read_bytes=0, written_bytes=0), limit_us=None)) == ""
    assert reached_rate(row(None)) == ""


def test_texts_that_differ_in_numbers_alone_become_one_with_ranges() -> None:
    texts = [
        "power cap in 12 of 40 blocks",
        "noisy",
        "power cap in 31 of 40 blocks",
        "power cap in 3 of 40 blocks",
    ]
    expected = merged(texts)
    assert set(expected) == set(texts)
    assert set(expected.values()) == {"power cap in 3 to 31 of 40 blocks", "noisy"}


@pytest.mark.parametrize(
    "names", [("float32-4096x4096", "float32-64x64"), ("2^20 elements", "2^21 elements")]
)
def test_numbers_that_are_part_of_a_name_stay(names: tuple[str, str]) -> None:
    assert list(merged(names).values()) == list(names)


def test_decimals_are_compared_as_numbers() -> None:
    assert set(merged(["at 9.50 %", "at 10.2 %"]).values()) == {"at 9.50 to 10.2 %"}
