"""printf's formats against the C library's own."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest

from dotcu.simulator.semantics.builtins import fill

LIBC = ctypes.CDLL(None)
STRINGS = {16: "text", 32: ""}


def c_prints(text: str, *values: Any) -> str:
    buffer = ctypes.create_string_buffer(1000)
    LIBC.snprintf(buffer, ctypes.c_size_t(1000), text.encode(), *values)
    return buffer.value.decode()


def prints(text: str, *values: Any) -> str:
    """The format, filled with values that lie one behind the other, as the device lays them out."""
    packed = b""
    for value in values:
        raw = bytes(value) if not isinstance(value, bytes) else struct.pack("<Q", 16)
        packed += b"\0" * (-len(packed) % len(raw)) + raw
    offset = 0

    def take(size: int) -> bytes:
        nonlocal offset
        offset = -(-offset // size) * size
        offset += size
        return packed[offset - size : offset]

    return fill(text, take, lambda address: STRINGS[address])


D4, U4, D8, U8, F8 = ctypes.c_int, ctypes.c_uint, ctypes.c_longlong, ctypes.c_ulonglong, ctypes.c_double
CASES = [
    ("no values, 100%%\n",),
    ("%d %i %u", D4(-5), D4(7), U4(2**32 - 5)),
    ("%5d|%-5d|%05d|%+d|% d", D4(42), D4(42), D4(42), D4(42), D4(42)),
    ("%.4d|%8.4d|%-8.4d|", D4(-42), D4(42), D4(42)),
    ("%x %X %#x %o %#o", U4(255), U4(255), U4(255), U4(8), U4(8)),
    ("%lld %llu %ld %lu %zu", D8(-(2**62)), U8(2**64 - 1), D8(-1), U8(1), U8(5)),
    ("%d %lld %d", D4(1), D8(2), D4(3)),
    ("%hhd %hhu %hd %hu", D4(300), D4(300), D4(70000), D4(70000)),
    ("%f %e %g %G", F8(1.5), F8(-12345.678), F8(1e-9), F8(1e20)),
    ("%10.3f|%-10.3f|%+.0f|%#.0f", F8(3.14159), F8(3.14159), F8(2.5), F8(2.5)),
    ("%f %e %g %F", F8(float("inf")), F8(float("-inf")), F8(float("nan")), F8(float("inf"))),
    ("%a %A %a", F8(1.5), F8(-0.1), F8(0.0)),
    ("%*d|%-*d|%*d", D4(6), D4(42), D4(6), D4(42), D4(-6), D4(42)),
    ("%.*f|%.*f", D4(2), F8(3.14159), D4(-1), F8(3.14159)),
    ("%.f|%.d", F8(2.5), D4(7)),
    ("%c%c|%3c|%-3c|", D4(65), D4(98), D4(67), D4(68)),
    ("%s|%6s|%-6s|%.2s|%*s", b"text", b"text", b"text", b"text", D4(6), b"text"),
    ("%p|%12p", ctypes.c_void_p(0xABC), ctypes.c_void_p(0xABC)),
]


@pytest.mark.parametrize("case", CASES, ids=[c[0].strip() for c in CASES])
def test_formats_print_as_in_c(case: tuple[Any, ...]) -> None:
    assert prints(*case) == c_prints(*case)


def test_null_pointers_are_reported() -> None:
    assert prints("%p %s", ctypes.c_ulonglong(0), ctypes.c_ulonglong(0)) == "(nil) (null)"


@pytest.mark.parametrize("format", ["%999999999d", "%." + "9" * 5000 + "d", "%*d", "%.*d"])
def test_a_width_that_would_fill_memory_is_bounded(format: str) -> None:
    values = [D4(2_000_000_000), D4(7)] if "*" in format else [D4(7)]
    assert len(prints(format, *values)) == 4095
