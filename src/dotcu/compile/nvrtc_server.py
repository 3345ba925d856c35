"""NVRTC through ctypes, and a program that answers calls of it.

This module imports nothing of dotcu: as a program it starts in 20 ms. The handlers that NVRTC sets for
SIGINT and SIGTERM while it compiles, the mutex that it holds, and its crashes are then those of a process
that does nothing else.

A request on stdin is a working directory and the arguments of `answer`; what that returns is on stdout.
Each is a length of 8 bytes and what `marshal` makes of a tuple. The program ends with its stdin, at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import marshal
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

FIRST_WITH_A_CACHE = (12, 9)
WITHOUT_A_CACHE = ("--no-cache",)
"""NVRTC's own cache starts the driver, after which no forked child can, and what comes from it has no log
of registers and spills. Source: NVRTC documentation 13.0, "Caching"; seen with 13.0.88 on an H200."""

FIRST_WITH_A_SEED = (12, 9)
SEED = ("--frandom-seed=dotcu",)
"""Without it the symbols of variables with internal linkage contain the number of the process, so that each
process compiles a source to other code. Source: seen with 13.0.88 and 13.5.0; NVRTC 12.8 lacks the option."""

ENABLE_TILE = "--enable-tile"
"""The option of CUDA 13.3 and later that takes tile kernels too, and makes Tile IR of them."""

HELLO = b"nvrtc"
"""What the program writes first."""

_COMPILE_TIME = re.compile(r"^ptxas info\s*: Compile time = .*\n?", re.MULTILINE)
"""The only line of a log that differs from one compile to the next."""

_SUCCESS = 0
_LENGTH_BYTES = 8


class NvrtcError(Exception):
    """The library cannot be loaded, or one of its functions failed or is missing."""


class Nvrtc:
    """A loaded libnvrtc.

    Args:
        path: The library.
        builtins: Libraries to load before it.
    """

    def __init__(self, path: str, builtins: Sequence[str]) -> None:
        self.path = path
        try:
            # NVRTC opens its builtins by bare name while it compiles: they have to be there by then.
            self._builtins = [ctypes.CDLL(file) for file in builtins]
            self._library = ctypes.CDLL(path)
            self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        except (OSError, AttributeError) as error:
            raise NvrtcError(f"cannot be loaded: {error}") from error

    def version(self) -> tuple[int, int]:
        """Return the CUDA version of the compiler."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def supported(self) -> tuple[int, ...]:
        """Return the architectures that the compiler makes code for: 75, 80, ..."""
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        archs = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", archs)
        return tuple(archs)

    def compile(
        self,
        name: bytes,
        text: bytes,
        headers: dict[bytes, bytes],
        arguments: Sequence[bytes],
        expressions: Sequence[bytes],
    ) -> str | dict[str, Any]:
        """Compile a source held in memory, with headers held in memory.

        Args:
            headers: Everything that can be included, by the name by which it is.
            expressions: Names whose symbols are wanted.

        Returns:
            The log where it is refused; else the log, the code and the symbols, each by its name.
        """
        program = ctypes.c_void_p()
        self._call(
            "nvrtcCreateProgram", ctypes.byref(program), text, name, len(headers),
            _strings(list(headers.values())), _strings(list(headers)),
        )  # fmt: skip
        try:
            for expression in expressions:
                self._call("nvrtcAddNameExpression", program, expression)
            version = self.version()
            uncached = WITHOUT_A_CACHE if version >= FIRST_WITH_A_CACHE else ()
            seed = SEED if version >= FIRST_WITH_A_SEED else ()
            options = [*arguments, *(each.encode() for each in (*uncached, *seed))]
            return self._compile(program, options, expressions)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _compile(
        self, program: ctypes.c_void_p, arguments: Sequence[bytes], expressions: Sequence[bytes]
    ) -> str | dict[str, Any]:
        status = self._library.nvrtcCompileProgram(program, len(arguments), _strings(arguments))
        # A NUL also stands between the output of the front end and that of ptxas.
        log = self._get(program, "ProgramLog").replace(b"\0", b"").decode(errors="replace")
        log = _COMPILE_TIME.sub("", log)
        if status != _SUCCESS:
            return log or self._explain(status)
        lowered = []
        for expression in expressions:
            symbol = ctypes.c_char_p()
            self._call("nvrtcGetLoweredName", program, expression, ctypes.byref(symbol))
            lowered.append(symbol.value or b"")
        return {
            "log": log,
            "ptx": self._get(program, "PTX").rstrip(b"\0"),
            "cubin": self._get(program, "CUBIN"),
            "tile_ir": self._get(program, "TileIR") if ENABLE_TILE.encode() in arguments else b"",
            "lowered": lowered,
        }

    def _get(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        if size.value == 0:
            return b""
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw

    def _explain(self, status: int) -> str:
        return (self._library.nvrtcGetErrorString(status) or b"").decode()

    def _call(self, function: str, *arguments: object) -> None:
        try:
            status = getattr(self._library, function)(*arguments)
        except AttributeError as error:
            raise NvrtcError(f"has no function {function}") from error
        if status != _SUCCESS:
            raise NvrtcError(f"failed in {function}: {self._explain(status)}")


def _strings(values: Sequence[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(values))(*values)


_loaded: dict[str, Nvrtc] = {}


def answer(path: str, builtins: Sequence[str], function: str, given: Sequence[Any]) -> tuple[str, Any]:
    """Call a function of a library, which is loaded once and never unloaded.

    Args:
        function: The name of a method of `Nvrtc`.

    Returns:
        "result" and what it returned, or "failed" and the reason.
    """
    try:
        if path not in _loaded:
            _loaded[path] = Nvrtc(path, builtins)
        return "result", getattr(_loaded[path], function)(*given)
    except NvrtcError as error:
        return "failed", str(error)


def frame(data: bytes) -> bytes:
    """Return some bytes with their length before them."""
    return len(data).to_bytes(_LENGTH_BYTES, "little") + data


def main() -> None:
    """Answer requests until stdin ends."""
    import threading

    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    # each request has a thread, so that this one sees the end of stdin during a compile
    threading.stack_size(64 << 20)

    def reply(request: bytes) -> None:
        try:
            folder, *call = marshal.loads(request)
            with contextlib.suppress(OSError):
                os.chdir(folder)
            answers.write(frame(marshal.dumps(answer(*call))))
            os.chdir("/")  # a folder that a process is in cannot be unmounted
            answers.flush()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)

    answers.write(frame(HELLO))
    answers.flush()
    while len(head := requests.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
        request = requests.read(int.from_bytes(head, "little"))
        threading.Thread(target=reply, args=(request,), daemon=True).start()
    os._exit(0)


if __name__ == "__main__":
    main()
