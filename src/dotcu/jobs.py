"""Jobs: work that gives one item after the other, and a report of those that are done.

`check`, `bench` and `tune` prepare a job each. Here it is run to its end, whether a library's caller asks or
the command line.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

from dotcu.errors import EnvironmentFault

T = TypeVar("T")
R = TypeVar("R", covariant=True)


class JobPlan(Protocol[T, R]):
    """Work that is planned and not begun. A report has `passed`, `interrupted` and `to_json`."""

    def run(self) -> Iterator[T]:
        """Yield each item once it is done."""

    def report(self, items: Sequence[T], *, seconds: float, interrupted: bool) -> R:
        """Return the report of the items that are done."""


def _ignore(shown: Any) -> None:
    pass


def complete(
    job: JobPlan[T, R],
    showing: AbstractContextManager[Callable[[T], None]] | None = None,
    before_fault: Callable[[R], None] = _ignore,
) -> R:
    """Run a job to its end or to an interrupt, and return its report.

    Args:
        showing: Gives the function that is told of each item.
        before_fault: Takes the report of what is done, before an EnvironmentFault is raised; not called if
            nothing is.

    Raises:
        EnvironmentFault: The machine lacks something that the job needs.
    """
    start = time.perf_counter()
    items: list[T] = []
    interrupted, fault = False, None
    try:
        with showing or nullcontext(_ignore) as tell:
            for item in job.run():
                items.append(item)
                tell(item)
    except KeyboardInterrupt:
        interrupted = True
    except EnvironmentFault as error:
        fault = error
    report = None
    if items or fault is None:
        seconds = time.perf_counter() - start
        report = job.report(items, seconds=seconds, interrupted=interrupted or fault is not None)
    if fault is not None:
        if report is not None:
            before_fault(report)
        raise fault
    assert report is not None
    return report
