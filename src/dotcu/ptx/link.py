"""A kernel with every function it calls put in its place.

Each call becomes a copy of the callee's body with names of its own, so that the machine
sees one flat list of instructions. The callee's parameters become the caller's .param
variables, to which they would be copied anyway. Functions that call themselves, and those
that a pointer may call, stand once behind the kernel; their calls are instructions "enter",
their ends instructions "return".

Source: PTX ISA, "Control Flow Instructions: call".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dotcu.errors import SimulationError, UnsupportedInstruction
from dotcu.ptx.callgraph import BodyOf, CallGraph, Signature, call_graph, candidates, signature
from dotcu.ptx.headers import Outline
from dotcu.ptx.instructions import NOWHERE, Body, Guard, Instruction, Location, Register, Symbol, Variable
from dotcu.ptx.names import Names, registers_of

MAX_INSTRUCTIONS = 1_000_000
MAX_INSTANCES = 100_000
MAX_NESTED = 100


class Call(NamedTuple):
    """What an "enter" passes, by the names of .param variables in the linked kernel.

    Attributes:
        functions: Those that it may enter; a direct call has one.
        pointer: The register that says which; None for a direct call.
        caller: The entered function that it stands in; empty for the kernel.
    """

    functions: tuple[str, ...]
    pointer: Register | None
    returns: tuple[str, ...]
    arguments: tuple[str, ...]
    caller: str


class Placed(NamedTuple):
    """An instruction in the flat list.

    Attributes:
        calls: The source locations of the calls around it, innermost first.
        targets: For brx.idx, enter and return, the flat indices that it may go to.
        call: For an enter, what it passes.
        function: For a return, the function that ends.
    """

    instruction: Instruction
    calls: tuple[Location, ...] = ()
    targets: tuple[int, ...] = ()
    call: Call | None = None
    function: str = ""


class Function(NamedTuple):
    """A function that is entered.

    Attributes:
        first: Index of its first instruction.
        returns: Its return values: names of variables in the linked kernel.
        params: Its parameters, likewise.
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
class Linked:
    """A kernel without calls, but for those that the simulator answers itself, and enters.

    Attributes:
        code: Instructions; branch targets are indices into this.
        local: Variables of each lane (.local, and .param of calls), by name.
        shared: Variables of each block, by name.
        module: Variables declared inside bodies that belong to the module (.global, .const).
        functions: Functions that are entered, by name.
    """

    code: tuple[Placed, ...]
    local: Mapping[str, Variable]
    shared: Mapping[str, Variable]
    module: Mapping[str, Variable]
    functions: Mapping[str, Function] = field(default_factory=dict)


@dataclass
class _Linker:
    outlined: Outline
    body_of: BodyOf
    builtins: frozenset[str]
    graph: CallGraph
    code: list[Placed] = field(default_factory=list)
    local: dict[str, Variable] = field(default_factory=dict)
    shared: dict[str, Variable] = field(default_factory=dict)
    module: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    wanted: list[str] = field(default_factory=list)
    instances: int = 0

    def link(self, entry: str) -> Linked:
        self._place(entry, "", {}, (), "", "ret")
        if self.wanted:
            self.code.append(Placed(_END))
        while self.wanted:
            name = self.wanted.pop()
            if name not in self.functions:
                self._place_once(name)
        return Linked(
            code=tuple(_with_targets(self.code, self.functions)),
            local=self.local,
            shared=self.shared,
            module=self.module,
            functions=self.functions,
        )

    def _place_once(self, name: str) -> None:
        """Put an entered function behind what there is."""
        header, first, declared = self.outlined.headers[name], len(self.code), len(self.local)
        prefix = self._prefix(name)
        formal = {v.name: prefix + v.name for v in (*header.returns, *header.params)}
        for variable in (*header.returns, *header.params):
            unique = formal[variable.name]
            self.local[unique] = variable._replace(name=unique)
        self._place(name, prefix, formal, (), name, "return")
        self.code.append(Placed(_END._replace(opcode="return"), function=name))
        self.functions[name] = Function(
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

    def _place(
        self,
        name: str,
        prefix: str,
        renamed: Mapping[str, str],
        calls: tuple[Location, ...],
        owner: str,
        ending: str,
    ) -> None:
        """Put a body behind what there is.

        Args:
            owner: The entered function that it belongs to.
            ending: What becomes of a ret: "ret", "return", or "bra" behind the body.
        """
        body = self.body_of(name)
        names = Names(prefix, {**renamed, **self._declare(body, prefix, name)})
        starts: list[int] = []
        first = len(self.code)
        for instruction in body.instructions:
            starts.append(len(self.code))
            if len(self.code) > MAX_INSTRUCTIONS or self.instances > MAX_INSTANCES:
                raise _refused(instruction, f"{name} grows without bound when its calls are put in place")
            if instruction.opcode == "call":
                self._call(instruction, body, names, calls, owner)
            else:
                self.code.append(Placed(names.rename(instruction), calls))
        starts.append(len(self.code))
        self._retarget(first, starts, body, ending, owner)

    def _declare(self, body: Body, prefix: str, function: str) -> dict[str, str]:
        renamed: dict[str, str] = {}
        for variable in body.variables.values():
            if variable.space in ("local", "param"):
                unique = prefix + variable.name
                self.local[unique] = variable._replace(name=unique)
            else:
                unique = variable.name
                table = self.shared if variable.space == "shared" else self.module
                while unique in table and table[unique] is not variable:
                    unique += f"@{function}"
                table[unique] = variable
            renamed[variable.name] = unique
        return renamed

    def _call(
        self, call: Instruction, body: Body, names: Names, calls: tuple[Location, ...], owner: str
    ) -> None:
        if call.guard is not None:
            self._call_some(call, body, names, calls, owner)
            return
        called = signature(call)
        target = called.target
        if target is None:
            raise _refused(call, "a call of what is neither a function nor a register")
        if isinstance(target, Register):
            found = candidates(self.outlined, self.graph.taken, body, called)
            self._enter(call, called, tuple(found), names, calls, owner)
        elif target.name in self.builtins:
            kept = names.rename(call)
            if target.name == "__assertfail":  # no lane comes back from it
                kept = kept._replace(opcode="assertfail")
            self.code.append(Placed(kept, calls))
        elif target.name not in self.outlined.bodies:
            raise Unresolved(call, target.name)
        elif self.graph.is_recursive(target.name):
            self._enter(call, called, (target.name,), names, calls, owner)
        else:
            self._put_in_place(call, called, target.name, names, calls, owner)

    def _call_some(
        self, call: Instruction, body: Body, names: Names, calls: tuple[Location, ...], owner: str
    ) -> None:
        """A call under a predicate: the other lanes branch over it."""
        assert call.guard is not None
        over = Guard(call.guard.register, not call.guard.negated)
        skip = names.rename(call._replace(opcode="bra", flags=(), operands=(), guard=over))
        at = len(self.code)
        self.code.append(Placed(skip, calls))
        self._call(call._replace(guard=None), body, names, calls, owner)
        self.code[at] = Placed(skip._replace(target=len(self.code)), calls)

    def _put_in_place(
        self,
        call: Instruction,
        called: Signature,
        target: str,
        names: Names,
        calls: tuple[Location, ...],
        owner: str,
    ) -> None:
        header = self.outlined.headers[target]
        formal = [v.name for v in (*header.returns, *header.params)]
        actual = self._passed(call, (*called.returns, *called.arguments), names)
        if len(formal) != len(actual):
            raise _refused(call, f"a call that does not pass what {target} takes")
        if len(calls) > MAX_NESTED:
            raise _refused(call, f"a call of {target} that lies {MAX_NESTED} calls deep")
        renamed = dict(zip(formal, actual, strict=True))
        self._place(target, self._prefix(target), renamed, (call.location, *calls), owner, "bra")

    def _enter(
        self,
        call: Instruction,
        called: Signature,
        functions: tuple[str, ...],
        names: Names,
        calls: tuple[Location, ...],
        owner: str,
    ) -> None:
        pointer = called.target if isinstance(called.target, Register) else None
        entered = Call(
            functions=functions,
            pointer=None if pointer is None else names.register(pointer),
            returns=self._passed(call, called.returns, names),
            arguments=self._passed(call, called.arguments, names),
            caller=owner,
        )
        for name in functions:
            header = self.outlined.headers[name]
            if len(header.params) != len(called.arguments) or len(header.returns) != len(called.returns):
                raise _refused(call, f"a call that does not pass what {name} takes")
        self.wanted.extend(functions)
        self.code.append(Placed(names.rename(call)._replace(opcode="enter"), calls, call=entered))

    def _passed(self, call: Instruction, passed: Sequence[str], names: Names) -> tuple[str, ...]:
        actual = tuple(names.of(name) for name in passed)
        if not all(name in self.local for name in actual):
            raise _refused(call, "a call that does not pass its arguments in .param variables")
        return actual

    def _retarget(self, first: int, starts: list[int], body: Body, ending: str, owner: str) -> None:
        """Turn targets within the body into targets within the flat list."""
        end = starts[-1]
        own = {start: index for index, start in enumerate(starts[:-1])}
        for at in range(first, end):
            index = own.get(at)
            if index is None or body.instructions[index].opcode == "call":
                continue
            placed = self.code[at]
            instruction = placed.instruction
            if instruction.opcode == "bra":
                instruction = instruction._replace(target=starts[instruction.target])
            elif instruction.opcode == "ret" and ending != "ret":
                instruction = instruction._replace(opcode=ending, target=end)
                placed = placed._replace(function=owner)
            elif instruction.opcode == "brx":
                placed = placed._replace(targets=_branch_targets(instruction, body, starts))
            self.code[at] = placed._replace(instruction=instruction)


_END = Instruction("ret", (), (), (), None, NOWHERE, "ret")


def _branch_targets(instruction: Instruction, body: Body, starts: Sequence[int]) -> tuple[int, ...]:
    table = instruction.operands[1] if len(instruction.operands) > 1 else None
    labels = body.tables.get(table.name) if isinstance(table, Symbol) else None
    if labels is None:
        raise _refused(instruction, "a brx.idx without its table of targets")
    return tuple(starts[label] for label in labels)


def _with_targets(code: Sequence[Placed], functions: Mapping[str, Function]) -> list[Placed]:
    """The code, with each enter and return told where it may go."""
    behind: dict[str, list[int]] = {name: [] for name in functions}
    for index, placed in enumerate(code):
        for name in placed.call.functions if placed.call is not None else ():
            behind[name].append(index + 1)
    result = []
    for placed in code:
        if placed.call is not None:
            placed = placed._replace(targets=tuple(functions[n].first for n in placed.call.functions))
        elif placed.instruction.opcode == "return":
            placed = placed._replace(targets=tuple(behind[placed.function]))
        result.append(placed)
    return result


def _registers(code: Sequence[Placed]) -> dict[Register, None]:
    """The registers that instructions name, in order."""
    found: dict[Register, None] = {}
    for placed in code:
        instruction = placed.instruction
        if instruction.guard is not None:
            found[instruction.guard.register] = None
        for operand in instruction.operands:
            found.update(dict.fromkeys(registers_of(operand)))
    return found


class Refusal(UnsupportedInstruction):
    """An instruction that is refused; where it stands is added by whoever knows the files."""

    def __init__(self, instruction: Instruction, what: str) -> None:
        super().__init__(what)
        self.instruction = instruction
        self.what = what


class Unresolved(SimulationError):
    """A call of a function whose code is not in the file."""

    def __init__(self, instruction: Instruction, name: str) -> None:
        super().__init__(name)
        self.instruction = instruction
        self.name = name


def _refused(instruction: Instruction, what: str) -> Refusal:
    return Refusal(instruction, what)


def link(outlined: Outline, body_of: BodyOf, entry: str, builtins: frozenset[str]) -> Linked:
    """Flatten a kernel.

    Args:
        body_of: Gives the parsed body of a function of the file.
        builtins: Functions that the simulator answers itself; calls of them stay.

    Raises:
        Refusal: A call that cannot be put in its place.
        Unresolved: A call of a function that is only declared.
    """
    graph = call_graph(outlined, body_of, entry)
    return _Linker(outlined, body_of, builtins, graph).link(entry)
