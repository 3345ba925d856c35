"""What a worker process is asked, and how long it may take; worker.py has what it answers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

START_S = 300.0
"""Within which a worker has imported the target and planned its trials: files may compile when imported."""

LIMIT_S = 120.0
"""Of one trial, unless its kind is in the table."""

LIMITS_S = {"compile": 300.0, "large": 180.0}
"""By kind: torch's compiler takes its time, and so do gigabytes."""


def limit_s(kind: str) -> float:
    """Within which a trial of a kind must end."""
    return LIMITS_S.get(kind, LIMIT_S)


@dataclass(frozen=True, kw_only=True)
class Request:
    """Trials of one overload.

    Attributes:
        target: Where the overload's operator is found: `ops.py:scale_add`.
        overload: Its qualified name.
        level: A `Level`, as its number.
        trials: Names; they are run in the order of the plan.
        threads: How many threads torch may use on the CPU.
        bare: Make one bare call instead, for compute-sanitizer to watch.
    """

    target: str
    overload: str
    device: str
    level: int
    seed: int
    trials: tuple[str, ...]
    threads: int
    bare: bool = False

    def to_json(self) -> str:
        """One line of text, from which `from_json` makes the same."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Request:
        """The request that `to_json` wrote."""
        values: dict[str, Any] = json.loads(text)
        return Request(**{**values, "trials": tuple(values["trials"])})
