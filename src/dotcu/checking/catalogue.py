"""Every check: its name, what fault it finds, and from which level on it runs.

docs/reference/checks.md describes each; tests/wrong has at least one operator for each that it must catch.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(enum.IntEnum):
    """The amount of checks and cases."""

    QUICK = 0
    STANDARD = 1
    FULL = 2


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check.

    Attributes:
        finds: The fault that it finds, as the end of "finds an operator that ...".
        level: The first level that it belongs to.
    """

    name: str
    finds: str
    level: Level = Level.QUICK


_TABLE = (
    Check(name="reference", finds="has a reference that fails or gives other values each time"),
    Check(name="numerics", finds="computes wrong values, or loses more precision than torch does"),
    Check(name="written", finds="leaves part of its result unwritten"),
    Check(name="bounds", finds="writes outside its result and its inputs"),
    Check(name="inputs", finds="changes an input that it does not declare as mutated"),
    Check(name="mutation", finds="declares a mutation that does not happen, or does not count it"),
    Check(name="result", finds="returns a subclass, memory of another tensor, or too little memory"),
    Check(name="fake", finds="reports a wrong shape, stride, dtype or device to torch.compile"),
    Check(name="determinism", finds="gives different bits at each call without declaring it"),
    Check(name="fresh-values", finds="returns a stale result of an earlier call"),
    Check(name="sanitizer-bounds", finds="reads or writes outside its memory, or misaligned"),
    Check(name="sanitizer-init", finds="reads uninitialized memory"),
    Check(name="sanitizer-race", finds="has threads that race for memory"),
    Check(name="sanitizer-barrier", finds="has barriers that not all threads reach, or never ends"),
    Check(name="errors", finds="accepts wrong arguments, or fails on them without a clear error"),
    Check(name="registration", finds="is registered with torch in a way that opcheck refuses"),
    Check(name="gradients", finds="has a wrong gradient"),
    Check(name="second-gradients", finds="has a wrong second gradient", level=Level.STANDARD),
    Check(name="vmap", finds="has a wrong batching rule", level=Level.STANDARD),
    Check(name="sharding", finds="declares a sharding that gives wrong values", level=Level.STANDARD),
    Check(name="ranks", finds="gives wrong values on several ranks of a group", level=Level.STANDARD),
    Check(name="compile", finds="breaks or changes under torch.compile", level=Level.STANDARD),
    Check(
        name="call-cache", finds="gives other values from the call cache than its body", level=Level.STANDARD
    ),
    Check(name="stream", finds="runs on another stream than torch's current one", level=Level.STANDARD),
    Check(name="graph", finds="cannot be captured in a CUDA graph, or not be replayed", level=Level.STANDARD),
    Check(name="devices", finds="runs on another GPU than its tensors", level=Level.STANDARD),
    Check(name="large", finds="overflows an index beyond 2^31 elements", level=Level.FULL),
    Check(name="memcheck", finds="has memory errors that compute-sanitizer sees", level=Level.FULL),
    Check(name="racecheck", finds="has shared-memory races that compute-sanitizer sees", level=Level.FULL),
    Check(name="initcheck", finds="reads unwritten memory, as compute-sanitizer sees", level=Level.FULL),
    Check(name="synccheck", finds="misuses barriers, as compute-sanitizer sees", level=Level.FULL),
)

CHECKS = {check.name: check for check in _TABLE}
"""The checks by name, in the order of a report."""


def of_level(level: Level) -> tuple[str, ...]:
    """The names of the checks that a level holds."""
    return tuple(check.name for check in _TABLE if check.level <= level)
