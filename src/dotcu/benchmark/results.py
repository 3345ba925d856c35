"""The values of a benchmark: its protocol, samples and rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dotcu.benchmark.limits.limit import Limit
from dotcu.benchmark.statistics import Ratio, Summary
from dotcu.benchmark.work import Work


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """The parameters of a measurement.

    A *sample* is the time of one call. A *block* is some samples of every contender, interleaved in random
    order, on one set of inputs; the next block takes the next set, elsewhere in memory. Measuring stops once
    there are `blocks` of them, `least_s` have gone by and every median is known to within `noise`; or
    after `most_blocks` or `most_s`, whichever is first; three blocks are taken in any case.

    `docs/explanation/measuring.md` has a table of all.
    """

    warmup_s: float = 0.1
    warmup_most_s: float = 2.0
    stable: float = 0.01  # warm-up ends where medians of two blocks, `warmup_s` apart, differ by less
    blocks: int = 10
    most_blocks: int = 40
    calls: int = 10  # of each contender in a block; fewer where `most_s` is too short for `blocks` of so many
    most_calls: int = 100
    block_s: float = 0.02  # a GPU that rests too often draws less power, and is faster, than it is in earnest
    noise: float = 0.005  # half the interval of a median over the median
    confidence: float = 0.99
    least_s: float = 0.1
    most_s: float = 10.0
    sets: int = 4  # of inputs, in memory of their own, as far as memory reaches
    seed: int = 0


L2 = Literal["cold", "warm"]
"""The state of the second-level cache that a call starts with: without its data, or with it."""

Means = Literal["cupti", "events"]
"""A timer of device time: CUPTI's records of kernels, or two events."""


@dataclass(frozen=True, kw_only=True)
class CallTime:
    """One timed call.

    Attributes:
        time_us: From the start of its first kernel or copy to the end of its last, on whatever stream.
        kernels: Kernels, copies and fills that the device ran for it; None where the means cannot tell.
        late, early: Of these, those that still ran when the caller's stream was done with the call, and those
            that began before it came to the call.
        elsewhere: Of these, those on another GPU than the caller's.
        stray: Those that came after it, outside of any call, and do not prepare one.
    """

    time_us: float
    kernels: int | None = None
    late: int = 0
    stray: int = 0
    early: int = 0
    elsewhere: int = 0


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """The state of a GPU at one moment, by NVML; `reasons` for low clocks are names of `device.REASONS`."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Block:
    """Samples of one contender that were taken together, between two looks at the clocks."""

    calls: tuple[CallTime, ...]
    before: Clocks = Clocks()
    after: Clocks = Clocks()

    @property
    def times_us(self) -> tuple[float, ...]:
        """The samples."""
        return tuple(call.time_us for call in self.calls)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The samples of one contender, in one case and state of L2.

    Attributes:
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


Status = Literal["measured", "failed", "wrong", "refused", "throttled", "skipped"]
"""The outcome: figures; it raised; its result is wrong; its figures are impossible; all samples were dropped;
it was not tried. All but the first have a reason and no figures."""


OWN = "dotcu"  # the contender that is the operator itself, or a bare kernel


@dataclass(frozen=True, kw_only=True)
class BenchKey:
    """The identity of a row, which can be compared with that of another run: `case` names the inputs."""

    op: str
    case: str
    contender: str
    l2: L2


@dataclass(frozen=True, kw_only=True)
class BenchRow:
    """One line.

    Attributes:
        elements, bytes: Of the case's largest tensor, and of all its tensors, results among them.
        limit: The least time that the GPU could take for it; `percent` is that over the median.
        ratio: This contender's time over the operator's own; None for that itself.
        marks: What a reader has to know, in words, the worst first.
        dropped: Samples that were dropped since the GPU was throttled.
    """

    key: BenchKey
    dtype: str = ""
    elements: int = 0
    bytes: int = 0
    status: Status = "measured"
    reason: str = ""
    time: Summary | None = None
    host: Summary | None = None
    work: Work | None = None
    limit: Limit | None = None
    percent: float | None = None
    ratio: Ratio | None = None
    marks: tuple[str, ...] = ()
    dropped: int = 0
    measured: Measured | None = None


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine of a run: its GPU with the highest clocks in MHz, and the versions of what takes part."""

    gpu: str = ""
    uuid: str = ""
    capability: str = ""
    l2_bytes: int = 0
    memory_bytes: int = 0
    host: str = ""
    versions: Mapping[str, str]
    clocks: Mapping[str, int]
