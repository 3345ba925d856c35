"""Figures from the times of rounds: spreads, ratios and differences round by round, goals."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Times = Mapping[str, Sequence[float]]
"""Microseconds of one call, one figure for each round, by contender."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The median of some figures, their quartiles and their range."""

    median: float
    p25: float
    p75: float
    min: float
    max: float


def spread(values: Sequence[float]) -> Spread:
    """Summarize figures, one at least."""
    p25, median, p75 = (
        statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    )
    return Spread(median=median, p25=p25, p75=p75, min=min(values), max=max(values))


def ratios(times: Times, of: str, to: str) -> list[float]:
    """One contender's time over another's, round by round, so that what drifts between rounds cancels."""
    return [a / b for a, b in zip(times[of], times[to], strict=True)]


def differences(times: Times, of: str, to: str) -> list[float]:
    """One contender's time less another's, round by round."""
    return [a - b for a, b in zip(times[of], times[to], strict=True)]


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A bound on the median of a figure.

    Attributes:
        name: What must hold, in words.
        unit: Of the figure: "times" or "us".
        needs: The contenders that it is made of.
        figure: Makes it, one for each round.
    """

    name: str
    at_most: float
    unit: str
    needs: tuple[str, ...]
    figure: Callable[[Times], Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a goal held. One that could not be measured has a reason, no figure, and did not hold."""

    goal: str
    at_most: float
    unit: str
    figure: Spread | None
    held: bool
    reason: str = ""


def at_most_times(of: str, bound: float, to: str) -> Goal:
    """A goal for a ratio."""
    return Goal(
        name=f"{of}: at most {bound:g} times {to}",
        at_most=bound,
        unit="times",
        needs=(of, to),
        figure=lambda times: ratios(times, of, to),
    )


def at_most_more(of: str, bound_us: float, to: str) -> Goal:
    """A goal for a difference."""
    return Goal(
        name=f"{of}: at most {bound_us:g} us more than {to}",
        at_most=bound_us,
        unit="us",
        needs=(of, to),
        figure=lambda times: differences(times, of, to),
    )


def judge(goal: Goal, times: Times) -> Verdict:
    """Compare a goal's median with its bound."""
    missing = [name for name in goal.needs if name not in times]
    figure = None if missing else spread(goal.figure(times))
    return Verdict(
        goal=goal.name,
        at_most=goal.at_most,
        unit=goal.unit,
        figure=figure,
        held=figure is not None and figure.median <= goal.at_most,
        reason=f"without a time: {'; '.join(missing)}" if missing else "",
    )
