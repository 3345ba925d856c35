"""Plain text or bytes of a report, for pipes and files: PTX, SASS, a cubin, symbols, resources."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from dotcu import tile_ir
from dotcu.compile import CompileOptions, ObjectCode, Source, Target, build
from dotcu.compile.source.declarations import only_kernels
from dotcu.compile.tile import host
from dotcu.errors import SourceError, UsageError
from dotcu.inspection.code import ptx, sass
from dotcu.inspection.code.report import InspectedKernel, InspectReport

KINDS = ("ptx", "tileir", "sass", "cubin", "symbols", "resources")
_OF_MACHINE_CODE = ("sass", "cubin", "resources")
_NAME = re.compile(r"[\w$]+")


def emit(report: InspectReport, what: str) -> bytes:
    """Return one kind of output, of `KINDS`, as a file would hold it.

    Raises:
        UsageError: There is no such kind, no kernel, or no machine code for it; or PTX or a cubin is asked
            for, and there would be several.
        EnvironmentFault: SASS is asked for, and there is no nvdisasm.
    """
    if what not in KINDS:
        raise UsageError(f"emit={what!r}: it is one of {', '.join(KINDS)}.")
    if not report.kernels:
        if report.libraries:
            raise UsageError(
                f"{report.target} is computed by a library: dotcu compiles none of it to emit {what} of.\n"
                f"Type: dotcu inspect {report.libraries[0].path} --emit symbols"
            )
        raise UsageError(
            f"{report.target} has no kernel of which to emit {what}.\n"
            "A kernel is required, of a template an instantiation.\n"
            f"See what there is: dotcu inspect {report.target}"
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
        assert cubin is not None  # PTX alone is refused before
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
            sass.disassembler()
        yield from (line for one in report.kernels if one.function for line in _sass(one))


def _object_code(report: InspectReport, name: str) -> ObjectCode:
    """Compile the kernels of a report without the others of their file; errors call the result `name`."""
    units = {(one.code.unit, one.code.arch) for one in report.kernels}
    if len(units) != 1:
        kernels = ", ".join(f"{one.code.name} {one.code.arch}" for one in report.kernels)
        raise UsageError(
            f"{name} is of kernels that are compiled together, for one architecture; {report.target} has "
            f"{kernels}.\nName one kernel after a colon, TARGET:NAME, and one architecture: --arch sm_90"
        )
    ((unit, arch),) = units
    assert unit is not None  # only code that was compiled here is emitted
    names = tuple(one.code.name for one in report.kernels)
    source = only_kernels(unit.source, unit.options, names)
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
    others = set(ptx.ptx_module(code.ptx).entries) - wanted
    text = ptx.only(code.ptx, wanted)
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
