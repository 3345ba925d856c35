"""Undefined values: what threads hold of bytes that nothing wrote, until something depends on it.

A load of unwritten bytes is no fault by itself: C++ copies the padding of structs, a store to a bit-field
loads the rest of its word, and compilers move loads out of their guards. So the bits that are undefined go
with a value through moves, logic, arithmetic, selects and shuffles, and into shared and local memory. The
fault is reported, at the load, where a branch, an address, an atomic or a result in global memory depends
on them. In code for debugging, registers hold the source's variables, and are undefined until they are set:
that is reported where something depends on them. The same machinery holds back the check of a read for races
while the kernel may still drop what it read, that of a shuffle from a thread that takes no part, and that of
a division by zero in a Triton kernel.

Nothing of this runs while no register holds such a value.

Source: J. Seward, N. Nethercote, "Using Valgrind to detect undefined value errors with bit-precision" (2005).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dotcu.simulator.machine.shape import WARP, Threads
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array

NOBODY = -1
PARTLY, PADDING = -1, -2
"""Of what was loaded with a value some was written; it is bytes that C++ copies with wider members."""


class HeldCheck(NamedTuple):
    """A check of some threads' values, made once something depends on these.

    Attributes:
        report: Makes the check for some of its threads.
        threads: Ascending; those whose check it is. Others of their warps may have got their value.
        done: For each thread of the batch whether it was made.
        within_block: It is made at the end of the basic block, for the threads that keep the value.
        place: For each thread the address of what it loaded, or `PARTLY` or `PADDING`. None: no memory.
    """

    report: Callable[[Threads], None]
    threads: Threads
    done: Array
    within_block: bool = False
    place: Array | None = None


class UndefinedBits(NamedTuple):
    """The undefined bits of one register.

    Attributes:
        bits: For each thread of the batch, as an unsigned integer of the register's size.
        checks: For each thread the number of the check that is due.
    """

    bits: Array
    checks: Array

    def of(self, positions: Array) -> UndefinedBits:
        """Return what is undefined in some threads."""
        return UndefinedBits(self.bits[positions], self.checks[positions])


class UndefinedValues:
    """The undefined bits of a batch's registers, by slot, and the checks that they are held for."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.slots: dict[int, UndefinedBits] = {}
        self.checks: list[HeldCheck] = []
        # The instruction that may come to depend on one of them.
        self.user: FlatInstruction | None = None
        # By a check: others of values that went into one value with its own, and in which threads.
        self._joined: dict[int, dict[int, Array]] = {}

    def hold(self, check: HeldCheck) -> int:
        """Return the number of a new check."""
        self.checks.append(check)
        return len(self.checks) - 1

    def put(self, slot: int, threads: Threads, bits: Array, checks: Array | int) -> None:
        """Set the undefined bits of a register in some threads.

        Args:
            bits, checks: For each thread, or for all.
        """
        known = self.slots.get(slot)
        if not bits.any():
            if known is not None:
                known.bits[threads] = 0
                if not known.bits.any():
                    del self.slots[slot]
            return
        if known is None or known.bits.dtype != bits.dtype:
            known = UndefinedBits(np.zeros(self.threads, bits.dtype), np.full(self.threads, NOBODY, np.int32))
            self.slots[slot] = known
        known.bits[threads] = bits
        known.checks[threads] = checks

    def of(self, slot: int, threads: Threads) -> UndefinedBits | None:
        """Return what is undefined of a register in some threads; None if nothing is."""
        known = self.slots.get(slot)
        if known is None:
            return None
        known = known.of(threads)
        return known if known.bits.any() else None

    def stored(self, slots: Sequence[int], threads: Threads) -> list[UndefinedBits] | None:
        """Return what is undefined of registers that threads store, or None; check held reads of these."""
        for slot in slots:
            known = self.of(slot, threads)
            if known is not None:
                self.use(slot, threads[self.are_held(known.checks) & (known.bits != 0)])
        found = [self.of(slot, threads) for slot in slots]
        if not any(found):
            return None
        none = UndefinedBits(np.zeros(len(threads), np.uint8), np.full(len(threads), NOBODY, np.int32))
        return [none if known is None else known for known in found]

    def are_held(self, checks: Array) -> Array:
        """Return the mask of checks that are of reads, and made at the end of the basic block."""
        return np.array([*(check.within_block for check in self.checks), False])[checks]

    def places(self, checks: Array, threads: Threads) -> Array:
        """Return for each thread the address that its check is about, as `HeldCheck.place`."""
        found = np.full(len(threads), PARTLY, np.int64)
        for number in np.unique(checks[checks != NOBODY]).tolist():
            place, here = self.checks[number].place, checks == number
            if place is not None:
                found[here] = place[threads[here]]
        return found

    def use(self, slot: int, threads: Threads) -> None:
        """Make the checks that are due for a register in some threads; its value counts as defined then."""
        known = self.of(slot, threads)
        if known is None:
            return
        due = known.bits != 0
        self.settle(known.checks[due], threads[due])
        self.put(slot, threads, np.zeros(1, known.bits.dtype), NOBODY)

    def settle(self, checks: Array, threads: Threads) -> None:
        """Make checks of threads, one for each, that were not made yet."""
        for number in np.unique(checks).tolist():
            check, users = self.checks[number], threads[checks == number]
            own = users[np.isin(users, check.threads)]
            warps = users[~np.isin(users, check.threads)] // WARP
            own = np.union1d(own, check.threads[np.isin(check.threads // WARP, warps)])
            own = own[~check.done[own]]
            if len(own):
                check.done[own] = True
                check.report(own)
                for other, joined in self._joined.get(number, {}).items():
                    also = own[joined[own]]
                    self.settle(np.full(len(also), other), also)

    def join(self, checks: Array, others: Array, threads: Threads) -> None:
        """Note that a check of a thread makes another one due, too.

        Args:
            checks, others: For each of the threads, the numbers of both checks.
        """
        for number, other in np.unique(np.stack((checks, others)), axis=1).T.tolist():
            joined = self._joined.setdefault(number, {}).setdefault(other, np.zeros(self.threads, bool))
            joined[threads[(checks == number) & (others == other)]] = True

    def end_block(self, threads: Threads, kept: frozenset[int]) -> None:
        """Drop what no later instruction reads, and make the checks that are due at the end of a basic block.

        Args:
            threads: The threads that were in the block.
        """
        for slot in tuple(self.slots):
            known = self.slots[slot]
            if slot in kept:
                self.use(slot, threads[self.are_held(known.checks[threads]) & (known.bits[threads] != 0)])
            else:
                self.put(slot, threads, np.zeros(1, known.bits.dtype), NOBODY)
        if not self.slots:
            self.checks.clear()
            self._joined.clear()


def full_bits(dtype: np.dtype[Any]) -> int:
    """Return the bits of a register of which all are undefined."""
    return 1 if dtype == np.bool_ else (1 << 8 * dtype.itemsize) - 1


class HeldLoad(NamedTuple):
    """The undefined bits of one element that some threads loaded.

    Attributes:
        element: The number of the element in its vector.
        bits, check: For each thread its undefined bits, and the number of the check that is due.
    """

    element: int
    threads: Threads
    bits: Array
    check: int
