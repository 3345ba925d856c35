"""Every check: its name, what fault it finds, and from which level on it runs.

docs/reference/checks.md describes each; tests/wrong has at least one operator for each that it must catch.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class Level(enum.IntEnum):
    """The amount of checks and cases."""

    QUICK = 0
    STANDARD = 1
    FULL = 2


FINDS: Mapping[Level, Mapping[str, str]] = {
    Level.QUICK: {
        "reference": "has a reference that fails, varies, or does not serve calls on CPU tensors",
        "call": "raises an error on a sample, or launches a kernel that does not compile",
        "numerics": "computes wrong values, or loses more precision than torch does",
        "written": "leaves part of its result unwritten",
        "bounds": "writes outside its result and its inputs",
        "inputs": "changes an undeclared input, keeps a tensor, or changes a setting",
        "mutation": "declares a mutation that does not happen, or does not count it",
        "result": "returns a subclass, memory of another tensor, or too little memory",
        "fake": "reports a wrong shape, stride, dtype or device to torch.compile",
        "determinism": "gives different bits at each call, or with gradients than without",
        "fresh-values": "returns a stale result of an earlier call",
        "sanitizer-bounds": "reads or writes outside its memory, or misaligned",
        "sanitizer-init": "reads uninitialized memory",
        "sanitizer-race": "has threads that race for memory",
        "sanitizer-barrier": "has barriers that not all threads reach, or never ends",
        "errors": "accepts wrong arguments, or fails on them without a clear error",
        "registration": "is registered with torch in a way that opcheck refuses",
        "gradients": "has a wrong gradient, or one that writes or keeps what it must not",
        "autocast": "changes or fails under torch.autocast",
    },
    Level.STANDARD: {
        "second-gradients": "has a wrong second gradient",
        "vmap": "has a wrong batching rule",
        "sharding": "declares a sharding that gives wrong values",
        "ranks": "gives wrong values on several ranks of a group",
        "compile": "breaks or changes under torch.compile",
        "stream": "runs on another stream than torch's current one",
        "graph": "cannot be captured in a CUDA graph, or not be replayed",
        "devices": "runs on another GPU than its tensors",
    },
    Level.FULL: {
        "large": "overflows an index beyond 2^31 elements",
        "memcheck": "has memory errors that compute-sanitizer sees",
        "racecheck": "has shared-memory races that compute-sanitizer sees",
        "initcheck": "reads unwritten memory, as compute-sanitizer sees",
        "synccheck": "misuses barriers, as compute-sanitizer sees",
    },
}
"""By the first level that a check belongs to and its name: the fault that it finds, as the end of "finds an
operator that ..."."""

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
"""The checks that are tools of compute-sanitizer."""

CHECKS: Mapping[str, Level] = {name: level for level, names in FINDS.items() for name in names}
"""The first level of each check, in the order of a report."""


def of_level(level: Level) -> tuple[str, ...]:
    """The names of the checks that a level holds."""
    return tuple(name for name, first in CHECKS.items() if first <= level)
