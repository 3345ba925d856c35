"""Runs on disk: a file of JSON lines, one a row, each with all that its figures hang on.

A line has `version`, `at`, `machine`, `protocol`, `by`, `source` and `row`, raw samples included: any tool
can pick, sort and join lines, and several runs in one file are a file too.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from typing import Protocol as Shape

from dotcu.benchmark import lines
from dotcu.benchmark.measured import Means
from dotcu.benchmark.protocol import Protocol
from dotcu.benchmark.row import Machine, Row
from dotcu.errors import UsageError

VERSION = 1
"""Of a line; docs/bench.md has its keys."""


class Report(Shape):
    """What of a report is stored."""

    @property
    def machine(self) -> Machine: ...
    @property
    def protocol(self) -> Protocol: ...
    @property
    def by(self) -> Means: ...
    @property
    def rows(self) -> Sequence[Row]: ...


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a file says of one run.

    Attributes:
        at: When it was written: ISO 8601, UTC.
        sources: The digest of each operator's source, by its name.
    """

    at: str
    machine: Machine
    protocol: Protocol
    by: Means
    rows: tuple[Row, ...]
    sources: Mapping[str, str] = field(default_factory=dict)


def write(path: Path, report: Report, *, sources: Mapping[str, str] | None = None) -> None:
    """Write a file anew, whole or not at all.

    Args:
        sources: The digest of each operator's source, by its name.

    Raises:
        UsageError: The file cannot be written.
    """
    at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    text = "".join(f"{line}\n" for line in _lines(report, at, sources or {}))
    try:
        _write_whole(path, text)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}.\n"
            "A file in a folder that is there and can be written is required.\n"
            f"Type: mkdir -p {path.parent}"
        ) from error


def read(path: Path) -> list[Run]:
    """The runs of a file, the oldest first.

    Raises:
        UsageError: The file cannot be read, or a line of it is not one that `write` wrote.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}.\n"
            "A file that an earlier run saved is required.\n"
            f"Type: dotcu bench TARGET --save {path}"
        ) from error
    runs: dict[str, Run] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            run = _parsed(line, f"{path}:{number}")
            name = repr((run.at, run.machine, run.protocol, run.by))
            runs[name] = _joined(runs[name], run) if name in runs else run
    return sorted(runs.values(), key=lambda run: run.at)


def _write_whole(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")  # beside it: a rename does not cross file systems
    try:
        with aside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def _lines(report: Report, at: str, sources: Mapping[str, str]) -> Iterator[str]:
    for row in report.rows:
        line = {
            "version": VERSION,
            "at": at,
            "machine": lines.encode(report.machine),
            "protocol": lines.encode(report.protocol),
            "by": report.by,
            "source": sources.get(row.key.op, ""),
            "row": lines.encode(row),
        }
        yield json.dumps(line, allow_nan=False)


def _parsed(line: str, place: str) -> Run:
    """The run of one row that a line is."""
    try:
        given = json.loads(line)
    except ValueError as error:
        raise _damaged(place, f"it is not whole JSON: {error}") from error
    if not isinstance(given, dict) or given.get("version") != VERSION:
        got = given.get("version", "none") if isinstance(given, dict) else "no object"
        raise _damaged(place, f"version {VERSION} is required (got {got})")
    try:
        return _run(given)
    except lines.Misfit as error:
        raise _damaged(place, str(error)) from error


def _run(given: Mapping[str, Any]) -> Run:
    row = lines.decode(Row, given.get("row"), "row")
    source = given.get("source")
    whole = {**given, "rows": [], "sources": {row.key.op: source} if source else {}}
    run = lines.decode(Run, whole, "line")
    return _with_rows(run, (row,), run.sources)


def _joined(run: Run, more: Run) -> Run:
    return _with_rows(run, run.rows + more.rows, {**run.sources, **more.sources})


def _with_rows(run: Run, rows: tuple[Row, ...], sources: Mapping[str, str]) -> Run:
    return Run(at=run.at, machine=run.machine, protocol=run.protocol, by=run.by, rows=rows, sources=sources)


def _damaged(place: str, reason: str) -> UsageError:
    return UsageError(
        f"{place}: {reason}.\n"
        "A line that dotcu bench --save wrote is required.\n"
        "Remove that line, or save a run again: dotcu bench TARGET --save FILE"
    )
