"""Which trials a check of an operator consists of."""

from __future__ import annotations

from collections.abc import Iterator

from dotcu.checking.cases.choice import choose
from dotcu.checking.catalogue import of_level
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Trial
from dotcu.checking.trials import (
    call,
    compiled,
    compute_sanitizer,
    devices,
    errors,
    fake,
    fresh_values,
    gradients,
    graph,
    large,
    reference,
    registration,
    replay,
    simulated,
    stream,
    vmap,
)

_KINDS = (
    errors,
    fake,
    fresh_values,
    simulated,
    registration,
    gradients,
    vmap,
    compiled,
    replay,
    stream,
    graph,
    devices,
    large,
    compute_sanitizer,
)


def plan(subject: Subject) -> Iterator[Trial]:
    """Every trial of an overload, the ones that tell most first. Runs no kernel.

    Raises:
        OperatorError: The `samples` function failed, or gave something else.
    """
    held = set(of_level(subject.level))
    for trial in _every(subject):
        if held & set(trial.checks):
            yield trial


def _every(subject: Subject) -> Iterator[Trial]:
    yield from reference.plan(subject)
    yield from call.plan(subject, choose(subject))
    for kind in _KINDS:
        yield from kind.plan(subject)
