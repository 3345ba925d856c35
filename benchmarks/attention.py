"""How fast is the gallery's attention? Beside cuDNN's and FlashAttention of torch, on one Hopper GPU.

    python benchmarks/attention.py [--budget SECONDS] [--save FILE] [--only WORD ...]

Measured as by benchmarks/tile.py: alternately, on a cold L2, random normal data, by CUDA events; a
ratio is the median of the rounds' ratios, the rival's time over dotcu's. A result is compared with
the rival's before it is timed.

Exit codes: 0 every goal held, 1 one did not, 2 wrong usage, 3 no GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import tile
from dotcu.gallery import attention


def result_first(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """Attention under the name that benchmarks/tile.py calls."""
    out, lse = attention(q, k, v, causal)
    return out, lse


OPERATORS = SimpleNamespace(attention_tile=result_first)

FORWARD = (
    (2, 16, 8192, 128, True, 0.95), (1, 16, 16384, 128, False, 0.95), (2, 32, 8192, 64, True, 0.95),
    (1, 32, 16384, 64, False, 0.95), (2, 8, 8192, 256, True, 0.95), (1, 8, 16384, 256, False, 0.95),
    (2, 16, 8192, 96, True, None), (2, 10, 8192, 192, True, None), (8, 16, 2048, 128, True, None),
    (32, 16, 512, 128, True, None), (1, 16, 1024, 128, False, None),
)  # fmt: skip
"""B, H, positions, head dimension, causal, and the least ratio."""

BACKWARD = (
    (2, 16, 8192, 128, True, 0.92), (1, 16, 16384, 128, False, 0.92), (2, 32, 8192, 64, True, None),
    (1, 32, 16384, 64, False, None), (2, 16, 8192, 96, True, None), (8, 16, 2048, 128, True, None),
)  # fmt: skip


def cases() -> list[tuple[tile.Case, float | None]]:
    """Every row of the table, and its goal."""
    rows = [(tile.attention(b, h, s, d, causal), goal) for b, h, s, d, causal, goal in FORWARD]
    for b, h, s, d, causal, goal in BACKWARD:
        rows.append((tile.attention_backward(b, h, s, d, causal), goal))
    return rows


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--budget", type=float, default=300.0, metavar="SECONDS", help="stop after as many")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="cases with one of these words")
    options = parser.parse_args()
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
        print("no Hopper GPU: the figures are of one")
        return 3
    clock, rows, missed = tile.Clock(deadline=time.monotonic() + options.budget), [], 0
    for case, goal in cases():
        if options.only and not any(word in case.name for word in options.only):
            continue
        if time.monotonic() > clock.deadline:
            print(f"{case.name:44} not measured: the budget of {options.budget:.0f} s is spent")
            missed += goal is not None
            continue
        row: dict[str, Any] = tile.measure(case, OPERATORS, clock) | {"goal": goal}
        rows.append(row)
        held = goal is None or row.get("ratio", {}).get("cuDNN", 0.0) >= goal
        missed += not held
        print(
            tile.line_of(row),
            "" if goal is None else f"goal {goal}: {'held' if held else 'MISSED'}",
            flush=True,
        )
        torch.cuda.empty_cache()
        tile.save(rows, options.save)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
