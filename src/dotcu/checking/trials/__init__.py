"""What is done with an operator, and what is looked at: one module for each kind of trial.

Each has `plan(subject) -> Iterator[Trial]`, which runs no kernel. Where a check cannot run, its plan has
a trial that says why: `skipped(subject, "graph", "needs a GPU")`.
"""

from __future__ import annotations

from dotcu.checking.outcome import Skipped
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Trial


def skipped(subject: Subject, check: str, why: str) -> Trial:
    """A trial that does nothing but say why a check was not done."""
    outcome = Skipped(why=why)
    return Trial(overload=subject.name, kind=check, case="", checks=(check,), run=lambda: [(check, outcome)])
