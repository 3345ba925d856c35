"""A kernel as one flat list of instructions: calls are inlined.

Each call becomes a copy of the callee's body with names of its own. The callee's parameters become
the caller's .param variables, to which they would be copied anyway. Functions that call themselves,
and those that a pointer may call, stand once behind the kernel; their calls are instructions
"enter", their ends instructions "return".

Source: PTX ISA, "Control Flow Instructions: call".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dotcu.errors import SimulationError, UnsupportedInstruction
from dotcu.ptx.dataflow import registers_of, symbols_of
from dotcu.ptx.instructions import (
    NOWHERE,
    Address,
    Arguments,
    FunctionBody,
    FunctionHeader,
    Instruction,
    Location,
    Operand,
    Pair,
    Predicate,
    Register,
    Sink,
    Symbol,
    Variable,
    Vector,
)
from dotcu.ptx.module import PtxModule

MAX_INSTRUCTIONS = 1_000_000
MAX_INSTANCES = 100_000
MAX_NESTED = 100

# Functions that no source defines: the heap of the device (CUDA Programming Guide, "Dynamic Global
# Memory Allocation").
_DEVICE_RUNTIME = frozenset({"malloc", "free"})


class EnteredCall(NamedTuple):
    """The operands of an "enter", by the names of .param variables in the flat kernel.

    Attributes:
        functions: Those that it may enter; a direct call has one.
        pointer: The register that says which; None for a direct call.
        caller: The entered function that it is in; empty for the kernel.
    """

    functions: tuple[str, ...]
    pointer: Register | None
    returns: tuple[str, ...]
    arguments: tuple[str, ...]
    caller: str


class FlatInstruction(NamedTuple):
    """An instruction in the flat list.

    Attributes:
        calls: The source locations of the calls around it, innermost first.
        targets: For brx.idx, enter and return, the flat indices that it may go to.
        call: The operands of an enter.
        function: For a return, the function that ends.
    """

    instruction: Instruction
    calls: tuple[Location, ...] = ()
    targets: tuple[int, ...] = ()
    call: EnteredCall | None = None
    function: str = ""


class EnteredFunction(NamedTuple):
    """A function that is entered rather than inlined.

    Attributes:
        first: Index of its first instruction.
        returns: Names of its return values in the flat kernel.
        params: Names of its parameters, likewise.
        variables: All that is declared in it, its parameters among it.
        registers: All that its instructions name.
        recursive: It may be entered while it runs: each call has registers and variables of its own.
        reaches: Functions that it calls, or that these call.
    """

    first: int
    returns: tuple[str, ...]
    params: tuple[str, ...]
    variables: tuple[str, ...]
    registers: tuple[Register, ...]
    recursive: bool
    reaches: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class FlatKernel:
    """A kernel without calls, except those of builtin functions and of entered ones.

    Attributes:
        code: Instructions; branch targets are indices into this.
        local: Variables of each lane (.local, and .param of calls), by name.
        shared: Variables of each block, by name.
        module: Variables declared inside bodies that belong to the module (.global, .const).
        functions: Functions that are entered, by name.
    """

    code: tuple[FlatInstruction, ...]
    local: Mapping[str, Variable]
    shared: Mapping[str, Variable]
    module: Mapping[str, Variable]
    functions: Mapping[str, EnteredFunction] = field(default_factory=dict)


LocationOf = Callable[[FlatInstruction], tuple[str, int]]
"""Gives the file and line of an instruction."""


def inline_calls(
    module: PtxModule, entry: str, builtins: frozenset[str], location_of: LocationOf
) -> FlatKernel:
    """Flatten a kernel.

    Args:
        entry: The kernel's name.
        builtins: Functions that the simulator implements itself; calls of them stay.
        location_of: Locates the instruction that an error names.

    Raises:
        UnsupportedInstruction: A call that can be neither inlined nor entered.
        SimulationError: A call of a function that is only declared.
    """
    return _Inliner(module, builtins, location_of, CallGraph(module, entry)).inline(entry)


# Call graph


class CallOperands(NamedTuple):
    """The operands of a call.

    Attributes:
        target: The function, or the register that points to it; None if it is neither.
    """

    returns: tuple[str, ...]
    target: Symbol | Register | None
    arguments: tuple[str, ...]


def call_operands(call: Instruction) -> CallOperands:
    """Return the operands of a call by their purpose."""
    operands = [o for o in call.operands if not isinstance(o, Sink)]
    returns: tuple[str, ...] = ()
    if operands and isinstance(operands[0], Arguments):
        returns, operands = operands[0].names, operands[1:]
    target = operands[0] if operands else None
    arguments = operands[1].names if len(operands) > 1 and isinstance(operands[1], Arguments) else ()
    return CallOperands(returns, target if isinstance(target, (Symbol, Register)) else None, arguments)


class CallGraph:
    """The functions that a kernel reaches.

    Attributes:
        reaches: For each function, those that it calls, and those that these call, and so on.
        address_taken: Functions whose address is taken, so that a pointer may call them.
    """

    def __init__(self, module: PtxModule, entry: str) -> None:
        self.module = module
        self.address_taken: set[str] = set()
        self._calls: dict[str, set[str]] = {}
        self._pointer_calls: dict[str, list[tuple[FunctionBody, CallOperands]]] = {}
        for variable in module.variables.values():
            self.address_taken |= self._functions(e for e in variable.initial if isinstance(e, Symbol))
        pending = {entry}
        while pending:
            for name in sorted(pending):
                self._read(name)
            pending = set().union(*self._calls.values())
            if any(self._pointer_calls.values()):
                pending |= self.address_taken
            pending -= self._calls.keys()
        for name, calls in self._pointer_calls.items():
            for body, called in calls:
                self._calls[name].update(self.candidates(body, called))
        self.reaches = {name: frozenset(self._reached(name)) for name in self._calls}

    def is_recursive(self, name: str) -> bool:
        """Return whether a function may be called while it runs."""
        return name in self.reaches[name]

    def candidates(self, body: FunctionBody, called: CallOperands) -> list[str]:
        """Return the functions that a call through a pointer may mean: by the sizes that they take."""
        variables = body.variables
        passed = (
            [variables[n].size for n in called.returns if n in variables],
            [variables[n].size for n in called.arguments if n in variables],
        )
        return [name for name in sorted(self.address_taken) if _sizes(self.module.headers[name]) == passed]

    def _read(self, name: str) -> None:
        body = self.module.body(name)
        self._calls[name], self._pointer_calls[name] = set(), []
        for instruction in body.instructions:
            if instruction.opcode != "call":
                self.address_taken |= self._functions(symbols_of(instruction.operands))
                continue
            called = call_operands(instruction)
            if isinstance(called.target, Register):
                self._pointer_calls[name].append((body, called))
            elif called.target is not None:
                self._calls[name] |= self._functions([called.target])

    def _functions(self, symbols: Iterable[Symbol]) -> set[str]:
        return {s.name for s in symbols if s.name in self.module.bodies}

    def _reached(self, name: str) -> set[str]:
        seen: set[str] = set()
        pending = list(self._calls[name])
        while pending:
            found = pending.pop()
            if found not in seen:
                seen.add(found)
                pending.extend(self._calls[found])
        return seen


def _sizes(header: FunctionHeader) -> tuple[list[int], list[int]]:
    return [v.size for v in header.returns], [v.size for v in header.params]


# Inlining


class _Instance:
    """One copy of a function, with names of its own for registers and variables.

    Attributes:
        prefix: Stands before the names of its registers.
        names: Its variables' names in the flat kernel.
        calls: The source locations of the calls around it, innermost first.
        owner: The entered function that it belongs to; empty for the kernel.
    """

    def __init__(
        self,
        body: FunctionBody,
        prefix: str,
        names: Mapping[str, str],
        calls: tuple[Location, ...],
        owner: str,
    ) -> None:
        self.body, self.prefix, self.names, self.calls, self.owner = body, prefix, names, calls, owner
        self._unchanged = not prefix and all(old == new for old, new in names.items())

    def name(self, name: str) -> str:
        return self.names.get(name, name)

    def register(self, register: Register) -> Register:
        return Register(self.prefix + register.name, register.type)

    def rename(self, instruction: Instruction) -> Instruction:
        if self._unchanged:
            return instruction
        guard = instruction.guard
        if guard is not None:
            guard = guard._replace(register=self.register(guard.register))
        operands = tuple([self._operand(o) for o in instruction.operands])
        return instruction._replace(operands=operands, guard=guard)

    def _operand(self, operand: Operand) -> Operand:
        if isinstance(operand, Register):
            return self.register(operand)
        if isinstance(operand, Symbol):
            return operand._replace(name=self.name(operand.name))
        if isinstance(operand, Address):
            base = self._operand(operand.base)
            return operand._replace(base=base)  # type: ignore[arg-type]
        if isinstance(operand, Vector):
            return Vector(tuple([self._operand(o) for o in operand.elements]))
        if isinstance(operand, Pair):
            return Pair(self._operand(operand.first), self._operand(operand.second))
        if isinstance(operand, Predicate):
            return operand._replace(register=self.register(operand.register))
        if isinstance(operand, Arguments):
            return Arguments(tuple([self.name(name) for name in operand.names]))
        return operand


_END = Instruction("ret", (), (), (), None, NOWHERE, "ret")


@dataclass
class _Inliner:
    module: PtxModule
    builtins: frozenset[str]
    location_of: LocationOf
    graph: CallGraph
    code: list[FlatInstruction] = field(default_factory=list)
    local: dict[str, Variable] = field(default_factory=dict)
    shared: dict[str, Variable] = field(default_factory=dict)
    module_variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, EnteredFunction] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    instances: int = 0

    def inline(self, entry: str) -> FlatKernel:
        self._append(entry, "", {}, (), "", "ret")
        if self.pending:
            self.code.append(FlatInstruction(_END))
        while self.pending:
            name = self.pending.pop()
            if name not in self.functions:
                self._append_entered(name)
        return FlatKernel(
            code=tuple(_with_targets(self.code, self.functions)),
            local=self.local,
            shared=self.shared,
            module=self.module_variables,
            functions=self.functions,
        )

    def _append_entered(self, name: str) -> None:
        """Append a function that is entered."""
        header, first, declared = self.module.headers[name], len(self.code), len(self.local)
        prefix = self._prefix(name)
        formal = {v.name: prefix + v.name for v in (*header.returns, *header.params)}
        for variable in (*header.returns, *header.params):
            unique = formal[variable.name]
            self.local[unique] = variable._replace(name=unique)
        self._append(name, prefix, formal, (), name, "return")
        self.code.append(FlatInstruction(_END._replace(opcode="return"), function=name))
        self.functions[name] = EnteredFunction(
            first=first,
            returns=tuple(formal[v.name] for v in header.returns),
            params=tuple(formal[v.name] for v in header.params),
            variables=tuple(self.local)[declared:],
            registers=tuple(_registers(self.code[first:])),
            recursive=self.graph.is_recursive(name),
            reaches=self.graph.reaches[name],
        )

    def _prefix(self, name: str) -> str:
        self.instances += 1
        return f"{name}#{self.instances}:"

    def _append(
        self,
        function: str,
        prefix: str,
        formal: Mapping[str, str],
        calls: tuple[Location, ...],
        owner: str,
        ending: str,
    ) -> None:
        """Append a copy of a function's body.

        Args:
            formal: Names of its parameters and return values in the flat kernel.
            ending: The opcode that replaces ret: "ret", "return", or "bra" to behind the body.
        """
        body = self.module.body(function)
        names = {**formal, **self._declare(body, prefix, function)}
        instance = _Instance(body, prefix, names, calls, owner)
        starts: list[int] = []
        first = len(self.code)
        for instruction in body.instructions:
            starts.append(len(self.code))
            if len(self.code) > MAX_INSTRUCTIONS or self.instances > MAX_INSTANCES:
                raise self._refusal(instruction, f"{function} grows without bound when its calls are inlined")
            if instruction.opcode == "call":
                self._call(instruction, instance)
            else:
                self.code.append(FlatInstruction(instance.rename(instruction), calls))
        starts.append(len(self.code))
        self._retarget(first, starts, instance, ending)

    def _declare(self, body: FunctionBody, prefix: str, function: str) -> dict[str, str]:
        """Add a body's variables; return their names in the flat kernel."""
        renamed: dict[str, str] = {}
        for variable in body.variables.values():
            if variable.space in ("local", "param"):
                unique = prefix + variable.name
                self.local[unique] = variable._replace(name=unique)
            else:
                unique = variable.name
                table = self.shared if variable.space == "shared" else self.module_variables
                while unique in table and table[unique] is not variable:
                    unique += f"@{function}"
                table[unique] = variable
            renamed[variable.name] = unique
        return renamed

    def _call(self, call: Instruction, instance: _Instance) -> None:
        if call.guard is not None:
            self._guarded_call(call, instance)
            return
        called = call_operands(call)
        target = called.target
        if target is None:
            raise self._refusal(call, "a call of what is neither a function nor a register")
        if isinstance(target, Register):
            functions = self.graph.candidates(instance.body, called)
            self._enter(call, called, tuple(functions), instance)
        elif target.name in self.builtins:
            builtin = instance.rename(call)
            if target.name == "__assertfail":  # no lane comes back from it
                builtin = builtin._replace(opcode="assertfail")
            self.code.append(FlatInstruction(builtin, instance.calls))
        elif target.name not in self.module.bodies:
            raise self._unresolved(call, target.name)
        elif self.graph.is_recursive(target.name):
            self._enter(call, called, (target.name,), instance)
        else:
            self._inline(call, called, target.name, instance)

    def _guarded_call(self, call: Instruction, instance: _Instance) -> None:
        """Add a call under a predicate: the other lanes branch over it."""
        assert call.guard is not None
        over = Predicate(call.guard.register, not call.guard.negated)
        skip = instance.rename(call._replace(opcode="bra", flags=(), operands=(), guard=over))
        at = len(self.code)
        self.code.append(FlatInstruction(skip, instance.calls))
        self._call(call._replace(guard=None), instance)
        self.code[at] = FlatInstruction(skip._replace(target=len(self.code)), instance.calls)

    def _inline(self, call: Instruction, called: CallOperands, target: str, instance: _Instance) -> None:
        header, calls = self.module.headers[target], instance.calls
        formal = [v.name for v in (*header.returns, *header.params)]
        actual = self._passed(call, (*called.returns, *called.arguments), instance)
        if len(formal) != len(actual):
            raise self._refusal(call, f"a call that does not pass what {target} takes")
        if len(calls) > MAX_NESTED:
            raise self._refusal(call, f"a call of {target} that is nested {MAX_NESTED} calls deep")
        names = dict(zip(formal, actual, strict=True))
        self._append(target, self._prefix(target), names, (call.location, *calls), instance.owner, "bra")

    def _enter(
        self, call: Instruction, called: CallOperands, functions: tuple[str, ...], instance: _Instance
    ) -> None:
        pointer = called.target if isinstance(called.target, Register) else None
        entered = EnteredCall(
            functions=functions,
            pointer=None if pointer is None else instance.register(pointer),
            returns=self._passed(call, called.returns, instance),
            arguments=self._passed(call, called.arguments, instance),
            caller=instance.owner,
        )
        for name in functions:
            header = self.module.headers[name]
            if len(header.params) != len(called.arguments) or len(header.returns) != len(called.returns):
                raise self._refusal(call, f"a call that does not pass what {name} takes")
        self.pending.extend(functions)
        enter = instance.rename(call)._replace(opcode="enter")
        self.code.append(FlatInstruction(enter, instance.calls, call=entered))

    def _passed(self, call: Instruction, passed: Sequence[str], instance: _Instance) -> tuple[str, ...]:
        actual = tuple(instance.name(name) for name in passed)
        if not all(name in self.local for name in actual):
            raise self._refusal(call, "a call that does not pass its arguments in .param variables")
        return actual

    def _retarget(self, first: int, starts: list[int], instance: _Instance, ending: str) -> None:
        """Turn targets within the body into targets within the flat list."""
        end, body = starts[-1], instance.body
        own = {start: index for index, start in enumerate(starts[:-1])}
        for at in range(first, end):
            index = own.get(at)
            if index is None or body.instructions[index].opcode == "call":
                continue
            flat = self.code[at]
            instruction = flat.instruction
            if instruction.opcode == "bra":
                instruction = instruction._replace(target=starts[instruction.target])
            elif instruction.opcode == "ret" and ending != "ret":
                instruction = instruction._replace(opcode=ending, target=end)
                flat = flat._replace(function=instance.owner)
            elif instruction.opcode == "brx":
                flat = flat._replace(targets=self._branch_targets(instruction, body, starts))
            self.code[at] = flat._replace(instruction=instruction)

    def _branch_targets(
        self, branch: Instruction, body: FunctionBody, starts: Sequence[int]
    ) -> tuple[int, ...]:
        table = branch.operands[1] if len(branch.operands) > 1 else None
        labels = body.tables.get(table.name) if isinstance(table, Symbol) else None
        if labels is None:
            raise self._refusal(branch, "a brx.idx without its table of targets")
        return tuple(starts[label] for label in labels)

    def _refusal(self, instruction: Instruction, what: str) -> UnsupportedInstruction:
        file, line = self.location_of(FlatInstruction(instruction))
        return unsupported(f"{file}:{line}: {what} ({instruction.text})")

    def _unresolved(self, call: Instruction, name: str) -> SimulationError:
        file, line = self.location_of(FlatInstruction(call))
        at = f"{file}:{line}: " if line else ""
        if name in _DEVICE_RUNTIME:
            return unsupported(f"{at}{name}(), which the device runtime provides")
        return SimulationError(
            f"{at}the extern function {name!r} is unresolved: it is declared and called, but has no body in "
            "this source, and nothing is linked to it.\n"
            "Define it in the same source, include the file that does, or keep the call out of the simulated "
            "build: #ifndef DOTCU_SIMULATED"
        )


def unsupported(what: str) -> UnsupportedInstruction:
    """Return the error that names what the simulator does not execute."""
    return UnsupportedInstruction(
        f"The simulator does not execute:\n    {what}\n"
        "An unsupported instruction is refused, never guessed; the kernel has not run.\n"
        "Run it on a GPU, or keep this part out of the simulated build: #ifndef DOTCU_SIMULATED"
    )


def _with_targets(
    code: Sequence[FlatInstruction], functions: Mapping[str, EnteredFunction]
) -> list[FlatInstruction]:
    """Return the code with the targets of each enter and return."""
    behind: dict[str, list[int]] = {name: [] for name in functions}
    for index, flat in enumerate(code):
        for name in flat.call.functions if flat.call is not None else ():
            behind[name].append(index + 1)
    result = []
    for flat in code:
        if flat.call is not None:
            flat = flat._replace(targets=tuple(functions[n].first for n in flat.call.functions))
        elif flat.instruction.opcode == "return":
            flat = flat._replace(targets=tuple(behind[flat.function]))
        result.append(flat)
    return result


def _registers(code: Sequence[FlatInstruction]) -> dict[Register, None]:
    """Return the registers that instructions name, in order."""
    found: dict[Register, None] = {}
    for flat in code:
        instruction = flat.instruction
        if instruction.guard is not None:
            found[instruction.guard.register] = None
        for operand in instruction.operands:
            found.update(dict.fromkeys(registers_of(operand)))
    return found
