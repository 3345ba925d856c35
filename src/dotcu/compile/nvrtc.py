"""The compiler call: NVRTC in a process of its own, which is started once and kept.

With several NVRTCs installed the one that fits the driver is used, by its path, whatever another package
has loaded. Ctrl-C ends the process that compiles, and a fork takes nothing of it along.
"""

from __future__ import annotations

import atexit
import marshal
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dotcu import process, telemetry
from dotcu.compile import nvrtc_server
from dotcu.compile.cache import CacheEntry
from dotcu.errors import ToolchainError
from dotcu.files import matching
from dotcu.locks import ForkSafeLock

NO_TILE_KERNEL = b"__$dummy_kernel"
"""The kernel in the Tile IR of a source without one of its own, as long as no template is instantiated (seen:
NVRTC 13.5)."""

_START_S = 60.0
"""The most seconds until a Python that starts says hello."""


def architectures(path: Path) -> tuple[int, ...]:
    """Return the architectures that the NVRTC at `path` makes code for: 75, 80, ...

    Raises:
        ToolchainError: It is no NVRTC.
    """
    return tuple(_ask(path, "supported"))


def compile(
    path: Path,
    name: str,
    text: str,
    *,
    headers: Mapping[str, bytes],
    arguments: Sequence[str],
    expressions: Sequence[str],
) -> CacheEntry | str:
    """Compile a source held in memory, with headers held in memory; return the log where it is refused.

    Args:
        headers: Everything that can be included, by the name by which it is.
        expressions: Names whose symbols are wanted.

    Raises:
        ToolchainError: The compiler cannot be loaded, or ended without an answer.
    """
    given = {_bytes(key): value for key, value in headers.items()}
    options, names = [_bytes(each) for each in arguments], [_bytes(each) for each in expressions]
    reply = _ask(path, "compile", _bytes(name), _bytes(text), given, options, names)
    if isinstance(reply, str):
        return reply
    symbols = [symbol.decode("utf-8", "surrogateescape") for symbol in reply["lowered"]]
    return CacheEntry(
        about={},
        log=reply["log"],
        ptx=reply["ptx"].decode("utf-8", "surrogateescape"),
        cubin=reply["cubin"] or None,
        tile_ir=b"" if NO_TILE_KERNEL in reply["tile_ir"] else reply["tile_ir"],
        lowered=dict(zip(expressions, symbols, strict=True)),
    )


def _bytes(text: str) -> bytes:
    """Return text as it was on disk, also if it was not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


_lock = ForkSafeLock()
_servers: list[process.Server] = []
_idle: list[process.Server] = []
"""Of these, those that compile nothing: one, as a rule. A signal's handler may compile during a compile."""

_loaded: set[Path] = set()
_answer_here = bool(getattr(sys, "frozen", False)) or not sys.executable


def _ask(path: Path, function: str, *given: Any) -> Any:
    with _lock:
        if path not in _loaded:
            with telemetry.during("nvrtc"):
                _call(path, "version")
            _loaded.add(path)
        return _call(path, function, *given)


def _call(path: Path, function: str, *given: Any) -> Any:
    """Call a function of a library in the compiler's process."""
    call = (
        str(path),
        [str(file) for file in matching(path.parent, "libnvrtc-builtins.so.*.*")[:1]],
        function,
        given,
    )
    server = _taken()
    if server is None:
        outcome, value = nvrtc_server.answer(*call)
    else:
        try:
            if (reply := server.ask(marshal.dumps((_folder(), *call)))) is None:
                raise _crash(path, *server.ending())
        except BaseException:  # after an interrupt nobody wants the answer
            _end(server)
            raise
        outcome, value = marshal.loads(reply)
        _idle.append(server)
    if outcome == "failed":
        raise ToolchainError(
            f'The compiler {path} {value}.\nInstall it again: pip install --force-reinstall "dotcu[cu13]"'
        )
    return value


def _taken() -> process.Server | None:
    """Return a process of the compiler; None if none can be started, and NVRTC is called in this one."""
    global _answer_here
    while _idle:
        server = _idle.pop()
        if server.is_alive():
            return server
        _end(server)
    if _answer_here:
        return None
    with suppress(ToolchainError):
        server = process.Server((sys.executable, "-I", "-S", nvrtc_server.__file__))
        _servers.append(server)
        try:
            if server.read(_START_S) == nvrtc_server.HELLO:
                return server
        except TimeoutError:
            pass
        except BaseException:
            _end(server)
            raise
        _end(server)
    _answer_here = True  # sys.executable is no Python, or no process may be started
    return None


def _folder() -> str:
    """Return the working directory, which code for debugging names; "" if it was removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _crash(path: Path, status: int | None, stderr: str) -> ToolchainError:
    from dotcu.workers import ending  # seldom needed

    how = ending(status)
    return ToolchainError(
        f"The compiler {path} crashed: {how}{', as when memory runs out' * (how == 'SIGKILL')}.\n"
        + f"{stderr}\n" * bool(stderr)
        + "To find what it crashes on, leave parts of the source out until it compiles.\n"
        "Or use another compiler: export DOTCU_NVRTC=LIBRARY"
    )


def _end(server: process.Server) -> None:
    server.end()
    _loaded.clear()
    with suppress(ValueError):  # at the end of Python, another thread may have ended it
        _servers.remove(server)


def _end_all() -> None:
    for server in list(_servers):
        _end(server)


def _after_fork() -> None:
    """Leave the processes to the parent."""
    for server in _servers:
        server.forget()
    for known in (_servers, _idle, _loaded):
        known.clear()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
