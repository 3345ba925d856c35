"""compute-sanitizer: NVIDIA's own tools watch a bare call of each overload on the GPU.

A tool takes many seconds to get ready, so all overloads share one run of it: a worker under the tool makes
one call after the other, and what the tool prints meanwhile is of that call. torch's caching allocator
is off, so that memory next to a tensor belongs to no other. The four tools run at the same time.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import torch

from dotcu.checking.catalogue import TOOLS
from dotcu.checking.results import (
    CheckResult,
    Failed,
    Passed,
    Skipped,
    Trial,
    TrialId,
    result_of,
    skipped,
    trial,
    trial_id,
)
from dotcu.checking.subject import Subject
from dotcu.checking.target import WORKER, TrialRequest, request_for
from dotcu.checking.trials.gpu import NEEDS_GPU, packed
from dotcu.compile import toolchain
from dotcu.errors import DotcuError
from dotcu.kernel.faults import recent_launches
from dotcu.operator import Sample
from dotcu.workers import Worker, WorkerCrash

_OPTIONS: Mapping[str, tuple[str, ...]] = {"memcheck": ("--report-api-errors", "no")}
"""The options of tools that take some."""

NOT_FOUND = "compute-sanitizer was not found.\nType: pip install nvidia-cuda-sanitizer-api"
NOT_ELSEWHERE = "the operator's module cannot be imported by another process, which the tool needs"


def plan(subject: Subject) -> Iterator[Trial]:
    """A trial for each tool. Who has many runs them together, by `run`."""
    for tool in TOOLS:
        if subject.on_gpu:
            yield trial(subject, tool, alone, None, tool)
        else:
            yield skipped(subject, tool, NEEDS_GPU)


def alone(subject: Subject, tool: str) -> CheckResult:
    """Watch one overload by one tool."""
    request = request_for(subject)
    if request is None:
        return Skipped(reason=NOT_ELSEWHERE)
    (result,) = watched({tool: [request]})
    return result


def run(requests: Mapping[str, TrialRequest], trials: Iterable[Trial]) -> Iterator[CheckResult]:
    """Run each tool once, on all overloads that it has a trial of, and yield the results."""
    asked: dict[str, list[TrialRequest]] = {}
    for one in trials:
        asked.setdefault(one.kind, []).append(requests[one.overload])
    start = time.perf_counter()
    for result in watched(asked):
        yield msgspec.structs.replace(result, seconds=time.perf_counter() - start)


def watched(asked: Mapping[str, Sequence[TrialRequest]]) -> Iterator[CheckResult]:
    """Run tools at the same time, each on its overloads, and yield the results."""
    path = toolchain.find_tool("compute-sanitizer") if asked else None
    if path is None:
        for tool, requests in asked.items():
            skipped = Skipped(reason=NOT_FOUND)
            yield from (_of(tool, request.overload, skipped) for request in requests)
        return
    runs = [ToolRun(tool, _OPTIONS.get(tool, ()), path, number) for number, tool in enumerate(asked)]
    with ThreadPoolExecutor(len(runs)) as threads:
        futures = [threads.submit(run.results, asked[run.tool]) for run in runs]
        try:
            for future in as_completed(futures):
                yield from future.result()
        finally:
            for run in runs:
                run.close()


def _of(tool: str, overload: str, result: CheckResult) -> CheckResult:
    return msgspec.structs.replace(result, trial=TrialId(overload=overload, kind=tool), check=tool)


# ------------------------------------------------------------------ what the worker does under a tool


def bare(subject: Subject) -> Iterator[Trial]:
    """The smallest call of the first dtype that has one, and nothing around it."""
    found = (subject.smallest(dtype) for dtype in subject.overload.dtypes)
    case = next((case for case in found if case is not None), None)
    if case is not None:
        sample = case.sample.map_tensors(lambda tensor: packed(tensor, subject.device))
        run = partial(_call, subject, sample)
        yield Trial(id=trial_id(subject, "bare", case), checks=("memcheck",), run=run)


def _call(subject: Subject, sample: Sample) -> list[CheckResult]:
    """Call, and wait."""
    torch.cuda.synchronize(subject.device)
    with torch.cuda.device(subject.device), subject.seeded(subject.name):
        subject.call(sample)
    torch.cuda.synchronize(subject.device)
    return [Passed()]


def launched(overload: str) -> list[str]:
    """Return the names of the kernels that this process has launched for an overload."""
    ran = [launch.kernel for launch in recent_launches() if launch.operator == overload]
    return sorted({kernel.partition("<")[0] for kernel in ran})


# --------- a worker under one of compute-sanitizer's tools, and what the tool prints while it makes each call

LIMIT_S = 150.0
"""The most seconds that one tool may run, for all overloads."""

SETTLE_S = 0.5
"""The most seconds after a call until the report of a tool, which is a separate process, is there."""

MAX_STARTS = 3
"""A call may end the worker: then the tool starts again, for the calls that are left."""

ENDING_S = 20.0
"""A tool ends within this once its program has nothing to do."""

FIRST_PORT, PORTS = 49152, 20
"""The ports of the tools' connections to their programs: no two tools may share one."""


class ToolRun:
    """A worker under one tool.

    Args:
        number: Of the tools that run at the same time: no two may have the same ports.

    Attributes:
        lines: What the tool printed while the call of each overload was made; with "", at other times.
        kernels: What each call launched.
        called: The overloads whose call was made, to its end.
        failures: Why others had none, or none to its end.
    """

    def __init__(self, tool: str, options: Sequence[str], path: Path, number: int) -> None:
        self.tool = tool
        # torch reads this variable; `env` sets it for the tool only.
        words = [
            "env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1", str(path), "--tool", tool, *options,
            "--port", str(FIRST_PORT + number * PORTS), "--launch-timeout", str(int(LIMIT_S)),
            "--target-processes", "application-only", "--destroy-on-device-error", "kernel",
            "--show-backtrace", "device", "--print-limit", "10000",
        ]  # fmt: skip
        self._worker = Worker(WORKER, tool=words, on_output=self._take)
        self.lines: dict[str, list[str]] = defaultdict(list)
        self.kernels: dict[str, list[str]] = defaultdict(list)
        self.called: set[str] = set()
        self.failures: dict[str, str] = {}
        self._calling = ""

    def close(self) -> None:
        """End it, from another thread."""
        self._worker.close()

    def results(self, requests: Sequence[TrialRequest]) -> list[CheckResult]:
        """Return what the tool found, for each overload."""
        names = [request.overload for request in requests]
        left, until, crashes = list(requests), time.monotonic() + LIMIT_S, 0
        while left and crashes < MAX_STARTS and not self._worker.closed and time.monotonic() < until:
            request = left.pop(0)
            crashes += not self._call(request, until)
        self._calling = ""
        self._worker.finish(ENDING_S)  # then a tool sums up what it found
        for request in left:
            self.failures[request.overload] = f"{self.tool} did not reach it within {LIMIT_S:g} s"
        reports = {name: parse(self.lines[name]) for name in names}
        for report in parse(self.lines[""]):  # of those whose kernel it names, or of all where it names none
            for name in [n for n in names if any(k in report for k in self.kernels[n])] or names:
                reports[name].append(report)
        return [_of(self.tool, name, self._result(name, reports[name])) for name in names]

    def _take(self, line: str) -> None:
        if line.startswith(PREFIX):
            self.lines[self._calling].append(line)

    def _call(self, request: TrialRequest, until: float) -> bool:
        """Have one call made. Returns whether the worker is there for another."""
        self._calling = name = request.overload
        try:
            self._worker.send(replace(request, bare=True))
            while (reply := self._worker.receive(max(0.0, until - time.monotonic()))) is not None:
                if "end" in reply:
                    self.called.add(name)
                    self.kernels[name] = reply["kernels"]
                result = result_of(reply["result"]) if "result" in reply else None
                if isinstance(result, Failed):
                    self.failures[name] = f"the call fails: {result.reason}: {result.evidence}".rstrip(": ")
        except WorkerCrash as crash:
            ended = f"{self.tool} ended: {crash.evidence.rpartition(chr(10))[2] or crash.reason}"
            late = f"{self.tool} took more than {LIMIT_S:g} s"
            self.failures.setdefault(name, late if time.monotonic() >= until else ended)
            return False
        except DotcuError as error:
            self.failures[name] = str(error)
        self._worker.drain(SETTLE_S)
        return True

    def _result(self, name: str, reports: Sequence[str]) -> CheckResult:
        wrong = [report for report in reports if not is_warning(report)]
        if wrong:
            count = f", and {len(wrong) - 1} more such reports" if len(wrong) > 1 else ""
            first = wrong[0].partition("\n")[0]
            return Failed(reason=f"{self.tool}: {first}{count}", evidence=wrong[0])
        failure = trouble(self.lines[name]) or self.failures.get(name, "")
        if failure or name not in self.called:
            return Skipped(reason=failure or "no sample without empty tensors")
        return Passed(note="; ".join(report.partition("\n")[0] for report in reports))


# ------------------------------------------------------------------ what a tool prints
#
#     ========= Invalid __global__ write of size 4 bytes
#     =========     at scale(const float *, float *, long long)+0x90 in ops.cu:4
#     =========     by thread (99,0,0) in block (0,0,0)
#
# Source: its manual, and tests of its own.

PREFIX = "========="
_INDENT = "     "

_OF_THE_RUN = (
    "COMPUTE-SANITIZER",
    "ERROR SUMMARY",
    "RACECHECK SUMMARY",
    "LEAK SUMMARY",
    "Program hit ",  # an error that the driver gave to a caller
    "Target application",
    "Internal Sanitizer Error",
)
"""The beginnings of headlines about the run, not about a kernel."""

_ERROR = "Error: "
"""The beginning of others about the run, unless they have one of these words."""

_OF_A_RACE = ("Race reported", "hazard")

_TROUBLE = (_ERROR, "Internal Sanitizer Error")
_WARNINGS = ("Warning", "WARNING")


def parse(lines: Iterable[str]) -> list[str]:
    """The reports on kernels in a tool's output, each with its headline in the first line."""
    reports: list[str] = []
    inside = False
    for line in lines:
        text = line.removeprefix(PREFIX)
        if not text.startswith(_INDENT):
            inside = _is_of_a_kernel(text.strip())
            reports += [text.strip()] if inside else []
        elif inside:
            reports[-1] += f"\n    {text.strip()}"
    return reports


def is_warning(report: str) -> bool:
    """Return whether the tool itself does not call it an error."""
    return report.startswith(_WARNINGS)


def trouble(lines: Iterable[str]) -> str:
    """Return the first line about a tool's own trouble; empty if it has none."""
    texts = (line.removeprefix(PREFIX).strip() for line in lines)
    own = (text for text in texts if text.startswith(_TROUBLE) and not _is_of_a_kernel(text))
    return next(own, "")


def _is_of_a_kernel(headline: str) -> bool:
    if headline.startswith(_ERROR):
        return any(words in headline for words in _OF_A_RACE)
    return bool(headline) and not headline.startswith(_OF_THE_RUN)
