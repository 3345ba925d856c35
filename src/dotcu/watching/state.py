"""What is known of the version under way, and of the last one that held."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Literal

from dotcu.checking.outcome import FellShort, Result
from dotcu.watching import events
from dotcu.watching.events import Event, Needs, Saved, Timing

Phase = Literal["starting", "loading", "checking", "timing", "waiting"]


@dataclass(frozen=True, kw_only=True)
class First:
    """The first trial that has come to its end.

    Attributes:
        seconds: From the save, or from the start.
    """

    trial: str
    held: bool
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Good:
    """A version that held.

    Attributes:
        kernels: What each of its kernels takes, by name and architecture.
    """

    kernels: tuple[Needs, ...] = ()
    timings: tuple[Timing, ...] = ()


@dataclass(frozen=True, kw_only=True)
class State:
    """All that a page shows.

    Attributes:
        begun: When this version was saved, or the command started, in seconds since the epoch.
        device: As an event said; empty until one did.
        trouble: Why it could not be loaded, or not be tried to the end; its first line says which.
        tried: How many of the trials have come to their end.
        trying: The trial under way.
        held: Whether everything held; None while that is open.
        good: The last version that held, this one excepted while it is under way.
    """

    target: str
    begun: float
    phase: Phase = "starting"
    saved: Saved | None = None
    device: str = ""
    trouble: str = ""
    overloads: tuple[str, ...] = ()
    trials: int = 0
    tried: int = 0
    trying: str = ""
    first: First | None = None
    failures: tuple[Result, ...] = ()
    held: bool | None = None
    untried: tuple[str, ...] = ()
    seconds: float = 0.0
    kernels: tuple[Needs, ...] = ()
    timings: tuple[Timing, ...] = ()
    good: Good | None = None

    @property
    def is_settled(self) -> bool:
        """Whether no more follows before the next save."""
        return self.phase == "waiting"

    def before(self, kernel: Needs) -> Needs | None:
        """What a kernel took in the last version that held."""
        known = self.good.kernels if self.good else ()
        same = (each for each in known if (each.kernel, each.arch) == (kernel.kernel, kernel.arch))
        return next(same, None)


@singledispatch
def after(event: Event, state: State, now: float) -> State:
    """What is known once an event has happened.

    Args:
        now: In seconds since the epoch.
    """
    return state


@after.register
def _saved(event: Saved, state: State, now: float) -> State:
    good = state.good
    if state.held and state.is_settled:
        good = Good(kernels=state.kernels, timings=state.timings or (good.timings if good else ()))
    return State(
        target=state.target, begun=event.at, phase="loading", saved=event, device=state.device, good=good
    )


@after.register
def _begun(event: events.Begun, state: State, now: float) -> State:
    return replace(state, phase="loading")


@after.register
def _unloadable(event: events.Unloadable, state: State, now: float) -> State:
    return replace(state, phase="waiting", held=False, trouble=event.message)


@after.register
def _planned(event: events.Planned, state: State, now: float) -> State:
    return replace(
        state, phase="checking", device=event.device, overloads=event.overloads, trials=event.trials
    )


@after.register
def _trying(event: events.Trying, state: State, now: float) -> State:
    return replace(state, trying=event.trial)


@after.register
def _tried(event: events.Tried, state: State, now: float) -> State:
    short = tuple(result for result in event.results if isinstance(result.outcome, FellShort))
    first = state.first or First(trial=event.trial, held=not short, seconds=now - state.begun)
    return replace(state, tried=state.tried + 1, trying="", failures=state.failures + short, first=first)


@after.register
def _checked(event: events.Checked, state: State, now: float) -> State:
    return replace(state, phase="timing", held=event.held, untried=event.untried, seconds=event.seconds)


@after.register
def _needed(event: events.Needed, state: State, now: float) -> State:
    return replace(state, kernels=event.kernels)


@after.register
def _timed(event: events.Timed, state: State, now: float) -> State:
    return replace(state, timings=event.timings)


@after.register
def _broken(event: events.Broken, state: State, now: float) -> State:
    during = f" during {state.trying}" if state.trying else ""
    lines = (f"{event.reason}{during}", *(f"    {line}".rstrip() for line in event.evidence.splitlines()))
    return replace(state, phase="waiting", held=False, trouble="\n".join(lines))


@after.register
def _done(event: events.Done, state: State, now: float) -> State:
    return replace(state, phase="waiting")
