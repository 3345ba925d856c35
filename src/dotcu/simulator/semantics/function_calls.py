"""Calls of functions that stand once in a kernel: through pointers, and of themselves.

An enter copies the arguments, notes where the lane is to go on, and goes to the function; a
return copies the results back. A function that may be entered while it runs has its variables
in a frame of its own for each call, and the registers of its caller are saved.

Source: PTX ISA, "Control Flow Instructions: call, ret"; CUDA C++ Programming Guide, "Function
Pointers", "Recursion" for what a stack that is too small does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dotcu.simulator.decoding.basic_blocks import EXIT, BasicBlock
from dotcu.simulator.decoding.binding import Binding, VariableSpot
from dotcu.simulator.decoding.inlining import EnteredFunction, FlatInstruction
from dotcu.simulator.decoding.variables import STACK_ALIGNMENT, STACK_BYTES
from dotcu.simulator.machine.chunk import Chunk
from dotcu.simulator.machine.shape import Array, Lanes
from dotcu.simulator.semantics.table import Step, require

_BYTES_PER_REGISTER = 8

VariableCopy = tuple[VariableSpot, VariableSpot, int]
"""A copy from one variable of a lane to another, with its number of bytes."""


@dataclass(frozen=True, kw_only=True)
class CallTarget:
    """One function that a call may enter.

    Attributes:
        block: Its first basic block.
        arguments: What is copied on the target in.
        results: What is copied on the target out.
        saved: Registers of the caller that are saved.
        frame: The register that holds where its frame begins; None if it has none.
        bytes: What one call of it takes of the stack.
    """

    block: int
    arguments: tuple[VariableCopy, ...]
    results: tuple[VariableCopy, ...]
    saved: tuple[int, ...]
    frame: int | None
    bytes: int


@dataclass(frozen=True, kw_only=True)
class CallSite:
    """A call: where its lanes resume, and the functions that it may enter."""

    placed: FlatInstruction
    resume: int
    targets: Mapping[str, CallTarget]


def stack_of(chunk: Chunk) -> CallStack:
    """The calls that the chunk's lanes are in."""
    if chunk.stack is None:
        chunk.stack = CallStack(chunk.lanes, chunk.grid.decoded.layout.stack_base)
    return chunk.stack


# Entering


def enter(placed: FlatInstruction, plan: BasicBlock, binding: Binding) -> Step:
    """Each lane goes to the function that it calls.

    Args:
        placed: The instruction.
        plan: Its basic block.
        binding: Finds the registers of operands.
    """
    call = placed.call
    assert call is not None
    targets = {
        name: _target(placed, name, block, binding)
        for name, block in zip(call.functions, plan.following, strict=False)
    }
    site = CallSite(placed=placed, resume=plan.through, targets=targets)
    number = len(binding.entered)
    binding.entered.append(site)
    if call.pointer is None:
        (only,) = targets.values()
        return lambda chunk: _enter_function(chunk, site, number, only, chunk.numbers())
    return _through_pointer(site, number, binding)


def _through_pointer(site: CallSite, number: int, binding: Binding) -> Step:
    assert site.placed.call is not None
    assert site.placed.call.pointer is not None
    pointer = binding.source(site.placed.call.pointer, "u64")
    by_address = {binding.addresses[name]: target for name, target in site.targets.items()}

    def step(chunk: Chunk) -> None:
        lanes, value = chunk.numbers(), chunk.read(pointer.slot)
        for address in np.unique(value).tolist():
            called = lanes if value.size == 1 else lanes[value == address]
            target = by_address.get(address)
            if target is None:
                kind, what = "bad-call", f"{address:#x}, which is not a function that fits this call"
                if address == 0:
                    kind, what = "null-pointer", "a null pointer"
                message = (
                    f"a call through {what}. Set the function pointer, in device code, before it is called."
                )
                chunk.report(kind, site.placed, called, message)
                chunk.send(EXIT, called)
            else:
                _enter_function(chunk, site, number, target, called)

    return step


def _target(placed: FlatInstruction, name: str, block: int, binding: Binding) -> CallTarget:
    call = placed.call
    assert call is not None
    function = binding.linked.functions[name]
    saved = _saved(function, call.caller, binding)
    taken = binding.layout.frame_bytes.get(name, 0) + _BYTES_PER_REGISTER * len(saved)
    rounded = max(STACK_ALIGNMENT, -(-taken // STACK_ALIGNMENT) * STACK_ALIGNMENT)
    return CallTarget(
        block=block,
        arguments=_copies(call.arguments, function.params, binding),
        results=_copies(function.returns, call.returns, binding),
        saved=saved,
        frame=binding.frame(name) if function.recursive else None,
        bytes=rounded if function.recursive else 0,
    )


def _copies(sources: tuple[str, ...], targets: tuple[str, ...], binding: Binding) -> tuple[VariableCopy, ...]:
    local = binding.linked.local
    require([local[name].size for name in sources] == [local[name].size for name in targets])
    return tuple(
        (binding.spot(source), binding.spot(target), local[source].size)
        for source, target in zip(sources, targets, strict=True)
    )


def _saved(function: EnteredFunction, caller: str, binding: Binding) -> tuple[int, ...]:
    """The registers of the caller, if the function may enter the caller again."""
    if not caller or caller not in function.reaches:
        return ()
    registers = binding.linked.functions[caller].registers
    return (*(binding.register(r).slot for r in registers), binding.frame(caller))


def _enter_function(chunk: Chunk, site: CallSite, number: int, target: CallTarget, lanes: Lanes) -> None:
    stack = stack_of(chunk)
    full = stack.tops[lanes] + np.uint64(target.bytes) > chunk.grid.decoded.layout.stack_base + STACK_BYTES
    if target.bytes and full.any():
        message = (
            f"a recursion that is too deep: its calls fill the {STACK_BYTES} bytes of stack that the "
            "simulator gives a thread, and a GPU gives 1024 unless asked for more. "
            "Look at the condition that ends it, or use a loop."
        )
        chunk.report("stack-overflow", site.placed, lanes[full], message)
        chunk.send(EXIT, lanes[full])
        lanes = lanes[~full]
    if not len(lanes):
        return
    passed = [_read_variable(chunk, source, size, lanes) for source, _, size in target.arguments]
    stack.push(lanes, number, chunk.registers, target.saved)
    if target.frame is not None:
        chunk.active = lanes
        chunk.write(target.frame, stack.tops[lanes])
        stack.tops[lanes] += np.uint64(target.bytes)
    for (_, spot, size), data in zip(target.arguments, passed, strict=True):
        _write_variable(chunk, spot, size, lanes, data)
    chunk.send(target.block, lanes)


# Returning


def leave(placed: FlatInstruction, plan: BasicBlock, binding: Binding) -> Step:
    """Each lane goes on behind the call that it came by.

    Args:
        placed: The instruction.
        plan: Its basic block.
        binding: Finds the registers of operands.
    """
    sites, name = binding.entered, placed.function

    def step(chunk: Chunk) -> None:
        lanes = chunk.numbers()
        numbers = stack_of(chunk).sites(lanes)
        for number in np.unique(numbers).tolist():
            site, returning = sites[number], lanes[numbers == number]
            target = site.targets[name]
            results = [_read_variable(chunk, source, size, returning) for source, _, size in target.results]
            stack_of(chunk).pop(returning, chunk.registers, target.saved)
            for (_, spot, size), data in zip(target.results, results, strict=True):
                _write_variable(chunk, spot, size, returning, data)
            chunk.send(site.resume, returning)

    return step


# Bytes of a lane's variables, and which of them are written


def byte_offsets(chunk: Chunk, spot: VariableSpot, lanes: Lanes) -> Array:
    """Return the offset of a variable in the bytes of local memory, for each lane.

    Args:
        chunk: The blocks that run together; its active lanes take part.
        spot: The place of the variable.
        lanes: The lanes.
    """
    offset, slot = spot
    start = chunk.local.bases[lanes] + np.uint64(offset)
    if slot is not None:
        frame = chunk.registers[slot]
        start = start + (frame if frame.size == 1 else frame[lanes])
    return start.astype(np.int64)


def _read_variable(chunk: Chunk, spot: VariableSpot, size: int, lanes: Lanes) -> tuple[Array, Array]:
    index = byte_offsets(chunk, spot, lanes)[:, None] + np.arange(size)
    return chunk.local.data[index], chunk.local.written[index]


def _write_variable(
    chunk: Chunk, spot: VariableSpot, size: int, lanes: Lanes, data: tuple[Array, Array]
) -> None:
    index = byte_offsets(chunk, spot, lanes)[:, None] + np.arange(size)
    chunk.local.data[index], chunk.local.written[index] = data


# The call stack.
#
# Lanes may be at different depths, also when they run the same instruction. A level of the stack therefore
# stores, for every lane, the call by which the lane came there, and the registers of its caller.


class CallStack:
    """The calls that the lanes of a chunk are in.

    Attributes:
        tops: For each lane, where the next frame begins in its local memory.
    """

    def __init__(self, lanes: int, base: int) -> None:
        self.lanes = lanes
        self.tops = np.full(lanes, base, np.uint64)
        self._depths = np.zeros(lanes, np.int64)
        # For each depth: the call site by which a lane came there, its stack top before the call, and the
        # registers that its caller had, by slot.
        self._levels: list[tuple[Lanes, Array, dict[int, Array]]] = []

    def push(self, lanes: Lanes, site: int, registers: list[Array], saved: Sequence[int]) -> None:
        """Lanes make a call: keep the site, and the saved registers.

        Args:
            lanes: The lanes that call.
            site: The number of the call site.
            registers: All registers of the chunk.
            saved: Slots of the registers that the caller keeps.
        """
        for depth, here in self._by_depth(lanes):
            if depth == len(self._levels):
                self._levels.append((np.zeros(self.lanes, np.int64), np.zeros(self.lanes, np.uint64), {}))
            sites, tops, stored = self._levels[depth]
            sites[here], tops[here] = site, self.tops[here]
            for slot in saved:
                value = registers[slot]
                copy = stored.setdefault(slot, np.zeros(self.lanes, value.dtype))
                copy[here] = value if value.size == 1 else value[here]
        self._depths[lanes] += 1

    def sites(self, lanes: Lanes) -> Lanes:
        """For each lane, the site of the call that it is in."""
        result = np.empty(len(lanes), np.int64)
        depths = self._depths[lanes] - 1
        for depth in np.unique(depths).tolist():
            at = depths == depth
            result[at] = self._levels[depth][0][lanes[at]]
        return result

    def pop(self, lanes: Lanes, registers: list[Array], saved: Sequence[int]) -> None:
        """Lanes return from a call: give the saved registers back.

        Args:
            lanes: The lanes that return.
            registers: All registers of the chunk.
            saved: Slots of the registers that the caller keeps.
        """
        self._depths[lanes] -= 1
        for depth, here in self._by_depth(lanes):
            _, tops, stored = self._levels[depth]
            self.tops[here] = tops[here]
            for slot in saved:
                # A new array: what was located by the old one no longer holds.
                registers[slot] = np.broadcast_to(registers[slot], self.lanes).copy()
                registers[slot][here] = stored[slot][here]

    def _by_depth(self, lanes: Lanes) -> list[tuple[int, Lanes]]:
        depths = self._depths[lanes]
        found = np.unique(depths).tolist()
        return [(depth, lanes if len(found) == 1 else lanes[depths == depth]) for depth in found]
