"""The arguments of an overload, as a call by plan takes them: what torch would pass on unchanged."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from dotcu.replay.rows import Row

Fallback = Callable[..., Any]
"""What torch made for the operator: it parses the arguments and dispatches."""


class Kinds(enum.IntFlag):
    """Kinds of value. Native code has the same numbers."""

    TENSOR = 1
    NONE = 2
    INT = 4
    FLOAT = 8
    BOOL = 16
    OTHER = 32


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of a schema.

    Attributes:
        kinds: What is taken as it is; empty where nothing is, since torch would convert it.
        makes_float: Whether torch makes a float of an int.
        default: Empty, or the one default.
    """

    name: str
    kinds: Kinds
    makes_float: bool = False
    keyword_only: bool = False
    default: tuple[Any, ...] = ()


_KINDS = {
    "Tensor": Kinds.TENSOR,
    "int": Kinds.INT | Kinds.OTHER,  # torch.dtype and torch.layout are "int" to a schema
    "float": Kinds.FLOAT | Kinds.INT,
    "number": Kinds.FLOAT | Kinds.INT,
    "bool": Kinds.BOOL,
    "str": Kinds.OTHER,
    "Device": Kinds.OTHER,
}


def read_arguments(schema: Any, body: Callable[..., Any]) -> tuple[Argument, ...]:
    """The arguments of a `torch._C.FunctionSchema`, with the defaults of the body that it was made of.

    The schema has a dtype's default as a number, which is none to Python.
    """
    parameters = inspect.signature(body).parameters
    return tuple(_read(argument, parameters[argument.name].default) for argument in schema.arguments)


def _read(argument: Any, default: Any) -> Argument:
    text = str(argument.type)
    optional = text.startswith("Optional[")
    kind = text.removeprefix("Optional[").removesuffix("]") if optional else text
    kinds = _KINDS.get(kind, Kinds(0))
    return Argument(
        name=argument.name,
        kinds=kinds | Kinds.NONE if optional and kinds else kinds,
        makes_float=kind == "float",
        keyword_only=argument.kwarg_only,
        default=(default,) if argument.has_default_value() else (),
    )


class Caller(Protocol):
    """What a call by plan asks of the overload that it belongs to."""

    def miss(self, fallback: Fallback, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Call an overload that has no plan for these arguments yet."""

    def record(self, *values: Any) -> Any:
        """Call with a gradient to record; one value for each argument of the schema."""

    def stale(self) -> None:
        """Take note that something which the body reads is not what it was: no plan holds."""

    def elsewhere(self, index: int, values: tuple[Any, ...]) -> Any:
        """Replay with this device made current; NotImplemented where that is not possible."""

    def failure(self, plan: int, launch: int, status: int) -> None:
        """Raise what the driver's status means for a launch of the plan of that number."""

    def write(self, tensors: list[Tensor]) -> None:
        """Count a write in the version of each tensor."""


class Plans(Protocol):
    """The plans of one overload."""

    def __len__(self) -> int: ...

    def add(self, packed: Any, /) -> bool:
        """Keep a plan; False where there are too many."""

    def clear(self, reads: tuple[Row, ...], /) -> None:
        """Drop every plan, and take what later ones read beside their arguments."""

    def run(self, values: tuple[Any, ...], /) -> Any:
        """Replay below autograd with a value for each argument, or give NotImplemented."""


def positional(arguments: Sequence[Argument]) -> int:
    """How many arguments may be given by position."""
    return sum(not argument.keyword_only for argument in arguments)
