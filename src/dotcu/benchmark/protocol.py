"""How figures are taken: every number that decides when to start, how often, and when to stop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """The parameters of a measurement.

    A *sample* is the time of one call. A *block* is some samples of every contender, by turns in a shuffled
    order, on one set of inputs; the next block takes the next set, elsewhere in memory. Measuring stops once
    there are `blocks` of them, `least_s` have gone by and every median is known to within `noise`; or
    after `most_blocks` or `most_s`, whichever is first; three blocks are taken in any case.

    Attributes:
        warmup_s: Calls are made for so long before the first sample, at least.
        warmup_most_s: And at most.
        stable: Warm-up ends where the medians of two blocks, `warmup_s` apart, differ by less than this.
        blocks: At least so many, of each contender.
        most_blocks: At most so many.
        calls: Samples of each contender in a block, at least; fewer where `most_s` is too short for `blocks`
            of so many.
        most_calls: And at most: as many as a block of `block_s` takes.
        block_s: A block is to last for so long: a GPU that rests too often draws less power, and is faster,
            than it is in earnest.
        noise: Half the interval of a median over the median: measuring goes on while it is more.
        confidence: Of the intervals.
        least_s: Measuring goes on for so long, for each case and state of L2.
        most_s: And no longer than this, once there are three blocks.
        sets: Sets of inputs, in memory of their own, as far as memory reaches.
        seed: What inputs and orders start from.
    """

    warmup_s: float = 0.1
    warmup_most_s: float = 2.0
    stable: float = 0.01
    blocks: int = 10
    most_blocks: int = 40
    calls: int = 10
    most_calls: int = 100
    block_s: float = 0.02
    noise: float = 0.005
    confidence: float = 0.99
    least_s: float = 0.1
    most_s: float = 10.0
    sets: int = 4
    seed: int = 0
