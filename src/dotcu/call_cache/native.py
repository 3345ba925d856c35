"""The call cache in native code: its arguments, its callbacks, and recorded calls in its format."""

from __future__ import annotations

import enum
import inspect
import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dotcu.call_cache.record import Field, Key, Launch, RecordedCall, StepOp, TensorKey
from dotcu.kernel import native
from dotcu.kernel.arguments.tensor_map import MAX_RANK, Tiled
from dotcu.kernel.driver import cuda
from dotcu.kernel.driver.errors import LaunchLabel

Fallback = Callable[..., Any]
"""torch's own function for the operator: it parses the arguments and dispatches."""


class ArgumentKind(enum.IntFlag):
    """The types of value that an argument takes. Native code has the same numbers."""

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
        kinds: The types taken without conversion; empty if torch converts every value.
        makes_float: True if torch converts an int to a float.
        written: True if the operator writes it.
        default: Empty, or the one default.
    """

    name: str
    kinds: ArgumentKind
    makes_float: bool = False
    written: bool = False
    keyword_only: bool = False
    default: tuple[Any, ...] = ()


_KINDS = {
    "Tensor": ArgumentKind.TENSOR,
    "int": ArgumentKind.INT,
    "float": ArgumentKind.FLOAT | ArgumentKind.INT,
    "number": ArgumentKind.FLOAT | ArgumentKind.INT,
    "bool": ArgumentKind.BOOL,
    "str": ArgumentKind.STR,
    "ScalarType": ArgumentKind.DTYPE,
    "Device": ArgumentKind.DEVICE,
    "List[int]": ArgumentKind.INTS,
}


def read_arguments(schema: Any, body: Callable[..., Any]) -> tuple[Argument, ...]:
    """Return the arguments of a `torch._C.FunctionSchema`, with the defaults of its body.

    The schema has a dtype's default as a number, which Python does not take for a dtype.
    """
    parameters = inspect.signature(body).parameters
    arguments = []
    for argument in schema.arguments:
        text = str(argument.real_type)
        optional = text.startswith("Optional[")
        kind = text.removeprefix("Optional[").removesuffix("]") if optional else text
        kinds = _KINDS.get(kind, ArgumentKind(0))
        arguments.append(
            Argument(
                name=argument.name,
                kinds=kinds | ArgumentKind.NONE if optional and kinds else kinds,
                makes_float=kind == "float",
                written=argument.alias_info is not None and argument.alias_info.is_write,
                keyword_only=argument.kwarg_only,
                default=(parameters[argument.name].default,) if argument.has_default_value() else (),
            )
        )
    return tuple(arguments)


NativeCallCache = Any
"""The recorded calls of one overload, in native code. `len` counts them.

    add(packed) -> bool           keep one; False if there are too many
    clear(guards, traces)         drop all; take the guards of later ones, and whether to make any
    run(values)                   compute below autograd with a value for each argument
    serve(*args, **kwargs)        compute a call that is below autograd; NotImplemented if something must see
                                  its body run
"""


def make(arguments: Sequence[Argument], callbacks: Any, *, returns: int) -> NativeCallCache:
    """Make the native cache of an overload.

    Args:
        arguments: The arguments of its schema.
        callbacks: The overload's `operator.caching.CallCache`, or what has the same methods.
        returns: The number of tensors that the schema promises; -1 if some are in lists, which Python checks.
    """
    return native.library().CallCache(
        names=tuple(argument.name for argument in arguments),
        kinds=tuple(int(argument.kinds) for argument in arguments),
        floats=tuple(argument.makes_float for argument in arguments),
        defaults=tuple(argument.default for argument in arguments),
        written=tuple(argument.written for argument in arguments),
        positional=sum(not argument.keyword_only for argument in arguments),
        returns=returns,
        body=callbacks.body,
        on_scope=callbacks.scope,
        on_trace=callbacks.trace,
        on_check=callbacks.check,
        on_record=callbacks.record,
        on_stale=callbacks.stale,
        on_failure=callbacks.failure,
        on_error=callbacks.error,
    )


def entry(caches: Sequence[NativeCallCache], fallback: Fallback, *, autocasts: bool) -> Fallback:
    """Make the function that calls an operator: by a recorded call that fits, by its body, or as torch does.

    Args:
        caches: One of each overload that the call chooses among.
        fallback, autocasts: torch's own function, and True if it has a rule for autocast to apply.
    """
    function: Fallback = native.library().Entry(tuple(caches), fallback, autocasts)
    return function


def add(cache: NativeCallCache, recorded: RecordedCall, operator: str, context: int) -> bool:
    """Add a recorded call to a cache; return False if there are too many, or it is too large.

    Args:
        cache, recorded: The overload's cache, and the call.
        operator: The overload's qualified name, for messages.
        context: The CUcontext that its launches need; 0 for none.
    """
    try:
        return bool(cache.add(_packed(recorded, operator, context)))
    except (ValueError, KeyError):
        return False


# Recorded calls as native code reads them: tuples, and arrays of the structs in native/native.h.

_KEY_TENSOR, _KEY_INT, _KEY_FLOAT, _KEY_CONSTANT = range(4)


def _packed(recorded: RecordedCall, operator: str, context: int) -> tuple[object, ...]:
    """Return a recorded call as `NativeCallCache.add` takes it."""
    allocations = (
        (each.dtype, len(each.sizes), int(each.zeroed), _ints((*each.sizes, *each.strides)))
        for each in recorded.allocations
    )
    return (
        b"".join(map(_key, recorded.keys)),
        tuple(key[0] if isinstance(key, tuple) else None for key in recorded.keys),
        b"".join(
            struct.pack("<4id" if step.op is StepOp.FLOAT else "<4iq", step.op, step.a, step.b, 0, step.value)
            for step in recorded.steps
        ),
        b"".join(struct.pack("<iiq", step, 0, value) for step, value in recorded.guards),
        tuple(allocations),
        tuple(_launch(launch, operator) for launch in recorded.launches),
        _ints(recorded.results),
        recorded.single,
        recorded.distinct,
        context,
        recorded.device.index or 0,
    )


def _ints(values: Iterable[int]) -> bytes:
    return array("i", values).tobytes()


def _key(key: Key) -> bytes:
    if isinstance(key, tuple):
        return struct.pack("<5i", _KEY_CONSTANT, 0, 0, 0, 0)
    if isinstance(key, TensorKey):
        codes, index = native.codes(), key.device.index if key.device.type == "cuda" else -1
        return struct.pack("<5i", _KEY_TENSOR, codes[key.dtype], key.dim, codes[key.device.type], index)
    return struct.pack("<5i", _KEY_FLOAT if key is float else _KEY_INT, 0, 0, 0, 0)


def _field(field: Field) -> bytes:
    return struct.pack("<4i", field.offset, field.kind, field.source, field.step)


def _map(address: Field, tiled: Tiled) -> bytes:
    numbers = [*cuda.tensor_map_numbers(tiled)]
    for each in (tiled.sizes, tiled.strides_bytes, tiled.box, tiled.element_strides):
        numbers += (*each, *[0] * (MAX_RANK - len(each)))
    return _field(address) + _ints(numbers)


def _launch(launch: Launch, operator: str) -> tuple[object, ...]:
    settings = f"block={launch.block}, from the call cache"  # for messages about faults: without its grid
    return (
        launch.function,
        launch.parameters,
        _ints(launch.offsets),
        b"".join(map(_field, launch.fields)),
        b"".join(_map(address, tiled) for address, tiled in launch.maps),
        LaunchLabel(operator, launch.kernel, settings, launch.device.index or 0),
        launch.grid,
        launch.block,
        launch.smem_bytes,
        launch.cluster or (0, 0, 0),
        int(launch.cooperative),
        int(launch.programmatic),
        launch.most_blocks,
    )
