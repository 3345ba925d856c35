"""`dotcu bench TARGET`: times operators, and compares with others and with the GPU's limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dotcu.cli import AsJson, File, Integer, TargetArg, Word, console, names, number, progress
from dotcu.errors import EnvironmentFault, UsageError, quoted

if TYPE_CHECKING:
    from dotcu.benchmark.results import L2


def command(
    target: TargetArg,
    against: Annotated[
        Word,
        typer.Option(metavar="NAMES", help="eager, compile, max-autotune, PATH:function; by commas"),
    ] = None,
    shapes: Annotated[
        Word,
        typer.Option(metavar="SIZES", help="of the first tensor, 4096x4096,2^28, or of each, 64x32:32x16"),
    ] = None,
    dtypes: Annotated[
        Word, typer.Option(metavar="NAMES", help="some of the operator's: float32,bfloat16")
    ] = None,
    cold: Annotated[bool, typer.Option("--cold", help="only with a cold L2 cache")] = False,
    warm: Annotated[bool, typer.Option("--warm", help="only with a warm L2 cache")] = False,
    save: Annotated[File, typer.Option(metavar="FILE", help="write all samples, as JSON lines")] = None,
    compare: Annotated[File, typer.Option(metavar="FILE", help="compare with a saved run")] = None,
    plot: Annotated[File, typer.Option(metavar="FILE", help="plot the times, as .svg or .png")] = None,
    device: Annotated[Word, typer.Option(help="cuda, cuda:1 or simulator; default: a GPU, if any")] = None,
    gpu: Annotated[
        Word, typer.Option(metavar="NAME", help="without a GPU: the one to compute bounds for; H200")
    ] = None,
    first_call: Annotated[
        bool, typer.Option("--first-call", help="show where the time of the first call goes")
    ] = False,
    ranks: Annotated[
        Integer,
        typer.Option(
            metavar="N",
            parser=number(int, "a number of GPUs, 2 or more", lambda count: count >= 2),
            help="time operators that run across GPUs, on N of them",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time operators, and compare with others and with the GPU's limits."""
    if cold and warm:
        raise UsageError("--cold and --warm were given together; give one of them, or neither for both.")
    if first_call or ranks is not None:
        options = {
            "--against": against, "--shapes": shapes, "--dtypes": dtypes, "--cold": cold, "--warm": warm,
            "--save": save, "--compare": compare, "--plot": plot, "--device": device, "--gpu": gpu,
        }  # fmt: skip
        _otherwise(target, ranks, options, as_json)
        return
    _look_ahead(save=save, compare=compare, plot=plot)
    from dotcu import jobs
    from dotcu.benchmark.bencher import prepare
    from dotcu.checking.target import resolve

    l2: tuple[L2, ...] = ("cold",) if cold else ("warm",) if warm else ("cold", "warm")
    wanted: dict[str, Any] = {
        "against": names(against), "shapes": shapes, "dtypes": names(dtypes), "device": device, "gpu": gpu,
    }  # fmt: skip
    chosen = {name: value for name, value in wanted.items() if value is not None}
    with progress.reports_alone_on_stdout():
        plan = prepare([operator for _, operator in resolve(target, verb="bench")], l2=l2, **chosen)
    report = jobs.complete(plan, progress.measuring(plan.total), partial(console.report, wants_json=as_json))
    files = {"--save": save, "--compare": compare, "--plot": plot}
    for option, path in files.items() if report.estimate is not None else ():
        if path is not None:
            raise EnvironmentFault(
                f"{option} {path} needs times that were measured on a GPU, and this run has only bounds.\n"
                f"Leave {option} out to see the bounds. To see what this machine lacks, type: dotcu doctor"
            )
    if compare is not None and report.rows:
        report = report.compared_with(compare, whole=":" not in target)
    console.report(report, as_json)
    if save is not None and report.rows:
        report.save(save)
    if plot is not None and any(row.time for row in report.rows):
        report.plot(plot)
    console.leave_with(report)


def _otherwise(target: str, ranks: int | None, options: Mapping[str, Any], as_json: bool) -> None:
    """Time something else than calls on one GPU: a first call, or ranks."""
    given = {option: value for option, value in options.items() if value not in (None, False)}
    if ranks is None:
        _first_call(target, list(given), as_json)
    else:
        _ranks(target, ranks, given, as_json)


def _first_call(target: str, given: Sequence[str], as_json: bool) -> None:
    from dotcu.benchmark.first_call import first_call

    if given:
        raise UsageError(
            f"--first-call was given together with {', '.join(given)}.\nIt shows where the time of one call "
            f"goes, and can be combined only with --json.\nType: dotcu bench {quoted(target)} --first-call"
        )
    place, _, name = target.partition(":")
    console.report(first_call(place, name or None), as_json)


def _ranks(target: str, ranks: int, given: Mapping[str, Any], as_json: bool) -> None:
    from dotcu.benchmark.ranks import bench_ranks

    other = [option for option in given if option not in ("--shapes", "--dtypes", "--against")]
    if other:
        raise UsageError(
            f"--ranks was given together with {', '.join(other)}.\nIt goes with --shapes, --dtypes, "
            f"--against and --json.\nType: dotcu bench {quoted(target)} --ranks {ranks}"
        )
    dtypes, against = (names(given.get(option)) or () for option in ("--dtypes", "--against"))
    report = bench_ranks(target, ranks, shapes=given.get("--shapes", ""), dtypes=dtypes, against=against)
    console.finish(report, as_json)


def _look_ahead(*, save: Path | None, compare: Path | None, plot: Path | None) -> None:
    """Refuse now what would fail when everything is measured."""
    from dotcu.benchmark.reports import plotting, saved_runs

    if compare is not None:
        saved_runs.read_runs(compare)
    if plot is not None:
        plotting.require(plot)
    if save is not None and (save.is_dir() or not save.parent.is_dir()):
        reason = f"{save} is a folder" if save.is_dir() else f"there is no folder {save.parent}"
        example = save / "bench.jsonl" if save.is_dir() else Path(save.name)
        raise UsageError(f"the report cannot be saved: {reason}.\nType: --save {quoted(example)}")
