"""`dotcu profile TARGET`: what Nsight Compute counts while an operator runs, line by line."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from dotcu.cli import console
from dotcu.errors import EXIT_ENVIRONMENT

if TYPE_CHECKING:
    from dotcu.profiling import ProfileReport


def command(
    target: Annotated[str, typer.Argument(help="ops.py or package.module; with :name for one operator")],
    shapes: Annotated[
        Optional[str],  # noqa: UP045  (typer reads it at run time, also on Python 3.10)
        typer.Option(metavar="SIZES", help="of the first tensor: 4096x4096; of each: 64x32:32x16"),
    ] = None,
    dtype: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="NAME", help="one that it has, such as bfloat16; default: the first"),
    ] = None,
    device: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="cuda or cuda:1"),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FOLDER", help="the folder for reports; default: the current one"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the report as JSON")] = False,
) -> None:
    """Count what the GPU does in one call of each operator, and show at which lines its warps wait."""
    with contextlib.redirect_stdout(sys.stderr):  # what user code prints is not part of the report
        report = _run(target, shapes=shapes, dtype=dtype, device=device, output=output)
    if as_json:
        console.as_json(report.to_json())
    else:
        console.show(report)
    if not report.counted:
        raise typer.Exit(EXIT_ENVIRONMENT)


def _run(
    target: str, *, shapes: str | None, dtype: str | None, device: str | None, output: Path | None
) -> ProfileReport:
    from dotcu.profiling import profile

    err = console.err()
    with err.status(f"profiling {target}") if err.is_terminal else contextlib.nullcontext():
        return profile(target, shapes=shapes or "", dtype=dtype or "", device=device, folder=output)
