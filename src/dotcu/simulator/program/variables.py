"""The layout of a kernel's variables, and the variable or tensor that each address is meant to be in.

An index that runs off one array lands in the next one, or in a tensor that shares the allocation,
where reads and writes are possible and wrong. To detect that, every register gets the set of all
variables and parameters that went into it, through whatever instructions. Where just one of these is
an array, an access has to stay in it. Where there are several, or where the register went through
memory of the thread's own, nothing is known, and nothing is checked.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from dotcu.errors import SimulationError
from dotcu.ptx.dataflow import names_of, registers_of
from dotcu.ptx.instructions import (
    TYPE_BYTES,
    Address,
    FunctionHeader,
    Instruction,
    Operand,
    Register,
    Symbol,
    Variable,
)
from dotcu.ptx.lexer import MAX_BYTES
from dotcu.simulator.program.inlining import STACK_OPCODES, FlatInstruction, FlatKernel

# Bytes of each thread in which the calls of recursive functions keep their registers and variables.
STACK_BYTES = 1 << 15
STACK_ALIGNMENT = 16

VariableSpot = tuple[int, int | None]
"""The start of a variable in local memory, and the register that it is counted from; None: from 0."""


def display_name(symbol: str) -> str:
    """A variable's name without its mangling: _ZZ6kernelPfE4tile is tile."""
    tail = symbol.split("@")[0].split(":")[-1]
    for match in re.finditer(r"(?<!\d)(\d{1,5})(?=[A-Za-z_])", tail) if tail.startswith("_Z") else ():
        length, start = int(match.group(1)), match.end()
        name = tail[start : start + length]
        rest = tail[start + length :]
        if len(name) == length and (not rest or re.fullmatch(r"_\d+|E", rest)):
            return name
    return tail


def is_local_frame(name: str) -> bool:
    """Return whether a variable is the compiler's frame that holds all local arrays of a function."""
    return name.startswith("__local_depot")


@dataclass(frozen=True, kw_only=True)
class VariableLayout:
    """The places of a kernel's variables in shared and local memory.

    Attributes:
        extents: Space, start and end of each variable by its name in PTX, in their order; the end is None
            if it runs to the end of its space, as dynamic shared memory does.
        dynamic_offset: Where dynamic shared memory begins; static shared memory is before it.
        local_bytes: Local memory of each thread.
        framed: The function and the offset in its frame of each variable of a recursive function.
        frame_bytes: Bytes of each recursive function's frame, of which there is one for each call.
        stack_base: Where these frames begin in local memory.
    """

    extents: Mapping[str, tuple[str, int, int | None]]
    dynamic_offset: int
    local_bytes: int
    framed: Mapping[str, tuple[str, int]]
    frame_bytes: Mapping[str, int]
    stack_base: int

    def variable_before(self, space: str, address: int) -> str:
        """Return the display name of the variable that an address is in or behind; empty if none."""
        names = [n for n, (where, start, _) in self.extents.items() if where == space and start <= address]
        return display_name(names[-1]) if names else ""

    def variable_start(self, space: str, shown: str) -> int:
        """Return the start of the variable that has a display name."""
        places = self.extents.items()
        return next((at for n, (where, at, _) in places if where == space and display_name(n) == shown), 0)


def layout_variables(linked: FlatKernel, module_shared: Mapping[str, Variable]) -> VariableLayout:
    """Place the variables of a kernel: those of blocks, those of threads, those of calls in frames.

    Raises:
        SimulationError: They need more local memory than a GPU gives a thread.
    """
    used = names_of(operand for instruction in linked.code for operand in instruction.ptx.operands)
    shared = {**linked.shared, **{n: v for n, v in module_shared.items() if n in used}}
    dynamic = {name: variable for name, variable in shared.items() if variable.extern}
    framed: dict[str, tuple[str, int]] = {}
    frame_bytes: dict[str, int] = {}
    for function, entered in linked.functions.items():
        if entered.recursive:
            starts, end = place({name: linked.local[name] for name in entered.variables})
            framed |= {name: (function, start) for name, start in starts.items()}
            frame_bytes[function] = _align(end, STACK_ALIGNMENT)
    blocks, shared_end = place({n: v for n, v in shared.items() if n not in dynamic})
    threads, local_end = place({n: v for n, v in linked.local.items() if n not in framed})
    if dynamic:
        shared_end = _align(shared_end, max(16, *(v.align for v in dynamic.values())))
    if local_end > MAX_BYTES["local"]:
        raise SimulationError(
            f"The kernel's variables take {local_end} bytes of local memory in each thread.\n"
            f"A GPU gives a thread at most {MAX_BYTES['local']}.\n"
            "Make the arrays inside functions smaller, or keep them in global memory."
        )
    stack_base = _align(local_end, STACK_ALIGNMENT)
    needs_stack = frame_bytes or any(p.ptx.opcode in STACK_OPCODES for p in linked.code)
    return VariableLayout(
        extents={
            **{name: ("shared", start, start + shared[name].size) for name, start in blocks.items()},
            **dict.fromkeys(dynamic, ("shared", shared_end, None)),
            **{name: ("local", start, start + linked.local[name].size) for name, start in threads.items()},
        },
        dynamic_offset=shared_end,
        local_bytes=stack_base + STACK_BYTES if needs_stack else local_end,
        framed=framed,
        frame_bytes=frame_bytes,
        stack_base=stack_base,
    )


def place(variables: Mapping[str, Variable]) -> tuple[dict[str, int], int]:
    """Return the starts of variables that are one after the other, aligned, and the end."""
    starts, end = {}, 0
    for name, variable in variables.items():
        starts[name] = _align(end, max(1, variable.align))
        end = starts[name] + variable.size
    return starts, end


def parameter_offsets(header: FunctionHeader) -> dict[str, int]:
    """Return the offset of each parameter when all are laid out one after the other, aligned."""
    return place({param.name: param for param in header.params})[0]


def _align(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


_READS_ALL = frozenset(
    {"st", "red", "bar", "barrier", "bra", "brx", "call", "enter", "assertfail", "stackrestore"}
)


def read_names(linked: FlatKernel, but: Container[str] = ()) -> frozenset[str]:
    """Return the names of the registers that any instruction reads, but those of some opcodes."""
    names: set[str] = set()
    for ptx in (p.ptx for p in linked.code if p.ptx.opcode not in but):
        if ptx.guard is not None:
            names.add(ptx.guard.register.name)
        for number, operand in enumerate(ptx.operands):
            if number > 0 or ptx.opcode in _READS_ALL or isinstance(operand, Address):
                names.update(register.name for register in registers_of(operand))
    return frozenset(names)


def is_polled(code: Sequence[FlatInstruction], load: Instruction) -> bool:
    """Return whether a branch back to a load compares what it loads."""
    first = next(at for at, other in enumerate(code) if other.ptx is load)
    held = {register.name for register in registers_of(load.operands[0])}
    for at in range(first + 1, len(code)):
        ptx = code[at].ptx
        if ptx.opcode == "bra":
            guard = ptx.guard
            return guard is not None and guard.register.name in held and ptx.target <= first
        if ptx.opcode not in _COMPARES:
            return False
        if any(r.name in held for operand in ptx.operands[1:] for r in registers_of(operand)):
            held.update(register.name for register in registers_of(ptx.operands[0]))
    return False


_COMPARES = frozenset({"ld", "setp", "and", "or", "xor", "not", "cvt", "mov"})


def swapped_addresses(linked: FlatKernel) -> frozenset[tuple[str, int]]:
    """Addresses (register, offset) of compare-and-swap: a read of one only guesses what is there."""
    roots: dict[str, str] = {}  # of registers that hold another's address, as mov and cvta leave it
    swapped: list[tuple[str, int]] = []
    for opcode, flags, _, operands, *_ in (instruction.ptx for instruction in linked.code):
        if opcode in ("mov", "cvta") and len(operands) == 2:
            target, source = operands
            if isinstance(target, Register) and isinstance(source, Register):
                roots[target.name] = roots.get(source.name, source.name)
        elif opcode == "atom" and "cas" in flags and len(operands) > 1:
            address = operands[1]
            if isinstance(address, Address) and isinstance(address.base, Register):
                swapped.append((address.base.name, address.offset))
    addresses = set()
    for base, offset in swapped:
        root = roots.get(base, base)
        addresses |= {(root, offset), *((name, offset) for name, of in roots.items() if of == root)}
    return frozenset(addresses)


# Which variable or tensor an address is meant to be in: what its register was computed from.


# Names of variables, and offsets of kernel parameters.
AddressOrigin = frozenset[str | int]
NONE: AddressOrigin = frozenset()
UNKNOWN = ""
# They have no result: what stands first is read.
_NO_RESULT = frozenset(
    {"st", "red", "bra", "brx", "ret", "exit", "bar", "barrier", "cp", "membar", "fence", "stackrestore"}
)


def trace_origins(linked: FlatKernel, parameters: Mapping[str, int]) -> Mapping[str, AddressOrigin]:
    """Return the variables and parameters that each register is computed from.

    Args:
        parameters: Offset of each kernel parameter.
    """
    rows: list[tuple[list[str], AddressOrigin, list[str]]] = []
    for ptx in (instruction.ptx for instruction in linked.code):
        targets = _registers(ptx.operands[:1]) if ptx.opcode not in _NO_RESULT else []
        if targets:
            rows.append((targets, *_sources(ptx, parameters)))
    origins: dict[str, AddressOrigin] = {}
    changed = True
    while changed:
        changed = False
        for targets, own, registers in rows:
            origin = own.union(*[origins.get(name, NONE) for name in registers])
            for name in targets:
                known = origins.get(name, NONE)
                if not origin <= known:
                    origins[name] = known | origin
                    changed = True
    return origins


def _sources(ptx: Instruction, parameters: Mapping[str, int]) -> tuple[AddressOrigin, list[str]]:
    """Return the origins that an instruction adds, and the registers whose origins it passes on."""
    if ptx.opcode in ("ld", "ldu"):
        return _loaded(ptx, parameters), []
    if ptx.opcode == "atom":
        return NONE, []
    if ptx.opcode in STACK_OPCODES:
        return frozenset({UNKNOWN}), []
    sources = ptx.operands[1:]
    return frozenset(o.name for o in sources if isinstance(o, Symbol)), _registers(sources)


def _loaded(ptx: Instruction, parameters: Mapping[str, int]) -> AddressOrigin:
    """Return the origins of a loaded value: a parameter, or unknown from the thread's own memory."""
    if len(ptx.operands) < 2 or not ptx.types:  # it is refused when it is bound
        return frozenset({UNKNOWN})
    if {"global", "shared", "const"} & set(ptx.flags):
        return NONE
    offset = parameter_offset(ptx.operands[1], parameters)
    if "param" not in ptx.flags or offset is None:
        return frozenset({UNKNOWN})
    size = TYPE_BYTES[ptx.types[-1]]
    count = len(_registers(ptx.operands[:1]))
    return frozenset(offset + k * size for k in range(count)) if size == 8 else NONE


def parameter_offset(operand: Operand, parameters: Mapping[str, int]) -> int | None:
    """Return the offset in the launch's parameters of a static address; None if it is another's."""
    if not isinstance(operand, Address) or not isinstance(operand.base, Symbol):
        return None
    start = parameters.get(operand.base.name)
    return None if start is None else start + operand.base.offset + operand.offset


def _registers(operands: tuple[Operand, ...]) -> list[str]:
    """Return the registers that operands name as values, without predicates."""
    values = [operand for operand in operands if not isinstance(operand, Address)]
    return [register.name for o in values for register in registers_of(o) if register.type != "pred"]
