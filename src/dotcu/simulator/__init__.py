"""CUDA kernels on the CPU: PTX executed instruction by instruction, on NumPy.

Each name is fetched from its home when it is first used (PEP 562): a launch on a GPU imports no
machine that executes PTX.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dotcu.simulator.counting.counters import Counters, LineCounters
    from dotcu.simulator.machine.memory import Buffer, Memory
    from dotcu.simulator.program import Program, launch
    from dotcu.simulator.run import Finding, Run
    from dotcu.simulator.tensor_map import Map

__all__ = [
    "CHECKS",
    "ON_REQUEST",
    "Buffer",
    "Counters",
    "Finding",
    "LineCounters",
    "Map",
    "Memory",
    "Program",
    "Run",
    "launch",
]

CHECKS = frozenset({"bounds", "init", "race", "barrier"})
"""The checks of a run."""
ON_REQUEST = frozenset({"divergence"})
"""Checks that are off unless a run asks for them: the hardware tolerates what they find."""

_HOMES = {
    "Buffer": "machine.memory",
    "Counters": "counting.counters",
    "Finding": "run",
    "LineCounters": "counting.counters",
    "Map": "tensor_map",
    "Memory": "machine.memory",
    "Program": "program",
    "Run": "run",
    "launch": "program",
}


def __getattr__(name: str) -> Any:
    """Fetch a name from its home when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
