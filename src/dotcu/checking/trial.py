"""Trials: the pieces of work that a check consists of.

A trial runs by itself, alone or after others, in this process or in another, and finds the same each
time: planning makes trials with names, running one needs no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dotcu.checking.outcome import Verdict


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One piece of work.

    Attributes:
        overload: The qualified name: `mylib::scale_add.out`.
        kind: What is done: `call`, or the name of the check.
        case: With what; a case's name, say.
        checks: The checks that it speaks of. What it raises itself counts against the first.
        run: Does the work. Gives at most one verdict for each check.
    """

    overload: str
    kind: str
    case: str
    checks: tuple[str, ...]
    run: Callable[[], Iterable[Verdict]]

    @property
    def name(self) -> str:
        """The name that `--only` takes: `mylib::scale_add.out/call/float32-s0-n33`."""
        return "/".join(filter(None, (self.overload, self.kind, self.case)))
