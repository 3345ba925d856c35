"""The work of checking, in pieces for several workers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dotcu.checking.protocol import Request
from dotcu.checking.trial import Trial

MOST_DEATHS = 3
"""How many workers an overload may end; what is left of its trials then is not tried."""

PIECES_PER_WORKER = 4
"""So that no worker is left with much when the others have nothing more to do."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Trials of one overload, by name, for one worker.

    Attributes:
        request: All of the request but the names of the trials.
    """

    request: Request
    trials: Mapping[str, Trial]


class Pieces:
    """What is left to do, for several threads; and how many workers each overload has ended."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.stopped = False
        self._left = iter(pieces)
        self._deaths: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Piece]:
        while not self.stopped:
            with self._lock:
                piece = next(self._left, None)
            if piece is None:
                return
            yield piece

    def died(self, overload: str) -> None:
        """Count a worker that ended over a trial of an overload."""
        with self._lock:
            self._deaths[overload] += 1

    def given_up(self, overload: str) -> bool:
        """Whether an overload has ended too many."""
        return self._deaths[overload] >= MOST_DEATHS


def split(requests: Mapping[str, Request], trials: Sequence[Trial], jobs: int) -> list[Piece]:
    """Trials by overload, and those of an overload in pieces where there are several workers."""
    most = max(1, len(trials) if jobs == 1 else -(-len(trials) // (PIECES_PER_WORKER * jobs)))
    by_overload: dict[str, list[Trial]] = {}
    for trial in trials:
        by_overload.setdefault(trial.overload, []).append(trial)
    return [
        Piece(request=requests[name], trials={trial.name: trial for trial in own[start : start + most]})
        for name, own in by_overload.items()
        for start in range(0, len(own), most)
    ]
