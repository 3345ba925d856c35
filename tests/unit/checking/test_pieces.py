"""The work is split so that all of it is done, once, and no worker has most of it."""

from __future__ import annotations

from dotcu.checking.pieces import MOST_DEATHS, Pieces, split
from dotcu.checking.protocol import Request
from dotcu.checking.trial import Trial

NAMES = ("a::b", "a::c")
REQUESTS = {
    name: Request(target="x", overload=name, device="cpu", level=0, seed=0, trials=(), threads=1)
    for name in NAMES
}


def trials(count: int) -> list[Trial]:
    return [
        Trial(overload=name, kind="call", case=str(i), checks=("numerics",), run=lambda: ())
        for i in range(count)
        for name in NAMES
    ]


def test_every_trial_is_in_one_piece_of_its_overload() -> None:
    work = trials(50)
    found = split(REQUESTS, work, 3)
    assert sorted(name for piece in found for name in piece.trials) == sorted(t.name for t in work)
    assert all(t.overload == piece.request.overload for piece in found for t in piece.trials.values())
    assert max(len(piece.trials) for piece in found) <= 10


def test_one_worker_gets_each_overload_whole() -> None:
    assert [len(piece.trials) for piece in split(REQUESTS, trials(50), 1)] == [50, 50]


def test_nothing_to_do_is_no_piece() -> None:
    assert split(REQUESTS, [], 4) == []


def test_who_takes_pieces_at_the_same_time_takes_each_once() -> None:
    work = Pieces(split(REQUESTS, trials(20), 2))
    first, second = iter(work), iter(work)
    names = [list(piece.trials) for pair in zip(first, second, strict=False) for piece in pair]
    flat = [name for each in names for name in each]
    assert len(flat) == len(set(flat)) >= 36


def test_an_overload_is_given_up_after_as_many_deaths_as_the_table_says() -> None:
    work = Pieces([])
    for _ in range(MOST_DEATHS):
        assert not work.given_up("a::b")
        work.died("a::b")
    assert work.given_up("a::b")
    assert not work.given_up("a::c")
