"""`dotcu cache`: where compiled code is kept, how much there is; list it, clear it, take it elsewhere."""

from __future__ import annotations

import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dotcu import settings
from dotcu.cli import AsJson, File, Strings, TargetArg, console, progress
from dotcu.errors import EXIT_FAILED, CacheError, UsageError, quoted

Architectures = Annotated[
    Strings, typer.Option(metavar="LIST", help="8.0,9.0, or simulated; default: this machine's GPUs")
]

_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"))  # seconds, unit


def command(
    list_entries: Annotated[bool, typer.Option("--list", help="List the entries, last used first.")] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Remove every entry.")] = False,
    as_json: AsJson = False,
    context: typer.Context = None,  # type: ignore[assignment]  # typer gives it
) -> None:
    """Show the directory and size of the cache of compiled code; list it, clear it, or pack it for others.

    Clearing is safe: what is needed is compiled again.
    """
    if getattr(context, "invoked_subcommand", None) is not None:
        return
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
    total_bytes, limit_bytes = sum(entry["size_bytes"] for entry in entries), settings.current().cache_bytes
    if as_json:
        report: dict[str, Any] = {
            "directory": str(cache.location()),
            "entries": len(entries),
            "size_bytes": total_bytes,
            "limit_bytes": limit_bytes,
        }
        if list_entries:
            report["list"] = entries
        console.as_json(report)
        return
    if list_entries:
        _show_list(entries)
    sizes = f"{console.size(total_bytes)} of at most {console.size(limit_bytes)}"
    console.print_line(f"{cache.location()}: {_entries(len(entries))}, {sizes}")


def plan(target: TargetArg, arch: Architectures = None, as_json: AsJson = False) -> None:
    """List what the calls of some operators may compile: from samples and declared instantiations."""
    from dotcu.shipping import pack

    requests, notes = pack.plan(target, _architectures(arch))
    compiles = [
        (one.source.display, f"{one.target}, simulated" if one.simulated else str(one.target), one.kernels)
        for one in requests
    ]
    if as_json:
        rows = [dict(zip(("source", "target", "kernels"), each, strict=True)) for each in compiles]
        console.as_json({"compiles": rows, "notes": list(notes)})
        return
    for note in notes:
        console.note(note)
    if compiles:
        shown = [
            (Path(source).name, compiled_for, ", ".join(names)) for source, compiled_for, names in compiles
        ]
        console.show(console.table(("source", "target", "kernels"), shown))
    chosen = f" --arch {','.join(arch)}" if arch else ""
    console.print_line(f"{len(compiles)} compiles at most, and one for the members of each struct.")
    console.print_line(f"To do them now, type: dotcu cache pack {quoted(target)}{chosen}")


def pack(
    target: TargetArg,
    arch: Architectures = None,
    out: Annotated[Path, typer.Option(help="the file to write")] = Path("kernels.tar"),
    lock: Annotated[
        bool, typer.Option("--lock", help="write the digests into dotcu.lock, so that stores need no trust")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compile what the calls of some operators may compile, and write it as one archive."""
    from dotcu.shipping import pack

    out = out.absolute()
    requests, notes = pack.plan(target, _architectures(arch))
    project = pack.locked_project(requests) if lock else None
    with progress.counting(len(requests), "compiling") as report:
        entries, digest, locked, failed = pack.pack(
            requests, out, project=project, report=lambda one: report(one.source.display)
        )
    if as_json:
        console.as_json({
            "path": str(out), "entries": entries, "size_bytes": out.stat().st_size, "sha256": digest,
            "locked": locked, "failed": failed, "notes": notes,
        })  # fmt: skip
    else:
        for note in (*notes, *failed):
            console.note(note)
        digests = "" if locked is None else f", {locked} digests in dotcu.lock"
        console.print_line(f"{out}: {_entries(entries)}, {console.size(out.stat().st_size)}{digests}")
        console.print_line(f"sha256 {digest}")
    if failed:
        raise typer.Exit(EXIT_FAILED)


def unpack(
    file: Annotated[Path, typer.Argument(help="a pack")],
    into: Annotated[File, typer.Option(help="the folder; default: the cache")] = None,
    as_json: AsJson = False,
) -> None:
    """Add the entries of a pack to the cache, or to a folder for DOTCU_CACHE_DIRS; all or nothing."""
    from dotcu.compile import cache, sharing

    folder = (into or cache.location()).absolute()
    _require_directory(folder, "--into FOLDER" if into else "export DOTCU_CACHE_DIR=DIRECTORY")
    added, kept = sharing.unpack(file, folder, private=into is None)
    if as_json:
        console.as_json({"directory": str(folder), "entries": added, "kept": kept})
    else:
        before = f", {kept} were there" if kept else ""
        console.print_line(f"{folder}: {_entries(added)} added{before}")


def verify(
    file: Annotated[Path, typer.Argument(help="a pack")],
    lock: Annotated[File, typer.Option(help="a dotcu.lock that must have the digest of each entry")] = None,
    as_json: AsJson = False,
) -> None:
    """Check every entry of a pack by its digests, and by those in a dotcu.lock."""
    from dotcu.compile import sharing
    from dotcu.shipping.lock import NAME, read

    whole, damaged = sharing.damages(file)
    if lock is not None:
        if lock.name != NAME:
            raise UsageError(
                f"A lock is a file {NAME}, got {lock}.\nType: dotcu cache verify {quoted(file)} --lock {NAME}"
            )
        objects = {
            key: value for one in read(lock.absolute().parent).sources for key, value in one.objects.items()
        }
        wrong = {key: digest for key, digest in whole.items() if key in objects and objects[key] != digest}
        damaged |= dict.fromkeys(wrong, "it is not the object that the lock has")
        damaged |= {key: "the lock does not have it" for key in whole if key not in objects}
    if as_json:
        console.as_json({"entries": len(whole), "damaged": damaged})
    else:
        for key, why in sorted(damaged.items()):
            console.print_line(f"{key[:16]}: {why}")
        console.print_line(f"{file}: {_entries(len(whole))}, {len(damaged)} wrong")
    if damaged:
        raise typer.Exit(EXIT_FAILED)


def why(as_json: AsJson = False) -> None:
    """Tell why the last compile was no hit in the cache: what changed, who called, what was asked."""
    from dotcu.compile.build import last_compile

    found = last_compile()
    if as_json:
        console.as_json({"compile": found})
        return
    if found is None:
        console.print_line("The cache has noted no compile.")
        return
    console.print_line(f"{found['file']}: {', '.join(found['kernels'])} for {found['target']}")
    for label, value in (
        ("compiled", f"{_age(time.time() - found['time'])}, in {found['seconds']:.2f} s"),
        ("because", found["reason"]),
        ("called from", found["caller"] or "(no line of yours)"),
        ("looked in", ", ".join(found["looked_in"])),
        ("options", found["arguments"]),
    ):
        console.print_line(f"    {label:<12}{value}")


COMMANDS = (plan, pack, unpack, verify, why)


def group() -> typer.Typer:
    """Return the command with its commands."""
    app = typer.Typer(rich_markup_mode=None, invoke_without_command=True, callback=command)
    for each in COMMANDS:
        app.command(each.__name__)(each)
    return app


def _architectures(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the architectures that were asked for; else that of this machine's GPU, or the simulator's."""
    from dotcu.compile.driver import gpus
    from dotcu.shipping.lock import SIMULATED
    from dotcu.shipping.project import split_architectures

    if given:
        return tuple(name for text in given for name in split_architectures(text))
    here = tuple(dict.fromkeys("{}.{}".format(*gpu.capability) for gpu in gpus()))
    return here or (SIMULATED,)


def _require_directory(location: Path, choose: str = "export DOTCU_CACHE_DIR=DIRECTORY") -> None:
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
        f"{location} cannot be the cache's directory: {reason}.\nChoose another directory: {choose}"
    )


def _show_list(entries: Sequence[dict[str, Any]]) -> None:
    if not entries:
        return
    columns = ("source", "target", "size", "used", "names")
    rows = [
        (
            entry["about"].get("source", "(damaged)"),
            entry["about"].get("target", ""),
            console.size(entry["size_bytes"]),
            _age(time.time() - entry["used"]),
            entry["about"].get("names", ""),
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
