"""What a kernel does with its tensor maps, told from its PTX.

A map that is stored through, by itself or in a function that it is handed to, says that its tensor
is written. One that is copied into a thread's own memory lacks `__grid_constant__`: from there the
hardware cannot read it.

Source: PTX ISA, "Data Movement and Conversion Instructions: cp.async.bulk.tensor,
cp.reduce.async.bulk.tensor".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dotcu.kernel.state import Instruction, reached

_STORES = re.compile(r"cp\.(?:reduce\.)?async\.bulk\.tensor\.\dd\.global\.")
_HANDS_ON = ("st", "call")


@dataclass(frozen=True, kw_only=True)
class MapUse:
    """What becomes of one map.

    Attributes:
        stored: The kernel may write its tensor.
        copied: Each thread makes a copy of its own.
    """

    stored: bool = False
    copied: bool = False


def map_uses(ptx: str, entry: str, symbols: Sequence[str]) -> tuple[MapUse, ...]:
    """The use of each parameter that is a tensor map.

    Args:
        symbols: The parameters' names in PTX.
    """
    bodies = reached(ptx, entry)
    own = bodies.pop(entry)
    elsewhere = any(_STORES.match(instruction.opcode) for body in bodies.values() for instruction in body)
    return tuple(
        MapUse(stored=_stored(own, symbol, elsewhere), copied=_copied(own, symbol)) for symbol in symbols
    )


def _stored(body: Sequence[Instruction], symbol: str, elsewhere: bool) -> bool:
    """Whether a copy out goes through an address that is reckoned from a map's."""
    addresses, before = {symbol}, 0
    while len(addresses) > before:
        before = len(addresses)
        for instruction in body:
            if addresses.isdisjoint(instruction.words) or instruction.opcode.startswith("ld"):
                continue
            if _STORES.match(instruction.opcode):
                if not addresses.isdisjoint(
                    instruction.results
                ):  # of a copy out, the map is the first operand
                    return True
            elif instruction.opcode.startswith(_HANDS_ON):
                if elsewhere:
                    return True
            else:
                addresses.update(instruction.results)
    return False


def _copied(body: Sequence[Instruction], symbol: str) -> bool:
    loaded = {
        register
        for instruction in body
        if instruction.opcode.startswith("ld.param") and symbol in instruction.words
        for register in instruction.results
    }
    return any(
        instruction.opcode.startswith("st.local") and not loaded.isdisjoint(instruction.words)
        for instruction in body
    )
