"""Loads, stores and addresses: ld, st, mov of addresses, cvta, isspacep, prefetch.

Source: PTX ISA, "Data Movement and Conversion Instructions".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dotcu.ptx.instructions import TYPE_BYTES, Instruction, Operand, Sink, Special, Vector
from dotcu.simulator.machine.access import WINDOWS, mapped, of_rank, order_of, resolve
from dotcu.simulator.machine.memory import COPIED, PARAM_WINDOW, RANK_BIT, WINDOW_BYTES
from dotcu.simulator.machine.special_registers import CLOCKS
from dotcu.simulator.machine.state import Access, AccessPart, Batch, InstructionStep, MemoryOrder
from dotcu.simulator.machine.undefined import PADDING, PARTLY, HeldLoad, UndefinedBits
from dotcu.simulator.program.binding import (
    Binding,
    DestinationOperand,
    NotExecuted,
    SourceOperand,
    counted,
    dtype_of,
    require,
    unsigned,
    vector,
)
from dotcu.simulator.program.inlining import FlatInstruction
from dotcu.simulator.run import Array
from dotcu.simulator.semantics.table import Operation, bind_elementwise, step_of

SPACES = frozenset({"global", "shared", "local", "param", "const"})
# Modifiers that say when and where bytes move, not which: in one legal order all hold.
_HINTS = frozenset(
    {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "volatile", "weak", "relaxed", "acquire", "release"}
    | {"mmio", "cta", "cluster", "gpu", "sys", "v2", "v4"}
)


def space_of(ptx: Instruction) -> str:
    """The state space that an instruction names; "generic" if none.

    Raises:
        NotExecuted: A modifier that means something else.
    """
    space = "generic"
    for flag in ptx.flags:
        name = flag.split("::")[0]
        if name in SPACES:
            space = name
        elif name not in _HINTS and name not in ("L1", "L2", "unified", "level"):
            raise NotExecuted
    return space


def elements_of(operand: Operand) -> tuple[Operand, ...]:
    """A vector's elements, or the single operand."""
    return operand.elements if isinstance(operand, Vector) else (operand,)


def access_of(
    instruction: FlatInstruction,
    address: Operand,
    space: str,
    count: int,
    action: str,
    binding: Binding,
    order: MemoryOrder | None = None,
) -> Access:
    """The access that an instruction makes at an address operand.

    Args:
        count, action: Elements of each thread, and "read", "write" or "atomic".
        order: The memory ordering; None: that of the modifiers.
    """
    width = TYPE_BYTES[instruction.ptx.types[-1]]
    require(width <= 8)
    slot, offset, space = binding.address(address, space)
    if order is None:
        order = order_of(instruction.ptx.flags)
    origin = binding.origin(address)
    near = not {"shared", "shared::cta"}.isdisjoint(instruction.ptx.flags)
    access = Access(
        binding.next_access(), instruction, space, slot, offset, width, count, action, order, origin
    )
    return access._replace(near=near)


def bind_ld(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """ld, of one element or a vector, from any space."""
    ptx = instruction.ptx
    space = space_of(ptx)
    require(len(ptx.operands) >= 2 and len(ptx.types) == 1)
    address = ptx.operands[1]
    if space == "param":
        found = binding.parameter(address)
        if found is not None:
            return _bind_parameter(ptx, found, binding)
    elements = elements_of(ptx.operands[0])
    # The first guess of a loop around a compare-and-swap may be stale: the swap detects it. A load of up to 8
    # bytes that goes past L1 (__ldcg) gives what atomics left in L2, whole.
    is_guess = "cg" in ptx.flags and len(elements) * TYPE_BYTES[ptx.types[0]] <= 8
    order = MemoryOrder(strong=True) if is_guess or binding.is_swapped(address) else None
    if binding.is_exchange(ptx):
        order = order_of(ptx.flags)._replace(exchange=True)
    access = access_of(instruction, address, space, len(elements), "read", binding, order)
    targets = [binding.destination(e) for e in elements]
    type_ = ptx.types[0]
    finish = [(t.slot, _extend(type_, t.dtype)) for t in targets]
    unused = frozenset(i for i, e in enumerate(elements) if not binding.is_read(e))
    dropped = frozenset(i for i, e in enumerate(elements) if binding.may_drop(e) and not access.order.strong)
    access = access._replace(
        unused=unused if len(elements) > 1 else frozenset(),
        dropped=dropped,
        is_padding=binding.is_padding(ptx),
    )

    def step(batch: Batch) -> None:
        held: list[HeldLoad] = []
        values = load(batch, access, held)
        for (slot, extend), value in zip(finish, values, strict=True):
            batch.write(slot, value if extend is None else extend(value))
        for each in held:
            target = targets[each.element]
            bits = _extended(each.bits, type_, target.dtype)
            batch.undefined.put(target.slot, each.threads, bits, each.check)

    return step


def _extended(bits: Array, type_: str, dtype: np.dtype[Any]) -> Array:
    """Return the undefined bits of a loaded value as those of the register that keeps it."""
    wide = bits.astype(f"u{dtype.itemsize}")
    if type_[0] != "s" or wide.itemsize == bits.itemsize:
        return wide
    return bits.view(f"i{bits.itemsize}").astype(f"i{dtype.itemsize}").view(wide.dtype)


def _extend(type_: str, dtype: np.dtype[Any]) -> Callable[[Array], Array] | None:
    """From the loaded bits to what the register keeps: a wider one is extended."""
    loaded = unsigned(TYPE_BYTES[type_])
    if dtype == loaded:
        return None
    if dtype.itemsize == loaded.itemsize:
        return lambda a: a.view(dtype)
    require(dtype.itemsize >= loaded.itemsize and dtype.kind == "u")
    if type_[0] == "s":
        signed, wide = dtype_of(type_), np.dtype(f"i{dtype.itemsize}")
        return lambda a: a.view(signed).astype(wide).view(dtype)
    return lambda a: a.astype(dtype)


def load(batch: Batch, access: Access, held: list[HeldLoad] | None = None) -> list[Array]:
    """The elements that the active threads load, each as an array of bits.

    Args:
        held: Gets what is undefined of the elements, and the checks that are due; None: they are made now.
    """
    if access.order.strong:
        batch.watch(access.instruction)
    return load_parts(batch, access, resolve(batch, access), held)


def load_parts(
    batch: Batch, access: Access, parts: Sequence[AccessPart], held: list[HeldLoad] | None = None
) -> list[Array]:
    """Load the parts of an access that are in bounds.

    Args:
        held: Takes the loads whose values nothing has written.
    """
    if len(parts) == 1 and parts[0].positions is None:
        return _load_part(parts[0], held)
    results = [np.zeros(batch.count(), unsigned(access.width)) for _ in range(access.elements)]
    for part in parts:
        for result, values in zip(results, _load_part(part, held), strict=True):
            result[part.positions] = values
    return results


def _load_part(part: AccessPart, held: list[HeldLoad] | None) -> list[Array]:
    values, access = [], part.access
    for element in range(access.elements):
        index = part.indices + element if element else part.indices
        if element not in access.unused:
            for check in part.batch.on.read:
                check(part, index, element, held)
        values.append(part.view.take(index))
    return values


def _bind_parameter(ptx: Instruction, offset: int, binding: Binding) -> InstructionStep:
    """ld.param of the kernel's own parameters: known when the launch begins."""
    type_ = ptx.types[0]
    size = TYPE_BYTES[type_]
    moves = []
    for element, operand in enumerate(elements_of(ptx.operands[0])):
        target = binding.destination(operand)
        extend = _extend(type_, target.dtype)
        source = binding.launch_constant(offset + element * size, unsigned(size))
        moves.append((target.slot, source, extend))

    def step(batch: Batch) -> None:
        for slot, source, extend in moves:
            value = batch.registers[source]
            batch.write(slot, value if extend is None else extend(value))

    return step


def bind_st(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """st, of one element or a vector, to any space."""
    ptx = instruction.ptx
    space = space_of(ptx)
    require(len(ptx.operands) >= 2 and len(ptx.types) == 1)
    elements = elements_of(ptx.operands[1])
    access = access_of(instruction, ptx.operands[0], space, len(elements), "write", binding)
    sources = [binding.narrow_source(e, ptx.types[0]) for e in elements]
    slots = [source.slot for source in sources]

    def step(batch: Batch) -> None:
        values = [source.read(batch) for source in sources]
        undefined = batch.undefined.stored(slots, batch.numbers()) if batch.undefined.slots else None
        store_elements(batch, access, values, undefined)

    return step


def store_elements(
    batch: Batch, access: Access, values: Sequence[Array], undefined: Sequence[UndefinedBits] | None = None
) -> None:
    """Store the elements of the active threads, each an array of bits: one a thread, or one for all.

    Args:
        values: Arrays of bits, one for each element.
        undefined: For each element what is undefined of it; None: nothing is.
    """
    if access.space != "local":
        batch.launch.progress += 1
    for part in resolve(batch, access):
        for element, value in enumerate(values):
            _store_element(part, element, value)
        if undefined is not None:
            _store_undefined(part, undefined)


def _store_undefined(part: AccessPart, undefined: Sequence[UndefinedBits]) -> None:
    """Note that bytes that threads have just stored are undefined; in global memory, such a result is a
    fault.

    A copy of a word that is written in part is not reported, since the remainder may be padding; nor is the
    remainder of a word that a store to a bit-field leaves as it was.
    """
    batch, width = part.batch, part.access.width
    threads = batch.numbers(part.positions)
    full = (1 << 8 * width) - 1
    rows = [known if part.positions is None else known.of(part.positions) for known in undefined]
    rows = [UndefinedBits(known.bits.astype(f"u{width}"), known.checks) for known in rows]
    if part.region is not None:
        some = np.any([known.bits != full for known in rows], axis=0)
        for element, (bits, checks) in enumerate(rows):
            places = (part.spread() + element) * width + _start_of(part)
            loaded = batch.undefined.places(checks, threads)
            bad = (bits != 0) & np.where(
                loaded == PARTLY, (bits == full) & ~some, (loaded != places) | (bits == full)
            )
            bad &= (loaded != PADDING) | (width > 1)
            batch.undefined.settle(checks[bad], threads[bad])
            bits[bad] = 0
    shadow, unknown = part.shadow, np.uint8(COPIED if part.region is None else 0)
    if part.region is None and shadow is None:
        private = batch.shared if part.view is batch.shared.views[width] else batch.local
        shadow, private.is_written = private.shadows[width], False
    if shadow is None:
        return
    for element, (bits, _) in enumerate(rows):
        index = part.spread() + element
        undefined_bytes = np.ascontiguousarray(bits).view(np.uint8) == 0xFF
        shadow[index] = np.where(undefined_bytes, unknown, np.uint8(1)).view(f"u{width}")


def _start_of(part: AccessPart) -> int:
    """Return the address of the first element of a part's view."""
    return 0 if part.region is None else part.region.view(part.access.width)[1]


def _store_element(part: AccessPart, element: int, value: Array) -> None:
    """Write one element of the active threads' access; of several threads, the last one's stays."""
    index = part.indices + element if element else part.indices
    if part.positions is not None and value.size > 1:
        value = value[part.positions]
    for check in part.batch.on.write:
        check(part, index, value)
    part.view[index] = value[-1:] if index.size == 1 else value
    for note in part.batch.on.stored:
        note(part, index, value)
    part.mark_written(index)


_STARTS: Mapping[str, int] = {"global": 0, "const": 0, **WINDOWS}


def bind_cvta(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """cvta and cvta.to: between an address in a space and a generic one."""
    ptx = instruction.ptx
    to_space = "to" in ptx.flags
    spaces = [f.split("::")[0] for f in ptx.flags if f != "to"]
    require(len(spaces) == 1 and spaces[0] in _STARTS and ptx.types in (("u64",), ("u32",)))
    window = np.uint64(_STARTS[spaces[0]])
    to, given = counted(ptx.operands, 2)
    target, source = binding.destination(to), binding.source(given, ptx.types[0])
    require(target.dtype.itemsize == 8)

    def step(batch: Batch) -> None:
        value = batch.read(source.slot).astype(np.uint64)
        batch.write(target.slot, value - window if to_space else value + window)

    return step


def bind_isspacep(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """isspacep: whether a generic address is in a space's window."""
    ptx = instruction.ptx
    named = ptx.flags[0] if ptx.flags else ""
    space = named.split("::")[0]
    require(space in _STARTS)
    to, address = counted(ptx.operands, 2)
    target, source = binding.destination(to), binding.source(address, "u64")
    blocks_of_cluster = named == "shared::cluster"
    low = np.uint64(_STARTS[space] or PARAM_WINDOW + WINDOW_BYTES)
    high = np.uint64(low + WINDOW_BYTES if _STARTS[space] else (1 << 64) - 1)

    def step(batch: Batch) -> None:
        value = batch.read(source.slot)
        inside = (value >= low) & (value < high)
        if not _STARTS[space]:
            # Generic addresses of __constant__ variables have no window of their own.
            constants = [region for region in batch.launch.memory.regions if region.constant]
            inside &= mapped(value, constants) == (space == "const")
        if space == "shared":
            ranks = (value - low) >> np.uint64(RANK_BIT)
            blocks = batch.shape.cluster_blocks
            own = batch.ranks[batch.numbers()] if blocks > 1 else 0
            inside = inside & (ranks < blocks if blocks_of_cluster else ranks == own)
        batch.write(target.slot, inside)

    return step


# Addresses in a cluster: the rank of a block stands above the offset in its shared memory.
#
# Source: PTX ISA, "Data Movement and Conversion Instructions: mapa, getctarank".


def _cluster_operands(
    instruction: FlatInstruction, binding: Binding
) -> tuple[DestinationOperand, SourceOperand]:
    """The result and the address of mapa and getctarank."""
    ptx = instruction.ptx
    require(ptx.flags in ((), ("shared::cluster",)) and ptx.types in (("u32",), ("u64",)))
    target, address, *_ = counted(ptx.operands, 2, 3)
    return binding.destination(target), binding.source(address, ptx.type)


def bind_mapa(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """mapa: the address of a shared variable in another block of the cluster."""
    target, address = _cluster_operands(instruction, binding)
    rank = binding.source(counted(instruction.ptx.operands, 3)[2], "u32")

    def step(batch: Batch) -> None:
        value, ranks, size = batch.read(address.slot), batch.read(rank.slot), batch.shape.cluster_blocks
        if size == 1:
            others = np.broadcast_to(ranks != 0, batch.count())
            if others.any():
                message = (
                    f"an address in block {ranks.max()} of a cluster of one block. Launch with clusters, by "
                    "cluster= or __cluster_dims__, or ask for the size of the cluster."
                )
                batch.report("out-of-bounds", instruction, batch.numbers()[others], message)
            batch.write(target.slot, value.copy())
            return
        batch.write(target.slot, of_rank(value, ranks))

    return step


def bind_getctarank(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """getctarank: the block of the cluster that an address is in."""
    target, address = _cluster_operands(instruction, binding)
    require(target.dtype == np.uint32)

    def step(batch: Batch) -> None:
        value = batch.read(address.slot).astype(np.uint64)
        rank = (value >> np.uint64(RANK_BIT) & np.uint64(0xFF)).astype(np.uint32)
        batch.write(target.slot, rank)

    return step


# mov in all its forms: values, addresses, packing and unpacking, clocks.
#
# Source: PTX ISA, "Data Movement and Conversion Instructions: mov".


def copied(a: Array) -> Array:
    """The value, in an array of its own; a single element is never written to, so it is shared."""
    return a if a.size == 1 else a.copy()


def bind_mov(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """mov."""
    ptx = instruction.ptx
    require(len(ptx.operands) == 2 and len(ptx.types) == 1 and not ptx.flags)
    target, source = ptx.operands
    if isinstance(source, Vector):
        return _pack(ptx, source, binding)
    if isinstance(target, Vector):
        return _unpack(ptx, target, binding)
    type_ = ptx.types[0]
    to = binding.destination(target)
    if isinstance(source, Special) and source.name in CLOCKS:
        read, dtype = CLOCKS[source.name], unsigned(TYPE_BYTES[type_])
        return lambda batch: to.write(batch, np.full(1, read(batch), np.uint64).astype(dtype))
    operation = Operation(copied, type_, (type_,))
    if isinstance(source, Special) and type_[0] in "bus":  # a mov that is narrower than it takes its low bits
        return step_of(operation, to, [binding.wide_source(source, type_)])
    return bind_elementwise(operation, ptx, binding)


def _pack(ptx: Instruction, vector: Vector, binding: Binding) -> InstructionStep:
    """mov.b32 d, {a, b}: the first element is the lowest."""
    size = TYPE_BYTES[ptx.types[0]]
    count = len(vector.elements)
    require(count > 0 and size % count == 0 and size <= 8)
    width = 8 * size // count
    whole = unsigned(size)
    sources = [binding.narrow_source(e, f"b{width}") for e in vector.elements]
    target = binding.destination(ptx.operands[0])

    def step(batch: Batch) -> None:
        result: Array = np.zeros(1, whole)
        for place, source in enumerate(sources):
            value = source.read(batch).astype(whole)
            result = result | (value << whole.type(width * place))
        target.write(batch, result)

    return step


def _unpack(ptx: Instruction, target: Vector, binding: Binding) -> InstructionStep:
    """mov.b32 {a, b}, d; an element `_` is dropped."""
    type_ = ptx.types[0]
    size = TYPE_BYTES[type_]
    count = len(target.elements)
    require(count > 0 and size % count == 0 and size <= 8)
    part = unsigned(size // count)
    source = binding.narrow_source(ptx.operands[1], f"b{8 * size}")
    moves = [
        (place, binding.destination(element))
        for place, element in enumerate(target.elements)
        if not isinstance(element, Sink)
    ]

    def step(batch: Batch) -> None:
        parts = np.ascontiguousarray(source.read(batch)).view(part).reshape(-1, count)
        for place, to in moves:
            to.write(batch, parts[:, place].copy())

    return step


def bind_mov_wide(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """mov.b128: a copy, or two 64-bit registers packed or unpacked; the first one is low."""
    to, given = [vector(operand) for operand in counted(instruction.ptx.operands, 2)]
    targets = [binding.destination(element) for element in to]
    sources = [binding.source(element, "b64") for element in given]
    require(len(sources) == 2 and all(target.dtype.itemsize == 8 for target in targets))

    def step(batch: Batch) -> None:
        values = [copied(source.read(batch)) for source in sources]
        for target, value in zip(targets, values, strict=True):
            batch.write(target.slot, value.view(target.dtype))

    return step
