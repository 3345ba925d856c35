"""Plain text or bytes of a report, for pipes and files: PTX, SASS, a cubin, symbols, resources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict

from dotcu.errors import EnvironmentFault, UsageError
from dotcu.inspection.code import disassembler
from dotcu.inspection.code.inspected import InspectedKernel
from dotcu.inspection.code.report import InspectReport


def emit(report: InspectReport, what: str) -> bytes:
    """What is asked for, as a file would hold it.

    Args:
        what: One of `KINDS`.

    Raises:
        UsageError: There is no such kind; or PTX or a cubin is asked for, and there are several, or none.
        EnvironmentFault: SASS is asked for, and there is no nvdisasm.
    """
    if what not in KINDS:
        raise UsageError(f"emit={what!r}: it is one of {', '.join(KINDS)}.")
    return KINDS[what](report)


def _ptx(report: InspectReport) -> bytes:
    texts = {one.code.text for one in report.kernels}
    return _only(report, "PTX", {text.encode("utf-8", "surrogateescape") for text in texts})


def _cubin(report: InspectReport) -> bytes:
    return _only(report, "a cubin", {one.code.cubin for one in report.kernels if one.code.cubin is not None})


def _only(report: InspectReport, what: str, found: set[bytes]) -> bytes:
    if len(found) == 1:
        return found.pop()
    names = ", ".join(f"{one.code.name} {one.code.arch}" for one in report.kernels) or "no kernel"
    raise UsageError(
        f"{what} is of one unit and one architecture, and {report.target} has {len(found)}: {names}.\n"
        "Name one kernel after a colon, TARGET:NAME, and one architecture: --arch sm_90"
    )


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
