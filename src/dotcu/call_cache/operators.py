"""What Python's operators are in steps, on integers and on doubles."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from dotcu.call_cache.plan import Op

# Operators: what integers and doubles compute, and what Python does where no step says it.
ARITHMETIC: dict[str, tuple[Op | None, Op | None, Callable[[Any, Any], Any]]] = {
    "add": (Op.ADD, Op.FADD, operator.add),
    "sub": (Op.SUB, Op.FSUB, operator.sub),
    "mul": (Op.MUL, Op.FMUL, operator.mul),
    "floordiv": (Op.FLOORDIV, None, operator.floordiv),
    "mod": (Op.MOD, None, operator.mod),
    "truediv": (None, Op.FDIV, operator.truediv),
    "lshift": (Op.LSHIFT, None, operator.lshift),
    "rshift": (Op.RSHIFT, None, operator.rshift),
    "and": (Op.AND, None, operator.and_),
    "or": (Op.OR, None, operator.or_),
    "xor": (Op.XOR, None, operator.xor),
}

# Comparisons in the words of few steps, so that a branch on `>` shares its guard with one on `<`:
# the step of integers and of doubles, whether the operands change places, whether they are negated.
COMPARISONS: dict[str, tuple[tuple[Op, bool, bool], tuple[Op, bool, bool], Callable[[Any, Any], Any]]] = {
    "eq": ((Op.EQ, False, False), (Op.FEQ, False, False), operator.eq),
    "ne": ((Op.EQ, False, True), (Op.FEQ, False, True), operator.ne),
    "lt": ((Op.LT, False, False), (Op.FLT, False, False), operator.lt),
    "gt": ((Op.LT, True, False), (Op.FLT, True, False), operator.gt),
    "le": ((Op.LT, True, True), (Op.FLE, False, False), operator.le),
    "ge": ((Op.LT, False, True), (Op.FLE, True, False), operator.ge),
}

SIGNS: dict[str, tuple[Op, Op, Callable[[Any], Any]]] = {
    "neg": (Op.NEG, Op.FNEG, operator.neg),
    "abs": (Op.ABS, Op.FABS, abs),
}

# Where Python wants the number itself.
LOOKS: dict[str, Callable[..., Any]] = {
    "__index__": operator.index,
    "__int__": int,
    "__float__": float,
    "__hash__": hash,
    "__repr__": repr,
    "__str__": str,
    "__format__": format,
    "__round__": round,
}
