"""The memory that a kernel's PTX may write: `__device__` variables, and tensors through tensor maps.

Every unit of compilation has its own copy of a variable, so two units may not both use one that either of
them writes. A variable may be written where its address, or one computed from it, is stored to, updated by
an atomic, or handed on: stored somewhere itself, or passed to a function that is not inlined.

A tensor map that is stored through, by itself or in a function that it is passed to, writes its tensor. One
that is copied into a thread's own memory lacks `__grid_constant__`: from there the hardware cannot read it.

Sources: PTX ISA, "Instructions" (chapter 9): the first operand of an instruction is its result, except for
those that write memory; "Data Movement and Conversion Instructions: cp.async.bulk.tensor,
cp.reduce.async.bulk.tensor".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dotcu.kernel.arguments.pack import MapUse
from dotcu.ptx.dataflow import InstructionNames, names_of, reached_functions
from dotcu.ptx.instructions import Address, Instruction, Register
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

    Of an instruction that uses one `is_write` says True for a write, None if its results are no addresses.
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


def variable_writes(module: PtxModule, entry: str, symbols: Sequence[str]) -> dict[str, bool]:
    """Return whether a kernel may write each variable that it, or a function that it calls, uses."""
    # Most are constants of headers that no body names: then none is parsed, which takes longer than a search.
    spans = module.bodies.values()
    symbols = [symbol for symbol in symbols if any(module.text.find(symbol, *span) >= 0 for span in spans)]
    bodies = reached_functions(module, entry).values() if symbols else ()
    uses = {}
    for symbol in symbols:
        named = [body for body in bodies if any(symbol in instruction.names for instruction in body)]
        if named:
            uses[symbol] = any(
                _write_is_reached(
                    [instruction for instruction in body if not instruction.opcode.startswith(_READS)],
                    symbol,
                    lambda instruction, _: instruction.opcode.startswith(_WRITES),
                )
                for body in named
            )
    return uses


def parameter_is_written(module: PtxModule, entry: str, symbol: str) -> bool:
    """Return whether a kernel may write what a parameter points to; True where its body was left out."""
    body = reached_functions(module, entry)[entry]
    return all(one.opcode == "ret" for one in body) or _write_is_reached(
        [one for one in body if one.opcode.startswith("ld.param") or not one.opcode.startswith(_READS)],
        symbol,
        lambda instruction, _: instruction.opcode.startswith(_WRITES),
    )


@dataclass(frozen=True, kw_only=True)
class ParameterUse:
    """The uses that a kernel has for the value of a parameter.

    Attributes:
        address: "always", if it is an address; "never", if it is used, and no address is a sum of it.
        float_type: The type of an instruction that computes with it as a float; "" if there is none.
        is_unknown: No instruction tells whether it is an integer.
    """

    address: Literal["always", "maybe", "never"] = "maybe"
    float_type: str = ""
    is_unknown: bool = True


_FLOAT_TYPES = ("f16", "bf16", "f32", "f64")
_COPIES = ("mov", "cvta", "ld")
_SUMS = (*_COPIES, "add", "sub", "selp")


def parameter_uses(module: PtxModule, entry: str) -> dict[str, ParameterUse]:
    """Return the uses of a kernel's parameters, by their names; of one without a body, none.

    Raises:
        SimulationError: The body is not well formed.
    """
    body = [one for one in module.body(entry).instructions if one.opcode not in ("ret", "exit")]
    return {param.name: _use_of(body, param.name) for param in module.entries[entry].params} if body else {}


def _use_of(body: Sequence[Instruction], symbol: str) -> ParameterUse:
    copies, sums = _reached(body, symbol, _COPIES), _reached(body, symbol, _SUMS)
    address: Literal["always", "maybe", "never"] = "never"
    float_type, is_unknown, is_unused = "", True, True
    for one in body:
        sources = names_of(one.operands[1:] if one.opcode not in _WRITES else one.operands)
        bases = {each.base.name for each in one.operands if isinstance(each, Address)
                 and isinstance(each.base, Register)}  # fmt: skip
        if not bases.isdisjoint(copies) or (one.opcode == "cvta" and not copies.isdisjoint(sources)):
            address = "always"
        elif address == "never" and (
            not bases.isdisjoint(sums)
            or (one.opcode == "st" and not sums.isdisjoint(names_of(one.operands[1:])))
        ):
            address = "maybe"
        is_load = one.opcode == "ld" and "param" in one.flags
        values = names_of(each for each in one.operands if is_load or not isinstance(each, Address))
        if not values.isdisjoint({symbol, *copies}):
            is_unused &= one.opcode in _COPIES
            if one.types and one.types[-1] in _FLOAT_TYPES:  # the last is the operands' type
                float_type = float_type or one.types[-1]
            is_unknown &= not one.types or one.types[-1][0] not in "su"
    if is_unused and address == "never":
        address = "maybe"
    return ParameterUse(address=address, float_type=float_type, is_unknown=is_unknown and not float_type)


def _reached(body: Sequence[Instruction], symbol: str, opcodes: Sequence[str]) -> set[str]:
    """Return the registers that hold a parameter, or what some operations make of it."""
    found, before = {symbol}, 0
    while len(found) > before:
        before = len(found)
        for one in body:
            is_kept = one.opcode in opcodes and (one.opcode != "ld" or "param" in one.flags)
            if is_kept and not found.isdisjoint(names_of(one.operands[1:])):
                found |= names_of(one.operands[:1])
    return found - {symbol}


def map_uses(module: PtxModule, entry: str, symbols: Sequence[str]) -> tuple[MapUse, ...]:
    """Return the use of each parameter that is a tensor map."""
    own, stored_elsewhere = _own_and_elsewhere(module, entry)
    return tuple(_map_use(own, symbol, stored_elsewhere) for symbol in symbols)


def stores_through_maps(module: PtxModule, entry: str, symbol: str) -> bool:
    """Return whether a kernel may store through a tensor map that is in, or behind, a parameter."""
    return _reaches_map_store(*_own_and_elsewhere(module, entry), symbol)


def _own_and_elsewhere(module: PtxModule, entry: str) -> tuple[Sequence[InstructionNames], bool]:
    """Return a kernel's body, and whether a function that it calls stores through a tensor map."""
    bodies = reached_functions(module, entry)
    own = bodies.pop(entry)
    return own, any(_MAP_STORE.match(one.opcode) for body in bodies.values() for one in body)


def _map_use(body: Sequence[InstructionNames], symbol: str, stored_elsewhere: bool) -> MapUse:
    loaded = {
        register
        for instruction in body
        if instruction.opcode.startswith("ld.param") and symbol in instruction.names
        for register in instruction.results
    }
    if any(one.opcode.startswith("st.local") and not loaded.isdisjoint(one.names) for one in body):
        return "copied"
    others = [instruction for instruction in body if not instruction.opcode.startswith("ld")]
    return "stored" if _reaches_map_store(others, stored_elsewhere, symbol) else "loaded"


def _reaches_map_store(body: Sequence[InstructionNames], stored_elsewhere: bool, symbol: str) -> bool:
    def is_write(instruction: InstructionNames, addresses: set[str]) -> bool | None:
        if _MAP_STORE.match(instruction.opcode):  # of a copy out, the map is the first operand
            return not addresses.isdisjoint(instruction.results) or None
        if instruction.opcode.startswith(("st", "call")):  # handed on
            return stored_elsewhere or None
        return False

    return _write_is_reached(body, symbol, is_write)
