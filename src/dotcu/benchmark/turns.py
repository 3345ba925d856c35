"""The shots of a block: every contender by turns, in a shuffled order, on one set of inputs."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import torch

from dotcu.benchmark.measured import L2
from dotcu.benchmark.protocol import Protocol
from dotcu.benchmark.timers import Shot, Timer
from dotcu.operator import Sample

Run = Callable[[Sample], Any]

KEPT = 2
"""Results of each contender that stay alive: the allocator cannot hand their memory to its next call."""

MARGIN_US = 100.0
"""Held longer than the host is expected to take: it may be interrupted."""

BETWEEN_US = 5000.0
"""From the end of a block to the first call of the next one, or somewhat more."""

MOST_BETWEEN = 50
"""Calls of each contender between blocks: more are so light that the GPU draws little power in any case."""

MOST_HOLD_US = 10_000.0


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What all contenders of a measurement share.

    Attributes:
        sets: Sets of inputs, in memory of their own.
        refresh: Queues new values into a set's memory; its turn is a number that never comes twice.
        probe: Gets a contender's name, the inputs and the result of some calls, picked by chance.
        mutates: Whether calls change what they read: then none is made on what another one left.
    """

    sets: Sequence[Sample]
    l2: L2
    protocol: Protocol
    refresh: Callable[[Sample, int], None]
    probe: Callable[[str, Sample, Any], None]
    device: torch.device
    mutates: bool = False


class Turns:
    """Makes the shots of one block after the other, and keeps what they need to know of earlier ones."""

    def __init__(self, names: Sequence[str], conditions: Conditions, timer: Timer) -> None:
        protocol = conditions.protocol
        self._conditions = conditions
        self._timer = timer
        self._order = random.Random(protocol.seed)
        self._turn = 0
        self._kept: dict[str, deque[Any]] = {name: deque(maxlen=KEPT) for name in names}
        self._free_s = dict.fromkeys(names, float("inf"))
        self._took_s: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=protocol.calls))
        self._chance = random.SystemRandom()
        self._device_us = dict.fromkeys(names, 0.0)
        self._shot_s: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=protocol.calls))
        self._lead_s: deque[float] = deque(maxlen=protocol.calls)
        self._begun: tuple[str, float] | None = None
        self._prepared = 0.0
        self._ahead_us = 0.0
        self.calls = protocol.calls

    def call_freely(self, name: str, call: Run, sample: Sample) -> None:
        """Make a call that nobody times, and note the least that one takes the host."""
        self.renew(sample)
        began = perf_counter()
        call(sample)
        self._free_s[name] = min(self._free_s[name], perf_counter() - began)
        self._timer.wait()

    def renew(self, sample: Sample) -> None:
        """Where a call that nobody times would not find its inputs as it needs them, give them new values."""
        if self._conditions.mutates:
            self._turn += 1
            self._conditions.refresh(sample, self._turn)

    def took(self, name: str, device_us: float) -> None:
        """Note what a call takes the device."""
        self._device_us[name] = device_us

    def shots(self, contenders: Mapping[str, Run], block: int, *, probing: bool) -> list[Shot]:
        """The shots of a block.

        Args:
            block: Its number; its inputs are the next set.
            probing: Whether a result of each contender is looked at, of a call that is picked by chance.
        """
        names, sets = list(contenders), self._conditions.sets
        # Nothing flushes L2 inside of a graph: there, cold inputs are those that others have pushed out.
        rotating = self._timer.name == "graph" and self._conditions.l2 == "cold"
        looked = {name: self._looked_at() if probing else -1 for name in names}
        shots = []
        self._ahead_us, self._begun = 0.0, None
        for turn in range(self.calls):
            sample = sets[(block + turn * rotating) % len(sets)]
            self._order.shuffle(names)
            for name in names:
                shots.append(self._shot(name, contenders[name], sample, probed=turn == looked[name]))
        return shots

    def keep_busy(self, contenders: Mapping[str, Run]) -> None:
        """Queue calls that nobody times, by turns, for as long as it takes to get the next block ready.

        A GPU that rests meanwhile would begin it with power to spare. So it does where calls change their
        inputs, which would run out of what they are meant for.
        """
        if self._conditions.mutates:
            return
        turn_us = sum(self._device_us[name] for name in contenders)
        for _ in range(min(round(BETWEEN_US / turn_us), MOST_BETWEEN) if turn_us else 0):
            for name, call in contenders.items():
                with suppress(Exception):  # in the next block it raises again, and is told of
                    self._kept[name].append(call(self._conditions.sets[0]))

    def _looked_at(self) -> int:
        """The turn of a block whose result is looked at, which no code could foresee."""
        return self._chance.randrange(self.calls)

    def _shot(self, name: str, call: Run, sample: Sample, *, probed: bool) -> Shot:
        self._turn += 1
        return Shot(
            name=name,
            run=partial(self._call, name, call, sample),
            prepare=partial(self._prepare, name, sample, self._turn),
            probe=partial(self._conditions.probe, name, sample) if probed else None,
            hold_us=self._hold_us(name),
        )

    def _call(self, name: str, call: Run, sample: Sample) -> Any:
        began = perf_counter()
        self._lead_s.append(began - self._prepared)
        result = call(sample)
        self._took_s[name].append(perf_counter() - began)
        self._kept[name].append(result)
        return result

    def _prepare(self, name: str, sample: Sample, turn: int) -> None:
        now = perf_counter()
        if self._begun is not None:
            before, began = self._begun
            self._shot_s[before].append(now - began)
        self._begun = name, now
        self._conditions.refresh(sample, turn)
        if self._conditions.l2 == "cold":
            self._timer.flush()
        self._prepared = perf_counter()

    def _hold_us(self, name: str) -> float:
        """For how long to hold the stream: not at all where the host is ahead of the device anyway.

        A GPU that waits in between draws less power, and is faster than it is in earnest.
        """
        needed_us = self._host_us(name)
        flush_us = self._timer.flush_us if self._conditions.l2 == "cold" else 0.0
        hold_us = max(0.0, needed_us - self._ahead_us - flush_us)
        queued_us = self._ahead_us + flush_us + hold_us + self._device_us[name]
        self._ahead_us = max(0.0, queued_us - max(needed_us, self._whole_us(name)))
        return hold_us

    def _whole_us(self, name: str) -> float:
        """A little more than a shot takes the host, from what prepares it to the mark behind it."""
        took_s = self._shot_s[name]
        return 1.5e6 * statistics.median(took_s) if took_s else float("inf")

    def _host_us(self, name: str) -> float:
        """A little more than the hold, the mark and the call take the host while they are traced.

        A call that waits for the device waits for the hold too: bounded by what it took by itself, the
        hold does not grow by its own length from block to block.
        """
        free_us = 1e6 * self._free_s[name]
        took_us = 1e6 * max(self._took_s[name], default=2 * self._free_s[name])
        lead_us = 1e6 * max(self._lead_s, default=0.0)
        call_us = min(1.3 * took_us + MARGIN_US, 4 * (free_us + MARGIN_US))
        return min(call_us + 1.3 * lead_us, MOST_HOLD_US)
