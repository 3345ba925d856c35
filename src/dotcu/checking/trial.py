"""Trials, the pieces of work of a check, and their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from dotcu.checking.cases.samples import Case

if TYPE_CHECKING:
    from dotcu.checking.subject import Subject


class Passed(msgspec.Struct, frozen=True, kw_only=True, tag_field="outcome", tag="passed"):
    """The check found nothing wrong.

    Attributes:
        note: What a reader should know all the same: "refused: ArgumentError: ...".
        ratio: The worst error over its bound, where there is one.
    """

    note: str = ""
    ratio: float | None = None

    @staticmethod
    def refused(error: BaseException) -> Passed:
        """Return the outcome of a call that may be refused, and was, by an error that says so."""
        message = str(error).strip().partition("\n")[0]
        return Passed(note=f"{REFUSED}{type(error).__name__}: {message}")


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag_field="outcome", tag="failed"):
    """The check found something wrong.

    Attributes:
        reason: What is wrong, in one line.
        evidence: The values that show it, on lines of their own; may be empty.
        reproduce: The line that runs this case again; filled in by the code that runs the plan.
    """

    reason: str
    evidence: str = ""
    reproduce: str = ""


class Skipped(msgspec.Struct, frozen=True, kw_only=True, tag_field="outcome", tag="skipped"):
    """The check did not run, for a reason."""

    reason: str


Outcome: TypeAlias = Passed | Failed | Skipped
REFUSED = "refused: "
"""The prefix of the note of a call that passed because it was refused with a clear error."""

LEFT_OUT = "left out"
"""The prefix of the reason of a trial that did not fit into a quick check."""

Verdict: TypeAlias = tuple[str, Outcome]
"""A check's name, and its outcome."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """A verdict, and the trial that gave it.

    Attributes:
        overload: The qualified name: `mylib::scale_add.out`.
        check: A name out of `catalogue.CHECKS`.
        trial: The trial's name; `--only` takes it.
        seconds: The duration of the whole trial.
    """

    overload: str
    check: str
    trial: str
    outcome: Outcome
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A piece of work.

    Attributes:
        overload: The qualified name: `mylib::scale_add.out`.
        kind: What is done: `call`, or the name of the check.
        case: The name of a case, for example.
        checks: The checks that it gives verdicts on. An error that it raises counts against the first.
        run: Does the work. Yields at most one verdict for each check.
    """

    overload: str
    kind: str
    case: str
    checks: tuple[str, ...]
    run: Callable[[], Iterable[Verdict]]

    @property
    def name(self) -> str:
        """Return the name that `--only` takes: `mylib::scale_add.out/call/float32-s0-n33`."""
        return "/".join(filter(None, (self.overload, self.kind, self.case)))


def trial(subject: Subject, check: str, case: str, look: Callable[..., Outcome | None], *args: Any) -> Trial:
    """Return a trial of one check.

    Args:
        look: Returns its outcome, or None for no verdict; called with the subject and `args`. Not called
            if the first of these is a case that there is not.
    """

    def run() -> Iterator[Verdict]:
        if args and isinstance(args[0], Case) and not subject.takes(args[0]):
            return
        outcome = look(subject, *args)
        if outcome is not None:
            yield check, outcome

    return Trial(overload=subject.name, kind=check, case=case, checks=(check,), run=run)


def skipped(subject: Subject, check: str, why: str) -> Trial:
    """Return a trial that does nothing but say why a check was not done.

    Args:
        why: The reason.
    """
    return trial(subject, check, "", lambda subject: Skipped(reason=why))


# ---------------------------------------------------------------- how long a trial may take, in a worker

START_S = 300.0
"""The most seconds to import the target and plan its trials in a worker: imports may compile files."""

LIMIT_S = 120.0
"""The most seconds of one trial of most kinds."""


def limit_s(kind: str) -> float:
    """The most seconds of a trial of a kind: torch's compiler and gigabytes of data take longer."""
    return {"compile": 300.0, "large": 180.0}.get(kind, LIMIT_S)
