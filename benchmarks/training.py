"""Measure what training costs: the steps of a language model.

    python benchmarks/training.py [--model small|gpt2] [--save FILE] [--rounds N] [--only NAME ...]

A transformer of six layers of width 256, two times 128 tokens, bfloat16, AdamW(fused=True), with
dotcu's layer_norm and cross_entropy or with torch's, otherwise the same: eager, by torch.compile, and as a
CUDA graph. A time is that of ten steps and of one wait for the GPU, per step. Losses are compared before.
With --model gpt2 the model is GPT-2 of 124 million parameters, on 16 x 1024 tokens, by torch.compile, and
dotcu's matmul and attention take the place of torch's, too.

Both alternate in one process, in an order that is shuffled for each round, and a ratio is the median of the
rounds' ratios. Exit codes: 0 every goal held, 1 one did not or could not be measured, 3 no GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch._inductor import async_compile

from calls.host import machine
from calls.report import Timing, show, show_goals, summarize
from calls.stats import Verdict, at_most_times, judge
from calls.timing import Skipped, Timed, first_line, measure
from calls.transformer import (
    COMPILED,
    EAGER,
    GALLERY,
    GPT2,
    MODES,
    OWN,
    TORCH,
    Functions,
    Sizes,
    Trainer,
)

STEPS, WARM_STEPS = 10, 3
COMPARED_STEPS, LOSS_TOLERANCE = 10, 0.03
"""Steps whose losses are compared; a loss near 9 is a multiple of 1/16 in bfloat16."""


def step_name(mode: str, functions: Functions) -> str:
    return f"step, {mode}, {functions.name}"


GOALS = (
    *(at_most_times(step_name(mode, OWN), 1.02, step_name(mode, TORCH)) for mode in (EAGER, COMPILED)),
    at_most_times(step_name(COMPILED, GALLERY), 1.0, step_name(COMPILED, TORCH)),
)

Found = tuple[list[Timing | Skipped], dict[str, list[float]]]
"""Lines of a table, and the times behind them."""


def measure_steps(
    modes: Sequence[str],
    device: torch.device,
    rounds: int,
    sizes: Sizes,
    own: Functions | None = None,
) -> Found:
    """Compare and time the steps of models with dotcu's functions, `OWN` by default, and with torch's."""
    ways = {step_name(*way): way for way in itertools.product(modes, (own or OWN, TORCH))}
    want = Trainer(TORCH, EAGER, device, sizes).losses(COMPARED_STEPS)
    timed: list[Timed] = []
    skipped: dict[str, Skipped] = {}
    for name, (mode, functions) in ways.items():
        try:
            trainer = Trainer(functions, mode, device, sizes)
            require_agreement(trainer.losses(COMPARED_STEPS), want)
            timed.append(Timed(name=name, call=trainer.step))
        except Exception as error:  # the other ways are still worth having
            skipped[name] = Skipped(name=name, reason=first_line(error))
    async_compile.shutdown_compile_workers()  # which would run beside what is timed
    times = measure(timed, rounds=rounds, calls=STEPS, warm_calls=WARM_STEPS, waits=True)
    results = [
        skipped.get(name) or summarize(name, step_name(mode, TORCH), times)
        for name, (mode, _) in ways.items()
    ]
    return results, times


def require_agreement(losses: Sequence[float], want: Sequence[float]) -> None:
    """Refuse losses that are not those of torch, or that do not fall.

    Raises:
        ValueError: It is so.
    """
    for step, (found, wanted) in enumerate(zip(losses, want, strict=True)):
        if not abs(found - wanted) <= LOSS_TOLERANCE * wanted:
            raise ValueError(f"the loss of step {step} is {found}, where torch eager has {wanted}")
    if not losses[-1] < losses[0]:
        raise ValueError(f"the loss does not fall: {losses[0]}, after {len(losses) - 1} steps {losses[-1]}")


def read_options(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=("small", "gpt2"), default="small", help="the model (small)")
    parser.add_argument("--save", type=Path, help="write the figures as JSON, with the machine they hold for")
    parser.add_argument("--rounds", type=int, default=20, help="rounds over what is compared (20)")
    parser.add_argument("--only", nargs="+", help="modes whose names contain one of these words")
    options = parser.parse_args(words)
    options.modes = [mode for mode in MODES if not options.only or any(word in mode for word in options.only)]
    options.sizes, options.own = Sizes(), OWN
    if options.model == "gpt2":
        options.sizes, options.own = GPT2, GALLERY
        options.modes = options.modes if options.only else [COMPILED]
    if options.rounds < 1 or not options.modes:
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
        "model": asdict(options.sizes),
        "rounds": options.rounds,
        "results": [asdict(result) for result in results],
        "goals": [asdict(verdict) for verdict in verdicts],
    }


def main(words: Sequence[str] | None = None) -> int:
    """Measure the steps, print, save, and say whether the goals held."""
    options = read_options(words)
    if not torch.cuda.is_available():
        print("training.py times launches on a GPU, and torch sees none here.", file=sys.stderr)
        return 3
    modes = options.modes
    names = {step_name(mode, functions) for mode in modes for functions in (options.own, TORCH)}
    results, times = measure_steps(modes, torch.device("cuda"), options.rounds, options.sizes, options.own)
    show("a training step: microseconds, waiting for the GPU included", results)
    verdicts = [judge(goal, times) for goal in GOALS if names.issuperset(goal.needs)]
    show_goals(verdicts)
    if options.save:
        options.save.write_text(json.dumps(document(options, results, verdicts), indent=2) + "\n")
    return 0 if all(verdict.held for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
