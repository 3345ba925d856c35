"""Debug information in PTX: the entries of DWARF 2, which directives such as `.b8 1,2,3` spell out.

Only what describes types is read. Source: DWARF Debugging Information Format 2.0, section 7; PTX ISA,
"Debugging Directives"; seen with NVRTC 12.8 and 13.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from io import SEEK_CUR, BytesIO
from typing import Any

_SECTION = r"\.section\s+\.debug_{}\s*\{{(.*?)\}}"
_DATA = re.compile(r"^\s*\.b(8|16|32|64)\s+([^\n]*)", re.MULTILINE)

_TAGS = {
    0x01: "array", 0x02: "struct", 0x04: "enum", 0x05: "parameter", 0x0D: "member", 0x0F: "pointer",
    0x10: "reference", 0x13: "struct", 0x15: "function type", 0x16: "typedef", 0x17: "union", 0x21: "range",
    0x24: "builtin", 0x26: "const", 0x2E: "function", 0x35: "volatile", 0x37: "restrict", 0x3B: "void",
}  # fmt: skip
_ATTRIBUTES = {
    0x03: "name", 0x0B: "bytes", 0x0D: "bits", 0x37: "count", 0x38: "offset", 0x3A: "file", 0x49: "type",
    0x2007: "symbol",
}  # fmt: skip
_FIXED = {0x01: 8, 0x05: 2, 0x06: 4, 0x07: 8, 0x0B: 1, 0x0C: 1, 0x11: 1, 0x12: 2, 0x13: 4, 0x14: 8}
_BLOCKS = {0x03: 2, 0x04: 4, 0x0A: 1}  # by the size of their length
_STRING, _BLOCK = 0x08, 0x09
_HEADER_BYTES = 11
_PLUS = 0x23  # the operation that places a member: the start of the struct plus a number


TypeRow = dict[str, Any]
"""A type: its "tag"; "name"; "size" in bytes; "const"; "to", the row of what it leads to; "length" of an
array; "members" of a struct or a union, each with its name, its offset, whether it is a bit-field, and its
row."""


def parameter_types(ptx: str, symbol: str) -> list[TypeRow]:
    """Return the types that a kernel's parameters need, as rows of plain data.

    Args:
        ptx: Code that was compiled with debug information.
        symbol: The kernel's.

    Returns:
        The rows. The parameters are the members of the first; there is none if the kernel is not in the code.
    """
    entries = _entries(ptx)
    for entry in entries.values():
        if entry["tag"] == "function" and symbol in (entry.get("symbol"), entry.get("name")):
            table = _TypeTable(entries)
            parts = [part for part in entry["parts"] if part["tag"] == "parameter"]
            table.rows[0]["members"] = [
                [part.get("name", ""), 0, False, table.row(part["type"])] for part in parts
            ]
            return table.rows
    return []


_QUALIFIERS = ("const", "volatile", "restrict", "typedef")


class _TypeTable:
    """Rows for the entries of types, each made once: a struct may lead to itself."""

    def __init__(self, entries: Mapping[int, _Entry]) -> None:
        self.entries = entries
        self.rows: list[TypeRow] = [{"tag": "function"}]
        self._known: dict[tuple[int, bool], int] = {}

    def row(self, key: int | None) -> int:
        """Return the number of a type's row."""
        is_const, entry = False, self._entry(key)
        while entry["tag"] in _QUALIFIERS:
            is_const |= entry["tag"] == "const"
            key = entry.get("type")
            entry = self._entry(key)
        known = (-1 if key is None else key, is_const)
        if known not in self._known:
            self._known[known] = len(self.rows)
            name, size = entry.get("name", ""), entry.get("bytes", 0)
            row = {"tag": entry["tag"], "name": name, "size": size, "const": is_const}
            self.rows.append(row)
            if entry["tag"] in ("pointer", "reference", "array"):
                row["to"] = self.row(entry.get("type"))
            if entry["tag"] == "array":
                *outer, row["length"] = (part.get("count", 0) for part in entry["parts"])
                for length in reversed(outer):  # each around the one before
                    self.rows.append(dict(row))
                    row |= {"to": len(self.rows) - 1, "length": length}
            elif entry["tag"] in ("struct", "union"):
                row["members"] = [list(member) for member in self._members(entry, 0)]
        return self._known[known]

    def _entry(self, key: int | None) -> _Entry:
        return {"tag": "void", "name": "void", "parts": []} if key is None else self.entries[key]

    def _members(self, entry: _Entry, start: int) -> Iterator[tuple[str, int, bool, int]]:
        """Yield the members of a struct; those of its bases, and of unnamed members, are among them."""
        own = [part.get("name", "") for part in entry["parts"]]
        for part in entry["parts"]:
            offset = part.get("offset", 0 if entry["tag"] == "union" else -1)
            if part["tag"] != "member" or offset < 0:  # a static one has no place
                continue
            name, inner = part.get("name", ""), self._entry(part["type"])
            is_base = name.startswith("__b_") and "file" not in part
            if inner["tag"] in ("struct", "union") and (is_base or not name):
                for inherited, at, is_bits, number in self._members(inner, start + offset):
                    hidden = f"{inner['name']}::" if inherited in own else ""
                    yield hidden + inherited, at, is_bits, number
            else:
                yield name, start + offset, "bits" in part, self.row(part["type"])


_Entry = dict[str, Any]
"""The description of one type, function, parameter or member.

Its "tag", empty if it is no type; "parts", the entries inside it; as far as it has them "name" and "symbol";
"bytes", "bits", "count", "offset", and "type", the key of an entry.
"""


def _entries(ptx: str) -> dict[int, _Entry]:
    """Return the entries by their offset, by which they name each other."""
    kinds = dict(_abbreviations(BytesIO(_section(ptx, "abbrev"))))
    data = _section(ptx, "info")
    reader = BytesIO(data)
    reader.seek(_HEADER_BYTES)
    entries: dict[int, _Entry] = {}
    parents: list[_Entry] = []
    while (start := reader.tell()) < len(data):
        code = _leb(reader)
        if code == 0:
            del parents[-1:]
            if not parents:
                break
            continue
        tag, has_parts, attributes = kinds[code]
        values = {_ATTRIBUTES.get(name, ""): _value(reader, form) for name, form in attributes}
        entry: _Entry = {**values, "tag": _TAGS.get(tag, ""), "parts": []}
        entries[start] = entry
        if parents:
            parents[-1]["parts"].append(entry)
        if has_parts:
            parents.append(entry)
    return entries


def _section(ptx: str, name: str) -> bytes:
    """Return a section's bytes; symbols, which are addresses of code, are zeros."""
    found = re.search(_SECTION.format(name), ptx, re.DOTALL)
    data = bytearray()
    for bits, values in _DATA.findall(found[1] if found else ""):
        for value in values.split(","):
            text = value.strip()
            number = int(text, 0) if text.lstrip("-")[:1].isdigit() else 0
            data += (number & ((1 << int(bits)) - 1)).to_bytes(int(bits) // 8, "little")
    return bytes(data)


def _abbreviations(reader: BytesIO) -> Iterator[tuple[int, tuple[int, bool, list[tuple[int, int]]]]]:
    """Yield the forms of entries: code, tag, whether there are parts, and the attributes and their forms."""
    while code := _leb(reader):
        tag, has_parts = _leb(reader), bool(_number(reader, 1))
        pairs = list(iter(lambda: (_leb(reader), _leb(reader)), (0, 0)))
        yield code, (tag, has_parts, pairs)


def _number(reader: BytesIO, size: int) -> int:
    return int.from_bytes(reader.read(size), "little")


def _leb(reader: BytesIO) -> int:
    """Read a number of seven bits a byte; 0 at the end."""
    result = shift = 0
    while True:
        byte = _number(reader, 1)
        result |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return result


def _value(reader: BytesIO, form: int) -> int | str:
    """Read an attribute: a number, a text, or a block; of one that places a member, the offset."""
    if form in _FIXED:
        return _number(reader, _FIXED[form])
    if form == _STRING:
        text = b""
        while (end := text.find(b"\0")) < 0:
            text += reader.read(64) or b"\0"
        reader.seek(end + 1 - len(text), SEEK_CUR)
        return text[:end].decode(errors="replace")
    if form == _BLOCK or form in _BLOCKS:
        block = reader.read(_number(reader, _BLOCKS[form]) if form in _BLOCKS else _leb(reader))
        return _leb(BytesIO(block[1:])) if block[:1] == bytes([_PLUS]) else -1
    return _leb(reader)
