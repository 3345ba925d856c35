"""Races of threads that compute what another thread stores: reported if what they read has an effect.

Where a Triton program has fewer elements than threads, several threads load the same element, and one of them
stores the result, perhaps in place. The loads of the others race with that store, and nothing comes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dotcu.simulator.machine.shape import WARP
from dotcu.simulator.machine.state import AccessPart, Batch
from dotcu.simulator.program.loads import LoadedValues, LoadEnds
from dotcu.simulator.run import Array
from dotcu.simulator.sanitizers.shadow import MemoryEvent, ThreadAccess

_MAX_HELD = 1 << 12
"""Pairs of threads of two instructions that are kept back at most."""

ReportPairs = Callable[[Array], None]
"""Reports the pairs of threads in a mask."""


class _Held(NamedTuple):
    ends: LoadEnds
    readers: Array
    report: ReportPairs


class Replicas:
    """Keeps races back whose reader may never show what it read, until its batch has ended."""

    def __init__(self, values: LoadedValues) -> None:
        self._values = values
        self._held: dict[int, dict[tuple[int, int], list[_Held]]] = {}
        self._stored: dict[int, dict[int, Array]] = {}

    def store(self, part: AccessPart) -> None:
        """Note which threads execute a store."""
        batch = part.batch
        by_store = self._stored.setdefault(id(batch), {})
        known = by_store.setdefault(id(part.access.instruction), np.zeros(batch.threads, bool))
        known[batch.numbers(part.positions)] = True

    def keep_back(
        self,
        at: ThreadAccess,
        event: MemoryEvent,
        action: str,
        first: Array,
        second: Array,
        report: ReportPairs,
    ) -> Array:
        """Return the mask of the pairs of threads that race for certain; the others are judged later.

        Args:
            at, event, action: The access, the earlier one, and what that did.
            first, second: The threads of the earlier access, and of this one.
        """
        certain = np.ones(len(first), bool)
        earlier_reads = action == "read" and event.access.action == "read"
        if event.shape is not at.batch.shape or (not earlier_reads and at.access.action != "read"):
            return certain
        load = (event if earlier_reads else at).access.instruction
        ends = self._values.ends.get(id(load))
        if ends is None:
            return certain
        pitch, readers = at.batch.shape.pitch, first if earlier_reads else second
        maybe = first // pitch == second // pitch
        if earlier_reads:
            store = self._values.positions[id(at.access.instruction)]
            if any(ends.position < exchange < store for exchange in ends.exchanges):
                # the warp has exchanged what was read before it stores
                certain &= first // WARP != second // WARP
                maybe &= certain
        if maybe.any():
            rows = self._held.setdefault(id(at.batch), {}).setdefault(
                (id(load), id(at.access.instruction)), []
            )
            if sum(len(row.readers) for row in rows) < _MAX_HELD:
                where = np.flatnonzero(maybe)

                def report_some(bad: Array) -> None:
                    mask = np.zeros(len(maybe), bool)
                    mask[where[bad]] = True
                    report(mask)

                rows.append(_Held(ends, readers[maybe], report_some))
        return certain & ~maybe

    def judge(self, batch: Batch) -> None:
        """Report the races of threads that have stored what comes of their read."""
        stored = self._stored.pop(id(batch), {})
        for rows in self._held.pop(id(batch), {}).values():
            for ends, readers, report in rows:
                shown = np.zeros(batch.threads, bool)
                for store in ends.stores:
                    shown |= stored.get(store, False)
                if ends.exchanges:
                    shown = np.repeat(shown.reshape(-1, WARP).any(axis=1), WARP)
                if shown[readers].any():
                    report(shown[readers])
