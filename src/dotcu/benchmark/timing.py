"""One case from its inputs to its rows: verified, measured, verified where it was measured, judged."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from dotcu.benchmark.judging import Bench, judged
from dotcu.benchmark.lab import Lab
from dotcu.benchmark.limits.limit import Limit
from dotcu.benchmark.measured import L2, Measured
from dotcu.benchmark.measuring import Interrupted, Measurement, measure
from dotcu.benchmark.probes import Probes
from dotcu.benchmark.protocol import Protocol
from dotcu.benchmark.row import OWN, Key, Row, Status
from dotcu.benchmark.things import Thing
from dotcu.benchmark.verify import Verdict, verify
from dotcu.benchmark.work import Work
from dotcu.benchmark.workloads.contenders import Compute, Contender, prepare
from dotcu.benchmark.workloads.refresh import Refreshing
from dotcu.benchmark.workloads.workload import Workload
from dotcu.checking.trials.telling import first_lines
from dotcu.operator import Sample

UNVARIED = "its inputs do not vary, so a kept result could not be told"

UNJUDGED = "not verified while it was timed: interrupted"

Limiting = Callable[[Work, L2], Limit | None]


@dataclass(frozen=True, kw_only=True, eq=False)
class _State:
    """A case in one state of L2: what is known of it once it is measured.

    Attributes:
        verdicts: On each contender, before it was timed.
        work: Of a call, or why that cannot be told.
        varies: Whether inputs differ from call to call.
        unjudged: Why results of timed calls were not judged, in words; empty where they were.
    """

    l2: L2
    calls: Mapping[str, Compute]
    verdicts: Mapping[str, Verdict]
    work: Work | str | None
    probes: Probes
    varies: bool
    unjudged: str = ""

    def verdict(self, name: str) -> Verdict:
        """The last one on a contender."""
        what = self.probes.wrong.get(name)
        return Verdict(status="wrong", reason=what) if what else self.verdicts[name]

    def marks(self, name: str) -> tuple[str, ...]:
        """What a reader has to know of how a contender was verified, and of its work."""
        own = (self.work if isinstance(self.work, str) else "", "" if self.varies else UNVARIED)
        looked = self.verdicts[name].mark, self.unjudged, self.probes.mark(name)
        return tuple(filter(None, (*looked, *(own if name == OWN else ()))))


@dataclass(frozen=True, kw_only=True, eq=False)
class Timed:
    """One case, with all that timing it takes.

    Attributes:
        op: The qualified name of what is timed.
        thing: The same, as timing needs it.
        dtype: Its name, for the rows.
        states: Of L2, in which it is timed.
        marks: What a reader has to know of every row of the operator's own.
    """

    op: str
    thing: Thing
    dtype: str
    workload: Workload
    contenders: Sequence[Contender]
    states: Sequence[L2]
    lab: Lab
    protocol: Protocol
    marks: tuple[str, ...] = ()

    def rows(self) -> Iterator[Row]:
        """The rows of every contender and state of L2, as they are done.

        Raises:
            KeyboardInterrupt: The user's; the rows of what was measured until then came before.
        """
        left = [(l2, contender.name) for l2 in self.states for contender in self.contenders]
        status: Status = "failed"
        reason = ""
        try:
            for row in self._of_sets():
                left.remove((row.key.l2, row.key.contender))
                yield row
        except torch.OutOfMemoryError as error:
            status, reason = "skipped", f"the GPU has too little memory: {first_lines(error)}"
        except Exception as error:  # the author's samples, say, or no means of taking time is left
            reason = first_lines(error) or type(error).__name__
        # What was raised is let go by now, and with it all memory of the case.
        with suppress(Exception):  # after a fault the GPU is unusable: rows to come say so
            gc.collect()
            torch.cuda.empty_cache()
        yield from (replace(self._empty(name, l2), status=status, reason=reason) for l2, name in left)

    def _of_sets(self) -> Iterator[Row]:
        sets = self.workload.sets(self.protocol.sets, self.protocol.seed, self.lab.device)
        referee, refresh = self.thing.referee, self.thing.refresh(sets)
        prepared = prepare(self.contenders)
        failed = {name: Verdict(status="failed", reason=why) for name, why in prepared.failed.items()}
        verdicts = failed | verify(referee, prepared.calls, sets[0], refresh)
        calls = {name: call for name, call in prepared.calls.items() if not verdicts[name].status}
        work = self._work(calls, sets[0], refresh)
        for l2 in self.states:
            state = _State(
                l2=l2, calls=calls, verdicts=verdicts, work=work, probes=Probes(referee, refresh),
                varies=refresh.changes,
            )  # fmt: skip
            yield from self._in_state(state, sets, refresh)

    def _in_state(self, state: _State, sets: Sequence[Sample], refresh: Refreshing) -> Iterator[Row]:
        interrupted = False
        try:
            found = measure(
                state.calls, sets, l2=state.l2, timer=self.lab.timer, protocol=self.protocol,
                refresh=refresh, probe=state.probes.take, device=self.lab.device, mutates=self.thing.mutates,
            )  # fmt: skip
        except Interrupted as error:
            found, interrupted = error.measurement, True
        try:
            state.probes.judge()
        except KeyboardInterrupt:
            state, interrupted = replace(state, unjudged=UNJUDGED), True
        yield from self._judged(state, found, interrupted)

    def _judged(self, state: _State, found: Measurement, interrupted: bool) -> Iterator[Row]:
        """The rows of what was measured, the operator's own first.

        Raises:
            KeyboardInterrupt: The user interrupted here or before, once the rows were given.
        """
        limit, own = self.lab.limit, None
        for contender in self.contenders:
            try:
                row = self._row(contender.name, state, found, own, limit)
            except KeyboardInterrupt:  # it took the user too long to measure what the limit needs
                limit, interrupted = _unlimited, True
                row = self._row(contender.name, state, found, own, limit)
            own = row if contender.name == OWN else own
            if row is not None:
                yield row
        if interrupted:
            raise KeyboardInterrupt

    def _row(
        self, name: str, state: _State, found: Measurement, own: Row | None, limit: Limiting
    ) -> Row | None:
        """A contender's row; None where it was not begun when the user interrupted."""
        row, verdict = self._empty(name, state.l2), state.verdict(name)
        if verdict.status:
            return replace(row, status=verdict.status, reason=verdict.reason)
        if name in found.errors:
            return replace(row, status="failed", reason=first_lines(found.errors[name]))
        if name not in found.measured:
            return None
        bench = Bench(
            protocol=self.protocol,
            limit=limit,
            work=None if isinstance(state.work, str) else state.work,
            marks={name: (*state.marks(name), *(self.marks if name == OWN else ()))},
            own=own,
        )
        return judged(row, found.measured[name], _believed(found.measured), bench)

    def _work(self, calls: Mapping[str, Compute], sample: Sample, refresh: Refreshing) -> Work | str | None:
        """The work of a call, or why that cannot be told."""
        call = calls.get(OWN) or next(iter(calls.values()), None)
        if call is None:
            return None
        try:
            refresh(sample, 0)
            return self.thing.work(sample, call(sample))
        except Exception as error:
            return first_lines(error)

    def _empty(self, name: str, l2: L2) -> Row:
        return Row(
            key=Key(op=self.op, case=self.workload.name, contender=name, l2=l2),
            dtype=self.dtype,
            elements=self.workload.elements,
            bytes=self.workload.bytes,
        )


def _believed(measured: Mapping[str, Measured]) -> Mapping[str, Measured]:
    return {name: one for name, one in measured.items() if one.blocks}


def _unlimited(work: Work, l2: L2) -> None:
    """No limit is looked for any more."""
