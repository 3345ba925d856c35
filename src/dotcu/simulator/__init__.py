"""CUDA kernels on the CPU: PTX executed instruction by instruction, on NumPy. Needs no torch.

`Program.parse` reads PTX, and `launch` runs one of its kernels on a `Memory` of `Buffer`s: one-dimensional,
contiguous arrays of uint8 that are shared with the caller. Parameters are the bytes of each, in order; a
pointer is the address that `Memory.map` returned, as 8 bytes. A `Run` says what is checked, and takes
`Finding`s, `Counters` and what kernels print. `Map` encodes a tensor map as 128 bytes of a parameter.

Errors: `SimulationError` for PTX that is not well-formed and parameters that do not fit the kernel;
`UnsupportedInstruction` for a kernel that holds an instruction which is not executed, before anything runs;
`FindingError` at the first fault, unless the run collects them.

Folders are storeys, of which each imports from those before it alone: program, machine, semantics,
sanitizers. `docs/howto/simulator.md` says how to add an instruction or a fault.

Each name is fetched from its home when it is first used (PEP 562): a launch on a GPU imports no
machine that executes PTX.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dotcu.simulator.device import Program, launch
    from dotcu.simulator.machine.memory import Buffer, Memory
    from dotcu.simulator.run import CHECKS, ON_REQUEST, Counters, Finding, LineCounters, Run
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

_HOMES = {
    "CHECKS": "run",
    "ON_REQUEST": "run",
    "Buffer": "machine.memory",
    "Counters": "run",
    "Finding": "run",
    "LineCounters": "run",
    "Map": "tensor_map",
    "Memory": "machine.memory",
    "Program": "device",
    "Run": "run",
    "launch": "device",
}


def __getattr__(name: str) -> Any:
    """Fetch a name from its home when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
