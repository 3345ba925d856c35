"""Symbols: numbers of a traced body that carry the step that computes them.

A symbol has a concrete value, and a step of the recorded call. Arithmetic on symbols gives symbols. Any other
use (a branch, an index, a string) sees the concrete value and adds a guard: the recorded call holds only
where that use would see the same.

A symbol is a `torch.SymInt` or `SymFloat`, because torch passes those to a function mode without
reading them; for `isinstance` it is an int or a float, as in an untraced body.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from dotcu.call_cache.arithmetic import ARITHMETIC, COMPARISONS, LOOKS, UNARY, Builder
from dotcu.call_cache.record import Step, StepOp
from dotcu.kernel.arguments.tensor_map import TensorMap

# All that torch's own Python asks of a SymInt's node, in `torch.broadcast_shapes`.
_NODE = SimpleNamespace(is_nested_int=lambda: False)


class SymbolicNumber:
    """The base of both kinds.

    Attributes:
        builder: The builder that its step belongs to.
        step: The step that computes it in every call.
    """

    def __init__(self, builder: Builder, step: Step) -> None:
        self.builder = builder
        self.step = step

    @property
    def value(self) -> Any:
        """The number in this call; adds no guard."""
        return self.builder.values[self.step]

    def pinned(self) -> Any:
        """Return the number in this call, and guard it."""
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
        if type(self) is SymbolicInt and type(exponent) is int and 1 <= exponent <= 4 and modulus is None:
            return math.prod([self] * exponent)
        return pow(self.pinned(), pinned(exponent), pinned(modulus))

    def __rpow__(self, base: Any, modulus: Any = None) -> Any:
        return pow(base, self.pinned(), pinned(modulus))


class SymbolicInt(SymbolicNumber, torch.SymInt):
    """An int."""

    __class__ = property(lambda self: int)

    def __invert__(self) -> Any:
        return -self - 1

    def __trunc__(self) -> Any:
        return self

    __floor__ = __ceil__ = __trunc__


class SymbolicFloat(SymbolicNumber, torch.SymFloat):
    """A float."""

    __class__ = property(lambda self: float)

    def __int__(self) -> int:
        return int(pinned(math.trunc(self)))


_SYMBOLS = frozenset({SymbolicInt, SymbolicFloat})
_FLOATS = frozenset({float, SymbolicFloat})
_NUMBERS = frozenset({int, bool, float, SymbolicInt, SymbolicFloat})


def is_symbol(value: Any) -> bool:
    """Return True for a symbol."""
    return type(value) in _SYMBOLS


def symbol(builder: Builder, step: Step) -> Any:
    """Return the symbol of a step; a plain number if the step is constant."""
    if builder.is_constant(step):
        return builder.values[step]
    return (SymbolicFloat if isinstance(builder.values[step], float) else SymbolicInt)(builder, step)


def step_of(builder: Builder, number: Any) -> Step:
    """Return the step of a symbol, or of a plain number.

    Raises:
        OverflowError: It is beyond 64 bits.
    """
    return number.step if type(number) in _SYMBOLS else builder.constant(number)


def identical(a: Any, b: Any) -> bool:
    """Return True if two numbers are equal in every call, by their steps; adds no guard."""
    if type(a) in _SYMBOLS or type(b) in _SYMBOLS:
        return type(a) is type(b) and a.step == b.step
    return bool(a == b)


def is_negative(number: Any) -> bool:
    """Ask if a number is below zero; adds no guard if it never is."""
    if type(number) in _SYMBOLS and number.builder.never_negative(number.step):
        return False
    return bool(number < 0)


def sym_min(a: Any, b: Any) -> Any:
    """Return the smaller of two integers, without a guard on which one that is."""
    return _choose(StepOp.MIN, min, a, b)


def sym_max(a: Any, b: Any) -> Any:
    """Return the larger of two integers, without a guard on which one that is."""
    return _choose(StepOp.MAX, max, a, b)


def as_float(number: Any) -> Any:
    """Return an integer as a double; pinned if no step converts it."""
    return number if type(number) is SymbolicFloat else _apply(StepOp.TO_FLOAT, float, number)


def _builder(*numbers: Any) -> Builder | None:
    return next((number.builder for number in numbers if type(number) in _SYMBOLS), None)


def _apply(op: StepOp, python: Callable[..., Any], *numbers: Any) -> Any:
    """Apply an operation; if there is no step, Python's on pinned numbers."""
    builder = _builder(*numbers)
    try:
        if builder is not None:
            return symbol(builder, builder.compute(op, *(step_of(builder, number) for number in numbers)))
    except OverflowError:
        pass
    return python(*map(pinned, numbers))


def _choose(op: StepOp, python: Callable[..., Any], a: Any, b: Any) -> Any:
    if type(a) in _FLOATS or type(b) in _FLOATS:
        return float(python(pinned(a), pinned(b)))
    return _apply(op, python, a, b)


def _both(integer: StepOp | None, floating: StepOp | None, a: Any, b: Any) -> tuple[Builder, Step]:
    """Apply an operation on two numbers: that on integers, or on doubles if one of them is one.

    Raises:
        OverflowError: There is no step for it.
    """
    builder = _builder(a, b)
    op = floating if integer is None or type(a) in _FLOATS or type(b) in _FLOATS else integer
    if builder is None or op is None:
        raise OverflowError
    steps = [step_of(builder, number) for number in (a, b)]
    if op is floating:
        steps = [
            step if isinstance(builder.values[step], float) else builder.compute(StepOp.TO_FLOAT, step)
            for step in steps
        ]
    return builder, builder.compute(op, *steps)


def _arithmetic(name: str, a: Any, b: Any) -> Any:
    integer, floating, python = ARITHMETIC[name]
    if type(a) not in _NUMBERS or type(b) not in _NUMBERS:
        return _foreign(python, a, b)
    try:
        return symbol(*_both(integer, floating, a, b))
    except OverflowError:
        return python(pinned(a), pinned(b))


def _comparison(name: str, a: Any, b: Any) -> Any:
    integers, doubles, python = COMPARISONS[name]
    if type(b) not in _NUMBERS:
        return _foreign(python, a, b)
    on_doubles = type(a) in _FLOATS or type(b) in _FLOATS
    op, swapped, negated = doubles if on_doubles else integers
    try:
        builder, step = _both(op, op if on_doubles else None, *((b, a) if swapped else (a, b)))
    except OverflowError:
        return python(pinned(a), pinned(b))
    return bool(builder.guard(step)) is not negated


def _foreign(python: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """Apply an operation to a number of another type: an enum's member, for example."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return python(pinned(a), pinned(b))
    return NotImplemented


def _unary(name: str, a: Any) -> Any:
    integer, floating, python = UNARY[name]
    return _apply(floating if type(a) is SymbolicFloat else integer, python, a)


def _look(python: Callable[..., Any], a: Any, *args: Any) -> Any:
    return python(a.pinned(), *args)


def _method(function: Callable[..., Any], first: Any, *, reflected: bool = False) -> Any:
    @functools.wraps(function)
    def method(self: Any, *args: Any) -> Any:
        return function(first, *args, self) if reflected else function(first, self, *args)

    return method


def _own(name: str) -> Any:
    """Return a property that reads the number instead of what torch's class has by that name."""
    return property(lambda self: getattr(self.pinned(), name))


def _complete(kind: type) -> None:
    """Give a kind the special methods of the tables; let everything else of torch's class read the number."""
    methods: dict[str, Any] = {name: _method(_look, python) for name, python in LOOKS.items()}
    methods |= {f"__{name}__": _method(_unary, name) for name in UNARY}
    methods |= {f"__{name}__": _method(_comparison, name) for name in COMPARISONS}
    methods |= {f"__{name}__": _method(_arithmetic, name) for name in ARITHMETIC}
    methods |= {f"__r{name}__": _method(_arithmetic, name, reflected=True) for name in ARITHMETIC}
    inherited = {**vars(SymbolicNumber), **vars(object)}
    for name, value in vars(kind.__mro__[2]).items():
        if name not in inherited and (callable(value) or isinstance(value, property)):
            methods.setdefault(name, _own(name))
    for name in methods.keys() - vars(kind).keys():
        setattr(kind, name, methods[name])


_complete(SymbolicInt)
_complete(SymbolicFloat)


# Symbols inside of other values: shapes, arguments of a call, slices, boxes of tensor maps.


def plain(value: Any) -> Any:
    """Return a value with its symbols, also those in tuples, lists, dicts and slices, as plain numbers."""
    return _mapped(value, lambda number: number.value)


def pinned(value: Any) -> Any:
    """Return the same, and guard these numbers."""
    return _mapped(value, lambda number: number.pinned())


def _mapped(value: Any, convert: Callable[[Any], Any]) -> Any:
    kind = type(value)
    if is_symbol(value):
        return convert(value)
    if kind is tuple or kind is list:
        return kind([_mapped(item, convert) for item in value])
    if kind is torch.Size:
        return torch.Size([_mapped(item, convert) for item in value])
    if kind is TensorMap:
        names = ("box", "element_strides", "lower_corner", "upper_corner")
        return replace(value, **{name: _mapped(getattr(value, name), convert) for name in names})
    if kind is dict:
        return {key: _mapped(item, convert) for key, item in value.items()}
    if kind is slice:
        return slice(*(_mapped(item, convert) for item in (value.start, value.stop, value.step)))
    return value
