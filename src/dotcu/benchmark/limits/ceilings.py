"""What this GPU reaches at best: bandwidth by mix of reads and writes, arithmetic by dtype.

Each figure is the best of torch's own operations and dotcu's kernels, timed as rows are. Bandwidth is
measured at once; a rate of arithmetic when a row first needs it.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from dotcu.benchmark.limits import arithmetic
from dotcu.benchmark.limits.mix import Point, Points
from dotcu.benchmark.limits.rates import NOMINAL, value_of
from dotcu.benchmark.limits.streams import MIXES, Time, best_gbps, make_buffers
from dotcu.errors import EnvironmentFault

MOST_BYTES = 4 << 30
"""Of one array: large enough that neither caches nor the start of a kernel count."""

SHARE_OF_FREE = 0.25
"""Of the memory that is free, so much is taken for all three arrays at most."""

TIMES_L2 = 4
"""An array is so many times the size of L2 at least; else what it shows is not the memory."""

SHARES_OF_L2 = (0.125, 0.25, 0.5)
"""Of L2, so much is taken for all arrays of a mix; which is best hangs on how its halves are joined."""


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """What one GPU reaches under one driver.

    Attributes:
        read_gbps: Reading alone, in 10^9 bytes a second.
        two_to_one_gbps: Two reads to one write.
        copy_gbps: One read to one write.
        write_gbps: Writing alone.
        l2_read_gbps: The same, of what lies in L2.
        matrix_tflops: Of products of matrices, as far as they were needed: float64, tf32, float16, bfloat16,
            float8, int8.
        plain_tflops: Of ordinary instructions, likewise: float32, float64.
        measured_at: When, in ISO 8601.
    """

    read_gbps: float
    two_to_one_gbps: float
    copy_gbps: float
    write_gbps: float
    l2_read_gbps: float
    l2_copy_gbps: float
    l2_write_gbps: float
    matrix_tflops: Mapping[str, float] = field(default_factory=dict)
    plain_tflops: Mapping[str, float] = field(default_factory=dict)
    gpu: str = ""
    uuid: str = ""
    driver: str = ""
    measured_at: str = ""

    @property
    def memory(self) -> Points:
        """The bandwidth of memory, by the share of what is written."""
        return (
            Point(0.0, self.read_gbps),
            Point(1 / 3, self.two_to_one_gbps),
            Point(0.5, self.copy_gbps),
            Point(1.0, self.write_gbps),
        )

    @property
    def l2(self) -> Points:
        """The bandwidth of L2, by the share of what is written."""
        return Point(0.0, self.l2_read_gbps), Point(0.5, self.l2_copy_gbps), Point(1.0, self.l2_write_gbps)


def measure(
    device: torch.device, *, time_cold: Time, time_warm: Time, uuid: str = "", driver: str = ""
) -> Ceilings:
    """Measure the bandwidths of a GPU. Takes some seconds, and a quarter of its free memory at most.

    Args:
        time_cold: Gives the device time of a call that finds nothing in L2.
        time_warm: And of one that is repeated, so that it finds there what the call before left.

    Raises:
        EnvironmentFault: Too little of its memory is free; says how much.

    Note:
        Synchronizes, and gives the memory back to the driver.
    """
    properties = torch.cuda.get_device_properties(device)
    free, _ = torch.cuda.mem_get_info(device)
    with torch.cuda.device(device):
        memory = memory_gbps(array_bytes(free, properties.L2_cache_size, str(device)), device, time_cold)
        torch.cuda.empty_cache()
        l2 = l2_gbps(properties.L2_cache_size, device, time_warm)
        torch.cuda.empty_cache()
    return Ceilings(
        read_gbps=memory["read"],
        two_to_one_gbps=memory["two_to_one"],
        copy_gbps=memory["copy"],
        write_gbps=memory["write"],
        l2_read_gbps=l2["read"],
        l2_copy_gbps=l2["copy"],
        l2_write_gbps=l2["write"],
        gpu=properties.name,
        uuid=uuid,
        driver=driver,
        measured_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )


def array_bytes(free: int, l2_bytes: int, device: str = "The GPU") -> int:
    """How large each array may be, with so much memory free.

    Raises:
        EnvironmentFault: That is not enough to see past L2.
    """
    found = min(MOST_BYTES, int(free * SHARE_OF_FREE) // 3)
    if found >= TIMES_L2 * l2_bytes:
        return found
    needed = 3 * TIMES_L2 * l2_bytes / SHARE_OF_FREE
    raise EnvironmentFault(
        f"{device} has {free / 2**30:.2f} GiB of memory free, of which a quarter may be taken.\n"
        f"To measure its bandwidth, {needed / 2**30:.2f} GiB have to be free.\nSee who has it: nvidia-smi"
    )


def memory_gbps(nbytes: int, device: torch.device, time: Time) -> dict[str, float]:
    """The bandwidths of memory, by mix."""
    on = make_buffers(nbytes, device, keep=False)
    return {name: best_gbps(mix, on, time) for name, mix in MIXES.items()}


def l2_gbps(l2_bytes: int, device: torch.device, time: Time) -> dict[str, float]:
    """The bandwidths of L2, by mix."""
    found = {}
    for name in ("read", "copy", "write"):
        mix = MIXES[name]
        sizes = [int(share * l2_bytes) // mix.arrays for share in SHARES_OF_L2]
        found[name] = max(best_gbps(mix, make_buffers(size, device, keep=True), time) for size in sizes)
    return found


def with_rates(ceilings: Ceilings, dtype: str, device: torch.device, time: Time) -> Ceilings:
    """The same with the rates that bound the arithmetic in a dtype; those that are known are not taken again.

    A rate that this GPU does not have stays out.
    """
    matrix, plain = dict(ceilings.matrix_tflops), dict(ceilings.plain_tflops)
    for rate in NOMINAL.get(dtype, ()):
        if value_of(ceilings, rate) is None:
            measured = arithmetic.measure(rate, device, time)
            if measured is not None:
                (matrix if rate.kind == "matrix" else plain)[rate.name] = measured
    if (matrix, plain) == (ceilings.matrix_tflops, ceilings.plain_tflops):
        return ceilings
    return replace(ceilings, matrix_tflops=matrix, plain_tflops=plain)
