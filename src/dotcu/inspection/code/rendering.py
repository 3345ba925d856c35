"""A report as people read it.

scale<float>  sm_90  kernels.cu:12
  resources  28 registers, 128 B of shared memory, 1 barrier; no spills, no stack; 96 instructions
  occupancy  block=256: 8 blocks, 64 of 64 warps, limited by registers and threads (launched by a sample)
  emitted    global memory     2 x load, 16 B a lane  lines 20, 21
                               1 x store, 16 B a lane  line 23
  look at    line 24: div.s32 by a value that is known only at run time, 31 instructions
  counted    140,672 lane instructions of PTX, 31.9 of 32 lanes at work: mylib::scale, float32, sample 2
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dotcu.inspection.code.occupancy import SEEN, Held, Step
from dotcu.inspection.code.places import Place

if TYPE_CHECKING:
    from dotcu.compile import Resources
    from dotcu.inspection.code.inspected import InspectedKernel
    from dotcu.inspection.code.report import InspectReport
    from dotcu.inspection.code.units import Failed

MOST_LINES = 6
"""How many source lines are named for one kind of instruction."""

_LABEL = 9  # characters of the first column, so that the kernels' tables line up


def table(report: InspectReport) -> RenderableType:
    """The whole report."""
    parts: list[RenderableType] = []
    for one in report.kernels:
        parts += [_head(one), _grid(_rows(one)), Text()]
    for failure in report.failed:
        parts += [_failed(failure), Text()]
    for template in report.templates:
        parts.append(Text(f"{template.head}: no instantiation is known; {template.remedy}"))
    parts += [Text(f"note: {note}", style="yellow") for note in report.notes]
    for library in report.libraries:
        parts += [Text(), library.__rich__(), Text()]
    if not any((report.kernels, report.failed, report.templates, report.libraries)):
        parts.append(Text(f"{report.target} has no kernels."))
    while parts and isinstance(parts[-1], Text) and not parts[-1].plain:
        parts.pop()
    return Group(*parts)


def _head(one: InspectedKernel) -> Text:
    place = one.code.place
    where = f"  {short(place.file)}:{place.line}" if place else ""
    return Text.assemble((one.code.name, "bold"), f"  {one.code.arch}", (where, "dim"))


def short(file: str) -> str:
    """A path as it is typed from here, where that is shorter."""
    if not file or not Path(file).is_absolute():
        return file
    return min(file, os.path.relpath(file), key=len)


def _grid(rows: Iterable[tuple[str, Text]]) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(min_width=_LABEL)
    grid.add_column(overflow="fold")
    last = ""
    for label, words in rows:
        grid.add_row(Text(label if label != last else "", style="cyan"), words)
        last = label
    return Padding(grid, (0, 0, 0, 2))


def _rows(one: InspectedKernel) -> Iterator[tuple[str, Text]]:
    if one.code.resources is not None:
        count = f"; {len(one.function.instructions)} instructions" if one.function else ""
        dynamic = ", and dynamic shared memory as it is launched with" if one.code.takes_dynamic_smem else ""
        yield "resources", Text(f"{resources(one.code.resources)}{dynamic}{count}")
    for held in one.held:
        for line in occupancy(held):
            yield "occupancy", line
    yield from (("emitted" if one.function else "PTX has", text) for text in _emitted(one))
    for remark in one.remarks:
        near = "near " if remark.near else ""
        at = f"{near}{_where(remark.place, one.code.home)}: " if remark.place else ""
        yield "look at", Text.assemble((at, "bold"), (remark.message, "yellow"))
    if one.counted is not None:
        yield "counted", Text(_counted(one), style="dim")


def resources(taken: Resources) -> str:
    """What a kernel takes, in words."""
    smem = f"{taken.smem_bytes} B of static shared memory" if taken.smem_bytes else "no static shared memory"
    barriers = f"{taken.barriers} barrier{'' if taken.barriers == 1 else 's'}"
    spilled = taken.spill_store_bytes + taken.spill_load_bytes
    spills = f"spills {taken.spill_store_bytes} B stored, {taken.spill_load_bytes} B loaded"
    stack = f"{taken.stack_bytes} B of stack" if taken.stack_bytes else "no stack"
    constants = f", {taken.constant_bytes} B of constants" if taken.constant_bytes else ""
    return (
        f"{taken.registers} registers, {smem}{constants}, {barriers}, "
        f"{spills if spilled else 'no spills'}, {stack}"
    )


def occupancy(held: Held) -> Iterator[Text]:
    """What a multiprocessor holds, in words; then what would let more in."""
    why = "" if held.why == SEEN else f" ({held.why})"
    limit = listed(held.limiters)
    if not held.blocks:
        yield Text(f"{held.shape}: no launch can have it, because of {limit}{why}", style="bold red")
        yield from _steps(held)
        return
    blocks = f"{held.blocks} block{'' if held.blocks == 1 else 's'} a multiprocessor"
    warps = f"{held.warps} of {held.most_warps} warps ({held.share:.0%})"
    cluster = "; of clusters nothing is told" if held.shape.cluster else ""
    yield Text(f"{held.shape}: {blocks}, {warps}, limited by {limit}{cluster}{why}")
    yield from _steps(held)


def _steps(held: Held) -> Iterator[Text]:
    for step in held.steps:
        yield Text(f"    {step_in_words(step)}", style="dim")


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else ""


def step_in_words(step: Step) -> str:
    unit = {"registers": "registers a thread", "shared memory": "B of shared memory", "threads": "threads"}
    return (
        f"with at most {step.need} {unit[step.resource]}, {step.now - step.need} fewer: "
        f"{step.blocks} block{'' if step.blocks == 1 else 's'}, {step.warps} "
        f"warp{'' if step.warps == 1 else 's'}"
    )


def _emitted(one: InspectedKernel) -> Iterator[Text]:
    """The instructions by kind; the name of a group stands before its first."""
    width, last = max((len(each.group) for each in one.emitted), default=0), ""
    for each in one.emitted:
        lines = f"  {_lines([place for place, _ in each.places], one.code.home)}" if each.places else ""
        group = each.group if each.group != last else ""
        yield Text.assemble(f"{group:<{width}}  {each.count:>4} x {each.label}", (lines, "dim"))
        last = each.group


def _lines(places: Sequence[Place], home: str) -> str:
    """`lines 20, 21 and 3 more`; those of other files with their names."""
    own = sorted({place.line for place in places if place.file == home})
    others = [f"{short(place.file)}:{place.line}" for place in places if place.file != home]
    shown = [*map(str, own), *others][:MOST_LINES]
    rest = len(own) + len(others) - len(shown)
    more = f" and {rest} more" if rest else ""
    word = "line" if len(own) == 1 and not others else "lines"
    return f"{word if own else 'at'} {', '.join(shown)}{more}"


def _where(place: Place, home: str) -> str:
    return f"line {place.line}" if place.file == home else f"{short(place.file)}:{place.line}"


def _counted(one: InspectedKernel) -> str:
    assert one.counted is not None
    total = one.counted.total
    told = (
        f"{total.lane_instructions:,} lane instructions of PTX, {total.active_lanes:.1f} of 32 lanes at work"
    )
    return f"{told}: {one.counted.call}, in the simulator"


def _failed(failure: Failed) -> RenderableType:
    names = f" ({', '.join(failure.names)})" if failure.names else ""
    head = Text(f"{failure.arch}{names} could not be compiled:", style="bold red")
    return Group(head, Padding(Text(failure.message), (0, 0, 0, 2)))
