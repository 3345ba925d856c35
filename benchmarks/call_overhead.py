"""Measure what one call costs the host: dotcu beside every other way to run the same kernel.

    python benchmarks/call_overhead.py [--save FILE] [--rounds N] [--calls N] [--only NAME ...]

Each contender adds two tensors of 1024 floats and allocates the result, in one process, alternating:
a round times some hundred calls of every contender, in an order that is shuffled for each round. A
time is of the host alone, in microseconds per call, with the Python function around the call, which
is the same for all (a tenth of a microsecond or less). A ratio is the median of the rounds' ratios,
so that what drifts between rounds cancels. Results are compared bit for bit before the timing, and
after it with other values in the same tensors.

Ratios are to the C++ operator in calls/cpp, written as a careful author writes it, or to its sibling
in the same circumstances: recording for autograd, ten arguments, eight launches, a clone before the
launch, a value that is read (for which the host waits, so that this time is not of the host alone),
inside torch.compile. Bare launches allocate nothing, and their ratios are to CuPy's. The gallery's matmul and
attention, whose calls pass tensor maps, are compared with torch's own in bfloat16 (`--only bf16`).

Peers that are not installed are named with the reason. Exit codes: 0 every goal held, 1 one did not
or could not be measured, 3 no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from calls import bare, compiled, cpp, maps, ours, peers
from calls.host import machine
from calls.report import Timing, show, show_goals, summarize
from calls.stats import Goal, Verdict, at_most_more, at_most_times, judge
from calls.timing import Ready, Skipped, first_line, measure, prepare, verify
from calls.work import CPP, ELEMENTS, Contender, Inputs, make_inputs

CONTENDERS = (
    *cpp.CONTENDERS,
    *peers.CONTENDERS,
    *ours.CONTENDERS,
    *bare.CONTENDERS,
    *compiled.CONTENDERS,
    *maps.CONTENDERS,
)

GOALS = (
    at_most_times(ours.TORCH_OPS, 1.0, CPP),
    at_most_times(ours.DIRECT, 0.8, CPP),
    at_most_times(ours.EIGHT_TORCH_OPS, 1.2, cpp.CPP_EIGHT),
    at_most_times(ours.EIGHT_DIRECT, 1.2, cpp.CPP_EIGHT),
    at_most_times(ours.CLONE_TORCH_OPS, 1.2, cpp.CPP_CLONE),
    at_most_times(ours.CLONE_DIRECT, 1.2, cpp.CPP_CLONE),
    at_most_times(ours.READ_TORCH_OPS, 1.2, cpp.CPP_READ),
    at_most_times(ours.READ_DIRECT, 1.2, cpp.CPP_READ),
    at_most_times(bare.DOTCU, 0.8, bare.CUPY),
    at_most_times(ours.RECORDING_TORCH_OPS, 1.1, cpp.CPP_RECORDING),
    at_most_times(ours.RECORDING_DIRECT, 1.1, cpp.CPP_RECORDING),
    at_most_more(ours.TEN_TORCH_OPS, 1.0, ours.THREE_TORCH_OPS),
    at_most_more(ours.TEN_DIRECT, 1.0, ours.THREE_DIRECT),
    compiled.costs_no_more("dotcu, torch.ops"),
    compiled.costs_no_more("dotcu, direct"),
    *(at_most_times(each.name, 1.0, each.base) for each in maps.CONTENDERS if each.name.startswith(maps.OWN)),
)

WITHOUT_GRAPH_BREAKS = ("dotcu, torch.ops", "dotcu, direct")


def choose(contenders: Sequence[Contender], words: Sequence[str] | None) -> list[Contender]:
    """Return the contenders whose names contain one of the words, and those they are compared with."""
    if not words:
        return list(contenders)
    named = [c for c in contenders if any(word in c.name for word in words)]
    wanted = {name for c in named for name in (c.name, c.base)}
    return [c for c in contenders if c.name in wanted]


def asked(goals: Sequence[Goal], chosen: Sequence[Contender]) -> list[Goal]:
    """Return the goals that need only what was chosen."""
    names = {contender.name for contender in chosen}
    return [goal for goal in goals if names.issuperset(goal.needs)]


def still_right(measured: Sequence[Ready], inputs: Inputs) -> list[Skipped]:
    """Find those that are wrong now: with other values in the inputs, or after many calls."""
    inputs.fill(1)
    wrong = []
    for ready in measured:
        try:
            verify(ready, inputs)
        except Exception as error:  # whatever it is, it was not there before the timing
            wrong.append(Skipped(name=ready.contender.name, reason=f"after the timing, {first_line(error)}"))
    return wrong


def read_options(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", type=Path, help="write the figures as JSON, with the machine they hold for")
    parser.add_argument("--rounds", type=int, default=30, help="rounds over all contenders (30)")
    parser.add_argument("--calls", type=int, default=300, help="calls of each in a round, at most 900 (300)")
    parser.add_argument("--only", nargs="+", help="contenders whose names contain one of these words")
    options = parser.parse_args(words)
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
    times = measure([ready.timed for ready in measured], rounds=options.rounds, calls=options.calls)
    skipped = {s.name: s for s in prepared if isinstance(s, Skipped)}
    skipped |= {s.name: s for s in still_right(measured, inputs)}
    right = {name: figures for name, figures in times.items() if name not in skipped}
    verdicts = [judge(goal, right) for goal in asked(GOALS, chosen)] + verdicts
    return [skipped.get(c.name) or summarize(c.name, c.base, right) for c in chosen], verdicts


def document(
    options: argparse.Namespace, results: Sequence[Timing | Skipped], verdicts: Sequence[Verdict]
) -> dict[str, Any]:
    """Return everything, for JSON."""
    return {
        "version": 1,
        "command": " ".join(["python", *sys.argv]),
        "machine": machine(),
        "elements": ELEMENTS,
        "rounds": options.rounds,
        "calls": options.calls,
        "results": [asdict(result) for result in results],
        "goals": [asdict(verdict) for verdict in verdicts],
    }


def main(words: Sequence[str] | None = None) -> int:
    """Measure every contender, print, save, and say whether the goals held."""
    options = read_options(words)
    if not torch.cuda.is_available():
        print("call_overhead.py times launches on a GPU, and torch sees none here.", file=sys.stderr)
        return 3
    results, verdicts = run(options)
    show(f"one call, {ELEMENTS} floats: microseconds of the host", results)
    show_goals(verdicts)
    if options.save:
        options.save.write_text(json.dumps(document(options, results, verdicts), indent=2) + "\n")
    return 0 if all(verdict.held for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
