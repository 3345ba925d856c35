"""Control flow: how a basic block ends, and guards on single instructions.

Source: PTX ISA, "Control Flow Instructions", "Predicated Execution".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dotcu.simulator.machine.barriers import barriers
from dotcu.simulator.machine.shape import WARP, Lanes
from dotcu.simulator.machine.state import Chunk, Step
from dotcu.simulator.program.basic_blocks import EXIT, BasicBlock
from dotcu.simulator.program.binding import Binding, chosen, counted, dtype_of, immediate, only, require
from dotcu.simulator.program.inlining import EnteredFunction, FlatInstruction
from dotcu.simulator.program.variables import STACK_ALIGNMENT, STACK_BYTES, VariableSpot
from dotcu.simulator.run import Array
from dotcu.simulator.semantics.builtins import bind_call

Ending = Callable[[FlatInstruction, BasicBlock, Binding], Step]


def jump(target: int) -> Step:
    """All active lanes go to one block."""
    return lambda chunk: chunk.send(target, chunk.active)


def _skip(chunk: Chunk, number: int, placed: FlatInstruction, lanes: int) -> None:
    for note in chunk.on.skip:
        note(number, placed, lanes)


def _part(chunk: Chunk, number: int, placed: FlatInstruction, *groups: Lanes) -> None:
    """Tell of how many warps have lanes in more than one of some groups, each ascending."""
    if not chunk.on.branch:
        return
    seen = np.zeros(max(int(g[-1]) for g in groups) // WARP + 1, np.int32)
    for lanes in groups:
        here = np.zeros(len(seen), bool)
        here[lanes // WARP] = True
        seen += here
    for note in chunk.on.branch:
        note(number, placed, int(np.count_nonzero(seen > 1)))


def guarded(step: Step, placed: FlatInstruction, binding: Binding) -> Step:
    """The step, run only in lanes where the instruction's predicate holds; the other lanes are counted.

    Args:
        step, placed, binding: The step of the instruction, the instruction, and where its predicate is.
    """
    slot, negated = binding.guard(placed.instruction)
    if slot < 0:
        return step
    number = binding.next_access()

    def run(chunk: Chunk) -> None:
        holds = chunk.read(slot)
        if holds.size == 1:
            if bool(holds[0]) != negated:
                step(chunk)
            else:
                _skip(chunk, number, placed, chunk.count())
            return
        if negated:
            holds = ~holds
        running = int(np.count_nonzero(holds))
        if running == len(holds):
            step(chunk)
            return
        _skip(chunk, number, placed, len(holds) - running)
        if running:
            whole = chunk.active
            chunk.active = np.flatnonzero(holds) if whole is None else whole[holds]
            step(chunk)
            chunk.active = whole

    return run


def _branch(placed: FlatInstruction, plan: BasicBlock, binding: Binding) -> Step:
    """bra, ret and exit: lanes where the predicate holds go the first way, the others the last."""
    slot, negated = binding.guard(placed.instruction)
    target, through = plan.following[0], plan.following[-1]
    if slot < 0:
        return jump(target)
    if negated:
        target, through = through, target
    number = binding.next_access()

    def end(chunk: Chunk) -> None:
        active = chunk.active
        taken = chunk.read(slot)
        if taken.size == 1 or taken.all():
            chunk.send(target if taken[0] else through, active)
        elif not taken.any():
            chunk.send(through, active)
        else:
            if active is None:
                there, here = np.flatnonzero(taken), np.flatnonzero(~taken)
            else:
                there, here = active[taken], active[~taken]
            _part(chunk, number, placed, there, here)
            chunk.send(target, there)
            chunk.send(through, here)

    return end


def _table_branch(placed: FlatInstruction, plan: BasicBlock, binding: Binding) -> Step:
    """brx.idx: each lane goes to the block that its index names."""
    require(placed.instruction.guard is None)
    slot, targets = binding.source(counted(placed.instruction.operands, 2)[0], "u32").slot, plan.following
    number = binding.next_access()

    def end(chunk: Chunk) -> None:
        index = chunk.read(slot)
        lanes = chunk.numbers()
        if index.size == 1:
            chunk.send(targets[min(int(index[0]), len(targets) - 1)], chunk.active)
            return
        clipped = np.minimum(index, len(targets) - 1)
        groups = [(targets[choice], lanes[clipped == choice]) for choice in np.unique(clipped).tolist()]
        _part(chunk, number, placed, *(there for _, there in groups))
        for target, there in groups:
            chunk.send(target, there)

    return end


_STOPS = {
    "trap": "the kernel stopped itself by __trap(). Look at the condition that led here.",
    "brkpt": "the kernel stopped at a breakpoint (brkpt). Take it out where no debugger is attached.",
}


_NO_GRID = (
    "cooperative groups stopped the kernel, which is what grid.sync() does in an ordinary launch: its blocks "
    "may not all run at once. Launch it with cooperative=True."
)


_UNDEFINED = (
    "the compiler put a trap here, for what C++ leaves undefined near this line: a write to a __constant__ "
    "variable, say. Write to a __device__ variable; a __constant__ one is set before the launch, by "
    "module.variable(name).write(tensor)."
)


def _stop(placed: FlatInstruction, plan: BasicBlock, binding: Binding) -> Step:
    """trap, brkpt and a failed assertion: it is reported, and its lanes leave."""
    leave, opcode = _branch(placed, plan, binding), placed.instruction.opcode

    def trap(chunk: Chunk) -> None:
        grid, (_, line, _) = chunk.grid, placed.instruction.location
        location_of = grid.decoded.location_of
        text = grid.source_line(location_of.files.get(placed.instruction.location.file, ""), line)
        message = _STOPS[opcode]
        if grid.workspace == 0 and location_of.is_library(placed):
            message = _NO_GRID
        elif opcode == "trap" and (text.strip() or (location_of.files and not line)) and "trap" not in text:
            message = _UNDEFINED
        chunk.report("trap", placed, chunk.numbers(), message)

    report = guarded(bind_call(placed, binding) if opcode == "assertfail" else trap, placed, binding)

    def end(chunk: Chunk) -> None:
        report(chunk)
        leave(chunk)

    return end


def _barrier(placed: FlatInstruction, plan: BasicBlock, binding: Binding) -> Step:
    """bar and barrier: the active lanes wait for their block.

    Source: PTX ISA, "Parallel Synchronization and Communication Instructions: bar".
    """
    instruction, resume = placed.instruction, plan.through
    if instruction.flags[:1] == ("cluster",):
        return _cluster_barrier(placed, resume)
    kind = [f for f in instruction.flags if f not in ("cta", "aligned")]
    if kind[:1] == ["red"] and instruction.guard is None:
        return _reduction(placed, kind[1:], resume, binding)
    operands = counted(instruction.operands, 1, 2)
    number, *counts = [binding.source(operand, "u32").slot for operand in operands]
    require((kind == ["sync"] and len(counts) <= 1) or (kind == ["arrive"] and len(counts) == 1))

    def end(chunk: Chunk) -> None:
        at = barriers(chunk)
        if kind == ["sync"]:
            expected = chunk.read(counts[0]).astype(np.int64) if counts else None
            at.wait(placed, resume, chunk.read(number), expected)
        else:
            chunk.send(resume, chunk.active)
            at.arrive(chunk.read(number), chunk.read(counts[0]).astype(np.int64))

    return end


def _cluster_barrier(placed: FlatInstruction, resume: int) -> Step:
    """barrier.cluster: the active lanes arrive, or wait for their cluster.

    Source: PTX ISA, "Parallel Synchronization and Communication Instructions: barrier.cluster".
    """
    _, kind, *order = counted([f for f in placed.instruction.flags if f != "aligned"], 2, 3)
    require(order in ([], ["release"], ["relaxed"]) if kind == "arrive" else order in ([], ["acquire"]))
    require(kind in ("arrive", "wait"))

    def arrive(chunk: Chunk) -> None:
        chunk.send(resume, chunk.active)
        barriers(chunk).cluster.arrive(placed, relaxed=order == ["relaxed"])

    def wait(chunk: Chunk) -> None:
        barriers(chunk).cluster.wait(placed, resume)

    return arrive if kind == "arrive" else wait


# How many said yes, and how many there were, to the result.
_REDUCTIONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "popc": lambda yes, everyone: yes.astype(np.uint32),
    "and": lambda yes, everyone: yes == everyone,
    "or": lambda yes, everyone: yes > 0,
}


def _reduction(placed: FlatInstruction, kind: list[str], resume: int, binding: Binding) -> Step:
    """Bind bar.red: a barrier after which all threads know how many of them, or whether all or any, agree."""
    reduce = chosen(_REDUCTIONS, only(kind))
    to, *given, predicate = counted(placed.instruction.operands, 3, 4)
    target, vote = binding.destination(to), binding.source(predicate, "pred")
    number, *counts = [binding.source(operand, "u32").slot for operand in given]

    def end(chunk: Chunk) -> None:
        def finish(lanes: Lanes, yes: Array, everyone: Array) -> None:
            chunk.active = lanes
            target.write(chunk, reduce(yes, everyone))

        expected = chunk.read(counts[0]).astype(np.int64) if counts else None
        barriers(chunk).wait(placed, resume, chunk.read(number), expected, vote.read(chunk), finish)

    return end


def _or_through(bind: Ending) -> Ending:
    """Make lanes whose predicate does not hold go on behind the block."""

    def bind_guarded(placed: FlatInstruction, plan: BasicBlock, binding: Binding) -> Step:
        end = bind(placed, plan, binding)
        slot, negated = binding.guard(placed.instruction)

        def guarded_end(chunk: Chunk) -> None:
            lanes = chunk.numbers()
            holds = np.broadcast_to(chunk.read(slot) ^ negated, lanes.shape)
            chunk.send(plan.through, lanes[~holds])
            chunk.active = lanes[holds]
            if len(chunk.active):
                end(chunk)

        return end if slot < 0 else guarded_end

    return bind_guarded


# Calls of functions that stand once in a kernel: through pointers, and of themselves.
#
# An enter copies the arguments, notes where the lane is to go on, and goes to the function; a
# return copies the results back. A function that may be entered while it runs has its variables
# in a frame of its own for each call, and the registers of its caller are saved.
#
# Source: PTX ISA, "Control Flow Instructions: call, ret"; CUDA C++ Programming Guide, "Function
# Pointers", "Recursion" for what a stack that is too small does.


_BYTES_PER_REGISTER = 8

VariableCopy = tuple[VariableSpot, VariableSpot, int]
"""A copy from one variable of a lane to another, with its number of bytes."""


Enter = Callable[[Chunk, int, Lanes], None]
"""Sends lanes to a function, of which the call with a number came."""
Leave = Callable[[Chunk, Lanes], None]
"""Gives lanes back what their call of a function returns, and what it saved."""


def stack_of(chunk: Chunk) -> CallStack:
    """The calls that the chunk's lanes are in."""
    return chunk.part(CallStack)


def _enter(placed: FlatInstruction, plan: BasicBlock, binding: Binding) -> Step:
    """Each lane goes to the function that it calls."""
    call = placed.call
    assert call is not None
    targets = {
        name: _target(placed, name, block, binding)
        for name, block in zip(call.functions, plan.following, strict=False)
    }
    number = len(binding.entered)
    binding.entered.append((plan.through, {name: leave for name, (_, leave) in targets.items()}))
    if call.pointer is None:
        ((only, _),) = targets.values()
        return lambda chunk: only(chunk, number, chunk.numbers())
    pointer = binding.source(call.pointer, "u64")
    by_address = {binding.addresses[name]: enter for name, (enter, _) in targets.items()}

    def step(chunk: Chunk) -> None:
        lanes, value = chunk.numbers(), chunk.read(pointer.slot)
        for address in np.unique(value).tolist():
            called = lanes if value.size == 1 else lanes[value == address]
            enter = by_address.get(address)
            if enter is not None:
                enter(chunk, number, called)
                continue
            kind, what = "bad-call", f"{address:#x}, which is not a function that fits this call"
            if address == 0:
                kind, what = "null-pointer", "a null pointer"
            message = f"a call through {what}. Set the function pointer, in device code, before it is called."
            chunk.report(kind, placed, called, message)
            chunk.send(EXIT, called)

    return step


def _target(placed: FlatInstruction, name: str, block: int, binding: Binding) -> tuple[Enter, Leave]:
    """Bind what enters and leaves one function that a call may mean, which begins with a basic block."""
    call, function = placed.call, binding.linked.functions[name]
    assert call is not None
    saved = _saved(function, call.caller, binding)
    taken = binding.layout.frame_bytes.get(name, 0) + _BYTES_PER_REGISTER * len(saved)
    rounded = max(STACK_ALIGNMENT, -(-taken // STACK_ALIGNMENT) * STACK_ALIGNMENT)
    nbytes = np.uint64(rounded if function.recursive else 0)
    frame = binding.frame(name) if function.recursive else None
    arguments = _copies(call.arguments, function.params, binding)
    results = _copies(function.returns, call.returns, binding)

    def enter(chunk: Chunk, number: int, lanes: Lanes) -> None:
        stack = stack_of(chunk)
        full = stack.tops[lanes] + nbytes > chunk.grid.decoded.layout.stack_base + STACK_BYTES
        if nbytes and full.any():
            message = (
                f"a recursion that is too deep: its calls fill the {STACK_BYTES} bytes of stack that the "
                "simulator gives a thread, and a GPU gives 1024 unless asked for more. "
                "Look at the condition that ends it, or use a loop."
            )
            chunk.report("stack-overflow", placed, lanes[full], message)
            chunk.send(EXIT, lanes[full])
            lanes = lanes[~full]
        if not len(lanes):
            return
        passed = [_read_variable(chunk, source, size, lanes) for source, _, size in arguments]
        stack.push(lanes, number, saved)
        if frame is not None:
            chunk.active = lanes
            chunk.write(frame, stack.tops[lanes])
            stack.tops[lanes] += nbytes
        for (_, spot, size), data in zip(arguments, passed, strict=True):
            _write_variable(chunk, spot, size, lanes, data)
        chunk.send(block, lanes)

    def leave(chunk: Chunk, lanes: Lanes) -> None:
        returned = [_read_variable(chunk, source, size, lanes) for source, _, size in results]
        stack_of(chunk).pop(lanes, saved)
        for (_, spot, size), data in zip(results, returned, strict=True):
            _write_variable(chunk, spot, size, lanes, data)

    return enter, leave


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


def _leave(placed: FlatInstruction, plan: BasicBlock, binding: Binding) -> Step:
    """Each lane goes on behind the call that it came by."""
    calls, name = binding.entered, placed.function

    def step(chunk: Chunk) -> None:
        lanes = chunk.numbers()
        numbers = stack_of(chunk).sites(lanes)
        for number in np.unique(numbers).tolist():
            (resume, targets), returning = calls[number], lanes[numbers == number]
            targets[name](chunk, returning)
            chunk.send(resume, returning)

    return step


def _read_variable(chunk: Chunk, spot: VariableSpot, size: int, lanes: Lanes) -> tuple[Array, Array]:
    index = chunk.byte_offsets(spot, lanes)[:, None] + np.arange(size)
    return chunk.local.data[index], chunk.local.written[index]


def _write_variable(
    chunk: Chunk, spot: VariableSpot, size: int, lanes: Lanes, data: tuple[Array, Array]
) -> None:
    index = chunk.byte_offsets(spot, lanes)[:, None] + np.arange(size)
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

    def __init__(self, chunk: Chunk) -> None:
        self.lanes, self.registers = chunk.lanes, chunk.registers
        self.tops = np.full(self.lanes, chunk.grid.decoded.layout.stack_base, np.uint64)
        self._depths = np.zeros(self.lanes, np.int64)
        # For each depth: the call site by which a lane came there, its stack top before the call, and the
        # registers that its caller had, by slot.
        self._levels: list[tuple[Lanes, Array, dict[int, Array]]] = []

    def push(self, lanes: Lanes, site: int, saved: Sequence[int]) -> None:
        """Lanes make a call: keep the site, and the saved registers.

        Args:
            lanes, site: The lanes that call, and the number of the call site.
            saved: Slots of the registers that the caller keeps.
        """
        for depth, here in self._by_depth(lanes):
            if depth == len(self._levels):
                self._levels.append((np.zeros(self.lanes, np.int64), np.zeros(self.lanes, np.uint64), {}))
            sites, tops, stored = self._levels[depth]
            sites[here], tops[here] = site, self.tops[here]
            for slot in saved:
                value = self.registers[slot]
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

    def pop(self, lanes: Lanes, saved: Sequence[int]) -> None:
        """Lanes return from a call: give the saved registers back."""
        registers = self.registers
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


# Memory that a function takes of the stack while it runs, beside its variables.
#
# Source: PTX ISA, 9.7.17, "Stack Manipulation Instructions: stacksave, stackrestore, alloca".


def bind_stack(placed: FlatInstruction, binding: Binding) -> Step:
    """alloca, stacksave or stackrestore."""
    opcode, flags, types, operands, *_ = placed.instruction
    type_, (operand, *more) = only(types), counted(operands, 1, 3)
    require(not flags and type_ in ("u32", "u64"))
    if opcode == "stackrestore":
        saved = binding.source(operand, type_)

        def restore(chunk: Chunk) -> None:
            stack_of(chunk).tops[chunk.numbers()] = saved.read(chunk)

        return restore
    target = binding.destination(operand)
    require(target.dtype == dtype_of(type_))
    if opcode == "stacksave":
        return lambda chunk: target.write(chunk, stack_of(chunk).tops[chunk.numbers()].astype(target.dtype))
    size, *alignment = counted(more, 1, 2)
    bytes_ = binding.source(size, type_)
    align = np.uint64(max(_ALLOCA_ALIGNMENT, *(immediate(a) for a in alignment), 1))

    def step(chunk: Chunk) -> None:
        lanes, tops = chunk.numbers(), stack_of(chunk).tops
        wanted = np.broadcast_to(bytes_.read(chunk), len(lanes)).astype(np.uint64)
        starts = (tops[lanes] + align - np.uint64(1)) // align * align
        full = wanted > chunk.grid.decoded.layout.stack_base + STACK_BYTES - starts.view(np.int64)
        if full.any():
            message = (
                f"alloca of {int(wanted[full][0])} bytes, more than the stack has left: the simulator gives "
                f"a thread {STACK_BYTES} bytes, and a GPU gives 1024 unless asked for more. Use an array of "
                "a fixed size, or memory that the host passes."
            )
            chunk.report("stack-overflow", placed, lanes[full], message)
            wanted = np.where(full, np.uint64(0), wanted)
        tops[lanes] = starts + wanted
        local = chunk.local
        local.is_written = False
        for lane, start, count in zip(lanes.tolist(), starts.tolist(), wanted.tolist(), strict=True):
            first = int(local.bases[lane]) + start
            local.written[first : first + count] = 0
        target.write(chunk, starts.astype(target.dtype))

    return step


_ALLOCA_ALIGNMENT = 8
"""What alloca aligns to where it does not say."""

# How instructions end a basic block.
ENDINGS: Mapping[str, Ending] = {
    **dict.fromkeys(("bra", "ret", "exit"), _branch),
    "brx": _table_branch,
    "enter": _enter,
    "return": _or_through(_leave),
    **dict.fromkeys(("trap", "brkpt", "assertfail"), _stop),
    **dict.fromkeys(("bar", "barrier"), _or_through(_barrier)),
}
