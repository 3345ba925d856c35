"""When warm-up is over, and when a measurement is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dotcu.benchmark import statistics
from dotcu.benchmark.comparing import LEAST_BLOCKS
from dotcu.benchmark.measured import Block
from dotcu.benchmark.protocol import Protocol

STEPS = 2.5
"""Medians two steps of the clock apart, or fewer, are the same to it; half a step is for rounding."""


def is_warm(
    before: Mapping[str, float],
    now: Mapping[str, float],
    *,
    elapsed_s: float,
    resolution_us: float,
    protocol: Protocol,
) -> bool:
    """Whether warm-up is over.

    Args:
        before: The median of a block that came `warmup_s` earlier, by contender; empty where there is none.
        now: That of the last one.
        elapsed_s: Since warm-up began.
    """
    if elapsed_s >= protocol.warmup_most_s:
        return True
    if elapsed_s < protocol.warmup_s or before.keys() != now.keys():
        return False
    return all(
        abs(now[name] - before[name]) <= max(protocol.stable * before[name], STEPS * resolution_us)
        for name in now
    )


def calls_of_block(*, turn_s: float, protocol: Protocol) -> int:
    """How many turns a block has: fewer than `calls` where `most_s` leaves no time for `blocks` of them.

    Few blocks say less than short ones: their spread is what intervals come from.

    Args:
        turn_s: What one takes, of all contenders.
    """
    if turn_s <= 0:
        return protocol.most_calls
    wanted = max(protocol.calls, min(math.ceil(protocol.block_s / turn_s), protocol.most_calls))
    return max(1, min(wanted, int(protocol.most_s / protocol.blocks / turn_s)))


def why_stop(*, blocks: int, elapsed_s: float, noise: float, protocol: Protocol) -> str:
    """Why a measurement ends now: "noise", "time" or "blocks"; empty where it goes on.

    It goes on for three blocks in any case: fewer cannot be compared with another run's.

    Args:
        blocks: Taken so far.
        elapsed_s: Since the first of them began.
        noise: The highest among the contenders.
    """
    if blocks < LEAST_BLOCKS:
        return ""
    enough = blocks >= protocol.blocks and elapsed_s >= protocol.least_s
    if enough and noise <= protocol.noise:
        return "noise"
    if elapsed_s >= protocol.most_s:
        return "time"
    return "blocks" if blocks >= protocol.most_blocks else ""


def noise(blocks: Sequence[Block], *, resolution_us: float, protocol: Protocol) -> float:
    """Half the interval of a contender's median over that; 0.0 for one whose calls take no device time."""
    samples = [block.times_us for block in blocks]
    if not any(map(any, samples)):
        return 0.0
    found = statistics.summary(
        samples, confidence=protocol.confidence, resolution_us=resolution_us, seed=protocol.seed
    )
    return found.noise if found.median_us > 0 else 0.0
