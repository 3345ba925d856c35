"""Running trials in processes of their own: what a kernel destroys there is found, and the rest goes on.

An illegal address ends CUDA for its process, a wrong pointer on the CPU ends the process, and a loop
without end never gives it back. So trials run in workers, where a fresh process can find the operator.
What ends a worker has fallen short, and another worker takes over.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from dotcu.checking import running
from dotcu.checking.attendant import Attendant
from dotcu.checking.origin import request_for
from dotcu.checking.outcome import Result
from dotcu.checking.pieces import Piece, Pieces, split
from dotcu.checking.protocol import Request
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Trial
from dotcu.checking.trials import compute_sanitizer

MOST_WORKERS = 4
"""At once. On a GPU each has a context of half a gigabyte."""

WORTH_WORKERS = {"cpu": 300, "cuda": 0}
"""With more trials than that workers are started, by the device's type: each takes seconds to get ready."""

TRIALS_PER_WORKER = 75
"""So many make another worker worth its start."""

ALONE = {"large"}
"""Kinds of trials that take most of a GPU: they come after the others, one by one."""


def run(subjects: Sequence[Subject], trials: Sequence[Trial], jobs: int | None = None) -> Iterator[Result]:
    """The results of trials, as they come: from workers where that is possible and worth it, else from here.

    Args:
        subjects: What the trials are of.
        jobs: How many workers run at once, 0 for none; by default what the machine and the work suggest.

    Raises:
        UsageError, EnvironmentFault: No trial can make sense.
    """
    requests = {subject.name: asked for subject in subjects if (asked := request_for(subject)) is not None}
    there = [trial for trial in trials if trial.overload in requests]
    if jobs is None:
        native = any(not subject.has_body and subject.name in requests for subject in subjects)
        jobs = jobs_for(subjects[0].device, len(there), native=native) if subjects else 0
    if not jobs:
        yield from running.run(trials)
        return
    yield from _in_workers(requests, there, jobs)
    yield from compute_sanitizer.run(requests, there)
    yield from running.run(trial for trial in trials if trial.overload not in requests)


class OneByOne:
    """Runs trials one at a time for somebody who waits for each: in a worker, but here in the simulator."""

    def __init__(self) -> None:
        self._attendant = Attendant(Pieces(()))

    def run(self, subject: Subject, trial: Trial) -> list[Result]:
        """The results of one trial.

        Raises:
            UsageError, EnvironmentFault: No trial can make sense.
        """
        request = None if subject.simulated else request_for(subject)
        if request is None:
            return running.run_one(trial)
        return list(self._attendant.do(Piece(request=request, trials={trial.name: trial})))

    def close(self) -> None:
        """End the worker, if there is one."""
        self._attendant.close()


def jobs_for(device: torch.device, count: int, *, native: bool = False) -> int:
    """How many workers run so many trials on a device; 0 where this process does so itself.

    Args:
        native: A library computes some, and what is wrong with it may end its process.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not native and (count <= WORTH_WORKERS[device.type] or (device.type == "cpu" and cores < 2)):
        return 0
    return min(MOST_WORKERS, cores, 1 + count // TRIALS_PER_WORKER)


def _in_workers(requests: Mapping[str, Request], trials: Sequence[Trial], jobs: int) -> Iterator[Result]:
    alone = [trial for trial in trials if trial.kind in ALONE and _on_gpu(requests[trial.overload])]
    others = [t for t in trials if t not in alone and t.kind not in compute_sanitizer.TOOLS]
    threads = max(1, torch.get_num_threads() // jobs)
    shared = {name: replace(request, threads=threads) for name, request in requests.items()}
    yield from together(Pieces(split(shared, others, jobs)), jobs)
    yield from together(Pieces(split(requests, alone, 1)), 1)


def _on_gpu(request: Request) -> bool:
    return torch.device(request.device).type == "cuda"


def together(work: Pieces, jobs: int) -> Iterator[Result]:
    """The results of several workers, in the order in which they come."""
    found: queue.SimpleQueue[Result | BaseException | None] = queue.SimpleQueue()
    attendants = [Attendant(work) for _ in range(jobs)]
    threads = [threading.Thread(target=_attend, args=(each, found), daemon=True) for each in attendants]
    for thread in threads:
        thread.start()
    try:
        yield from _arriving(found, jobs)
    finally:
        work.stopped = True
        for each in attendants:
            each.kill()
        for thread in threads:
            thread.join()


def _attend(attendant: Attendant, found: queue.SimpleQueue[Result | BaseException | None]) -> None:
    try:
        for result in attendant.results():
            found.put(result)
    except BaseException as error:  # for the thread that waits
        found.put(error)
    finally:
        found.put(None)


def _arriving(found: queue.SimpleQueue[Result | BaseException | None], jobs: int) -> Iterator[Result]:
    while jobs:
        result = found.get()
        if isinstance(result, BaseException):
            raise result
        if result is None:
            jobs -= 1
        else:
            yield result
