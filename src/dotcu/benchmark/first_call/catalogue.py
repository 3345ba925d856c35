"""Every phase of a first call: what takes the time, and what avoids it.

Those of `START` come before the call, in this order; those of `CALL` are in it. A step that tells of itself
(`dotcu.stopwatch.Step`) is in `CALL`, and may come earlier: in a file that compiles when it is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Stage = Literal["start", "call"]
"""Before the call, or in it."""


@dataclass(frozen=True, kw_only=True)
class About:
    """What there is to know of a phase.

    Attributes:
        label: What a table calls it.
        why: What takes the time.
        avoid: What saves it; empty where nothing does.
    """

    label: str
    why: str
    avoid: str = ""


_WARM = "op.warm() does it earlier"
_FILLED = "a filled cache saves it: keep or ship DOTCU_CACHE_DIR"
_STAY = "a process that stays pays for it once"

COMMON: Mapping[Stage, str] = {"start": _STAY, "call": _WARM}
"""What saves nearly all of a stage: a table says it once."""

START: Mapping[str, About] = {
    "interpreter": About(label="Python", why="a process and its interpreter start", avoid=_STAY),
    "torch": About(
        label="import torch",
        why="its libraries are linked; the first time after a while they are read from disk",
        avoid=_STAY,
    ),
    "dotcu": About(label="import dotcu", why="its modules, the simulator's among them", avoid=_STAY),
    "measuring": About(
        label="this measurement",
        why="modules that only --first-call needs: your programs do not pay for it",
    ),
    "target": About(
        label="import target", why="operators are registered, .cu files are read; none is compiled by that"
    ),
    "cuda": About(
        label="CUDA start",
        why="the driver starts and finds its GPUs",
        avoid="nvidia-smi -pm 1 keeps them awake",
    ),
    "context": About(
        label="CUDA context", why="the GPU gets memory and page tables for this process", avoid=_STAY
    ),
    "allocator": About(
        label="first allocation", why="torch asks the driver for a block, to cut later tensors from"
    ),
    "inputs": About(
        label="inputs",
        why="all samples are made, to take the first; torch loads kernels of its own for that",
    ),
}

CALL: Mapping[str, About] = {
    "call": About(
        label="the rest of it",
        why="dispatcher, checks of arguments, and the body, with torch's operators in it",
        avoid=_WARM,
    ),
    "imports": About(label="imports", why="modules that wait until they are needed", avoid=_WARM),
    "replay": About(
        label="ready for plans", why="later calls get their way past torch's dispatcher", avoid=_WARM
    ),
    "bindings": About(label="driver bindings", why="cuda.bindings is imported", avoid=_WARM),
    "build": About(
        label="plan of the build",
        why="a compiler is chosen, headers are read, the key for the cache is computed",
        avoid=_WARM,
    ),
    "cache": About(label="look in the cache", why="what is there is read and checked", avoid=_WARM),
    "nvrtc": About(label="load NVRTC", why="the compiler's libraries are mapped and linked", avoid=_FILLED),
    "compile": About(label="compile", why="NVRTC makes a cubin and PTX of the source", avoid=_FILLED),
    "store": About(label="fill the cache", why="an entry is written whole and synced to disk", avoid=_FILLED),
    "ptx": About(label="read the PTX", why="for the kernel's parameters and limits", avoid=_WARM),
    "library": About(
        label="load library",
        why="the driver takes the cubin; by lazy loading the GPU has nothing of it yet",
        avoid=_WARM,
    ),
    "kernel": About(
        label="get kernel", why="the kernel is loaded onto the GPU, its attributes are set", avoid=_WARM
    ),
    "jit": About(
        label="PTX JIT",
        why="the driver compiles PTX and loads it: NVRTC has no code for this GPU",
        avoid="a newer one saves it: dotcu doctor",
    ),
    "launch": About(
        label="launch", why="the driver's first launch of it, without waiting for its end", avoid=_WARM
    ),
    "decode": About(label="decode the PTX", why="instructions become operations of NumPy", avoid=_WARM),
    "simulate": About(label="simulate", why="the kernel runs on the CPU, with all checks"),
    "wait": About(label="wait for the GPU", why="the call has returned, its result was not there yet"),
}

COUNTED = frozenset({"compile", "library", "kernel", "jit", "launch", "decode", "simulate"})
"""Of these a table says how often they came, where that was more than once."""

IN_SIMULATOR: Mapping[str, About] = {
    "cuda": About(label="CUDA start", why="torch looks for a GPU, and finds none"),
    "inputs": About(label="inputs", why="all samples are made, to take the first"),
    "compile": About(label="compile", why="NVRTC makes PTX of the source", avoid=_FILLED),
}
"""What is different without a GPU."""


def about(phase: str, *, simulated: bool) -> About:
    """What there is to know of a phase."""
    return IN_SIMULATOR[phase] if simulated and phase in IN_SIMULATOR else {**START, **CALL}[phase]
