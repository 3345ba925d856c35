"""Extended-precision arithmetic: the condition code register and what reads it.

The carry is a predicate register of its own, CC.CF.

Source: PTX ISA, "Extended-Precision Integer Arithmetic Instructions".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dotcu.ptx.instructions import Register
from dotcu.ptx.link import Placed
from dotcu.simulator.machine.chunk import Array, Chunk
from dotcu.simulator.semantics.integer import high64, high64_signed
from dotcu.simulator.semantics.table import NotExecuted, Step, dtype_of, unsigned

if TYPE_CHECKING:
    from dotcu.simulator.decoding.binding import Binding

CARRY = Register("CC.CF", "pred")
_OPCODES = frozenset({"add", "addc", "sub", "subc", "mad", "madc"})


def bind_carry(placed: Placed, binding: Binding) -> Step:
    """add.cc, addc, sub.cc, subc, mad.cc and madc."""
    instruction = placed.instruction
    opcode, flags = instruction.opcode, set(instruction.flags)
    if opcode not in _OPCODES or flags - {"cc", "lo", "hi"} or len(instruction.types) != 1:
        raise NotExecuted
    type_ = instruction.types[0]
    size = dtype_of(type_).itemsize
    if size not in (4, 8):
        raise NotExecuted
    target = binding.destination(instruction.operands[0])
    if target.dtype.itemsize != size:
        raise NotExecuted
    sources = [binding.source(o, f"u{8 * size}") for o in instruction.operands[1:]]
    carry = binding.register(CARRY).slot
    takes_carry, gives_carry = opcode.endswith("c"), "cc" in flags
    multiplies, subtracts = opcode.startswith("mad"), opcode.startswith("sub")
    if len(sources) != (3 if multiplies else 2):
        raise NotExecuted

    def step(chunk: Chunk) -> None:
        values = [chunk.read(s.slot) if s.adapt is None else s.adapt(chunk.read(s.slot)) for s in sources]
        if multiplies:
            product = _product(values[0], values[1], type_, "hi" in flags)
            values = [product, values[2]]
        carried = chunk.read(carry) if takes_carry else np.zeros(1, bool)
        total, out = _with_carry(values[0], values[1], carried, subtracts)
        chunk.write(target.slot, total.view(target.dtype))
        if gives_carry:
            chunk.write(carry, out)

    return step


def _product(a: Array, b: Array, type_: str, high: bool) -> Array:
    if not high:
        return a * b
    if type_ == "u64":
        return high64(a, b)
    if type_ == "s64":
        return high64_signed(a.view(np.int64), b.view(np.int64)).view(np.uint64)
    narrow = dtype_of(type_)
    wide = np.dtype(f"{narrow.kind}8")
    product: Array = np.multiply(a.view(narrow), b.view(narrow), dtype=wide) >> wide.type(32)
    return product.astype(unsigned(4))


def _with_carry(a: Array, b: Array, carry: Array, subtract: bool) -> tuple[Array, Array]:
    """The sum or difference with a carry or borrow in, and the one that comes out."""
    one = carry.astype(a.dtype)
    if subtract:
        part = a - b
        result = part - one
        return result, (a < b) | (part < one)
    part = a + b
    result = part + one
    return result, (part < a) | (result < part)
