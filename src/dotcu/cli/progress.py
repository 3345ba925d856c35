"""Progress on standard error while a command runs: a bar; in a pipe or a file, lines of a check."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from dotcu.cli import console
from dotcu.errors import escaped

if TYPE_CHECKING:
    from dotcu.benchmark.results import BenchRow
    from dotcu.checking.results import CheckResult, Trial, TrialId

FIRST_S, NEXT_S = 10.0, 60.0
"""Without a bar, the seconds until a line says how much of a check is left, and until the next one."""


def reports_alone_on_stdout() -> AbstractContextManager[Any]:
    """Return the context in which user code runs: what it prints goes to standard error."""
    return redirect_stdout(sys.stderr)


@contextmanager
def following(trials: Sequence[Trial]) -> Iterator[Callable[[CheckResult | TrialId], None]]:
    """Show which trial is not done, how many are and how many failed; print the first of each cause at once.

    In a pipe, each kind of trial has a line when it is done, and what is left has one now and then.
    Yields a function that takes each result, and the identity of a trial that has none.
    """
    from dotcu.checking.report import cause_of, failure_text, is_explained, of_sample
    from dotcu.checking.results import Failed, TrialId

    left = {trial.id: f"{trial.overload} {trial.kind}" for trial in trials}
    kinds, waiting = Counter(left.values()), Counter(left.values())
    printed: set[str] = set()
    broken: set[str] = set()
    err, start = console.err(), time.monotonic()
    due = start + FIRST_S

    def say(text: str, style: str = "") -> None:
        line, is_cut = Text(text, style=style), err.is_terminal
        err.print(line, no_wrap=True, overflow="ellipsis" if is_cut else "ignore", crop=is_cut)

    with _bar(len(trials), next(iter(left.values()), ""), err=err) as show:
        failures = 0

        def report(result: CheckResult | TrialId) -> None:
            nonlocal failures, due
            trial = result if isinstance(result, TrialId) else result.trial
            if isinstance(result, Failed):
                failures += 1
                broken.update([result.trial.overload] if of_sample(result) else [])
                if is_explained(result, broken):
                    pass  # it says nothing that the failure of a sample has not said
                elif (cause := cause_of(result)) not in printed:
                    head, *more = failure_text(result).splitlines()
                    # in a pipe the first one whole: the check may be ended before there is a report
                    whole = not printed and not err.is_terminal
                    say("\n".join([head, *more]) if whole else head, "bold red")
                    printed.add(cause)
            kind, now = left.pop(trial, ""), time.monotonic()
            waiting[kind] -= 1
            if kind and not waiting[kind] and not err.is_terminal:
                say(f"{kind}: {kinds[kind]} done, at {now - start:.1f} s")
            if kind and left and now >= due and not err.is_terminal:
                done = len(trials) - len(left)
                rest = (now - start) * len(left) / done
                say(f"{done} of {len(trials)} done in {now - start:.0f} s; about {rest:.0f} s more")
                due = now + NEXT_S
            short = f"{failures} failed" if failures else ""
            show(len(trials) - len(left), next(iter(left.values()), ""), short)

        yield report


@contextmanager
def counting(total: int | None, doing: str) -> Iterator[Callable[[object], None]]:
    """Show how many items are done, and the last one; yield the function to call for each.

    In a pipe, a line says now and then what is left.

    Args:
        total: None if it is not known.
        doing: The words before an item.
    """
    err = console.err()
    with _bar(total, doing, err=err) as show:
        done, start = 0, time.monotonic()
        due = start + FIRST_S

        def report(item: object) -> None:
            nonlocal done, due
            done += 1
            show(done, f"{doing} {item}", "")
            now = time.monotonic()
            if now >= due and done != total and not err.is_terminal:
                rest = f" of {total}" if total else ""
                left = f"; about {(now - start) * (total - done) / done:.0f} s more" if total else ""
                say = f"{doing}: {done}{rest} done in {now - start:.0f} s{left}"
                err.print(say, markup=False, highlight=False, soft_wrap=True)
                due = now + NEXT_S

        yield report


@contextmanager
def measuring(total: int) -> Iterator[Callable[[BenchRow], None]]:
    """Show the last row, how many are done and how many have no figures; yield the function to call for each.

    Nothing is drawn but when a row is done: a thread during the measurement would disturb it.
    """
    with _bar(total, "preparing", refreshes=False) as show:
        done = failures = 0

        def report(row: BenchRow) -> None:
            nonlocal done, failures
            done += 1
            failures += row.status not in ("measured", "skipped")
            name = f"{row.key.op} {row.key.case} {row.key.contender} {row.key.l2}"
            show(done, name, f"{failures} without figures" if failures else "")

        yield report


@contextmanager
def _bar(
    total: int | None, first: str, *, refreshes: bool = True, err: Console | None = None
) -> Iterator[Callable[[int, str, str], None]]:
    """Show a bar while user code runs; yield what sets how many are done, and the words before and behind it.

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
        TimeRemainingColumn(),
    )
    err = err or console.err()
    drawn = Progress(
        *columns, console=err, transient=True, disable=not err.is_terminal, auto_refresh=refreshes
    )
    with reports_alone_on_stdout(), drawn as bar:
        task = bar.add_task(escaped(first), total=total, short="")

        def show(done: int, words: str, short: str) -> None:
            bar.update(task, completed=done, description=escaped(words), short=short, refresh=not refreshes)

        yield show
