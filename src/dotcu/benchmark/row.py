"""A line of a report: one contender, in one case and state of L2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dotcu.benchmark.limits.limit import Limit
from dotcu.benchmark.measured import L2, Measured
from dotcu.benchmark.statistics import Ratio, Summary
from dotcu.benchmark.work import Work

Status = Literal["measured", "failed", "wrong", "refused", "throttled", "skipped"]
"""What came of it: figures; it raised; its result is not right; its figures cannot be; all samples were
dropped; it was not tried. All but the first have a reason and no figures."""


OWN = "dotcu"
"""The contender that is the operator itself, or a bare kernel."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """What a row is of; rows of two runs with equal keys can be compared.

    Attributes:
        op: The qualified name, or that of a bare kernel.
        case: The name of the inputs: `float32-4096x4096`.
        contender: "dotcu" for the operator itself; else the baseline's name.
    """

    op: str
    case: str
    contender: str
    l2: L2


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line.

    Attributes:
        dtype: Its name, `float32`; empty for a bare kernel.
        elements: Of the case's largest tensor; 0 where it has none. Plots have it as their axis.
        bytes: Of all its tensors, results among them.
        host: Host time of a call, us.
        limit: The least time that the GPU could take for it; None where nothing is known of that.
        percent: That limit over the median, in percent.
        ratio: This contender's time over the operator's own; None for that itself.
        marks: What a reader has to know, in words, the worst first.
        dropped: Samples that were dropped since the GPU was throttled.
        measured: The raw samples.
    """

    key: Key
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
    """What a run was made on and with; everything that a figure hangs on but the code under test.

    Attributes:
        gpu: Its name; empty without one.
        l2_bytes: The size of its second-level cache.
        versions: Of what takes part: dotcu, torch, CUDA of torch, driver, NVRTC, Python.
        clocks: The highest, in MHz, by name.
    """

    gpu: str = ""
    uuid: str = ""
    capability: str = ""
    l2_bytes: int = 0
    memory_bytes: int = 0
    host: str = ""
    versions: Mapping[str, str]
    clocks: Mapping[str, int]
