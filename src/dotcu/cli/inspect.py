"""`dotcu inspect TARGET`: what is in kernels, and in the binaries that hold them."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dotcu.cli import AsJson, File, Files, Integer, Strings, Word, console, number
from dotcu.errors import EXIT_FAILED, SourceNotFound, UsageError, escaped, quoted

if TYPE_CHECKING:
    from dotcu.inspection.binary import BinaryReport
    from dotcu.inspection.report import InspectReport

COMPILED_HERE = (".cu", ".cuh", ".py")
"""The endings of files that dotcu compiles; any other file is recognized by its bytes."""

BINARIES = (".so", ".cubin", ".ptx", ".fatbin", ".whl")
"""The endings of binaries, also of those that are not there: a missing one is reported as such."""

_APART = (
    ("--emit", ("--html", "--diff", "--lines", "--json")),
    ("--lines", ("--diff", "--json")),
    ("--html", ("--json",)),
)
"""What would be printed into, or instead of, something else."""


def command(
    target: Annotated[
        str,
        typer.Argument(help="a .cu, .cubin, .ptx, .fatbin, .so or .whl; or ops.py or a module, with :name"),
    ],
    arch: Annotated[
        Strings,
        typer.Option(metavar="ARCH", help="sm_90a; may be repeated. Of a binary: list its kernels"),
    ] = None,
    instantiate: Annotated[
        Strings,
        typer.Option(metavar="KERNEL", help="of a template in a .cu: scale[float32,256]; repeatable"),
    ] = None,
    include: Annotated[
        Files,
        typer.Option("-I", "--include", metavar="FOLDER", help="of a .cu's headers; may be repeated"),
    ] = None,
    define: Annotated[
        Strings,
        typer.Option("-D", "--define", metavar="NAME[=VALUE]", help="a macro of a .cu; may be repeated"),
    ] = None,
    block: Annotated[
        Integer,
        typer.Option(
            metavar="THREADS",
            parser=number(int, "a number of threads from 1 to 1024", lambda count: 1 <= count <= 1024),
            help="the block that occupancy is computed for",
        ),
    ] = None,
    smem_bytes: Annotated[
        int,
        typer.Option(
            metavar="BYTES",
            parser=number(int, "a number of bytes, 0 or more", lambda count: count >= 0),
            help="dynamic shared memory of that block, in bytes",
        ),
    ] = 0,
    lines: Annotated[bool, typer.Option("--lines", help="source, PTX and SASS side by side")] = False,
    html: Annotated[File, typer.Option(metavar="FILE", help="write the same as one HTML page")] = None,
    emit: Annotated[
        Word, typer.Option(metavar="WHAT", help="print ptx, tileir, sass, cubin, symbols or resources")
    ] = None,
    output: Annotated[
        File,
        typer.Option("-o", "--output", metavar="FILE", help="write the output of --emit to a file"),
    ] = None,
    diff: Annotated[
        Word,
        typer.Option(
            metavar="OTHER", help="what changed from OTHER, another TARGET, such as kernels.cu:scale[float64]"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the resources and the code of kernels, or the contents of a binary."""
    for_code = {
        "--html": html, "--diff": diff, "--lines": lines,
        "--instantiate": instantiate, "--include": include, "--define": define, "--block": block,
        "--smem-bytes": smem_bytes,
    }  # fmt: skip
    _refuse_together({**for_code, "--emit": emit, "--json": as_json})
    if output is not None and emit is None:
        raise UsageError(f"-o {output} says where to write what --emit gives.\nType: --emit sass -o {output}")
    place = Path(target.partition(":")[0])
    if place.suffix in BINARIES or (place.is_file() and place.suffix not in COMPILED_HERE):
        _refuse_for_binary(target, for_code)
        _binary(target, arch or [], emit, output, as_json)
        return
    macros = {
        name: value if given else None for name, given, value in (d.partition("=") for d in define or ())
    }
    how = {
        "arch": arch, "instantiate": instantiate or (), "include": include or (), "define": macros,
        "block": block, "smem_bytes": smem_bytes,
    }  # fmt: skip
    from dotcu.inspection.diff import diff as difference
    from dotcu.inspection.listing import emit as emitted

    with contextlib.redirect_stdout(sys.stderr):  # what user code prints is not part of the report
        report = _inspect(target, **how)
        other = None if diff is None else _inspect(diff, **how)
    reports = [one for one in (other, report) if one is not None]
    failed = any(one.failed for one in reports)
    if (html, emit, diff) != (None, None, None):
        # the output cannot have it
        for message in dict.fromkeys(failure.message for one in reports for failure in one.failed):
            console.print_error(message)
    if html is not None:
        _write(html, _page(report, other).encode())
        console.print_line(f"the page is in {html}")
    if emit is not None and (report.kernels or not failed):
        _put(emitted(report, emit), output)
    elif other is not None:
        console.report(difference(other, report), as_json)
    elif html is None and emit is None:
        _show(report, lines, as_json)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _refuse_together(given: dict[str, Any]) -> None:
    for option, others in _APART:
        both = [other for other in others if given[option] and given[other]]
        if both:
            raise UsageError(
                f"{option} and {both[0]} each print something different.\nUse one of them, and "
                "a second command for the other."
            )


def _refuse_for_binary(target: str, given: dict[str, Any]) -> None:
    place, _, name = target.partition(":")
    if name and not Path(target).exists():
        raise UsageError(
            f"{place} is a binary, whose kernels cannot be selected by name, as {name!r}.\n"
            f"Type: dotcu inspect {quoted(place)}, with --arch sm_90 for the kernels of one architecture"
        )
    for option, value in given.items():
        if value:
            raise UsageError(
                f"{option} is for kernels that dotcu compiles, and {target} is compiled already.\n"
                f"Type: dotcu inspect {quoted(target)}, or with --emit symbols"
            )


def _inspect(target: str, **how: Any) -> InspectReport:
    """The report on a target, of which `kernels.cu:scale[float32]` is one instantiation."""
    from dotcu.inspection.inspector import inspect

    place, _, name = target.partition(":")
    plain, bracket, _ = name.partition("[")
    if bracket:
        how["instantiate"] = (name,)
        target = f"{place}:{plain.rpartition('::')[2]}"
    try:
        return inspect(target, **how)
    except SourceNotFound as error:
        if Path(place).is_file():  # it is another file that was not found
            raise
        raise UsageError(str(error)) from error


def _page(report: InspectReport, other: InspectReport | None) -> str:
    from dotcu.inspection.diff import diff
    from dotcu.inspection.page import changes_of, page_of, render

    if not report.kernels and not report.failed:
        raise UsageError(
            f"{report.target} has no kernel to show on a page.\n"
            f"See what it has: dotcu inspect {quoted(report.target)}"
        )
    return render(page_of(report), changes_of(diff(other, report)) if other is not None else None)


def _show(report: InspectReport, lines: bool, as_json: bool) -> None:
    from dotcu.inspection.listing import panes

    if as_json:
        console.as_json(report.to_json())
        return
    console.show(report)
    for kernel in report.kernels if lines else ():
        console.print_line()
        console.show(panes(kernel, console.out().width))


def _put(data: bytes, output: Path | None) -> None:
    if output is not None:
        _write(output, data)
        return
    if sys.stdout.isatty():  # on a terminal its text could write elsewhere; in a pipe the bytes are wanted
        data = escaped(data.decode("utf-8", "backslashreplace")).encode()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _write(path: Path, data: bytes) -> None:
    is_new = not path.exists()
    try:
        path.write_bytes(data)
    except OSError as error:
        if is_new and path.is_file():
            path.unlink()  # no half of it stays
        raise UsageError(
            f"{path} cannot be written: {error.strerror}.\nName a file in an existing folder."
        ) from error


def _binary(target: str, archs: list[str], emit: str | None, output: Path | None, as_json: bool) -> None:
    from dotcu.inspection.binary import read

    if emit not in (None, "symbols"):
        raise UsageError(
            f"--emit {emit} is for kernels that dotcu compiles; of a binary it gives symbols.\n"
            f"For machine code, type: cuobjdump -sass {quoted(target)}"
        )
    report = read(Path(target), kernels=archs)
    if emit is not None:
        for message in report.damaged:
            console.print_error(message)
        _put(_symbols(report), output)
    else:
        console.report(report, as_json)
    if report.damaged:
        raise typer.Exit(EXIT_FAILED)


def _symbols(report: BinaryReport) -> bytes:
    """The host's symbols, as nm has them, then the kernels that are listed."""
    parts = (report, *report.members)
    hosts = [str(symbol) for one in parts if one.host is not None for symbol in one.host.symbols]
    kernels = [
        f"T {kernel.symbol}\t{kernel.name}\t{arch}"
        for one in parts
        for arch, listed in one.kernels.items()
        for kernel in listed
    ]
    return "".join(f"{line}\n" for line in [*hosts, *kernels]).encode()
