"""Where a launch may happen: the one piece of state that bodies, traces and launches share.

A launch looks at `current()`. Outside any operator it runs (`Place.OUTSIDE`), if no trace would
lose it; so it does in a body (`Place.BODY`). Inside a body that dotcu runs only for the shapes it
allocates, it is skipped (`Place.SKIP`). Inside a backward it is refused (`Place.REFUSE`): a second
derivative would not see it. The state belongs to the thread and task that set it.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dotcu.kernel.config import LaunchConfig
    from dotcu.kernel.recording import Recorder
    from dotcu.kernel.units import Unit

from dotcu.kernel.locks import ForkSafeLock


class Place(enum.Enum):
    """What becomes of a launch."""

    OUTSIDE = "outside any operator: it runs, and is refused where a trace would lose it"
    BODY = "in the body of an operator that computes: it runs"
    SKIP = "in the body of an operator that is asked for shapes: it is skipped"
    REFUSE = "in a backward or another place that must not launch: it is refused"


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The operator whose code is running, and what becomes of a launch in it.

    Attributes:
        recorder: What follows the code, where something does.
        gpu: The GPU of the call's tensors, by number; None outside a body and on the CPU.
    """

    place: Place
    operator: str = ""
    reason: str = ""
    recorder: Recorder | None = None
    gpu: int | None = None


OUTSIDE = Scope(place=Place.OUTSIDE)
scope: ContextVar[Scope] = ContextVar("dotcu_scope", default=OUTSIDE)
"""Set and reset directly where `entering` would cost too much."""

current = scope.get
"""Return the scope that this thread is in."""


@functools.cache
def in_body(operator: str, gpu: int | None) -> Scope:
    """The scope of a body that computes, on the GPU of a number; None or less than 0 for the CPU."""
    return Scope(place=Place.BODY, operator=operator, gpu=gpu if gpu is not None and gpu >= 0 else None)


@contextmanager
def entering(
    place: Place,
    *,
    operator: str = "",
    reason: str = "",
    recorder: Recorder | None = None,
    gpu: int | None = None,
) -> Iterator[None]:
    """Set what becomes of launches until the block ends."""
    token = scope.set(Scope(place=place, operator=operator, reason=reason, recorder=recorder, gpu=gpu))
    try:
        with seeing_every_call() if place is Place.SKIP else nullcontext():
            yield
    finally:
        scope.reset(token)


class Held:
    """How many blocks, on any thread, must see every call: those that skip launches or watch them.

    A replayed call looks at neither scope nor watchers, so while there is such a block, none is replayed.
    """

    def __init__(self) -> None:
        self._count = 0
        self._followers: list[Callable[[int], object]] = []
        self._lock = ForkSafeLock()

    def follow(self, count: Callable[[int], object]) -> None:
        """Tell of each change, by how much, and of the number so far."""
        with self._lock:
            count(self._count)
            self._followers.append(count)

    def change(self, by: int) -> None:
        """Count a block that begins, or one that ends."""
        with self._lock:
            self._count += by
            for count in self._followers:
                count(by)


held = Held()


@contextmanager
def seeing_every_call() -> Iterator[None]:
    """Let no call be replayed from a plan, on any thread, until the block ends."""
    held.change(1)
    try:
        yield
    finally:
        held.change(-1)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One launch that happened, for whoever watches.

    Attributes:
        kernel: The kernel with its template arguments.
        where: `cuda:0`, or `simulator`.
        digest: The build digest of the code that ran.
        compile_s: Seconds that compiling it took, by this process or the one that filled the cache.
        cached: Whether the code came from the cache.
        files: Real path, or name to show, of each file name in its line table.
    """

    kernel: str
    where: str
    digest: str
    compile_s: float
    cached: bool
    files: Mapping[str, str]


_watchers: ContextVar[tuple[list[Launch], ...]] = ContextVar("dotcu_watchers", default=())


@contextmanager
def watching() -> Iterator[list[Launch]]:
    """Collect this thread's launches until the block ends."""
    launches: list[Launch] = []
    token = _watchers.set((*_watchers.get(), launches))
    try:
        with seeing_every_call():
            yield launches
    finally:
        _watchers.reset(token)


def watched() -> tuple[list[Launch], ...]:
    """Where to report a launch; empty while nobody watches."""
    return _watchers.get()


@dataclass(frozen=True, kw_only=True)
class Intended:
    """A launch that is about to happen, or that is skipped where only shapes are asked for.

    Attributes:
        kernel: The kernel with its template arguments.
        unit: What it is compiled with.
        config: None where its attributes or its occupancy are asked for, which takes its code as well.
    """

    kernel: str
    unit: Unit
    config: LaunchConfig | None


Listener = Callable[[Intended], object]
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("dotcu_listeners", default=())


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell of what this thread launches before it does, of skipped launches, and of kernels asked after."""
    token = _listeners.set((*_listeners.get(), listener))
    try:
        with seeing_every_call():
            yield
    finally:
        _listeners.reset(token)


def listeners() -> tuple[Listener, ...]:
    """Whom to tell of a launch; empty while nobody listens."""
    return _listeners.get()
