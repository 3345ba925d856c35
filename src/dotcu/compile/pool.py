"""Many builds at once: NVRTC compiles one source at a time in a process, so each core gets a process."""

from __future__ import annotations

import base64
import dataclasses
import functools
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from dotcu import settings, workers
from dotcu.compile.build import BuildInputs, build_visible
from dotcu.compile.object_code import ObjectCode
from dotcu.errors import DotcuError, JitDisabled, SourceError

FEW = 6
"""A process takes as long to start as some compiles."""
ENTRY = "dotcu.compile.pool:serve"


def build_all(
    requests: Sequence[BuildInputs], report: Callable[[BuildInputs], object] = lambda _: None
) -> dict[BuildInputs, ObjectCode | SourceError]:
    """Return the object code of each request, or why there is none; compile on every core what is missing.

    Args:
        requests: The builds; plain names that the preprocessor hides are left out of their code.
        report: Is called with each one that is done.

    Raises:
        JitDisabled: Something would have to be compiled and `DOTCU_JIT=error` forbids that.
    """
    done: dict[BuildInputs, ObjectCode | SourceError] = {}
    with settings.override(jit="error"):
        for one in dict.fromkeys(requests):
            with suppress(JitDisabled):
                done[one] = _build(one)
                report(one)
    left = [one for one in dict.fromkeys(requests) if one not in done]
    reported = set()
    if settings.current().jit != "error":
        for one in compile_ahead(left):
            reported.add(one)
            report(one)
    for one in left:  # from the cache
        done[one] = _build(one)
        if one not in reported:
            report(one)
    return {one: done[one] for one in requests}


def compile_ahead(requests: Sequence[BuildInputs]) -> Iterator[BuildInputs]:
    """Compile into the cache on every core, and yield each request that is done, or has failed.

    Of a few, none is compiled or yielded: the process that wants them is as fast.
    """
    count = min(os.cpu_count() or 1, len(requests) // FEW)
    if count > 1:
        yield from workers.run_pool([workers.Worker(ENTRY) for _ in range(count)], requests, _ask)


def _build(one: BuildInputs) -> ObjectCode | SourceError:
    given = {field.name: getattr(one, field.name) for field in dataclasses.fields(BuildInputs)}
    try:
        return build_visible(given.pop("source"), **given)
    except SourceError as error:
        return error


def _ask(worker: workers.Worker, one: BuildInputs) -> Iterator[BuildInputs]:
    """Have a worker compile into the cache. Where it ends, the asking process compiles, and has the error."""
    with suppress(workers.WorkerCrash):
        worker.send(as_text((dataclasses.asdict(settings.current()), one)))
        while worker.receive() is not None:
            pass
    yield one


def serve(request: str, channel: workers.Channel) -> None:
    """Compile in a worker."""
    given, one = of_text(request)
    adopt(tuple(given.items()))
    with suppress(DotcuError):
        _build(one)


@functools.cache
def adopt(given: tuple[tuple[str, object], ...]) -> AbstractContextManager[settings.Settings]:
    """Take over the settings of the process that asks."""
    adopted = settings.override(**dict(given))
    adopted.__enter__()
    return adopted


def as_text(value: object) -> str:
    """Return a value as text for a worker."""
    return base64.b64encode(pickle.dumps(value)).decode()


def of_text(text: str) -> Any:
    """Return the value of a text from `as_text`."""
    return pickle.loads(base64.b64decode(text))
