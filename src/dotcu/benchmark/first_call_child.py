"""The process that makes a first call: it measures every phase up to the call's result, and some later calls.

Replies with the fields of a `FirstCallRun` as soon as the first result is there, and after the later calls
with those of the `FirstCall`.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from dotcu import __version__, settings, stopwatch
from dotcu.checking.subject import Subject
from dotcu.checking.target import resolve
from dotcu.compile import driver
from dotcu.errors import OperatorError, UsageError
from dotcu.operator import Operator, Sample
from dotcu.stopwatch import Stopwatch
from dotcu.tracebacks import as_user_error
from dotcu.workers import Channel

LATER_CALLS = 22
"""The second, the third, and those whose median is the time of a later call."""


def handle(request: dict[str, Any], channel: Channel) -> None:
    """Make the call of a request: a target, a folder for caches, and when the process was started."""
    watch = Stopwatch("interpreter", since=request["started"])
    marks = vars(sys.modules["__main__"])["marks"]  # by `first_call.PRELUDE`
    for phase, at in zip(("torch", "dotcu", "measuring"), marks, strict=True):
        watch.switch(phase, at=at)
    drivers = Path(request["folder"], "driver")
    drivers.mkdir(exist_ok=True)
    os.putenv("CUDA_CACHE_PATH", str(drivers))  # the driver reads it when it starts
    with settings.override(cache_dir=Path(request["folder"], "dotcu")):
        measure(request["target"], watch, channel.reply)


def measure(target: str, start: Stopwatch, reply: Callable[[dict[str, Any]], None]) -> None:
    """Call the operator on its first sample, again and again.

    Args:
        target: `ops.py:scale_add`; without a name, the first of its operators.
        start: A stopwatch that runs since the process was started.
        reply: Takes the fields of the run after the first call, and those of the report at the end.
    """
    with stopwatch.listening(start):
        start.switch("target")
        operators = resolve(target)
        device = _start_cuda(start)
        start.switch("inputs")
        subject, sample = _first_sample(operators[0][1], device)
        _wait(device)
    start_s, now = start.read()
    call = Stopwatch("call", since=now)
    happened = f"a call of {subject.name} failed, on {sample!r}"
    remedy = "A call is timed if it returns a result.\nSee: dotcu check"
    with subject.place(), as_user_error(OperatorError, happened, remedy):
        with stopwatch.listening(call), counting_imports(call) as imported:
            subject.overload(*sample.args, **sample.kwargs)
            if subject.on_gpu:
                call.switch("wait")
            _wait(device)
        phases = {
            stage: {name: (seconds * 1e3, watch.times[name]) for name, seconds in spent.items()}
            for stage, watch, spent in (("start", start, start_s), ("call", call, call.read()[0]))
        }
        reply({"phases": phases, "imported": imported})
        later_ms = []
        for _ in range(LATER_CALLS):
            begun = time.perf_counter()
            subject.overload(*sample.args, **sample.kwargs)
            _wait(device)
            later_ms.append((time.perf_counter() - begun) * 1e3)
    names = [name for name, _ in operators]
    gpu = f"{torch.cuda.get_device_name(device)} ({device})" if subject.on_gpu else ""
    cuda = driver.version()
    versions = {"dotcu": __version__, "torch": str(torch.__version__), "Python": platform.python_version()}
    versions |= {"driver": "CUDA {}.{}".format(*cuda)} if cuda else {}
    reply(
        {
            "operator": subject.name,
            "sample": repr(sample),
            "device": gpu or subject.where,
            "recorded": subject.overload.call_cache.recorded > 0,
            "versions": {**versions, "on": sys.platform},
            "note": f"the first of {len(names)} operators there: {', '.join(names)}" if names[1:] else "",
            "later_ms": later_ms,
        }
    )


def _start_cuda(watch: Stopwatch) -> torch.device:
    """Start CUDA, step by step, and return its device; without a GPU, that of the simulator."""
    watch.switch("cuda")
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.init()
    watch.switch("context")
    torch.cuda.synchronize()  # creates the primary context
    watch.switch("allocator")
    torch.empty(1, device="cuda")
    return torch.device("cuda", torch.cuda.current_device())


def _first_sample(operator: Operator, device: torch.device) -> tuple[Subject, Sample]:
    """Return the first sample with elements, in the first dtype, of the first overload that has one."""
    for overload in operator.overloads.values():
        subject = Subject(overload=overload, device=device)
        for case in subject.given(overload.dtypes[0]):
            if all(tensor.numel() for tensor in case.sample.tensors):
                return subject, case.sample
    raise UsageError(
        f"{operator.qualified_name} has no sample with elements, so there is nothing to call it with.\n"
        "A first call is made with the first sample of the first dtype.\n"
        f"Give the operator samples: @{operator.__name__}.samples"
    )


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def counting_imports(watch: Stopwatch) -> Iterator[list[str]]:
    """Count imports of this thread to the step "imports" while a stopwatch is in the phase "call".

    An import within a step that reports itself is part of that step.

    Yields:
        The modules that were imported, without those that these import in turn.
    """
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
