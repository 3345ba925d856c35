"""Plain text or bytes of a report, for pipes and files: PTX, SASS, a cubin, symbols, resources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict

from dotcu.compile import ObjectCode
from dotcu.errors import EnvironmentFault, UsageError
from dotcu.inspection.code import disassembler
from dotcu.inspection.code.alone import Part, isolated
from dotcu.inspection.code.inspected import InspectedKernel
from dotcu.inspection.code.report import InspectReport
from dotcu.inspection.code.units import Unit


def emit(report: InspectReport, what: str) -> bytes:
    """What is asked for, as a file would hold it.

    Args:
        what: One of `KINDS`.

    Raises:
        UsageError: There is no such kind, no kernel, or no machine code to tell it from; or PTX or a cubin is
            asked for, and there would be several.
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
            f"--emit {what} is of machine code, and {archs} is PTX alone.\n"
            "Required: an architecture that a GPU has.\n"
            f"Type: --arch {archs.partition(',')[0].replace('compute_', 'sm_')}, or --emit ptx"
        )
    return KINDS[what](report)


_OF_MACHINE_CODE = ("sass", "cubin", "resources")


def _ptx(report: InspectReport) -> bytes:
    return _alone(report, "PTX").ptx.encode("utf-8", "surrogateescape")


def _cubin(report: InspectReport) -> bytes:
    cubin = _alone(report, "a cubin").cubin
    assert cubin is not None  # PTX alone is refused before
    return cubin


def _alone(report: InspectReport, what: str) -> ObjectCode:
    """The kernels that are shown, compiled without the others of their file."""
    of = {(_whole(one.code.unit), one.code.arch) for one in report.kernels}
    if len(of) != 1:
        names = ", ".join(f"{one.code.name} {one.code.arch}" for one in report.kernels)
        raise UsageError(
            f"{what} is of kernels that are compiled together, for one architecture; {report.target} has "
            f"{names}.\nName one kernel after a colon, TARGET:NAME, and one architecture: --arch sm_90"
        )
    ((unit, arch),) = of
    assert unit is not None  # only code that was compiled here is emitted
    return isolated(unit, arch, [one.code for one in report.kernels])


def _whole(unit: Unit | None) -> Unit | None:
    return unit.whole if isinstance(unit, Part) else unit


def _sass(report: InspectReport) -> bytes:
    if not any(one.function for one in report.kernels) and not disassembler.available():
        raise EnvironmentFault(disassembler.missing())
    return _lines(line for one in report.kernels if one.function for line in listing(one))


def listing(one: InspectedKernel) -> Iterator[str]:
    """The machine instructions of a kernel, with the source line before each that comes from another one."""
    assert one.function is not None
    yield f"{one.code.symbol}:  // {one.code.name} {one.code.arch}"
    last = None
    for instruction in one.function.instructions:
        if instruction.line is not None and instruction.chain != last:
            yield f"    // {', inlined at '.join(map(str, instruction.chain))}"
        last = instruction.chain
        yield from (f"{label}:" for label in instruction.labels)
        yield f"    /*{instruction.address:04x}*/  {instruction.text};"


def _symbols(report: InspectReport) -> bytes:
    return _lines(f"T {one.code.symbol}\t{one.code.name}\t{one.code.arch}" for one in report.kernels)


def _resources(report: InspectReport) -> bytes:
    return _lines(_resource_rows(report))


def _resource_rows(report: InspectReport) -> Iterator[str]:
    head = None
    for one in report.kernels:
        if one.code.resources is not None:
            taken = asdict(one.code.resources)
            if head is None:
                head = ("kernel", "arch", *taken)
                yield "\t".join(head)
            yield "\t".join([one.code.name, str(one.code.arch), *map(str, taken.values())])


def _lines(lines: Iterator[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


KINDS: Mapping[str, Callable[[InspectReport], bytes]] = {
    "ptx": _ptx,
    "sass": _sass,
    "cubin": _cubin,
    "symbols": _symbols,
    "resources": _resources,
}
"""What can be emitted."""
