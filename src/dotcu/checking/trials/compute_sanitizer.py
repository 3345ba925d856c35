"""compute-sanitizer: NVIDIA's own tools watch a bare call of each overload on the GPU.

A tool takes many seconds to get ready, so all overloads share one run of it: a worker under the tool makes
one call after the other, and what the tool prints meanwhile is of that call. torch's caching allocator
is off, so that memory beside a tensor is nobody's. The four tools run at the same time.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from dotcu.checking import running
from dotcu.checking.origin import request_for
from dotcu.checking.outcome import Held, Outcome, Result, Skipped, Verdict
from dotcu.checking.protocol import Request
from dotcu.checking.subject import Subject
from dotcu.checking.trial import Trial
from dotcu.checking.trials import skipped
from dotcu.checking.trials.gpu import NEEDS_GPU, memory
from dotcu.checking.watch import Watch
from dotcu.compile import toolchain
from dotcu.kernel import recent
from dotcu.operator import Sample

TOOLS: Mapping[str, tuple[str, ...]] = {
    "memcheck": ("--report-api-errors", "no"),
    "racecheck": (),
    "initcheck": (),
    "synccheck": (),
}
"""The tools, and the options of each."""

NOT_FOUND = "compute-sanitizer was not found.\nType: pip install nvidia-cuda-sanitizer-api"
NOT_ELSEWHERE = "the operator's module cannot be imported by another process, which the tool needs"


def plan(subject: Subject) -> Iterator[Trial]:
    """A trial for each tool. Who has many runs them together, by `run`."""
    for tool in TOOLS:
        if subject.on_gpu:
            run = partial(alone, subject, tool)
            yield Trial(overload=subject.name, kind=tool, case="", checks=(tool,), run=run)
        else:
            yield skipped(subject, tool, NEEDS_GPU)


def alone(subject: Subject, tool: str) -> Iterator[Verdict]:
    """Watch one overload by one tool."""
    request = request_for(subject)
    if request is None:
        yield tool, Skipped(why=NOT_ELSEWHERE)
        return
    for _, _, outcome in watched({tool: [request]}):
        yield tool, outcome


def run(requests: Mapping[str, Request], trials: Iterable[Trial]) -> Iterator[Result]:
    """The results of those trials that are of a tool: a run of each tool for all of its overloads.

    Args:
        requests: By overload, how another process finds it.
    """
    own = [trial for trial in trials if trial.kind in TOOLS]
    here = [trial for trial in own if torch.device(requests[trial.overload].device).type == "cpu"]
    yield from running.run(here)  # which say only that there is no GPU
    by_tool: dict[str, dict[str, Trial]] = {}
    for trial in own:
        if trial not in here:
            by_tool.setdefault(trial.kind, {})[trial.overload] = trial
    start = time.perf_counter()
    asked = {tool: [requests[name] for name in named] for tool, named in by_tool.items()}
    for tool, name, outcome in watched(asked):
        trial, seconds = by_tool[tool][name], time.perf_counter() - start
        yield Result(overload=name, check=tool, trial=trial.name, outcome=outcome, seconds=seconds)


Watched = tuple[str, str, Outcome]
"""A tool, an overload, and what it came to."""


def watched(asked: Mapping[str, Sequence[Request]]) -> Iterator[Watched]:
    """Run tools at the same time, each on its overloads."""
    path = toolchain.find_tool("compute-sanitizer") if asked else None
    if path is None:
        for tool, requests in asked.items():
            yield from ((tool, request.overload, Skipped(why=NOT_FOUND)) for request in requests)
        return
    found: queue.SimpleQueue[Watched | None] = queue.SimpleQueue()
    watches = [Watch(tool, TOOLS[tool], path, number) for number, tool in enumerate(asked)]
    threads = [
        threading.Thread(target=_attend, args=(watch, asked[watch.tool], found), daemon=True)
        for watch in watches
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            yield from iter(found.get, None)
    finally:
        for watch in watches:
            watch.kill()


def _attend(watch: Watch, requests: Sequence[Request], found: queue.SimpleQueue[Watched | None]) -> None:
    try:
        for name, outcome in watch.outcomes(requests):
            found.put((watch.tool, name, outcome))
    finally:
        found.put(None)


# ------------------------------------------------------------------ what the worker does under a tool


def bare(subject: Subject) -> Iterator[Trial]:
    """The smallest call of the first dtype that has one, and nothing around it."""
    found = (subject.smallest(dtype) for dtype in subject.overload.dtypes)
    case = next((case for case in found if case is not None), None)
    if case is not None:
        run = partial(_call, subject, case.sample.map_tensors(exact))
        yield Trial(overload=subject.name, kind="bare", case=case.name, checks=("memcheck",), run=run)


def _call(subject: Subject, sample: Sample) -> list[Verdict]:
    """Call, wait, and name the kernels that ran."""
    torch.cuda.synchronize(subject.device)
    with torch.cuda.device(subject.device), subject.seeded(subject.name):
        subject.call(sample)
    torch.cuda.synchronize(subject.device)
    ran = [launch.kernel for launch in recent.launches() if launch.operator == subject.name]
    return [("memcheck", Held(note=" ".join({kernel.partition("<")[0] for kernel in ran})))]


def exact(tensor: Tensor) -> Tensor:
    """The same tensor in memory that begins with its first element and ends with its last."""
    return memory(tensor).clone().as_strided(tensor.shape, tensor.stride(), 0)
