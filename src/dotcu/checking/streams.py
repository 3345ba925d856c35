"""Streams that sleep, so that missing waits between streams show."""

from __future__ import annotations

from collections.abc import Sequence

import torch

POOL = 32
"""The number of streams that torch hands out, one after the other."""


def pool() -> list[torch.cuda.Stream]:
    """Every side stream of the current device that a body could get from torch."""
    streams = {stream.cuda_stream: stream for stream in (torch.cuda.Stream() for _ in range(POOL))}
    return list(streams.values())


def sleep(streams: Sequence[torch.cuda.Stream], clocks: int) -> None:
    """Delay everything that is queued on some streams from now on, by a number of GPU clocks."""
    for stream in streams:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(clocks)
