"""The compiler call: NVRTC through ctypes, from the library that was chosen.

ctypes releases the GIL during a call, and takes an explicit path: with several NVRTCs installed
the one that fits the driver is used, whatever another package has loaded.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dotcu import stopwatch
from dotcu.compile.cache import CacheEntry
from dotcu.errors import ToolchainError
from dotcu.files import matching

FIRST_WITH_A_CACHE = (12, 9)
WITHOUT_A_CACHE = ("--no-cache",)
"""NVRTC's own cache starts the driver, after which no forked child can, and what comes from it has no log
of registers and spills. Source: NVRTC documentation 13.0, "Caching"; seen with 13.0.88 on an H200."""

FIRST_WITH_A_SEED = (12, 9)
SEED = ("--frandom-seed=dotcu",)
"""Without it the symbols of variables with internal linkage contain the number of the process, so that each
process compiles a source to other code. Source: seen with 13.0.88 and 13.5.0; NVRTC 12.8 lacks the option."""

_COMPILE_TIME = re.compile(r"^ptxas info\s*: Compile time = .*\n?", re.MULTILINE)
"""The only line of a log that differs from one compile to the next."""

ENABLE_TILE = "--enable-tile"
"""The option of CUDA 13.3 and later that takes tile kernels too, and makes Tile IR of them."""

NO_TILE_KERNEL = b"__$dummy_kernel"
"""The kernel in the Tile IR of a source without one of its own, as long as no template is instantiated (seen:
NVRTC 13.5)."""

SUCCESS = 0


def builtin_libraries(library: Path) -> tuple[Path, ...]:
    """Return the library of built-in functions that is next to a libnvrtc."""
    return tuple(matching(library.parent, "libnvrtc-builtins.so.*.*"))[:1]


class Nvrtc:
    """A loaded libnvrtc."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # NVRTC opens its builtins by bare name while it compiles: they have to be there by then.
            self._builtins = [ctypes.CDLL(str(file)) for file in builtin_libraries(path)]
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise ToolchainError(
                f"The compiler {path} cannot be loaded: {error}.\n"
                'Install it again: pip install --force-reinstall "dotcu[cu13]"'
            ) from error
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

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
        name: str,
        text: str,
        *,
        headers: Mapping[str, bytes],
        arguments: Sequence[str],
        expressions: Sequence[str],
    ) -> CacheEntry | str:
        """Compile a source held in memory, with headers held in memory; return the log where it is refused.

        Args:
            name: The source's name in messages and line tables.
            text: The source.
            headers: Everything that can be included, by the name by which it is.
            arguments: The options.
            expressions: Names whose symbols are wanted.
        """
        program = ctypes.c_void_p()
        self._call(
            "nvrtcCreateProgram", ctypes.byref(program), _bytes(text), _bytes(name), len(headers),
            _strings(list(headers.values())), _strings([_bytes(header) for header in headers]),
        )  # fmt: skip
        try:
            for expression in expressions:
                self._call("nvrtcAddNameExpression", program, _bytes(expression))
            version = self.version()
            uncached = WITHOUT_A_CACHE if version >= FIRST_WITH_A_CACHE else ()
            seed = SEED if version >= FIRST_WITH_A_SEED else ()
            return self._compile(program, [*arguments, *uncached, *seed], expressions)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _compile(
        self, program: ctypes.c_void_p, arguments: Sequence[str], expressions: Sequence[str]
    ) -> CacheEntry | str:
        strings = _strings([_bytes(argument) for argument in arguments])
        status = self._library.nvrtcCompileProgram(program, len(arguments), strings)
        # A NUL also stands between the output of the front end and that of ptxas.
        log = self._get(program, "ProgramLog").replace(b"\0", b"").decode(errors="replace")
        log = _COMPILE_TIME.sub("", log)
        if status != SUCCESS:
            return log or self._explain(status)
        lowered = {}
        for expression in expressions:
            symbol = ctypes.c_char_p()
            self._call("nvrtcGetLoweredName", program, _bytes(expression), ctypes.byref(symbol))
            lowered[expression] = (symbol.value or b"").decode("utf-8", "surrogateescape")
        tile_ir = self._get(program, "TileIR") if ENABLE_TILE in arguments else b""
        return CacheEntry(
            about={},
            log=log,
            ptx=self._get(program, "PTX").rstrip(b"\0").decode("utf-8", "surrogateescape"),
            cubin=self._get(program, "CUBIN") or None,
            tile_ir=b"" if NO_TILE_KERNEL in tile_ir else tile_ir,
            lowered=lowered,
        )

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
        status = getattr(self._library, function)(*arguments)
        if status != SUCCESS:
            raise ToolchainError(
                f"The compiler {self.path} failed in {function}: {self._explain(status)}.\n"
                'Install it again: pip install --force-reinstall "dotcu[cu13]"'
            )


def _bytes(text: str) -> bytes:
    """Return text as it was on disk, also if it was not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _strings(values: Sequence[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(values))(*values)


@functools.cache
def load(path: Path) -> Nvrtc:
    """Return the library at `path`, loaded once and never unloaded."""
    with stopwatch.during("nvrtc"):
        return Nvrtc(path)
