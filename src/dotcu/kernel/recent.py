"""The last launches on GPUs, so that a fault can be told from whom it may come.

A kernel runs after its launch has returned, so its fault is seen by whatever asks the driver
next. What is kept are references, put into text only when there is a fault to tell of.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any, NamedTuple

from dotcu.kernel.config import LaunchConfig


class Launched(NamedTuple):
    """A launch that the driver has taken.

    Attributes:
        operator: Whose body made it, by qualified name; empty outside any operator.
        config: A str where it was not kept whole.
        device: The CUDA device, by number.
    """

    operator: str
    kernel: str
    config: LaunchConfig | str
    device: int

    def __str__(self) -> str:
        by = f" of {self.operator}" if self.operator else ""
        return f"{self.kernel}{by} on cuda:{self.device} with {self.config}"


class Shown(NamedTuple):
    """A stage's launches, for messages: `config` has the grid of the first."""

    kernel: str
    config: LaunchConfig
    device: int


_launches: deque[Launched] = deque(maxlen=8)
_native: Any = None


def note_by(native: Any) -> None:
    """Let native code keep the launches from now on: those that it makes and those of Python."""
    global _native
    if _native is not None:
        return
    for launched in _launches:
        native.note(launched)
    _native = native


def note(launched: Launched) -> None:
    """Keep a launch; the ninth pushes out the first. Safe from any thread."""
    (_launches.append if _native is None else _native.note)(launched)


def launches() -> tuple[Launched, ...]:
    """What was launched last, by all threads, newest first."""
    if _native is None:
        return tuple(reversed(tuple(_launches)))
    return tuple(_read(*row) for row in _native.launches())


def _read(noted: Launched | Shown, operator: str | None, grid: tuple[int, int, int]) -> Launched:
    if isinstance(noted, Launched):
        return noted
    return Launched(operator or "", noted.kernel, replace(noted.config, grid=grid), noted.device)
