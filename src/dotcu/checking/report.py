"""What a check found: a value that prints itself, and has a plain form for programs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType

from dotcu import report_base
from dotcu.checking import rendering
from dotcu.checking.catalogue import Level, of_level
from dotcu.checking.outcome import REFUSED, FellShort, Held, Result, Skipped

VERSION = 2
"""Of the JSON form; docs/check.md has its keys."""

_COMPARING = {"numerics", "written"}  # the checks of a call that look at its values
_DERIVED = re.compile(r"\w+-s\d+-")  # how the name of a case begins that is no sample itself


@dataclass(frozen=True, kw_only=True)
class Checked:
    """An overload that was checked.

    Attributes:
        name: The qualified name: `mylib::scale_add.out`.
        dtypes: Those that it says it takes: `float32`.
        tolerance: What its author declared, for all dtypes or by dtype; None where the bounds are dotcu's.
        empty: The dtypes whose samples have no element, all of them.
    """

    name: str
    dtypes: tuple[str, ...]
    tolerance: float | Mapping[str, float] | None = None
    empty: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Derived:
    """Of the calls of an overload that dotcu derived, how many were tried, and how many it refused.

    Attributes:
        words: How it refused the first.
    """

    tried: int
    refused: int
    words: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckReport(report_base.Report):
    """What `dotcu.check` found. `str()` of it is a table.

    Attributes:
        device: Where kernels ran: `simulator`, `cuda:0`.
        level: Which checks were asked for: `quick`, `standard`, `full`.
        seed: What random numbers started from.
        only: The names that picked some of the trials; empty where all were to run.
        overloads: What was checked.
        results: Every verdict, in the order in which trials were planned.
        unfinished: How many trials had not come to their end when the check was interrupted.
        seconds: From the first trial to the last.
    """

    device: str
    level: str
    seed: int
    only: tuple[str, ...] = ()
    overloads: tuple[Checked, ...]
    results: tuple[Result, ...]
    unfinished: int = 0
    seconds: float = 0.0

    @property
    def held(self) -> bool:
        """Whether nothing fell short, of each overload something was looked at, and nothing is left to do."""
        held = all(self.held_by(overload.name) for overload in self.overloads)
        return bool(self.overloads) and held and not self.unfinished

    @property
    def failures(self) -> tuple[Result, ...]:
        """What fell short."""
        return tuple(result for result in self.results if isinstance(result.outcome, FellShort))

    @property
    def checks(self) -> tuple[str, ...]:
        """The names of the checks that the level holds."""
        return of_level(Level[self.level.upper()])

    def held_by(self, overload: str) -> bool:
        """Whether an overload was looked at, in each of its dtypes, and nothing of it fell short."""
        outcomes = [result.outcome for result in self.results if result.overload == overload]
        looked = any(not isinstance(outcome, Skipped) for outcome in outcomes) and not self.untried(overload)
        return looked and not any(isinstance(outcome, FellShort) for outcome in outcomes)

    def untried(self, overload: str) -> dict[str, str]:
        """Which dtypes of an overload no call was compared in, and why; none where `only` picked trials."""
        (one,) = (each for each in self.overloads if each.name == overload)
        return {} if self.only else {d: why for d in one.dtypes if (why := self._untried(one, d))}

    def _untried(self, overload: Checked, dtype: str) -> str:
        if dtype in overload.empty:
            return "every sample is empty"
        calls = [r for r in self._calls(overload.name) if _case(r).startswith(f"{dtype}-")]
        short = any(isinstance(r.outcome, FellShort) for r in calls)
        if short or any(r.check in _COMPARING and isinstance(r.outcome, Held) for r in calls):
            return ""
        return "nothing of it was compared" if calls else "no sample of it"

    def derived(self, overload: str) -> Derived:
        """How an overload took the calls that dotcu derived of its samples."""
        outcomes: dict[str, list[Held | FellShort]] = {}
        for result in self._calls(overload):
            if _DERIVED.match(_case(result)) and not isinstance(result.outcome, Skipped):
                outcomes.setdefault(result.trial, []).append(result.outcome)
        told = [one.note for some in outcomes.values() for one in some if isinstance(one, Held)]
        refused = [note.removeprefix(REFUSED) for note in told if note.startswith(REFUSED)]
        return Derived(tried=len(outcomes), refused=len(refused), words=next(iter(refused), ""))

    def _calls(self, overload: str) -> list[Result]:
        return [result for result in self.results if result.trial.startswith(f"{overload}/call/")]

    def to_json(self) -> dict[str, Any]:
        """The report as plain values, with a `version` that changes when their meaning does.

        A number that is not finite is None, so every reader of JSON takes it.
        """
        report = {
            "version": VERSION,
            "held": self.held,
            "device": self.device,
            "level": self.level,
            "seed": self.seed,
            "only": self.only,
            "checks": self.checks,
            "unfinished": self.unfinished,
            "seconds": round(self.seconds, 6),
            "overloads": [self._overload(one) for one in self.overloads],
            "results": [result.to_json() for result in self.results],
        }
        return {name: report_base.values(value) for name, value in report.items()}

    def _overload(self, one: Checked) -> dict[str, Any]:
        derived = self.derived(one.name)
        return {
            "name": one.name,
            "dtypes": one.dtypes,
            "tolerance": one.tolerance,
            "held": self.held_by(one.name),
            "untried": self.untried(one.name),
            "derived": {"tried": derived.tried, "refused": derived.refused},
        }

    def __rich__(self) -> RenderableType:
        return rendering.table(self)


def _case(result: Result) -> str:
    return result.trial.rpartition("/")[2]
