"""A report on compiled code, as the page of `dotcu inspect --html` shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dotcu.inspection.code.diff_report import DiffReport
from dotcu.inspection.code.inspected import InspectedKernel
from dotcu.inspection.code.occupancy import Held
from dotcu.inspection.code.places import Chain, Place
from dotcu.inspection.code.remarks import Remark
from dotcu.inspection.code.rendering import short, step_in_words
from dotcu.inspection.code.report import InspectReport
from dotcu.inspection.code.sass import Instruction
from dotcu.inspection.code.units import Failed
from dotcu.inspection.html.page import (
    Changed,
    CodeLine,
    Fact,
    KernelPane,
    Metric,
    Note,
    Page,
    SourceFile,
    SourceLine,
    Tone,
)
from dotcu.simulator import Line

GUARD = 5
"""Characters that a guard such as @!P0 takes, so that opcodes stand in a column."""

METRICS: Mapping[str, tuple[str, str]] = {
    "lane instructions": ("lane_instructions", "Instructions of PTX, once for each lane that ran them."),
    "warp instructions": ("warp_instructions", "Instructions of PTX, once for each warp that issued them."),
    "global sectors": ("global_sectors", "Sectors of 32 bytes of global memory that its accesses touched."),
    "shared wavefronts": ("shared_wavefronts", "Turns that the banks of shared memory took."),
    "divergent branches": ("divergent_branches", "Branches at which lanes of a warp went different ways."),
}
"""What is shown by line: its name, the counter, and what that counts."""

WITHOUT_SASS = "There is no machine code, or no nvdisasm to read it.\nType: pip install 'dotcu[tools]'"


def page(report: InspectReport, compared: DiffReport | None = None) -> Page:
    """What the page shows.

    Args:
        report: With a kernel, or with one that could not be compiled.
        compared: What changed from another report to this one.
    """
    panes = [*map(_kernel, report.kernels), *_failures(report.failed)]
    rows = tuple(("note", note) for note in report.notes)
    changed = () if compared is None else tuple(_changed(compared))
    return Page(title=report.target, kernels=tuple(panes), rows=rows, changed=changed)


def _changed(compared: DiffReport) -> Iterator[Changed]:
    for one in compared.changes:
        numbers = [*(each for each in one.resources if each.by), *one.opcodes]
        told = tuple(map(str, numbers)) or (() if one.same else ("the order of instructions",))
        yield Changed(name=one.title, changes=told)
    yield from (Changed(name=name, changes=("only before",)) for name in compared.before)
    yield from (Changed(name=name, changes=("only after",)) for name in compared.after)


def _kernel(one: InspectedKernel) -> KernelPane:
    sass = one.function.instructions if one.function else ()
    return KernelPane(
        name=one.code.name,
        arch=str(one.code.arch),
        facts=tuple(_facts(one)),
        notes=tuple(map(_note, one.remarks)),
        source=tuple(_sources(one)),
        ptx=tuple(
            CodeLine(text=line.text, label=str(line.number), places=_places(line.chain))
            for line in one.code.ptx
            if not line.text.lstrip().startswith(".loc")
        ),
        sass=tuple(row for instruction in sass for row in _machine(instruction)),
        metrics=tuple(_metrics(one)),
        missing={} if one.function else {"sass": WITHOUT_SASS},
    )


def _facts(one: InspectedKernel) -> Iterator[Fact]:
    taken = one.code.resources
    if taken is not None:
        spilled = taken.spill_store_bytes + taken.spill_load_bytes
        yield Fact(name="registers", value=str(taken.registers))
        yield Fact(name="spilled", value=f"{spilled} B", tone="bad" if spilled else "good")
        yield Fact(name="stack", value=f"{taken.stack_bytes} B", tone="warn" if taken.stack_bytes else "")
        yield Fact(name="static shared", value=f"{taken.smem_bytes} B")
        yield Fact(name="barriers", value=str(taken.barriers))
    if one.function is not None:
        yield Fact(name="instructions", value=str(len(one.function.instructions)))
    for held in one.held:
        yield _occupancy(held)
    if one.counted is not None:
        yield Fact(name="counted in", value=one.counted.call)


def _occupancy(held: Held) -> Fact:
    tone: Tone = "good" if held.share >= 0.5 else "warn"  # half is enough to hide most latencies
    steps = [step_in_words(step) for step in held.steps]
    limited = f"limited by {' and '.join(held.limiters)}"
    return Fact(
        name=f"occupancy, {held.shape}",
        value=f"{held.blocks} blocks, {held.share:.0%}",
        note="; ".join([limited, *steps]),
        tone=tone if held.blocks else "bad",
    )


def _note(remark: Remark) -> Note:
    place = (short(remark.place.file), remark.place.line) if remark.place else None
    return Note(text=f"near this line: {remark.message}" if remark.near else remark.message, place=place)


def _sources(one: InspectedKernel) -> Iterator[SourceFile]:
    for file, text in one.code.texts.items():
        lines = enumerate(text.splitlines(), 1)
        yield SourceFile(
            name=short(file), lines=tuple(SourceLine(number=number, text=line) for number, line in lines)
        )


def _machine(instruction: Instruction) -> Iterator[CodeLine]:
    for label in instruction.labels:
        yield CodeLine(text=f"{label}:")
    guard = instruction.predicate
    text = instruction.text.removeprefix(guard).lstrip()
    yield CodeLine(
        text=f"{guard:<{GUARD}} {text}",
        label=f"{instruction.address:04x}",
        places=_places(instruction.chain),
        control=str(instruction.control) if instruction.control else "",
    )


def _places(chain: Chain) -> tuple[tuple[str, int], ...]:
    return tuple((short(place.file), place.line) for place in chain)


def _metrics(one: InspectedKernel) -> Iterator[Metric]:
    if one.counted is None:
        return
    for name, (counter, told) in METRICS.items():
        counts = _counts(one.counted.lines, counter)
        if any(counts.values()):
            yield Metric(name=name, told=told, counts=counts)


def _counts(lines: Mapping[Place, Line], counter: str) -> dict[tuple[str, int], float]:
    return {(short(place.file), place.line): getattr(line, counter) for place, line in lines.items()}


def _failures(failed: Iterable[Failed]) -> Iterator[KernelPane]:
    for one in failed:
        for name in one.names:
            yield KernelPane(name=name, arch=str(one.arch), failure=one.message)
