"""`dotcu.check`: plan the trials of operators, run them, and gather what they found."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import torch

from dotcu import jobs
from dotcu.checking.cases.samples import short
from dotcu.checking.catalogue import Level
from dotcu.checking.planning import plan, select, subjects_of
from dotcu.checking.report import CheckedOverload, CheckReport
from dotcu.checking.results import CheckResult, Failed, Trial, TrialId
from dotcu.checking.running import run
from dotcu.checking.subject import Subject
from dotcu.checking.target import operators_of
from dotcu.operator import Operator
from dotcu.tracebacks import shortens_tracebacks


@shortens_tracebacks
def check(
    op: Operator | Iterable[Operator],
    *,
    device: str | torch.device | None = None,
    level: str = "standard",
    seed: int = 0,
    only: str | Sequence[str] = (),
) -> CheckReport:
    """Check operators for wrong values, memory errors, races and more.

    Every overload is tried, in each of its dtypes, on its samples and on calls that are derived from
    them. On the CPU the kernels run in the simulator, whose findings are failures.

    Args:
        op: An operator or several.
        device: `cuda`, `simulator`, or a torch device; default: a GPU, if any. Without one,
            a library's operator computes on the CPU.
        level: `quick`, `standard` or `full`; `catalogue.py` says which checks each holds.
        seed: What random numbers start from.
        only: The names of trials, or the beginnings of some: `mylib::scale_add/call/float32-s0`.

    Returns:
        A report that prints itself; `report.passed` says whether everything passed.

    Raises:
        UsageError: `op` is not an operator, `device` names none that is here, no trial has a name of `only`.
        OperatorError: A `samples` function failed, or gave something other than samples; says where.
        EnvironmentFault: The machine lacks something that no operator can do without.

    Note:
        Synchronizes. Inputs are fresh for each call, and the same in each run with the same seed; torch's
        own random numbers are left as they were.
    """
    report = jobs.complete(prepare(op, device=device, level=level, seed=seed, only=only))
    if report.interrupted:
        raise KeyboardInterrupt
    return report


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckPlan:
    """A job: trials that are ready to run.

    Attributes:
        only: The names that picked them; empty if they are all that there are.
    """

    operators: Mapping[str, Operator]
    subjects: Sequence[Subject]
    trials: Sequence[Trial]
    only: tuple[str, ...]
    reproduce: Reproduce

    def run(self) -> Iterator[CheckResult | TrialId]:
        """Yield results as they come, each failure with the line that shows it again.

        Of a trial that ends without a result it yields the identity.
        """
        for told in run(self.subjects, self.trials):
            yield told if isinstance(told, TrialId) else self.reproducible(told)

    def report(
        self, told: Sequence[CheckResult | TrialId], *, seconds: float, interrupted: bool
    ) -> CheckReport:
        """Return a report of results, in the order of the plan."""
        places = {trial.id: place for place, trial in enumerate(self.trials)}
        results = [each for each in told if not isinstance(each, TrialId)]
        ended = {each if isinstance(each, TrialId) else each.trial for each in told}
        # where the simulator ran any, it is what a reader has to know
        first = max(self.subjects, key=lambda subject: subject.simulated)
        return CheckReport(
            device=first.where,
            level=first.level.name.lower(),
            seed=first.seed,
            only=self.only,
            overloads=tuple(map(_checked, self.subjects)),
            results=tuple(sorted(results, key=lambda result: places.get(result.trial, len(places)))),
            interrupted=interrupted,
            unfinished=len(places.keys() - ended) if interrupted else 0,
            seconds=seconds,
        )

    def reproducible(self, result: CheckResult) -> CheckResult:
        """Return a result, a failure with the line that shows it again."""
        if not isinstance(result, Failed):
            return result
        name = result.trial.overload
        subject = next(subject for subject in self.subjects if subject.name == name)
        line = self.reproduce(self.operators[name], subject, result.trial)
        return msgspec.structs.replace(result, reproduce=line)


def prepare(
    op: Operator | Iterable[Operator],
    *,
    device: str | torch.device | None = None,
    level: str = "standard",
    seed: int = 0,
    only: str | Sequence[str] = (),
    reproduce: Reproduce | None = None,
) -> CheckPlan:
    """Plan what `check` runs; it has the meaning of the arguments, and what is raised.

    Args:
        reproduce: Makes the line that runs a trial again; by default a call of `check`.
    """
    operators = {o.qualified_name: each for each in operators_of(op) for o in each.overloads.values()}
    subjects = subjects_of(op, device=device, level=level, seed=seed)
    names = (only,) if isinstance(only, str) else tuple(only)
    trials = select([trial for subject in subjects for trial in plan(subject)], names)
    if names:
        subjects = [subject for subject in subjects if any(t.overload == subject.name for t in trials)]
    return CheckPlan(
        operators=operators, subjects=subjects, trials=trials, only=names, reproduce=reproduce or by_call
    )


def _checked(subject: Subject) -> CheckedOverload:
    overload, tolerance = subject.overload, subject.overload.tolerance
    empty = []
    for dtype in overload.dtypes:
        calls = [case.sample.tensors for case in subject.given(dtype)]
        if calls and all(tensors and not any(t.numel() for t in tensors) for tensors in calls):
            empty.append(short(dtype))
    return CheckedOverload(
        name=subject.name,
        dtypes=tuple(map(short, overload.dtypes)),
        tolerance={short(d): value for d, value in tolerance.items()}
        if isinstance(tolerance, Mapping)
        else tolerance,
        empty=tuple(empty),
    )


# ---------------------------------------------------------------- the line that runs one trial again

Reproduce = Callable[[Operator, Subject, TrialId], str]
"""Makes the line, of an operator, the subject that a trial was of, and the trial."""


def by_call(operator: Operator, subject: Subject, trial: TrialId) -> str:
    """Return a call of `dotcu.check`, the operator under its Python name."""
    level = subject.level.name.lower()
    return (
        f'dotcu.check({operator.__name__}, device="{subject.where}", level="{level}", '
        f'seed={subject.seed}, only="{trial}")'
    )


def by_command(target: str, found: Sequence[tuple[str, Operator]]) -> Reproduce:
    """Return what makes a `dotcu check` of one operator of a TARGET.

    Args:
        target: As the command was given it, with `:name` or without.
        found: The operators that it names, with their Python names.
    """
    place = target.partition(":")[0]
    names = {operator.qualified_name: name for name, operator in found}

    def line(operator: Operator, subject: Subject, trial: TrialId) -> str:
        words = ["dotcu", "check", f"{place}:{names[operator.qualified_name]}"]
        words += ["--device", subject.where]
        words += [] if subject.level is Level.STANDARD else [f"--{subject.level.name.lower()}"]
        return shlex.join([*words, "--seed", str(subject.seed), "--only", str(trial)])

    return line


def by_node(node: str, options: Mapping[str, object]) -> str:
    """Return a run of one test by pytest, with the options that were given."""
    given = [word for name, value in options.items() for word in (name, str(value))]
    return shlex.join(["pytest", *given, node])
