"""The last launches on GPUs, so that a fault can be told from whom it may come.

A kernel runs after its launch has returned, so its fault is seen by whatever asks the driver
next. What is kept are references, put into text only when there is a fault to tell of.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from dotcu.kernel.config import LaunchConfig


class Launched(NamedTuple):
    """A launch that the driver has taken.

    Attributes:
        operator: Whose body made it, by qualified name; empty outside any operator.
        config: A str where it was not kept whole.
        device: The CUDA device, by number.
    """

    operator: str
    kernel: str
    config: LaunchConfig | str
    device: int

    def __str__(self) -> str:
        by = f" of {self.operator}" if self.operator else ""
        return f"{self.kernel}{by} on cuda:{self.device} with {self.config}"


_launches: deque[Launched] = deque(maxlen=8)

note = _launches.append
"""Keep a launch; the ninth pushes out the first. Safe from any thread."""


def launches() -> tuple[Launched, ...]:
    """What was launched last, by all threads, newest first."""
    return tuple(reversed(tuple(_launches)))
