"""Expressions of torch's symbolic shapes, which are sympy's, as C++ on top of runtime.h.

A symbol's name is the C++ text of its value, with `{0}` for the first argument. Integers are exact: what 64
bits do not hold makes `exact.holds` false. Floats are doubles; a sum or product of three or more is computed
in sympy's order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import sympy
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

Expr = Any
"""An expression of sympy, which has no types."""

INT_MIN, INT_MAX = -(2**63), 2**63 - 1

OPERATIONS: Mapping[tuple[str, bool], tuple[str, bool]] = {
    ("Add", False): ("exact.add({0}, {1})", False),
    ("Mul", False): ("exact.mul({0}, {1})", False),
    ("FloorDiv", False): ("exact.floordiv({0}, {1})", False),
    ("Mod", False): ("exact.mod({0}, {1})", False),
    ("PythonMod", False): ("exact.mod({0}, {1})", False),
    ("Abs", False): ("exact.abs({0})", False),
    ("Min", False): ("std::min<int64_t>({0}, {1})", False),
    ("Max", False): ("std::max<int64_t>({0}, {1})", False),
    ("BitwiseFn_bitwise_and", False): ("{0} & {1}", False),
    ("BitwiseFn_bitwise_or", False): ("{0} | {1}", False),
    ("BitwiseFn_bitwise_xor", False): ("{0} ^ {1}", False),
    ("ToFloat", False): ("exact.to_float({0})", True),
    ("IntTrueDiv", False): ("exact.fdiv(exact.to_float({0}), exact.to_float({1}))", True),
    ("Add", True): ("{0} + {1}", True),
    ("Mul", True): ("{0} * {1}", True),
    ("Abs", True): ("std::fabs({0})", True),
    ("FloatTrueDiv", True): ("exact.fdiv({0}, {1})", True),
    ("TruncToInt", True): ("exact.whole(std::trunc({0}))", False),
    ("FloorToInt", True): ("exact.whole(std::floor({0}))", False),
    ("CeilToInt", True): ("exact.whole(std::ceil({0}))", False),
    ("RoundToInt", True): ("exact.whole(std::nearbyint({0}))", False),
}
"""By the name of the class, and whether the operands are doubles: the C++ of one operand or two, and whether
its value is a double. Sources: sympy, and torch/utils/_sympy/functions.py."""

_MAX_FACTORS = 8


class Values:
    """The C++ of expressions, each computed once: `lines` compute what the methods have named so far.

    Raises:
        KeyError: An expression has no C++.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self.lines: list[str] = []
        self._arguments = arguments
        self._known: dict[Expr, tuple[str, bool]] = {}

    def number(self, expr: Expr, *, double: bool = False) -> str:
        """Return the C++ of an integer, or of a double."""
        text, is_double = self._typed(expr)
        if is_double and not double:
            raise KeyError(f"{expr} is a double")
        if is_double or not double:
            return text
        return repr(float(expr)) if expr.is_number else f"exact.to_float({text})"

    def condition(self, expr: Expr) -> str:
        if isinstance(expr, (sympy.And, sympy.Or)):
            word = " && " if isinstance(expr, sympy.And) else " || "
            return f"({word.join(map(self.condition, expr.args))})"
        if isinstance(expr, sympy.Not):
            return f"!({self.condition(expr.args[0])})"
        if not isinstance(expr, Relational):
            raise KeyError(type(expr).__name__)
        double = any(self._typed(side)[1] for side in expr.args)
        first, second = (self.number(side, double=double) for side in expr.args)
        return f"{first} {expr.rel_op} {second}"

    def _typed(self, expr: Expr) -> tuple[str, bool]:
        """Return the C++ of a number, and whether it is a double."""
        if isinstance(expr, sympy.Integer) and INT_MIN <= expr <= INT_MAX:
            return ("INT64_MIN" if expr == INT_MIN else str(expr)), False
        if isinstance(expr, sympy.Float):
            return repr(float(expr)), True
        if isinstance(expr, sympy.Symbol):
            return expr.name.format(*self._arguments), not expr.is_integer
        if expr not in self._known:
            text, is_double = self._operation(expr)
            name = f"v{len(self.lines)}"
            self.lines.append(f"const {'double' if is_double else 'int64_t'} {name} = {text};")
            self._known[expr] = name, is_double
        return self._known[expr]

    def _operation(self, expr: Expr) -> tuple[str, bool]:
        name, operands = type(expr).__name__, expr.args
        if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and 1 < expr.exp <= _MAX_FACTORS:
            name, operands = "Mul", (expr.base,) * int(expr.exp)
        double = any(self._typed(operand)[1] for operand in operands)
        template, is_double = OPERATIONS[name, double]
        texts = [self.number(operand, double=double) for operand in operands]
        if len(texts) == 1:
            return template.format(*texts), is_double
        return reduce(template.format, texts), is_double


def is_expressible(expr: Expr) -> bool:
    values = Values([""] * 64)
    is_condition = isinstance(expr, Boolean) and not isinstance(expr, sympy.Symbol)
    try:
        values.condition(expr) if is_condition else values.number(expr, double=True)
    except KeyError:
        return False
    return True
