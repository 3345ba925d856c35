"""The kinds of trials, a module for each: what is done with an operator, and what is compared.

Each has `plan(subject) -> Iterator[Trial]`, which runs no kernel. Where a check cannot run, its plan has
a trial that says why: `skipped(subject, "graph", "needs a GPU")`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dotcu.checking.subject import Subject
from dotcu.checking.trial import Outcome, Skipped, Trial, Verdict


def trial(subject: Subject, check: str, case: str, look: Callable[..., Outcome | None], *args: Any) -> Trial:
    """Return a trial of one check.

    Args:
        look: Returns its outcome, or None for no verdict; called with the subject and `args`.
    """

    def run() -> Iterator[Verdict]:
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
