"""The arithmetic of mbarrier objects: phases, arrivals and transactions in one 64-bit word.

A phase ends when no arrival is pending and no transaction is outstanding; the next one then
expects its arrivals anew. How the word is laid out is this simulator's own affair, as PTX
leaves it open:

    bits  0 to 19   arrivals that the phase still waits for
    bits 20 to 39   arrivals that each phase expects
    bits 40 to 60   bytes of transactions outstanding, in two's complement
    bit  61         the phase's parity
    bits 62 to 63   10, which tells an object from other bytes

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier" (contents
of the object; its phase; arrive-on, expect-tx and complete-tx operations).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dotcu.simulator.machine.chunk import Array

MAX_COUNT = (1 << 20) - 1
_TX_BITS = 21
_TX_SIGN = 1 << (_TX_BITS - 1)
_OBJECT = 0b10


class State(NamedTuple):
    """Objects, field by field; each an array of int64."""

    parity: Array
    expected: Array
    pending: Array
    tx: Array


class Change(NamedTuple):
    """What lanes do to an object, each one value for all lanes or one a lane.

    Attributes:
        arrive: Arrivals.
        drop: Arrivals that later phases no longer expect.
        tx: Bytes of transactions: expected above 0, completed below.
    """

    arrive: Array | int = 0
    drop: Array | int = 0
    tx: Array | int = 0


def pack(state: State) -> Array:
    """States as words."""
    tx = state.tx & ((1 << _TX_BITS) - 1)
    low: Array = state.pending | state.expected << 20 | tx << 40 | state.parity << 61
    word: Array = low.astype(np.uint64) | np.uint64(_OBJECT << 62)
    return word


def unpack(words: Array) -> State:
    """Words as states."""

    def field(first: int, bits: int) -> Array:
        part: Array = words >> np.uint64(first) & np.uint64((1 << bits) - 1)
        return part.astype(np.int64)

    tx = field(40, _TX_BITS)
    return State(
        parity=field(61, 1),
        expected=field(20, 20),
        pending=field(0, 20),
        tx=(tx ^ _TX_SIGN) - _TX_SIGN,
    )


def are_objects(words: Array) -> Array:
    """Which words are mbarrier objects."""
    result: Array = words >> np.uint64(62) == _OBJECT
    return result


def fresh(count: Array) -> Array:
    """Objects in their first phase, which expects `count` arrivals."""
    count = count.astype(np.int64)
    return pack(State(np.zeros_like(count), count, count, np.zeros_like(count)))


class _Sums(NamedTuple):
    """Running sums of a change over the lanes in their order, beginning with 0."""

    arrive: Array
    drop: Array
    tx: Array


def advance(view: Array, index: Array, change: Change) -> tuple[Array, Array]:
    """Apply a change of many lanes, one after the other where they share an object.

    Args:
        view: Words; updated.
        index: For each lane, its word.

    Returns:
        For each lane the word that it found, and whether it was refused because the phase does
        not wait for so many arrivals, or cannot count so many bytes.
    """
    count = len(index)
    order = np.argsort(index, kind="stable")
    cells, starts = np.unique(index[order], return_index=True)
    owner = np.repeat(np.arange(len(cells)), np.diff(np.append(starts, count)))
    sums = _Sums(*[_running(np.broadcast_to(np.asarray(c, np.int64), count)[order]) for c in change])
    state, found, refused = _in_turn(unpack(view[cells]), starts, owner, sums)
    view[cells] = pack(state)
    seen, bad = np.empty(count, np.uint64), np.empty(count, bool)
    seen[order], bad[order] = found, refused
    return seen, bad


def _running(values: Array) -> Array:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(values)))


def _in_turn(state: State, starts: Array, owner: Array, sums: _Sums) -> tuple[State, Array, Array]:
    """Go through the lanes by phases: in each round, all lanes that the present phase takes in."""
    count = len(owner)
    places, at = np.arange(count), starts
    ends = np.append(starts[1:], count)
    found, refused = np.zeros(count, np.uint64), np.zeros(count, bool)
    while (at < ends).any():
        reach = _reach(state, at, ends, sums)
        stuck = (reach == at) & (at < ends)
        after = _moved(state, at, reach, sums)
        stuck |= np.abs(after.tx) > MAX_COUNT
        reach = np.where(stuck, at + 1, reach)
        here = places[(places >= at[owner]) & (places < reach[owner])]
        mine = owner[here]
        before = state.pending[mine] - (sums.arrive[here] - sums.arrive[at[mine]])
        found[here] = pack(State(state.parity[mine], state.expected[mine], before, state.tx[mine]))
        refused[here] = stuck[mine]
        kept = stuck | (at == ends)
        state = State(*[np.where(kept, old, new) for old, new in zip(state, _ended(after), strict=True)])
        at = reach
    return state, found, refused


def _reach(state: State, at: Array, ends: Array, sums: _Sums) -> Array:
    """The lane, for each object, before which its present phase ends: at most the last."""
    taken = np.searchsorted(sums.arrive[1:], sums.arrive[at] + state.pending, side="right")
    following = np.minimum(at + 1, ends)
    arrives = sums.arrive[following] > sums.arrive[at]
    return np.where(arrives, np.minimum(taken, ends), following)


def _moved(state: State, at: Array, reach: Array, sums: _Sums) -> State:
    return State(
        parity=state.parity,
        expected=state.expected - (sums.drop[reach] - sums.drop[at]),
        pending=state.pending - (sums.arrive[reach] - sums.arrive[at]),
        tx=state.tx + sums.tx[reach] - sums.tx[at],
    )


def _ended(state: State) -> State:
    """Where nothing is pending any more, the next phase begins."""
    done = (state.pending == 0) & (state.tx == 0)
    return state._replace(parity=state.parity ^ done, pending=np.where(done, state.expected, state.pending))
