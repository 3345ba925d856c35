"""How far a check has come, on standard error while it runs; in a pipe or a file, nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dotcu.cli import console

if TYPE_CHECKING:
    from dotcu.checking.outcome import Result
    from dotcu.checking.trial import Trial


@contextmanager
def following(trials: Sequence[Trial]) -> Iterator[Callable[[Result], None]]:
    """Show which trial is not done, how many are and how many fell short; gives what to tell each result."""
    from dotcu.checking.outcome import FellShort

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[short]}", style="bold red"),
        TimeElapsedColumn(),
    )
    err = console.err()
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        left = {trial.name: f"{trial.overload} {trial.kind}" for trial in trials}
        task = bar.add_task(next(iter(left.values()), ""), total=len(trials), short="")
        failures = 0

        def tell(result: Result) -> None:
            nonlocal failures
            failures += isinstance(result.outcome, FellShort)
            left.pop(result.trial, None)
            bar.update(
                task,
                completed=len(trials) - len(left),
                description=next(iter(left.values()), ""),
                short=f"{failures} fell short" if failures else "",
            )

        yield tell
