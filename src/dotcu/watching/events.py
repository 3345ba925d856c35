"""What happens while a target is watched: values that travel from a worker as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from dotcu.benchmark.comparing import Change
from dotcu.benchmark.lines import decode, encode
from dotcu.benchmark.measured import Measured
from dotcu.checking.outcome import Result

T = TypeVar("T", bound="Event")


@dataclass(frozen=True, kw_only=True)
class Event:
    """Anything that happens."""

    name: ClassVar[str] = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which `read` makes the same."""
        return {"event": self.name, **encode(self)}

    @classmethod
    def from_json(cls: type[T], values: Mapping[str, Any]) -> T:
        """The event that `to_json` wrote."""
        return decode(cls, {name: value for name, value in values.items() if name != "event"}, cls.name)


@dataclass(frozen=True, kw_only=True)
class Saved(Event):
    """Files have other contents than before, are new or gone.

    Attributes:
        gone: Those of them that are not there any more.
        at: When, in seconds since the epoch: the files' own time where that is recent.
    """

    name = "saved"
    files: tuple[str, ...]
    at: float
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ready(Event):
    """A worker has started."""

    name = "ready"


@dataclass(frozen=True, kw_only=True)
class Begun(Event):
    """A worker has taken a request up."""

    name = "begun"


@dataclass(frozen=True, kw_only=True)
class Watched(Event):
    """The folders that hold what was loaded or not found, each with its own files; some may not exist."""

    name = "watched"
    folders: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Unloadable(Event):
    """The target cannot be loaded, or not be planned for.

    Attributes:
        again: Whether a fresh process may find otherwise, since this one has loaded other versions before.
    """

    name = "unloadable"
    message: str
    again: bool = False


@dataclass(frozen=True, kw_only=True)
class Refused(Event):
    """No save can make it right: the machine lacks something, or the command was used wrongly.

    Attributes:
        kind: The name of an error out of `dotcu.errors`.
    """

    name = "refused"
    kind: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Planned(Event):
    """What is about to be tried.

    Attributes:
        device: `simulator`, `cuda:0`.
        overloads: Their qualified names.
        trials: How many there are.
    """

    name = "planned"
    device: str
    overloads: tuple[str, ...]
    trials: int


@dataclass(frozen=True, kw_only=True)
class Trying(Event):
    """A trial begins."""

    name = "trying"
    trial: str


@dataclass(frozen=True, kw_only=True)
class Tried(Event):
    """A trial has come to its end."""

    name = "tried"
    trial: str
    results: tuple[Result, ...]

    def to_json(self) -> dict[str, Any]:
        results = [result.to_json() for result in self.results]
        return {"event": self.name, "trial": self.trial, "results": results}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Tried:
        return cls(trial=values["trial"], results=tuple(map(Result.from_json, values["results"])))


@dataclass(frozen=True, kw_only=True)
class Checked(Event):
    """Every trial has come to its end.

    Attributes:
        held: As the report of `dotcu check --quick` has it.
        untried: What nobody may take as tried, in words.
        seconds: From the first trial to the last.
    """

    name = "checked"
    held: bool
    untried: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a kernel takes of a multiprocessor, compiled for `arch`."""

    kernel: str
    arch: str
    registers: int
    smem_bytes: int
    stack_bytes: int
    spill_bytes: int


@dataclass(frozen=True, kw_only=True)
class Needed(Event):
    """What the kernels take that were compiled."""

    name = "needed"
    kernels: tuple[Needs, ...]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The time of one operator in one case, with a cold L2.

    Attributes:
        measured: The raw samples; None where there are none, and `note` says why.
        change: What became of it since the last version that held.
        note: What a reader has to know.
    """

    op: str
    case: str
    median_us: float = 0.0
    measured: Measured | None = None
    change: Change | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Timed(Event):
    """How long operators take on the GPU."""

    name = "timed"
    timings: tuple[Timing, ...]


@dataclass(frozen=True, kw_only=True)
class Broken(Event):
    """The process under way has ended, or was ended, or can do no more."""

    name = "broken"
    reason: str
    evidence: str = ""


@dataclass(frozen=True, kw_only=True)
class Done(Event):
    """No more follows on this version."""

    name = "done"


_KINDS: dict[str, type[Event]] = {
    kind.name: kind
    for kind in (
        Saved, Ready, Begun, Watched, Unloadable, Refused, Planned, Trying, Tried, Checked, Needed, Timed,
        Broken, Done,
    )
}  # fmt: skip


def read(values: Mapping[str, Any]) -> Event:
    """The event that its `to_json` wrote."""
    return _KINDS[values["event"]].from_json(values)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A version of the target to try.

    Attributes:
        number: Of the version; what a worker says of it has the same.
        device: As `check` takes it.
        good: The times of the last version that held.
    """

    number: int
    target: str
    device: str | None
    seed: int
    good: tuple[Timing, ...] = ()

    def to_json(self) -> str:
        """One line of text, from which `from_json` makes the same."""
        return json.dumps(encode(self))

    @staticmethod
    def from_json(text: str) -> Request:
        """The request that `to_json` wrote."""
        return decode(Request, json.loads(text), "request")
