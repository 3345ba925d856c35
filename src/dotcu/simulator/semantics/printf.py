"""printf's formats, filled as the C library of the host does, which prints for the device.

Source: CUDA C++ Programming Guide, "Formatted Output"; ISO C, "The fprintf function".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

DIRECTIVE = re.compile(
    r"%(?:%|(?P<flags>[-+ #0]*)(?P<width>\d+|\*)?(?:\.(?P<precision>\d+|\*)?)?"
    r"(?P<length>hh|h|ll|l|j|z|t)?(?P<kind>[diouxXeEfFgGaAcsp]))"
)
_SIZES = {"hh": 1, "h": 2, "": 4, "l": 8, "ll": 8, "j": 8, "z": 8, "t": 8}
_NO_TEXT = "(null)"

Take = Callable[[int], bytes]


def fill(text: str, take: Take, string: Callable[[int], str]) -> str:
    """A format with its values.

    Args:
        take: Gives the bytes of the next argument, by its size.
        string: Gives the string at an address.
    """

    def replace(match: re.Match[str]) -> str:
        if match.group() == "%%":
            return "%"
        return _filled(match, take, string)

    return DIRECTIVE.sub(replace, text)


def _integer(raw: bytes, *, signed: bool) -> int:
    return int.from_bytes(raw, "little", signed=signed)


def _filled(match: re.Match[str], take: Take, string: Callable[[int], str]) -> str:
    flags, width, precision = match["flags"], match["width"] or "", match["precision"]
    if width == "*":
        number = _integer(take(4), signed=True)
        flags, width = flags + ("-" if number < 0 else ""), str(abs(number))
    if precision is None and "." in match.group():
        precision = "0"
    if precision == "*":
        number = _integer(take(4), signed=True)
        precision = str(number) if number >= 0 else None
    spec = flags + width + ("" if precision is None else f".{precision}")
    return _one(match["kind"], match["length"] or "", spec, take, string)


def _one(kind: str, length: str, spec: str, take: Take, string: Callable[[int], str]) -> str:
    if kind in "eEfFgG":
        return str(f"%{spec}{kind}" % struct.unpack("<d", take(8))[0])
    if kind in "aA":
        return _padded(spec, _hexadecimal(struct.unpack("<d", take(8))[0], upper=kind == "A"))
    if kind == "s":
        address = _integer(take(8), signed=False)
        return f"%{spec}s" % (string(address) if address else _NO_TEXT)
    if kind == "p":
        address = _integer(take(8), signed=False)
        return _padded(spec, f"{address:#x}" if address else "(nil)")
    if kind == "c":
        return _padded(spec, chr(take(4)[0]))
    size = _SIZES[length]
    raw = take(max(size, 4))[:size]
    if kind == "o" and "#" in spec:
        return _padded(spec, "0" + f"{_integer(raw, signed=False):o}".lstrip("0"))
    spelled = "d" if kind in "diu" else kind
    return f"%{spec}{spelled}" % _integer(raw, signed=kind in "di")


def _padded(spec: str, text: str) -> str:
    width = re.search(r"[1-9]\d*", spec.split(".")[0])
    if width is None:
        return text
    return text.ljust(int(width.group())) if "-" in spec else text.rjust(int(width.group()))


def _hexadecimal(value: float, *, upper: bool) -> str:
    """A float as C writes it: without the zeros at the end."""
    text = re.sub(r"\.?0*p", "p", value.hex())
    return text.upper() if upper else text
