"""The device code around timed calls, compiled and loaded before anything is timed."""

from __future__ import annotations

import functools

import torch

from dotcu.kernel import Module, cdiv, load

FLUSHED = 4
"""The buffer that a flush reads, in sizes of L2: what L2 keeps of it is then all that L2 keeps."""

SMALLEST_FLUSH = 32 << 20
"""In bytes, for a GPU that does not tell the size of its L2."""

FASTEST_FLUSH_GBPS = 10_000.0
"""No memory is read faster than this."""

MOST_HOLD_US = 100_000.0
THREADS = 512


@functools.cache
def kernels() -> Module:
    """The module of `kernels.cu`."""
    return load("kernels.cu")


class Helpers:
    """Flush, hold and marks on one GPU, on torch's current stream of it.

    Compiles, loads and runs each kernel once, and waits for them.
    """

    def __init__(self, device: torch.device) -> None:
        properties = torch.cuda.get_device_properties(device)
        self.device = device
        self.l2_bytes = int(properties.L2_cache_size)
        flushed = max(FLUSHED * self.l2_bytes, SMALLEST_FLUSH)
        self._vectors = cdiv(flushed, 16)
        self._buffer = torch.zeros(4 * self._vectors, dtype=torch.int32, device=device)
        self.flush_us = flushed / FASTEST_FLUSH_GBPS / 1e3
        self._kept = torch.zeros(1, dtype=torch.int32, device=device)
        self._blocks = 4 * int(properties.multi_processor_count)
        self._kernels = kernels()
        for warm in (self.flush, self.begin, functools.partial(self.hold, 1.0), self.end):
            warm()
        torch.cuda.synchronize(device)

    def flush(self) -> None:
        """Leave nothing in L2 but clean lines that no call asks for."""
        self._kernels.dotcu_bench_flush_l2(
            self._buffer, self._vectors, self._kept, grid=self._blocks, block=THREADS
        )

    def hold(self, us: float) -> None:
        """Keep the stream busy for some microseconds; nothing is launched for none."""
        if us > 0:
            ns = int(1e3 * min(us, MOST_HOLD_US))
            self._kernels.dotcu_bench_hold(ns, grid=1, block=1, device=self.device)

    def begin(self) -> None:
        """Mark the place in a trace where a call begins."""
        self._kernels.dotcu_bench_begin(grid=1, block=1, device=self.device)

    def end(self) -> None:
        """Mark the place in a trace where a call ends."""
        self._kernels.dotcu_bench_end(grid=1, block=1, device=self.device)
