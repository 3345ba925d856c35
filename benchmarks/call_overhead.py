"""What does one call of an operator cost the host? dotcu beside every other way to run the same kernel.

    python benchmarks/call_overhead.py [--save FILE] [--rounds N] [--calls N] [--only NAME ...]

Each contender adds two tensors of 1024 floats and allocates the result, in one process, by turns:
a round times some hundred calls of every contender, in an order that is shuffled for each round. A
time is of the host alone, in microseconds per call, with the Python function around the call, which
is the same for all (a tenth of a microsecond or less). A ratio is the median of the rounds' ratios,
so that what drifts between rounds cancels. Results are compared bit for bit before the timing, and
after it with other values in the same tensors.

Ratios are to the C++ operator in calls/cpp, written as a careful author writes it, or to its sibling
in the same circumstances: recording for autograd, ten arguments, inside torch.compile.

Peers that are not installed are named with the reason. Exit codes: 0 every goal held, 1 one did not
or could not be measured, 3 no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from calls import compiled, cpp, ours, peers
from calls.host import machine
from calls.stats import Goal, Spread, Times, Verdict, at_most_more, at_most_times, judge, ratios, spread
from calls.timing import Ready, Skipped, first_line, measure, prepare, verify
from calls.work import CPP, ELEMENTS, Contender, Inputs, make_inputs

CONTENDERS = (
    *cpp.CONTENDERS,
    *peers.CONTENDERS,
    *ours.CONTENDERS,
    *compiled.CONTENDERS,
)

GOALS = (
    at_most_times(ours.TORCH_OPS, 1.0, CPP),
    at_most_times(ours.DIRECT, 0.95, CPP),
    at_most_times(ours.RECORDING_TORCH_OPS, 1.1, cpp.CPP_RECORDING),
    at_most_times(ours.RECORDING_DIRECT, 1.1, cpp.CPP_RECORDING),
    at_most_times(ours.PYTHON_TORCH_OPS, 1.3, CPP),
    at_most_times(ours.PYTHON_DIRECT, 1.3, CPP),
    at_most_more(ours.TEN_TORCH_OPS, 1.0, ours.THREE_TORCH_OPS),
    at_most_more(ours.TEN_DIRECT, 1.0, ours.THREE_DIRECT),
    compiled.costs_no_more("dotcu, torch.ops"),
    compiled.costs_no_more("dotcu, direct"),
)

WITHOUT_GRAPH_BREAKS = ("dotcu, torch.ops", "dotcu, direct")


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What one call of a contender costs, and how often the cost of its base that is."""

    name: str
    us: Spread
    base: str
    ratio: Spread | None


def choose(contenders: Sequence[Contender], words: Sequence[str] | None) -> list[Contender]:
    """The contenders whose names contain one of the words, and those they are compared with."""
    if not words:
        return list(contenders)
    named = [c for c in contenders if any(word in c.name for word in words)]
    wanted = {name for c in named for name in (c.name, c.base)}
    return [c for c in contenders if c.name in wanted]


def asked(goals: Sequence[Goal], chosen: Sequence[Contender]) -> list[Goal]:
    """The goals that only need what was chosen."""
    names = {contender.name for contender in chosen}
    return [goal for goal in goals if names.issuperset(goal.needs)]


def still_right(measured: Sequence[Ready], inputs: Inputs) -> list[Skipped]:
    """Those that have become wrong: with other values in the inputs, or by having been called often."""
    inputs.fill(1)
    wrong = []
    for ready in measured:
        try:
            verify(ready, inputs)
        except Exception as error:  # whatever it is, it was not there before the timing
            wrong.append(Skipped(name=ready.contender.name, reason=f"after the timing, {first_line(error)}"))
    return wrong


def summarize(contender: Contender, times: Times) -> Timing:
    """One contender's figures."""
    compared = contender.base in times and contender.base != contender.name
    return Timing(
        name=contender.name,
        us=spread(times[contender.name]),
        base=contender.base,
        ratio=spread(ratios(times, contender.name, contender.base)) if compared else None,
    )


def show(results: Sequence[Timing | Skipped], verdicts: Sequence[Verdict]) -> None:
    """Print a table of the contenders and one of the goals."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table("contender", title=f"one call, {ELEMENTS} floats: microseconds of the host")
    for heading in ("median", "quartiles", "range", "ratio", "quartiles"):
        table.add_column(heading, justify="right")
    table.add_column("to")
    for result in results:
        table.add_row(*row(result))
    console.print(table)
    goals = Table("goal", title="goals")
    goals.add_column("figure", justify="right")
    goals.add_column("")
    goals.add_column("reason")
    for verdict in verdicts:
        figure = "not measured" if verdict.figure is None else f"{verdict.figure.median:.3f} {verdict.unit}"
        goals.add_row(verdict.goal, figure, "held" if verdict.held else "MISSED", verdict.reason)
    if verdicts:
        console.print(goals)


def row(result: Timing | Skipped) -> list[str]:
    """A line of the table."""
    if isinstance(result, Skipped):
        return [result.name, "skipped", "", "", "", "", result.reason]
    us, ratio = result.us, result.ratio
    figures = [f"{us.median:.2f}", f"{us.p25:.2f} to {us.p75:.2f}", f"{us.min:.2f} to {us.max:.2f}"]
    if ratio is None:
        return [result.name, *figures, "", "", ""]
    return [result.name, *figures, f"{ratio.median:.3f}", f"{ratio.p25:.3f} to {ratio.p75:.3f}", result.base]


def read_options() -> argparse.Namespace:
    """What was asked for on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", type=Path, help="write the figures as JSON, with the machine they hold for")
    parser.add_argument("--rounds", type=int, default=30, help="rounds over all contenders (30)")
    parser.add_argument("--calls", type=int, default=300, help="calls of each in a round, at most 900 (300)")
    parser.add_argument("--only", nargs="+", help="contenders whose names contain one of these words")
    options = parser.parse_args()
    if options.rounds < 1 or not 1 <= options.calls <= 900:  # 1024 launches are queued; more would wait
        parser.error("--rounds takes 1 or more, --calls 1 to 900")
    return options


def run(options: argparse.Namespace) -> tuple[list[Timing | Skipped], list[Verdict]]:
    """Prepare, time, check again and judge."""
    inputs = make_inputs(torch.device("cuda"))
    chosen = choose(CONTENDERS, options.only)
    verdicts = [] if options.only else [compiled.graph_breaks(way, inputs) for way in WITHOUT_GRAPH_BREAKS]
    prepared = [prepare(contender, inputs) for contender in chosen]
    measured = [ready for ready in prepared if isinstance(ready, Ready)]
    times = measure(measured, rounds=options.rounds, calls=options.calls)
    skipped = {s.name: s for s in prepared if isinstance(s, Skipped)}
    skipped |= {s.name: s for s in still_right(measured, inputs)}
    right = {name: figures for name, figures in times.items() if name not in skipped}
    verdicts = [judge(goal, right) for goal in asked(GOALS, chosen)] + verdicts
    return [skipped.get(c.name) or summarize(c, right) for c in chosen], verdicts


def document(
    options: argparse.Namespace, results: Sequence[Timing | Skipped], verdicts: Sequence[Verdict]
) -> dict[str, Any]:
    """Everything, for JSON."""
    return {
        "version": 1,
        "command": " ".join(["python", *sys.argv]),
        "machine": machine(),
        "elements": ELEMENTS,
        "rounds": options.rounds,
        "calls": options.calls,
        "dotcu_calls": {name: str(ours.direct(name).replay) for name in ours.OPERATORS},
        "results": [asdict(result) for result in results],
        "goals": [asdict(verdict) for verdict in verdicts],
    }


def main() -> int:
    """Measure every contender, print, save, and say whether the goals held."""
    options = read_options()
    if not torch.cuda.is_available():
        print("call_overhead.py times launches on a GPU, and torch sees none here.", file=sys.stderr)
        return 3
    results, verdicts = run(options)
    show(results, verdicts)
    if options.save:
        options.save.write_text(json.dumps(document(options, results, verdicts), indent=2) + "\n")
    return 0 if all(verdict.held for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
