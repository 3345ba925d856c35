"""Figures that cannot be believed: work that was done outside of the calls that were timed, or not at all.

Some calls may be odd in any measurement: a record that the tracer lost, a search that a library makes once.
What is rarer than `_RARE` moves no median, so it is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from dotcu.benchmark.measured import Call, Measured

_RARE = 0.02  # of the calls, or of the kernels

_HEAVY = 3  # a call is heavy that has so many times the median's kernels, and more
_DEFERRED = 0.25  # of the median's kernels: what heavy calls have beyond it, spread over all calls

_FLOOR_US = 2.0
"""Two events with a kernel between them are never closer. Source: measured: H200, CUDA 13.0, 2026-11: a queue
of the smallest kernels drains at 2 us each."""

_GAP = 3  # two groups of times are apart where the next longer is so many times as long
_GROUP = 0.1  # of the calls: less is a tail, no group


def suspects(measured: Measured, others: Iterable[Measured] = ()) -> str:
    """Why a contender's figures cannot be believed, and what to do, in words; empty where nothing is wrong.

    Args:
        others: The other contenders, in the same case and state of L2.
    """
    calls = _calls(measured)
    if not calls:
        return ""
    if any(call.kernels is None for call in calls):
        return _skipping(calls)
    return (
        _strays(calls)
        or _elsewhere(calls)
        or _early(calls)
        or _late(calls)
        or _empty(calls, others)
        or _uneven(calls)
    )


def _strays(calls: Sequence[Call]) -> str:
    strays = sum(call.stray for call in calls)
    if strays <= _RARE * (strays + sum(_kernels(call) for call in calls)):
        return ""
    return (
        f"{strays} kernels began outside of the {len(calls)} calls that were timed: another thread does "
        "their work, or a later call. Launch all of it before the call returns."
    )


def _elsewhere(calls: Sequence[Call]) -> str:
    elsewhere = sum(call.elsewhere > 0 for call in calls)
    if elsewhere <= _RARE * len(calls):
        return ""
    return (
        f"in {elsewhere} of {len(calls)} calls a kernel ran on another GPU than the caller's, where nothing "
        "says when a call begins and ends. Do the work of a call on the GPU of its inputs."
    )


def _early(calls: Sequence[Call]) -> str:
    early = sum(call.early > 0 for call in calls)
    if early <= _RARE * len(calls):
        return ""
    return (
        f"in {early} of {len(calls)} calls a kernel began before the caller's stream came to the call: it is "
        "on another stream, which does not wait for what the caller queued, its inputs among it. Let that "
        "wait first: side.wait_stream(torch.cuda.current_stream())."
    )


def _late(calls: Sequence[Call]) -> str:
    late = sum(call.late > 0 for call in calls)
    if late <= _RARE * len(calls):
        return ""
    return (
        f"in {late} of {len(calls)} calls a kernel still ran when the caller's stream was done: it is on "
        "another stream, for which the caller does not wait. Join that before returning: "
        "torch.cuda.current_stream().wait_stream(side)."
    )


def _empty(calls: Sequence[Call], others: Iterable[Measured]) -> str:
    empty = sum(call.kernels == 0 for call in calls)
    if empty <= _RARE * len(calls):
        return ""
    if empty < len(calls):
        found = f"{empty} of {len(calls)} calls ran no kernel, and the others did"
        return f"{found}: results are kept, or calls are batched. {_EVERY_CALL}"
    busy = [f"{other.contender} ran {most}" for other in others if (most := _most(other))]
    if busy:
        return f"none of {len(calls)} calls ran a kernel, where {busy[0]}: results are kept. {_EVERY_CALL}"
    return (
        f"none of {len(calls)} calls ran a kernel, so there is no device time. "
        "Time what works on CUDA tensors, and does more than make views of them."
    )


_EVERY_CALL = "Do the work of a call in that call, every time."


def _uneven(calls: Sequence[Call]) -> str:
    """Calls whose kernels other calls run: what is put off makes some of them far heavier than the median."""
    counts = [_kernels(call) for call in calls]
    usual = median(counts)
    heavy = [count for count in counts if count > _HEAVY * usual]
    if sum(heavy) - usual * len(heavy) <= _DEFERRED * usual * len(counts):
        return ""
    return (
        f"{len(heavy)} of {len(calls)} calls ran up to {max(heavy)} kernels and half of them no more than "
        f"{usual:g}: calls are batched, or their work is put off. {_EVERY_CALL}"
    )


def _skipping(calls: Sequence[Call]) -> str:
    """Calls that are too short to have run a kernel, beside others that did; by their times alone.

    Where all are as short, times alone say nothing: the limit of the work then does.
    """
    times = sorted(call.time_us for call in calls)
    short = [time for time in times if time < _FLOOR_US]
    rest = times[len(short) :]
    if len(short) <= _RARE * len(times) or len(rest) < _GROUP * len(times):
        return ""
    # A twentieth of either may lie between the two.
    if rest[len(rest) // 20] < _GAP * short[-1 - len(short) // 20]:
        return ""
    return (
        f"{len(short)} of {len(times)} calls took {median(short):.2g} us, less than a launch does, and the "
        f"others {median(rest):.3g} us: results are kept, or calls are batched. {_EVERY_CALL}"
    )


def _calls(measured: Measured) -> list[Call]:
    return [call for block in measured.blocks for call in block.calls]


def _kernels(call: Call) -> int:
    return call.kernels or 0


def _most(measured: Measured) -> int:
    return max(map(_kernels, _calls(measured)), default=0)
