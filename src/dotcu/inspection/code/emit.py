"""Plain text or bytes of a report, for pipes and files: PTX, SASS, a cubin, symbols, resources."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace

from dotcu.compile import CompileOptions, ObjectCode, Source, Target, build
from dotcu.compile.source.declarations import only_kernels
from dotcu.errors import EnvironmentFault, SourceError, UsageError
from dotcu.inspection.code import ptx, sass
from dotcu.inspection.code.report import InspectedKernel, InspectReport

_OF_MACHINE_CODE = ("sass", "cubin", "resources")
_NAME = re.compile(r"[\w$]+")


def emit(report: InspectReport, what: str) -> bytes:
    """Return one kind of output, as a file would hold it.

    Args:
        report: The kernels.
        what: One of `KINDS`.

    Raises:
        UsageError: There is no such kind, no kernel, or no machine code for it; or PTX or a cubin is asked
            for, and there would be several.
        EnvironmentFault: SASS is asked for, and there is no nvdisasm.
    """
    if what not in KINDS:
        raise UsageError(f"emit={what!r}: it is one of {', '.join(KINDS)}.")
    if not report.kernels:
        templates = "".join(f" Of {one.name}, {one.remedy}." for one in report.templates[:1])
        if report.libraries:
            raise UsageError(
                f"{report.target} is computed by a library: dotcu compiles none of it to emit {what} of.\n"
                f"Type: dotcu inspect {report.libraries[0].path} --emit symbols"
            )
        raise UsageError(
            f"{report.target} has no kernel of which to emit {what}.\n"
            f"A kernel is required, of a template an instantiation.{templates}\n"
            f"See what there is: dotcu inspect {report.target}"
        )
    if what in _OF_MACHINE_CODE and not any(one.code.cubin for one in report.kernels):
        archs = ", ".join(dict.fromkeys(str(one.code.arch) for one in report.kernels))
        raise UsageError(
            f"--emit {what} needs machine code, and {archs} is only PTX.\n"
            "Required: an architecture of a GPU.\n"
            f"Type: --arch {archs.partition(',')[0].replace('compute_', 'sm_')}, or --emit ptx"
        )
    return KINDS[what](report)


def _ptx(report: InspectReport) -> bytes:
    return _object_code(report, "PTX").ptx.encode("utf-8", "surrogateescape")


def _cubin(report: InspectReport) -> bytes:
    cubin = _object_code(report, "a cubin").cubin
    assert cubin is not None  # PTX alone is refused before
    return cubin


def _object_code(report: InspectReport, what: str) -> ObjectCode:
    """Compile the kernels of a report without the others of their file.

    Raises:
        UsageError: They are of several units or architectures.
        SourceError: They do not compile.
        EnvironmentFault: There is no compiler, or none that may be used.
    """
    of = {(one.code.unit, one.code.arch) for one in report.kernels}
    if len(of) != 1:
        kernels = ", ".join(f"{one.code.name} {one.code.arch}" for one in report.kernels)
        raise UsageError(
            f"{what} is of kernels that are compiled together, for one architecture; {report.target} has "
            f"{kernels}.\nName one kernel after a colon, TARGET:NAME, and one architecture: --arch sm_90"
        )
    ((unit, arch),) = of
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


def _sass(report: InspectReport) -> bytes:
    if not any(one.function for one in report.kernels) and not sass.has_disassembler():
        raise EnvironmentFault(sass.missing_disassembler())
    return _lines(line for one in report.kernels if one.function for line in _listing(one))


def _listing(one: InspectedKernel) -> Iterator[str]:
    """Yield the machine instructions of a kernel, with their source line where it changes."""
    yield f"{one.code.symbol}:  // {one.code.name} {one.code.arch}"
    last = None
    for instruction in one.instructions:
        if instruction.chain and instruction.chain != last:
            yield f"    // {', inlined at '.join(map(str, instruction.chain))}"
        last = instruction.chain
        yield from (f"{label}:" for label in instruction.labels)
        yield f"    /*{instruction.address:04x}*/  {instruction.text};"


def _symbols(report: InspectReport) -> bytes:
    return _lines(f"T {one.code.symbol}\t{one.code.name}\t{one.code.arch}" for one in report.kernels)


def _resources(report: InspectReport) -> bytes:
    rows = [
        {"kernel": one.code.name, "arch": one.code.arch, **asdict(one.code.resources)}
        for one in report.kernels
        if one.code.resources is not None
    ]
    return _lines("\t".join(map(str, cells)) for cells in (rows[0], *(row.values() for row in rows)))


def _lines(lines: Iterator[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


KINDS: Mapping[str, Callable[[InspectReport], bytes]] = {
    "ptx": _ptx,
    "sass": _sass,
    "cubin": _cubin,
    "symbols": _symbols,
    "resources": _resources,
}
"""The kinds of output."""
