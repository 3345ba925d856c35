"""How long operators take, in a second, and whether that has changed since the last version that held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch

from dotcu.benchmark.bencher import prepare
from dotcu.benchmark.comparing import Change, compare
from dotcu.benchmark.planned import Planned
from dotcu.benchmark.protocol import Protocol
from dotcu.benchmark.row import Row
from dotcu.benchmark.timing import Timed
from dotcu.operator import Operator
from dotcu.watching.events import Timing

QUICK = Protocol(
    warmup_s=0.05, warmup_most_s=0.5, blocks=6, most_blocks=15, most_calls=50, block_s=0.01, noise=0.01,
    least_s=0.05, most_s=1.0,
)  # fmt: skip
"""Enough blocks that two versions can be compared, in less time than it takes to look at the page."""


def timings(
    operators: Iterable[Operator], device: torch.device, seed: int, good: Sequence[Timing]
) -> Iterator[Timing]:
    """The first case of each operator, on a GPU, with a cold L2.

    Args:
        good: What to compare with, as far as it has the same case.

    Raises:
        DotcuError: Device time cannot be taken here; an operator's samples fail.
    """
    protocol = replace(QUICK, seed=seed)
    planned = prepare(list(operators), against=(), l2=("cold",), device=device, protocol=protocol)
    assert isinstance(planned, Planned)
    firsts = {case.op: case for case in reversed(planned.cases) if isinstance(case, Timed)}
    for case in reversed(firsts.values()):
        for row in case.rows():
            yield timing(row, good)


def timing(row: Row, good: Sequence[Timing]) -> Timing:
    """A row, with what became of it."""
    op, case = row.key.op, row.key.case
    if row.time is None or row.measured is None:
        return Timing(op=op, case=case, note=f"{row.status}: {row.reason}")
    made = Timing(op=op, case=case, median_us=row.time.median_us, measured=row.measured)
    before = next((each.measured for each in good if (each.op, each.case) == (op, case)), None)
    if before is None:
        return made
    change = compare(before, row.measured)
    if isinstance(change, Change):
        return replace(made, change=change)
    return replace(made, note=f"not compared: {change.reason}")
