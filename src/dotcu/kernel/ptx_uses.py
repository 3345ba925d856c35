"""The memory that a kernel's PTX may write: `__device__` variables, and tensors through tensor maps.

Every unit of compilation has its own copy of a variable, so two units may not both use one that either of
them writes. A variable may be written where its address, or one computed from it, is stored to, updated by
an atomic, or handed on: stored somewhere itself, or passed to a function that is not inlined.

A tensor map that is stored through, by itself or in a function that it is passed to, writes its tensor. One
that is copied into a thread's own memory lacks `__grid_constant__`: from there the hardware cannot read it.

Sources: PTX ISA, "Instructions" (chapter 9): the first operand of an instruction is its result, but for
those that write memory; "Data Movement and Conversion Instructions: cp.async.bulk.tensor,
cp.reduce.async.bulk.tensor".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dotcu.errors import SourceError
from dotcu.kernel.arguments.pack import MapUse
from dotcu.kernel.declarations import CXX_TYPES
from dotcu.ptx.dataflow import InstructionNames, reached_functions
from dotcu.ptx.module import PtxModule

_READS = ("ld", "prefetch", "setp", "isspacep", "cp.async.ca", "cp.async.cg", "wmma.load")
_WRITES = ("st", "atom", "red", "call", "cp.", "multimem", "wmma.store")
_MAP_STORE = re.compile(r"cp\.(?:reduce\.)?async\.bulk\.tensor\.\dd\.global\.")


def _write_is_reached(
    body: Sequence[InstructionNames],
    symbol: str,
    is_write: Callable[[InstructionNames, set[str]], bool | None],
) -> bool:
    """Follow the addresses that are computed from a symbol's, and return whether one is written through.

    Args:
        body: The instructions that matter.
        symbol: A variable or a parameter.
        is_write: Judges an instruction that uses one of the addresses: True for a write, None where its
            results are no addresses, False where they are.
    """
    addresses, before = {symbol}, 0
    while len(addresses) > before:
        before = len(addresses)
        for instruction in body:
            if addresses.isdisjoint(instruction.names):
                continue
            verdict = is_write(instruction, addresses)
            if verdict:
                return True
            if verdict is False:
                addresses.update(instruction.results)
    return False


# Variables


def variable_writes(module: PtxModule, entry: str, symbols: Sequence[str]) -> dict[str, bool]:
    """Return whether a kernel may write each variable that it, or a function that it calls, uses.

    Args:
        module: The PTX.
        entry: The kernel's symbol.
        symbols: Those of the variables.
    """
    bodies = reached_functions(module, entry).values()
    found = {}
    for symbol in symbols:
        named = [body for body in bodies if any(symbol in instruction.names for instruction in body)]
        if named:
            found[symbol] = any(_writes_variable(body, symbol) for body in named)
    return found


def _writes_variable(body: Sequence[InstructionNames], symbol: str) -> bool:
    others = [instruction for instruction in body if not instruction.opcode.startswith(_READS)]
    return _write_is_reached(others, symbol, lambda instruction, _: instruction.opcode.startswith(_WRITES))


@dataclass
class VariableUsers:
    """The kernels that use a module's variables: (unit, kernel, writes), by variable and target."""

    file: str
    _users: dict[tuple[str, object], list[tuple[object, str, bool]]] = field(default_factory=dict)

    def claim(self, target: object, unit: object, kernel: str, used: Mapping[str, bool]) -> None:
        """Note that a kernel uses variables.

        Args:
            target: That its code is for.
            unit: That it is compiled in.
            kernel: Its name.
            used: For each variable, whether the kernel may write it.

        Raises:
            SourceError: A kernel of another unit uses one too: its writes would not be visible.
        """
        for variable, writes in used.items():
            for other, _, other_writes in self._users.get((variable, target), []):
                if other is not unit and (writes or other_writes):
                    raise SourceError(self._refusal(variable, target, kernel))
        for variable, writes in used.items():
            self._users.setdefault((variable, target), []).append((unit, kernel, writes))

    def _refusal(self, variable: str, target: object, kernel: str) -> str:
        users = dict.fromkeys(name for _, name, _ in self._users[variable, target])
        return (
            f"{self.file}: {kernel} would get a copy of its own of the __device__ variable {variable}, which "
            f"{', '.join(users)} already uses: what one writes, the other would not see.\n"
            "Kernels that share a variable are compiled together: name the instantiations when you load.\n"
            f"Type: dotcu.load(..., instantiate={{{_instantiate_text([*users, kernel])}}})"
        )


def _instantiate_text(kernels: Sequence[str]) -> str:
    """Return the instantiations among some kernels, as `instantiate` takes them."""
    rows: dict[str, list[str]] = {}
    for kernel in kernels:
        name, opened, rest = kernel.partition("<")
        if opened:
            arguments = [_python(text) for text in _split(rest[:-1])]
            row = f"({', '.join(arguments)}{',' if len(arguments) == 1 else ''})"
            rows.setdefault(name, []).append(row)
    return ", ".join(f'"{name}": [{", ".join(found)}]' for name, found in rows.items())


def _split(text: str) -> list[str]:
    """Split template arguments at the commas outside any brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<([{") - (character in ">)]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _python(text: str) -> str:
    """Return a template argument as a user of dotcu writes it."""
    dtypes = {spelling: f"torch.{name}" for name, spelling in CXX_TYPES.items()}
    plain = {"true": "True", "false": "False", **dtypes}
    return plain.get(text) or (text if text.lstrip("-").isdigit() else f'"{text}"')


# Tensor maps


def map_uses(module: PtxModule, entry: str, symbols: Sequence[str]) -> tuple[MapUse, ...]:
    """Return the use of each parameter that is a tensor map.

    Args:
        module: The PTX.
        entry: The kernel's symbol.
        symbols: The parameters' names in PTX.
    """
    bodies = reached_functions(module, entry)
    own = bodies.pop(entry)
    stored_elsewhere = any(_MAP_STORE.match(one.opcode) for body in bodies.values() for one in body)
    return tuple(_map_use(own, symbol, stored_elsewhere) for symbol in symbols)


def _map_use(body: Sequence[InstructionNames], symbol: str, stored_elsewhere: bool) -> MapUse:
    loaded = {
        register
        for instruction in body
        if instruction.opcode.startswith("ld.param") and symbol in instruction.names
        for register in instruction.results
    }
    if any(one.opcode.startswith("st.local") and not loaded.isdisjoint(one.names) for one in body):
        return "copied"

    def is_write(instruction: InstructionNames, addresses: set[str]) -> bool | None:
        if _MAP_STORE.match(instruction.opcode):  # of a copy out, the map is the first operand
            return not addresses.isdisjoint(instruction.results) or None
        if instruction.opcode.startswith(("st", "call")):  # handed on
            return stored_elsewhere or None
        return False

    others = [instruction for instruction in body if not instruction.opcode.startswith("ld")]
    return "stored" if _write_is_reached(others, symbol, is_write) else "loaded"
