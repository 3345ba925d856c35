"""First calls that were not made: reports for what prints them."""

from __future__ import annotations

from typing import Any

from dotcu.benchmark.first_call import FirstCall, run_of

COMPILED = {"call": 3.0, "imports": 900.0, "compile": 80.0, "store": 5.0, "launch": 0.04}
CACHED = {"call": 3.0, "imports": 900.0, "cache": 0.5, "launch": 0.04}


def run(cache: str, call: dict[str, float], **start: float) -> dict[str, Any]:
    """A process, with what its phases took; the stopwatch beside it went on for half a millisecond."""
    spent = {"interpreter": 10.0, "torch": 2000.0, **start}
    phases: Any = {
        stage: {name: (ms, 2 if name == "compile" else 1) for name, ms in some.items()}
        for stage, some in (("start", spent), ("call", call))
    }
    whole_ms = sum([*spent.values(), *call.values()]) + 0.5
    imported = ("torch._dynamo",)
    later = (1.5, 0.02, 0.011, 0.012, 0.013)
    return {"cache": cache, **run_of(phases, whole_ms, imported), "imported": imported, "later_ms": later}


def report(**values: Any) -> FirstCall:
    """A report of two processes."""
    given = {
        "operator": "mylib::scale_add",
        "sample": "Sample(float32[1])",
        "device": "NVIDIA H200 (cuda:0)",
        "versions": {"torch": "2.11.0"},
        "runs": (run("empty", COMPILED), run("filled", CACHED)),
    }
    return FirstCall(**{**given, **values})


def stage(run: Any, name: str) -> dict[str, float]:
    """The milliseconds of each phase of a stage."""
    return {phase["name"]: phase["ms"] for phase in run["phases"] if phase["stage"] == name}
