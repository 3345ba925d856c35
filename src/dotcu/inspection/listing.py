"""Source, PTX and SASS side by side in the terminal, a row for each source line; or one of them for files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from rich.console import Group
from rich.table import Table
from rich.text import Text

from dotcu import tile_ir
from dotcu.compile import CompileOptions, ObjectCode, Source, Target, build
from dotcu.compile.source.declarations import only_kernels
from dotcu.compile.tile import host
from dotcu.errors import SourceError, UsageError, quoted
from dotcu.inspection import assembly
from dotcu.inspection import instruction_kinds as kinds
from dotcu.inspection.assembly import LocationChain, PtxLine, SassInstruction, shown_location
from dotcu.inspection.report import InspectedKernel, InspectReport, short
from dotcu.tile_ir.module import SourceLocation

_STYLES = {
    kinds.MATRIX: "green", kinds.ASYNC: "green", kinds.GLOBAL: "cyan", kinds.SHARED: "blue",
    kinds.LOCAL: "bold red", kinds.GENERIC: "red", kinds.DOUBLE: "yellow",
    kinds.ATOMIC: "magenta", kinds.BARRIER: "magenta", kinds.CALL: "red",
}  # fmt: skip

_ELSEWHERE = "no line of this file"
_GAP = 2
_MIN_PANE = 12  # characters of a pane, however narrow the terminal is
_WITH_CONTROL = 150  # characters: a narrower terminal shows instructions without their control bits


def panes(one: InspectedKernel, width: int) -> Group:
    """Return the panes of a kernel for a terminal; code without a line of the kernel's file comes last."""
    head = Text(f"{one.code.name}  {one.code.arch}  {short(one.code.file)}", style="bold")
    return Group(head, _grid(one, width))


def _grid(one: InspectedKernel, width: int) -> Table:
    narrow = ["line", *(["threads"] if one.counts else [])]
    wide = ["source", one.code.language, *(["SASS"] if one.function else [])]
    rows = list(_rows(one, with_control=width >= _WITH_CONTROL))
    widths = [
        max(len(line) for line in [name, *(line for row in rows for line in row[i].plain.splitlines())])
        for i, name in enumerate(narrow + wide)
    ]
    taken = sum(widths[: len(narrow)]) + _GAP * (len(widths) - 1)
    shares = share(width - taken, widths[len(narrow) :])
    grid = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name in narrow:
        grid.add_column(name, justify="right", no_wrap=True)
    for name in wide:
        grid.add_column(name, no_wrap=True, overflow="ellipsis")
    for row in rows:
        cells = [cell.split("\n") for cell in row[len(narrow) :]]
        for lines, most in zip(cells, shares, strict=True):
            for line in lines:
                line.truncate(most, overflow="ellipsis")
        grid.add_row(*row[: len(narrow)], *(Text("\n").join(lines) for lines in cells))
    return grid


def share(available: int, wanted: Sequence[int]) -> list[int]:
    """Return the width of each pane: as wide as it wants, or an equal part of what the others leave."""
    widths = [0] * len(wanted)
    for served, pane in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        rest = available - sum(widths)
        widths[pane] = min(wanted[pane], max(_MIN_PANE, rest // (len(wanted) - served)))
    return widths


def ptx_by_line(lines: Sequence[PtxLine], file: str) -> dict[int, list[PtxLine]]:
    """Return the lines of PTX by line of the kernel's own file, 0 for those of none.

    A label belongs to what follows it, the code of a header's function to the line that calls it.
    """
    following: LocationChain = ()
    by_line: dict[int, list[PtxLine]] = {}
    for line in reversed(lines):
        following = line.chain if line.statements else following
        chain = following if line.text.rstrip().endswith(":") else line.chain
        by_line.setdefault(_line(chain, file), []).append(line)
    return {number: some[::-1] for number, some in by_line.items()}


def sass_by_line(instructions: Sequence[SassInstruction], file: str) -> dict[int, list[SassInstruction]]:
    """Return machine instructions by line of the kernel's own file, 0 for those of none."""
    by_line: dict[int, list[SassInstruction]] = {}
    for instruction in instructions:
        by_line.setdefault(_line(instruction.chain, file), []).append(instruction)
    return by_line


def _line(chain: LocationChain, file: str) -> int:
    at = shown_location(chain, file)
    return at.line if at is not None and at.file == file else 0


def _rows(one: InspectedKernel, *, with_control: bool) -> Iterator[list[Text]]:
    """Yield the cells of each source line: its number, its counts if there are any, source, PTX, SASS."""
    file = one.code.file
    ptx, sass = ptx_by_line(one.code.ptx, file), sass_by_line(one.instructions, file)
    text = one.code.texts.get(file, "").splitlines()
    with_code = [number for number in {*ptx, *sass} if 0 < number <= len(text)]
    numbers = range(min(with_code, default=1), max(with_code, default=0) + 1)
    for number in [*numbers, 0]:
        # A .loc only repeats the line next to it.
        lines = [" ".join(line.text.split()) for line in ptx.get(number, ())]
        lines = [line for line in lines if line and not line.startswith(("//", ".loc"))]
        machine = [part for i in sass.get(number, ()) for part in _instruction(i, with_control)]
        if number or lines or machine:
            counts = one.counts.lines.get(SourceLocation(file, number)) if one.counts else None
            executed = Text(f"{counts.lane_instructions:,}" if counts is not None else "", style="yellow")
            yield [
                Text(str(number) if number else "", style="dim"),
                *([executed] if one.counts else []),
                Text(text[number - 1].rstrip()) if number else Text(_ELSEWHERE, style="dim italic"),
                Text("\n").join(Text(line, style="dim") for line in lines),
                *([Text("\n").join(machine)] if one.function else []),
            ]


def _instruction(instruction: SassInstruction, with_control: bool) -> Iterator[Text]:
    for label in instruction.labels:
        yield Text(f"{label}:", style="dim")
    control = f"{instruction.control}  " if instruction.control and with_control else ""
    address = (f"{instruction.address:04x}  {control}", "dim")
    yield Text.assemble(address, (instruction.text, style_of(instruction)))


def style_of(instruction: SassInstruction) -> str:
    kind = kinds.kind_of(instruction)
    return _STYLES.get(kind.group, "") if kind else ""


KINDS = ("ptx", "tileir", "sass", "cubin", "symbols", "resources")
_OF_MACHINE_CODE = ("sass", "cubin", "resources")
_NAME = re.compile(r"[\w$]+")


def emit(report: InspectReport, what: str) -> bytes:
    """Return one kind of output, of `KINDS`, as a file would hold it.

    Raises:
        UsageError: There is no such kind, no kernel, or no machine code for it; or there would be several
            files of PTX, or several cubins.
        EnvironmentFault: SASS is requested, and there is no nvdisasm.
    """
    if what not in KINDS:
        raise UsageError(f"emit={what!r}: it is one of {', '.join(KINDS)}.")
    if not report.kernels:
        if report.libraries:
            raise UsageError(
                f"{report.target} is computed by a library: dotcu compiles nothing to emit as {what}.\n"
                f"Type: dotcu inspect {quoted(report.libraries[0].path)} --emit symbols"
            )
        raise UsageError(
            f"{report.target} has no kernel to emit as {what}.\n"
            "Required: a kernel, or an instantiation of a template.\n"
            f"See what there is: dotcu inspect {quoted(report.target)}"
        )
    if what in _OF_MACHINE_CODE and not any(one.code.cubin for one in report.kernels):
        archs = ", ".join(dict.fromkeys(str(one.code.arch) for one in report.kernels))
        raise UsageError(
            f"--emit {what} needs machine code, and {archs} is only PTX.\n"
            "Required: an architecture of a GPU.\n"
            f"Type: --arch {archs.partition(',')[0].replace('compute_', 'sm_')}, or --emit ptx"
        )
    tiles = {one.code.tile is not None for one in report.kernels}
    if what == "cubin":
        code = _object_code(report, "a cubin")
        if len(tiles) > 1:
            raise UsageError(
                f"{report.target} has tile kernels and others, which have a cubin each.\n"
                "Name one kernel after a colon: TARGET:NAME"
            )
        cubin = code.tile_cubins[host()] if True in tiles else code.cubin
        assert cubin is not None  # a report with only PTX is refused before
        return cubin
    if what in ("ptx", "tileir") and (what == "tileir") not in tiles:
        other = "tileir" if what == "ptx" else "ptx"
        raise UsageError(
            f"{report.target} has no kernel with {what}: a tile kernel is Tile IR, any other PTX.\n"
            f"Type: --emit {other}"
        )
    if what == "tileir":
        text = tile_ir.text(tile_ir.read(_object_code(report, "Tile IR").tile_ir))
    elif what == "ptx":
        text = _object_code(report, "PTX").ptx
    else:
        text = "".join(f"{line}\n" for line in _lines(report, what))
    return text.encode("utf-8", "surrogateescape")


def _lines(report: InspectReport, what: str) -> Iterator[str]:
    if what == "symbols":
        yield from (f"T {one.code.symbol}\t{one.code.name}\t{one.code.arch}" for one in report.kernels)
    elif what == "resources":
        known = [one for one in report.kernels if one.code.resources is not None]
        rows = [{"kernel": one.code.name, "arch": one.code.arch, **vars(one.code.resources)} for one in known]
        yield from ("\t".join(map(str, cells)) for cells in (rows[0], *(row.values() for row in rows)))
    else:
        if not any(one.function for one in report.kernels):
            assembly.disassembler()
        yield from (line for one in report.kernels if one.function for line in _sass(one))


def _object_code(report: InspectReport, name: str) -> ObjectCode:
    """Compile the kernels of a report without the others of their file; errors call the result `name`."""
    units = {(one.code.unit, one.code.arch) for one in report.kernels}
    if len(units) != 1:
        kernels = ", ".join(f"{one.code.name} {one.code.arch}" for one in report.kernels)
        raise UsageError(
            f"{name} holds kernels that are compiled together, for one architecture; {report.target} has "
            f"{kernels}.\nName one kernel after a colon, TARGET:NAME, and one architecture: --arch sm_90"
        )
    ((unit, arch),) = units
    assert unit is not None  # only code that was compiled here is emitted
    names = tuple(one.code.name for one in report.kernels)
    source = only_kernels(unit.source, unit.options.defined, names)
    if len(set(names)) < len(names):  # overloads, which have one name
        return _build(source, unit.options, arch, (), {one.code.symbol for one in report.kernels})
    try:
        return _build(source, unit.options, arch, names)
    except SourceError:  # another kernel is named in what stays, or begins in an #if and ends in another
        return _build(unit.source, unit.options, arch, names)


def _build(
    source: Source,
    options: CompileOptions,
    target: Target,
    names: Sequence[str],
    symbols: Collection[str] = (),
) -> ObjectCode:
    """Compile some kernels, and others only where these name them.

    A header may declare others, and a macro may make some: the assembler leaves them out.
    """
    code = build(source, options=options, target=target, names=names, probed=False)
    wanted = {*code.lowered.values(), *symbols}
    others = set(assembly.ptx_module(code.ptx).entries) - wanted
    text = assembly.only_entries(code.ptx, wanted)
    if not others or others.intersection(_NAME.findall(text)):
        return code
    if target.kind == "sm":
        entries = f"--ptxas-options=--entry={','.join(sorted(wanted))}"
        options = replace(options, options=(*options.options, entries))
        code = build(source, options=options, target=target, names=names, probed=False)
    return replace(code, ptx=text)


def _sass(one: InspectedKernel) -> Iterator[str]:
    """Yield the machine instructions of a kernel, with their source line where it changes."""
    yield f"{one.code.symbol}:  // {one.code.name} {one.code.arch}"
    last = None
    for instruction in one.instructions:
        if instruction.chain and instruction.chain != last:
            yield f"    // {', inlined at '.join(map(str, instruction.chain))}"
        last = instruction.chain
        yield from (f"{label}:" for label in instruction.labels)
        yield f"    /*{instruction.address:04x}*/  {instruction.text};"
