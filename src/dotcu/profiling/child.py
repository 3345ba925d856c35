"""What runs in a process of its own, under ncu or alone: one operator, warmed up and called.

Its answer is a file: standard output is ncu's, and the operator's. The file has an Answer, or
`{"raise": [class, message]}`.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from dotcu.benchmark.timers.cupti import MARGIN_US, activities, tracing
from dotcu.benchmark.timers.quiet import quiet
from dotcu.benchmark.timers.trace import Activity
from dotcu.benchmark.workloads.dtypes import chosen
from dotcu.benchmark.workloads.shapes import parse
from dotcu.benchmark.workloads.workload import Unfit, Workload, workloads
from dotcu.checking.blame import blaming
from dotcu.checking.subject import Subject
from dotcu.checking.target import resolve
from dotcu.errors import DotcuError, OperatorError
from dotcu.kernel.context import watching
from dotcu.profiling.order import Answer, Order, Timing

WARM_UP = 5
"""Calls before the one that counts: the first compiles, the second is followed, later ones are replayed."""

TIMED = 30
"""Calls that are timed where counters cannot be read."""


def main(text: str) -> None:
    """Do what an order says, and write the answer."""
    order = Order.from_json(text)
    try:
        answer = serve(order).to_json()
    except DotcuError as error:
        answer = {"raise": [type(error).__name__, str(error)]}
    draft = Path(f"{order.answer}.part")
    draft.write_text(json.dumps(answer))
    draft.replace(order.answer)


def serve(order: Order) -> Answer:
    """Make the calls, and say what they were.

    Raises:
        DotcuError: The operator has no such sample, or its call fails.
    """
    remedy = f"An operator is profiled on what its samples are like.\nSee: dotcu check {order.target}"
    with blaming(OperatorError, f"{order.target} has nothing to be called on", remedy):
        call = Call(order)
    with call.blaming():
        call.warm_up()
        if order.how == "counters":
            with seen_by_ncu(call.device):
                call.make()
            return call.answer
        return replace(call.answer, timings=timed(call.make, call.device, Path(order.trace)))


class Call:
    """An operator and what it is called on."""

    def __init__(self, order: Order) -> None:
        ((_, operator),) = resolve(order.target, verb="profile")
        self.device = torch.device(order.device)
        self._target = order.target
        self._subject = Subject(
            overload=operator.overloads[order.overload], device=self.device, seed=order.seed
        )
        self._case = choose(self._subject, order)
        self._sample = self._case.make(order.seed)
        self._kernels: dict[str, None] = {}
        self._files: dict[str, str] = {}

    def warm_up(self) -> None:
        """Call until all is compiled, loaded and planned; note what the first call launches."""
        with watching() as launches:
            self.make()
        for launch in launches:
            self._kernels[launch.kernel] = None
            self._files |= launch.files
        for _ in range(WARM_UP - 1):
            self.make()

    def make(self) -> None:
        """Call once, and wait."""
        with self._subject.place():
            self._subject.call(self._sample)
        if self._subject.on_gpu:
            torch.cuda.synchronize(self.device)

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """Turn what a call raises into an error that shows the way there."""
        happened = f"a call of {self._subject.name} failed, on {self._sample!r}"
        remedy = (
            f"Only a call that gives a result is profiled.\nSee what is wrong: dotcu check {self._target}"
        )
        with blaming(OperatorError, happened, remedy):
            if not self._subject.on_gpu:
                yield
                return
            with torch.cuda.device(self.device):
                yield

    @property
    def answer(self) -> Answer:
        """What was called."""
        on_gpu = self._subject.on_gpu
        return Answer(
            operator=self._subject.name,
            case=self._case.name,
            sample=repr(self._sample),
            gpu=torch.cuda.get_device_name(self.device) if on_gpu else self._subject.where,
            kernels=tuple(self._kernels),
            files=self._files,
            native=not self._subject.has_body,
        )


def choose(subject: Subject, order: Order) -> Workload:
    """Of the cases that were asked for, the one that moves the most bytes.

    Raises:
        UsageError: The operator has no such dtype, or the shapes have another form.
        OperatorError: It takes none of the shapes, or none fits the GPU's memory.
    """
    dtypes = chosen(subject.overload, [order.dtype] if order.dtype else [], option="--dtype")[:1]
    cases = workloads(subject, shapes=parse(order.shapes) if order.shapes else (), dtypes=dtypes)
    fitting = [case for case in cases if isinstance(case, Workload)]
    if not fitting:
        reasons = "".join(f"\n    {case.name}: {case.reason}" for case in cases if isinstance(case, Unfit))
        raise OperatorError(
            f"{subject.name} can be called on none of what was asked for:{reasons}\n"
            "Give a shape that it takes and that fits: --shapes 4096x4096"
        )
    return max(fitting, key=lambda case: case.bytes)


@contextmanager
def seen_by_ncu(device: torch.device) -> Iterator[None]:
    """Let ncu, which was told not to profile from the start, see what the block does."""
    torch.cuda.synchronize(device)
    torch.cuda.profiler.start()
    try:
        yield
    finally:
        torch.cuda.profiler.stop()


def timed(call: Callable[[], None], device: torch.device, trace: Path) -> tuple[Timing, ...]:
    """Time calls by CUPTI's records, which no permission is needed for, and keep a Chrome trace of them.

    Raises:
        MeansFailed: torch's profiler does not start.
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


def timings(found: Iterable[Activity], calls: int) -> tuple[Timing, ...]:
    """What calls made the device do, by name, what takes the most time first. Pure."""
    spans: dict[str, list[float]] = {}
    for activity in found:
        spans.setdefault(activity.name, []).append((activity.end_ns - activity.start_ns) / 1e3)
    rows = [
        Timing(
            name=name,
            times=len(us) / calls,
            median_us=statistics.median(us),
            least_us=min(us),
            most_us=max(us),
        )
        for name, us in spans.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.median_us * row.times))
