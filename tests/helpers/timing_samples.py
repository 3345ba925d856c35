"""Samples as a GPU gives them, made by hand: blocks that differ, drift, outliers, tails, clocks of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dotcu.benchmark.results import Block, CallTime, Clocks, Means, Measured


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What makes two samples differ; standard deviations, as shares of the time.

    Attributes:
        sample: From call to call.
        block: From block to block.
        place: From one set of inputs to the next, of four that blocks take in turn; drawn anew by a process.
        run: From process to process, whatever the blocks of one show.
        drift: From the first block to the last, evenly, up or down.
        walk: From each block to the next, adding up.
        tail: A fifth of the samples are longer, by so much on average (exponential).
        outliers: So many of the samples take 1.5 to 10 times as long.
        step_us: Start and end are read from a clock of that step.
    """

    sample: float = 0.01
    block: float = 0.003
    place: float = 0.0
    run: float = 0.0
    drift: float = 0.0
    walk: float = 0.0
    tail: float = 0.0
    outliers: float = 0.0
    step_us: float = 0.0


USUAL = Noise()


def runs(
    noise: Noise, seed: int, *, of: int, blocks: int = 20, calls: int = 10, us: float = 10.0
) -> NDArray[np.float64]:
    """Samples of so many processes: times by run, block and call."""
    rng = np.random.default_rng(seed)
    log = rng.normal(0, noise.run, (of, 1, 1)) + rng.normal(0, noise.block, (of, blocks, 1))
    log = log + rng.normal(0, noise.place, (of, 4))[:, np.arange(blocks) % 4, None]
    log = log + noise.drift * rng.uniform(-1, 1, (of, 1, 1)) * np.linspace(0, 1, blocks)[:, None]
    log = log + rng.normal(0, noise.walk, (of, blocks, 1)).cumsum(axis=1)
    log = log + rng.normal(0, noise.sample, (of, blocks, calls))
    late = rng.random((of, blocks, calls)) < 0.2
    log = log + late * rng.exponential(1, (of, blocks, calls)) * noise.tail
    rare = rng.random((of, blocks, calls)) < noise.outliers
    times = us * np.exp(log) * np.where(rare, rng.uniform(1.5, 10, rare.shape), 1)
    return stepped(times, noise.step_us, rng)


def stepped(times: NDArray[np.float64], step_us: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """What a clock of that step says of times that begin whenever they like."""
    if not step_us:
        return times
    start = rng.uniform(0, 1, times.shape)
    ticks: NDArray[np.float64] = np.floor(start + times / step_us)
    return ticks * step_us


def measured(
    blocks: Sequence[Sequence[float]] | NDArray[np.float64],
    *,
    contender: str = "dotcu",
    by: Means = "cupti",
    step_us: float = 0.0,
    clocks: Sequence[Clocks] = (),
) -> Measured:
    """A contender with these times, one kernel a call; `clocks` are those before each block, and after it."""
    states = clocks or [Clocks()] * len(blocks)
    kernels = 1 if by == "cupti" else None
    made = tuple(
        Block(
            calls=tuple(CallTime(time_us=float(t), kernels=kernels) for t in block), before=state, after=state
        )
        for block, state in zip(blocks, states, strict=True)
    )
    return Measured(contender=contender, l2="cold", by=by, blocks=made, resolution_us=step_us)
