"""One case from its inputs to its rows: verified, measured, verified where it was measured, and judged."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import median

import torch

from dotcu.benchmark import statistics
from dotcu.benchmark.device import BenchDevice, steady_samples, throttled_blocks, throttling_notes
from dotcu.benchmark.limits.limit import BEYOND, Limit
from dotcu.benchmark.measuring import Conditions, measure
from dotcu.benchmark.results import L2, OWN, BenchKey, BenchRow, CallTime, Measured, Protocol, Status
from dotcu.benchmark.statistics import Ratio, summary
from dotcu.benchmark.targets import BenchTarget, Call, Contenders, prepare_calls
from dotcu.benchmark.verify import Failures, TimedResults, verify
from dotcu.benchmark.work import Work
from dotcu.benchmark.workloads import InputValues, Workload
from dotcu.operator import Sample
from dotcu.tracebacks import first_lines

CONSTANT_INPUTS = "its inputs do not vary, so a remembered result could not be detected"
NOT_VERIFIED = "not verified while it was timed: interrupted"
TOO_LITTLE = "not verified throughout while it was timed: too little memory"


@dataclass(frozen=True, kw_only=True, eq=False)
class TimedCase:
    """One case to time: a target on its inputs, beside others; `marks` are remarks for its own rows."""

    target: BenchTarget
    dtype: str
    workload: Workload
    contenders: Contenders
    states: Sequence[L2]
    device: BenchDevice
    protocol: Protocol
    marks: tuple[str, ...] = ()

    def rows(self) -> Iterator[BenchRow]:
        """Yield the rows of all contenders and states of L2; before a KeyboardInterrupt, those measured."""
        missing = [(l2, name) for l2 in self.states for name in self.contenders]
        status: Status = "failed"
        reason = ""
        try:
            for row in self._measured_rows():
                missing.remove((row.key.l2, row.key.contender))
                yield row
        except torch.OutOfMemoryError as error:
            status, reason = "skipped", f"the GPU has too little memory: {first_lines(error)}"
        except Exception as error:  # the author's samples failed, say, or no timer works
            reason = first_lines(error) or type(error).__name__
        # The exception is released by now, and with it all memory of the case.
        with suppress(Exception):  # after a fault the GPU is unusable: later rows say so
            gc.collect()
            torch.cuda.empty_cache()
        yield from (replace(self._empty_row(name, l2), status=status, reason=reason) for l2, name in missing)

    def _measured_rows(self) -> Iterator[BenchRow]:
        sets = self.workload.sets(self.protocol.sets, self.protocol.seed, self.device.device)
        values = self.target.input_values(sets)
        calls, errors = prepare_calls(self.contenders)
        failures: Failures = {name: ("failed", why) for name, why in errors.items()}
        failures |= verify(self.target, calls, sets[0], values)
        calls = {name: call for name, call in calls.items() if name not in failures}
        work = self._work(calls, sets[0], values)
        for l2 in self.states:
            yield from self._state_rows(l2, calls, sets, values, failures, work)

    def _state_rows(
        self, l2: L2, calls: Mapping[str, Call], sets: Sequence[Sample], values: InputValues,
        failures: Failures, work: Work | str | None,
    ) -> Iterator[BenchRow]:  # fmt: skip
        """Yield the rows of one state of L2, the operator's own first; `work` may be why it is unknown."""
        timed = TimedResults(self.target, values)
        conditions = Conditions(
            sets=sets, l2=l2, protocol=self.protocol, refresh=values, probe=timed.take,
            device=self.device.device, mutates=self.target.mutates,
        )  # fmt: skip
        measured, errors, interrupted = measure(calls, conditions, self.device.timer)
        unverified = ""
        try:
            timed.verify()
        except KeyboardInterrupt:
            interrupted, unverified = True, NOT_VERIFIED
        verified = self.target.unverified or self.target.caveat
        failures = {
            **{name: ("failed", first_lines(error)) for name, error in errors.items()},
            **failures,
            **{name: ("wrong", error) for name, error in timed.wrong.items()},
        }
        remarks = work if isinstance(work, str) else "", "" if values.vary else CONSTANT_INPUTS, *self.marks
        limit: Callable[[Work, L2], Limit | None] = self.device.limit
        own: BenchRow | None = None
        for name in self.contenders:
            row = self._empty_row(name, l2)
            if name in failures:
                status, reason = failures[name]
                row = replace(row, status=status, reason=reason)
            elif name in measured:
                missed = TOO_LITTLE if name in timed.missed else ""
                marks = verified, unverified, missed, *(remarks if name == OWN else ())
                known = None if isinstance(work, str) else work
                row = replace(row, work=known, marks=tuple(filter(None, marks)))
                try:
                    row = _figures_of(row, measured, own=own, limit=limit, protocol=self.protocol)
                except KeyboardInterrupt:  # while the rates that the limit needs were measured
                    limit, interrupted = lambda work, l2: None, True
                    row = _figures_of(row, measured, own=own, limit=limit, protocol=self.protocol)
            else:  # not begun when the user interrupted
                continue
            own = row if name == OWN else own
            yield row
        if interrupted:
            raise KeyboardInterrupt

    def _work(self, calls: Mapping[str, Call], sample: Sample, values: InputValues) -> Work | str | None:
        """Return the work of a call, or why it is unknown."""
        call = calls.get(OWN) or next(iter(calls.values()), None)
        if call is None:
            return None
        try:
            values(sample, 0)
            return self.target.work(sample, call(sample))
        except Exception as error:
            return first_lines(error)

    def _empty_row(self, name: str, l2: L2) -> BenchRow:
        return BenchRow(
            key=BenchKey(op=self.target.name, case=self.workload.name, contender=name, l2=l2),
            dtype=self.dtype, elements=self.workload.elements, bytes=self.workload.bytes,
        )  # fmt: skip


def _figures_of(
    row: BenchRow, measured: Mapping[str, Measured], *, own: BenchRow | None,
    limit: Callable[[Work, L2], Limit | None], protocol: Protocol,
) -> BenchRow:  # fmt: skip
    """Return a row with the figures of its samples, beside those of `own`, or with why there are none."""
    samples = measured[row.key.contender]
    lost = throttled_blocks(samples.blocks)
    blocks = [block for at, block in enumerate(samples.blocks) if at not in lost]
    row = replace(row, measured=samples, dropped=sum(len(samples.blocks[at].calls) for at in lost))
    if not any(block.calls for block in blocks):
        if not lost:
            return replace(row, status="skipped", reason="interrupted before a sample was taken")
        reason = f"every sample was dropped: {next(iter(lost.values()))}"
        return replace(row, status="throttled", reason=reason)
    others = [other for name, other in measured.items() if name != row.key.contender and other.blocks]
    if reason := implausibility(samples, others):
        return replace(row, status="refused", reason=reason)
    step = samples.resolution_us
    times = [block.times_us for block in blocks]
    time = summary(times, confidence=protocol.confidence, resolution_us=step)
    marks = [*row.marks, *throttling_notes(samples.blocks)]
    least = None if row.work is None else limit(row.work, row.key.l2)
    percent = None
    if least is not None and row.work is not None:
        if reason := _refusal(time.median_us, least, row.work, resolution_us=step):
            return replace(row, status="refused", reason=reason, limit=least)
        percent = least.percent(time.median_us)
        marks = [*filter(None, [_mark(time.median_us, least, row.work, resolution_us=step)]), *marks]
    if time.noise > 4 * protocol.noise:
        marks.append(f"noisy: its median is known to {time.noise:.1%}")
    host = [[taken_us] for taken_us in samples.host_us]
    return replace(
        row, time=time, host=summary(host, confidence=protocol.confidence) if host else None, limit=least,
        percent=percent, ratio=_ratio(row, own, protocol), marks=tuple(marks),
    )  # fmt: skip


def _ratio(row: BenchRow, own_row: BenchRow | None, protocol: Protocol) -> Ratio | None:
    """Return the contender's time over the operator's own, by the blocks that both have."""
    if row.key.contender == OWN or own_row is None or own_row.status != "measured":
        return None
    own, other = own_row.measured, row.measured
    if own is None or other is None or own.by != other.by:
        return None
    theirs, ours = steady_samples(other.blocks, own.blocks)
    step = max(own.resolution_us, other.resolution_us)
    return statistics.ratio(theirs, ours, confidence=protocol.confidence, resolution_us=step)


MARKED_ABOVE = 102.0  # percent of the limit: ceilings are measured, so known to a percent or two


def _refusal(median_us: float, limit: Limit, work: Work, *, resolution_us: float = 0.0) -> str:
    """Return why a measured time, which may be short by a step of the clock, is impossible; else nothing."""
    sheet_us = limit.sheet_us
    if sheet_us is None or median_us + resolution_us >= sheet_us:
        return ""
    if work.declared:
        cause = "`work` that claims more than a call does"
        remedy = "Compare what `work` returns with what the kernel reads, writes and computes."
    else:
        cause = "tensors that are not read or written whole"
        remedy = "Where they are not, declare what is moved with the operator's .work decorator."
    amounts = [f"{work.bytes / 1e6:.4g} MB"] if work.bytes else []
    amounts += [f"{work.flops / 1e9:.4g} GFLOP in {work.dtype}"] if work.flops else []
    return (
        f"{median_us:.4g} us is less than the {sheet_us:.4g} us that this GPU's datasheet allows for "
        f"{' and '.join(amounts)}.\nPossible causes: {cause}, a result that is remembered from an "
        f"earlier call, work outside of the timed window.\n{remedy}"
    )


def _mark(median_us: float, limit: Limit, work: Work, *, resolution_us: float = 0.0) -> str:
    """Return a remark on a possible time that is less than its limit; empty where it is not."""
    percent, longest_us = limit.percent(median_us), median_us + resolution_us
    if percent <= MARKED_ABOVE or longest_us >= limit.time_us:
        return ""
    shown = f"{percent:.0f} % of the limit"
    if longest_us * MARKED_ABOVE / 100 >= limit.floor_us and limit.floor_us < limit.time_us:
        return f"{shown}: its writes stay in L2, in part or all"
    if work.dtype in BEYOND and limit.what.startswith(work.dtype):
        return f"{shown}: more than {work.dtype} instructions can do, so it may compute in tf32 or in halves"
    doubted = "its `work`" if work.declared else "that it touches its tensors whole"
    return f"{shown}, more than was ever measured on this GPU: doubt {doubted}, or the figure"


# Some calls may be odd in any measurement: a record that the tracer lost, a search that a library makes once.
# What is rarer than this share of the calls, or of the kernels, does not move the median, so it is ignored.
_RARE = 0.02

_HEAVY = 3  # a call is heavy that has so many times the median's kernels, and more
_DEFERRED = 0.25  # of the median's kernels: what heavy calls have beyond it, spread over all calls

_FLOOR_US = 2.0
"""Two events with a kernel between them are never closer. Source: measured: H200, CUDA 13.0, 2026-11: a queue
of the smallest kernels drains at 2 us each."""

_GAP = 3  # two groups of times are apart where the next longer is so many times as long
_GROUP = 0.1  # of the calls: less is a tail, no group

_EVERY_CALL = "Do the work of a call in that call, every time."

_MISPLACED: Mapping[str, str] = {
    "elsewhere": (
        "a kernel ran on another GPU than the caller's, where nothing says when a call begins and ends. "
        "Do the work of a call on the GPU of its inputs."
    ),
    "early": (
        "a kernel on another stream did not wait for what the caller queued, its inputs among it. "
        "Let it wait first: side.wait_stream(torch.cuda.current_stream())."
    ),
    "late": (
        "a kernel on another stream still ran when the caller's stream was done, which does not wait for it. "
        "Join them before returning: torch.cuda.current_stream().wait_stream(side)."
    ),
}
"""The counts of `CallTime` of kernels outside of the call's window, and what they mean, in words."""


def implausibility(measured: Measured, others: Iterable[Measured] = ()) -> str:
    """Return why a contender's figures cannot be believed, and what to do; empty where nothing is wrong.

    By the kernels of its calls, which only CUPTI counts; by events, by their times alone. `others` are the
    other contenders in the same case and state of L2.
    """
    calls = _calls(measured)
    kernels = [call.kernels for call in calls if call.kernels is not None]
    if not kernels:
        return _skipping([call.time_us for call in calls])
    strays = sum(call.stray for call in calls)
    if strays > _RARE * (strays + sum(kernels)):
        return (
            f"{strays} kernels began outside of the {len(calls)} calls that were timed: another thread does "
            "their work, or a later call. Launch all of it before the call returns."
        )
    for name, meaning in _MISPLACED.items():
        count = sum(getattr(call, name) > 0 for call in calls)
        if count > _RARE * len(calls):
            return f"in {count} of {len(calls)} calls {meaning}"
    empty, usual = kernels.count(0), median(kernels)
    if empty > _RARE * len(kernels):
        if most := max(call.kernels or 0 for one in (measured, *others) for call in _calls(one)):
            return (
                f"{empty} of {len(kernels)} calls ran no kernel, and others ran up to {most}: results are "
                f"remembered, or calls are batched. {_EVERY_CALL}"
            )
        return (
            f"none of {empty} calls ran a kernel, so there is no device time. "
            "Time what works on CUDA tensors, and does more than make views of them."
        )
    heavy = [count for count in kernels if count > _HEAVY * usual]
    if sum(heavy) - usual * len(heavy) <= _DEFERRED * usual * len(kernels):
        return ""
    return (
        f"{len(heavy)} of {len(kernels)} calls ran up to {max(heavy)} kernels and half of them no more than "
        f"{usual:g}: calls are batched, or their work is put off. {_EVERY_CALL}"
    )


def _skipping(times_us: Sequence[float]) -> str:
    """Calls that are too short to have run a kernel, beside others that did; by their times alone.

    Where all are as short, times alone say nothing: the limit of the work then does.
    """
    times = sorted(times_us)
    short = [time for time in times if time < _FLOOR_US]
    rest = times[len(short) :]
    if len(short) <= _RARE * len(times) or len(rest) < _GROUP * len(times):
        return ""
    # A twentieth of either may lie between the two.
    if rest[len(rest) // 20] < _GAP * short[-1 - len(short) // 20]:
        return ""
    return (
        f"{len(short)} of {len(times)} calls took {median(short):.2g} us, less than a launch does, and the "
        f"others {median(rest):.3g} us: results are remembered, or calls are batched. {_EVERY_CALL}"
    )


def _calls(measured: Measured) -> list[CallTime]:
    return [call for block in measured.blocks for call in block.calls]
