"""Calls of functions that stand once in a kernel: through pointers, and of themselves.

An enter copies the arguments, notes where the lane is to go on, and goes to the function; a
return copies the results back. A function that may be entered while it runs has its variables
in a frame of its own for each call, and what its caller had in registers is kept meanwhile.

Source: PTX ISA, "Control Flow Instructions: call, ret"; CUDA C++ Programming Guide, "Function
Pointers", "Recursion" for what a stack that is too small does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.link import Function, Placed
from dotcu.simulator.decoding.flow import EXIT, BasicBlock
from dotcu.simulator.decoding.layout import STACK_ALIGNMENT, STACK_BYTES
from dotcu.simulator.machine.callstack import CallStack
from dotcu.simulator.machine.chunk import Array, Chunk, Lanes
from dotcu.simulator.semantics.control import go
from dotcu.simulator.semantics.table import NotExecuted, Step

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding, Spot

_BYTES_PER_REGISTER = 8


@dataclass(frozen=True, kw_only=True)
class Copy:
    """Bytes to be copied from one variable of a lane to another."""

    source: Spot
    target: Spot
    size: int


@dataclass(frozen=True, kw_only=True)
class Way:
    """One function that a call may enter.

    Attributes:
        block: Its first basic block.
        arguments: What is copied on the way in.
        results: What is copied on the way out.
        saved: Registers of the caller that are kept meanwhile.
        frame: The register that holds where its frame begins; None if it has none.
        bytes: What one call of it takes of the stack.
    """

    block: int
    arguments: tuple[Copy, ...]
    results: tuple[Copy, ...]
    saved: tuple[int, ...]
    frame: int | None
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Site:
    """One call: where its lanes go on, and the functions that it may enter."""

    placed: Placed
    resume: int
    ways: Mapping[str, Way]


def stack_of(chunk: Chunk) -> CallStack:
    """The calls that the chunk's lanes are in."""
    if chunk.stack is None:
        chunk.stack = CallStack(chunk.lanes, chunk.grid.decoded.stack_base)
    return chunk.stack


# Entering


def enter(placed: Placed, plan: BasicBlock, leaders: Mapping[int, int], binding: Binding) -> Step:
    """Each lane goes to the function that it calls."""
    call = placed.call
    assert call is not None
    ways = {
        name: _way(placed, name, block, binding)
        for name, block in zip(call.functions, plan.following, strict=False)
    }
    site = Site(placed=placed, resume=leaders.get(plan.last, EXIT), ways=ways)
    number = len(binding.entered)
    binding.entered.append(site)
    if call.pointer is None:
        (only,) = ways.values()
        return lambda chunk: _go_in(chunk, site, number, only, chunk.numbers())
    return _through_pointer(site, number, binding)


def _through_pointer(site: Site, number: int, binding: Binding) -> Step:
    assert site.placed.call is not None
    assert site.placed.call.pointer is not None
    pointer = binding.source(site.placed.call.pointer, "u64")
    by_address = {binding.addresses[name]: way for name, way in site.ways.items()}

    def step(chunk: Chunk) -> None:
        lanes, value = chunk.numbers(), chunk.read(pointer.slot)
        for address in np.unique(value).tolist():
            called = lanes if value.size == 1 else lanes[value == address]
            way = by_address.get(address)
            if way is None:
                _report_wild(chunk, site, called, address)
                go(chunk, EXIT, called)
            else:
                _go_in(chunk, site, number, way, called)

    return step


def _report_wild(chunk: Chunk, site: Site, lanes: Lanes, address: int) -> None:
    what = "a null pointer" if address == 0 else f"{address:#x}, which is no function that fits this call"
    chunk.grid.report(
        chunk,
        "null-pointer" if address == 0 else "bad-call",
        site.placed,
        lanes,
        message=f"a call through {what}. Set the function pointer, in device code, before it is called.",
    )


def _way(placed: Placed, name: str, block: int, binding: Binding) -> Way:
    call = placed.call
    assert call is not None
    function = binding.linked.functions[name]
    results = _copies(function.returns, call.returns, binding)
    saved = _saved(function, call.caller, binding)
    frame = binding.frame(name) if function.recursive else None
    taken = binding.frames.sizes.get(name, 0) + _BYTES_PER_REGISTER * len(saved)
    return Way(
        block=block,
        arguments=_copies(call.arguments, function.params, binding),
        results=results,
        saved=saved,
        frame=frame,
        bytes=_rounded_up(taken) if function.recursive else 0,
    )


def _rounded_up(size: int) -> int:
    return max(STACK_ALIGNMENT, -(-size // STACK_ALIGNMENT) * STACK_ALIGNMENT)


def _copies(sources: tuple[str, ...], targets: tuple[str, ...], binding: Binding) -> tuple[Copy, ...]:
    local = binding.linked.local
    found = []
    for source, target in zip(sources, targets, strict=True):
        size = local[source].size
        if size != local[target].size:
            raise NotExecuted
        found.append(Copy(source=binding.spot(source), target=binding.spot(target), size=size))
    return tuple(found)


def _saved(function: Function, caller: str, binding: Binding) -> tuple[int, ...]:
    """The registers of the caller, if the function may enter the caller again."""
    if not caller or caller not in function.reaches:
        return ()
    registers = binding.linked.functions[caller].registers
    return (*(binding.register(r).slot for r in registers), binding.frame(caller))


def _go_in(chunk: Chunk, site: Site, number: int, way: Way, lanes: Lanes) -> None:
    stack = stack_of(chunk)
    full = stack.tops[lanes] + np.uint64(way.bytes) > chunk.grid.decoded.stack_base + STACK_BYTES
    if way.bytes and full.any():
        _report_overflow(chunk, site, lanes[full])
        go(chunk, EXIT, lanes[full])
        lanes = lanes[~full]
    if not len(lanes):
        return
    passed = [_take(chunk, copy, lanes) for copy in way.arguments]
    stack.push(lanes, number, chunk.registers, way.saved)
    if way.frame is not None:
        chunk.active = lanes
        chunk.write(way.frame, stack.tops[lanes])
        stack.tops[lanes] += np.uint64(way.bytes)
    for copy, data in zip(way.arguments, passed, strict=True):
        _give(chunk, copy, lanes, data)
    go(chunk, way.block, lanes)


def _report_overflow(chunk: Chunk, site: Site, lanes: Lanes) -> None:
    chunk.grid.report(
        chunk,
        "stack-overflow",
        site.placed,
        lanes,
        message=f"a recursion that is too deep: its calls fill the {STACK_BYTES} bytes of stack that the "
        "simulator gives a thread, and a GPU gives 1024 unless asked for more. "
        "Look at the condition that ends it, or use a loop.",
    )


# Returning


def leave(placed: Placed, plan: BasicBlock, leaders: Mapping[int, int], binding: Binding) -> Step:
    """Each lane goes on behind the call that it came by."""
    guard = placed.instruction.guard
    slot = -1 if guard is None else binding.register(guard.register).slot
    negated = guard is not None and guard.negated
    sites, name = binding.entered, placed.function

    def step(chunk: Chunk) -> None:
        lanes = chunk.numbers()
        if slot >= 0:
            holds = np.broadcast_to(chunk.read(slot) ^ negated, lanes.shape)
            go(chunk, plan.following[-1], lanes[~holds])
            lanes = lanes[holds]
        numbers = stack_of(chunk).sites(lanes)
        for number in np.unique(numbers).tolist():
            _go_out(chunk, sites[number], name, lanes[numbers == number])

    return step


def _go_out(chunk: Chunk, site: Site, name: str, lanes: Lanes) -> None:
    way = site.ways[name]
    results = [_take(chunk, copy, lanes) for copy in way.results]
    stack_of(chunk).pop(lanes, chunk.registers, way.saved)
    for copy, data in zip(way.results, results, strict=True):
        _give(chunk, copy, lanes, data)
    go(chunk, site.resume, lanes)


# Bytes of a lane's variables, and which of them are written


def places(chunk: Chunk, spot: Spot, lanes: Lanes) -> Array:
    """Where a variable begins in the bytes of local memory, for each lane."""
    start = chunk.local.bases[lanes] + np.uint64(spot.start)
    if spot.frame is not None:
        frame = chunk.registers[spot.frame]
        start = start + (frame if frame.size == 1 else frame[lanes])
    result: Array = start.astype(np.int64)
    return result


def _take(chunk: Chunk, copy: Copy, lanes: Lanes) -> tuple[Array, Array]:
    index = places(chunk, copy.source, lanes)[:, None] + np.arange(copy.size)
    return chunk.local.data[index], chunk.local.written[index]


def _give(chunk: Chunk, copy: Copy, lanes: Lanes, data: tuple[Array, Array]) -> None:
    index = places(chunk, copy.target, lanes)[:, None] + np.arange(copy.size)
    chunk.local.data[index], chunk.local.written[index] = data
