"""The kinds of trials, a module for each: what is done with an operator, and what is compared.

Each has `plan(subject) -> Iterator[Trial]`, which runs no kernel. Where a check cannot run, its plan has
a trial that says why: `skipped(subject, "graph", "needs a GPU")`.
"""

from __future__ import annotations

from dotcu.checking.subject import Subject
from dotcu.checking.trial import Skipped, Trial


def skipped(subject: Subject, check: str, why: str) -> Trial:
    """A trial that does nothing but say why a check was not done.

    Args:
        subject: The overload under check.
        check: The name of the check.
        why: The reason.
    """
    outcome = Skipped(reason=why)
    return Trial(overload=subject.name, kind=check, case="", checks=(check,), run=lambda: [(check, outcome)])
