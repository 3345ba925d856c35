"""The process that makes a first call: it measures each phase up to the result, and some later calls."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from dotcu import settings, telemetry
from dotcu.__about__ import __version__
from dotcu.checking.subject import Subject
from dotcu.checking.target import resolve
from dotcu.compile import driver
from dotcu.errors import OperatorError, UsageError
from dotcu.telemetry import Stopwatch
from dotcu.tracebacks import as_user_error
from dotcu.workers import Channel

LATER_CALLS = 22  # the second, the third, and those whose median is the time of a later call


def handle(request: dict[str, Any], channel: Channel) -> None:
    """Make the call of a request: a target, a folder for caches, and when the process was started."""
    watch = Stopwatch("interpreter", since=request["started"])
    marks = vars(sys.modules["__main__"])["marks"]  # by `first_call.PRELUDE`
    for phase, at in zip(("torch", "dotcu", "measuring"), marks, strict=True):
        watch.switch(phase, at=at)
    os.putenv("CUDA_CACHE_PATH", request["folder"])  # the driver reads it when it starts
    with settings.override(cache_dir=Path(request["folder"], "dotcu")):
        for reply in measure(request["target"], watch):
            channel.reply(reply)


def measure(target: str, start: Stopwatch) -> Iterator[dict[str, Any]]:
    """Call the operator on its first sample; yield the phases, and after more calls the report's fields."""
    gpu = torch.cuda.is_available()
    wait: Callable[[], object] = torch.cuda.synchronize if gpu else lambda: None
    with telemetry.listening(start):
        start.switch("target")
        operators = resolve(target)
        device = torch.device("cuda", 0) if gpu else torch.device("cpu")
        if gpu:
            start.switch("cuda")
            torch.cuda.init()
            start.switch("context")
            wait()
            start.switch("allocator")
            torch.empty(1, device=device)
        start.switch("inputs")
        subjects = [Subject(overload=each, device=device) for each in operators[0][1].overloads.values()]
        cases = ((of, case.sample) for of in subjects for case in of.given(of.overload.dtypes[0]))
        subject, sample = next((c for c in cases if all(t.numel() for t in c[1].tensors)), (None, None))
        wait()
    if subject is None or sample is None:
        raise UsageError(
            f"{subjects[0].name} has no sample with elements, so there is nothing to call it with.\n"
            f"Give the operator samples: @{operators[0][1].__name__}.samples"
        )
    start_s, now = start.read()
    call = Stopwatch("call", since=now)
    happened, remedy = f"a call of {subject.name} failed, on {sample!r}", "See: dotcu check"
    with subject.place(), as_user_error(OperatorError, happened, remedy):
        with telemetry.listening(call), counting_imports(call) as imported:
            subject.overload(*sample.args, **sample.kwargs)
            if gpu:
                call.switch("wait")
            wait()
        yield {
            stage: {name: (seconds * 1e3, watch.times[name]) for name, seconds in spent.items()}
            for stage, watch, spent in (("start", start, start_s), ("call", call, call.read()[0]))
        }
        later_ms = []
        for _ in range(LATER_CALLS):
            begun = time.perf_counter()
            subject.overload(*sample.args, **sample.kwargs)
            wait()
            later_ms.append((time.perf_counter() - begun) * 1e3)
    names = [name for name, _ in operators]
    versions = {"dotcu": __version__, "torch": str(torch.__version__), "Python": sys.version.split()[0]}
    if cuda := driver.version():
        versions["driver"] = "CUDA {}.{}".format(*cuda)
    yield {
        "operator": subject.name,
        "sample": repr(sample),
        "device": f"{torch.cuda.get_device_name()} ({device})" if gpu else subject.where,
        "versions": versions,
        "note": f"the first of {len(names)} operators there: {', '.join(names)}" if names[1:] else "",
        "imported": imported,
        "later_ms": later_ms,
    }


@contextmanager
def counting_imports(watch: Stopwatch) -> Iterator[list[str]]:
    """Count this thread's imports outside of other steps to the step "imports"; yield the modules."""
    names: list[str] = []
    thread = threading.get_ident()
    bootstrap: Any = vars(importlib)["_bootstrap"]
    find_and_load = bootstrap._find_and_load  # `import` and `importlib.import_module` look it up there

    def counted(name: str, import_: Any) -> Any:
        if name in sys.modules or threading.get_ident() != thread or watch.phase != "call":
            return find_and_load(name, import_)
        names.append(name)
        with watch.within("imports"):
            return find_and_load(name, import_)

    bootstrap._find_and_load = counted
    try:
        yield names
    finally:
        bootstrap._find_and_load = find_and_load
