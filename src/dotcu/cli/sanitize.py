"""`dotcu sanitize script.py`: any Python program, with its kernels in the simulator."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from dotcu.cli import AsJson, Integer, Strings, Word, console, names, number
from dotcu.errors import quoted

SETTINGS = {"allow_interspersed_args": False}
"""What follows the script belongs to the script."""

MANY_BLOCKS = 100_000
LONG_S = 5.0
"""Of a launch that takes longer, the rest is estimated, and shown as often."""


def command(
    target: Annotated[str, typer.Argument(metavar="SCRIPT", help="script.py; with -m, a module")],
    arguments: Annotated[Strings, typer.Argument(metavar="ARGUMENTS", help="those of the script")] = None,
    is_module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module: -m pytest tests/")] = False,
    arch: Annotated[
        Word, typer.Option(metavar="ARCH", help="the GPU that is simulated; default: sm_80")
    ] = None,
    seed: Annotated[
        Integer,
        typer.Option(
            metavar="N",
            parser=number(int, "a whole number"),
            help="shuffles warps and atomics; default: all in step",
        ),
    ] = None,
    checks: Annotated[
        Word, typer.Option(metavar="LIST", help="of bounds,init,race,barrier; default: all four")
    ] = None,
    cuda_as_cpu: Annotated[
        bool, typer.Option("--device-cuda-as-cpu", help='run code that asks for "cuda", on CPU tensors')
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a Python script, and report the faults of the kernels it launches, of Triton and others.

    No GPU is needed: launches on CPU tensors run in a simulator. It reports accesses out of bounds, reads of
    memory that nothing wrote, races and misused barriers, each with its line. The exit code is 1 if there
    are findings or nothing was launched, else the script's own.
    """
    from dotcu.kernel.simulation import DEFAULT_ARCH
    from dotcu.sanitizing import run_script
    from dotcu.simulator import CHECKS

    with _standard_output_is_error(as_json):
        report = run_script(
            target,
            arguments or (),
            is_module=is_module,
            arch=arch or DEFAULT_ARCH,
            seed=seed,
            checks=CHECKS if checks is None else frozenset(names(checks) or ()),
            cuda_as_cpu=cuda_as_cpu,
            progress=_progress(),
        )
    if as_json:
        console.as_json(report.to_json())
    else:
        sys.stdout.flush()
        if report.error:
            console.print_error(report.error)
        if report.launches:
            console.err().print(report, soft_wrap=True)
        elif not report.error:
            words = f"dotcu sanitize --device-cuda-as-cpu {'-m ' * is_module}{quoted(target)}"
            console.print_error(
                f"{report.summary}\n"
                "Required: a launch on CPU tensors of a kernel of Triton, Numba, TileLang, cuTile or dotcu.\n"
                + (
                    "See that the script gets there, and not in a process that it starts, as pytest -n does."
                    if cuda_as_cpu
                    else f'If it asks for "cuda", type: {words}'
                )
            )
    raise typer.Exit(report.exit_code)


@contextmanager
def _standard_output_is_error(wanted: bool) -> Iterator[None]:
    """Send what is written to standard output to standard error, by programs that are started too."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _progress() -> Callable[[str, int, int], None] | None:
    """Return what says on a terminal how long a launch takes; None where there is no terminal."""
    err = console.err()
    if not err.is_terminal:
        return None
    start = due = 0.0

    def report(kernel: str, ended: int, blocks: int) -> None:
        nonlocal start, due
        now = time.monotonic()
        if not ended:
            start, due = now, now + LONG_S
            if blocks >= MANY_BLOCKS:
                due = now
                console.note(f"{kernel} is launched with {blocks:,} programs")
        elif ended < blocks and now >= due:
            left = (now - start) * (blocks - ended) / ended
            due = now + LONG_S
            if left >= 1:
                console.note(
                    f"{kernel}: {ended:,} of {blocks:,} programs have ended; about {left:.0f} s more"
                )

    return report
