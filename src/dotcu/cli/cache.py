"""`dotcu cache`: where compiled code is kept, how much of it there is; list it, clear it."""

from __future__ import annotations

import stat
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dotcu import settings
from dotcu.cli import console
from dotcu.errors import CacheError, UsageError

if TYPE_CHECKING:
    from dotcu.compile.cache import CachedBuild

_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"))  # seconds, unit


def command(
    list_entries: Annotated[bool, typer.Option("--list", help="List the entries, last used first.")] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Remove every entry.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Show the directory and size of the cache of compiled code; list it or clear it.

    Clearing is safe: what is needed is compiled again.
    """
    from dotcu.compile import cache

    if list_entries and clear:
        raise UsageError("--list and --clear were given together; give one of them.")
    _require_directory(cache.location())
    if clear:
        removed = cache.clear()
        if as_json:
            console.as_json({"removed": removed})
        else:
            console.print_line(f"removed {_entries(removed)}")
        return
    entries = cache.entries()
    total_bytes, limit_bytes = sum(entry.size_bytes for entry in entries), settings.current().cache_bytes
    if as_json:
        report: dict[str, Any] = {
            "directory": str(cache.location()),
            "entries": len(entries),
            "size_bytes": total_bytes,
            "limit_bytes": limit_bytes,
        }
        if list_entries:
            report["list"] = [{**asdict(entry), "path": str(entry.path)} for entry in entries]
        console.as_json(report)
        return
    if list_entries:
        _show_list(entries)
    sizes = f"{console.size(total_bytes)} of at most {console.size(limit_bytes)}"
    console.print_line(f"{cache.location()}: {_entries(len(entries))}, {sizes}")


def _require_directory(location: Path) -> None:
    """Refuse a place that is not a directory, or cannot be read; one that is not there yet is fine."""
    try:
        if stat.S_ISDIR(location.stat().st_mode):
            next(location.iterdir(), None)
            return
        reason = "it is a file"
    except FileNotFoundError:
        return
    except OSError as error:
        reason = str(error.strerror).lower()
    raise CacheError(
        f"{location} cannot be the cache's directory: {reason}.\n"
        "Choose another directory: export DOTCU_CACHE_DIR=DIRECTORY"
    )


def _show_list(entries: Sequence[CachedBuild]) -> None:
    if not entries:
        return
    columns = ("source", "target", "size", "used", "names")
    rows = [
        (
            entry.about.get("source", "(damaged)"),
            entry.about.get("target", ""),
            console.size(entry.size_bytes),
            _age(time.time() - entry.used),
            entry.about.get("names", ""),
        )
        for entry in entries
    ]
    console.show(console.table(columns, rows, right=("size", "used")))
    console.print_line()


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _age(seconds: float) -> str:
    """Return how long ago, in the largest unit that fits: `5 min ago`."""
    for length, unit in _AGES:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return "just now"
