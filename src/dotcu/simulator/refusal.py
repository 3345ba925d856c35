"""Errors for what the simulator does not execute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dotcu.errors import SimulationError, UnsupportedInstruction
from dotcu.ptx.link import Placed, Refusal, Unresolved


def unsupported(
    refused: Sequence[Placed], place: Callable[[Placed], tuple[str, int]]
) -> UnsupportedInstruction:
    """The error for instructions without a row."""
    shown: dict[str, str] = {}
    for placed in refused:
        file, line = place(placed)
        at = f"{file}:{line}" if line else "no source line"
        shown.setdefault(placed.instruction.opcode, f"{at}: {placed.instruction.text}")
    return refusal_error("\n    ".join(shown.values()))


def refusal_error(what: str) -> UnsupportedInstruction:
    """The error that names what is refused."""
    return UnsupportedInstruction(
        f"The simulator does not execute:\n    {what}\n"
        "Instructions are refused by name rather than guessed at; nothing of the kernel has run.\n"
        "Run it on a GPU, or keep this part out of the simulated build: #ifndef DOTCU_SIMULATED"
    )


def refused_call(refusal: Refusal, place: Callable[[Placed], tuple[str, int]]) -> UnsupportedInstruction:
    """The error for a call that could not be put in its place."""
    file, line = place(Placed(refusal.instruction))
    return refusal_error(f"{file}:{line}: {refusal.what} ({refusal.instruction.text})")


# Functions that no source defines: the heap of the device (CUDA Programming Guide, "Dynamic Global
# Memory Allocation").
_DEVICE_RUNTIME = frozenset({"malloc", "free"})


def unresolved_call(unresolved: Unresolved, place: Callable[[Placed], tuple[str, int]]) -> SimulationError:
    """The error for a call of a function that is declared, but defined nowhere."""
    file, line = place(Placed(unresolved.instruction))
    at = f"{file}:{line}: " if line else ""
    if unresolved.name in _DEVICE_RUNTIME:
        return refusal_error(f"{at}{unresolved.name}(), which the GPU's own runtime brings")
    return SimulationError(
        f"{at}the extern function {unresolved.name!r} is unresolved: it is declared and called, but has no "
        "body in this source, and nothing is linked to it.\n"
        "Define it in the same source, include the file that does, or keep the call out of the simulated "
        "build: #ifndef DOTCU_SIMULATED"
    )
