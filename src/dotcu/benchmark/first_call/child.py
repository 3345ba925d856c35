"""What runs in a process of its own: everything up to an operator's first call, phase by phase.

It writes lines of JSON. As soon as the first result is there,
`{"first": [[stage, phase, ms, times], ...], "imported": [module, ...]}`; after the calls that follow,
`{"rest": {...}}`; or `{"raise": [class, message]}`. Nothing else comes to its stdout: what a target prints
goes to stderr.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import torch

from dotcu import __version__, settings, stopwatch
from dotcu.benchmark.first_call import imports
from dotcu.benchmark.first_call.catalogue import Stage
from dotcu.checking.blame import blaming
from dotcu.checking.subject import Subject
from dotcu.checking.target import resolve
from dotcu.compile import driver
from dotcu.errors import DotcuError, OperatorError, UsageError
from dotcu.operator import Operator, Sample
from dotcu.stopwatch import Stopwatch

Tell = Callable[[dict[str, Any]], None]

LATER = 22
"""Calls after the first: the second, the third, and those that a later call's time is the median of."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to call.

    Attributes:
        target: `ops.py:scale_add`; without a name, the first of its operators.
        folder: What stands for the cache of compiled code, and for the driver's of what it makes of PTX.
        started: The moment before this process, by `time.perf_counter`, which all processes share.
    """

    target: str
    folder: str
    started: float

    def to_json(self) -> str:
        """One line of text, which `main` takes."""
        return json.dumps(asdict(self))


def main(order: str, marks: Sequence[float]) -> None:
    """Make the call, and tell of it.

    Args:
        order: What `Order.to_json` wrote.
        marks: When the interpreter was there, when torch was imported, when dotcu was.
    """
    asked, answers = Order(**json.loads(order)), _answers()
    watch = Stopwatch("interpreter", since=asked.started)
    for phase, at in zip(("torch", "dotcu", "measuring"), marks, strict=True):
        watch.switch(phase, at=at)
    drivers = Path(asked.folder, "driver")
    drivers.mkdir(exist_ok=True)
    os.putenv("CUDA_CACHE_PATH", str(drivers))  # read by the driver when it starts

    def tell(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        with settings.override(cache_dir=Path(asked.folder, "dotcu")):
            measure(asked.target, watch, tell)
    except DotcuError as error:
        tell({"raise": [type(error).__name__, str(error)]})


def _answers() -> IO[str]:
    """Standard output for this module alone; who else writes there gets standard error."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(kept, "w", encoding="utf-8")


def measure(target: str, start: Stopwatch, tell: Tell) -> None:
    """Call the operator on its first sample, again and again.

    Args:
        start: Has been running since the process began.
    """
    with stopwatch.listening(start):
        start.switch("target")
        operators = resolve(target)
        device = _begin(start)
        start.switch("inputs")
        subject, sample = _first(operators[0][1], device)
        _wait(device)
    spent, now = start.read()
    call = Stopwatch("call", since=now)
    with subject.place(), _blaming(subject, sample):
        with stopwatch.listening(call), imports.counted(call, "call", "imports") as imported:
            subject.overload(*sample.args, **sample.kwargs)
            if subject.on_gpu:
                call.switch("wait")
            _wait(device)
        within, _ = call.read()
        rows = [*_rows("start", start, spent), *_rows("call", call, within)]
        tell({"first": rows, "imported": imported})
        later = [_again(subject, sample) for _ in range(LATER)]
    tell({"rest": _rest(subject, sample, later, [name for name, _ in operators])})


def _begin(watch: Stopwatch) -> torch.device:
    """Start CUDA, step by step; without a GPU, the device of the simulator."""
    watch.switch("cuda")
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.init()
    watch.switch("context")
    torch.cuda.synchronize()  # makes the primary context
    watch.switch("allocator")
    torch.empty(1, device="cuda")
    return torch.device("cuda", torch.cuda.current_device())


def _first(operator: Operator, device: torch.device) -> tuple[Subject, Sample]:
    """Of the first overload that has samples with elements, the first of them, in the first dtype."""
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


def _blaming(subject: Subject, sample: Sample) -> AbstractContextManager[None]:
    happened = f"a call of {subject.name} failed, on {sample!r}"
    return blaming(OperatorError, happened, "A call is timed where it gives a result.\nSee: dotcu check")


def _again(subject: Subject, sample: Sample) -> float:
    """The milliseconds of one more call, its result included."""
    begun = time.perf_counter()
    subject.overload(*sample.args, **sample.kwargs)
    _wait(subject.device)
    return (time.perf_counter() - begun) * 1e3


def _rows(stage: Stage, watch: Stopwatch, seconds: dict[str, float]) -> list[tuple[str, str, float, int]]:
    return [(stage, name, spent * 1e3, watch.times[name]) for name, spent in seconds.items()]


def _rest(subject: Subject, sample: Sample, later: list[float], names: list[str]) -> dict[str, Any]:
    gpu = f"{torch.cuda.get_device_name(subject.device)} ({subject.device})" if subject.on_gpu else ""
    others = f"the first of {len(names)} operators there: {', '.join(names)}" if len(names) > 1 else ""
    return {
        "operator": subject.name,
        "sample": repr(sample),
        "device": gpu or subject.where,
        "planned": subject.overload.replay.plans > 0,
        "versions": _versions(),
        "note": others,
        "later": later,
    }


def _versions() -> dict[str, str]:
    found = driver.version()
    told = {"dotcu": __version__, "torch": str(torch.__version__), "Python": platform.python_version()}
    return {**told, **({"driver": "CUDA {}.{}".format(*found)} if found else {}), "on": sys.platform}
