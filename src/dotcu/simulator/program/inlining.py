"""A kernel as one flat list of instructions: calls are inlined.

Each call becomes a copy of the callee's body with names of its own. The callee's parameters become
the caller's .param variables, to which they would be copied anyway. Functions that call themselves,
and those that a pointer may call, stand once behind the kernel; their calls are instructions
"enter", their ends instructions "return".

Source: PTX ISA, "Control Flow Instructions: call".
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dotcu.errors import SimulationError, UnsupportedInstruction
from dotcu.ptx.dataflow import registers_of, symbols_of
from dotcu.ptx.instructions import (
    NOWHERE,
    Address,
    Arguments,
    FunctionBody,
    Instruction,
    Location,
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

    ptx: Instruction
    calls: tuple[Location, ...] = ()
    targets: tuple[int, ...] = ()
    call: EnteredCall | None = None
    function: str = ""


class EnteredFunction(NamedTuple):
    """A function that is entered rather than inlined.

    Attributes:
        first: Index of its first instruction.
        returns, params: Names of its return values and of its parameters in the flat kernel.
        variables, registers: All that is declared in it, with its parameters, and that its instructions name.
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
        local: Variables of each thread (.local, and .param of calls), by name.
        shared: Variables of each block, by name.
        module: Variables declared inside bodies that belong to the module (.global, .const).
        functions: Functions that are entered, by name.
        location_of: Finds the source file and line of an instruction, as the user knows them.
    """

    code: tuple[FlatInstruction, ...]
    local: Mapping[str, Variable]
    shared: Mapping[str, Variable]
    module: Mapping[str, Variable]
    functions: Mapping[str, EnteredFunction]
    location_of: SourceLocations


_LIBRARY = re.compile(r"/include/(cccl|cub|thrust|cuda/std|cooperative_groups)\b")


class SourceLocations:
    """Finds the file and line of the user's source that an instruction belongs to.

    The kernel's own file is the home. Of the chain of locations that an instruction was inlined
    into, or called from, the innermost one at home is the user's line.
    """

    def __init__(self, files: Mapping[int, str]) -> None:
        self.files = files
        self.home = 0
        self._known: dict[tuple[Location, tuple[Location, ...]], tuple[str, int]] = {}

    def find_home(self, code: Sequence[FlatInstruction]) -> None:
        """Find the home: the outermost file of the first instruction that has a line."""
        outermost = (chain_of(flat.ptx.location, flat.calls)[-1] for flat in code)
        self.home = next((at.file for at in outermost if at.line), self.home)

    def __call__(self, flat: FlatInstruction) -> tuple[str, int]:
        key = (flat.ptx.location, flat.calls)
        if key not in self._known:
            chain = chain_of(*key)
            best = next((at for at in chain if at.file == self.home and at.line), chain[-1])
            self._known[key] = (self.files.get(best.file, ""), best.line)
        return self._known[key]

    def is_library(self, flat: FlatInstruction) -> bool:
        """Return whether an instruction was written in a header of CUDA's own libraries."""
        return _LIBRARY.search(self.files.get(flat.ptx.location.file, "")) is not None


def line_reader(texts: Mapping[str, str]) -> Callable[[str, int], str]:
    """Return what gives the text of a line of a file, counted from 1; empty if it is not known."""

    def read(file: str, line: int) -> str:
        if file not in texts:
            return linecache.getline(file, line)
        return dict(enumerate(texts[file].splitlines(), 1)).get(line, "")

    return read


def chain_of(location: Location, calls: tuple[Location, ...]) -> list[Location]:
    """Return the locations that an instruction was inlined into, or called from, innermost first."""
    chain: list[Location] = []
    for start in (location, *calls):
        at: Location | None = start
        while at is not None:
            chain.append(at)
            at = at.inlined_at
    return chain


def inline_calls(
    module: PtxModule, entry: str, builtins: frozenset[str], files: Mapping[int, str]
) -> FlatKernel:
    """Flatten a kernel.

    Args:
        module, entry: The PTX, and the kernel's name.
        builtins: Functions that the simulator implements itself; calls of them stay.
        files: Names of the source files, as the user knows them.

    Raises:
        UnsupportedInstruction: A call that can be neither inlined nor entered.
        SimulationError: A call of a function that is only declared.
    """
    return _Inliner(module, builtins, SourceLocations(files), CallGraph(module, entry)).inline(entry)


def call_operands(call: Instruction) -> tuple[tuple[str, ...], Symbol | Register | None, tuple[str, ...]]:
    """Return the results, the function or pointer (None if it is neither), and the arguments of a call."""
    operands = [o for o in call.operands if not isinstance(o, Sink)]
    returns: tuple[str, ...] = ()
    if operands and isinstance(operands[0], Arguments):
        returns, operands = operands[0].names, operands[1:]
    target = operands[0] if operands and isinstance(operands[0], Symbol | Register) else None
    arguments = operands[1].names if len(operands) > 1 and isinstance(operands[1], Arguments) else ()
    return returns, target, arguments


class CallGraph:
    """The functions that a kernel reaches."""

    def __init__(self, module: PtxModule, entry: str) -> None:
        self.module = module
        self._reached: dict[str, frozenset[str]] = {}
        self._address_taken: set[str] = set()
        for variable in module.variables.values():
            self._take_addresses(e for e in variable.initial if isinstance(e, Symbol))
        calls: dict[str, list[tuple[FunctionBody, Instruction]]] = {}
        self._callees: dict[str, set[str]] = {}
        unread = {entry}
        while unread:
            taken = len(self._address_taken)
            calls |= {name: self._read(module.body(name)) for name in sorted(unread)}
            stale = unread if len(self._address_taken) == taken else calls.keys()  # calls through pointers
            called = {name: {c for call in calls[name] for c in self.callees(*call)} for name in stale}
            self._callees |= called
            unread = set().union(*called.values()) - calls.keys()

    def reaches(self, name: str) -> frozenset[str]:
        """Return the functions that a function calls, those that these call, and so on."""
        if name not in self._reached:
            seen: set[str] = set()
            pending = {name}
            while pending:
                pending = set().union(*(self._callees[each] for each in pending)) - seen
                seen |= pending
            self._reached[name] = frozenset(seen)
        return self._reached[name]

    def callees(self, body: FunctionBody, call: Instruction) -> list[str]:
        """Return the functions that a call may mean: through a pointer, all that take what it passes."""
        returns, target, arguments = call_operands(call)
        if not isinstance(target, Register):
            return [target.name] if target is not None and target.name in self.module.bodies else []
        variables, headers = body.variables, self.module.headers
        passed = [[variables[n].size for n in names if n in variables] for names in (returns, arguments)]
        return [
            name
            for name in sorted(self._address_taken)
            if [[v.size for v in part] for part in (headers[name].returns, headers[name].params)] == passed
        ]

    def _read(self, body: FunctionBody) -> list[tuple[FunctionBody, Instruction]]:
        """Return the calls of a function, and note the functions whose address it takes."""
        for instruction in body.instructions:
            if instruction.opcode != "call":
                self._take_addresses(symbols_of(instruction.operands))
        return [(body, instruction) for instruction in body.instructions if instruction.opcode == "call"]

    def _take_addresses(self, symbols: Iterable[Symbol]) -> None:
        self._address_taken.update(s.name for s in symbols if s.name in self.module.bodies)


@dataclass(kw_only=True)
class _Instance:
    """One copy of a function, with names of its own for registers and variables.

    Attributes:
        prefix: Stands before the names of its registers; empty for the kernel, whose names stay.
        names: Its variables' names in the flat kernel.
        calls: The source locations of the calls around it, innermost first.
        owner: The entered function that it belongs to; empty for the kernel.
        ending: The opcode that replaces ret: "ret", "return", or "bra" to behind the body.
    """

    function: str
    prefix: str
    names: dict[str, str]
    calls: tuple[Location, ...]
    owner: str
    ending: str

    def name(self, name: str) -> str:
        return self.names.get(name, name)

    def rename(self, instruction: Instruction) -> Instruction:
        if not self.prefix:
            return instruction
        operands = tuple([self.renamed(o) for o in instruction.operands])
        return instruction._replace(operands=operands, guard=self.renamed(instruction.guard))

    def renamed(self, part: Any) -> Any:
        """Return an operand, or a part of one, with the names of this copy."""
        if isinstance(part, Register):
            return Register(self.prefix + part.name, part.type)
        if isinstance(part, Symbol):
            return part._replace(name=self.name(part.name))
        if isinstance(part, Vector):
            return Vector(tuple([self.renamed(element) for element in part.elements]))
        if isinstance(part, Arguments):
            return Arguments(tuple([self.name(name) for name in part.names]))
        if isinstance(part, (Address, Predicate)):
            return type(part)(*[self.renamed(each) for each in part])
        return part


STACK_OPCODES = ("alloca", "stacksave", "stackrestore")
"""Instructions that move the top of a thread's stack; a return moves it back."""

_END = Instruction("ret", (), (), (), None, NOWHERE, "ret")


@dataclass
class _Inliner:
    module: PtxModule
    builtins: frozenset[str]
    location_of: SourceLocations
    graph: CallGraph
    code: list[FlatInstruction] = field(default_factory=list)
    local: dict[str, Variable] = field(default_factory=dict)
    shared: dict[str, Variable] = field(default_factory=dict)
    module_variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, EnteredFunction] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    instances: int = 0

    def inline(self, entry: str) -> FlatKernel:
        self._append(_Instance(function=entry, prefix="", names={}, calls=(), owner="", ending="ret"))
        if self.pending:
            self.code.append(FlatInstruction(_END))
        while self.pending:
            name = self.pending.pop()
            if name not in self.functions:
                self._append_entered(name)
        self.location_of.find_home(self.code)
        return FlatKernel(
            code=tuple(_with_targets(self.code, self.functions)),
            local=self.local,
            shared=self.shared,
            module=self.module_variables,
            functions=self.functions,
            location_of=self.location_of,
        )

    def _append_entered(self, name: str) -> None:
        """Append a function that is entered."""
        header, first, declared = self.module.headers[name], len(self.code), len(self.local)
        prefix = self._prefix(name)
        names: dict[str, str] = {}
        for variable in (*header.returns, *header.params):
            names[variable.name] = unique = prefix + variable.name
            self.local[unique] = variable._replace(name=unique)
        returns, params = (tuple(names[v.name] for v in some) for some in (header.returns, header.params))
        self._append(
            _Instance(function=name, prefix=prefix, names=names, calls=(), owner=name, ending="return")
        )
        self.code.append(FlatInstruction(_END._replace(opcode="return"), function=name))
        self.functions[name] = EnteredFunction(
            first=first,
            returns=returns,
            params=params,
            variables=tuple(self.local)[declared:],
            registers=tuple(dict.fromkeys(_registers(self.code[first:]))),
            recursive=name in self.graph.reaches(name),
            reaches=self.graph.reaches(name),
        )

    def _prefix(self, name: str) -> str:
        self.instances += 1
        return f"{name}#{self.instances}:"

    def _append(self, instance: _Instance) -> None:
        """Append a copy of a function's body."""
        body, calls = self.module.body(instance.function), instance.calls
        self._declare(body, instance)
        starts: list[int] = []
        for instruction in body.instructions:
            starts.append(len(self.code))
            if len(self.code) > MAX_INSTRUCTIONS or self.instances > MAX_INSTANCES:
                reason = f"{instance.function} grows without bound when its calls are inlined"
                raise self._refusal(instruction, reason)
            if instruction.opcode != "call":
                self.code.append(FlatInstruction(instance.rename(instruction), calls))
            elif instruction.guard is None:
                self._call(instruction, instance, body)
            else:  # the other threads branch over the call
                over = Predicate(instruction.guard.register, not instruction.guard.negated)
                skip = instance.rename(instruction._replace(opcode="bra", flags=(), operands=(), guard=over))
                self.code.append(FlatInstruction(skip, calls))
                self._call(instruction._replace(guard=None), instance, body)
                self.code[starts[-1]] = FlatInstruction(skip._replace(target=len(self.code)), calls)
        starts.append(len(self.code))
        self._retarget(body, starts, instance)

    def _declare(self, body: FunctionBody, instance: _Instance) -> None:
        """Add a body's variables, and note their names in the flat kernel."""
        for variable in body.variables.values():
            if variable.space in ("local", "param"):
                unique = instance.prefix + variable.name
                self.local[unique] = variable._replace(name=unique)
            else:
                unique = variable.name
                table = self.shared if variable.space == "shared" else self.module_variables
                while unique in table and table[unique] is not variable:
                    unique += f"@{instance.function}"
                table[unique] = variable
            instance.names[variable.name] = unique

    def _call(self, call: Instruction, instance: _Instance, body: FunctionBody) -> None:
        """Append a call without a predicate: the function's body, or an instruction that enters it."""
        _, target, _ = call_operands(call)
        if target is None:
            raise self._refusal(call, "a call of what is neither a function nor a register")
        if isinstance(target, Symbol) and target.name in self.builtins:
            builtin = instance.rename(call)
            if target.name == "__assertfail":  # no thread comes back from it
                builtin = builtin._replace(opcode="assertfail")
            self.code.append(FlatInstruction(builtin, instance.calls))
            return
        if isinstance(target, Symbol) and target.name not in self.module.bodies:
            raise self._unresolved(call, target.name)
        functions = self.graph.callees(body, call)
        entered = self._passed(call, functions, instance)
        if entered.pointer is None and not self._needs_a_return(functions[0]):
            self._inline(call, functions[0], entered, instance)
            return
        self.pending.extend(functions)
        enter = instance.rename(call)._replace(opcode="enter")
        self.code.append(FlatInstruction(enter, instance.calls, call=entered))

    def _needs_a_return(self, function: str) -> bool:
        """Return whether a function may be entered while it runs, or takes memory until it returns."""
        body = self.module.body(function)
        return function in self.graph.reaches(function) or any(
            instruction.opcode in STACK_OPCODES for instruction in body.instructions
        )

    def _passed(self, call: Instruction, functions: Sequence[str], instance: _Instance) -> EnteredCall:
        """Return the operands of a call, which have to be what each of the functions takes."""
        returns, target, arguments = call_operands(call)
        entered = EnteredCall(
            functions=tuple(functions),
            pointer=instance.renamed(target) if isinstance(target, Register) else None,
            returns=tuple(instance.name(name) for name in returns),
            arguments=tuple(instance.name(name) for name in arguments),
            caller=instance.owner,
        )
        if not all(name in self.local for name in (*entered.returns, *entered.arguments)):
            raise self._refusal(call, "a call that does not pass its arguments in .param variables")
        for name in functions:
            header = self.module.headers[name]
            if len(header.params) != len(arguments) or len(header.returns) != len(returns):
                raise self._refusal(call, f"a call that does not pass what {name} takes")
        return entered

    def _inline(self, call: Instruction, target: str, passed: EnteredCall, instance: _Instance) -> None:
        header, calls = self.module.headers[target], instance.calls
        if len(calls) > MAX_NESTED:
            raise self._refusal(call, f"a call of {target} that is nested {MAX_NESTED} calls deep")
        formal = [v.name for v in (*header.returns, *header.params)]
        copy = _Instance(
            function=target,
            prefix=self._prefix(target),
            names=dict(zip(formal, (*passed.returns, *passed.arguments), strict=True)),
            calls=(call.location, *calls),
            owner=instance.owner,
            ending="bra",
        )
        self._append(copy)

    def _retarget(self, body: FunctionBody, starts: Sequence[int], instance: _Instance) -> None:
        """Turn targets within the body into targets within the flat list."""
        for original, start in zip(body.instructions, starts, strict=False):
            if original.opcode == "bra":
                branch = self.code[start].ptx._replace(target=starts[original.target])
                self.code[start] = self.code[start]._replace(ptx=branch)
            elif original.opcode == "ret" and instance.ending != "ret":
                leave = self.code[start].ptx._replace(opcode=instance.ending, target=starts[-1])
                self.code[start] = self.code[start]._replace(ptx=leave, function=instance.owner)
            elif original.opcode == "brx":
                table = original.operands[1] if len(original.operands) > 1 else None
                labels = body.tables.get(table.name) if isinstance(table, Symbol) else None
                if labels is None:
                    raise self._refusal(original, "a brx.idx without its table of targets")
                targets = tuple(starts[label] for label in labels)
                self.code[start] = self.code[start]._replace(targets=targets)

    def _refusal(self, instruction: Instruction, reason: str) -> UnsupportedInstruction:
        file, line = self.location_of(FlatInstruction(instruction))
        return unsupported(f"{file}:{line}: {reason} ({instruction.text})")

    def _unresolved(self, call: Instruction, name: str) -> SimulationError:
        file, line = self.location_of(FlatInstruction(call))
        at = f"{file}:{line}: " if line else ""
        return SimulationError(
            f"{at}the extern function {name!r} is unresolved: it is declared and called, but has no body in "
            "this source, and nothing is linked to it.\n"
            "Define it in the same source, include the file that does, or keep the call out of the simulated "
            "build: #ifndef DOTCU_SIMULATED"
        )


def unsupported(what: str, kernel: str = "") -> UnsupportedInstruction:
    """Return the error that names what the simulator does not execute, and the kernel that has it."""
    where = f", in {kernel}" if kernel else ""
    return UnsupportedInstruction(
        f"The simulator does not execute{where}:\n    {what}\n"
        "An unsupported instruction is refused, never guessed; the kernel has not run.\n"
        "Run it on a GPU, or keep this part out of the simulated build: #ifndef DOTCU_SIMULATED"
    )


def _with_targets(
    code: Sequence[FlatInstruction], functions: Mapping[str, EnteredFunction]
) -> Iterator[FlatInstruction]:
    """Yield the code with the targets of each enter and return."""
    behind: dict[str, list[int]] = {name: [] for name in functions}
    for index, flat in enumerate(code):
        for name in flat.call.functions if flat.call is not None else ():
            behind[name].append(index + 1)
    for flat in code:
        if flat.call is not None:
            yield flat._replace(targets=tuple(functions[n].first for n in flat.call.functions))
        elif flat.ptx.opcode == "return":
            yield flat._replace(targets=tuple(behind[flat.function]))
        else:
            yield flat


def _registers(code: Sequence[FlatInstruction]) -> Iterator[Register]:
    """Yield the registers that instructions name."""
    for flat in code:
        guard = flat.ptx.guard
        for operand in (*flat.ptx.operands, *(() if guard is None else (guard,))):
            yield from registers_of(operand)
