"""What was measured: values, from a call's time to all blocks of a contender."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

L2 = Literal["cold", "warm"]
"""What a call finds in the second-level cache: nothing of its own, or what was just written."""

Means = Literal["cupti", "graph", "events"]
"""How device time was taken: from CUPTI's records of kernels, by replay of a graph, between two events."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One timed call.

    Attributes:
        time_us: Device time, from the start of its first kernel or copy to the end of its last, on whatever
            stream.
        kernels: Kernels, copies and fills that the device ran for it; None where the means cannot tell.
        late: Of these, those that still ran when the caller's stream was done with the call.
        early: Of these, those that began before the caller's stream came to the call.
        elsewhere: Of these, those on another GPU than the caller's.
        stray: Those that came after it, outside of any call, and are nobody's preparation.
    """

    time_us: float
    kernels: int | None = None
    late: int = 0
    stray: int = 0
    early: int = 0
    elsewhere: int = 0


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """The state of a GPU at one moment, as NVML tells it; None for what it does not tell.

    Attributes:
        reasons: Why its clocks are lower than they could be: names out of `clocks.REASONS`.
    """

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Block:
    """Samples of one contender that were taken together, between two looks at the clocks."""

    calls: tuple[Call, ...]
    before: Clocks = Clocks()
    after: Clocks = Clocks()

    @property
    def times_us(self) -> tuple[float, ...]:
        """The samples."""
        return tuple(call.time_us for call in self.calls)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """All that was measured of one contender, in one case and state of L2.

    Attributes:
        blocks: In the order in which they were taken; those of all contenders were taken by turns.
        host_us: Host time of a call, apart from what the device does: samples.
        resolution_us: The step of the clock that the samples come from.
        stopped: Why measuring ended: "noise", "time" or "blocks" (see `Protocol`), or "interrupt".
    """

    contender: str
    l2: L2
    by: Means
    blocks: tuple[Block, ...]
    host_us: tuple[float, ...] = ()
    resolution_us: float = 0.0
    stopped: str = ""
