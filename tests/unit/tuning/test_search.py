"""The search: halving, ties, a fixed order. Times come from a table."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import pytest

from dotcu.tuning.search import TIE, TimeInterval, search


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
