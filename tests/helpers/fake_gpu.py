"""A GPU that is none: native code takes CPU tensors for those of a GPU, and launches go to functions here.

They stand where the driver's functions stand, and get the same configuration and parameter pointers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from dotcu.kernel import native

FUNCTION, CONTEXT = 0x7F00_1234_5678, 0x5500_0000_1111
"""A CUfunction and a CUcontext that no driver made; larger than 32 bits."""

MAP_ADDRESS = 1
"""The word of a tensor map that has the address, here."""

Dim = ctypes.c_uint * 3


class Config(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        ("grid", Dim),
        ("block", Dim),
        ("smem_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


_WORD, _INT, _INTO = ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64)
_TYPES = {
    "launch": ctypes.CFUNCTYPE(_INT, _WORD, _WORD, ctypes.POINTER(_WORD), _WORD),
    "context": ctypes.CFUNCTYPE(_INT, _INTO),
    "enter": ctypes.CFUNCTYPE(_INT, _WORD),
    "leave": ctypes.CFUNCTYPE(_INT, _INTO),
    "move_map": ctypes.CFUNCTYPE(_INT, _INTO, _WORD),
}


def called_by_ctypes(functions: Mapping[str, Callable[..., int]]) -> dict[str, Any]:
    """Return functions in C that call those given, by the names in `native.driver_functions`."""
    return {name: _TYPES[name](function) for name, function in functions.items()}


@contextmanager
def configured(functions: Mapping[str, Callable[..., int]], **values: Any) -> Iterator[None]:
    """Let native code take CPU tensors, and call these functions in place of the driver's.

    Args:
        functions: By their names in `native.driver_functions`.
        values: What native code is to know of torch instead of what `native.torch_values` says.
    """
    if reason := native.missing():
        pytest.skip(reason)
    kept = called_by_ctypes(functions)
    addresses = {name: ctypes.cast(each, ctypes.c_void_p).value for name, each in kept.items()}
    before = dict(native._prepared)
    native.library().configure(native.torch_values(native.CPU) | addresses | values)
    native.use_native_record(native.library())
    native.follow_observers()
    native._prepared[native.CPU] = ""
    try:
        yield
    finally:
        native.library().configure(native.torch_values(native.CUDA))  # takes no CPU tensor from here on
        native._prepared.clear()
        if torch.cuda.is_available():
            native.prepare()
        else:
            native._prepared.update(before)


@dataclass
class Driver:
    """Notes what a launch is told.

    Attributes:
        sizes: The bytes of each parameter of what is launched.
        attributes: Those of the last launch, by their ids in cuda.h: the first three words of each.
        status: What the next launches give.
        map_status: What the next moves of a tensor map give.
        current: The CUcontext that is current.
        stack: Those that were pushed.
        before: Is called at each launch with the parameters' bytes.
    """

    sizes: tuple[int, ...] = ()
    launches: list[tuple[Any, ...]] = field(default_factory=list)
    attributes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    status: int = 0
    map_status: int = 0
    current: int = CONTEXT
    stack: list[int] = field(default_factory=list)
    before: Callable[[tuple[bytes, ...]], None] = lambda parameters: None

    @property
    def functions(self) -> dict[str, Callable[..., int]]:
        return {
            "launch": self._launch,
            "context": self._context,
            "enter": self._enter,
            "leave": self._leave,
            "move_map": self._move_map,
        }

    def _context(self, into: Any) -> int:
        into[0] = self.stack[-1] if self.stack else self.current
        return 0

    def _enter(self, made: int) -> int:
        self.stack.append(made)
        return 0

    def _leave(self, into: Any) -> int:
        into[0] = self.stack.pop()
        return 0

    def _move_map(self, map: Any, address: int) -> int:
        map[MAP_ADDRESS] = address
        return self.map_status

    def _launch(self, config: int, function: int, pointers: Any, extra: int | None) -> int:
        told = Config.from_address(config)
        assert function == FUNCTION
        assert (self.stack or [self.current])[-1] == CONTEXT
        parameters = tuple(ctypes.string_at(pointers[i], size) for i, size in enumerate(self.sizes))
        self.before(parameters)
        self.launches.append((tuple(told.grid), tuple(told.block), told.smem_bytes, parameters))
        rows = [told.attributes + 72 * i for i in range(told.attribute_count)]
        self.attributes = {
            ctypes.c_int.from_address(row).value: tuple((ctypes.c_uint * 3).from_address(row + 8))
            for row in rows
        }
        return self.status
