"""`dotcu tune TARGET`: choose the fastest configurations on this GPU; show, join and judge tuned files."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dotcu.cli import AsJson, Files, Number, Seed, TargetArg, Word, console, names, number, progress
from dotcu.errors import EXIT_FAILED, UsageError

if TYPE_CHECKING:
    from dotcu.operator.tuned import TunedEntry


def command(
    target: TargetArg,
    shapes: Annotated[
        Word,
        typer.Option(metavar="SIZES", help="of the first tensor, 4096x4096,2^28, or of each, 64x32:32x16"),
    ] = None,
    dtypes: Annotated[
        Word, typer.Option(metavar="NAMES", help="some of the operator's: float32,bfloat16")
    ] = None,
    budget: Annotated[
        Number,
        typer.Option(
            metavar="SECONDS",
            parser=number(float, "a number of seconds above 0", lambda seconds: seconds > 0),
            help="the time for all cases; then the best found so far is kept",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="check by derived cases and by the simulator, too")
    ] = False,
    counters: Annotated[
        bool, typer.Option("--counters", help="reject by bank conflicts and sectors in the simulator, too")
    ] = False,
    device: Annotated[Word, typer.Option(help="cuda, cuda:1 or simulator; default: a GPU, if any")] = None,
    seed: Seed = 0,
    show: Annotated[bool, typer.Option("--show", help="show the entries of the file")] = False,
    stale: Annotated[
        bool, typer.Option("--stale", help="show the entries that no longer fit their source")
    ] = False,
    merge: Annotated[
        Files, typer.Option(metavar="FILE", help="add the entries of another file; may be repeated")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Choose the fastest configurations of operators on this GPU, and write them into ops.tuned.toml."""
    chosen = [name for name, given in (("--show", show), ("--stale", stale), ("--merge", merge)) if given]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} were given together; give one of them.")
    with progress.reports_alone_on_stdout():
        from dotcu.checking.target import resolve
        from dotcu.tuning import tuner

        operators = [operator for _, operator in resolve(target, verb="tune")]
        if ":" not in target:  # of a whole module those that have something to choose
            operators = tuner.with_configurations(operators) or operators
    if merge:
        left_out = tuner.merge(operators, merge)
        for name, entry, why in left_out:
            console.note(f"{name} {entry.gpu} {entry.key}: {why}")
    if chosen:
        _show_entries(tuner.entries(operators), stale=stale, as_json=as_json)
        return
    from dotcu import jobs

    with progress.reports_alone_on_stdout():
        plan = tuner.prepare(
            operators, shapes=shapes or (), dtypes=names(dtypes) or (), device=device, full=full,
            counters=counters, budget_s=budget, seed=seed,
        )  # fmt: skip
    showing = progress.counting(len(plan.cases), "tuned")
    report = jobs.complete(plan, showing, partial(console.report, wants_json=as_json))
    console.finish(report, as_json)


def _show_entries(found: list[tuple[str, TunedEntry, str]], *, stale: bool, as_json: bool) -> None:
    """Print entries; with `stale` those that are left out, and fail if there are any."""
    from dotcu.serialize import plain
    from dotcu.tuning.report import entries_table

    shown = [each for each in found if each[2] or not stale]
    if as_json:
        rows: list[dict[str, Any]] = [
            {"op": name, **plain(entry), "left_out": why} for name, entry, why in shown
        ]
        console.as_json({"entries": rows})
    elif shown:
        console.show(entries_table(shown))
    else:
        console.print_line("no entry is stale" if stale and found else "nothing is tuned yet")
    if stale and shown:
        raise typer.Exit(EXIT_FAILED)
