"""The search: halving, ties, a fixed order. Times come from a table."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from dotcu.errors import EnvironmentFault
from dotcu.tuning.search import BATCH, FINALISTS, PROPOSED, TIE, TimeInterval, explore, new_study, search


def timing(
    medians: Mapping[int, float], *, noise: float = 0.001, seed: int | None = None
) -> tuple[Callable[[Sequence[int], int], dict[int, TimeInterval]], list[list[int]]]:
    """Return what times by a table of medians, and the candidates of each round so far."""
    rounds: list[list[int]] = []
    draw = random.Random(seed)

    def time(candidates: Sequence[int], number: int) -> dict[int, TimeInterval]:
        rounds.append(list(candidates))
        reach, off = noise / 2**number, draw.uniform(-noise, noise) / 2**number if seed is not None else 0.0
        return {
            one: TimeInterval(
                median_us=us * (1 + off), low_us=us * (1 + off - reach), high_us=us * (1 + off + reach)
            )
            for one in candidates
            if (us := medians[one]) > 0
        }

    return time, rounds


def test_the_fastest_wins_and_margins_are_against_the_others() -> None:
    time, _ = timing({0: 10.0, 1: 8.0, 2: 6.0})
    choice = search([0, 1, 2], time, default=0)
    assert choice is not None
    assert (choice.winner, choice.tied, choice.runner_up) == (2, (2,), 1)
    assert choice.over(choice.runner_up) == pytest.approx(8 / 6)
    assert choice.over(0) == pytest.approx(10 / 6)


def test_what_is_tied_is_settled_by_the_order_of_the_declaration() -> None:
    time, _ = timing({0: 10.0, 1: 6.0 * (1 + TIE / 2), 2: 6.0})
    choice = search([0, 1, 2], time, default=0)
    assert choice is not None
    assert (choice.winner, choice.tied) == (1, (1, 2))


def test_the_default_is_chosen_where_it_is_tied() -> None:
    choice = search([0, 1, 2], timing({0: 6.03, 1: 6.01, 2: 6.0})[0], default=1)
    assert choice is not None
    assert (choice.winner, choice.tied) == (1, (0, 1, 2))


@pytest.mark.parametrize(("us", "winner", "is_sure"), [(10.19, 0, False), (10.6, 1, True)])
def test_one_on_the_border_of_a_tie_is_timed_again(us: float, winner: int, is_sure: bool) -> None:
    time, rounds = timing({0: us, 1: 10.0, 2: 30.0}, noise=0.05)
    choice = search([0, 1, 2], time, default=2)
    assert choice is not None
    assert choice.winner == winner
    assert (len(rounds) == 4) == is_sure


def test_what_the_file_has_stays_while_it_is_tied() -> None:
    for earlier, winner in ((2, 2), (0, 1)):
        time, _ = timing({0: 10.0, 1: 6.1, 2: 6.0})
        choice = search([0, 1, 2], time, default=0, earlier=earlier)
        assert choice is not None
        assert choice.winner == winner


def test_noisy_candidates_are_halved_until_intervals_part_and_the_default_stays() -> None:
    medians = {one: 10.0 + one % 40 / 4 for one in range(200)} | {7: 5.0}
    time, rounds = timing(medians, noise=1.0)
    choice = search(range(200), time, default=39)
    assert choice is not None
    assert choice.winner == 7
    assert [len(each) for each in rounds[:3]] == [200, 101, 52]
    assert all(39 in each for each in rounds)
    assert choice.rounds < 7


def test_twenty_noisy_runs_choose_the_same() -> None:
    medians = {one: 10.0 + one % 10 for one in range(50)} | {9: 8.0, 4: 8.05}
    winners = set()
    for seed in range(20):
        choice = search(range(50), timing(medians, noise=0.004, seed=seed)[0], default=0)
        assert choice is not None
        winners.add(choice.winner)
    assert winners == {4}


def test_one_that_fails_in_a_round_never_wins() -> None:
    time, _ = timing({0: 10.0, 1: -1.0})
    choice = search([0, 1], time, default=0)
    assert choice is not None
    assert choice.winner == 0
    assert search([1], timing({1: -1.0})[0], default=0) is None


def test_a_spent_budget_ends_after_the_round_with_what_is_known() -> None:
    time, rounds = timing(dict.fromkeys(range(9), 5.0) | {5: 4.0}, noise=1.0)
    choice = search(range(9), time, default=0, expired=lambda: True)
    assert choice is not None
    assert (len(rounds), choice.winner) == (1, 0)  # all intervals overlap: the first in order


# ------------------------------------------------------------------ large spaces


class Draws:
    """A trial that takes what is enqueued, else a random choice."""

    def __init__(self, given: Mapping[str, Any], draw: random.Random) -> None:
        self.given, self.draw = given, draw

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        return self.given[name] if name in self.given else self.draw.choice(choices)


class RandomStudy:
    """Stands for a study of optuna's."""

    def __init__(self) -> None:
        self.queue: list[Mapping[str, Any]] = []
        self.told: list[float | None] = []
        self._draw = random.Random(0)

    def enqueue_trial(self, values: Mapping[str, Any]) -> None:
        self.queue.append(values)

    def ask(self) -> Draws:
        return Draws(self.queue.pop(0) if self.queue else {}, self._draw)

    def tell(self, trial: Draws, value: float | None = None, state: Any = None) -> None:
        self.told.append(value)


SPACE = [{"a": a, "b": b} for a in range(40) for b in range(40) if (a + b) % 3]


def time_batch(batch: Sequence[int]) -> dict[int, TimeInterval]:
    us = {one: 1.0 + abs(SPACE[one]["a"] - 20) + abs(SPACE[one]["b"] - 20) for one in batch}
    return {
        one: TimeInterval(median_us=time, low_us=time, high_us=time)
        for one, time in us.items()
        if SPACE[one]["a"] != 7  # wrong ones
    }


def test_of_a_large_space_some_are_timed_and_the_fastest_go_on() -> None:
    study, batches = RandomStudy(), list[int]()

    def counted(batch: Sequence[int]) -> dict[int, TimeInterval]:
        batches.append(len(batch))
        return time_batch(batch)

    found = explore(SPACE, study, counted, first=[5, 900])
    assert PROPOSED <= sum(batches) < PROPOSED + BATCH
    assert {5, 900} <= set(found)
    assert len(found) <= FINALISTS + 2
    assert None in study.told  # what the constraints leave out, and what is wrong
    slowest = max(time_batch([one])[one].median_us for one in found if one not in (5, 900))
    assert slowest < 20


def test_a_spent_budget_ends_the_proposals() -> None:
    found = explore(SPACE, RandomStudy(), time_batch, first=[5], expired=lambda: True)
    assert 5 in found
    assert len(found) <= BATCH


def test_without_optuna_the_line_to_type_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(EnvironmentFault, match=r"pip install \"dotcu\[tune\]\""):
        new_study(0)
