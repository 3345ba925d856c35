"""`dotcu check TARGET`: try operators in every way that could show a fault."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from dotcu import workers
from dotcu.cli import console, progress
from dotcu.cli.options import AsJson, Device, Seed, Target, Words
from dotcu.errors import EXIT_FAILED, UsageError


def command(
    target: Target,
    device: Device = None,
    quick: Annotated[bool, typer.Option("--quick", help="the checks that take seconds")] = False,
    full: Annotated[bool, typer.Option("--full", help="every check and every case")] = False,
    seed: Seed = 0,
    only: Annotated[
        Words, typer.Option(metavar="NAME", help="a trial, or a prefix of several; may be repeated")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check operators for every kind of fault."""
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
        results, interrupted = progress.collect(planned.run(), progress.following(planned.trials))
        report = planned.report(results, seconds=time.perf_counter() - start, interrupted=interrupted)
    console.report(report, as_json)
    if report.unfinished:
        raise KeyboardInterrupt
    if not report.passed:
        raise typer.Exit(EXIT_FAILED)


def _worker_started_early(device: str | None) -> contextlib.AbstractContextManager[None]:
    """Start a worker before this process imports torch, where there is a GPU: trials on it run in workers."""
    on_gpu = device != "simulator" and device != "cpu"
    if on_gpu and any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/dxg")):
        return workers.started_early("dotcu.checking.running:serve")
    return contextlib.nullcontext()
