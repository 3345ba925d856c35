"""CUDA kernels on the CPU: PTX executed instruction by instruction, on NumPy.

Each name is fetched from its home when it is first used (PEP 562): a launch on a GPU reads the headers
of the PTX, and imports no machine that executes it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dotcu.ptx.headers import EntryHeader, Outline, Param, entry_headers, outline
    from dotcu.simulator.counting.counters import Counters, Line
    from dotcu.simulator.finding import Finding
    from dotcu.simulator.launching import launch
    from dotcu.simulator.machine.memory import Buffer, Memory
    from dotcu.simulator.program import Entry, Loaded, Program
    from dotcu.simulator.run import Run
    from dotcu.simulator.tensor_map import Map

__all__ = [
    "CHECKS",
    "Buffer",
    "Counters",
    "Entry",
    "EntryHeader",
    "Finding",
    "Line",
    "Loaded",
    "Map",
    "Memory",
    "Outline",
    "Param",
    "Program",
    "Run",
    "entry_headers",
    "launch",
    "outline",
]

CHECKS = frozenset({"bounds", "init", "race", "barrier"})
"""What a run checks, and can leave out."""

_HOMES = {
    "Buffer": "machine.memory",
    "Counters": "counting.counters",
    "Entry": "program",
    "EntryHeader": "ptx.headers",
    "Finding": "finding",
    "Line": "counting.counters",
    "Loaded": "program",
    "Map": "tensor_map",
    "Memory": "machine.memory",
    "Outline": "ptx.headers",
    "Param": "ptx.headers",
    "Program": "program",
    "Run": "run",
    "entry_headers": "ptx.headers",
    "launch": "launching",
    "outline": "ptx.headers",
}


def __getattr__(name: str) -> Any:
    """Fetch a name from its home when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
