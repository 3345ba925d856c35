"""Measure contenders: interleaved, on new values each time, by the best means that works for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dotcu.benchmark.course import Course
from dotcu.benchmark.measured import L2, Measured
from dotcu.benchmark.protocol import Protocol
from dotcu.benchmark.timers import MeansFailed, Timer, after
from dotcu.benchmark.turns import Conditions, Run
from dotcu.errors import EnvironmentFault
from dotcu.operator import Sample

OUTGROWN = 3
"""Sizes of L2 that sets of inputs have to fill together, so that each of them is cold after the others."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What came of measuring some contenders.

    Attributes:
        measured: Of each contender, by name; without blocks for one that raised. After an interrupt, of
            those that were begun.
        errors: What a contender raised while it was called or timed; that no means is left to time it.
        why: For each means that failed for some contender, why.
    """

    measured: Mapping[str, Measured]
    errors: Mapping[str, Exception]
    why: Mapping[str, str]


class Interrupted(KeyboardInterrupt):
    """The user interrupted a measurement.

    Attributes:
        measurement: What there was of it.
    """

    def __init__(self, measurement: Measurement) -> None:
        super().__init__("measuring was interrupted")
        self.measurement = measurement


def measure(
    contenders: Mapping[str, Run],
    sets: Sequence[Sample],
    *,
    l2: L2,
    timer: Timer,
    protocol: Protocol,
    refresh: Callable[[Sample, int], None],
    probe: Callable[[str, Sample, Any], None],
    device: torch.device,
    mutates: bool = False,
) -> Measurement:
    """Measure contenders on torch's current stream.

    A contender that raises does not end the others. One that the means cannot time, and all of them where
    it fails, are measured by the next best means, from the start: samples of two means are never mixed.

    Args:
        contenders: Each is called with a set of inputs and returns its result.
        sets: Equal in form, in memory of their own.
        refresh: Puts new values into a set's memory; comes before every timed call.
        probe: Gets a contender's name, the inputs and the result of a timed call in each block, picked by
            chance, on the stream right behind the call.
        mutates: Whether calls change what they read, so that each needs inputs that no other one had.

    Raises:
        Interrupted: By the user; it has what was measured.
    """
    conditions = Conditions(
        sets=sets, l2=l2, protocol=protocol, refresh=refresh, probe=probe, device=device, mutates=mutates
    )
    found: dict[str, Measured] = {}
    errors: dict[str, Exception] = {}
    why: dict[str, str] = {}
    left = dict(contenders)
    try:
        while left:
            if reason := _unfit(timer, conditions):
                why[timer.name] = reason
                timer = after(timer, reason)
            course = Course(left, conditions, timer)
            refused = course.refused
            try:
                course.run()
            except MeansFailed as error:
                refused = {**refused, **dict.fromkeys(course.left, str(error).partition("\n")[0])}
                course.left.clear()
            except KeyboardInterrupt:
                course.stopped = "interrupt"
                kept = Measurement(measured=found | course.measured(), errors=errors | course.errors, why=why)
                raise Interrupted(kept) from None
            found |= course.measured()
            errors |= course.errors
            left = {name: left[name] for name in left if name in refused}
            if left:
                why[timer.name] = next(iter(refused.values()))
                timer = after(timer, why[timer.name])
    except EnvironmentFault as error:  # no means is left; what others measured is kept
        errors |= dict.fromkeys(left, error)
    return Measurement(
        measured={name: found[name] for name in contenders if name in found}, errors=errors, why=why
    )


def _unfit(timer: Timer, conditions: Conditions) -> str:
    """Why a means cannot give these figures, in words; empty where it can."""
    if timer.name != "graph":
        return ""
    if conditions.mutates:
        return "a graph holds several calls on one set of inputs, and these calls change theirs"
    held = sum(t.numel() * t.element_size() for sample in conditions.sets for t in sample.tensors)
    if conditions.l2 == "cold" and held < OUTGROWN * timer.l2_bytes:
        return "all sets of inputs fit into L2 together, and nothing flushes it inside of a graph"
    return ""
