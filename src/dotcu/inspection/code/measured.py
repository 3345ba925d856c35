"""What the simulator's counts of a kernel show, line by line.

They hold for the call that was simulated, and for the PTX that the simulator ran: ptxas may merge or move
accesses. Sectors and wavefronts are the hardware's, as `dotcu.simulate` counts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dotcu.inspection.code.emitted import is_executed, width_bytes
from dotcu.inspection.code.places import Place, user_place
from dotcu.inspection.code.remarks import Remark
from dotcu.inspection.code.sass import Instruction
from dotcu.simulator import Line

_SECTOR_BYTES = 32
_WIDEST = 16

FEW_REQUESTS = 8
"""Of a line: with fewer, the edges of a small call are all that is seen."""

POOR_SECTORS = 0.75
"""Of the ideal number of sectors over those touched: below, it is told."""

MANY_WAVEFRONTS = 1.25
"""Of wavefronts over those without bank conflicts: from here on, it is told."""

FEW_LANES, MUCH_WORK = 16.0, 0.05
"""Lanes at work on average, and the share of all issued instructions, for a line to be told of."""

ALL_BUT_IDEAL = 0.99


def of_counts(
    total: Line, lines: Mapping[Place, Line], sass: Sequence[Instruction], home: str
) -> tuple[Remark, ...]:
    """What the counts of a call show.

    Args:
        total: Of all lines together.
        sass: The machine instructions, for the widths that were emitted; empty where there are none.
    """
    found: list[Remark] = []
    for place, line in sorted(lines.items()):
        found += [*_sectors(place, line), *_banks(place, line), *_lanes(place, line, total)]
        found += _narrow(place, line, [i for i in sass if user_place(i.chain, home) == place])
    return tuple(found)


def _sectors(place: Place, line: Line) -> Iterator[Remark]:
    if line.global_requests < FEW_REQUESTS or line.sector_efficiency >= POOR_SECTORS:
        return
    had, ideal = line.sectors_per_request, line.ideal_sectors / line.global_requests
    told = f"{had:.1f} sectors a request, where {ideal:.1f} would hold the same bytes"
    used = f"{line.sector_efficiency:.0%} of what is moved is wanted"
    yield Remark(kind="uncoalesced", place=place, message=f"global memory: {told} ({used})")


def _banks(place: Place, line: Line) -> Iterator[Remark]:
    if line.shared_requests < FEW_REQUESTS or not line.ideal_wavefronts:
        return
    ratio = line.shared_wavefronts / line.ideal_wavefronts
    if ratio >= MANY_WAVEFRONTS:
        told = f"{ratio:.1f} times the wavefronts that it would take without bank conflicts"
        yield Remark(kind="bank conflicts", place=place, message=f"shared memory: {told}")


def _lanes(place: Place, line: Line, total: Line) -> Iterator[Remark]:
    issued = line.warp_instructions / total.warp_instructions if total.warp_instructions else 0.0
    if issued >= MUCH_WORK and line.active_lanes < FEW_LANES:
        yield Remark(
            kind="idle lanes",
            place=place,
            message=f"{line.active_lanes:.1f} of 32 lanes at work on average, in {issued:.0%} of the "
            "instructions that were issued",
        )


def _narrow(place: Place, line: Line, sass: Sequence[Instruction]) -> Iterator[Remark]:
    """Neighbouring lanes access neighbouring elements, a few bytes each: more a lane could do the same."""
    accesses = [i for i in sass if i.opcode in ("LDG", "STG") and is_executed(i)]
    widths = sorted({width_bytes(i) for i in accesses})
    side_by_side = (
        line.global_requests >= FEW_REQUESTS
        and line.sector_efficiency >= ALL_BUT_IDEAL
        and line.ideal_sectors * _SECTOR_BYTES >= ALL_BUT_IDEAL * line.global_bytes
        and line.atomics == 0
    )
    if widths and widths[-1] * 2 <= _WIDEST and side_by_side:
        told = " and ".join(f"{width} B" for width in widths)
        yield Remark(
            kind="narrow access",
            place=place,
            message=f"global memory: {told} a lane, side by side; {_WIDEST} B a lane would be "
            f"{_WIDEST // widths[-1]} times fewer accesses, where layout and alignment allow it",
        )
