"""Progress bars on standard error while a command runs; in a pipe or a file, nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dotcu.cli import console

if TYPE_CHECKING:
    from dotcu.benchmark.results import Row
    from dotcu.checking.trial import Result, Trial

T = TypeVar("T")


def collect(items: Iterable[T], showing: AbstractContextManager[Callable[[T], None]]) -> tuple[list[T], bool]:
    """Take items to their end or to an interrupt; return them, and True if they were interrupted."""
    taken: list[T] = []
    with suppress(KeyboardInterrupt), showing as report:
        for item in items:
            taken.append(item)
            report(item)
        return taken, False
    return taken, True


@contextmanager
def following(trials: Sequence[Trial]) -> Iterator[Callable[[Result], None]]:
    """Show which trial is not done, how many are and how many failed; print the first of each cause at once.

    Yields a function that takes each result.
    """
    from dotcu.checking.report import cause_of
    from dotcu.checking.trial import Failed

    left = {trial.name: f"{trial.overload} {trial.kind}" for trial in trials}
    printed: set[tuple[str, ...]] = set()
    err = console.err()
    with _bar(len(trials), next(iter(left.values()), ""), err=err) as show:
        failures = 0

        def report(result: Result) -> None:
            nonlocal failures
            if isinstance(result.outcome, Failed):
                failures += 1
                if (cause := cause_of(result)) not in printed:
                    printed.add(cause)
                    text = f"{result.trial} FAILED {result.check}: {result.outcome.reason}"
                    err.print(text, style="bold red", markup=False, highlight=False, soft_wrap=True)
            left.pop(result.trial, None)
            short = f"{failures} failed" if failures else ""
            show(len(trials) - len(left), next(iter(left.values()), ""), short)

        yield report


@contextmanager
def counting(total: int, doing: str) -> Iterator[Callable[[str], None]]:
    """Show how many items are done, and the last one; yield the function to call for each."""
    with _bar(total, doing) as show:
        done = 0

        def report(name: str) -> None:
            nonlocal done
            done += 1
            show(done, f"{doing} {name}", "")

        yield report


@contextmanager
def measuring(total: int) -> Iterator[Callable[[Row], None]]:
    """Show the last row, how many are done and how many have no figures; yield the function to call for each.

    Nothing is drawn but when a row is done: a thread during the measurement would disturb it.
    """
    with _bar(total, "preparing", refreshes=False) as show:
        done = failures = 0

        def report(row: Row) -> None:
            nonlocal done, failures
            done += 1
            failures += row.status not in ("measured", "skipped")
            name = f"{row.key.op} {row.key.case} {row.key.contender} {row.key.l2}"
            show(done, name, f"{failures} without figures" if failures else "")

        yield report


@contextmanager
def _bar(
    total: int, first: str, *, refreshes: bool = True, err: Console | None = None
) -> Iterator[Callable[[int, str, str], None]]:
    """A bar; gives what sets how many are done, the words before it and those, in red, behind it.

    Args:
        refreshes: Whether a thread keeps the time up to date.
        err: Where it is drawn; by default a new console on standard error.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[short]}", style="bold red"),
        TimeElapsedColumn(),
    )
    err = err or console.err()
    with Progress(
        *columns, console=err, transient=True, disable=not err.is_terminal, auto_refresh=refreshes
    ) as bar:
        task = bar.add_task(first, total=total, short="")

        def show(done: int, words: str, short: str) -> None:
            bar.update(task, completed=done, description=words, short=short, refresh=not refreshes)

        yield show
