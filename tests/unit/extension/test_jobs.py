"""Jobs at once are bounded by cores and by memory, and one failure stops the rest."""

from __future__ import annotations

import pytest

from dotcu.extension import jobs

GB = 1 << 30


@pytest.mark.parametrize(
    ("count", "cores", "free", "expected"),
    [(8, 4, 64 * GB, 4), (3, 16, 64 * GB, 3), (8, 16, 5 * GB, 2), (8, 16, GB // 2, 1), (8, 2, None, 2)],
)
def test_the_bound(count: int, cores: int, free: int | None, expected: int) -> None:
    assert jobs.bound(count, cores=cores, free_bytes=free) == expected


def test_the_free_memory_of_this_machine_is_known_and_positive() -> None:
    assert (jobs.free_bytes() or 0) > 0


def test_results_come_in_the_order_of_the_items() -> None:
    assert jobs.each(lambda item: item * 2, [3, 1, 2]) == [6, 2, 4]


def test_the_first_error_is_raised() -> None:
    def work(item: int) -> int:
        if item == 1:
            raise ValueError("one")
        return item

    with pytest.raises(ValueError, match="one"):
        jobs.each(work, [0, 1, 2])
