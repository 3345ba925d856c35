"""The rules by which instructions carry undefined bits from operands to results; see `machine.undefined`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dotcu.ptx.dataflow import registers_of
from dotcu.ptx.instructions import TYPE_BYTES, Address, Instruction, Operand
from dotcu.simulator.machine.shape import WARP, Threads
from dotcu.simulator.machine.state import Batch, InstructionStep, active_threads
from dotcu.simulator.machine.undefined import NOBODY, UndefinedBits, full_bits
from dotcu.simulator.program.basic_blocks import has_result
from dotcu.simulator.program.binding import Binding, SourceOperand
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array

_MOVES_BITS = frozenset(
    {"mov", "and", "or", "xor", "not", "lop3", "selp", "prmt", "bfi", "bfe", "shl", "shr", "shf", "cvta"}
    | {"brev", "cnot"}
)
"""Each bit of the result depends on single bits of the sources: what changes if these are flipped."""
_SUMS = frozenset({"add", "sub", "mul", "mad", "neg"})
"""Of integers: a bit of the result depends on those of the sources that are no higher."""
_EFFECTS = frozenset(
    {"red", "atom", "cp", "call", "enter", "assertfail", "mbarrier", "wgmma", "stmatrix", "st", "tensormap"}
    | {"setmaxnreg", "stackrestore", "alloca", "bar", "barrier", "wmma", "match", "redux", "multimem"}
)
"""What they are given has an effect, which is not followed further."""
_LOADS = frozenset({"ld", "ldu", "ldmatrix"})
MAY_BE_UNDEFINED = _LOADS | {"shfl", "div", "rem"}
_OWN = frozenset({"st", "mma"})
"""Their steps carry what is undefined themselves, as those of loads do."""


class _Carried(NamedTuple):
    """An instruction, and the slots of its guard, its values, what it uses (addresses), and its results."""

    instruction: FlatInstruction
    step: InstructionStep
    guard: tuple[int, bool]
    sources: tuple[int, ...]
    used: tuple[int, ...]
    targets: tuple[int, ...]


def carrier(
    instruction: FlatInstruction, plain: InstructionStep, outer: InstructionStep, binding: Binding
) -> InstructionStep:
    """Return the step that carries what is undefined, and runs an instruction.

    Args:
        plain, outer: Its step, and the same under its guard.
    """
    ptx = instruction.ptx
    opcode, operands = ptx.opcode, ptx.operands
    targets = _slots(operands[:1], binding) if has_result(ptx) or opcode == "wmma" else ()
    values = operands[1:] if targets else operands
    addresses = tuple(operand for operand in operands if isinstance(operand, Address))
    sources = _slots((o for o in values if not isinstance(o, Address)), binding)
    used = _slots(addresses, binding)
    sums, scale = _sums_of_wgmma(ptx, binding)
    if opcode in _EFFECTS - _OWN:
        sources, used = (), tuple(slot for slot in (*sources, *used) if slot not in sums)
    this = _Carried(instruction, plain, binding.guard(ptx), sources, used, targets)
    spread = _rule(ptx)
    involved = frozenset((*sources, *used, *sums, *targets, this.guard[0]))

    def run(batch: Batch) -> None:
        if batch.undefined.slots.keys().isdisjoint(involved):
            outer(batch)
            return
        batch.undefined.user = instruction
        threads = _executing(batch, this)
        for slot in (*used, *sums) if scale is not None and np.any(scale.read(batch)) else used:
            batch.undefined.use(slot, threads)
        for slot in sums:
            batch.undefined.put(slot, threads, np.zeros(1, np.uint8), NOBODY)
        if opcode in _OWN or opcode in _LOADS or not sources:
            for slot in targets if opcode not in _OWN else ():
                batch.undefined.put(slot, threads, np.zeros(1, np.uint8), NOBODY)
            outer(batch)
            return
        results = spread(batch, this, threads) if len(threads) else []
        for slot, (bits, checks) in zip(targets, results, strict=False):
            batch.undefined.put(slot, threads, bits, checks)
        outer(batch)

    return run


def _sums_of_wgmma(ptx: Instruction, binding: Binding) -> tuple[tuple[int, ...], SourceOperand | None]:
    """Return the registers that a wgmma adds to, and what tells whether it does or overwrites them."""
    if ptx.opcode != "wgmma" or "mma_async" not in ptx.flags:
        return (), None
    sums, _, _, scale, *_ = ptx.operands
    return _slots((sums,), binding), binding.source(scale, "pred")


def registers_read(ptx: Instruction, binding: Binding) -> tuple[int, ...]:
    """Return the slots of the registers that an instruction reads, its guard among them."""
    guard = () if ptx.guard is None else (binding.guard(ptx)[0],)
    return (*_slots(ptx.operands[has_result(ptx) :], binding), *guard)


def _slots(operands: Iterable[Operand], binding: Binding) -> tuple[int, ...]:
    return tuple(
        binding.register(register).slot for operand in operands for register in registers_of(operand)
    )


def _executing(batch: Batch, this: _Carried) -> Threads:
    """Return the threads whose guard holds; what it depends on is used."""
    threads, (slot, negated) = batch.numbers(), this.guard
    if slot < 0:
        return threads
    batch.undefined.use(slot, threads)
    holds = np.broadcast_to(batch.read(slot) ^ negated, threads.shape)
    return threads if holds.all() else threads[holds]


_Spread = Callable[[Batch, _Carried, Threads], list[UndefinedBits]]


def _rule(ptx: Instruction) -> _Spread:
    opcode, types = ptx.opcode, ptx.types
    if opcode == "shfl":
        return _shuffled
    if opcode == "vote":
        return _voted
    if opcode in _MOVES_BITS or (opcode == "cvt" and all(t[0] in "bus" for t in types)):
        return _flipped
    if opcode in ("setp", "set") and len(ptx.operands) > 3:
        return _compared
    if opcode in _SUMS and types and types[-1][0] in "bus" and "hi" not in ptx.flags:
        return _summed
    if types and types[-1].endswith("x2") and TYPE_BYTES.get(types[-1]) == 4:
        return _by_half
    return _all_of_it


def _given(batch: Batch, this: _Carried, threads: Threads) -> list[UndefinedBits]:
    known = (batch.undefined.of(slot, threads) for slot in dict.fromkeys(this.sources))
    return [each for each in known if each is not None]


def _checks_of(batch: Batch, given: Sequence[UndefinedBits], threads: Threads) -> Array:
    """Return for each thread the check that is due for a result.

    Where two are, an unwritten value goes before a read that is held back, and a later read before an earlier
    one, of which it is then known that its value is used. Of two unwritten values, both are reported.
    """
    undefined, checks = batch.undefined, np.full(len(threads), NOBODY, np.int32)
    for bits, numbers in given:
        here = bits != 0
        both = here & (checks != NOBODY) & (checks != numbers)
        if both.any():
            held = undefined.are_held(np.stack((checks, numbers)))
            is_first = np.where(held[0] == held[1], checks > numbers, held[1])
            keeps, loses = np.where(is_first, checks, numbers), np.where(is_first, numbers, checks)
            due = both & np.where(is_first, held[1], held[0])
            undefined.settle(loses[due], threads[due])
            also = both & ~held.any(axis=0)
            undefined.join(keeps[also], loses[also], threads[also])
            checks = np.where(both, keeps, np.where(here, numbers, checks))
        else:
            checks = np.where(here, numbers, checks)
    return checks


def _full(batch: Batch, slot: int) -> int:
    return full_bits(batch.registers[slot].dtype)


def _bits_dtype(batch: Batch, slot: int) -> np.dtype[np.unsignedinteger[np.typing.NBitBase]]:
    return np.dtype(f"u{batch.registers[slot].dtype.itemsize}")


def _all_of_it(batch: Batch, this: _Carried, threads: Threads) -> list[UndefinedBits]:
    """All bits of the results are undefined where any of a source is."""
    given = _given(batch, this, threads)
    checks = _checks_of(batch, given, threads)
    bad = checks != NOBODY
    return [
        UndefinedBits(np.where(bad, _full(batch, slot), 0).astype(_bits_dtype(batch, slot)), checks)
        for slot in this.targets
    ]


def _compared(batch: Batch, this: _Carried, threads: Threads) -> list[UndefinedBits]:
    """A comparison that is combined with a predicate, which may decide alone."""
    *_, last = this.sources
    flags = this.instruction.ptx.flags
    combine = next((f for f in flags if f in ("and", "or", "xor")), "xor")
    results = _all_of_it(batch, this, threads)
    predicate = batch.undefined.of(last, threads)
    if combine == "xor" or predicate is not None:
        return results
    with active_threads(batch, threads):
        value = np.broadcast_to(batch.read(last), threads.shape)
    operand = this.instruction.ptx.operands[-1]
    value = value ^ bool(getattr(operand, "negated", False))
    open_ = value if combine == "and" else ~value
    return [UndefinedBits(np.where(open_, bits, 0).astype(bits.dtype), checks) for bits, checks in results]


def _summed(batch: Batch, this: _Carried, threads: Threads) -> list[UndefinedBits]:
    """Integers: what is below the lowest undefined bit is defined."""
    given = _given(batch, this, threads)
    lowest = np.zeros(len(threads), np.uint64)
    for bits, _ in given:
        lowest |= bits.astype(np.uint64)
    lowest |= np.uint64(0) - lowest
    checks = _checks_of(batch, given, threads)
    return [UndefinedBits(lowest.astype(_bits_dtype(batch, slot)), checks) for slot in this.targets]


def _by_half(batch: Batch, this: _Carried, threads: Threads) -> list[UndefinedBits]:
    """Pairs of 16 bits, each on its own."""
    given = _given(batch, this, threads)
    halves = np.zeros((len(threads), 2), np.uint16)
    for bits, _ in given:
        if bits.dtype.itemsize != 4:
            return _all_of_it(batch, this, threads)
        halves |= np.where(np.ascontiguousarray(bits).view(np.uint16).reshape(-1, 2) != 0, 0xFFFF, 0).astype(
            np.uint16
        )
    checks, whole = _checks_of(batch, given, threads), halves.view(np.uint32).reshape(-1)
    return [UndefinedBits(whole.astype(_bits_dtype(batch, slot)), checks) for slot in this.targets]


_FLIPS = 3
"""Sources of which all combinations are tried."""


def _flipped(batch: Batch, this: _Carried, threads: Threads) -> list[UndefinedBits]:
    """The bits of the results that change where undefined bits of the sources do."""
    given = {slot: known for slot in this.sources if (known := batch.undefined.of(slot, threads)) is not None}
    counts = range(1, len(given) + 1) if len(given) <= _FLIPS else (1, len(given))
    plain = _tried(batch, this, threads, {})
    changed = [value ^ value for value in plain]
    relevant = []
    for some in (some for n in counts for some in itertools.combinations(given, n)):
        flipped = _tried(batch, this, threads, {slot: given[slot].bits for slot in some})
        differs = [one ^ other for one, other in zip(plain, flipped, strict=True)]
        changed = [known | bits for known, bits in zip(changed, differs, strict=True)]
        if len(some) == 1:
            depends = np.any([bits != 0 for bits in differs], axis=0)
            relevant.append(UndefinedBits(depends, given[some[0]].checks))
    checks = _checks_of(batch, relevant, threads)
    if len(given) > 1:
        together = [
            UndefinedBits((checks == NOBODY) & (known.bits != 0), known.checks) for known in given.values()
        ]
        checks = np.where(checks == NOBODY, _checks_of(batch, together, threads), checks)
    return [UndefinedBits(bits, checks) for bits in changed]


def _tried(batch: Batch, this: _Carried, threads: Threads, flips: Mapping[int, Array]) -> list[Array]:
    """Return the bits of the results if some bits of sources were others; nothing is changed."""
    registers, active = batch.registers, batch.active
    kept = {slot: registers[slot] for slot in (*this.targets, *flips)}
    for slot in this.targets:
        registers[slot] = kept[slot].copy()
    for slot, bits in flips.items():
        value = np.broadcast_to(kept[slot], batch.threads).copy()
        if value.dtype == np.bool_:
            value[threads] ^= bits != 0
        else:
            value.view(bits.dtype)[threads] ^= bits
        registers[slot] = value
    batch.active, batch.repeats = threads, True
    this.step(batch)
    results = []
    for slot in this.targets:
        value = np.broadcast_to(registers[slot], batch.threads)[threads]
        results.append(np.ascontiguousarray(value).view(f"u{value.itemsize}"))
    batch.active, batch.repeats = active, False
    for slot, value in kept.items():
        registers[slot] = value
    return results


def _shuffled(batch: Batch, this: _Carried, threads: Threads) -> list[UndefinedBits]:
    """A shuffle: the bits of the thread that is read, and its check."""
    slot = this.sources[0]
    known = batch.undefined.slots.get(slot)
    if known is None or any(batch.undefined.of(other, threads) for other in this.sources[1:]):
        return _all_of_it(batch, this, threads)
    kept = batch.registers[slot]
    moved = []
    for row in (known.bits, known.checks):
        batch.registers[slot] = np.ascontiguousarray(row).view(kept.dtype)
        moved.append(_tried(batch, this, threads, {})[0])
    batch.registers[slot] = kept
    bits, checks = moved[0], moved[1].view(np.int32)
    inside = [UndefinedBits(np.zeros(len(threads), np.uint8), checks) for _ in this.targets[1:]]
    return [UndefinedBits(bits, checks), *inside]


def _voted(batch: Batch, this: _Carried, threads: Threads) -> list[UndefinedBits]:
    """A vote: the results that change if the undefined votes do, in every thread of the warp."""
    slot = this.sources[0]
    known = batch.undefined.of(slot, threads)
    if known is None:
        return _all_of_it(batch, this, threads)
    own = np.where(known.bits != 0, known.checks, NOBODY)
    latest = np.full(batch.threads // WARP, NOBODY, np.int32)
    np.maximum.at(latest, threads // WARP, own)
    trials = [_tried(batch, this, threads, {slot: known.bits}), _tried(batch, this, threads, {})]
    return [UndefinedBits(one ^ other, latest[threads // WARP]) for one, other in zip(*trials, strict=True)]
