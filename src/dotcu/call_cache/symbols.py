"""Numbers that remember how they came about: what a body computes with while it is followed.

A symbol has a concrete value, and the step of a plan that gives it. Arithmetic on symbols gives
symbols. Whatever else looks at one (a branch, an index, a text) sees the concrete value, and the
plan is from then on guarded: it holds only where that look would show the same.

A symbol is a `torch.SymInt` or `SymFloat`, because torch hands those to a function mode without
reading them; for `isinstance` it is an int or a float, as it would be were nobody following.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from dotcu.call_cache.arithmetic import Inexact
from dotcu.call_cache.builder import Builder
from dotcu.call_cache.operators import ARITHMETIC, COMPARISONS, LOOKS, SIGNS
from dotcu.call_cache.plan import Op, Step


class _Node:
    """What torch's own Python asks of a SymInt's node, in `torch.broadcast_shapes`."""

    def is_nested_int(self) -> bool:
        return False


_NODE = _Node()


class Symbol:
    """What both kinds share.

    Attributes:
        builder: Where its step is.
        step: What gives it in every call.
    """

    def __init__(self, builder: Builder, step: Step) -> None:
        self.builder = builder
        self.step = step

    @property
    def value(self) -> Any:
        """The number in this call. The plan does not learn that somebody looked."""
        return self.builder.values[self.step]

    def pinned(self) -> Any:
        """The number in this call, which the plan from now on demands."""
        return self.builder.pin(self.step)

    def __getattr__(self, name: str) -> Any:
        if name == "node":
            return _NODE
        if not hasattr(self.__class__, name):  # torch asks for __torch_function__; no number has it
            raise AttributeError(f"{self.__class__.__name__!r} object has no attribute {name!r}")
        return getattr(self.pinned(), name)

    def __bool__(self) -> bool:
        return bool(_comparison("ne", self, 0))

    def __pos__(self) -> Any:
        return self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __pow__(self, exponent: Any, modulus: Any = None) -> Any:
        if type(self) is IntSymbol and type(exponent) is int and 1 <= exponent <= 4 and modulus is None:
            return math.prod([self] * exponent)
        return pow(self.pinned(), _pinned(exponent), _pinned(modulus))

    def __rpow__(self, base: Any, modulus: Any = None) -> Any:
        return pow(base, self.pinned(), _pinned(modulus))


class IntSymbol(Symbol, torch.SymInt):
    """An int."""

    __class__ = property(lambda self: int)

    def __invert__(self) -> Any:
        return -self - 1

    def __trunc__(self) -> Any:
        return self

    __floor__ = __ceil__ = __trunc__


class FloatSymbol(Symbol, torch.SymFloat):
    """A float."""

    __class__ = property(lambda self: float)

    def __int__(self) -> int:
        return int(_pinned(self.__trunc__()))

    def __trunc__(self) -> Any:
        return _apply(Op.TRUNC, math.trunc, self)

    def __floor__(self) -> Any:
        return _apply(Op.FLOOR, math.floor, self)

    def __ceil__(self) -> Any:
        return _apply(Op.CEIL, math.ceil, self)


_SYMBOLS = frozenset({IntSymbol, FloatSymbol})
_FLOATS = frozenset({float, FloatSymbol})
_NUMBERS = frozenset({int, bool, float, IntSymbol, FloatSymbol})


def is_symbol(value: Any) -> bool:
    """Whether it is a number that remembers."""
    return type(value) in _SYMBOLS


def symbol(builder: Builder, step: Step) -> Any:
    """The number of a step: a plain one where it is constant."""
    if builder.is_constant(step):
        return builder.values[step]
    return (FloatSymbol if isinstance(builder.values[step], float) else IntSymbol)(builder, step)


def step_of(builder: Builder, number: Any) -> Step:
    """The step of a symbol, or of a plain number.

    Raises:
        Inexact: It is beyond 64 bits.
    """
    return number.step if type(number) in _SYMBOLS else builder.constant(number)


def identical(a: Any, b: Any) -> bool:
    """Whether two numbers are the same in every call, as far as the steps tell; puts no guard."""
    if type(a) in _SYMBOLS or type(b) in _SYMBOLS:
        return type(a) is type(b) and a.step == b.step
    return bool(a == b)


def is_negative(number: Any) -> bool:
    """Whether a number is below zero; puts no guard where it never is."""
    if type(number) in _SYMBOLS and number.builder.never_negative(number.step):
        return False
    return bool(number < 0)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller of two integers, without a guard on which one that is."""
    return _choose(Op.MIN, min, a, b)


def sym_max(a: Any, b: Any) -> Any:
    """The larger of two integers, without a guard on which one that is."""
    return _choose(Op.MAX, max, a, b)


def as_float(number: Any) -> Any:
    """An integer as a double; pinned where a plan cannot convert it."""
    return number if type(number) is FloatSymbol else _apply(Op.TO_FLOAT, float, number)


def _pinned(value: Any) -> Any:
    return value.pinned() if type(value) in _SYMBOLS else value


def _builder(*numbers: Any) -> Builder | None:
    return next((number.builder for number in numbers if type(number) in _SYMBOLS), None)


def _apply(op: Op, python: Callable[..., Any], *numbers: Any) -> Any:
    """An operation; on pinned numbers, as Python has it, where no step can say it."""
    builder = _builder(*numbers)
    try:
        if builder is not None:
            return symbol(builder, builder.compute(op, *(step_of(builder, number) for number in numbers)))
    except Inexact:
        pass
    return python(*map(_pinned, numbers))


def _choose(op: Op, python: Callable[..., Any], a: Any, b: Any) -> Any:
    if type(a) in _FLOATS or type(b) in _FLOATS:
        return float(python(_pinned(a), _pinned(b)))
    return _apply(op, python, a, b)


def _both(integer: Op | None, floating: Op | None, a: Any, b: Any) -> tuple[Builder, Step]:
    """An operation on two numbers: that on integers, or on doubles where one of them is.

    Raises:
        Inexact: No step says it.
    """
    builder = _builder(a, b)
    op = floating if integer is None or type(a) in _FLOATS or type(b) in _FLOATS else integer
    if builder is None or op is None:
        raise Inexact
    steps = [step_of(builder, number) for number in (a, b)]
    if op is floating:
        steps = [_double(builder, step) for step in steps]
    return builder, builder.compute(op, *steps)


def _double(builder: Builder, step: Step) -> Step:
    return step if isinstance(builder.values[step], float) else builder.compute(Op.TO_FLOAT, step)


def _arithmetic(name: str, a: Any, b: Any) -> Any:
    integer, floating, python = ARITHMETIC[name]
    if type(a) not in _NUMBERS or type(b) not in _NUMBERS:
        return _foreign(python, a, b)
    try:
        return symbol(*_both(integer, floating, a, b))
    except Inexact:
        return python(_pinned(a), _pinned(b))


def _comparison(name: str, a: Any, b: Any) -> Any:
    integers, doubles, python = COMPARISONS[name]
    if type(b) not in _NUMBERS:
        return _foreign(python, a, b)
    on_doubles = type(a) in _FLOATS or type(b) in _FLOATS
    op, swapped, negated = doubles if on_doubles else integers
    try:
        builder, step = _both(op, op if on_doubles else None, *((b, a) if swapped else (a, b)))
    except Inexact:
        return python(_pinned(a), _pinned(b))
    return bool(builder.guard(step)) is not negated


def _foreign(python: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """An operation with something that is not quite a number: an enum's member, say."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return python(_pinned(a), _pinned(b))
    return NotImplemented


def _sign(name: str, a: Any) -> Any:
    integer, floating, python = SIGNS[name]
    return _apply(floating if type(a) is FloatSymbol else integer, python, a)


def _look(python: Callable[..., Any], a: Any, *args: Any) -> Any:
    return python(a.pinned(), *args)


def _method(function: Callable[..., Any], first: Any, *, reflected: bool = False) -> Any:
    @functools.wraps(function)
    def method(self: Any, *args: Any) -> Any:
        return function(first, *args, self) if reflected else function(first, self, *args)

    return method


def _methods(kind: type) -> dict[str, Any]:
    """The special methods of a kind, from the tables."""
    found: dict[str, Any] = {name: _method(_look, python) for name, python in LOOKS.items()}
    found |= {f"__{name}__": _method(_sign, name) for name in SIGNS}
    found |= {f"__{name}__": _method(_comparison, name) for name in COMPARISONS}
    found |= {f"__{name}__": _method(_arithmetic, name) for name in ARITHMETIC}
    found |= {f"__r{name}__": _method(_arithmetic, name, reflected=True) for name in ARITHMETIC}
    return {name: method for name, method in found.items() if name not in vars(kind)}


def _own(name: str) -> Any:
    """Something of an int or a float that torch's class has in its own way: that of the number."""
    return property(lambda self: getattr(self.pinned(), name))


def _complete(kind: type) -> None:
    """Give a kind its special methods; what torch's class has besides is that of the number."""
    methods, base = _methods(kind), kind.__mro__[2]
    own = {name for name, value in vars(base).items() if callable(value) or isinstance(value, property)}
    for name in own - set(methods) - set(vars(kind)) - set(vars(Symbol)) - set(vars(object)):
        setattr(kind, name, _own(name))
    for name, method in methods.items():
        setattr(kind, name, method)


_complete(IntSymbol)
_complete(FloatSymbol)
