"""Measurement of contenders: interleaved, with new values for each call, by the best timer that works."""

from __future__ import annotations

import gc
import math
import random
import statistics
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter, perf_counter_ns
from typing import Any

import torch

from dotcu.benchmark import device
from dotcu.benchmark.results import L2, Block, CallTime, Clocks, Measured, Protocol
from dotcu.benchmark.statistics import LEAST_BLOCKS, summary
from dotcu.benchmark.targets import Call
from dotcu.benchmark.timers import TimedCall, Timer, TimerFailed, after
from dotcu.errors import EnvironmentFault
from dotcu.operator import Sample

_CallTimes = dict[str, tuple[CallTime, ...]]
_Medians = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The conditions that all contenders of a measurement share.

    Attributes:
        sets: Sets of inputs of the same form, in memory of their own.
        refresh: Queues the values of a turn into a set's memory before each timed call. Turns are counted on
            from call to call; their values may recur, as those of `InputValues` do.
        probe: Takes a contender's name, the inputs and the result of one timed call in each block, chosen at
            random, on the stream right after the call.
        mutates: True if calls change what they read, so that each needs inputs of its own.
        host: False to leave out the host's time of a call.
    """

    sets: Sequence[Sample]
    l2: L2
    protocol: Protocol
    refresh: Callable[[Sample, int], None]
    probe: Callable[[str, Sample, Any], None]
    device: torch.device
    mutates: bool = False
    host: bool = True


def measure(
    contenders: Mapping[str, Call], conditions: Conditions, timer: Timer
) -> tuple[dict[str, Measured], dict[str, Exception], bool]:
    """Measure contenders on torch's current stream.

    A contender that raises does not end the others. If the timer fails, all are measured by the next best,
    from the start: samples of two timers are never mixed.

    Args:
        contenders, conditions: The call of each contender, by name, and the conditions that they share.
        timer: The timer to begin with.

    Returns:
        The samples of each contender that was begun; without blocks for one that raised. The exception of
        each that raised, or that no timer works for. True if the user interrupted.
    """
    errors: dict[str, Exception] = {}
    remaining = dict(contenders)
    while True:
        run = _MeasurementRun(remaining, conditions, timer)
        try:
            run.run()
        except TimerFailed as failed:
            errors, remaining = errors | run.errors, run.remaining
            try:
                timer = after(timer, str(failed).partition("\n")[0])
            except EnvironmentFault as error:  # no other timer works
                return {}, errors | dict.fromkeys(remaining, error), False
        except KeyboardInterrupt:
            run.stopped = "interrupt"
            return run.measured(), errors | run.errors, True
        else:
            return run.measured(), errors | run.errors, False


# ------------------------------------------------------------------ one measurement

HOST_BATCHES = 20
HOST_CALLS = 20
HOST_DEVICE_S = 0.2  # device time that limits the calls whose host time is taken
AHEAD = 500  # launches that the driver accepts ahead of the device


class _MeasurementRun:
    """The measurement of contenders by one timer: of the `remaining`, beside the `errors` of others."""

    def __init__(self, contenders: Mapping[str, Call], conditions: Conditions, timer: Timer) -> None:
        self.remaining = dict(contenders)
        self.errors: dict[str, Exception] = {}
        self.stopped = ""
        self._conditions, self._timer = conditions, timer
        self._interleaving = _Interleaving(list(contenders), conditions, timer)
        self._blocks: dict[str, list[Block]] = defaultdict(list)
        self._warm: _CallTimes = {}
        self._host_us: dict[str, tuple[float, ...]] = {}
        self._noisy = ""

    def run(self) -> None:
        """Make the first calls, warm up, take host times, and measure blocks."""
        self._call_first()
        self._warm_up()
        if self._conditions.host:
            self._take_host_times()
        self._take_blocks()

    def measured(self) -> dict[str, Measured]:
        """Return the samples so far of each contender."""
        return {
            name: Measured(
                contender=name, l2=self._conditions.l2, by=self._timer.name,
                blocks=tuple(self._blocks[name]) if name in self.remaining else (),
                host_us=self._host_us.get(name, ()), resolution_us=self._timer.resolution_us,
                stopped=self.stopped,
            )
            for name in (*self.remaining, *self.errors)
        }  # fmt: skip

    def _call_first(self) -> None:
        """Call each contender on each set, so that nothing is compiled, loaded or recorded later."""
        quickest_s: dict[str, float] = {}
        for name, call in list(self.remaining.items()):
            try:
                for sample in [sample for sample in self._conditions.sets for _ in range(2)]:
                    began = perf_counter()
                    self._interleaving.call_untimed(name, call, sample)
                    quickest_s[name] = min(quickest_s.get(name, math.inf), perf_counter() - began)
            except Exception as error:
                self._drop(name, error)
        turn_s, protocol = sum(quickest_s[name] for name in self.remaining), self._conditions.protocol
        self._interleaving.calls = min(protocol.calls, _calls_of_block(turn_s, protocol))

    def _warm_up(self) -> None:
        protocol, step_us = self._conditions.protocol, self._timer.resolution_us
        began = perf_counter()
        earlier: deque[tuple[float, dict[str, float]]] = deque()
        while self.remaining:
            block_began = perf_counter()
            self._warm = self._timed(0)
            turn_s = (perf_counter() - block_began) / self._interleaving.calls
            now = {name: statistics.median(c.time_us for c in calls) for name, calls in self._warm.items()}
            self._interleaving.device_us |= now
            self._interleaving.calls = _calls_of_block(turn_s, protocol)
            self._interleaving.keep_busy(self.remaining)
            elapsed_s = perf_counter() - began
            before: dict[str, float] = {}
            while earlier and earlier[0][0] <= elapsed_s - protocol.warmup_s:
                before = earlier.popleft()[1]
            if _is_warm(before, now, elapsed_s, step_us, protocol):
                return
            earlier.append((elapsed_s, now))

    def _take_host_times(self) -> None:
        """Take the host time of calls without waiting for the device: as many as its queue holds."""
        sample = self._conditions.sets[0]
        for name, call in list(self.remaining.items()):
            kernels = max(call.kernels or 1 for call in self._warm[name])
            device_s = max(1e-6 * statistics.median(call.time_us for call in self._warm[name]), 1e-6)
            calls = max(1, min(HOST_CALLS, AHEAD // kernels, int(HOST_DEVICE_S / HOST_BATCHES / device_s)))
            calls = 1 if self._conditions.mutates else calls
            times_us = []
            try:
                for _ in range(HOST_BATCHES):
                    self._interleaving.refresh_untimed(sample)
                    self._timer.wait()
                    began_ns = perf_counter_ns()
                    for _ in range(calls):
                        call(sample)
                    times_us.append((perf_counter_ns() - began_ns) / (1e3 * calls))
                self._timer.wait()
            except Exception as error:
                self._drop(name, error)
            else:
                self._host_us[name] = tuple(times_us)

    def _take_blocks(self) -> None:
        protocol, step_us = self._conditions.protocol, self._timer.resolution_us
        began, before = perf_counter(), device.read_clocks(self._conditions.device)
        taken = 0
        while self.remaining and not self.stopped:
            looks: list[Clocks] = []
            calls = self._timed(taken, looks)
            self._interleaving.keep_busy(self.remaining)
            after = looks[-1] if looks else before
            for name, own in calls.items():
                self._blocks[name].append(Block(calls=own, before=before, after=after))
            before, taken = after, taken + 1
            noise = self._noise(step_us) if taken >= protocol.blocks else math.inf
            self.stopped = _why_stop(taken, perf_counter() - began, noise, protocol)

    def _noise(self, step_us: float) -> float:
        """Return half the interval of the noisiest median over it, or of one that is not known well enough.

        It takes milliseconds for each, in which the device rests: the one that was too noisy is asked first.
        """
        protocol, most = self._conditions.protocol, 0.0
        for name in sorted(self.remaining, key=lambda name: name != self._noisy):
            noise = _median_noise(self._blocks[name], step_us, protocol)
            if not noise <= protocol.noise:
                self._noisy = name
                return noise
            most = max(most, noise)
        return most

    def _timed(self, block: int, looks: list[Clocks] | None = None) -> _CallTimes:
        """Time a block at once; again without a contender that fails in it, or if records were lost.

        `looks` takes the clocks as soon as the block is queued; without it, no results are probed.
        """
        lost = False
        while self.remaining:
            timed = self._interleaving.timed_calls(self.remaining, block, probing=looks is not None)
            if looks is not None:
                timed[-1] = replace(timed[-1], probe=partial(self._look, looks, timed[-1].probe))
            collecting = gc.isenabled()
            gc.disable()  # a collection takes longer than a stream is blocked
            try:
                calls = self._timer.time(timed)
            except Exception as error:
                if isinstance(error, TimerFailed) and error.again and not lost:
                    lost = True
                else:
                    self._failed(error)
                continue
            finally:
                if collecting:
                    gc.enable()
            by_name: dict[str, list[CallTime]] = defaultdict(list)
            for timed_call, call in zip(timed, calls, strict=True):
                by_name[timed_call.name].append(call)
            return {name: tuple(own) for name, own in by_name.items()}
        return {}

    def _failed(self, error: Exception) -> None:
        """Drop the contender of a failure; raise what is the timer's own."""
        if isinstance(error, TimerFailed):
            raise error
        failed = self._interleaving.failed  # else a fault of the device: whose is unknown
        for name in [failed] if failed else list(self.remaining):
            self._drop(name, error)

    def _look(self, looks: list[Clocks], probe: Callable[[Any], None] | None, result: Any) -> None:
        if probe is not None:
            probe(result)
        looks.append(device.read_clocks(self._conditions.device))

    def _drop(self, name: str, error: Exception) -> None:
        self.errors[name] = error
        self.remaining.pop(name, None)


# ------------------------------------------------------------------ interleaving

KEPT_RESULTS = 2  # of each contender stay alive: the next call cannot get their memory
MARGIN_US = 100.0  # extra time that the stream is blocked: the host may be interrupted
MAX_HOLD_US = 10_000.0

BETWEEN_US, MAX_BETWEEN = 5000.0, 50
"""The time from a block to the next one's first call, or somewhat more; and the most calls of each contender
in it: where more fit, they draw little power in any case."""


class _Interleaving:
    """Makes the timed calls of each block: all contenders, in random order, on one set of inputs.

    `calls` is how many each contender has in a block, `device_us` the device time of each one's calls, and
    `failed` the contender whose call raised in the last block.
    """

    def __init__(self, names: Sequence[str], conditions: Conditions, timer: Timer) -> None:
        self.calls = conditions.protocol.calls
        self.failed = ""
        self.device_us = dict.fromkeys(names, 0.0)
        self._conditions, self._timer = conditions, timer
        self._order = random.Random(conditions.protocol.seed)
        self._random = random.SystemRandom()  # no code can foresee which results it probes
        self._turn = 0
        self._alive: dict[str, deque[Any]] = {name: deque(maxlen=KEPT_RESULTS) for name in names}
        self._free_s = dict.fromkeys(names, math.inf)
        recent: Callable[[], deque[float]] = partial(deque, maxlen=self.calls)
        self._took_s: dict[str, deque[float]] = defaultdict(recent)
        self._whole_s: dict[str, deque[float]] = defaultdict(recent)
        self._lead_s: deque[float] = recent()
        self._begun: tuple[str, float] | None = None
        self._prepared = self._ahead_us = 0.0

    def call_untimed(self, name: str, call: Call, sample: Sample) -> None:
        """Make an untimed call, and record its host time."""
        self.refresh_untimed(sample)
        began = perf_counter()
        call(sample)
        self._free_s[name] = min(self._free_s[name], perf_counter() - began)
        self._timer.wait()

    def refresh_untimed(self, sample: Sample) -> None:
        """Give inputs new values for an untimed call, if calls change them."""
        if self._conditions.mutates:
            self._turn += 1
            self._conditions.refresh(sample, self._turn)

    def timed_calls(self, contenders: Mapping[str, Call], block: int, *, probing: bool) -> list[TimedCall]:
        """Return the timed calls of a block; probing takes one random result of each contender."""
        names, sets = list(contenders), self._conditions.sets
        probed = {name: self._random.randrange(self.calls) if probing else -1 for name in names}
        timed = []
        self._ahead_us, self._begun, self.failed = 0.0, None, ""
        for turn in range(self.calls):
            sample = sets[block % len(sets)]
            self._order.shuffle(names)
            for name in names:
                self._turn += 1
                is_probed = turn == probed[name]
                timed_call = TimedCall(
                    name=name, run=partial(self._call, name, contenders[name], sample),
                    prepare=partial(self._prepare, name, sample, self._turn),
                    probe=partial(self._conditions.probe, name, sample) if is_probed else None,
                    hold_us=self._hold_us(name),
                )  # fmt: skip
                timed.append(timed_call)
        return timed

    def keep_busy(self, contenders: Mapping[str, Call]) -> None:
        """Queue untimed calls, interleaved, for as long as it takes to prepare the next block.

        A GPU that rests meanwhile has power to spare; that cannot be avoided if calls change their inputs.
        """
        if self._conditions.mutates:
            return
        device_us = sum(self.device_us[name] for name in contenders)
        host_us = 1e6 * sum(self._free_s[name] for name in contenders)
        turn_us = max(device_us, host_us) if device_us else 0.0
        for _ in range(min(round(BETWEEN_US / turn_us), MAX_BETWEEN) if turn_us else 0):
            for name, call in contenders.items():
                with suppress(Exception):  # in the next block it raises again
                    self._alive[name].append(call(self._conditions.sets[0]))

    def _call(self, name: str, call: Call, sample: Sample) -> Any:
        began = perf_counter()
        self._lead_s.append(began - self._prepared)
        self.failed = name
        result = call(sample)
        self.failed = ""
        self._took_s[name].append(perf_counter() - began)
        self._alive[name].append(result)
        return result

    def _prepare(self, name: str, sample: Sample, turn: int) -> None:
        now = perf_counter()
        if self._begun is not None:
            before, began = self._begun
            self._whole_s[before].append(now - began)
        self._begun = name, now
        self._conditions.refresh(sample, turn)
        if self._conditions.l2 == "cold":
            self._timer.helpers.flush()
        self._prepared = perf_counter()

    def _hold_us(self, name: str) -> float:
        """Return how long to hold the stream; not if the host is ahead: a GPU at rest has power to spare."""
        needed_us = self._host_us(name)
        flush_us = self._timer.helpers.flush_us if self._conditions.l2 == "cold" else 0.0
        hold_us = max(0.0, needed_us - self._ahead_us - flush_us)
        queued_us = self._ahead_us + flush_us + hold_us + self.device_us[name]
        # a little more than the host time of a timed call, from its preparation to its end mark
        took_s = self._whole_s[name]
        whole_us = 1.5e6 * statistics.median(took_s) if took_s else math.inf
        self._ahead_us = max(0.0, queued_us - max(needed_us, whole_us))
        return hold_us

    def _host_us(self, name: str) -> float:
        """Return a little more than the host time of the hold, the mark and the call while they are traced.

        A call that waits for the device waits for the hold, too, so its untimed host time bounds it.
        """
        free_us = 1e6 * self._free_s[name]
        took_us = 1e6 * max(self._took_s[name], default=2 * self._free_s[name])
        lead_us = 1e6 * max(self._lead_s, default=0.0)
        call_us = min(1.3 * took_us + MARGIN_US, 4 * (free_us + MARGIN_US))
        return min(call_us + 1.3 * lead_us, MAX_HOLD_US)


# ------------------------------------------------------------------ stopping

STEPS = 2.5  # of the clock, by which equal medians may differ; half a step is for rounding


def _is_warm(before: _Medians, now: _Medians, elapsed_s: float, step_us: float, protocol: Protocol) -> bool:
    """Return True if warm-up is over, by the median of each contender now and `warmup_s` before that."""
    if elapsed_s >= protocol.warmup_most_s:
        return True
    if elapsed_s < protocol.warmup_s or before.keys() != now.keys():
        return False
    return all(
        abs(now[name] - before[name]) <= max(protocol.stable * before[name], STEPS * step_us) for name in now
    )


def _calls_of_block(turn_s: float, protocol: Protocol) -> int:
    """Return the calls of each contender in a block, if a call of all takes so long.

    Fewer than `calls` if `most_s` is short: many short blocks are better than few long ones.
    """
    if turn_s <= 0:
        return protocol.most_calls
    wanted = max(protocol.calls, min(math.ceil(protocol.block_s / turn_s), protocol.most_calls))
    return max(1, min(wanted, int(protocol.most_s / protocol.blocks / turn_s)))


def _why_stop(blocks: int, elapsed_s: float, noise: float, protocol: Protocol) -> str:
    """Return why a measurement ends now: "noise", "time" or "blocks"; empty if it goes on."""
    if blocks < LEAST_BLOCKS:
        return ""
    enough = blocks >= protocol.blocks and elapsed_s >= protocol.least_s
    if enough and noise <= protocol.noise:
        return "noise"
    if elapsed_s >= protocol.most_s:
        return "time"
    return "blocks" if blocks >= protocol.most_blocks else ""


def _median_noise(blocks: Sequence[Block], step_us: float, protocol: Protocol) -> float:
    samples = [block.times_us for block in blocks]
    figures = summary(samples, confidence=protocol.confidence, resolution_us=step_us)
    return figures.noise if figures.median_us > 0 else 0.0  # no noise of calls without device time
