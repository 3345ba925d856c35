"""What every means of taking device time has in common, and how one fails."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import torch

from dotcu.benchmark.measured import Call, Means
from dotcu.benchmark.timers.helpers import Helpers
from dotcu.benchmark.timers.shots import Shot, ShotFailed
from dotcu.errors import EnvironmentFault

_wait = torch.cuda.synchronize  # as torch has it now: code under test could put another in its place


class MeansFailed(EnvironmentFault):
    """A means of taking device time does not work here."""


class LostRecords(MeansFailed):
    """Records of what the device did are missing."""


class NotCapturable(MeansFailed):
    """A call cannot be captured in a CUDA graph.

    Attributes:
        name: Whose call it is.
    """

    def __init__(self, name: str, error: Exception) -> None:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        super().__init__(
            f"{name} cannot be captured in a CUDA graph: {reason}\n"
            "Timing by graph replay needs that.\nTime it by events instead."
        )
        self.name = name


class Timer(ABC):
    """A means of taking device time.

    Attributes:
        name: Which.
        resolution_us: The step of its clock.
        why: For each better means, why it is not used here.
    """

    name: ClassVar[Means]
    resolution_us: float

    def __init__(self, helpers: Helpers, why: Mapping[Means, str] = MappingProxyType({})) -> None:
        self.helpers = helpers
        self.why = dict(why)

    @abstractmethod
    def time(self, shots: Sequence[Shot]) -> list[Call]:
        """Time calls, in their order, and wait for them; one Call for each shot.

        Raises:
            ShotFailed: One of them raised.
            MeansFailed: The means itself failed; another one may do.
        """

    def flush(self) -> None:
        """Queue a flush of L2: what the next call reads, it reads from memory."""
        self.helpers.flush()

    def wait(self) -> None:
        """Wait until the device is idle."""
        _wait(self.helpers.device)

    @property
    def flush_us(self) -> float:
        """How long a flush keeps the device busy, at least."""
        return self.helpers.flush_us

    @property
    def l2_bytes(self) -> int:
        """The size of the device's L2."""
        return self.helpers.l2_bytes

    def _take(self, shot: Shot, begin: Callable[[], object], end: Callable[[], object]) -> None:
        """Queue one shot, between what begins and what ends its window."""
        shot.prepare()
        self.helpers.hold(shot.hold_us)
        begin()
        try:
            result = shot.run()
        except Exception as error:
            raise ShotFailed(shot.name) from error
        end()
        if shot.probe is not None:
            shot.probe(result)
