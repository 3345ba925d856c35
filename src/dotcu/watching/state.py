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
    compiled    kernels                               of each: kernel, arch, registers, smem_bytes, ...
    timed       timings                               of each operator's first case, on a GPU with a cold L2
    crashed     reason, evidence                      the process has ended, or was ended
    done                                              no more follows on this version

A row of `timings` has op, case, median_us and note. Its `measured`, the raw samples, is a `Measured` of
`benchmark.results` as JSON, or None; its `change` since the last version that passed is a `Change`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from dotcu.checking.trial import Failed, Result
from dotcu.serialize import from_plain, plain

Event = dict[str, Any]
Row = Mapping[str, Any]
"""What an event says of a kernel or an operator."""
Phase = Literal["starting", "loading", "checking", "timing", "waiting"]

_PHASES: dict[str, Phase] = {
    "begun": "loading",
    "planned": "checking",
    "checked": "timing",
    "unloadable": "waiting",
    "crashed": "waiting",
    "done": "waiting",
}
_COPIED = {"device", "trials", "passed", "not_tried", "seconds", "kernels", "timings"}
"""The keys of events that the state has as well."""


@dataclass(frozen=True, kw_only=True)
class WatchState:
    """All that a page shows.

    Attributes:
        begun: When this version was saved, or the command started, in seconds since the epoch.
        saved: The event of that save; None at the start.
        device: As an event said; empty until one did.
        trouble: Why it could not be loaded, or not be tried to the end; its first line says which.
        tried: The number of trials that have ended.
        trying: The trial under way.
        first: The first trial that ended, and the seconds until then from `begun`; empty until one has.
        first_passed: True if that one passed.
        passed: True if everything passed; None while that is open.
        good_kernels: The kernels of the last version that passed, this one excepted.
        good_timings: The times of the last version that passed and was timed.
    """

    target: str
    begun: float
    phase: Phase = "starting"
    saved: Event | None = None
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
    not_tried: Sequence[str] = ()
    seconds: float = 0.0
    kernels: Sequence[Row] = ()
    timings: Sequence[Row] = ()
    good_kernels: Sequence[Row] = ()
    good_timings: Sequence[Row] = ()

    @property
    def is_settled(self) -> bool:
        """Return whether no more follows before the next save."""
        return self.phase == "waiting"


def after(event: Event, state: WatchState, now: float) -> WatchState:
    """Return the state once an event has happened.

    Args:
        event: As a worker replied it, or the watcher made it.
    """
    kind = event["event"]
    if kind == "saved":
        kernels, timings = state.good_kernels, state.good_timings
        if state.passed and state.is_settled:
            kernels, timings = state.kernels, state.timings or timings
        return WatchState(
            target=state.target, begun=event["at"], phase="loading", saved=event, device=state.device,
            good_kernels=kernels, good_timings=timings,
        )  # fmt: skip
    changes = {key: value for key, value in event.items() if key in _COPIED}
    changes["phase"] = _PHASES.get(kind, state.phase)
    if kind == "trying":
        changes["trying"] = event["trial"]
    elif kind == "tried":
        failures = tuple(result for result in results_of(event) if isinstance(result.outcome, Failed))
        changes |= {"tried": state.tried + 1, "trying": "", "failures": state.failures + failures}
        if not state.first:
            changes |= {"first": event["trial"], "first_s": now - state.begun, "first_passed": not failures}
    elif kind == "unloadable":
        changes |= {"passed": False, "trouble": event["message"]}
    elif kind == "crashed":
        during = f" during {state.trying}" if state.trying else ""
        evidence = (f"    {line}".rstrip() for line in event["evidence"].splitlines())
        changes |= {"passed": False, "trouble": "\n".join((f"{event['reason']}{during}", *evidence))}
    return replace(state, **changes)


def results_of(event: Event) -> tuple[Result, ...]:
    """Return the results of an event `tried`."""
    return from_plain(tuple[Result, ...], plain(event["results"]))
