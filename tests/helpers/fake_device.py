"""A device that needs no GPU: CPU tensors, and a timer with invented figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from dotcu.benchmark.device import BenchDevice
from dotcu.benchmark.limits.limit import Limit
from dotcu.benchmark.results import L2, Machine
from dotcu.benchmark.work import Work
from helpers.fake_timer import FakeTimer, Us


class FakeDevice(BenchDevice):
    """Has no limits unless it is given some; logs calls of `bandwidths`."""

    def __init__(
        self,
        us: Mapping[str, float | Us] | None = None,
        failures: Sequence[BaseException | None] = (),
        limit: Callable[[Work, L2], Limit | None] = lambda work, l2: None,
    ) -> None:
        super().__init__(torch.device("cpu"))
        self.timer: Any = FakeTimer(us, failures)
        self.machine = Machine(gpu="a GPU", uuid="GPU-1", versions={"driver": "1"}, clocks={})
        self.sheet = None
        self.log: list[str] = []
        self._limit = limit

    def bandwidths(self) -> None:
        self.log.append("bandwidths")

    def limit(self, work: Work, l2: L2) -> Limit | None:
        return self._limit(work, l2)
