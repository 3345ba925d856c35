"""A job gives its report, whether it ends, is interrupted, or lacks something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import pytest

from dotcu import jobs
from dotcu.errors import EnvironmentFault


@dataclass(frozen=True, kw_only=True)
class Done:
    items: tuple[int, ...]
    interrupted: bool


@dataclass(frozen=True, kw_only=True)
class Counting:
    """Counts from 0 on, and ends with an error if it has one."""

    items: int = 3
    error: BaseException | None = None

    def run(self) -> Iterator[int]:
        yield from range(self.items)
        if self.error is not None:
            raise self.error

    def report(self, items: Sequence[int], *, seconds: float, interrupted: bool) -> Done:
        assert seconds >= 0.0
        return Done(items=tuple(items), interrupted=interrupted)


def test_a_job_that_ends_reports_every_item() -> None:
    assert jobs.complete(Counting()) == Done(items=(0, 1, 2), interrupted=False)


def test_each_item_is_shown_as_it_is_done() -> None:
    shown: list[int] = []
    jobs.complete(Counting(), nullcontext(shown.append))
    assert shown == [0, 1, 2]


def test_an_interrupt_keeps_what_is_done() -> None:
    assert jobs.complete(Counting(error=KeyboardInterrupt())) == Done(items=(0, 1, 2), interrupted=True)


@pytest.mark.parametrize(("items", "kept"), [(2, [Done(items=(0, 1), interrupted=True)]), (0, [])])
def test_what_the_machine_lacks_is_raised_after_the_report_of_what_is_done(
    items: int, kept: list[Done]
) -> None:
    reports: list[Done] = []
    job = Counting(items=items, error=EnvironmentFault("no compiler"))
    with pytest.raises(EnvironmentFault, match="no compiler"):
        jobs.complete(job, before_fault=reports.append)
    assert reports == kept


def test_another_error_is_raised_at_once() -> None:
    with pytest.raises(ZeroDivisionError):
        jobs.complete(Counting(error=ZeroDivisionError()))
