"""Samples that were taken while the GPU was slowed down: which to drop, and what else to tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from dotcu.benchmark.measured import Block, Clocks

_LEAST_CLOCK = 0.75
"""Of the highest SM clock seen; below, a block is dropped. The clocks of a busy GPU move by a tenth or so:
with a quarter less it was slowed down, or not awake. Source: NVBench's `--throttle-threshold`, 75 % too."""

_SILENT = {"idle"}  # clocks are read between blocks, where a GPU has nothing to do

_TOLD_CLOCK = 0.97  # clocks that stay above are one clock
_TOLD_C = 10  # temperatures within so many degrees are one temperature


def dropped(blocks: Sequence[Block], *, drops: Collection[str] | None = None) -> dict[int, str]:
    """Which blocks of a contender to drop, by their place, and why.

    A block is dropped for what holds at either end of it: what happened between is not known.

    Args:
        drops: The names of the reasons that NVML gives which drop a block; those of `clocks.REASONS`.
    """
    names = _names() if drops is None else drops
    least = _LEAST_CLOCK * max(_sm_mhz(blocks), default=0)
    found = {place: _why(block, names, least) for place, block in enumerate(blocks)}
    return {place: why for place, why in found.items() if why}


def kept(*contenders: Sequence[Block], drops: Collection[str] | None = None) -> tuple[list[list[float]], ...]:
    """The samples of each contender, by block, where none of them drops one: block i of each is paired."""
    lost = {place for blocks in contenders for place in dropped(blocks, drops=drops)}
    lost |= {place for blocks in contenders for place, block in enumerate(blocks) if not block.calls}
    places = [place for place in range(min(map(len, contenders))) if place not in lost]
    return tuple([list(blocks[place].times_us) for place in places] for blocks in contenders)


def told(blocks: Sequence[Block], *, drops: Collection[str] | None = None) -> tuple[str, ...]:
    """What else a reader has to know of the GPU: what limited it, and clocks and temperatures that moved."""
    names = _names() if drops is None else drops
    limits = Counter(
        reason for block in blocks for reason in {*block.before.reasons, *block.after.reasons} - _SILENT
    )
    notes = [
        f"{reason} in {count} of {len(blocks)} blocks"
        for reason, count in limits.most_common()
        if reason not in names
    ]
    return (*notes, *_moved(blocks))


def _moved(blocks: Sequence[Block]) -> Iterator[str]:
    clocks = _sm_mhz(blocks)
    if clocks and min(clocks) < _TOLD_CLOCK * max(clocks):
        yield f"SM clock {min(clocks)} to {max(clocks)} MHz"
    degrees = [c.temperature_c for block in blocks for c in _ends(block) if c.temperature_c is not None]
    if degrees and max(degrees) - min(degrees) >= _TOLD_C:
        yield f"temperature {min(degrees)} to {max(degrees)} C"


def _why(block: Block, names: Collection[str], least_mhz: float) -> str:
    for when, clocks in zip(("before", "after"), _ends(block), strict=True):
        for reason in clocks.reasons:
            if reason in names:
                return f"{reason} {when} it"
        if clocks.sm_mhz is not None and clocks.sm_mhz < least_mhz:
            highest = least_mhz / _LEAST_CLOCK
            return f"SM clock {clocks.sm_mhz} MHz {when} it, {highest:.0f} MHz at its highest"
    return ""


def _ends(block: Block) -> tuple[Clocks, Clocks]:
    return block.before, block.after


def _sm_mhz(blocks: Sequence[Block]) -> list[int]:
    return [clocks.sm_mhz for block in blocks for clocks in _ends(block) if clocks.sm_mhz is not None]


def _names() -> set[str]:
    from dotcu.benchmark.clocks import REASONS

    return {reason.name for reason in REASONS if reason.drops}
