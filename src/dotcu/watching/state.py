"""The state of the version under way, event by event, and of the last one that passed.

An event is a JSON object; `dotcu watch --json` prints them:

    saved       files, gone, at (s since the epoch)   files have other contents, are new or gone
    begun                                             a worker has taken this version up
    watched     folders                               they hold what was loaded, or may hold what is missing
    unloadable  message, again                        again: a fresh process may be able to load it
    refused     kind, message                         no save can mend it; kind: a class of dotcu.errors
    planned     device, overloads, trials             what is about to be tried
    trying      trial
    tried       trial, results
    checked     passed, not_tried, seconds            every trial has ended
    compiled    kernels                               what each takes: registers, shared memory, ...
    timed       timings                               of each operator's first case, on a GPU
    crashed     reason, evidence                      the process has ended, or was ended
    done                                              no more follows on this version
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from dotcu.checking.trial import Failed, Result
from dotcu.serialize import from_plain, plain

Event = dict[str, Any]
Phase = Literal["starting", "loading", "checking", "timing", "waiting"]


@dataclass(frozen=True, kw_only=True)
class KernelResources:
    """The resources that a kernel takes of a multiprocessor, compiled for `arch`."""

    kernel: str
    arch: str
    registers: int
    smem_bytes: int
    stack_bytes: int
    spill_bytes: int


@dataclass(frozen=True, kw_only=True)
class OperatorTiming:
    """The time of one operator in one case, with a cold L2.

    Attributes:
        measured: The raw samples, a `benchmark.results.Measured` as JSON: only a worker reads them, and the
            process that watches is to import no torch. None if there are none, and `note` says why.
        change: The change since the last version that passed, a `benchmark` `Change` as JSON.
        note: What a reader has to know.
    """

    op: str
    case: str
    median_us: float = 0.0
    measured: Any = None
    change: Any = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class WatchRequest:
    """A version of the target to try.

    Attributes:
        number: Of the version; every event of it has the same.
        device: As `check` takes it.
        good: The times of the last version that passed.
    """

    number: int
    target: str
    device: str | None
    seed: int
    good: tuple[OperatorTiming, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WatchState:
    """All that a page shows.

    Attributes:
        begun: When this version was saved, or the command started, in seconds since the epoch.
        saved: The event of that save; empty at the start.
        device: As an event said; empty until one did.
        trouble: Why it could not be loaded, or not be tried to the end; its first line says which.
        tried: How many of the trials have ended.
        trying: The trial under way.
        first: The first trial that ended, and the seconds until then from `begun`; empty until one has.
        first_passed: Whether that one passed.
        passed: Whether everything passed; None while that is open.
        good_kernels: What kernels took in the last version that passed, this one excepted.
        good_timings: The times of the last version that passed and was timed.
    """

    target: str
    begun: float
    phase: Phase = "starting"
    saved: Mapping[str, Any] | None = None
    device: str = ""
    trouble: str = ""
    trials: int = 0
    tried: int = 0
    trying: str = ""
    first: str = ""
    first_s: float = 0.0
    first_passed: bool = False
    failures: tuple[Result, ...] = ()
    passed: bool | None = None
    not_tried: tuple[str, ...] = ()
    seconds: float = 0.0
    kernels: tuple[KernelResources, ...] = ()
    timings: tuple[OperatorTiming, ...] = ()
    good_kernels: tuple[KernelResources, ...] = ()
    good_timings: tuple[OperatorTiming, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Return whether no more follows before the next save."""
        return self.phase == "waiting"

    def before(self, kernel: KernelResources) -> KernelResources | None:
        """Return what a kernel took in the last version that passed."""
        same = (
            each for each in self.good_kernels if (each.kernel, each.arch) == (kernel.kernel, kernel.arch)
        )
        return next(same, None)


def after(event: Event, state: WatchState, now: float) -> WatchState:
    """Return the state once an event has happened.

    Args:
        event: As a worker replied it, or the watcher made it.
        state: Before it.
        now: In seconds since the epoch.
    """
    update = _UPDATES.get(event["event"])
    return state if update is None else update(event, state, now)


def results_of(event: Event) -> tuple[Result, ...]:
    """Return the results of an event `tried`."""
    return from_plain(tuple[Result, ...], plain(event["results"]))


def _saved(event: Event, state: WatchState, now: float) -> WatchState:
    kernels, timings = state.good_kernels, state.good_timings
    if state.passed and state.is_settled:
        kernels, timings = state.kernels, state.timings or timings
    return WatchState(
        target=state.target, begun=event["at"], phase="loading", saved=event, device=state.device,
        good_kernels=kernels, good_timings=timings,
    )  # fmt: skip


def _begun(event: Event, state: WatchState, now: float) -> WatchState:
    return replace(state, phase="loading")


def _unloadable(event: Event, state: WatchState, now: float) -> WatchState:
    return replace(state, phase="waiting", passed=False, trouble=event["message"])


def _planned(event: Event, state: WatchState, now: float) -> WatchState:
    return replace(state, phase="checking", device=event["device"], trials=event["trials"])


def _trying(event: Event, state: WatchState, now: float) -> WatchState:
    return replace(state, trying=event["trial"])


def _tried(event: Event, state: WatchState, now: float) -> WatchState:
    failures = tuple(result for result in results_of(event) if isinstance(result.outcome, Failed))
    if not state.first:
        state = replace(state, first=event["trial"], first_s=now - state.begun, first_passed=not failures)
    return replace(state, tried=state.tried + 1, trying="", failures=state.failures + failures)


def _checked(event: Event, state: WatchState, now: float) -> WatchState:
    not_tried = tuple(event["not_tried"])
    return replace(
        state, phase="timing", passed=event["passed"], not_tried=not_tried, seconds=event["seconds"]
    )


def _compiled(event: Event, state: WatchState, now: float) -> WatchState:
    return replace(state, kernels=from_plain(tuple[KernelResources, ...], plain(event["kernels"])))


def _timed(event: Event, state: WatchState, now: float) -> WatchState:
    return replace(state, timings=from_plain(tuple[OperatorTiming, ...], plain(event["timings"])))


def _crashed(event: Event, state: WatchState, now: float) -> WatchState:
    during = f" during {state.trying}" if state.trying else ""
    evidence = (f"    {line}".rstrip() for line in event["evidence"].splitlines())
    trouble = "\n".join((f"{event['reason']}{during}", *evidence))
    return replace(state, phase="waiting", passed=False, trouble=trouble)


def _done(event: Event, state: WatchState, now: float) -> WatchState:
    return replace(state, phase="waiting")


_UPDATES: dict[str, Callable[[Event, WatchState, float], WatchState]] = {
    "saved": _saved,
    "begun": _begun,
    "unloadable": _unloadable,
    "planned": _planned,
    "trying": _trying,
    "tried": _tried,
    "checked": _checked,
    "compiled": _compiled,
    "timed": _timed,
    "crashed": _crashed,
    "done": _done,
}
