"""`dotcu check TARGET`: try operators in every way that could show a fault."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dotcu import workers
from dotcu.cli import AsJson, Device, Seed, Strings, TargetArg, console, progress
from dotcu.errors import UsageError


def command(
    target: TargetArg,
    device: Device = None,
    quick: Annotated[bool, typer.Option("--quick", help="the checks that take seconds")] = False,
    full: Annotated[bool, typer.Option("--full", help="every check and every case")] = False,
    seed: Seed = 0,
    only: Annotated[
        Strings, typer.Option(metavar="NAME", help="a trial, or a prefix of several; may be repeated")
    ] = None,
    shardings: Annotated[
        bool, typer.Option("--shardings", help="try how tensors may be split over ranks, instead")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="with --shardings: declare what holds, in the source")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check operators for wrong values, memory errors, races and more."""
    if shardings:
        _try_shardings(target, device, seed, write=write, as_json=as_json)
        return
    if write:
        raise UsageError("--write goes with --shardings.\nType: dotcu check --shardings --write ops.py")
    if quick and full:
        raise UsageError("--quick and --full were given together; give one of them, or neither.")
    level = "quick" if quick else "full" if full else "standard"
    with _worker_started_early(device):
        from dotcu import jobs
        from dotcu.checking.checker import by_command, prepare
        from dotcu.checking.target import resolve

        with progress.reports_alone_on_stdout():
            named = resolve(target)
            planned = prepare(
                [operator for _, operator in named],
                device=device,
                level=level,
                seed=seed,
                only=tuple(only or ()),
                reproduce=by_command(target, named),
            )
        showing = progress.following(planned.trials)
        report = jobs.complete(planned, showing, partial(console.report, wants_json=as_json))
    console.finish(report, as_json)


def _try_shardings(target: str, device: str | None, seed: int, *, write: bool, as_json: bool) -> None:
    """Try how tensors may be split, and print what holds."""
    with progress.reports_alone_on_stdout():
        from dotcu.checking import inference
        from dotcu.checking.planning import subjects_of
        from dotcu.checking.target import resolve

        operators = [operator for _, operator in resolve(target)]
        subjects = subjects_of(operators, device=device or "simulator", level="standard", seed=seed)
        found = tuple(inference.infer(subjects))
        report = inference.ShardingReport(overloads=found)
        named = {subject.name: subject.overload for subject in subjects}
        wanted = [each for each in found if each.holds and not each.declared] if write else []
        written = [inference.write(named[each.overload], each.holds) for each in reversed(wanted)]
    console.report(report, as_json)
    for path in dict.fromkeys(map(str, written)):
        console.note(f"wrote declarations into {path}: review them, and run `dotcu check`")
    console.leave_with(report)


def _worker_started_early(device: str | None) -> contextlib.AbstractContextManager[None]:
    """Start a worker before this process imports torch, where there is a GPU: trials on it run in workers."""
    on_gpu = device != "simulator" and device != "cpu"
    if on_gpu and any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/dxg")):
        return workers.started_early("dotcu.checking.running:serve")
    return contextlib.nullcontext()
