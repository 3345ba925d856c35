"""The trials of operators: what a check tries, planned without running a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from dotcu import torch_compat
from dotcu.checking.budget import Budget
from dotcu.checking.cases.derived import choose
from dotcu.checking.catalogue import Level, of_level
from dotcu.checking.results import CheckResult, Skipped, Trial
from dotcu.checking.subject import Subject
from dotcu.checking.target import operators_of, resolve_device
from dotcu.checking.trials import (
    call,
    errors,
    fake,
    fresh_values,
    gradients,
    modes,
    reference,
    registration,
)
from dotcu.errors import UsageError
from dotcu.operator import Operator, Overload


def subjects_of(
    op: Operator | Iterable[Operator], *, device: str | torch.device | None, level: str, seed: int
) -> list[Subject]:
    """Return every overload of operators, with what it is checked under.

    Args:
        level: The name of one.

    Raises:
        UsageError: As `check`.
    """
    place, height = resolve_device(device), resolve_level(level)
    given = operators_of(op)
    for overload in (each for operator in given for each in operator.overloads.values()):
        if place.type == "cpu" and _takes_only_cuda(overload):
            raise UsageError(
                f"{overload.qualified_name} is registered for CUDA tensors alone, and is to be called on CPU "
                "tensors.\nRequired: a function for both, whose kernels the simulator then runs.\n"
                'In custom_op, remove device_types="cuda"; or check on a GPU: --device cuda'
            )
    return [
        Subject(overload=overload, device=place, level=height, seed=seed, budget=budget)
        for operator, budget in ((operator, Budget()) for operator in given)
        for overload in operator.overloads.values()
    ]


_FOR_CPU = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
"""The dispatch keys of kernels that take CPU tensors."""


def _takes_only_cuda(overload: Overload) -> bool:
    """Return whether a library computes it on CUDA tensors alone."""
    takes = partial(torch_compat.has_kernel, overload.qualified_name)
    return overload.body is None and takes("CUDA") and not any(map(takes, _FOR_CPU))


def resolve_level(level: str) -> Level:
    """Return the level of a name.

    Raises:
        UsageError: There is none.
    """
    try:
        return Level[level.upper()]
    except (KeyError, AttributeError) as error:
        names = ", ".join(one.name.lower() for one in Level)
        raise UsageError(f"level={level!r}: use one of {names}.") from error


def _planners(subject: Subject) -> Iterator[Callable[[Subject], Iterator[Trial]]]:
    """Yield what plans the trials of each kind, in the order of a check; a quick one imports fewer."""
    yield reference.plan
    yield lambda subject: call.plan(subject, choose(subject))
    yield from (call.plan_kept, modes.plan, errors.plan, fake.plan, fresh_values.plan, call.plan_simulated)
    yield from (registration.plan, gradients.plan, modes.plan_autocast)
    if subject.level >= Level.STANDARD:
        from dotcu.checking.trials import compiled, gpu, ranks, sharding, vmap

        yield from (vmap.plan, sharding.plan, ranks.plan, compiled.plan, gpu.plan)
    if subject.level >= Level.FULL:
        from dotcu.checking import compute_sanitizer
        from dotcu.checking.trials import gpu

        yield from (gpu.plan_large, compute_sanitizer.plan)


def plan(subject: Subject) -> Iterator[Trial]:
    """Yield every trial of an overload, the most informative first. Runs no kernel.

    Raises:
        OperatorError: The `samples` function failed, or gave something else.
    """
    wanted = set(of_level(subject.level))
    for plan_kind in _planners(subject):
        for trial in plan_kind(subject):
            if wanted & set(trial.checks):
                yield _unless_waived(subject, _in_group(subject, trial))


def _in_group(subject: Subject, trial: Trial) -> Trial:
    """Return a trial that runs in a group of one, if its operator meets the ranks of a group on a GPU."""
    if not (subject.communicates and subject.on_gpu):
        return trial

    def run() -> Iterator[CheckResult]:
        from dotcu.checking.trials import ranks

        with ranks.alone():
            yield from trial.run()

    return replace(trial, run=run)


def _unless_waived(subject: Subject, trial: Trial) -> Trial:
    """Return the trial; one that only gives the author's reason where the author waives it."""
    case = str(replace(trial.id, overload=""))
    for name, reason in subject.overload.waived.items():
        if case == name or case.endswith(f"-{name}"):
            return replace(trial, run=partial(iter, [Skipped(reason=f"waived: {reason}")]))
    return trial


def select(trials: Sequence[Trial], only: Sequence[str]) -> list[Trial]:
    """Return the trials of some names, or whose names begin so; all without names.

    A whole name picks its trial alone, whatever other names begin so.

    Raises:
        UsageError: There is none of a name.
    """
    named = [(str(trial.id), trial) for trial in trials]
    known = {name for name, _ in named}
    for name in only:
        if not any(one.startswith(name) for one in known):
            example = f"Names are as a report prints them: {trials[0].id}" if trials else "There are none."
            raise UsageError(f"no trial is named {name!r}.\n{example}")
    beginnings = tuple(name for name in only if name not in known)
    return [trial for name, trial in named if not only or name in only or name.startswith(beginnings)]
