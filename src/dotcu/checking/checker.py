"""`dotcu.check`: plan the trials of operators, run them, and gather what they found."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import torch

from dotcu.checking.budget import Budget
from dotcu.checking.cases.samples import short
from dotcu.checking.catalogue import Level
from dotcu.checking.report import CheckedOverload, CheckReport
from dotcu.checking.running import plan, run
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Failed, Result, Trial
from dotcu.errors import UsageError, quoted
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
    """Check operators for every kind of fault.

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
    planned = prepare(op, device=device, level=level, seed=seed, only=only)
    start = time.perf_counter()
    results = list(planned.run())
    return planned.report(results, seconds=time.perf_counter() - start)


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckPlan:
    """Trials that are ready to run.

    Attributes:
        only: The names that picked them; empty if they are all that there are.
    """

    operators: Mapping[str, Operator]
    subjects: Sequence[Subject]
    trials: Sequence[Trial]
    only: tuple[str, ...]
    reproduce: Reproduce

    def run(self) -> Iterator[Result]:
        """The results as they come, each shortfall with the line that shows it again."""
        for result in run(self.subjects, self.trials):
            yield self.reproducible(result)

    def report(
        self, results: Sequence[Result], *, seconds: float = 0.0, interrupted: bool = False
    ) -> CheckReport:
        """Return a report of results, in the order of the plan.

        Args:
            results: Of trials, in any order.
            seconds: From the first trial to the last.
            interrupted: Whether trials are left.
        """
        places = {trial.name: place for place, trial in enumerate(self.trials)}
        left = len(places.keys() - {result.trial for result in results})
        # where the simulator ran any, it is what a reader has to know
        first = max(self.subjects, key=lambda subject: subject.simulated)
        return CheckReport(
            device=first.where,
            level=first.level.name.lower(),
            seed=first.seed,
            only=self.only,
            overloads=tuple(map(_checked, self.subjects)),
            results=tuple(sorted(results, key=lambda result: places.get(result.trial, len(places)))),
            unfinished=left if interrupted else 0,
            seconds=seconds,
        )

    def reproducible(self, result: Result) -> Result:
        """A result, a shortfall with the line that shows it again."""
        if not isinstance(result.outcome, Failed):
            return result
        subject = next(subject for subject in self.subjects if subject.name == result.overload)
        return with_line(result, self.reproduce(self.operators[result.overload], subject, result.trial))


def with_line(failure: Result, reproduce: str) -> Result:
    """A result that failed, with the line that shows it again."""
    return replace(failure, outcome=msgspec.structs.replace(failure.outcome, reproduce=reproduce))


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
    return [
        Subject(overload=overload, device=place, level=height, seed=seed, budget=budget)
        for operator, budget in ((operator, Budget()) for operator in operators_of(op))
        for overload in operator.overloads.values()
    ]


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


def select(trials: Sequence[Trial], only: Sequence[str]) -> list[Trial]:
    """The trials of which the name was given, or the beginning of it; all where no name was.

    A whole name picks its trial alone, whatever other names begin so.

    Raises:
        UsageError: There is none of a name.
    """
    known = {trial.name for trial in trials}
    for name in only:
        if not any(one.startswith(name) for one in known):
            example = f"Names are as a report prints them: {trials[0].name}" if trials else "There are none."
            raise UsageError(f"no trial is named {name!r}.\n{example}")
    whole, beginnings = known.intersection(only), tuple(name for name in only if name not in known)
    return [t for t in trials if not only or t.name in whole or t.name.startswith(beginnings)]


def resolve_level(level: str) -> Level:
    """The level of a name.

    Raises:
        UsageError: There is none.
    """
    try:
        return Level[level.upper()]
    except (KeyError, AttributeError) as error:
        names = ", ".join(one.name.lower() for one in Level)
        raise UsageError(f"level={level!r}: use one of {names}.") from error


def resolve_device(device: str | torch.device | None) -> torch.device:
    """Return the device that kernels run on: the GPU where there is one, or the one asked for.

    Raises:
        UsageError: That is not here, or is none that kernels run on.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device("cpu" if device == "simulator" else device)
    except (RuntimeError, TypeError) as error:
        raise UsageError(f"device={device!r}: give 'cuda' or 'simulator'.") from error
    if place.type not in ("cuda", "cpu"):
        raise UsageError(f"device={str(device)!r}: kernels run on 'cuda' or in the 'simulator'.")
    if place.type == "cpu":
        return place
    if not torch.cuda.is_available():
        raise UsageError(
            "device='cuda': torch sees no CUDA GPU here.\nUse device='simulator', or see `dotcu doctor`."
        )
    if (place.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"device={str(device)!r}: torch sees {torch.cuda.device_count()} here, counted from 'cuda:0'."
        )
    return torch.device("cuda", torch.cuda.current_device() if str(place) == "cuda" else place.index)


def operators_of(op: Any) -> list[Operator]:
    """Return the argument of `check` as a list of at least one operator, each once.

    Raises:
        UsageError: It is something else.
    """
    given = list(op) if isinstance(op, Iterable) and not isinstance(op, (str, bytes)) else [op]
    wrong = [item for item in given if not isinstance(item, Operator)]
    if given and not wrong:
        return list(dict.fromkeys(given))
    got = f"got {wrong[0]!r}" if wrong else "got none"
    hint = f"\nFor a file or a module, type: dotcu check {quoted(op)}" if isinstance(op, str) else ""
    name = "ns::name"
    if isinstance(op, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        one = op if isinstance(op, torch._ops.OpOverload) else getattr(op, op.overloads()[0])
        got, name = f"got {op!r}", str(one).replace(".", "::", 1).removesuffix(".default")
    raise UsageError(
        f"An operator is required, or a list of operators ({got}).\n"
        "A function becomes an operator with @dotcu.op. For one that a library registered, use "
        f'dotcu.op.existing("{name}").{hint}'
    )


# ---------------------------------------------------------------- the line that runs one trial again

Reproduce = Callable[[Operator, Subject, str], str]
"""Makes the line, of an operator, the subject that a trial was of, and the trial's name."""


def by_call(operator: Operator, subject: Subject, trial: str) -> str:
    """Return a call of `dotcu.check`, the operator under its Python name.

    Args:
        trial: The name of the trial to run.
    """
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

    def line(operator: Operator, subject: Subject, trial: str) -> str:
        words = ["dotcu", "check", f"{place}:{names[operator.qualified_name]}"]
        words += ["--device", subject.where]
        words += [] if subject.level is Level.STANDARD else [f"--{subject.level.name.lower()}"]
        return shlex.join([*words, "--seed", str(subject.seed), "--only", trial])

    return line


def by_node(node: str, options: Mapping[str, object]) -> str:
    """Return a run of one test by pytest, with the options that were given."""
    given = [word for name, value in options.items() for word in (name, str(value))]
    return shlex.join(["pytest", *given, node])
