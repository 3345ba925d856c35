"""How fast is the gallery? Every operator beside torch eager, torch.compile, Liger and this GPU's limit.

    python benchmarks/gallery.py [OPERATOR ...] [--grid] [--save FILE] [--resume] [--write]

Contenders of a case are called alternately, on a cold L2, and device time is reported;
`docs/explanation/measuring.md` says how. A goal is a share of the limit that was measured for the case's mix
of reads and writes, or of a copy's for what is differentiated; and that those it is to be ahead of are not
faster, at 99 % confidence.
`--grid` measures sixty odd shapes instead: no other may take less than 0.95 of an operator's time, and 75 %
of the limit is the goal where a tensor has 64 MB or more.
With operators named, only these are measured. FILE is written after each case, which replaces the same case
that it has from before, if it is of the same machine; `--resume` leaves out what FILE has. `--write` puts the
tables of FILE, of the grid and of gemv into the READMEs, and needs no GPU.

Exit codes: 0 every goal held, 1 one did not, 2 wrong usage, 3 no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from calls.host import machine
from rivals import pages
from rivals.cases import Case, cases
from rivals.grid import grid
from rivals.measuring import measure

console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)


def shortfalls(case: dict[str, Any]) -> list[str]:
    """What a case lacks to its goals, in words."""
    own, *others = case["rows"]
    if own["status"] != "measured":
        return [f"{own['status']}: {own['reason']}"]
    found = []
    if case["goal"] and own["percent"] < case["goal"]:
        found.append(f"{own['percent']:.1f} % of the limit, of {case['goal']:.0f}")
    for row in others:
        counts = not case["ahead"] or row["contender"] in case["ahead"]
        if counts and row.get("ratio") and row["ratio"][2] < case.get("least", 1):
            found.append(f"{row['contender']} takes {row['ratio'][0]:.3f} times as long")
    return found


def show(case: dict[str, Any]) -> None:
    """Print a case as it is done."""
    console.print(f"{case['op']} {case['case']}: limit {case['limit_us']} µs")
    for row in case["rows"]:
        if row["status"] != "measured":
            console.print(f"    {row['contender']:14} {row['status']}: {row['reason'][:200]}", style="dim")
            continue
        ratio = f"{row['ratio'][0]:6.2f}×" if row.get("ratio") else " " * 7
        percent = f"{row['percent']:6.1f} %" if "percent" in row else ""
        marks = "; ".join(row.get("marks", ()))[:160]
        console.print(f"    {row['contender']:14} {row['us']:10.2f} µs {ratio} {percent}  {marks}")
    for shortfall in shortfalls(case):
        console.print(f"    short: {shortfall}", style="yellow")


def run(case: Case) -> dict[str, Any]:
    """Measure a case; one that raises is a row that says so."""
    try:
        figures = measure(case)
    except Exception as error:  # a peer's compiler, memory: the other cases are still worth having
        reason = f"{type(error).__name__}: {error}"
        rows = [{"contender": pages.OWN, "status": "failed", "reason": reason}]
        figures = {"op": case.op, "case": case.name, "goal": case.percent, "rows": rows}
        figures |= {"ahead": list(case.ahead), "least": case.least, "limit_us": None}
    show(figures)
    torch.cuda.empty_cache()
    return figures


def of_file(path: Path | None, here: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cases that a file has, if there is one, of this machine."""
    if path is None or not path.exists():
        return []
    old = json.loads(path.read_text())
    if old["machine"] != here:
        raise SystemExit(f"{path} holds for another machine: {old['machine']}. Name another file.")
    cases: list[dict[str, Any]] = old["cases"]
    return cases


def merged(
    old: Sequence[dict[str, Any]], found: Sequence[dict[str, Any]], order: Sequence[Case]
) -> list[dict[str, Any]]:
    """Return all cases, those that were measured again in place of the old, in the order of a list."""
    places = {(case.op, case.name): place for place, case in enumerate(order)}
    both = {(case["op"], case["case"]): case for case in (*old, *found)}
    return [both[key] for key in sorted(both, key=lambda key: places.get(key, len(places)))]


def main() -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("operators", nargs="*", help="some of the gallery's; all unless named")
    parser.add_argument("--grid", action="store_true", help="sixty odd shapes instead of the usual ones")
    parser.add_argument("--save", type=Path, help="write the figures as JSON, with the machine they hold for")
    parser.add_argument("--resume", action="store_true", help="leave out the cases that FILE has")
    parser.add_argument(
        "--write",
        action="store_true",
        help="put the tables of FILE, the grid and gemv into the READMEs",
    )
    options = parser.parse_args()
    if options.write:
        files = options.save or pages.RESULTS, pages.GRID, pages.GEMV
        pages.write(*(json.loads(path.read_text(encoding="utf-8")) for path in files))
        return 0
    if not torch.cuda.is_available():
        print("gallery.py needs a CUDA GPU.", file=sys.stderr)
        return 3
    every = list(grid() if options.grid else cases())
    unknown = set(options.operators) - {case.op for case in every}
    if unknown:
        parser.error(
            f"no such operator: {', '.join(sorted(unknown))}; there are {sorted({c.op for c in every})}"
        )
    wanted = [case for case in every if not options.operators or case.op in options.operators]
    here = machine()
    old = of_file(options.save, here)
    if options.resume:
        done = {(case["op"], case["case"]) for case in old}
        wanted = [case for case in wanted if (case.op, case.name) not in done]
    found: list[dict[str, Any]] = []
    for case in wanted:
        found.append(run(case))
        if options.save:  # after each case: what is done stays if the rest is interrupted
            saved = {"machine": here, "cases": merged(old, found, every)}
            options.save.write_text(json.dumps(saved, indent=1) + "\n")
    short = [case for case in found if shortfalls(case)]
    console.print(f"{len(wanted) - len(short)} of {len(wanted)} cases hold their goals")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
