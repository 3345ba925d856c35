"""Running trials, one after the other, in this process."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from dotcu.checking.blame import located
from dotcu.checking.outcome import FellShort, Result, Skipped, Verdict
from dotcu.checking.subject import ReferenceCalls
from dotcu.checking.trial import Trial
from dotcu.errors import CompileError, EnvironmentFault, UsageError
from dotcu.kernel.cuda import fault_story


def run(trials: Iterable[Trial]) -> Iterator[Result]:
    """The results of trials, as they come.

    Raises:
        UsageError, EnvironmentFault: No trial can make sense: it was raised, or caused what was.
    """
    runner = Runner()
    for trial in trials:
        yield from runner.run(trial)


class Runner:
    """Runs trials, and those no more whose kernel did not compile for one before: one shortfall tells it.

    A kernel is compiled for each dtype: one that is wrong for float16 may be tried in float32.
    """

    def __init__(self) -> None:
        self._broken: set[tuple[str, str]] = set()

    def run(self, trial: Trial) -> list[Result]:
        """The results of one trial.

        Raises:
            UsageError, EnvironmentFault: No trial can make sense.
        """
        of = trial.overload, trial.case.partition("-")[0]  # float32, of float32-s0-n33
        if of in self._broken:
            why = Skipped(why="its kernel does not compile")
            return [
                Result(overload=trial.overload, check=check, trial=trial.name, outcome=why)
                for check in trial.checks
            ]
        results = run_one(trial)
        outcomes = [result.outcome for result in results]
        if any(isinstance(one, FellShort) and one.reason == _NO_CODE for one in outcomes):
            self._broken.add(of)
        return results


_NO_CODE = "a kernel does not compile"


def run_one(trial: Trial) -> list[Result]:
    """The results of one trial; what it raises is one."""
    start = time.perf_counter()
    verdicts = _verdicts(trial)
    seconds = time.perf_counter() - start
    return [
        Result(overload=trial.overload, check=check, trial=trial.name, outcome=outcome, seconds=seconds)
        for check, outcome in verdicts
    ]


def _verdicts(trial: Trial) -> list[Verdict]:
    found: list[Verdict] = []
    try:
        found.extend(trial.run())
    except (Exception, SystemExit) as error:  # whatever a user's body or reference raises
        for cause in _causes(error):
            if isinstance(cause, (UsageError, EnvironmentFault)):
                raise cause from None
        found.append(_raised(trial, error))
    return found


def _raised(trial: Trial, error: BaseException) -> Verdict:
    story = fault_story(error)
    evidence = f"{located(error)}\n{story}" if story else located(error)
    causes = list(_causes(error))
    if any(isinstance(cause, ReferenceCalls) for cause in causes):
        return "reference", FellShort(reason="the reference calls an operator of dotcu", evidence=evidence)
    compiles = not any(isinstance(cause, CompileError) for cause in causes)
    reason = f"it raises {type(error).__name__}" if compiles else _NO_CODE
    return trial.checks[0], FellShort(reason=reason, evidence=evidence)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it was raised from: torch wraps some of what it catches."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
