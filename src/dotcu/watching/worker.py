"""A process that loads a target and tries it, again and again, for one that watches.

It reads requests as lines of JSON, and tells what comes of each as lines `{"number": ..., "event": ...}`.
A request that comes meanwhile ends what is under way, between two trials.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence

import torch

from dotcu.checking import checker
from dotcu.checking.outcome import Result
from dotcu.checking.rendering import untried
from dotcu.checking.report import CheckReport
from dotcu.checking.reproduce import by_command
from dotcu.checking.running import Runner
from dotcu.checking.trial import Trial
from dotcu.checking.worker import listen, take, unusable
from dotcu.errors import DotcuError, EnvironmentFault, UsageError
from dotcu.watching import events
from dotcu.watching.events import Event, Request
from dotcu.watching.loading import Loader
from dotcu.watching.needs import needs
from dotcu.watching.timing import timings

LEVEL = "quick"


def main() -> None:
    """Serve until stdin ends."""
    source, answers = take(0, os.O_RDONLY), take(1, os.O_WRONLY)
    faulthandler.enable()
    sys.dont_write_bytecode = True  # Python takes a .pyc for that of a save in the same second
    requests: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    busy = threading.Event()
    threading.Thread(target=listen, args=(source, requests, busy), daemon=True).start()

    def tell(number: int, event: Event) -> None:
        answers.write(json.dumps({"number": number, **event.to_json()}) + "\n")
        answers.flush()

    tell(0, events.Ready())
    loader: Loader | None = None
    while (line := requests.get()) is not None:
        busy.set()
        request = Request.from_json(line)
        loader = loader or Loader(request.target)
        for event in serve(request, loader):
            tell(request.number, event)
            if isinstance(event, events.Broken):
                os._exit(1)  # what tears CUDA down may hang or crash
            if not requests.empty():
                break
        busy.clear()


def serve(request: Request, loader: Loader) -> Iterator[Event]:
    """What comes of a version of the target; whoever has heard enough of it asks for no more."""
    yield events.Begun()
    try:
        device = checker.resolve_device(request.device)
    except UsageError as error:
        yield events.Refused(kind="UsageError", message=str(error))
        return
    try:
        yield from _tried(request, loader, device)
    except EnvironmentFault as error:
        yield events.Refused(kind=type(error).__name__, message=str(error))
    except DotcuError as error:
        yield events.Watched(folders=loader.folders(error))
        again = loader.loads > 1 and not isinstance(error.__cause__, SyntaxError)
        yield events.Unloadable(message=str(error), again=again)


def _tried(request: Request, loader: Loader, device: torch.device) -> Iterator[Event]:
    found = loader.load()
    operators = [operator for _, operator in found]
    planned = checker.prepare(
        operators, device=device, level=LEVEL, seed=request.seed, reproduce=by_command(request.target, found)
    )
    yield events.Planned(
        device=planned.subjects[0].where,
        overloads=tuple(subject.name for subject in planned.subjects),
        trials=len(planned.trials),
    )
    results: list[Result] = []
    start = time.perf_counter()
    for event in _trials(planned, device):
        yield event
        if isinstance(event, events.Tried):
            if not results:  # not before: whoever watches waits for the first verdict
                yield events.Watched(folders=loader.folders())
            results += event.results
    report = planned.report(results, seconds=time.perf_counter() - start)
    yield events.Checked(held=report.held, untried=tuple(_untried(report)), seconds=report.seconds)
    yield events.Needed(kernels=needs(loader.modules(), device))
    if report.held and device.type == "cuda":
        yield events.Timed(timings=tuple(timings(operators, device, request.seed, request.good)))
        yield from _broken(device)
    yield events.Done()


def _trials(planned: checker.Planned, device: torch.device) -> Iterator[Event]:
    """The trials, those first that somebody waits for."""
    runner = Runner()
    for trial in soonest(planned.trials):
        yield events.Trying(trial=trial.name)
        results = tuple(map(planned.reproducible, runner.run(trial)))
        yield events.Tried(trial=trial.name, results=results)
        yield from _broken(device)


def soonest(trials: Iterable[Trial]) -> list[Trial]:
    """The first call of each overload before everything else."""
    calls: dict[str, Trial] = {}
    for trial in (every := list(trials)):
        if trial.kind == "call":
            calls.setdefault(trial.overload, trial)
    first: Sequence[Trial] = list(calls.values())
    return [*first, *(trial for trial in every if trial not in first)]


def _broken(device: torch.device) -> Iterator[Event]:
    why = unusable(device)
    if why:
        yield events.Broken(reason="the kernel left the GPU unusable", evidence=why)


def _untried(report: CheckReport) -> Iterator[str]:
    for overload in report.overloads:
        dtypes = report.untried(overload.name)
        if any(result.overload == overload.name for result in report.results):
            yield from (f"{overload.name}: {dtype}: {why}" for dtype, why in dtypes.items())
        else:
            yield f"{overload.name}: {untried(overload.name)}"
