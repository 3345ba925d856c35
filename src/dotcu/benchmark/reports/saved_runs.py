"""Runs on disk: a file of JSON lines, one per row, each with everything that its figures depend on.

A line has `version`, `at`, `machine`, `protocol`, `by`, `source` and `row`, raw samples included: any tool
can pick, sort and join lines, and several runs in one file are a file, too. The calls of a block are written
as columns, and a column of equal numbers as one number: a tenth of the text.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dotcu import serialize
from dotcu.benchmark.results import CallTime, Machine, Means, Protocol, Row
from dotcu.errors import UsageError

if TYPE_CHECKING:
    from dotcu.benchmark.reports.report import BenchReport

VERSION = 1
"""The version of a line; docs/reference/reports.md has its keys."""

_TIMES = "time_us"
"""The column that is never shortened to one number."""


@dataclass(frozen=True, kw_only=True)
class SavedRun:
    """A run in a file.

    Attributes:
        at: The time when it was written: ISO 8601, UTC.
        sources: The digest of each operator's source, by its name.
    """

    at: str
    machine: Machine
    protocol: Protocol
    by: Means
    rows: tuple[Row, ...]
    sources: Mapping[str, str] = field(default_factory=dict)


def write_run(path: Path, report: BenchReport) -> None:
    """Write a file, whole or not at all.

    Args:
        path: The file; one that exists is replaced.
        report: The report whose rows are written.

    Raises:
        UsageError: The file cannot be written.
    """
    line = {
        "version": VERSION,
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": serialize.plain(report.machine),
        "protocol": serialize.plain(report.protocol),
        "by": report.by,
    }
    lines = []
    for row in report.rows:
        source = report.sources.get(row.key.op, "")
        lines.append(json.dumps({**line, "source": source, "row": _row_to_plain(row)}, allow_nan=False))
    try:
        _write_whole(path, "".join(f"{text}\n" for text in lines))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}.\n"
            "A file in a folder that exists and can be written is required.\n"
            f"Type: mkdir -p {path.parent}"
        ) from error


def read_runs(path: Path) -> list[SavedRun]:
    """Return the runs of a file, the oldest first.

    Raises:
        UsageError: The file cannot be read, or a line of it is not one that `write_run` wrote.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}.\n"
            "A file that an earlier run saved is required.\n"
            f"Type: dotcu bench TARGET --save {path}"
        ) from error
    runs: dict[str, SavedRun] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                run = _parse(line)
            except ValueError as error:
                raise UsageError(
                    f"{path}:{number}: {error}.\n"
                    "A line that dotcu bench --save wrote is required.\n"
                    "Remove that line, or save a run again: dotcu bench TARGET --save FILE"
                ) from error
            name = repr((run.at, run.machine, run.protocol, run.by))
            if name in runs:
                rows, sources = runs[name].rows + run.rows, {**runs[name].sources, **run.sources}
                run = replace(run, rows=rows, sources=sources)
            runs[name] = run
    return sorted(runs.values(), key=lambda run: run.at)


def _write_whole(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")  # a rename does not cross file systems
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _parse(text: str) -> SavedRun:
    """Return the run of one row that a line holds.

    Raises:
        ValueError: The line is damaged, or of another version.
    """
    try:
        line = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is not whole JSON: {error}") from error
    if not isinstance(line, dict) or line.get("version") != VERSION:
        got = line.get("version", "none") if isinstance(line, dict) else "no object"
        raise ValueError(f"version {VERSION} is required (got {got})")
    row = serialize.from_plain(Row, _unpacked(line.get("row")))
    sources = {row.key.op: line["source"]} if line.get("source") else {}
    run = serialize.from_plain(SavedRun, {**line, "rows": [], "sources": sources})
    return replace(run, rows=(row,))


# ------------------------------------------------------------------ blocks as columns

_COLUMNS = tuple(each.name for each in fields(CallTime))


def _row_to_plain(row: Row) -> dict[str, Any]:
    plain: dict[str, Any] = serialize.plain(row)
    for block in (plain["measured"] or {}).get("blocks", ()):
        calls = block.pop("calls")
        for name in _COLUMNS:
            column = [call[name] for call in calls]
            block[name] = column[0] if name != _TIMES and len(set(column)) == 1 else column
    return plain


def _unpacked(row: Any) -> Any:
    """Return a row whose blocks have calls in place of columns; columns that are missing have defaults.

    Raises:
        ValueError: The columns of a block differ in length.
    """
    measured = row.get("measured") if isinstance(row, dict) else None
    if not isinstance(measured, dict) or not isinstance(measured.get("blocks"), list):
        return row
    blocks = []
    for block in measured["blocks"]:
        count = len(block.get(_TIMES, ()))
        columns = {name: block[name] for name in _COLUMNS if name in block}
        columns = {name: some if isinstance(some, list) else [some] * count for name, some in columns.items()}
        if len(lengths := {len(column) for column in columns.values()}) > 1:
            raise ValueError(f"columns of one length are required (got {sorted(lengths)})")
        calls = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        blocks.append({**block, "calls": calls})
    return {**row, "measured": {**measured, "blocks": blocks}}
