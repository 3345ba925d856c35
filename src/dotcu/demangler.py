"""C++ names for mangled symbols, by the function of the machine's C++ library that undoes the mangling.

That function takes as much memory and time as a name wants: one of 370 bytes can want more than there is,
since a part of it may name all that came before twice. So only plain names are demangled in this process, and
the others in a helper process with limited memory and time.

Source: Itanium C++ ABI, "Demangler API": `__cxa_demangle`.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import re
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dotcu.process import Child

_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++.1.dylib")
_DIGITS = re.compile(r"[0-9]+")
_PLAIN = frozenset("_ZNEPKRVObvcahstijlmxynofdew0123456789")
"""The characters of a name without templates and back references, apart from its identifiers."""

_MAX_PLAIN = 1000
_MAX_NAME = 1 << 16
"""The most characters of a name that is shown in place of a mangled one."""

_MAX_KNOWN = 1 << 20
_BATCH = 500
_MAX_REFUSED = 3
"""The names of a call that may take too long; then the rest of it stays mangled."""

_WAIT_S = 3.0
_HELPER = f"""
import ctypes, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
for name in {_LIBRARIES!r}:
    try:
        call = ctypes.CDLL(name).__cxa_demangle
        break
    except (OSError, AttributeError):
        continue
else:
    sys.exit()
call.restype = ctypes.c_void_p
free = ctypes.CDLL(None).free
free.argtypes = (ctypes.c_void_p,)
for line in sys.stdin:
    address = call(line.rstrip().encode(), None, None, None)
    found = ctypes.string_at(address).decode("utf-8", "replace") if address else ""
    free(address)
    print(found if len(found) <= {_MAX_NAME} else "", flush=True)
"""
_known: dict[str, str] = {}


def demangle(symbol: str) -> str:
    """Return `scale(float*, int)` for `_Z5scalePfi`; a name that cannot be demangled here, as it is."""
    demangle_all((symbol,))
    return _known.get(symbol, symbol)


def demangle_all(symbols: Iterable[str]) -> None:
    """Prepare the names of some symbols for `demangle`, all by one process."""
    new = [each for each in dict.fromkeys(symbols) if each.startswith("_Z") and each not in _known]
    if len(_known) + len(new) > _MAX_KNOWN:
        _known.clear()
    _known.update((each, _demangle_here(each)) for each in new if _is_plain(each))
    left = [each for each in new if each not in _known and each.isprintable() and each.isascii()]
    _known.update((each, each) for each in new if each not in _known)
    if not left or not sys.executable or _library_functions() is None:
        return
    for _ in range(_MAX_REFUSED):
        done = _demangle_in_helper(left)
        _known.update({symbol: name for symbol, name in done.items() if name})
        left = left[len(done) + 1 :]  # the one after those that are done took too long
        if not left:
            return


def _is_plain(symbol: str) -> bool:
    at = 0
    while at < len(symbol):
        digits = _DIGITS.match(symbol, at)
        if digits:
            at = digits.end() + int(digits[0][:6])
        elif symbol[at] not in _PLAIN:
            return False
        else:
            at += 1
    return len(symbol) <= _MAX_PLAIN


def _demangle_here(symbol: str) -> str:
    functions = _library_functions()
    if functions is None:
        return symbol
    call, free = functions
    address = call(symbol.encode(), None, None, None)
    if not address:
        return symbol
    try:
        return ctypes.string_at(address).decode("utf-8", "replace")
    finally:
        free(address)


@functools.cache
def _library_functions() -> tuple[Any, Any] | None:
    """Return the function of the C++ library, and the one that frees its results."""
    for name in _LIBRARIES:
        try:
            call = ctypes.CDLL(name).__cxa_demangle
        except (OSError, AttributeError):
            continue
        call.restype = ctypes.c_void_p
        call.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)
        free = ctypes.CDLL(None).free
        free.argtypes = (ctypes.c_void_p,)
        return call, free
    return None


def _demangle_in_helper(symbols: Sequence[str]) -> dict[str, str]:
    """Return the names of symbols, up to the first one that takes too long."""
    done: dict[str, str] = {}
    with _guard:
        for start in range(0, len(symbols), _BATCH):
            batch = symbols[start : start + _BATCH]
            child = _helper()
            for symbol in batch:
                child.write_line(symbol)
            for symbol in batch:
                try:
                    name = child.read_line(_WAIT_S)
                except TimeoutError:
                    name = None
                if name is None:
                    _end_helper()
                    return done
                done[symbol] = name
    return done


_guard = threading.Lock()
_helpers: dict[int, Child] = {}
"""By the process that started it: a process that was forked starts its own."""


def _helper() -> Child:
    from dotcu.process import Child  # a launch of a kernel that was compiled before starts none

    if os.getpid() not in _helpers:
        _helpers[os.getpid()] = Child((sys.executable, "-I", "-S", "-c", _HELPER))
    return _helpers[os.getpid()]


@atexit.register
def _end_helper() -> None:
    child = _helpers.pop(os.getpid(), None)
    if child is not None:
        child.end()


def _after_fork() -> None:
    """Make a new lock: one that another thread held at the fork would never be released in the child."""
    global _guard
    _guard = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
