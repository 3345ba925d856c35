"""What the process is asked that makes the call, and what it answers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Order:
    """A call to make.

    Attributes:
        target: With the Python name of the operator: `ops.py:scale_add`.
        overload: Its name; empty for the default overload.
        shapes: As `--shapes` takes them; empty for the largest of the author's samples.
        dtype: Empty for the operator's first.
        device: As torch names it.
        how: One call for ncu to see, between the start and the stop of its profiling; or many, timed here.
        answer: The file that the answer goes to.
        trace: The file that a Chrome trace of timed calls goes to.
    """

    target: str
    shapes: str
    dtype: str
    device: str
    seed: int
    how: Literal["counters", "timings"]
    answer: str
    overload: str = ""
    trace: str = ""

    def to_json(self) -> str:
        """One line of text, from which `from_json` makes the same."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Order:
        """The order that `to_json` wrote."""
        return Order(**json.loads(text))


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long a kernel, copy or fill took, by CUPTI's records.

    Attributes:
        times: How often one call does it.
        median_us: Of each time.
    """

    name: str
    times: float
    median_us: float
    least_us: float
    most_us: float


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A call that was made.

    Attributes:
        operator: Its qualified name.
        case: What it was called on: `float32-4096x4096`.
        gpu: The GPU's name.
        kernels: Those of dotcu's that the call launched, each once.
        files: The real path of each file name in their line tables.
        timings: Empty where the call was not timed.
        native: Whether a library computes it: then nobody knows the names of its kernels beforehand.
    """

    operator: str
    case: str
    sample: str
    gpu: str
    kernels: tuple[str, ...]
    files: Mapping[str, str]
    timings: tuple[Timing, ...] = ()
    native: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which `from_json` makes the same."""
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Answer:
        """The answer that `to_json` gave."""
        timings = tuple(Timing(**timing) for timing in values["timings"])
        return Answer(**{**values, "kernels": tuple(values["kernels"]), "timings": timings})


def command(order: Order) -> list[str]:
    """The command that starts the process, which finds the modules that this one finds."""
    path = f"import sys; sys.path[:] = sys.argv.pop().split({os.pathsep!r})"
    begin = f"{path}; from dotcu.profiling.child import main; main(sys.argv.pop())"
    return [sys.executable, "-c", begin, order.to_json(), os.pathsep.join(sys.path)]
