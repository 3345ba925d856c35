"""Copies of what calls gave while they were timed, to be judged afterwards."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import torch

from dotcu.benchmark.referee import Referee, Results
from dotcu.benchmark.verify import unreadable
from dotcu.benchmark.workloads.memory import free_bytes
from dotcu.benchmark.workloads.refresh import Refreshing
from dotcu.checking.memory import snapshot
from dotcu.checking.trials.telling import first_lines
from dotcu.operator import Sample

SPARE = 4
"""So many times a result's bytes must be free for it to be copied: calls that are timed need memory, too."""

KEPT = 4
"""Copies of a contender's results beside the latest one: a fair draw from all calls that were looked at."""

LARGE = 2**24
"""Of results with more elements, one copy is kept beside the latest: to judge one takes a second."""


@dataclass(frozen=True, kw_only=True)
class _Taken:
    """A result of a call that was timed.

    Attributes:
        turn: Whose values its inputs had.
        what: Why it cannot be read; then there are no results.
    """

    name: str
    turn: int
    results: Results
    what: str


class _Copies:
    """Those of one contender: the latest one, and a few of the others, each as likely as any."""

    def __init__(self, chance: random.Random) -> None:
        self.latest: _Taken | None = None
        self.others: list[_Taken] = []
        self._chance, self._seen = chance, 0

    def retire(self) -> None:
        """Make the latest one of the others, or let it go."""
        if self.latest is not None:
            self._seen += 1
            most = KEPT if sum(tensor.numel() for tensor in self.latest.results) <= LARGE else 1
            place = self._chance.randrange(max(self._seen, most))
            if len(self.others) < most:
                self.others.append(self.latest)
            elif place < most:
                self.others[place] = self.latest
        self.latest = None

    def let_one_go(self) -> bool:
        """Let one of the others go; whether there was one."""
        if self.others:
            self.others.pop(self._chance.randrange(len(self.others)))
            return True
        return False

    def all(self) -> list[_Taken]:
        """What there is."""
        return [*self.others, *([] if self.latest is None else [self.latest])]


class Probes:
    """Takes results of calls that are being timed, and judges them once nothing is timed any more.

    Attributes:
        wrong: What is wrong with what contenders gave, by name, as far as it was judged: after an interrupt,
            too.
        missed: So many results of each contender could not be copied, or not be judged, for want of memory.
    """

    def __init__(self, referee: Referee, refresh: Refreshing) -> None:
        self._referee, self._refresh = referee, refresh
        chance = random.SystemRandom()
        self._copies: defaultdict[str, _Copies] = defaultdict(lambda: _Copies(chance))
        self.wrong: dict[str, str] = {}
        self.missed: Counter[str] = Counter()
        self._copied: Counter[str] = Counter()

    def take(self, name: str, sample: Sample, result: Any) -> None:
        """Copy what a call has just given, on torch's current stream. Does not synchronize."""
        if self._referee.why_not:
            return
        self._copies[name].retire()
        turn = self._refresh.turn_of(sample)
        got: Results = ()
        try:
            got = self._referee.results(sample, result)
            what = unreadable(self._referee, got)
        except Exception as error:  # of this contender alone: a timer would take it for a fault of the device
            what = first_lines(error)
        copies = () if what else self._copy(name, got)
        if copies is None:
            self.missed[name] += 1
            return
        self._copied[name] += 1
        self._copies[name].latest = _Taken(name=name, turn=turn, results=copies, what=what)

    def _copy(self, name: str, got: Results) -> Results | None:
        """Copies of results, for which older ones may go; None where memory does not reach."""
        needed = SPARE * sum(tensor.nbytes for tensor in got)
        while free_bytes(self._referee.device) < needed:
            if not self._copies[name].let_one_go():
                return None
        try:
            return tuple(map(snapshot, got))
        except torch.OutOfMemoryError:
            return None

    def judge(self) -> dict[str, str]:
        """What is wrong with what contenders gave, in words, by name; one that is right is not there.

        Note:
            Synchronizes, and lets the copies go.
        """
        turns: defaultdict[int, list[_Taken]] = defaultdict(list)
        for copies in self._copies.values():
            for taken in copies.all():
                turns[taken.turn].append(taken)
        self._copies.clear()
        self.wrong = {}
        for turn in sorted(turns):
            for name, what in self._judged(turn, turns.pop(turn)).items():
                self.wrong.setdefault(name, what)
        return self.wrong

    def mark(self, name: str) -> str:
        """What a reader has to know of how a contender was looked at; empty where as it should be."""
        if not self.missed[name]:
            return ""
        how = "verified only in part" if self._copied[name] else "not verified"
        return f"{how} while it was timed: too little memory"

    def _judged(self, turn: int, those: list[_Taken]) -> dict[str, str]:
        """Those of one turn, by one oracle."""
        found = {
            taken.name: f"cannot be read where it is timed: {taken.what}" for taken in those if taken.what
        }
        results = {f"{i} {taken.name}": taken.results for i, taken in enumerate(those) if not taken.what}
        if not results:
            return found
        try:
            judged = self._referee.judge(self._refresh.inputs(turn), results)
        except torch.OutOfMemoryError:
            for taken in those:
                self._copied[taken.name] -= 1
                self.missed[taken.name] += 1
            return found
        except Exception as error:
            words = f"could not be judged where it was timed: {first_lines(error)}"
            return found | {taken.name: words for taken in those}
        for key, what in judged.items():
            if what:
                name = key.partition(" ")[2]
                found.setdefault(name, f"was right at first, and is wrong where it is timed: {what}")
        return found
