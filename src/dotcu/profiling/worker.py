"""The process that makes the call, with or without ncu: one operator, warmed up and called.

Its reply is a file: standard output is ncu's, and the operator's. The file has a `ProfiledCall`, or
`{"raise": [class, message]}`.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from dotcu import serialize
from dotcu.benchmark.timers import MARGIN_US, Activity, activities, quiet, tracing
from dotcu.benchmark.workloads import UntimedCase, Workload, choose_dtypes, parse_shapes, workloads
from dotcu.checking.subject import Subject
from dotcu.checking.target import resolve
from dotcu.errors import DotcuError, OperatorError, quoted
from dotcu.kernel.launch_policy import watching_launches
from dotcu.profiling.report import KernelTiming
from dotcu.tracebacks import as_user_error

WARM_UP = 5
"""Calls before the one that counts: the first compiles, the second is traced, later ones are cached."""

TIMED = 30
"""Calls that are timed where counters cannot be read."""


@dataclass(frozen=True, kw_only=True)
class ProfileRequest:
    """A call to make.

    Attributes:
        target: With the Python name of the operator: `ops.py:scale_add`.
        overload: Its name; empty for the default overload.
        shapes: As `--shapes` takes them; empty for the largest of the author's samples.
        dtype: Empty for the operator's first.
        device: As torch names it.
        mode: One call for ncu, between the start and the stop of its profiling; or many, timed here.
        reply: The file that the reply goes to.
        trace: The file that a Chrome trace of timed calls goes to.
    """

    target: str
    shapes: str
    dtype: str
    device: str
    seed: int
    mode: Literal["counters", "timings"]
    reply: str
    overload: str = ""
    trace: str = ""


@dataclass(frozen=True, kw_only=True)
class ProfiledCall:
    """A call that was made.

    Attributes:
        operator: Its qualified name.
        case: The dtype and shape of its arguments: `float32-4096x4096`.
        gpu: The GPU's name.
        kernels: The kernels of dotcu's that the call launched, each once.
        files: The real path of each file name in their line tables.
        timings: Empty where the call was not timed.
        native: Whether a library computes it: then the names of its kernels are not known beforehand.
    """

    operator: str
    case: str
    sample: str
    gpu: str
    kernels: tuple[str, ...]
    files: Mapping[str, str]
    timings: tuple[KernelTiming, ...] = ()
    native: bool = False


def command(request: ProfileRequest) -> list[str]:
    """Return the command that starts the process, which finds the modules that this one finds."""
    path = f"import sys; sys.path[:] = sys.argv.pop().split({os.pathsep!r})"
    begin = f"{path}; from dotcu.profiling.worker import main; main(sys.argv.pop())"
    return [sys.executable, "-c", begin, serialize.to_json(request), os.pathsep.join(sys.path)]


def main(text: str) -> None:
    """Make the call of a request, and write the reply."""
    request = serialize.from_json(ProfileRequest, text)
    try:
        reply = serialize.to_json(make_call(request))
    except DotcuError as error:
        reply = serialize.to_json({"raise": [type(error).__name__, str(error)]})
    draft = Path(f"{request.reply}.part")
    draft.write_text(reply)
    draft.replace(request.reply)


def make_call(request: ProfileRequest) -> ProfiledCall:
    """Warm an operator up, call it, and return what was called.

    Raises:
        DotcuError: The operator has no such sample, or its call fails.
    """
    remedy = f"An operator is profiled on calls like its samples.\nSee: dotcu check {quoted(request.target)}"
    device = torch.device(request.device)
    with as_user_error(OperatorError, f"{request.target} has nothing to be called on", remedy):
        ((_, operator),) = resolve(request.target, verb="profile")
        subject = Subject(overload=operator.overloads[request.overload], device=device, seed=request.seed)
        case = choose(subject, request)
        sample = case.make(request.seed)

    def call() -> None:
        with subject.place():
            subject.call(sample)
        if subject.on_gpu:
            torch.cuda.synchronize(device)

    happened = f"a call of {subject.name} failed, on {sample!r}"
    remedy = (
        f"Only a call that succeeds can be profiled.\nSee what is wrong: dotcu check {quoted(request.target)}"
    )
    on_device = torch.cuda.device(device) if subject.on_gpu else nullcontext()
    with as_user_error(OperatorError, happened, remedy), on_device:
        with watching_launches() as launches:
            call()
        for _ in range(WARM_UP - 1):
            call()
        profiled = ProfiledCall(
            operator=subject.name,
            case=case.name,
            sample=repr(sample),
            gpu=torch.cuda.get_device_name(device) if subject.on_gpu else subject.where,
            kernels=tuple(dict.fromkeys(launch.kernel for launch in launches)),
            files={name: path for launch in launches for name, path in launch.files.items()},
            native=not subject.has_body,
        )
        if request.mode == "counters":
            with visible_to_ncu(device):
                call()
            return profiled
        return replace(profiled, timings=timed(call, device, Path(request.trace)))


def choose(subject: Subject, request: ProfileRequest) -> Workload:
    """Return the requested case that moves the most bytes.

    Raises:
        UsageError: The operator has no such dtype, or the shapes have another form.
        OperatorError: It takes none of the shapes, or none fits the GPU's memory.
    """
    dtypes = choose_dtypes(subject.overload, [request.dtype] if request.dtype else [], option="--dtype")[:1]
    shapes = parse_shapes(request.shapes) if request.shapes else ()
    cases = workloads(subject, shapes=shapes, dtypes=dtypes)
    fitting = [case for case in cases if isinstance(case, Workload)]
    if not fitting:
        untimed = (case for case in cases if isinstance(case, UntimedCase))
        reasons = "".join(f"\n    {case.name}: {case.reason}" for case in untimed)
        raise OperatorError(
            f"{subject.name} accepts none of the requested shapes and dtypes:{reasons}\n"
            "Use a shape that it accepts and that fits: --shapes 4096x4096"
        )
    return max(fitting, key=lambda case: case.bytes)


@contextmanager
def visible_to_ncu(device: torch.device) -> Iterator[None]:
    """Let ncu, which was started with profiling off, profile the block."""
    torch.cuda.synchronize(device)
    torch.cuda.profiler.start()
    try:
        yield
    finally:
        torch.cuda.profiler.stop()


def timed(call: Callable[[], None], device: torch.device, trace: Path) -> tuple[KernelTiming, ...]:
    """Time calls by CUPTI's records, which need no permission, and write a Chrome trace of them.

    Raises:
        TimerFailed: torch's profiler does not start.
    """
    torch.cuda.synchronize(device)
    with tracing() as session:
        time.sleep(MARGIN_US / 1e6)
        for _ in range(TIMED):
            call()
        time.sleep(MARGIN_US / 1e6)
    results = session.kineto_results
    with quiet():
        session.export_chrome_trace(str(trace))
    return timings(activities(results.events() if results is not None else ()), TIMED)


def timings(found: Iterable[Activity], calls: int) -> tuple[KernelTiming, ...]:
    """Return the times of a device's activities by name, the most time first."""
    spans: dict[str, list[float]] = {}
    for activity in found:
        spans.setdefault(activity.name, []).append((activity.end_ns - activity.start_ns) / 1e3)
    rows = (
        KernelTiming(
            name=name,
            per_call=len(us) / calls,
            median_us=statistics.median(us),
            min_us=min(us),
            max_us=max(us),
        )
        for name, us in spans.items()
    )
    return tuple(sorted(rows, key=lambda row: -row.median_us * row.per_call))
