"""`dotcu check TARGET`: try operators in every way that could show a fault."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dotcu import workers
from dotcu.cli import AsJson, Device, Seed, Target, Words, console, progress
from dotcu.errors import EXIT_FAILED, EnvironmentFault, UsageError

if TYPE_CHECKING:
    from dotcu.checking.trial import Result


def command(
    target: Target,
    device: Device = None,
    quick: Annotated[bool, typer.Option("--quick", help="the checks that take seconds")] = False,
    full: Annotated[bool, typer.Option("--full", help="every check and every case")] = False,
    seed: Seed = 0,
    only: Annotated[
        Words, typer.Option(metavar="NAME", help="a trial, or a prefix of several; may be repeated")
    ] = None,
    shardings: Annotated[
        bool, typer.Option("--shardings", help="try how tensors may be split over ranks, instead")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="with --shardings: declare what holds, in the source")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check operators for every kind of fault."""
    if shardings:
        _try_shardings(target, device, seed, write=write, as_json=as_json)
        return
    if write:
        raise UsageError("--write goes with --shardings.\nType: dotcu check --shardings --write ops.py")
    if quick and full:
        raise UsageError("--quick and --full were given together; give one of them, or neither.")
    level = "quick" if quick else "full" if full else "standard"
    with _worker_started_early(device), contextlib.redirect_stdout(sys.stderr):  # stdout has the report alone
        from dotcu.checking.checker import by_command, prepare
        from dotcu.checking.target import resolve

        named = resolve(target)
        planned = prepare(
            [operator for _, operator in named],
            device=device,
            level=level,
            seed=seed,
            only=tuple(only or ()),
            reproduce=by_command(target, named),
        )
        start = time.perf_counter()
        faults: list[EnvironmentFault] = []
        found = _until_a_fault(planned.run(), faults)
        results, interrupted = progress.collect(found, progress.following(planned.trials))
        seconds, interrupted = time.perf_counter() - start, interrupted or bool(faults)
        report = planned.report(results, seconds=seconds, interrupted=interrupted)
    if results or not faults:
        console.report(report, as_json)
    if faults:
        raise faults[0]
    if report.unfinished:
        raise KeyboardInterrupt
    if not report.passed:
        raise typer.Exit(EXIT_FAILED)


def _until_a_fault(results: Iterable[Result], faults: list[EnvironmentFault]) -> Iterator[Result]:
    """Yield results; where the machine lacks something, add that to the faults and end: what ran counts."""
    try:
        yield from results
    except EnvironmentFault as fault:
        faults.append(fault)


def _try_shardings(target: str, device: str | None, seed: int, *, write: bool, as_json: bool) -> None:
    """Try how tensors may be split, and print what holds."""
    with contextlib.redirect_stdout(sys.stderr):
        from dotcu.checking import inference
        from dotcu.checking.checker import subjects_of
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
    if not report.passed:
        raise typer.Exit(EXIT_FAILED)


def _worker_started_early(device: str | None) -> contextlib.AbstractContextManager[None]:
    """Start a worker before this process imports torch, where there is a GPU: trials on it run in workers."""
    on_gpu = device != "simulator" and device != "cpu"
    if on_gpu and any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/dxg")):
        return workers.started_early("dotcu.checking.running:serve")
    return contextlib.nullcontext()
