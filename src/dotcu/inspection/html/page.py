"""A report on compiled kernels as one HTML file: source, PTX and SASS side by side.

    InspectReport -> Page (plain values) -> JSON -> the template with style, script and data in it

A file is written once however many kernels share it, and a location is "index of the file's name:line".
The script reads this JSON and nothing else; `template/data.js` is its other side.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple, TypeAlias

from dotcu.inspection.code.diff import DiffReport
from dotcu.inspection.code.ptx import LocationChain, SourceLocation
from dotcu.inspection.code.report import InspectedKernel, InspectReport, short, step_text
from dotcu.inspection.code.sass import SassInstruction

Tone: TypeAlias = Literal["", "good", "warn", "bad"]
PaneName: TypeAlias = Literal["source", "ptx", "sass"]
FileLines: TypeAlias = tuple[tuple[int, str], ...]
"""Numbers and text of the lines of a file, in order; a gap in the numbers is shown as one."""

GUARD = 5
"""Characters of a guard such as @!P0, so that opcodes are in a column."""

METRICS: Mapping[str, tuple[str, str]] = {
    "lane instructions": ("lane_instructions", "Instructions of PTX, once for each lane that ran them."),
    "warp instructions": ("warp_instructions", "Instructions of PTX, once for each warp that issued them."),
    "global sectors": ("global_sectors", "Sectors of 32 bytes of global memory that its accesses touched."),
    "shared wavefronts": ("shared_wavefronts", "Wavefronts of shared memory: passes over its banks."),
    "divergent branches": ("divergent_branches", "Branches at which lanes of a warp diverged."),
}
"""The counts that are shown by line: their name, the counter, and its meaning."""

WITHOUT_SASS = "There is no machine code, or no nvdisasm to read it.\nType: pip install 'dotcu[tools]'"

_STYLES = ("theme.css", "layout.css", "panes.css")
_SCRIPTS = ("data.js", "highlight.js", "pane.js", "links.js", "search.js", "head.js", "main.js")
"""The parts of the script, in order; the last one starts it."""

_SLOT = re.compile(r"\{\{(\w+)\}\}")
_UNSAFE: dict[str, str | int | None] = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
"""Characters that could end the <script> element or begin a comment; escaped, the JSON is the same."""


class Fact(NamedTuple):
    """One value of a kernel, such as its registers, in a colour; the note below it says what limits it."""

    name: str
    value: str
    note: str = ""
    tone: Tone = ""


class Note(NamedTuple):
    """A remark in one line; one with a location is marked at its line, and leads there."""

    text: str
    location: SourceLocation | None = None
    tone: Tone = "warn"


class CodeLine(NamedTuple):
    """A line of PTX or SASS.

    Attributes:
        text: Shown as it is; a tab is four columns wide.
        label: A line number, or an address, in front of it.
        chain: Where it comes from, innermost first; may be empty, or in a file that the page does not show.
        control: Control bits of an instruction; shown where the pane has any.
    """

    text: str
    label: str = ""
    chain: LocationChain = ()
    control: str = ""


@dataclass(frozen=True, kw_only=True)
class KernelPane:
    """A kernel, or an instantiation, on one architecture.

    Attributes:
        name: As a person says it, `scale<float, 256>`; the same for each architecture.
        source: Its files, by name.
        metrics: By name, the meaning of a count, and the counts by line, which colour the lines; the first is
            shown at the beginning. The page adds how many instructions a line became.
        missing: Why a pane has no lines. A pane without lines and without a reason is not shown.
        failure: The compiler's message where this architecture has no code; shown instead of the panes.
    """

    name: str
    arch: str
    facts: tuple[Fact, ...] = ()
    notes: tuple[Note, ...] = ()
    source: Mapping[str, FileLines] = field(default_factory=dict)
    ptx: tuple[CodeLine, ...] = ()
    sass: tuple[CodeLine, ...] = ()
    metrics: Mapping[str, tuple[str, Mapping[SourceLocation, float]]] = field(default_factory=dict)
    missing: Mapping[PaneName, str] = field(default_factory=dict)
    failure: str = ""


@dataclass(frozen=True, kw_only=True)
class Page:
    """The whole page.

    Attributes:
        kernels: At least one; the first is shown at the beginning.
        rows: Name and value of what holds for all kernels.
        changes: By kernel, or `before -> after`, what differs from another report; stands above all else.
    """

    title: str
    kernels: tuple[KernelPane, ...]
    rows: tuple[tuple[str, str], ...] = ()
    changes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def page_of(report: InspectReport, compared: DiffReport | None = None) -> Page:
    """Return the page of a report.

    Args:
        report: With a kernel, or with one that could not be compiled.
        compared: The difference from another report to this one.
    """
    failures = (
        KernelPane(name=name, arch=str(one.arch), failure=one.message)
        for one in report.failed
        for name in one.names
    )
    changes: dict[str, tuple[str, ...]] = {}
    if compared is not None:
        for one in compared.changes:
            numbers = tuple(map(str, one.numbers))
            changes[one.title] = numbers or (() if one.same else ("the order of instructions",))
        changes |= dict.fromkeys(compared.before, ("only before",))
        changes |= dict.fromkeys(compared.after, ("only after",))
    return Page(
        title=report.target,
        kernels=(*map(_kernel, report.kernels), *failures),
        rows=tuple(("note", note) for note in report.notes),
        changes=changes,
    )


def _kernel(one: InspectedKernel) -> KernelPane:
    metrics = {}
    for name, (counter, meaning) in METRICS.items() if one.counts else ():
        lines = one.counts.lines if one.counts else {}
        counts = {_shortened((at,))[0]: getattr(line, counter) for at, line in lines.items()}
        if any(counts.values()):
            metrics[name] = (meaning, counts)
    return KernelPane(
        name=one.code.name,
        arch=str(one.code.arch),
        facts=tuple(_facts(one)),
        notes=tuple(
            Note(
                f"near this line: {remark.message}" if remark.near else remark.message,
                _shortened((remark.location,))[0] if remark.location else None,
            )
            for remark in one.remarks
        ),
        source={short(file): tuple(enumerate(text.splitlines(), 1)) for file, text in one.code.texts.items()},
        ptx=tuple(
            CodeLine(text=line.text, label=str(line.number), chain=_shortened(line.chain))
            for line in one.code.ptx
            if not line.text.lstrip().startswith(".loc")
        ),
        sass=tuple(row for instruction in one.instructions for row in _instruction(instruction)),
        metrics=metrics,
        missing={} if one.function else {"sass": WITHOUT_SASS},
    )


def _facts(one: InspectedKernel) -> Iterator[Fact]:
    used = one.code.resources
    if used is not None:
        spilled = used.spill_store_bytes + used.spill_load_bytes
        yield Fact("registers", str(used.registers))
        yield Fact("spilled", f"{spilled} B", tone="bad" if spilled else "good")
        yield Fact("stack", f"{used.stack_bytes} B", tone="warn" if used.stack_bytes else "")
        yield Fact("static shared", f"{used.smem_bytes} B")
        yield Fact("barriers", str(used.barriers))
    if one.function is not None:
        yield Fact("instructions", str(len(one.instructions)))
    for each in one.occupancy:
        tone: Tone = "good" if each.share >= 0.5 else "warn"  # half is enough to hide most latencies
        limited = f"limited by {' and '.join(each.limiters)}"
        yield Fact(
            name=f"occupancy, {each.shape}",
            value=f"{each.blocks} blocks, {each.share:.0%}",
            note="; ".join([limited, *map(step_text, each.steps)]),
            tone=tone if each.blocks else "bad",
        )
    if one.counts is not None:
        yield Fact("counted in", one.counts.call)


def _instruction(instruction: SassInstruction) -> Iterator[CodeLine]:
    for label in instruction.labels:
        yield CodeLine(text=f"{label}:")
    guard = instruction.predicate
    text = instruction.text.removeprefix(guard).lstrip()
    yield CodeLine(
        text=f"{guard:<{GUARD}} {text}",
        label=f"{instruction.address:04x}",
        chain=_shortened(instruction.chain),
        control=instruction.control,
    )


def _shortened(chain: LocationChain) -> LocationChain:
    return tuple(SourceLocation(short(at.file), at.line) for at in chain)


def render(page: Page) -> str:
    """Return the page as HTML that stands alone: it loads nothing, and its policy forbids it to.

    The policy allows the one script by its digest, so no text of a kernel, however written, can run.

    Raises:
        ValueError: The page has no kernel.
    """
    if not page.kernels:
        raise ValueError(f"a page shows one kernel or more (got none, for {page.title!r})")
    script = '"use strict";(() => {\n' + "".join(map(_part, _SCRIPTS)) + "})();\n"
    items = ""
    for name, changes in page.changes.items():
        spans = " ".join(f"<span>{html.escape(change)}</span>" for change in changes or ("the same",))
        items += f"<li><b>{html.escape(name)}</b> {spans}</li>"
    section = f'<details id="changes" open><summary>what changed</summary><ul>{items}</ul></details>'
    filled = {
        "title": html.escape(page.title),
        "digest": "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "style": "".join(map(_part, _STYLES)),
        "script": script,
        "data": encode(page),
        "changes": section if items else "",
    }
    return _SLOT.sub(lambda slot: filled[slot[1]], _part("page.html"))


@cache
def _part(name: str) -> str:
    return (resources.files(__package__) / "template" / name).read_text(encoding="utf-8")


def encode(page: Page) -> str:
    """Return the page's data as JSON without any character that has a meaning in HTML."""
    names: dict[str, int] = {}
    files: dict[tuple[str, FileLines], int] = {}
    kernels = [_kernel_json(kernel, names, files) for kernel in page.kernels]
    data = {
        "title": page.title,
        "rows": page.rows,
        "names": list(names),
        "files": [{"name": names[name], "lines": lines} for name, lines in files],
        "kernels": kernels,
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate(str.maketrans(_UNSAFE)).encode("utf-8", "replace").decode("utf-8")


def _kernel_json(
    kernel: KernelPane, names: dict[str, int], files: dict[tuple[str, FileLines], int]
) -> dict[str, Any]:
    """Return a kernel's data, and number the names and files in it in the order in which they come up."""

    def at(location: SourceLocation) -> str:
        return f"{names.setdefault(location.file, len(names))}:{location.line}"

    def code(lines: Iterable[CodeLine]) -> list[Any]:
        return [[line.text, line.label, list(map(at, line.chain)), line.control] for line in lines]

    def number(name: str, lines: FileLines) -> int:
        names.setdefault(name, len(names))
        return files.setdefault((name, lines), len(files))

    return {
        "name": kernel.name,
        "arch": kernel.arch,
        "failure": kernel.failure,
        "facts": kernel.facts,
        "notes": [
            [note.text, at(note.location) if note.location else "", note.tone] for note in kernel.notes
        ],
        "files": [number(name, lines) for name, lines in kernel.source.items()],
        "ptx": code(kernel.ptx),
        "sass": code(kernel.sass),
        "metrics": [
            {"name": name, "meaning": meaning, "counts": {at(one): n for one, n in counts.items() if n}}
            for name, (meaning, counts) in kernel.metrics.items()
        ],
        "missing": dict(kernel.missing),
    }
