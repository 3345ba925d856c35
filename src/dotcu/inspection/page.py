"""A report on compiled kernels as one HTML file: source, PTX and SASS side by side.

    InspectReport -> the page's data -> JSON -> the template with style, script and data in it

The script reads this JSON and nothing else; `template/data.js` is its other side. Its keys:

    title
    rows       [name, value] of what holds for all kernels
    names      of files; a location is "index of the file's name:line"
    files      {name, lines}: its index, and [number, text] of its lines; kernels that share one refer to it
    kernels    at least one; the first is shown at the beginning
      name, arch
      failure  the compiler's message where there is no code; shown instead of the panes
      facts    [name, value, note, tone]: one value, such as the registers, and what limits it
      notes    [text, location, tone]: a remark in one line, which leads to its location
      files    indices
      ptx, sass  [text, label, locations, control] of a line: its number or address, the source lines that it
               comes from, innermost first, and its control bits
      metrics  {name, meaning, counts}: counts by location, which colour the lines
      missing  by pane, why it has no lines; a pane without lines and without a reason is not shown

A tone is "good", "warn", "bad" or empty.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from dotcu.errors import escaped
from dotcu.inspection.assembly import SassInstruction
from dotcu.inspection.diff import DiffReport
from dotcu.inspection.report import InspectedKernel, InspectReport, short, step_text
from dotcu.tile_ir.module import SourceLocation

GUARD = 5
"""Characters of a guard such as @!P0, so that opcodes are in a column."""

METRICS: Mapping[str, tuple[str, str]] = {
    "thread instructions": (
        "lane_instructions",
        "Instructions of PTX, once for each thread that executed them.",
    ),
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
    **{chr(code): f"\\\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))},
}
"""Characters that could end the <script> element or begin a comment; escaped, the JSON is the same.

Of those that turn the direction of text, by which a source could look like another, the page shows the code.
"""

Changes = Mapping[str, tuple[str, ...]]
"""By kernel, or `before -> after`, what differs from another report."""


def page_of(report: InspectReport) -> dict[str, Any]:
    """Return the data of a report's page, which has a kernel, or one that could not be compiled."""
    names: dict[str, int] = {}
    files: dict[tuple[str, str], int] = {}
    kernels = [_kernel(one, names, files) for one in report.kernels]
    blank: dict[str, Any] = {
        **dict.fromkeys(("facts", "notes", "files", "ptx", "sass", "metrics"), ()),
        "missing": {},
    }
    kernels += [
        {"name": name, "arch": str(one.arch), "failure": one.message, "language": "PTX", **blank}
        for one in report.failed
        for name in one.names
    ]
    return {
        "title": report.target,
        "rows": [("note", note) for note in report.notes],
        "names": list(names),
        "files": [
            {"name": names[name], "lines": list(enumerate(text.splitlines(), 1))} for name, text in files
        ],
        "kernels": kernels,
    }


def _kernel(one: InspectedKernel, names: dict[str, int], files: dict[tuple[str, str], int]) -> dict[str, Any]:
    """Return a kernel's data, and number the names and files in it in the order in which they come up."""
    code = one.code

    def at(location: SourceLocation) -> str:
        return f"{names.setdefault(short(location.file), len(names))}:{location.line}"

    def number(name: str, text: str) -> int:
        names.setdefault(name, len(names))
        return files.setdefault((name, text), len(files))

    def rows(instruction: SassInstruction) -> Iterator[tuple[str, str, list[str], str]]:
        yield from ((f"{label}:", "", [], "") for label in instruction.labels)
        guard = instruction.predicate
        text = f"{guard:<{GUARD}} {instruction.text.removeprefix(guard).lstrip()}"
        yield text, f"{instruction.address:04x}", list(map(at, instruction.chain)), instruction.control

    return {
        "name": code.name,
        "arch": str(code.arch),
        "failure": "",
        "language": code.language,
        "facts": list(_facts(one)),
        "notes": [
            (
                f"near this line: {remark.message}" if remark.near else remark.message,
                at(remark.location) if remark.location else "",
                "warn",
            )
            for remark in one.remarks
        ],
        "files": [number(short(file), text) for file, text in code.texts.items()],
        "ptx": [
            (line.text, str(line.number), list(map(at, line.chain)), "")
            for line in code.ptx
            if not line.text.lstrip().startswith(".loc")
        ],
        "sass": [row for instruction in one.instructions for row in rows(instruction)],
        "metrics": [
            {"name": name, "meaning": meaning, "counts": {at(place): n for place, n in counts.items() if n}}
            for name, meaning, counts in _metrics(one)
            if any(counts.values())
        ],
        "missing": {} if one.function else {"sass": WITHOUT_SASS},
    }


def _metrics(one: InspectedKernel) -> Iterator[tuple[str, str, dict[SourceLocation, float]]]:
    lines = one.counts.lines if one.counts else {}
    for name, (counter, meaning) in METRICS.items():
        yield name, meaning, {place: getattr(line, counter) for place, line in lines.items()}


def _facts(one: InspectedKernel) -> Iterator[tuple[str, str, str, str]]:
    used = one.code.resources
    if used is not None:
        spilled = used.spill_store_bytes + used.spill_load_bytes
        yield "registers", str(used.registers), "", ""
        if not used.threads:  # the assembler of tile kernels does not say it
            yield "spilled", f"{spilled} B", "", "bad" if spilled else "good"
        yield "stack", f"{used.stack_bytes} B", "", "warn" if used.stack_bytes else ""
        yield "static shared", f"{used.smem_bytes} B", "", ""
        yield "barriers", str(used.barriers), "", ""
        if used.threads:
            yield "threads of a tile block", str(used.threads), "", ""
            yield "cluster", f"{used.cluster} thread block{'s' * (used.cluster > 1)}", "", ""
    if one.function is not None:
        yield "instructions", str(len(one.instructions)), "", ""
    for each in one.occupancy:
        tone = "good" if each.share >= 0.5 else "warn"  # half is enough to hide most latencies
        note = "; ".join([f"limited by {' and '.join(each.limiters)}", *map(step_text, each.steps)])
        value = f"{each.blocks} blocks, {each.share:.0%}"
        yield f"occupancy, {each.shape}", value, note, tone if each.blocks else "bad"
    if one.counts is not None:
        yield "counted in", one.counts.call, "", ""


def changes_of(compared: DiffReport) -> Changes:
    """Return what a page says of the difference from another report to its own."""
    changes: dict[str, tuple[str, ...]] = {}
    for one in compared.changes:
        numbers = tuple(map(str, one.numbers))
        changes[one.title] = numbers or (("the same",) if one.same else ("the order of instructions",))
    changes |= dict.fromkeys(compared.before, ("only before",))
    return changes | dict.fromkeys(compared.after, ("only after",))


def render(page: Mapping[str, Any], changes: Changes | None = None) -> str:
    """Return a page's data as one HTML file: it loads nothing, and its policy forbids it to.

    The policy allows the one script by its digest, so no text of a kernel, however written, can run. Changes
    stand above all else.
    """
    script = '"use strict";(() => {\n' + "".join(map(_part, _SCRIPTS)) + "})();\n"
    items = ""
    for name, changed in (changes or {}).items():
        spans = " ".join(f"<span>{html.escape(escaped(change))}</span>" for change in changed)
        items += f"<li><b>{html.escape(escaped(name))}</b> {spans}</li>"
    section = f'<details id="changes" open><summary>what changed</summary><ul>{items}</ul></details>'
    filled = {
        "title": html.escape(escaped(page["title"])),
        "digest": "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "style": "".join(map(_part, _STYLES)),
        "script": script,
        "data": encode(page),
        "changes": section if items else "",
    }
    return _SLOT.sub(lambda slot: filled[slot[1]], _part("page.html"))


def _part(name: str) -> str:
    return (resources.files(__package__) / "template" / name).read_text(encoding="utf-8")


def encode(page: Mapping[str, Any]) -> str:
    """Return a page's data as JSON without any character that has a meaning in HTML."""
    text = json.dumps(page, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate(str.maketrans(_UNSAFE)).encode("utf-8", "replace").decode("utf-8")
