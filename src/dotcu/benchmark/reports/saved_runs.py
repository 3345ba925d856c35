"""Runs on disk: a file of JSON lines, one per row, each with everything that its figures depend on.

Raw samples are included, and several runs in one file are a file, too. The calls of a block are written as
columns, and a column of equal numbers as one number: a tenth of the text.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dotcu import serialize
from dotcu.benchmark.results import BenchRow, CallTime, Machine, Means, Protocol
from dotcu.errors import UsageError, quoted
from dotcu.files import read_text

if TYPE_CHECKING:
    from dotcu.benchmark.reports.report import BenchReport

VERSION = 1
"""The version of a line; docs/reference/reports.md has its keys."""

_TIMES = "time_us"  # the column that is never shortened to one number
_COLUMNS = tuple(each.name for each in fields(CallTime))


@dataclass(frozen=True, kw_only=True)
class SavedRow:
    """A line of a file: a row, when its run was written (ISO 8601), the digest of the operator's source."""

    at: str
    machine: Machine
    protocol: Protocol
    by: Means
    source: str = ""
    row: BenchRow


def write_run(path: Path, report: BenchReport) -> None:
    """Write the rows of a report, whole or not at all; a file that exists is replaced."""
    at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    lines = []
    for row in report.rows:
        saved = SavedRow(
            at=at, machine=report.machine, protocol=report.protocol, by=report.by,
            source=report.sources.get(row.key.op, ""), row=row,
        )  # fmt: skip
        line = {"version": VERSION, **serialize.plain(saved)}
        for block in (line["row"]["measured"] or {}).get("blocks", ()):
            calls = block.pop("calls")
            for name in _COLUMNS:
                column = [call[name] for call in calls]
                block[name] = column[0] if name != _TIMES and len(set(column)) == 1 else column
        lines.append(json.dumps(line, allow_nan=False) + "\n")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")  # a rename does not cross file systems
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}.\n"
            "A file in a folder that exists and can be written is required.\n"
            f"Type: mkdir -p {quoted(path.parent)}"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def read_runs(path: Path) -> list[SavedRow]:
    """Return the rows of all runs in a file, those of the oldest run first."""
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}.\n"
            "A file that an earlier run saved is required.\n"
            f"Type: dotcu bench TARGET --save {quoted(path)}"
        ) from error
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                rows.append(_parse(line))
            except ValueError as error:
                raise UsageError(
                    f"{path}:{number}: {error}.\n"
                    "A line that dotcu bench --save wrote is required.\n"
                    "Remove that line, or save a run again: dotcu bench TARGET --save FILE"
                ) from error
    return sorted(rows, key=lambda row: row.at)


def _parse(text: str) -> SavedRow:
    """Return the row that a line holds; ValueError if it is damaged, or of another version."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not whole JSON: {error}") from error
    if not isinstance(line, dict) or line.get("version") != VERSION:
        got = line.get("version", "none") if isinstance(line, dict) else "no object"
        raise ValueError(f"version {VERSION} is required (got {got})")
    measured = line["row"].get("measured") if isinstance(line.get("row"), dict) else None
    if isinstance(measured, dict) and isinstance(measured.get("blocks"), list):
        measured["blocks"] = list(map(_block_of_calls, measured["blocks"]))
    return serialize.from_plain(SavedRow, line)


def _block_of_calls(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block with calls in place of columns; columns that are missing have defaults."""
    count = len(block.get(_TIMES, ()))
    columns = {name: block[name] for name in _COLUMNS if name in block}
    columns = {name: some if isinstance(some, list) else [some] * count for name, some in columns.items()}
    if len(lengths := {len(column) for column in columns.values()}) > 1:
        raise ValueError(f"columns of one length are required (got {sorted(lengths)})")
    calls = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return {**block, "calls": calls}
