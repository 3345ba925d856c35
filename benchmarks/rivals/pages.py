"""Figures as tables, in the README of each operator and in the main one; a test holds them to the JSON."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "gallery_h200.json"
GRID = ROOT / "benchmarks" / "results" / "grid_h100.json"
GEMV = ROOT / "benchmarks" / "results" / "gemv_h100.json"
PRODUCTS = tuple(ROOT / "benchmarks" / "results" / f"matmul_{gpu}.json" for gpu in ("h100", "h200"))
README = ROOT / "README.md"
FOLDERS = ROOT / "src" / "dotcu" / "gallery"

FIRST, LAST = "<!-- figures: written by benchmarks/{}.py -->", "<!-- end of figures -->"

HOMES = {"add_rms_norm": "rms_norm", "permute_copy": "transpose"}
"""Operators that live in another's folder."""

OWN = "dotcu"

FLAGSHIPS = (
    "float32 2^28",
    "bfloat16 16384x8192",
    "bfloat16 16384x8192 backward",
    "bfloat16 8192x4096",
    "bfloat16 8192x4096 backward",
    "bfloat16 32768x4096",
    "bfloat16 32768x4096 backward",
    "bfloat16 4096x131072",
    "bfloat16 4096x131072 backward",
    "bfloat16 16384x16384",
    "bfloat16 64x1024x32x64 dims=0x2x1x3",
)
"""The case that the main README tells of an operator: its first of these, forward and backward."""


def home(op: str) -> str:
    """The folder of an operator."""
    return HOMES.get(op, op)


def write(*runs: Mapping[str, Any]) -> None:
    """Put the tables of what was measured into the READMEs; the main one has those of the first run."""
    for folder in {home(case["op"]): None for figures in runs for case in figures["cases"]}:
        page = FOLDERS / folder / "README.md"
        text = page.read_text(encoding="utf-8")
        page.write_text(filled(text, of_folder(folder, *runs)), encoding="utf-8")
    README.write_text(filled(README.read_text(encoding="utf-8"), in_short(runs[0])), encoding="utf-8")


def filled(page: str, table: str, by: str = "gallery") -> str:
    """A page with the table in its place."""
    first = FIRST.format(by)
    between = re.compile(f"{re.escape(first)}.*?{re.escape(LAST)}", re.DOTALL)
    assert between.search(page), f"no place for figures: {first}"
    return between.sub(lambda _: f"{first}\n\n{table}\n\n{LAST}", page)


def of_folder(folder: str, *runs: Mapping[str, Any]) -> str:
    """All cases of a folder's operators: times of dotcu, its share of the limit, and the others' times.

    Args:
        folder: That of the operators.
        *runs: What was measured, on a machine each.
    """
    tables = []
    for figures in runs:
        cases = [case for case in figures["cases"] if home(case["op"]) == folder]
        others = list(dict.fromkeys(row["contender"] for case in cases for row in case["rows"][1:]))
        lines = [
            [_title(case, folder), *_own(case), *(_other(case, name) for name in others)] for case in cases
        ]
        if cases:
            tables.append(f"{_told(figures)}\n\n{_table(['case', 'µs', '% of limit', *others], lines)}")
    return "\n\n".join(tables)


def of_rows(figures: Mapping[str, Any]) -> str:
    """A table for each kind of the rows that benchmarks/tile.py measures: the words that they begin with."""
    tables = []
    for kind, rows in itertools.groupby(figures["rows"], key=_kind):
        measured = [row for row in rows if "ratio" in row]
        others = list(dict.fromkeys(name for row in measured for name in row["ratio"]))
        lines = []
        for row in measured:
            ratios = (f"{row['ratio'][name]:.2f}×" if name in row["ratio"] else "" for name in others)
            tflops = f"{row['tflops']:.0f}" if "tflops" in row else ""
            lines.append([row["case"].removeprefix(f"{kind} "), f"{row['us']['dotcu']:.1f}", tflops, *ratios])
        tables.append(_table([kind, "µs", "TFLOP/s", *others], lines))
    return "\n\n".join((_told(figures), *tables))


def of_products(figures: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return what benchmarks/matmul.py measured: the rates, and the rival's time over dotcu's on two GPUs.

    Args:
        figures: Of the GPU whose rates are told.
        other: Of another GPU, by an earlier kernel.
    """
    elsewhere = {row["case"]: row for row in other["rows"] if "ratio" in row}
    lines, measured = [], [row for row in figures["rows"] if "ratio" in row]
    for row in measured:
        if "dotcu" in row["tflops"]:  # all but the ladder
            before = f"{elsewhere[row['case']]['ratio']:.2f}" if row["case"] in elsewhere else ""
            name, rate = row["rival"], row["tflops"]
            lines.append(
                [
                    row["case"],
                    f"{rate['dotcu']:.0f}",
                    name,
                    f"{rate[name]:.0f}",
                    f"{row['ratio']:.2f}",
                    before,
                ]
            )
    both = [[row["ratio"] for row in rows if row["group"]] for rows in (measured, elsewhere.values())]
    for what, most in (
        (f"geometric mean of {len(both[0])} beside cuBLAS", math.inf),
        ("of those below 1.5", 1.5),
    ):
        means = (statistics.geometric_mean(each for each in ratios if each < most) for ratios in both)
        lines.append([what, "", "", "", *(f"{mean:.2f}" for mean in means)])
    told = f"{figures['machine']['gpu']}, torch {figures['torch']}, cold L2."
    head = ["product", "TFLOP/s", "beside", "TFLOP/s", "its time over dotcu's", "an H200, earlier kernel"]
    return f"{told}\n\n{_table(head, lines)}"


def in_short(figures: Mapping[str, Any]) -> str:
    """A line for each operator: its share of the limit, and its speedup over the best other."""
    lines = []
    for case in _flagships(figures["cases"]):
        own = case["rows"][0]
        name, ratio = _best(case)
        title = f"[{case['op']}](src/dotcu/gallery/{home(case['op'])}/README.md)"
        lines.append([title, case["case"], f"{own['percent']:.0f} %", name, f"{ratio:.2f}×" if name else ""])
    return _table(["operator", "on", "of the limit", "best other", "speedup"], lines)


def _flagships(cases: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    by_op: dict[tuple[str, bool], Mapping[str, Any]] = {}
    for case in cases:
        if case["case"] in FLAGSHIPS and case["rows"][0]["status"] == "measured":
            by_op.setdefault((case["op"], case["case"].endswith("backward")), case)
    return list(by_op.values())


def _best(case: Mapping[str, Any]) -> tuple[str, float]:
    others = [row for row in case["rows"][1:] if row.get("ratio")]
    if not others:
        return "", 0.0
    best = min(others, key=lambda row: float(row["ratio"][0]))
    return best["contender"], best["ratio"][0]


def _title(case: Mapping[str, Any], folder: str) -> str:
    return str(case["case"]) if case["op"] == folder else f"`{case['op']}` {case['case']}"


def _kind(row: Mapping[str, Any]) -> str:
    return " ".join(itertools.takewhile(lambda word: not word[0].isdigit(), row["case"].split()))


def _told(figures: Mapping[str, Any]) -> str:
    machine = figures["machine"]
    return f"{machine['gpu']}, torch {machine['torch']}, cold L2; others: their time over dotcu's."


def _own(case: Mapping[str, Any]) -> tuple[str, str]:
    own = case["rows"][0]
    if own["status"] != "measured":
        return own["status"], ""
    return f"{own['us']:.1f}", f"{own['percent']:.1f}" if "percent" in own else ""


def _other(case: Mapping[str, Any], name: str) -> str:
    row = next((row for row in case["rows"] if row["contender"] == name), None)
    if row is None:
        return ""
    return f"{row['ratio'][0]:.2f}×" if row.get("ratio") else str(row["status"])


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))
