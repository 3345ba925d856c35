"""A report on compiled kernels, as values and as text.

scale<float>  sm_90  kernels.cu:12
  resources  28 registers, 128 B of shared memory, 1 barrier; no spills, no stack; 96 instructions
  occupancy  block=256: 8 blocks, 64 of 64 warps, limited by registers and threads (launched by a sample)
  emitted    global memory     2 x load, 16 B per thread  lines 20, 21
                               1 x store, 16 B per thread  line 23
  look at    line 24: div.s32 by a value known only at run time, 31 instructions
  counted    140,672 thread instructions of PTX, 31.9 of 32 threads per warp active: mylib::scale, float32
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dotcu import report_base, serialize
from dotcu.compile import Declaration, Resources
from dotcu.inspection.assembly import SassFunction, SassInstruction, callees
from dotcu.inspection.binary import HOST_CODE_RUNS, BinaryReport
from dotcu.inspection.build import FailedBuild, KernelCode, LaunchShape, instantiation
from dotcu.inspection.instruction_kinds import PTX, TILE, InstructionCount, count_ptx, count_sass
from dotcu.inspection.remarks import Remark, code_remarks, count_remarks
from dotcu.kernel.config import LIMITS, MAX_THREADS_PER_BLOCK, WARP, ArchLimits, Occupancy, occupancy
from dotcu.kernel.declarations import template_head
from dotcu.simulator import LineCounters
from dotcu.tile_ir.module import SourceLocation

DEFAULT_THREADS = 256
"""The block that is assumed where no launch is known, and no launch bound."""

SEEN, BOUND, ASSUMED = "launched by a sample", "its launch bound", "assumed: no launch is known"
BY_COMPILER = "chosen by the compiler"

_BOUNDS = "launch bounds"


@dataclass(frozen=True, kw_only=True)
class OccupancyStep:
    """The smallest change of one resource that lets more warps into a multiprocessor.

    Attributes:
        resource: "registers" per thread; "shared memory" in bytes, "threads" or "barriers" per block.
        now, need: What the kernel takes, and the most that it may take for that.
        blocks, warps: How many there would be.
    """

    resource: str
    now: int
    need: int
    blocks: int
    warps: int


@dataclass(frozen=True, kw_only=True)
class KernelOccupancy:
    """The blocks of a kernel, launched in one way, that fit a multiprocessor.

    Attributes:
        why: Where the shape comes from.
        limits: Blocks by each limit.
        blocks, warps: How many fit; 0 if no launch can have this shape.
        limiters: Every resource that allows no more than that.
        most_warps: Those that a multiprocessor holds.
        steps: Changes that would let more warps in, where one change is enough.
    """

    shape: LaunchShape
    why: str
    limits: Mapping[str, int]
    blocks: int
    limiters: tuple[str, ...]
    warps: int
    most_warps: int
    steps: tuple[OccupancyStep, ...] = ()

    @property
    def share(self) -> float:
        """The theoretical occupancy."""
        return self.warps / self.most_warps


def kernel_occupancy(code: KernelCode, asked: LaunchShape | None = None) -> tuple[KernelOccupancy, ...]:
    """Return the occupancy of a kernel for each of its known launches, or for the requested one.

    There is none where there is only PTX, or where the compute capability is not in the table.
    """
    arch = LIMITS.get((code.arch.major, code.arch.minor))
    if arch is None or code.resources is None:
        return ()
    bound, _ = code.launch_bounds
    if asked is not None:
        shapes, why = [asked], "requested"
    elif code.shapes:
        shapes, why = sorted(code.shapes), SEEN
    else:
        shapes, why = [LaunchShape(block=(bound or DEFAULT_THREADS, 1, 1))], BOUND if bound else ASSUMED
    if code.tile is not None:  # whose block nobody else chooses
        shapes, why = [LaunchShape(block=(max(bound, 1), 1, 1))], BY_COMPILER
    return tuple(_one(code, arch, shape, why) for shape in shapes)


def _one(code: KernelCode, arch: ArchLimits, shape: LaunchShape, why: str) -> KernelOccupancy:
    assert code.resources is not None
    threads = min(shape.threads, MAX_THREADS_PER_BLOCK)
    usage = {
        "registers": code.resources.registers,
        "shared memory": code.resources.smem_bytes + shape.smem_bytes,
        "threads": threads,
        "barriers": code.resources.barriers,
    }
    fitting, (bound, exact) = _occupancy(arch, usage), code.launch_bounds
    limits, blocks = fitting.by_limit, fitting.blocks
    limiters = tuple(name for name, most in limits.items() if most <= blocks)
    allowed = shape.threads == bound if exact else shape.threads <= (bound or MAX_THREADS_PER_BLOCK)
    if not allowed:
        limits, blocks, limiters = {_BOUNDS: 0, **limits}, 0, (_BOUNDS,)
    return KernelOccupancy(
        shape=shape,
        why=why,
        limits=limits,
        blocks=blocks,
        limiters=limiters,
        warps=blocks * _warps(threads),
        most_warps=arch.warps,
        steps=tuple(_steps(arch, usage, fixed_block=exact)) if allowed else (),
    )


def _occupancy(arch: ArchLimits, usage: Mapping[str, int]) -> Occupancy:
    return occupancy(
        arch,
        threads=usage["threads"],
        registers=usage["registers"],
        static_smem_bytes=usage["shared memory"],
        barriers=usage["barriers"],
    )


def _warps(threads: int) -> int:
    return -(-threads // WARP)


def _steps(arch: ArchLimits, usage: Mapping[str, int], *, fixed_block: bool) -> Iterator[OccupancyStep]:
    """Yield, for each resource, how much less of it would let more warps in."""
    reserved, unit = arch.smem_reserved_bytes, arch.smem_unit
    allocated = (usage["shared memory"] + reserved - 1) // unit * unit
    fewer_threads = range((_warps(usage["threads"]) - 1) * WARP, 0, -WARP)
    tried: Mapping[str, Iterable[int]] = {
        "registers": range(usage["registers"] - 1, 0, -1),
        # The amounts at which the allocation gets a unit smaller.
        "shared memory": range(allocated - reserved, -1, -unit),
        "threads": () if fixed_block else fewer_threads,
        "barriers": range(usage["barriers"] - 1, 0, -1),
    }
    now = _occupancy(arch, usage).blocks * _warps(usage["threads"])
    for resource, smaller in tried.items():
        for value in smaller:
            less = {**usage, resource: value}
            blocks = _occupancy(arch, less).blocks
            warps = blocks * _warps(less["threads"])
            if warps > now:
                yield OccupancyStep(
                    resource=resource, now=usage[resource], need=value, blocks=blocks, warps=warps
                )
                break


VERSION = 2
"""The version of the JSON form."""

MAX_LINES = 6
"""How many source lines are named for one kind of instruction."""

_COUNTS = (
    "lane_instructions", "warp_instructions", "active_lanes", "branches", "divergent_branches",
    "global_requests", "global_sectors", "ideal_sectors", "shared_requests", "shared_wavefronts",
    "ideal_wavefronts", "atomics", "flops",
)  # fmt: skip
_LABEL = 9  # characters of the first column, so that the kernels' tables line up


@dataclass(frozen=True, kw_only=True)
class SimulatedCounts:
    """The counts of one kernel in one call, in the simulator: over all lines and launches, and by line."""

    call: str
    total: LineCounters
    lines: Mapping[SourceLocation, LineCounters]


@dataclass(frozen=True, kw_only=True)
class InspectedKernel:
    """A kernel, compiled for one architecture, and everything to report on it.

    Attributes:
        function: Its machine code; None if there is none, or no disassembler.
        occupancy: For each known launch.
        counts: What a sample executed; None if none was run.
    """

    code: KernelCode
    function: SassFunction | None = None
    occupancy: tuple[KernelOccupancy, ...] = ()
    counts: SimulatedCounts | None = None

    @property
    def instructions(self) -> tuple[SassInstruction, ...]:
        """Its machine instructions; empty without a disassembler."""
        return self.function or ()

    @property
    def level(self) -> str:
        """The code that `emitted` counts: "SASS"; without a disassembler, "PTX" or "Tile IR"."""
        return self.code.language if self.function is None else "SASS"

    @cached_property
    def emitted(self) -> tuple[InstructionCount, ...]:
        """The instructions that are in the code, by kind."""
        if self.function is None:
            kinds = PTX if self.code.tile is None else TILE
            return count_ptx(self.code.ptx, self.code.file, kinds)
        return count_sass(self.instructions, self.code.file, callees(self.code.ptx))

    @cached_property
    def remarks(self) -> tuple[Remark, ...]:
        """The findings that are worth a look: in the code first, then in the counts."""
        in_code, counts = code_remarks(self.code, self.function), self.counts
        if counts is None or self.code.tile is not None:  # the compiler chooses the threads of a tile
            return in_code
        return (*in_code, *count_remarks(counts.total, counts.lines, self.instructions, self.code.file))


@dataclass(frozen=True, kw_only=True)
class InspectReport(report_base.Report):
    """The result of `dotcu.inspect` for code that it compiled. `str()` of it is a table.

    Attributes:
        target: As the user wrote it.
        kernels: By name, then by architecture in the requested order.
        failed: What could not be compiled for one of the architectures.
        templates: Templates of kernels without a known instantiation.
        notes: What could not be found out, and why.
        libraries: The contents of libraries that compute operators.
    """

    target: str
    kernels: tuple[InspectedKernel, ...]
    failed: tuple[FailedBuild, ...] = ()
    templates: tuple[Declaration, ...] = ()
    notes: tuple[str, ...] = ()
    libraries: tuple[BinaryReport, ...] = ()

    def kernel(self, name: str, arch: str | None = None) -> InspectedKernel:
        """Return the kernel of a name, and of an architecture where there are several.

        Raises:
            KeyError: There is none.
        """
        for one in self.kernels:
            if one.code.name == name and arch in (None, str(one.code.arch)):
                return one
        raise KeyError(f"{name} for {arch}" if arch else name)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values, with a `version` that changes when their meaning does."""
        return {
            "version": VERSION,
            "target": self.target,
            "kernels": [_kernel_json(one) for one in self.kernels],
            "failed": [
                {"arch": str(one.arch), "kernels": list(one.names), "message": one.message}
                for one in self.failed
            ],
            "templates": [
                {"name": one.name, "declaration": template_head(one), "example": instantiation(one)}
                for one in self.templates
            ],
            "notes": list(self.notes),
            "libraries": [each.to_json() for each in self.libraries],
        }

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = []
        for one in self.kernels:
            at = one.code.location
            place = f"  {short(at.file)}:{at.line}" if at else ""
            head = Text.assemble((one.code.name, "bold"), f"  {one.code.arch}", (place, "dim"))
            parts += [head, _grid(_rows(one)), Text()]
        for failure in self.failed:
            names = f" ({', '.join(failure.names)})" if failure.names else ""
            head = Text(f"{failure.arch}{names} could not be compiled:", style="bold red")
            parts += [head, Padding(Text(failure.message), (0, 0, 0, 2)), Text()]
        for template in self.templates:
            remedy = f"no instantiation is known; type: --instantiate '{instantiation(template)}'"
            parts.append(Text(f"{template_head(template)}: {remedy}"))
        parts += [Text(f"note: {note}", style="yellow") for note in self.notes]
        for library in self.libraries:
            parts += [Text(), library.__rich__(), Text()]
        if not any((self.kernels, self.failed, self.templates, self.libraries)):
            parts.append(Text(f"{self.target} has no kernels."))
        while parts and isinstance(parts[-1], Text) and not parts[-1].plain:
            parts.pop()
        return Group(*parts)

    def _picture(self) -> str:
        """Return the source of each counted kernel, with a bar at each line; of several kernels, folded."""
        counted = [one for one in self.kernels if one.counts is not None]
        state = " open" if len(counted) == 1 else ""
        head = '<tr><th class="right">instructions</th><th></th><th class="right">line</th><th></th></tr>'
        return "".join(
            f"<details{state}><summary>{report_base.html_escaped(one.code.name)} {one.code.arch}: "
            f"instructions by line</summary>{report_base.html_table(_counted_lines(one), head)}</details>"
            for one in counted
        )


_BAR = 24  # characters of the longest


def _counted_lines(one: InspectedKernel) -> Iterator[str]:
    """Yield the source as rows of HTML, from the first line to the last that executed anything."""
    assert one.counts is not None
    file = one.code.file
    counts = {p.line: line.lane_instructions for p, line in one.counts.lines.items() if p.file == file}
    text = one.code.texts.get(file, "").splitlines()
    most = max(counts.values(), default=0)
    for number in range(min(counts, default=1), max(counts, default=0) + 1):
        count = counts.get(number, 0)
        bar = f'<span class="bar" style="width:{_BAR * count / most:.1f}ch"></span>' if count else ""
        source = report_base.html_escaped(text[number - 1]) if number <= len(text) else ""
        yield (
            f'<tr><td class="right">{f"{count:,}" if count else ""}</td><td>{bar}</td>'
            f'<td class="right dim">{number}</td><td>{source}</td></tr>'
        )


def _kernel_json(one: InspectedKernel) -> dict[str, Any]:
    code, counts = one.code, one.counts
    return {
        "name": code.name,
        "symbol": code.symbol,
        "arch": str(code.arch),
        "location": code.location and code.location._asdict(),
        "parameters": None if code.parameters is None else list(code.parameters),
        "dynamic_smem": code.takes_dynamic_smem,
        "resources": code.resources and asdict(code.resources),
        "instructions": None if one.function is None else len(one.instructions),
        "occupancy": [
            {
                "block": list(each.shape.block),
                "smem_bytes": each.shape.smem_bytes,
                **{name: value for name, value in serialize.plain(each).items() if name != "shape"},
            }
            for each in one.occupancy
        ],
        "level": one.level,
        "language": one.code.language,
        "emitted": [
            {**vars(each), "locations": [{**at._asdict(), "count": count} for at, count in each.locations]}
            for each in one.emitted
        ],
        "remarks": [
            {**vars(each), "location": each.location and each.location._asdict()} for each in one.remarks
        ],
        "counts": counts
        and {
            "call": counts.call,
            "total": _line_json(counts.total),
            "lines": [{**at._asdict(), **_line_json(line)} for at, line in sorted(counts.lines.items())],
        },
    }


def _line_json(line: LineCounters) -> Mapping[str, float]:
    return {name: getattr(line, name) for name in _COUNTS}


def short(file: str) -> str:
    """Return a path as it is typed from the working directory, where that is shorter."""
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
        count = f"; {len(one.instructions)} instructions" if one.function else ""
        dynamic = ", and dynamic shared memory set at launch" if one.code.takes_dynamic_smem else ""
        yield "resources", Text(f"{_resources(one.code.resources)}{dynamic}{count}")
    if one.code.host_code:
        yield "host code", Text(f"for {one.code.host_code}: {HOST_CODE_RUNS}")
    yield from (("occupancy", line) for each in one.occupancy for line in occupancy_lines(each))
    yield from (("emitted" if one.function else f"{one.level} has", text) for text in _emitted(one))
    for remark in one.remarks:
        at = ""
        if remark.location is not None:
            file, line = remark.location
            place = f"line {line}" if file == one.code.file else f"{short(file)}:{line}"
            at = f"{'near ' if remark.near else ''}{place}: "
        yield "look at", Text.assemble((at, "bold"), (remark.message, "yellow"))
    if one.counts is not None:
        total = one.counts.total
        work = f"{total.lane_instructions:,} thread instructions of PTX"
        work += f", {total.active_lanes:.1f} of 32 threads per warp active"
        if one.code.tile is not None:
            work = f"{total.lane_instructions:,} operations of Tile IR on elements"
        yield "counted", Text(f"{work}: {one.counts.call}, in the simulator", style="dim")


def _resources(used: Resources) -> str:
    spilled = used.spill_store_bytes + used.spill_load_bytes
    spills = f"spills {used.spill_store_bytes} B stored, {used.spill_load_bytes} B loaded"
    parts = [
        f"{used.registers} registers",
        f"{used.smem_bytes} B of static shared memory" if used.smem_bytes else "no static shared memory",
        f"{used.constant_bytes} B of constants" if used.constant_bytes else "",
        f"{used.barriers} barrier{'' if used.barriers == 1 else 's'}",
        spills if spilled else "no spills" if not used.threads else "",  # of a tile kernel none are known
        f"{used.stack_bytes} B of stack" if used.stack_bytes else "no stack",
        f"{used.threads} threads per tile block" if used.threads else "",
        f"clusters of {used.cluster} thread blocks" if used.cluster > 1 else "",
    ]
    return ", ".join(filter(None, parts))


def occupancy_lines(one: KernelOccupancy) -> Iterator[Text]:
    """Yield the occupancy in words, then what would let more warps in."""
    why = "" if one.why == SEEN else f" ({one.why})"
    limit = " and ".join(filter(None, [", ".join(one.limiters[:-1]), *one.limiters[-1:]]))
    if one.blocks:
        blocks = f"{one.blocks} block{'' if one.blocks == 1 else 's'} per multiprocessor"
        warps = f"{one.warps} of {one.most_warps} warps ({one.share:.0%})"
        cluster = "; the cluster is not considered" if one.shape.cluster else ""
        yield Text(f"{one.shape}: {blocks}, {warps}, limited by {limit}{cluster}{why}")
    else:
        yield Text(
            f"{one.shape}: cannot be launched with this shape, because of {limit}{why}", style="bold red"
        )
    for step in one.steps:
        yield Text(f"    {step_text(step)}", style="dim")


def step_text(step: OccupancyStep) -> str:
    """Return `with at most 32 registers per thread, 8 fewer: 8 blocks, 64 warps`."""
    unit = {"registers": "registers per thread", "shared memory": "B of shared memory"}
    return (
        f"with at most {step.need} {unit.get(step.resource, step.resource)}, {step.now - step.need} fewer: "
        f"{step.blocks} block{'' if step.blocks == 1 else 's'}, {step.warps} "
        f"warp{'' if step.warps == 1 else 's'}"
    )


def _emitted(one: InspectedKernel) -> Iterator[Text]:
    """Yield the instructions by kind; the name of a group is before its first."""
    width, last = max((len(each.group) for each in one.emitted), default=0), ""
    for each in one.emitted:
        lines = f"  {_lines([at for at, _ in each.locations], one.code.file)}" if each.locations else ""
        group = each.group if each.group != last else ""
        yield Text.assemble(f"{group:<{width}}  {each.count:>4} x {each.label}", (lines, "dim"))
        last = each.group


def _lines(locations: Sequence[SourceLocation], file: str) -> str:
    own = sorted({at.line for at in locations if at.file == file})
    others = [f"{short(at.file)}:{at.line}" for at in locations if at.file != file]
    shown = [*map(str, own), *others][:MAX_LINES]
    rest = len(own) + len(others) - len(shown)
    more = f" and {rest} more" if rest else ""
    word = "line" if len(own) == 1 and not others else "lines"
    return f"{word if own else 'at'} {', '.join(shown)}{more}"
