"""Many builds at once: NVRTC compiles one source at a time in a process, so each core gets a process."""

from __future__ import annotations

import base64
import dataclasses
import functools
import logging
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from dotcu import settings
from dotcu.compile import cache
from dotcu.compile.build import build_of, note_compile
from dotcu.compile.cache import Store
from dotcu.compile.object_code import ObjectCode
from dotcu.compile.plan import BuildInputs
from dotcu.errors import DotcuError, JitDisabled, SourceError
from dotcu.tracebacks import called_from, caller_line

if TYPE_CHECKING:
    from dotcu import workers

FEW = 6
"""A process takes as long to start as some compiles."""
ENTRY = "dotcu.compile.pool:serve"
DOWNLOADS = 8
"""The number of objects that are asked of a store at once."""

_ALONE = "pool"
"""The key of the lock of a process that starts others."""


def build_all(
    requests: Sequence[BuildInputs], report: Callable[[BuildInputs], object] = lambda _: None
) -> dict[BuildInputs, ObjectCode | SourceError]:
    """Return the object code of each request, or why there is none; compile on every core what is missing.

    Args:
        requests: The builds; plain names that the preprocessor hides are left out of their code.

    Raises:
        JitDisabled: Something would have to be compiled and `DOTCU_JIT=error` forbids that.
    """
    done: dict[BuildInputs, ObjectCode | SourceError] = {}
    reported = set()
    for one, code in _built(list(dict.fromkeys(requests))):
        if code is not None:
            done[one] = code
        if one not in reported:
            reported.add(one)
            report(one)
    return {one: done[one] for one in requests}


def _built(requests: Sequence[BuildInputs]) -> Iterator[tuple[BuildInputs, ObjectCode | SourceError | None]]:
    """Yield each request with its code, some before that without: where a worker has compiled it."""
    with settings.override(cache_remote=None):
        found, keys = _found(requests)
    yield from found.items()
    left, store = [one for one in requests if one not in found], Store(cache.location())
    if not left:
        return
    # of processes that start at once, one asks the store for everything, and starts workers
    with store.lock(_ALONE, lambda: True) as alone:
        if alone and settings.current().cache_remote:
            found, _ = _found(left, at_once=DOWNLOADS)
            yield from found.items()
            left = [one for one in left if one not in found]
        if alone and settings.current().jit != "error" and len(left) >= 2 * FEW:
            one = next(_in_order(store, {one: keys[one] for one in left}))
            yield one, _build(one)
            left.remove(one)
            # by now, others that started with this process make the rest themselves, and need no workers
            for one in compile_ahead([one for one in left if not _is_made(store, keys[one])]):
                yield one, None
    for one in _in_order(store, {one: keys[one] for one in left}):
        yield one, _build(one)


def _is_made(store: Store, key: str) -> bool:
    """Return whether an entry is there, or another process holds its lock."""
    if store.path(key).is_dir():
        return True
    with store.lock(key, lambda: True) as is_free:
        return not is_free


def _found(
    requests: Sequence[BuildInputs], *, at_once: int = 1
) -> tuple[dict[BuildInputs, ObjectCode | SourceError], dict[BuildInputs, str]]:
    """Return the code of those requests for which nothing has to be compiled, and the keys of the others."""

    def build_if_there(one: BuildInputs) -> ObjectCode | SourceError | str:
        try:
            return _build(one)
        except JitDisabled as error:
            return error.key

    with settings.override(jit="error"):
        if at_once == 1:
            codes = list(map(build_if_there, requests))
        else:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(at_once) as threads:
                codes = list(threads.map(build_if_there, requests))
    found = {one: code for one, code in zip(requests, codes, strict=True) if not isinstance(code, str)}
    return found, {one: key for one, key in zip(requests, codes, strict=True) if isinstance(key, str)}


def _in_order(store: Store, keys: Mapping[BuildInputs, str]) -> Iterator[BuildInputs]:
    """Yield requests, those that another process is making last: so that processes share the work."""
    requests, taken = list(keys), []
    first = os.getpid() % max(1, len(requests))
    for one in [*requests[first:], *requests[:first]]:
        with store.lock(keys[one], lambda: True) as is_free:
            pass
        if is_free:
            yield one
        else:
            taken.append(one)
    yield from taken


def compile_ahead(requests: Sequence[BuildInputs], *, few: int = FEW) -> Iterator[BuildInputs]:
    """Compile into the cache on every core, and yield each request that is done, or has failed.

    If there are few, nothing is compiled or yielded: the process that wants them is as fast.

    Args:
        few: How many of them take as long as a process to start.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(cores, len(requests) // few)
    if count > 1:
        from dotcu import workers  # a process that finds everything needs none

        ask = functools.partial(_ask, caller=caller_line())
        yield from workers.run_pool([workers.Worker(ENTRY) for _ in range(count)], requests, ask)


def _build(one: BuildInputs) -> ObjectCode | SourceError:
    try:
        return build_of(one, visible=True)
    except SourceError as error:
        return error


def _ask(worker: workers.Worker, one: BuildInputs, *, caller: str) -> Iterator[BuildInputs]:
    """Have a worker compile into the cache. Where it ends, the asking process compiles, and has the error."""
    from dotcu import workers

    with suppress(workers.WorkerCrash):
        worker.send(as_text((dataclasses.asdict(settings.current()), caller, one)))
        while (text := worker.receive()) is not None:
            for record in of_text(text):  # as if this process had compiled
                note_compile(record.dotcu_compile)
                logger = logging.getLogger(record.name)
                if logger.isEnabledFor(record.levelno):
                    logger.handle(record)
    yield one


def serve(request: str, channel: workers.Channel) -> None:
    """Compile in a worker."""
    given, caller, one = of_text(request)
    adopt(tuple(given.items()))
    with called_from(caller), _compiles() as records, suppress(DotcuError):
        _build(one)
    channel.reply(as_text(records))


@contextmanager
def _compiles() -> Iterator[list[logging.LogRecord]]:
    """Collect the log records of the compiles of a block."""
    records: list[logging.LogRecord] = []

    def keep(record: logging.LogRecord) -> bool:
        if getattr(record, "dotcu_compile", None) is None:
            return True
        record.msg, record.args = record.getMessage(), ()
        records.append(record)
        return False

    logger = logging.getLogger("dotcu")
    before = logger.level
    logger.addFilter(keep)
    logger.setLevel(logging.INFO)
    try:
        yield records
    finally:
        logger.removeFilter(keep)
        logger.setLevel(before)


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
