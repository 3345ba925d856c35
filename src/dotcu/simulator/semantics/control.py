"""Control flow: how a basic block ends, and guards on single instructions.

Source: PTX ISA, "Control Flow Instructions", "Predicated Execution".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dotcu.simulator.machine.barriers import barriers
from dotcu.simulator.machine.shape import WARP, Threads
from dotcu.simulator.machine.state import Batch, InstructionStep
from dotcu.simulator.program.basic_blocks import EXIT, BasicBlock
from dotcu.simulator.program.binding import Binding, chosen, counted, dtype_of, immediate, only, require
from dotcu.simulator.program.inlining import EnteredFunction, FlatInstruction
from dotcu.simulator.program.variables import STACK_ALIGNMENT, STACK_BYTES, VariableSpot
from dotcu.simulator.run import Array
from dotcu.simulator.semantics.builtins import bind_call

BlockEnding = Callable[[FlatInstruction, BasicBlock, Binding], InstructionStep]


def jump(target: int) -> InstructionStep:
    """All active threads go to one block."""
    return lambda batch: batch.send(target, batch.active)


def _skip(batch: Batch, number: int, instruction: FlatInstruction, threads: int) -> None:
    for note in batch.on.skip:
        note(number, instruction, threads)


def _part(batch: Batch, number: int, instruction: FlatInstruction, *groups: Threads) -> None:
    """Tell of how many warps have threads in more than one of some groups, each ascending."""
    if not batch.on.branch:
        return
    seen = np.zeros(max(int(g[-1]) for g in groups) // WARP + 1, np.int32)
    for threads in groups:
        here = np.zeros(len(seen), bool)
        here[threads // WARP] = True
        seen += here
    for note in batch.on.branch:
        note(number, instruction, int(np.count_nonzero(seen > 1)))


def guarded(step: InstructionStep, instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """The step, run only in threads where the predicate holds; the other threads are counted."""
    slot, negated = binding.guard(instruction.ptx)
    if slot < 0:
        return step
    number = binding.next_access()

    def run(batch: Batch) -> None:
        holds = batch.read(slot)
        if holds.size == 1:
            if bool(holds[0]) != negated:
                step(batch)
            else:
                _skip(batch, number, instruction, batch.count())
            return
        if negated:
            holds = ~holds
        running = int(np.count_nonzero(holds))
        if running == len(holds):
            step(batch)
            return
        _skip(batch, number, instruction, len(holds) - running)
        if running:
            whole = batch.active
            batch.active = np.flatnonzero(holds) if whole is None else whole[holds]
            step(batch)
            batch.active = whole

    return run


def _branch(instruction: FlatInstruction, plan: BasicBlock, binding: Binding) -> InstructionStep:
    """bra, ret and exit: threads where the predicate holds go the first way, the others the last."""
    slot, negated = binding.guard(instruction.ptx)
    target, through = plan.following[0], plan.following[-1]
    if slot < 0:
        return jump(target)
    if negated:
        target, through = through, target
    number = binding.next_access()

    def end(batch: Batch) -> None:
        active = batch.active
        taken = batch.read(slot)
        if taken.size == 1 or taken.all():
            batch.send(target if taken[0] else through, active)
        elif not taken.any():
            batch.send(through, active)
        else:
            if active is None:
                there, here = np.flatnonzero(taken), np.flatnonzero(~taken)
            else:
                there, here = active[taken], active[~taken]
            _part(batch, number, instruction, there, here)
            batch.send(target, there)
            batch.send(through, here)

    return end


def _table_branch(instruction: FlatInstruction, plan: BasicBlock, binding: Binding) -> InstructionStep:
    """brx.idx: each thread goes to the block that its index names."""
    require(instruction.ptx.guard is None)
    slot, targets = binding.source(counted(instruction.ptx.operands, 2)[0], "u32").slot, plan.following
    number = binding.next_access()

    def end(batch: Batch) -> None:
        index = batch.read(slot)
        threads = batch.numbers()
        if index.size == 1:
            batch.send(targets[min(int(index[0]), len(targets) - 1)], batch.active)
            return
        clipped = np.minimum(index, len(targets) - 1)
        groups = [(targets[choice], threads[clipped == choice]) for choice in np.unique(clipped).tolist()]
        _part(batch, number, instruction, *(there for _, there in groups))
        for target, there in groups:
            batch.send(target, there)

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


def _stop(instruction: FlatInstruction, plan: BasicBlock, binding: Binding) -> InstructionStep:
    """trap, brkpt and a failed assertion: it is reported, and its threads leave."""
    leave, opcode = _branch(instruction, plan, binding), instruction.ptx.opcode

    def trap(batch: Batch) -> None:
        launch, (_, line, _) = batch.launch, instruction.ptx.location
        location_of = launch.decoded.location_of
        text = launch.source_line(location_of.files.get(instruction.ptx.location.file, ""), line)
        message = _STOPS[opcode]
        if launch.workspace == 0 and location_of.is_library(instruction):
            message = _NO_GRID
        elif opcode == "trap" and (text.strip() or (location_of.files and not line)) and "trap" not in text:
            message = _UNDEFINED
        batch.report("trap", instruction, batch.numbers(), message)

    report = guarded(
        bind_call(instruction, binding) if opcode == "assertfail" else trap, instruction, binding
    )

    def end(batch: Batch) -> None:
        report(batch)
        leave(batch)

    return end


def _barrier(instruction: FlatInstruction, plan: BasicBlock, binding: Binding) -> InstructionStep:
    """bar and barrier: the active threads wait for their block.

    Source: PTX ISA, "Parallel Synchronization and Communication Instructions: bar".
    """
    ptx, resume = instruction.ptx, plan.through
    if ptx.flags[:1] == ("cluster",):
        return _cluster_barrier(instruction, resume)
    kind = [f for f in ptx.flags if f not in ("cta", "aligned")]
    if kind[:1] == ["red"] and ptx.guard is None:
        return _reduction(instruction, kind[1:], resume, binding)
    operands = counted(ptx.operands, 1, 2)
    number, *counts = [binding.source(operand, "u32").slot for operand in operands]
    require((kind == ["sync"] and len(counts) <= 1) or (kind == ["arrive"] and len(counts) == 1))

    def end(batch: Batch) -> None:
        at = barriers(batch)
        if kind == ["sync"]:
            expected = batch.read(counts[0]).astype(np.int64) if counts else None
            at.wait(instruction, resume, batch.read(number), expected)
        else:
            batch.send(resume, batch.active)
            at.arrive(batch.read(number), batch.read(counts[0]).astype(np.int64))

    return end


def _cluster_barrier(instruction: FlatInstruction, resume: int) -> InstructionStep:
    """barrier.cluster: the active threads arrive, or wait for their cluster.

    Source: PTX ISA, "Parallel Synchronization and Communication Instructions: barrier.cluster".
    """
    _, kind, *order = counted([f for f in instruction.ptx.flags if f != "aligned"], 2, 3)
    require(order in ([], ["release"], ["relaxed"]) if kind == "arrive" else order in ([], ["acquire"]))
    require(kind in ("arrive", "wait"))

    def arrive(batch: Batch) -> None:
        batch.send(resume, batch.active)
        barriers(batch).cluster.arrive(instruction, relaxed=order == ["relaxed"])

    def wait(batch: Batch) -> None:
        barriers(batch).cluster.wait(instruction, resume)

    return arrive if kind == "arrive" else wait


# How many said yes, and how many there were, to the result.
_REDUCTIONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "popc": lambda yes, everyone: yes.astype(np.uint32),
    "and": lambda yes, everyone: yes == everyone,
    "or": lambda yes, everyone: yes > 0,
}


def _reduction(
    instruction: FlatInstruction, kind: list[str], resume: int, binding: Binding
) -> InstructionStep:
    """Bind bar.red: a barrier after which all threads know how many of them, or whether all or any, agree."""
    reduce = chosen(_REDUCTIONS, only(kind))
    to, *given, predicate = counted(instruction.ptx.operands, 3, 4)
    target, vote = binding.destination(to), binding.source(predicate, "pred")
    number, *counts = [binding.source(operand, "u32").slot for operand in given]

    def end(batch: Batch) -> None:
        def finish(threads: Threads, yes: Array, everyone: Array) -> None:
            batch.active = threads
            target.write(batch, reduce(yes, everyone))

        expected = batch.read(counts[0]).astype(np.int64) if counts else None
        barriers(batch).wait(instruction, resume, batch.read(number), expected, vote.read(batch), finish)

    return end


def _or_through(bind: BlockEnding) -> BlockEnding:
    """Make threads whose predicate does not hold go on behind the block."""

    def bind_guarded(instruction: FlatInstruction, plan: BasicBlock, binding: Binding) -> InstructionStep:
        end = bind(instruction, plan, binding)
        slot, negated = binding.guard(instruction.ptx)

        def guarded_end(batch: Batch) -> None:
            threads = batch.numbers()
            holds = np.broadcast_to(batch.read(slot) ^ negated, threads.shape)
            batch.send(plan.through, threads[~holds])
            batch.active = threads[holds]
            if len(batch.active):
                end(batch)

        return end if slot < 0 else guarded_end

    return bind_guarded


# Calls of functions that stand once in a kernel: through pointers, and of themselves.
#
# An enter copies the arguments, notes where the thread is to go on, and goes to the function; a
# return copies the results back. A function that may be entered while it runs has its variables
# in a frame of its own for each call, and the registers of its caller are saved.
#
# Source: PTX ISA, "Control Flow Instructions: call, ret"; CUDA C++ Programming Guide, "Function
# Pointers", "Recursion" for what a stack that is too small does.


_BYTES_PER_REGISTER = 8

VariableCopy = tuple[VariableSpot, VariableSpot, int]
"""A copy from one variable of a thread to another, with its number of bytes."""


Enter = Callable[[Batch, int, Threads], None]
"""Sends threads to a function, of which the call with a number came."""
Leave = Callable[[Batch, Threads], None]
"""Gives threads back what their call of a function returns, and what it saved."""


def stack_of(batch: Batch) -> CallStack:
    """The calls that the batch's threads are in."""
    return batch.part(CallStack)


def _enter(instruction: FlatInstruction, plan: BasicBlock, binding: Binding) -> InstructionStep:
    """Each thread goes to the function that it calls."""
    call = instruction.call
    assert call is not None
    targets = {
        name: _target(instruction, name, block, binding)
        for name, block in zip(call.functions, plan.following, strict=False)
    }
    number = len(binding.entered)
    binding.entered.append((plan.through, {name: leave for name, (_, leave) in targets.items()}))
    if call.pointer is None:
        ((only, _),) = targets.values()
        return lambda batch: only(batch, number, batch.numbers())
    pointer = binding.source(call.pointer, "u64")
    by_address = {binding.addresses[name]: enter for name, (enter, _) in targets.items()}

    def step(batch: Batch) -> None:
        threads, value = batch.numbers(), batch.read(pointer.slot)
        for address in np.unique(value).tolist():
            called = threads if value.size == 1 else threads[value == address]
            enter = by_address.get(address)
            if enter is not None:
                enter(batch, number, called)
                continue
            kind, what = "bad-call", f"{address:#x}, which is not a function that fits this call"
            if address == 0:
                kind, what = "null-pointer", "a null pointer"
            message = f"a call through {what}. Set the function pointer, in device code, before it is called."
            batch.report(kind, instruction, called, message)
            batch.send(EXIT, called)

    return step


def _target(instruction: FlatInstruction, name: str, block: int, binding: Binding) -> tuple[Enter, Leave]:
    """Bind what enters and leaves one function that a call may mean, which begins with a basic block."""
    call, function = instruction.call, binding.linked.functions[name]
    assert call is not None
    saved = _saved(function, call.caller, binding)
    taken = binding.layout.frame_bytes.get(name, 0) + _BYTES_PER_REGISTER * len(saved)
    rounded = max(STACK_ALIGNMENT, -(-taken // STACK_ALIGNMENT) * STACK_ALIGNMENT)
    nbytes = np.uint64(rounded if function.recursive else 0)
    frame = binding.frame(name) if function.recursive else None
    arguments = _copies(call.arguments, function.params, binding)
    results = _copies(function.returns, call.returns, binding)

    def enter(batch: Batch, number: int, threads: Threads) -> None:
        stack = stack_of(batch)
        full = stack.tops[threads] + nbytes > batch.launch.decoded.layout.stack_base + STACK_BYTES
        if nbytes and full.any():
            message = (
                f"a recursion that is too deep: its calls fill the {STACK_BYTES} bytes of stack that the "
                "simulator gives a thread, and a GPU gives 1024 unless asked for more. "
                "Look at the condition that ends it, or use a loop."
            )
            batch.report("stack-overflow", instruction, threads[full], message)
            batch.send(EXIT, threads[full])
            threads = threads[~full]
        if not len(threads):
            return
        passed = [_read_variable(batch, source, size, threads) for source, _, size in arguments]
        stack.push(threads, number, saved)
        if frame is not None:
            batch.active = threads
            batch.write(frame, stack.tops[threads])
            stack.tops[threads] += nbytes
        for (_, spot, size), data in zip(arguments, passed, strict=True):
            _write_variable(batch, spot, size, threads, data)
        batch.send(block, threads)

    def leave(batch: Batch, threads: Threads) -> None:
        returned = [_read_variable(batch, source, size, threads) for source, _, size in results]
        stack_of(batch).pop(threads, saved)
        for (_, spot, size), data in zip(results, returned, strict=True):
            _write_variable(batch, spot, size, threads, data)

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


def _leave(instruction: FlatInstruction, plan: BasicBlock, binding: Binding) -> InstructionStep:
    """Each thread goes on behind the call that it came by."""
    calls, name = binding.entered, instruction.function

    def step(batch: Batch) -> None:
        threads = batch.numbers()
        numbers = stack_of(batch).sites(threads)
        for number in np.unique(numbers).tolist():
            (resume, targets), returning = calls[number], threads[numbers == number]
            targets[name](batch, returning)
            batch.send(resume, returning)

    return step


def _read_variable(batch: Batch, spot: VariableSpot, size: int, threads: Threads) -> tuple[Array, Array]:
    index = batch.byte_offsets(spot, threads)[:, None] + np.arange(size)
    return batch.local.data[index], batch.local.written[index]


def _write_variable(
    batch: Batch, spot: VariableSpot, size: int, threads: Threads, data: tuple[Array, Array]
) -> None:
    index = batch.byte_offsets(spot, threads)[:, None] + np.arange(size)
    batch.local.data[index], batch.local.written[index] = data


# The call stack.
#
# Threads may be at different depths, also when they run the same instruction. A level of the stack therefore
# stores, for every thread, the call by which the thread came there, and the registers of its caller.


class CallStack:
    """The calls that the threads of a batch are in.

    Attributes:
        tops: For each thread, where the next frame begins in its local memory.
    """

    def __init__(self, batch: Batch) -> None:
        self.threads, self.registers = batch.threads, batch.registers
        self.tops = np.full(self.threads, batch.launch.decoded.layout.stack_base, np.uint64)
        self._depths = np.zeros(self.threads, np.int64)
        # For each depth: the call site by which a thread came there, its stack top before the call, and the
        # registers that its caller had, by slot.
        self._levels: list[tuple[Threads, Array, dict[int, Array]]] = []

    def push(self, threads: Threads, site: int, saved: Sequence[int]) -> None:
        """Threads make a call: keep the site, and the saved registers.

        Args:
            threads, site: The threads that call, and the number of the call site.
            saved: Slots of the registers that the caller keeps.
        """
        for depth, here in self._by_depth(threads):
            if depth == len(self._levels):
                self._levels.append((np.zeros(self.threads, np.int64), np.zeros(self.threads, np.uint64), {}))
            sites, tops, stored = self._levels[depth]
            sites[here], tops[here] = site, self.tops[here]
            for slot in saved:
                value = self.registers[slot]
                copy = stored.setdefault(slot, np.zeros(self.threads, value.dtype))
                copy[here] = value if value.size == 1 else value[here]
        self._depths[threads] += 1

    def sites(self, threads: Threads) -> Threads:
        """For each thread, the site of the call that it is in."""
        result = np.empty(len(threads), np.int64)
        depths = self._depths[threads] - 1
        for depth in np.unique(depths).tolist():
            at = depths == depth
            result[at] = self._levels[depth][0][threads[at]]
        return result

    def pop(self, threads: Threads, saved: Sequence[int]) -> None:
        """Threads return from a call: give the saved registers back."""
        registers = self.registers
        self._depths[threads] -= 1
        for depth, here in self._by_depth(threads):
            _, tops, stored = self._levels[depth]
            self.tops[here] = tops[here]
            for slot in saved:
                # A new array: what was located by the old one no longer holds.
                registers[slot] = np.broadcast_to(registers[slot], self.threads).copy()
                registers[slot][here] = stored[slot][here]

    def _by_depth(self, threads: Threads) -> list[tuple[int, Threads]]:
        depths = self._depths[threads]
        found = np.unique(depths).tolist()
        return [(depth, threads if len(found) == 1 else threads[depths == depth]) for depth in found]


# Memory that a function takes of the stack while it runs, beside its variables.
#
# Source: PTX ISA, 9.7.17, "Stack Manipulation Instructions: stacksave, stackrestore, alloca".


def bind_stack(instruction: FlatInstruction, binding: Binding) -> InstructionStep:
    """alloca, stacksave or stackrestore."""
    opcode, flags, types, operands, *_ = instruction.ptx
    type_, (operand, *more) = only(types), counted(operands, 1, 3)
    require(not flags and type_ in ("u32", "u64"))
    if opcode == "stackrestore":
        saved = binding.source(operand, type_)

        def restore(batch: Batch) -> None:
            stack_of(batch).tops[batch.numbers()] = saved.read(batch)

        return restore
    target = binding.destination(operand)
    require(target.dtype == dtype_of(type_))
    if opcode == "stacksave":
        return lambda batch: target.write(batch, stack_of(batch).tops[batch.numbers()].astype(target.dtype))
    size, *alignment = counted(more, 1, 2)
    bytes_ = binding.source(size, type_)
    align = np.uint64(max(_ALLOCA_ALIGNMENT, *(immediate(a) for a in alignment), 1))

    def step(batch: Batch) -> None:
        threads, tops = batch.numbers(), stack_of(batch).tops
        wanted = np.broadcast_to(bytes_.read(batch), len(threads)).astype(np.uint64)
        starts = (tops[threads] + align - np.uint64(1)) // align * align
        full = wanted > batch.launch.decoded.layout.stack_base + STACK_BYTES - starts.view(np.int64)
        if full.any():
            message = (
                f"alloca of {int(wanted[full][0])} bytes, more than the stack has left: the simulator gives "
                f"a thread {STACK_BYTES} bytes, and a GPU gives 1024 unless asked for more. Use an array of "
                "a fixed size, or memory that the host passes."
            )
            batch.report("stack-overflow", instruction, threads[full], message)
            wanted = np.where(full, np.uint64(0), wanted)
        tops[threads] = starts + wanted
        local = batch.local
        local.is_written = False
        for thread, start, count in zip(threads.tolist(), starts.tolist(), wanted.tolist(), strict=True):
            first = int(local.bases[thread]) + start
            local.written[first : first + count] = 0
        target.write(batch, starts.astype(target.dtype))

    return step


_ALLOCA_ALIGNMENT = 8
"""What alloca aligns to where it does not say."""

# How instructions end a basic block.
ENDINGS: Mapping[str, BlockEnding] = {
    **dict.fromkeys(("bra", "ret", "exit"), _branch),
    "brx": _table_branch,
    "enter": _enter,
    "return": _or_through(_leave),
    **dict.fromkeys(("trap", "brkpt", "assertfail"), _stop),
    **dict.fromkeys(("bar", "barrier"), _or_through(_barrier)),
}
