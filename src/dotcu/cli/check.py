"""`dotcu check TARGET`: run operators on their samples and compare them with their references."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from dotcu.cli import console
from dotcu.errors import EXIT_FELL_SHORT


def command(
    target: Annotated[str, typer.Argument(help="ops.py or package.module; with :name for one operator")],
    device: Annotated[
        Optional[str],  # noqa: UP045  (typer reads it at run time, also on Python 3.10)
        typer.Option(help="cuda or simulator; by default the GPU where there is one"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the report as JSON")] = False,
) -> None:
    """Compile operators, run their samples, and compare them with their references."""
    from dotcu.checking import check
    from dotcu.checking.target import resolve

    report = check([operator for _, operator in resolve(target)], device=device)
    if as_json:
        console.as_json(report.to_json())
    else:
        console.show(report)
    if not report.held:
        raise typer.Exit(EXIT_FELL_SHORT)
