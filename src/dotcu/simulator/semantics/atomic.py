"""Atomic operations: atom and red.

Threads that hit one address in one step are put in an order, which is one that the hardware
may choose: thread order, or one that the run's seed shuffles or reverses. Each thread gets the value that it
would see in that order. Threads are sorted by address, and all addresses are worked on at once.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: atom, red".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dotcu.ptx.instructions import Instruction, Operand, Sink, Vector
from dotcu.simulator.machine.access import order_of, resolve
from dotcu.simulator.machine.state import AccessPart, Batch, InstructionStep
from dotcu.simulator.program.binding import (
    Binding,
    NotExecuted,
    SourceOperand,
    counted,
    dtype_of,
    only,
    require,
    unsigned,
)
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import REVERSED, Array
from dotcu.simulator.semantics.arithmetic.float import HALF
from dotcu.simulator.semantics.arithmetic.rounding import canonical, flush, with_nan_of
from dotcu.simulator.semantics.load_store import access_of, elements_of
from dotcu.simulator.semantics.table import find_operation

# Threads up to which it is worth knowing whether an atomic changed anything: more do not spin.
_FEW = 1 << 14
# Threads at one address from which on floats are added in one go.
_MANY = 64
AtomicUpdate = Callable[[Array, Array], Array]
_SPACES = frozenset({"global", "shared", "local"})
_IGNORED = frozenset(
    {"relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "noftz", "async"}
)
_HALVES = frozenset({"f16", "bf16", "f16x2", "bf16x2"})
_VECTORS = frozenset({"v2", "v4", "v8"})
# Updates that a ufunc applies in place to repeated indices, in order.
AT_ONCE: Mapping[str, np.ufunc] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip
# Updates of what is there by a value, for integers.
UPDATES: Mapping[str, AtomicUpdate] = {
    **AT_ONCE,
    "exch": lambda old, new: new,
    "inc": lambda old, limit: np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1)),
}
# A number from which on f32 has no sum with others as large that is subnormal.
_NEVER_SUBNORMAL = np.float32(2.0**-100)


def add_in_global(old: Array, value: Array) -> Array:
    """The sum of f32 or f64 in global memory: of f32 without subnormals, of f64 with NaN as it comes.

    Source: PTX ISA, "atom"; for NaN of f64, which it leaves open, measured: H200, CUDA 13.0, 2026-11.
    """
    if old.dtype == np.float32:
        return flush(canonical(flush(old) + flush(value)))
    return with_nan_of(old + value, value, old, quiet=False)


def _add_in_block(old: Array, value: Array) -> Array:
    """The sum of f32 or f64 in memory of a block: a loop of compare and swap around an addition."""
    total = old + value
    return canonical(total) if total.dtype == np.float32 else with_nan_of(total, old, value)


def adds_in_any_order(old: Array, value: Array, is_global: bool = True) -> bool:
    """Return True if floats in memory have the sums that the hardware gives, but for the bits of new NaN.

    Args:
        old, value: What is in memory, and what is added to it.
        is_global: True if it is global memory, which flushes subnormals of f32.
    """
    if old.dtype == np.float64:  # which of several NaN it is depends on the order
        return not (np.isnan(old).any() or np.isnan(value).any())
    for numbers in (old, value) if is_global else ():
        small = np.abs(numbers) < _NEVER_SUBNORMAL
        if small.any() and numbers[small].any():
            return False
    return True


_FLOAT: Mapping[str, AtomicUpdate] = {"add": _add_in_block}


def bind_atom(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """atom and red, of one element or a vector; a result that nothing reads is not computed."""
    ptx = instruction.ptx
    space, operation = _spelled(ptx.flags)
    type_, operands = only(ptx.types), list(counted(ptx.operands, 2, 5))
    if "L2::cache_hint" in ptx.flags:
        operands.pop()  # a cache policy changes no value
    target = None if ptx.opcode == "red" else operands.pop(0)
    counted(operands, 2, 3)
    count = _elements(ptx.flags, operands[1])
    access = access_of(
        instruction, operands[0], space, count, "atomic", binding, order_of((*ptx.flags, "relaxed", "gpu"))
    )
    dtype = dtype_of(type_)
    given = [elements_of(operands[1])] if count > 1 else [[o] for o in operands[1:]]
    sources = [[binding.narrow_source(o, type_) for o in some] for some in zip(*given, strict=False)]
    require(len(sources) == count and len(sources[0]) == (2 if operation == "cas" else 1))
    wanted = target is not None and any(binding.is_read(e) for e in elements_of(target))
    results = elements_of(target) if wanted and target is not None else ()
    targets = [None if isinstance(e, Sink) else binding.destination(e) for e in results]
    update = None if operation == "cas" else _update(operation, ptx)
    at = None if wanted or (dtype.kind == "f" and operation != "add") else AT_ONCE.get(operation)
    if type_ in _HALVES:
        at = None
    bits = unsigned(access.width)

    def step(batch: Batch) -> None:
        values = [[_spread(batch, source) for source in some] for some in sources]
        olds = [np.zeros(batch.count(), bits) if wanted else None for _ in values]
        for part in resolve(batch, access):
            for element, (some, old) in enumerate(zip(values, olds, strict=True)):
                here = part._replace(indices=part.indices + element) if element else part
                _apply(here, some, old, dtype, update, at)
        for destination, old in zip(targets, olds, strict=False):
            if destination is not None and old is not None:
                destination.write(batch, old)

    return step


def bind_atom_wide(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """atom.exch.b128 and atom.cas.b128, one thread after the other, of pairs of 64-bit registers."""
    target, address, *given = counted(instruction.ptx.operands, 3, 4)
    space, operation = _spelled(instruction.ptx.flags)
    require((operation, len(given)) in (("exch", 1), ("cas", 2)))
    targets = [binding.destination(e) for e in elements_of(target)]
    sources = [[binding.source(e, "b64") for e in elements_of(operand)] for operand in given]
    require(all(len(pair) == 2 for pair in sources))
    order = order_of((*instruction.ptx.flags, "relaxed", "gpu"))
    access = access_of(instruction, address, space, 2, "atomic", binding, order)

    def step(batch: Batch) -> None:
        values = [np.stack([_spread(batch, half) for half in pair], axis=1) for pair in sources]
        old = np.zeros((batch.count(), 2), np.uint64)
        for part in resolve(batch, access):
            _exchange(part, values, old)
        for half, destination in enumerate(targets):
            destination.write(batch, old[:, half].copy())

    return step


def _exchange(part: AccessPart, values: list[Array], old: Array) -> None:
    """Each thread takes what is there, and puts its last value if what is there equals its first."""
    batch, index = part.batch, part.spread()
    order, _ = _grouped(batch, index)
    for half in range(2):
        for check in batch.on.atomic:
            check(part, index + half, order)
    batch.watch(part.access.instruction)
    for at in order.tolist():
        thread = at if part.positions is None else int(part.positions[at])
        there = part.view[index[at] : index[at] + 2]
        old[thread] = there
        if len(values) == 1 or (values[0][thread] == there).all():
            there[:] = values[-1][thread]
            batch.launch.progress += int((there != old[thread]).any())
    for half in range(2):
        part.mark_written(index + half)


def _elements(flags: tuple[str, ...], value: Operand) -> int:
    """Return how many elements one thread updates (PTX ISA, "Vector operations of atom", sm_90)."""
    widths = [int(f[1:]) for f in flags if f in _VECTORS]
    count = widths[0] if widths else 1
    require(len(elements_of(value)) == count and isinstance(value, Vector) == bool(widths))
    return count


def _spread(batch: Batch, source: SourceOperand) -> Array:
    """A source's value, one element for each active thread."""
    return np.broadcast_to(source.read(batch), batch.count())


def _spelled(flags: tuple[str, ...]) -> tuple[str, str]:
    """The space and the operation that the flags name."""
    space, operation = "generic", ""
    for flag in flags:
        if flag.split("::")[0] in _SPACES:
            space = flag.split("::")[0]
        elif flag in UPDATES or flag == "cas":
            operation = flag
        elif flag not in _IGNORED and flag not in _VECTORS and not flag.startswith("L2::"):
            raise NotExecuted
    return space, operation


def _update(operation: str, ptx: Instruction) -> AtomicUpdate:
    type_ = ptx.type
    if type_ in _HALVES:
        return find_operation([HALF], ptx._replace(opcode=operation, flags=())).function
    table = _FLOAT if type_ in ("f32", "f64") else UPDATES
    require(operation in table and (operation not in ("inc", "dec") or type_ == "u32"))
    return table[operation]


def _apply(
    part: AccessPart,
    values: list[Array],
    old: Array | None,
    dtype: np.dtype[np.generic],
    update: AtomicUpdate | None,
    at: np.ufunc | None,
) -> None:
    batch, index = part.batch, part.spread()
    if part.positions is not None:
        values = [v[part.positions] for v in values]
    view = part.view.view(dtype) if part.view.dtype != dtype else part.view
    values = [v.view(dtype) if v.flags.c_contiguous else np.ascontiguousarray(v).view(dtype) for v in values]
    is_sum, is_global = dtype.kind == "f" and update is not None, part.region is not None
    before = part.view.take(index) if len(index) <= _FEW or (is_sum and at is not None) else None
    if is_sum:
        update = add_in_global if is_global else _add_in_block
        if at is not None and before is not None:
            at = at if adds_in_any_order(before.view(dtype), values[0], is_global) else None
    order, starts = (None, None) if at is not None else _grouped(batch, index)
    for check in batch.on.atomic:
        check(part, index, None if old is None else order)
    batch.watch(part.access.instruction)
    if order is None or starts is None:
        assert at is not None
        at.at(view, index, values[0])
        sums = view[index] if is_sum else None
        if sums is not None and np.isnan(sums.max()):  # of infinities
            view[index] = canonical(sums) if sums.dtype == np.float32 else with_nan_of(sums)
    else:
        seen = _in_order(view, index[order], [v[order] for v in values], starts, update)
        if old is not None:
            positions = order if part.positions is None else part.positions[order]
            old.view(dtype)[positions] = seen
    if before is None or (part.view.take(index) != before).any():
        batch.launch.progress += 1
    part.mark_written(index)


def _grouped(batch: Batch, index: Array) -> tuple[Array, Array]:
    """An order in which equal indices stand together, and where each group begins."""
    seed = batch.launch.run.seed
    if seed is None:
        order = np.argsort(index, kind="stable")
    else:
        threads = np.arange(len(index))
        random = None if seed == REVERSED else np.random.default_rng((seed, batch.launch.steps))
        shuffled = threads[::-1] if random is None else random.permutation(threads)
        order = shuffled[np.argsort(index[shuffled], kind="stable")]
    sorted_index = index[order]
    starts = np.flatnonzero(np.concatenate(([True], sorted_index[1:] != sorted_index[:-1])))
    return order, starts


def _in_order(
    view: Array, index: Array, values: list[Array], starts: Array, update: AtomicUpdate | None
) -> Array:
    """Apply grouped updates to memory; the value that each thread found."""
    sizes = np.diff(np.concatenate((starts, [len(index)])))
    if update is None:
        return _compare_and_swap(view, index, values[0], values[1], starts, sizes)
    if update is np.add and values[0].dtype.kind in "ui":
        return _prefix_sums(view, index, values[0], starts, sizes)
    seen = np.empty(len(index), view.dtype)
    current = view[index[starts]]
    is_sum = update in (add_in_global, _add_in_block)
    for group in np.flatnonzero(sizes > _MANY).tolist() if is_sum else ():
        first, end = int(starts[group]), int(starts[group] + sizes[group])
        sums = _sums_of_one(current[group : group + 1], values[0][first:end], update)
        seen[first:end], current[group], sizes[group] = sums[:-1], sums[-1], 0
    for rank in range(int(sizes.max())):
        groups = np.flatnonzero(sizes > rank)
        threads = starts[groups] + rank
        seen[threads] = current[groups]
        current[groups] = update(current[groups], values[0][threads])
    view[index[starts]] = current
    return seen


def _sums_of_one(start: Array, values: Array, update: AtomicUpdate) -> Array:
    """The sums of the one element of `start` and the first values, from none of them to all.

    They are guessed by additions that know nothing of subnormals and NaN, and are right up to the first that
    the update does not make of the one before it.
    """
    sums, bits = np.concatenate((start, values)), unsigned(values.itemsize)
    first, count = 0, len(values)
    while first < len(values):
        last = min(first + count, len(values))
        guessed = np.add.accumulate(np.concatenate((sums[first : first + 1], values[first:last])))
        right = update(guessed[:-1], values[first:last])
        wrong = np.flatnonzero(right.view(bits) != guessed[1:].view(bits))
        end = first + int(wrong[0]) + 1 if len(wrong) else last
        sums[first + 1 : end + 1] = right[: end - first]
        first, count = end, _MANY if len(wrong) else 2 * count
    return sums


def _prefix_sums(view: Array, index: Array, values: Array, starts: Array, sizes: Array) -> Array:
    """Additions modulo 2^n: what each thread finds is a sum of those before it."""
    before = np.add.accumulate(values, dtype=values.dtype) - values
    base = view[index[starts]] - before[starts]
    seen = before + np.repeat(base, sizes)
    last = starts + sizes - 1
    view[index[starts]] = seen[last] + values[last]
    return seen


def _compare_and_swap(
    view: Array, index: Array, compare: Array, new: Array, starts: Array, sizes: Array
) -> Array:
    """Apply cas: in each group find the first thread that matches, swap, and continue behind it."""
    seen = np.empty(len(index), view.dtype)
    current = view[index[starts]]
    ends = starts + sizes
    group = np.repeat(np.arange(len(starts)), sizes)
    indices = np.arange(len(index))
    pending = np.ones(len(index), bool)
    while pending.any():
        threads = indices[pending]
        owner = group[threads]
        hits = threads[compare[threads] == current[owner]]
        first = ends.copy()
        np.minimum.at(first, group[hits], hits)
        reached = threads <= first[owner]
        seen[threads[reached]] = current[owner[reached]]
        pending[threads[reached]] = False
        swapped = np.flatnonzero(first < ends)
        current[swapped] = new[first[swapped]]
        if not len(swapped):
            break
    view[index[starts]] = current
    return seen
