from __future__ import annotations

import pytest

from dotcu.benchmark.limits.limit import Points, _in_words, _time_us


def bandwidth_gbps(read: int, written: int, points: Points) -> float:
    return (read + written) / _time_us(read, written, points) / 1e3


POINTS = ((0.0, 4420.0), (1 / 3, 4390.0), (0.5, 4260.0), (1.0, 4680.0))


@pytest.mark.parametrize(
    ("read", "written", "gbps"), [(8, 0, 4420), (2, 1, 4390), (5, 5, 4260), (0, 3, 4680)]
)
def test_a_mix_that_was_measured_has_the_bandwidth_that_was_measured(
    read: int, written: int, gbps: float
) -> None:
    assert bandwidth_gbps(read, written, POINTS) == pytest.approx(gbps)


def test_between_two_mixes_it_is_the_time_for_a_byte_that_is_interpolated() -> None:
    half_way = bandwidth_gbps(1, 3, ((0.0, 100.0), (0.5, 1000.0), (1.0, 500.0)))
    assert half_way == pytest.approx(2 / (1 / 1000 + 1 / 500))
    assert half_way < 750, "the mean of the bandwidths would be too good"


def test_a_mix_lies_between_its_neighbours() -> None:
    for read in range(1, 50):
        assert 4260 <= bandwidth_gbps(read, 50 - read, POINTS) <= 4680


def test_time_is_bytes_over_bandwidth() -> None:
    assert _time_us(2 << 32, 1 << 32, POINTS) == pytest.approx(3 * 2**32 / 4390e9 * 1e6)


def test_nothing_takes_no_time() -> None:
    assert _time_us(0, 0, POINTS) == 0


@pytest.mark.parametrize(
    ("read", "written", "words"),
    [
        (800, 0, "reads alone"),
        (0, 800, "writes alone"),
        (800, 400, "2 reads to 1 write"),
        (400, 400, "1 read to 1 write"),
        (400, 1200, "1 read to 3 writes"),
        (801, 400, "2 reads to 1 write"),
        (500, 300, "62 % reads"),
        (4096, 4, "100 % reads"),
    ],
)
def test_a_mix_in_words(read: int, written: int, words: str) -> None:
    assert _in_words(read, written) == words
