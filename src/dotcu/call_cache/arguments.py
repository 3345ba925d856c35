"""The arguments of an overload, as a call by plan takes them: what torch would pass on unchanged."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dotcu.call_cache.rows import Row

Fallback = Callable[..., Any]
"""What torch made for the operator: it parses the arguments and dispatches."""


class Kinds(enum.IntFlag):
    """Kinds of value. Native code has the same numbers."""

    TENSOR = 1
    NONE = 2
    INT = 4
    FLOAT = 8
    BOOL = 16
    STR = 32
    DTYPE = 64
    DEVICE = 128
    INTS = 256


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of a schema.

    Attributes:
        kinds: What is taken as it is; empty where nothing is, since torch would convert it.
        makes_float: Whether torch makes a float of an int.
        written: Whether the operator writes it.
        default: Empty, or the one default.
    """

    name: str
    kinds: Kinds
    makes_float: bool = False
    written: bool = False
    keyword_only: bool = False
    default: tuple[Any, ...] = ()


_KINDS = {
    "Tensor": Kinds.TENSOR,
    "int": Kinds.INT,
    "float": Kinds.FLOAT | Kinds.INT,
    "number": Kinds.FLOAT | Kinds.INT,
    "bool": Kinds.BOOL,
    "str": Kinds.STR,
    "ScalarType": Kinds.DTYPE,
    "Device": Kinds.DEVICE,
    "List[int]": Kinds.INTS,
}


def read_arguments(schema: Any, body: Callable[..., Any]) -> tuple[Argument, ...]:
    """The arguments of a `torch._C.FunctionSchema`, with the defaults of the body that it was made of.

    The schema has a dtype's default as a number, which is none to Python.
    """
    parameters = inspect.signature(body).parameters
    return tuple(_read(argument, parameters[argument.name].default) for argument in schema.arguments)


def _read(argument: Any, default: Any) -> Argument:
    text = str(argument.real_type)
    optional = text.startswith("Optional[")
    kind = text.removeprefix("Optional[").removesuffix("]") if optional else text
    kinds = _KINDS.get(kind, Kinds(0))
    return Argument(
        name=argument.name,
        kinds=kinds | Kinds.NONE if optional and kinds else kinds,
        makes_float=kind == "float",
        written=argument.alias_info is not None and argument.alias_info.is_write,
        keyword_only=argument.kwarg_only,
        default=(default,) if argument.has_default_value() else (),
    )


class Caller(Protocol):
    """An overload, as its calls need it. `values` has one for each argument of the schema."""

    body: Callable[..., Any]
    """The body."""

    def scope(self, gpu: int) -> object:
        """Return the scope of the body on tensors of a GPU; of the CPU where the number is less than 0."""

    def follow(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body and make a plan of what it does."""

    def check(self, result: Any, given: tuple[Any, ...]) -> Any:
        """Return what the body returned, if that is what the schema promises; `given` has every value."""

    def record(self, *values: Any) -> Any:
        """Call with a gradient to record."""

    def stale(self) -> None:
        """Take note that something which the body reads is not what it was: no plan holds."""

    def failure(self, plan: int, launch: int, status: int) -> None:
        """Raise what the driver's status means for a launch of the plan of that number."""

    def error(self, error: BaseException) -> None:
        """Raise what a fault that torch found in the body means; return where there is no more to say."""


class Plans(Protocol):
    """The plans of one overload."""

    def __len__(self) -> int: ...

    def add(self, packed: Any, /) -> bool:
        """Keep a plan; False where there are too many."""

    def clear(self, reads: tuple[Row, ...], follows: bool, /) -> None:
        """Drop every plan; take what later ones read beside their arguments, and whether to make any."""

    def run(self, values: tuple[Any, ...], /) -> Any:
        """Compute below autograd with a value for each argument, by a plan or by the body."""


def positional(arguments: Sequence[Argument]) -> int:
    """How many arguments may be given by position."""
    return sum(not argument.keyword_only for argument in arguments)
