"""C++ names as people write them, by the C++ library that the machine has."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++.1.dylib")
_KEPT = 1 << 15


@functools.lru_cache(_KEPT)
def demangle(symbol: str) -> str:
    """`scale(float*, int)` of `_Z5scalePfi`; a name that is not mangled, or cannot be read here, as it is.

    Source: Itanium C++ ABI, "Demangler API": `__cxa_demangle`.
    """
    if not symbol.startswith("_Z"):
        return symbol
    call = _demangler()
    return call(symbol) if call else symbol


@functools.cache
def _demangler() -> Callable[[str], str] | None:
    for name in _LIBRARIES:
        try:
            function = ctypes.CDLL(name).__cxa_demangle
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_void_p
        function.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)
        free = ctypes.CDLL(None).free
        free.argtypes = (ctypes.c_void_p,)
        return functools.partial(_called, function, free)
    return None


def _called(function: Callable[..., int | None], free: Callable[[int], None], symbol: str) -> str:
    address = function(symbol.encode(), None, None, None)
    if not address:
        return symbol
    try:
        return ctypes.string_at(address).decode("utf-8", "replace")
    finally:
        free(address)
