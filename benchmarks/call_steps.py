"""What each part of an operator's call costs the host, by leaving the others out.

    python benchmarks/call_steps.py [--save FILE]

The operator of call_overhead.py allocates and launches once. It is called through `torch.ops`, by its Python
object, and with a gradient to record; its allocation and its launch are made alone, too. A part's cost is a
median, or the difference of two, in microseconds of the host. Needs a GPU and dotcu's native part.
Exit codes: 0 measured, 3 no GPU or no native part.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from calls import ours
from calls.host import machine
from dotcu.kernel import native

CALLS, ROUNDS = 300, 60


def median_us(call: Callable[[], Any]) -> float:
    """Microseconds of one call: the median of rounds that each begin with an idle GPU."""
    rounds = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter() - start) / CALLS * 1e6)
    torch.cuda.synchronize()
    return statistics.median(rounds)


def measure() -> dict[str, float]:
    """Microseconds of each part of `torch.ops.call_overhead.add(a, b)`."""
    a, b = torch.randn(2, 1024, device="cuda")
    direct, packet = ours.direct("add"), ours.packet("add")
    leaf = a.clone().requires_grad_()
    for x in (a, a, leaf):
        packet(x, b)
    nothing = median_us(lambda: None)
    allocated = median_us(lambda: torch.empty_like(a)) - nothing
    called = median_us(lambda: direct(a, b)) - nothing
    dispatched = median_us(lambda: packet(a, b)) - nothing
    recorded = median_us(lambda: packet(leaf, b)) - nothing
    out, grid = torch.empty_like(a), ours.BLOCKS
    launched = median_us(lambda: ours.kernels.add(a, b, out, 1024, grid=grid, block=ours.BLOCK)) - nothing
    return {
        "torch.ops and the dispatcher": dispatched - called,
        "allocation": allocated,
        "launch, with its checks": launched,
        "the rest of the body, and checks of the call": called - allocated - launched,
        "recording, where a gradient is wanted": recorded - dispatched,
        "all, without recording": dispatched,
    }


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", type=Path, help="write the figures as JSON, with the machine they hold for")
    options = parser.parse_args()
    reason = native.prepare() if torch.cuda.is_available() else "torch sees no GPU here"
    if reason:
        print(reason, file=sys.stderr)
        return 3
    steps = measure()
    for name, us in steps.items():
        print(f"{us:6.2f} us  {name}")
    if options.save:
        command = " ".join(["python", *sys.argv])
        document = {"version": 1, "command": command, "machine": machine(), "steps_us": steps}
        options.save.write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
