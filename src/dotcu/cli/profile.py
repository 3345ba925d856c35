"""`dotcu profile TARGET`: what Nsight Compute counts while an operator runs, line by line."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated

import typer

from dotcu.cli import AsJson, File, TargetArg, Word, console
from dotcu.errors import EXIT_ENVIRONMENT


def command(
    target: TargetArg,
    shapes: Annotated[
        Word, typer.Option(metavar="SIZES", help="of the first tensor: 4096x4096; of each: 64x32:32x16")
    ] = None,
    dtype: Annotated[
        Word, typer.Option(metavar="NAME", help="one that it has, such as bfloat16; default: the first")
    ] = None,
    device: Annotated[Word, typer.Option(help="cuda or cuda:1")] = None,
    output: Annotated[
        File, typer.Option(metavar="FOLDER", help="the folder for reports; default: the current one")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count what the GPU does in one call of each operator, and show at which lines its warps wait."""
    from dotcu.profiling import profile

    err = console.err()
    with (
        contextlib.redirect_stdout(sys.stderr),  # what user code prints is not part of the report
        err.status(f"profiling {target}") if err.is_terminal else contextlib.nullcontext(),
    ):
        report = profile(target, shapes=shapes or "", dtype=dtype or "", device=device, folder=output)
    console.report(report, as_json)
    if not report.counted:
        raise typer.Exit(EXIT_ENVIRONMENT)
