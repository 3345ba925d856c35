"""What follows a body sees of dotcu: the launches, and what the body asks.

A `Recorder` hands a body numbers that remember how they came about. They end here: what is
compiled, checked and launched gets plain numbers, and the recorder is told what was launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from dotcu.kernel.arguments import Plan
    from dotcu.kernel.config import LaunchConfig
    from dotcu.kernel.units import Unit


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A launch that happened.

    Attributes:
        unit: Where the kernel is compiled.
        plan: How its arguments were packed.
        args: The arguments as the body gave them.
        grid: The grid as the body gave it; `config` has what it came to.
        shape: Block, dynamic shared memory and cluster as the body gave them.
        function: The driver's CUfunction on the device; 0 in the simulator.
        most_blocks: For a cooperative launch the blocks that can run at once; 0 where that is not known.
    """

    kernel: str
    unit: Unit
    plan: Plan
    args: Sequence[Any]
    grid: Any
    shape: tuple[Any, ...]
    config: LaunchConfig
    function: int
    most_blocks: int


class Recorder(Protocol):
    """Follows the body that is running.

    Attributes:
        runs: Whether launches happen; else they are only told of.
    """

    runs: bool

    def plain(self, value: Any) -> Any:
        """A value with plain numbers."""

    def pinned(self, value: Any) -> Any:
        """The same; what is followed is from then on for these numbers alone."""

    def aligned(self, tensor: torch.Tensor, bytes: int) -> bool:
        """Whether a tensor starts at an address divisible by `bytes`."""

    def launching(self) -> None:
        """Hear that a launch begins: from here on the body has an effect."""

    def launched(self, launch: Launched) -> None:
        """Hear of a launch."""

    def multiprocessors(self, count: int) -> int:
        """How many multiprocessors the device of the call has, for the body to reckon with."""

    def asked_device(self) -> None:
        """Hear that an answer depends on which GPU is asked."""
