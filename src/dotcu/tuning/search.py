"""The search among configurations: successive halving until intervals part, and ties by a fixed order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from statistics import fmean
from typing import Any

from dotcu.errors import EnvironmentFault

TIE = 0.02
"""The share of the best time within which another is as good: what a fixed order then decides."""

KEPT = (0.1, 0.05, 0.03)
"""The shares of the best time that no halving drops, by round: few samples err by as much. Rounds after these
are alike, and together are the more precise."""

MAX_ROUNDS = 7
"""Rounds of timing: 200 candidates are halved to a few in three, and those on the border of a tie go on."""

FEWEST = 2
"""Candidates that a halving leaves at least."""


@dataclass(frozen=True, kw_only=True)
class TimeInterval:
    """The time of a candidate, and its interval, in microseconds."""

    median_us: float
    low_us: float
    high_us: float


Times = Mapping[int, TimeInterval]
TimeRound = Callable[[Sequence[int], int], Times]
"""Times some candidates in one round, by their numbers; without those that failed in it."""


@dataclass(frozen=True, kw_only=True)
class TuneChoice:
    """The choice of a search.

    Attributes:
        winner: The candidate's number.
        times: The last time of each candidate that was timed.
        tied: Those that were as good, in their order.
        rounds: Rounds that were timed.
    """

    winner: int
    times: Times
    tied: tuple[int, ...]
    rounds: int

    def over(self, other: int | None) -> float:
        """Return the time of another candidate over the winner's: 1 if there is none, 0 if rejected."""
        if other is None:
            return 1.0
        return self.times[other].median_us / self.times[self.winner].median_us if other in self.times else 0.0

    @property
    def runner_up(self) -> int | None:
        """The fastest of the others."""
        others = [candidate for candidate in self.times if candidate != self.winner]
        return min(others, key=lambda one: (self.times[one].median_us, one), default=None)


def search(
    candidates: Sequence[int],
    time_round: TimeRound,
    *,
    default: int,
    earlier: int | None = None,
    expired: Callable[[], bool] = lambda: False,
) -> TuneChoice | None:
    """Time candidates in rounds, each with more samples of fewer of them, and choose one once it is sure.

    Those within the interval of the best, or within `TIE` of it, are tied: then what the file has stays, else
    the default, and else the first is chosen, so that one GPU gives one file.

    Args:
        candidates: Their numbers, in the order of the declaration.
        time_round: Times them.
        default: The author's default, which stays in for the comparison.
        earlier: The one that the file has.
        expired: Asked between rounds whether there is time for another one.

    Returns:
        The choice; None if none could be timed.
    """
    remaining, times, rounds = list(candidates), dict[int, TimeInterval](), 0
    precise: dict[int, list[TimeInterval]] = {}
    while remaining and rounds < MAX_ROUNDS:
        timed = time_round(remaining, rounds)
        for lost in (candidate for candidate in remaining if candidate not in timed):
            times.pop(lost, None)
        for one, time in timed.items():
            if rounds >= len(KEPT):
                precise.setdefault(one, []).append(time)
            times[one] = _mean(precise.get(one, [time]))
        remaining = [candidate for candidate in remaining if candidate in timed]
        rounds += 1
        if not remaining or expired() or len(remaining) == 1:
            break
        if rounds > len(KEPT) and _is_sure(remaining, times, default, earlier):
            break
        remaining = _halved(remaining, times, default, KEPT[min(rounds, len(KEPT)) - 1])
    if not remaining:
        return None
    tied = tuple(one for one in remaining if _is_tied(one, remaining, times))
    winner = next(one for one in (earlier, default, tied[0]) if one in tied)
    assert winner is not None
    return TuneChoice(winner=winner, times=times, tied=tied, rounds=rounds)


def _mean(rounds: Sequence[TimeInterval]) -> TimeInterval:
    """Return the time of several rounds, whose interval is the narrower for it."""
    median_us, low_us, high_us = (fmean(each) for each in zip(*map(_values, rounds), strict=True))
    narrower = 1 / math.sqrt(len(rounds))
    return TimeInterval(
        median_us=median_us, low_us=median_us - narrower * (median_us - low_us),
        high_us=median_us + narrower * (high_us - median_us),
    )  # fmt: skip


def _values(time: TimeInterval) -> tuple[float, float, float]:
    return time.median_us, time.low_us, time.high_us


def _best(among: Sequence[int], times: Times) -> TimeInterval:
    return times[min(among, key=lambda one: times[one].median_us)]


def _is_tied(one: int, among: Sequence[int], times: Times) -> bool:
    best = _best(among, times)
    return times[one].median_us <= (1 + TIE) * best.median_us or times[one].low_us <= best.high_us


def _is_sure(among: Sequence[int], times: Times, default: int, earlier: int | None) -> bool:
    """Return whether more samples would choose the same: none that comes first is on the border of a tie."""
    border_us = (1 + TIE) * _best(among, times).median_us
    for one in (earlier, default, *among):
        if one is None or one not in among or times[one].low_us > border_us:
            continue
        return times[one].high_us <= border_us or times[one] is _best(among, times)
    return False


def _halved(among: Sequence[int], times: Times, default: int, kept: float) -> list[int]:
    """Return the faster half without what is surely worse, what is nearly as good, and the default."""
    best, count = _best(among, times), max(FEWEST, math.ceil(len(among) / 2))
    by_time = sorted(among, key=lambda one: times[one].median_us)
    faster = {one for one in by_time[:count] if times[one].low_us <= best.high_us}
    near = {one for one in among if times[one].median_us <= (1 + kept) * best.median_us}
    remaining = {*faster, *near, *by_time[:FEWEST], default}
    return [one for one in among if one in remaining]


# ------------------------------------------------------------------ spaces that are too large to time whole

MAX_TIMED = 400
"""Configurations up to which all of a space are timed; beyond it optuna proposes which."""

PROPOSED = 320
"""Candidates that are timed of a larger space."""

BATCH = 32
"""Candidates that are proposed and timed together."""

FINALISTS = 64
"""The fastest of those, which are then timed against each other."""


def new_study(seed: int) -> Any:
    """Return an optuna study that minimizes, and says nothing.

    Raises:
        EnvironmentFault: optuna is not installed.
    """
    try:
        optuna: Any = import_module("optuna")
    except ModuleNotFoundError as error:
        raise EnvironmentFault(
            f"more than {MAX_TIMED} configurations are declared, and optuna, which proposes some of them, "
            'is not installed.\nType: pip install "dotcu[tune]", or yield fewer configurations.'
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True))


def explore(
    space: Sequence[Mapping[str, Any]],
    study: Any,
    time_batch: Callable[[Sequence[int]], Times],
    *,
    first: Sequence[int],
    expired: Callable[[], bool] = lambda: False,
) -> list[int]:
    """Time some candidates of a large space, as a study proposes them, and return the fastest.

    Args:
        space: Each candidate's values by name.
        study: One of optuna's, or what has its `ask`, `tell` and `enqueue_trial`.
        time_batch: Times some candidates; without those that are wrong.
        first: Candidates that are timed in any case: the default, and what the file has.
        expired: Asked between batches whether there is time for another one.
    """
    numbers = {tuple(sorted(values.items())): number for number, values in enumerate(space)}
    names = dict.fromkeys(name for values in space for name in values)
    choices = {name: list(dict.fromkeys(each[name] for each in space if name in each)) for name in names}
    times: dict[int, TimeInterval | None] = {}
    for number in first:
        study.enqueue_trial(dict(space[number]))
    asked = 0
    while len(times) < min(PROPOSED, len(space)) and asked < 8 * PROPOSED and not (times and expired()):
        batch: dict[int, list[Any]] = {}
        while len(batch) < BATCH and asked < 8 * PROPOSED:
            trial, asked = study.ask(), asked + 1
            values = {name: trial.suggest_categorical(name, of_name) for name, of_name in choices.items()}
            number = numbers.get(tuple(sorted(values.items())), -1)
            if number < 0:  # what the author's constraints leave out
                study.tell(trial, state=_failed())
            elif number in times:
                _tell(study, trial, times[number])
            else:
                batch.setdefault(number, []).append(trial)
        timed = time_batch(list(batch))
        for number, trials in batch.items():
            times[number] = timed.get(number)
            for trial in trials:
                _tell(study, trial, times[number])
    found = {number: time for number, time in times.items() if time is not None}
    fastest = sorted(found, key=lambda number: (found[number].median_us, number))[:FINALISTS]
    return sorted({*fastest, *(number for number in first if number in found)})


def _tell(study: Any, trial: Any, time: TimeInterval | None) -> None:
    if time is None:
        study.tell(trial, state=_failed())
    else:
        study.tell(trial, time.median_us)


def _failed() -> Any:
    return import_module("optuna").trial.TrialState.FAIL if find_spec("optuna") else "fail"
