"""Measure what calls of the gallery's operators cost the host, beside torch eager's own functions.

    python benchmarks/gallery_calls.py [--save FILE] [--rounds N] [--only NAME ...]

Each differentiable operator is called through `torch.ops` on 64 x 256 floats: without a gradient, and forward
and backward (torch.autograd.grad of one call). A time is of the host alone, in microseconds. One row more has
torch's own softmax kernels in a torch.autograd.Function: what a node of autograd costs that is written in
Python. Results are compared before.

dotcu and torch alternate in one process, in an order that is shuffled for each round, and a ratio is the
median of the rounds' ratios. The goals are for the geometric mean of the ratios, and for the worst one. Exit
codes: 0 every goal held, 1 one did not or could not be measured, 3 no GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from calls.gradients import BACKWARD, COLUMNS, FORWARD, PAIRS, ROWS, Pair, prepare
from calls.host import machine
from calls.report import Timing, show, show_goals, summarize
from calls.stats import Goal, Times, Verdict, judge, ratios
from calls.timing import Skipped, Timed, first_line, measure

CALLS = 100
MOST = {FORWARD: (1.0, 1.4), BACKWARD: (1.1, 1.3)}
"""The goals of each way: for the geometric mean, and for the worst operator."""


def compared(way: str, times: Times) -> list[list[float]]:
    """The ratios of each operator, round by round."""
    return [ratios(times, pair.own_name(way), pair.eager_name(way)) for pair in PAIRS if not pair.bound]


def mean(way: str, times: Times) -> list[float]:
    """The geometric mean over the operators, round by round."""
    return [statistics.geometric_mean(each) for each in zip(*compared(way, times), strict=True)]


def worst(way: str, times: Times) -> list[float]:
    """The ratios of the operator whose median is the highest."""
    return max(compared(way, times), key=statistics.median)


def goals() -> list[Goal]:
    """Make the goals of both ways."""
    operators = [pair for pair in PAIRS if not pair.bound]
    return [
        Goal(
            name=f"{way}, {what}: at most {bound:g} times torch eager",
            at_most=bound,
            unit="times",
            needs=tuple(name for each in operators for name in (each.own_name(way), each.eager_name(way))),
            figure=partial(figure, way),
        )
        for way, (of_mean, of_worst) in MOST.items()
        for what, figure, bound in (("geometric mean", mean, of_mean), ("worst operator", worst, of_worst))
    ]


def measure_pairs(
    pairs: Sequence[Pair], device: torch.device, rounds: int
) -> tuple[list[Timing | Skipped], dict[str, list[float]]]:
    """Compare and time each operator beside torch's function.

    Returns:
        The lines of a table, and the times behind them.
    """
    results: list[Timing | Skipped] = []
    times: dict[str, list[float]] = {}
    for pair in pairs:
        try:
            calls = prepare(pair, device)
        except Exception as error:  # the other operators are still worth having
            results += [Skipped(name=pair.own_name(way), reason=first_line(error)) for way in pair.ways]
            continue
        for way, (own, eager) in calls.items():
            timed = [Timed(name=pair.own_name(way), call=own), Timed(name=pair.eager_name(way), call=eager)]
            times |= measure(timed, rounds=rounds, calls=CALLS)
            results += [summarize(each.name, pair.eager_name(way), times) for each in timed]
    return results, times


def read_options(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", type=Path, help="write the figures as JSON, with the machine they hold for")
    parser.add_argument("--rounds", type=int, default=20, help="rounds over both calls of an operator (20)")
    parser.add_argument("--only", nargs="+", help="operators whose names contain one of these words")
    options = parser.parse_args(words)
    options.pairs = [p for p in PAIRS if not options.only or any(word in p.name for word in options.only)]
    if options.rounds < 1 or not options.pairs:
        parser.error("--rounds takes 1 or more, --only a part of a name that there is")
    return options


def document(
    options: argparse.Namespace, results: Sequence[Timing | Skipped], verdicts: Sequence[Verdict]
) -> dict[str, Any]:
    """Return everything, for JSON."""
    return {
        "version": 1,
        "command": " ".join(["python", *sys.argv]),
        "machine": machine(),
        "shape": [ROWS, COLUMNS],
        "rounds": options.rounds,
        "calls": CALLS,
        "results": [asdict(result) for result in results],
        "goals": [asdict(verdict) for verdict in verdicts],
    }


def main(words: Sequence[str] | None = None) -> int:
    """Measure every operator, print, save, and say whether the goals held."""
    options = read_options(words)
    if not torch.cuda.is_available():
        print("gallery_calls.py times launches on a GPU, and torch sees none here.", file=sys.stderr)
        return 3
    results, times = measure_pairs(options.pairs, torch.device("cuda"), options.rounds)
    show(f"one call, {ROWS} x {COLUMNS} floats: microseconds of the host", results)
    verdicts = [] if options.only else [judge(goal, times) for goal in goals()]
    show_goals(verdicts)
    if options.save:
        options.save.write_text(json.dumps(document(options, results, verdicts), indent=2) + "\n")
    skipped = any(isinstance(result, Skipped) for result in results)
    return 1 if skipped or not all(verdict.held for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
