"""Times of calls: contenders alternate, in rounds whose order is shuffled."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from calls.work import Call, Contender, Inputs

WARM_CALLS = 20


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A call to time.

    Attributes:
        launches: Kernels that it launches.
        mode: What it is made under.
    """

    name: str
    call: Callable[[], Any]
    launches: int = 1
    mode: Callable[[], AbstractContextManager[Any]] = nullcontext


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A contender that is compiled and whose results are right."""

    contender: Contender
    call: Call

    @property
    def timed(self) -> Timed:
        """Its call, to time."""
        known = self.contender
        return Timed(name=known.name, call=self.call, launches=known.launches, mode=known.mode)


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A contender that could not be measured here."""

    name: str
    reason: str


def prepare(contender: Contender, inputs: Inputs) -> Ready | Skipped:
    """Compile a contender and compare what it computes."""
    try:
        ready = Ready(contender=contender, call=contender.make(inputs))
        verify(ready, inputs)
    except Exception as error:  # a peer fails in its own way: its first line is the reason
        return Skipped(name=contender.name, reason=first_line(error))
    return ready


def first_line(error: Exception) -> str:
    """An error in one line: its first, and the second where the first only announces it."""
    first, *more = f"{type(error).__name__}: {str(error).strip()}".splitlines()
    return f"{first} {more[0]}" if first.endswith(":") and more else first


def verify(ready: Ready, inputs: Inputs) -> None:
    """Refuse a contender that is wrong, keeps its memory or result, or does not record what it should.

    Raises:
        ValueError: It is.
    """
    want, writes = ready.contender.want(inputs), ready.contender.writes
    with ready.contender.mode():
        first = ready.call()
        right = torch.equal(first, want)
        if writes:
            first.fill_(torch.nan)
        second = ready.call()
    if not (right and torch.equal(second, want)):
        raise ValueError("its result is wrong")
    if (first.data_ptr() == second.data_ptr()) != writes:
        raise ValueError(f"two calls gave {'other' if writes else 'the same'} memory")
    if ready.contender.records != first.requires_grad:
        raise ValueError(f"requires_grad of its result is {first.requires_grad}")
    if ready.contender.records:
        (grad,) = torch.autograd.grad(first.sum(), inputs.leaf)
        require_ones(grad)


def require_ones(grad: Tensor) -> None:
    """Refuse another gradient than that of a sum."""
    if not torch.equal(grad, torch.ones_like(grad)):
        raise ValueError("its gradient is wrong")


def measure(
    contenders: Sequence[Timed],
    *,
    rounds: int,
    calls: int,
    warm_calls: int = WARM_CALLS,
    waits: bool = False,
    synchronize: Callable[[], None] = torch.cuda.synchronize,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
) -> dict[str, list[float]]:
    """Microseconds of one call of each contender, one figure for each round.

    A round times `calls` launches of every contender, one contender after the other, the order
    shuffled. The GPU is idle when a contender begins, and waiting for it at the end counts only with
    `waits`. Without, `calls` is well below the 1024 launches that the driver queues, so that no call
    waits for the GPU.
    """
    times: dict[str, list[float]] = {timed.name: [] for timed in contenders}
    order, shuffle = list(contenders), random.Random(0).shuffle
    with no_collector():
        for _ in range(rounds):
            gc.collect()  # what the last round left, graphs of autograd above all
            shuffle(order)
            for timed in order:
                count = max(1, calls // timed.launches)
                with timed.mode():
                    make_calls(timed.call, warm_calls // timed.launches)
                    synchronize()
                    start_ns = clock_ns()
                    make_calls(timed.call, count)
                    if waits:
                        synchronize()
                    spent_ns = clock_ns() - start_ns
                    synchronize()
                times[timed.name].append(spent_ns / count / 1000)
    return times


def make_calls(call: Callable[[], Any], count: int) -> None:
    """Call so often."""
    for _ in repeat(None, count):
        call()


@contextmanager
def no_collector() -> Iterator[None]:
    """Keep the garbage collector from starting on its own, and from looking at what is there already.

    What the caller keeps from it stays so.
    """
    was_enabled, was_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()
        if was_enabled:
            gc.enable()
