"""A process that runs trials for another one, so that a crash is only its own.

It reads requests as lines of JSON, and answers each in lines of JSON: `{"begin": name}`, a
`{"result": ...}` for each verdict, `{"end": name}`, and at last `{"done": true}`. `{"unusable": why}`
says that the trial under way has broken the GPU for this process, which ends then; `{"raise": [class,
message]}` that no trial makes sense. Nothing else comes to its stdout: what operators print goes to stderr.
"""

from __future__ import annotations

import faulthandler
import functools
import json
import os
import queue
import threading
from collections.abc import Callable, Iterable
from typing import IO, Any

import torch

from dotcu.checking.catalogue import Level
from dotcu.checking.last_words import MARK
from dotcu.checking.planning import plan
from dotcu.checking.protocol import Request, limit_s
from dotcu.checking.running import Runner
from dotcu.checking.subject import Subject
from dotcu.checking.target import resolve
from dotcu.checking.trial import Trial
from dotcu.checking.trials import compute_sanitizer
from dotcu.errors import DotcuError, UsageError
from dotcu.kernel.cuda import fault_story

Tell = Callable[[dict[str, Any]], None]
_STACK_S = 2.0
"""So long before its limit a trial that hangs has its stack written to stderr."""


def main() -> None:
    """Serve until stdin ends."""
    source, answers = take(0, os.O_RDONLY), take(1, os.O_WRONLY)
    faulthandler.enable()
    requests: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    busy = threading.Event()
    threading.Thread(target=listen, args=(source, requests, busy), daemon=True).start()

    def tell(answer: dict[str, Any]) -> None:
        if "done" in answer:
            busy.clear()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    while (line := requests.get()) is not None:
        busy.set()
        if not serve(Request.from_json(line), tell):
            os._exit(1)  # what tears CUDA down may hang or crash
        busy.clear()


def take(number: int, how: int) -> IO[str]:
    """A file descriptor for this module alone; who uses its number gets stderr, or an empty input."""
    kept = os.dup(number)
    if how == os.O_RDONLY:
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, number)
        os.close(empty)
    else:
        os.dup2(2, number)
    return os.fdopen(kept, "r" if how == os.O_RDONLY else "w", encoding="utf-8")


def listen(source: Iterable[str], requests: queue.SimpleQueue[str | None], busy: threading.Event) -> None:
    """Pass requests on. Whoever asked is gone when they end: then there is nobody to work for."""
    for line in source:
        requests.put(line)
    requests.put(None)
    if busy.is_set():
        os._exit(1)


def serve(request: Request, tell: Tell) -> bool:
    """Run the trials of a request. Whether this process can run more."""
    torch.set_num_threads(request.threads)
    device, runner = torch.device(request.device), Runner()
    try:
        for trial in _wanted(request):
            os.write(2, f"{MARK}{trial.name}\n".encode())
            tell({"begin": trial.name})
            _run(runner, trial, tell)
            why = unusable(device)
            if why:
                tell({"unusable": why})
                return False
            tell({"end": trial.name})
    except DotcuError as error:
        tell({"raise": [type(error).__name__, str(error)]})
        return True
    tell({"done": True})
    return True


def _wanted(request: Request) -> list[Trial]:
    where = (request.target, request.overload, request.device)
    every = _plan(*where, request.level, request.seed, request.bare)
    return [trial for trial in every if request.bare or trial.name in request.trials]


@functools.lru_cache(maxsize=4)  # samples on the GPU stay in memory while their plan does
def _plan(target: str, overload: str, device: str, level: int, seed: int, bare: bool) -> tuple[Trial, ...]:
    subject = Subject(
        overload=_overload(target, overload), device=torch.device(device), level=Level(level), seed=seed
    )
    return tuple((compute_sanitizer.bare if bare else plan)(subject))


def _overload(target: str, name: str) -> Any:
    for operator in _operators(target):
        for overload in operator.overloads.values():
            if overload.qualified_name == name:
                return overload
    raise UsageError(
        f"{target} has no overload {name!r} in a fresh process, where trials run.\n"
        "Define operators whenever their file is imported, whatever the program does."
    )


@functools.cache
def _operators(target: str) -> list[Any]:
    return [operator for _, operator in resolve(target)]


def _run(runner: Runner, trial: Trial, tell: Tell) -> None:
    faulthandler.dump_traceback_later(limit_s(trial.kind) - _STACK_S)
    try:
        for result in runner.run(trial):
            tell({"result": result.to_json()})
    finally:
        faulthandler.cancel_dump_traceback_later()


def unusable(device: torch.device) -> str:
    """Why no more work can be done on a device in this process; empty where it can.

    A kernel's fault ends CUDA for its process. A capture that failed may leave torch's generator in its
    hands, which a random number shows.
    """
    if device.type != "cuda":
        return ""
    try:
        torch.cuda.synchronize(device)
        torch.empty(1, device=device).uniform_()
        torch.cuda.synchronize(device)
    except RuntimeError as error:  # torch.AcceleratorError is one
        return fault_story(error) or f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return ""
