"""Two new processes make the call: the first finds the cache empty, the second filled by the first."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from typing import Any, get_args

from dotcu import errors, process
from dotcu.benchmark.first_call.child import Order
from dotcu.benchmark.first_call.report import Cache, FirstCall, Phase, Run
from dotcu.checking.attendant import ending
from dotcu.errors import OperatorError

LIMIT_S = 600.0
"""Within which a process has made its first call, and within which those after it."""

_BEGIN = """
import time
marks = [time.perf_counter()]
import os, sys
sys.path[:] = sys.argv.pop().split(os.pathsep)
order = sys.argv.pop()
import torch
marks.append(time.perf_counter())
import dotcu.kernel, dotcu.operator
marks.append(time.perf_counter())
from dotcu.benchmark.first_call.child import main
main(order, marks)
"""
"""What the process runs: it takes the first times itself, before any module of dotcu is there."""


def first_call(target: str, name: str | None = None) -> FirstCall:
    """Call an operator for the first time, in two processes of its own, and say where the time goes.

    The operator is called on the first of its samples in its first dtype, on the GPU where there is one,
    else in the simulator. Compiled code comes from a temporary cache, not from the user's.

    Args:
        target: `ops.py` or `package.module`, which may have `:name`.
        name: The Python name of one operator in it; by default the first.

    Raises:
        UsageError: There is no such file, module or operator, or it has no samples.
        OperatorError: The call failed, or ended its process.
        DotcuError: Whatever else of dotcu's the call raises.
    """
    whole = target if name is None else f"{target.partition(':')[0]}:{name}"
    told: dict[str, Any] = {}
    runs = []
    with tempfile.TemporaryDirectory(prefix="dotcu-first-call-") as folder:
        for cache in get_args(Cache):
            run, told = _run(whole, folder, cache)
            runs.append(run)
    return FirstCall(**told, runs=tuple(runs))


def command(order: Order) -> list[str]:
    """The command that starts a process, which finds the modules that this one finds."""
    return [sys.executable, "-c", _BEGIN, order.to_json(), os.pathsep.join(sys.path)]


def _run(target: str, folder: str, cache: Cache) -> tuple[Run, dict[str, Any]]:
    """One process, and what it says of the call beside times."""
    begun = _clock_ms()
    order = Order(target=target, folder=folder, started=time.perf_counter())
    with process.started(command(order)) as child:
        first = _answer(child, target)
        whole_ms = _clock_ms() - begun
        told = _answer(child, target)["rest"]
    run = Run(
        cache=cache,
        phases=tuple(Phase(stage=s, name=name, ms=ms, times=times) for s, name, ms, times in first["first"]),
        whole_ms=whole_ms,
        imported=tuple(first["imported"]),
        later_ms=tuple(told.pop("later")),
    )
    return run, told


def _clock_ms() -> float:
    """Another clock than the phases are taken by, which nothing sets or slews."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) / 1e6


def _answer(child: process.Child, target: str) -> dict[str, Any]:
    """What the process says next.

    Raises:
        OperatorError: It died, or said nothing for too long.
        DotcuError: What it says that it raised.
    """
    try:
        line = child.line(LIMIT_S)
    except TimeoutError:
        raise _ended(target, f"gave no result within {LIMIT_S:g} s", child) from None
    if line is None:
        raise _ended(target, f"died: {ending(child.status())}", child)
    answer: dict[str, Any] = json.loads(line)
    if "raise" in answer:
        name, message = answer["raise"]
        raise getattr(errors, name, errors.DotcuError)(message)
    return answer


def _ended(target: str, how: str, child: process.Child) -> OperatorError:
    words = "".join(f"\n    {line}" for line in child.last_words().splitlines()[-5:])
    return OperatorError(
        f"the process that made the first call of {target} {how}.{words}\n"
        f"A first call is timed where it gives a result.\nSee what is wrong: dotcu check {target}"
    )
