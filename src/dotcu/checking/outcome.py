"""What one check of one case came to."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias


@dataclass(frozen=True, kw_only=True)
class Held:
    """It is as it must be.

    Attributes:
        note: What a reader should know all the same: "refused: ArgumentError: ...".
        ratio: The worst error over its bound, where there is one.
    """

    note: str = ""
    ratio: float | None = None

    @staticmethod
    def refused(error: BaseException) -> Held:
        """A call that may be refused was, by an error that says so."""
        said = str(error).strip().partition("\n")[0]
        return Held(note=f"{REFUSED}{type(error).__name__}: {said}")


@dataclass(frozen=True, kw_only=True)
class FellShort:
    """It is not.

    Attributes:
        reason: What is wrong, in one line.
        evidence: The values that show it, on lines of their own; may be empty.
        reproduce: The line that runs this case again; whoever runs the plan fills it in.
    """

    reason: str
    evidence: str = ""
    reproduce: str = ""


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """It was not looked at."""

    why: str


Outcome: TypeAlias = Held | FellShort | Skipped
REFUSED = "refused: "
"""How the note begins of a call that held because it was refused with a clear error."""

Verdict: TypeAlias = tuple[str, Outcome]
"""A check's name, and what it came to."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """A verdict, and what it is of.

    Attributes:
        overload: The qualified name: `mylib::scale_add.out`.
        check: A name out of `catalogue.CHECKS`.
        trial: The name of the trial that gave it; `--only` takes it.
        seconds: What the whole trial took.
    """

    overload: str
    check: str
    trial: str
    outcome: Outcome
    seconds: float = field(default=0.0, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which `from_json` makes the same."""
        kind = type(self.outcome).__name__
        named = {"overload": self.overload, "check": self.check, "trial": self.trial}
        return {**named, "outcome": kind, **vars(self.outcome), "seconds": round(self.seconds, 6)}

    @staticmethod
    def from_json(values: dict[str, Any]) -> Result:
        """The result that `to_json` wrote."""
        kinds: dict[str, type[Outcome]] = {"Held": Held, "FellShort": FellShort, "Skipped": Skipped}
        kind = kinds[values["outcome"]]
        parts = {part.name: values[part.name] for part in fields(kind)}
        named = {name: values[name] for name in ("overload", "check", "trial", "seconds")}
        return Result(outcome=kind(**parts), **named)
