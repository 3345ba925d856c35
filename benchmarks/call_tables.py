"""Write what calls cost into README.md and docs/explanation/calling.md, from the committed results.

    python benchmarks/call_tables.py [--check]

Reads call_overhead_h200.json, gallery_calls_h200.json and training_h200.json of benchmarks/results, which
`make figures` has saved, and rewrites what stands between the marks of each page. What was not measured has
no row. With --check nothing is written. Exit codes: 0 the pages have the figures, 1 one had others.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calls.gradients import BACKWARD, FORWARD, PAIRS, Pair

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- figures of calls -->", "<!-- end of figures of calls -->"

# What it is, dotcu's contender; and whether the README has the row, too.
CALLS = (
    ("operator, through `torch.ops`", "dotcu, torch.ops", True),
    ("operator, by its Python object", "dotcu, direct", True),
    ("operator of eight launches", "dotcu, 8 launches, torch.ops", True),
    ("operator that clones an argument, then launches", "dotcu, clone and launch, torch.ops", False),
    ("operator that reads a value, then launches", "dotcu, read a value and launch, torch.ops", False),
    ("operator that records a gradient", "dotcu recording, torch.ops", True),
    ("operator inside `torch.compile`, eleven of them", "torch.compile of 11 x dotcu, torch.ops", False),
    ("bare launch, four arguments", "dotcu, bare launch", True),
    ("launch from `torch.library.custom_op`", "dotcu, launch from custom_op", True),
)
STEPS = (("eager", True), ("torch.compile", True), ("CUDA graph", False))
MODEL = "step of a small transformer, bf16"

Row = Mapping[str, Any]


def read(name: str) -> dict[str, Row]:
    """The results of a benchmark by the names of their contenders, but those that were skipped."""
    path = RESULTS / name
    results = json.loads(path.read_text(encoding="utf-8"))["results"] if path.exists() else ()
    return {row["name"]: row for row in results if "us" in row}


def line(what: str, rows: Mapping[str, Row], name: str) -> str:
    """A row of the table: dotcu, what it is compared with, and the ratio; empty if it was not measured."""
    if name not in rows:
        return ""
    own, base = rows[name], rows[rows[name]["base"]]
    median, other, ratio = own["us"]["median"], base["us"]["median"], own["ratio"]["median"]
    peer = base["name"].removesuffix(" on raw pointers")
    peer = "torch eager" if peer.endswith("torch eager") else peer
    peer = "torch's layers" if peer.startswith("step, ") else peer
    return f"| {what} | {figure(median)} | {peer} | {figure(other)} | {ratio:.2f} |"


def figure(us: float) -> str:
    return f"{us:.1f}" if us < 1000 else f"{us:,.0f}"


def row_name(pair: Pair, way: str) -> str:
    return f"{pair.name}{' in a `torch.autograd.Function`' if pair.bound else ''}, {way}"


def means(rows: Mapping[str, Row]) -> list[str]:
    """Rows of the geometric mean over the gallery's operators."""
    lines = []
    for way in (FORWARD, BACKWARD):
        names = [pair.own_name(way) for pair in PAIRS if not pair.bound]
        found = [rows[name]["ratio"]["median"] for name in names if name in rows]
        if found:
            what, mean = (
                f"{len(found)} operators of the gallery, {way}, mean",
                statistics.geometric_mean(found),
            )
            lines.append(f"| {what} | | torch eager | | {mean:.2f} |")
    return lines


def table(*, short: bool) -> str:
    """The table of a page."""
    calls, operators = read("call_overhead_h200.json"), read("gallery_calls_h200.json")
    steps = read("training_h200.json")
    head = "| call | dotcu, µs | compared with | its time, µs | ratio |"
    lines = [head, "| --- | ---: | --- | ---: | ---: |"]
    lines += [line(what, calls, name) for what, name, is_short in CALLS if is_short or not short]
    for pair in () if short else PAIRS:
        lines += [line(row_name(pair, way), operators, pair.own_name(way)) for way in pair.ways]
    lines += means(operators)
    for mode, is_short in STEPS:
        if is_short or not short:
            lines.append(line(f"{MODEL}, {mode}", steps, f"step, {mode}, dotcu"))
    return "\n".join(filter(None, lines))


def page(path: Path, *, short: bool) -> tuple[str, str]:
    """A page as it is, and as it should be."""
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return text, f"{before}{BEGIN}\n\n{table(short=short)}\n\n{END}{after}"


PAGES = ((ROOT / "README.md", True), (ROOT / "docs" / "explanation" / "calling.md", False))


def main() -> int:
    """Write the pages, or compare them."""
    stale = []
    for path, short in PAGES:
        now, wanted = page(path, short=short)
        if now != wanted:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(wanted, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"{', '.join(stale)}: other figures. Type: python benchmarks/call_tables.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
