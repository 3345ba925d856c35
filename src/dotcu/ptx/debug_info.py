"""Debug information in PTX: the entries of DWARF 2, which directives such as `.b8 1,2,3` spell out.

Only what describes types is read. Source: DWARF Debugging Information Format 2.0, section 7; PTX ISA,
"Debugging Directives"; seen with NVRTC 12.8 and 13.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
        if entry.tag == "function" and symbol in (entry.values.get("symbol"), entry.values.get("name")):
            table = _TypeTable(entries)
            parts = [part for part in entry.parts if part.tag == "parameter"]
            table.rows[0]["members"] = [
                [part.values.get("name", ""), 0, False, table.row(part.values["type"])] for part in parts
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
        while entry.tag in _QUALIFIERS:
            is_const |= entry.tag == "const"
            key = entry.values.get("type")
            entry = self._entry(key)
        known = (-1 if key is None else key, is_const)
        if known not in self._known:
            self._known[known] = len(self.rows)
            name, size = entry.values.get("name", ""), entry.values.get("bytes", 0)
            row = {"tag": entry.tag, "name": name, "size": size, "const": is_const}
            self.rows.append(row)
            if entry.tag in ("pointer", "reference", "array"):
                row["to"] = self.row(entry.values.get("type"))
            if entry.tag == "array":
                *outer, row["length"] = (part.values.get("count", 0) for part in entry.parts)
                for length in reversed(outer):  # each around the one before
                    self.rows.append(dict(row))
                    row |= {"to": len(self.rows) - 1, "length": length}
            elif entry.tag in ("struct", "union"):
                row["members"] = [list(member) for member in self._members(entry, 0)]
        return self._known[known]

    def _entry(self, key: int | None) -> _Entry:
        return _Entry(tag="void", values={"name": "void"}) if key is None else self.entries[key]

    def _members(self, entry: _Entry, start: int) -> Iterator[tuple[str, int, bool, int]]:
        """Yield the members of a struct; those of its bases, and of unnamed members, are among them."""
        own = [part.values.get("name", "") for part in entry.parts]
        for part in entry.parts:
            offset = part.values.get("offset", 0 if entry.tag == "union" else -1)
            if part.tag != "member" or offset < 0:  # a static one has no place
                continue
            name, inner = part.values.get("name", ""), self._entry(part.values["type"])
            is_base = name.startswith("__b_") and "file" not in part.values
            if inner.tag in ("struct", "union") and (is_base or not name):
                for inherited, at, is_bits, number in self._members(inner, start + offset):
                    hidden = f"{inner.values['name']}::" if inherited in own else ""
                    yield hidden + inherited, at, is_bits, number
            else:
                yield name, start + offset, "bits" in part.values, self.row(part.values["type"])


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """The description of one type, function, parameter or member.

    Attributes:
        tag: What it is about; empty if that is no type.
        values: "name" and "symbol"; "bytes", "bits", "count", "offset", and "type", the key of an entry.
        parts: The entries inside it.
    """

    tag: str
    values: Mapping[str, Any]
    parts: list[_Entry] = field(default_factory=list)


def _entries(ptx: str) -> dict[int, _Entry]:
    """Return the entries by their offset, by which they name each other."""
    kinds = dict(_abbreviations(_SectionReader(_section(ptx, "abbrev"))))
    reader = _SectionReader(_section(ptx, "info"), _HEADER_BYTES)
    entries: dict[int, _Entry] = {}
    parents: list[_Entry] = []
    while reader.at < len(reader.data):
        start, code = reader.at, reader.leb()
        if code == 0:
            del parents[-1:]
            if not parents:
                break
            continue
        tag, has_parts, attributes = kinds[code]
        values = {_ATTRIBUTES.get(name, ""): reader.value(form) for name, form in attributes}
        entries[start] = entry = _Entry(tag=_TAGS.get(tag, ""), values=values)
        if parents:
            parents[-1].parts.append(entry)
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


def _abbreviations(reader: _SectionReader) -> Iterator[tuple[int, tuple[int, bool, list[tuple[int, int]]]]]:
    """Yield the forms of entries: code, tag, whether there are parts, and the attributes and their forms."""
    while reader.at < len(reader.data) and (code := reader.leb()):
        tag, has_parts = reader.leb(), bool(reader.number(1))
        pairs = list(iter(lambda: (reader.leb(), reader.leb()), (0, 0)))
        yield code, (tag, has_parts, pairs)


class _SectionReader:
    """A place in a section."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def take(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def leb(self) -> int:
        """Read a number of seven bits a byte."""
        result = shift = 0
        while True:
            byte = self.number(1)
            result |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return result

    def value(self, form: int) -> int | str:
        """Read an attribute: a number, a text, or a block; of one that places a member, the offset."""
        if form in _FIXED:
            return self.number(_FIXED[form])
        if form == _STRING:
            text = self.take(self.data.index(0, self.at) - self.at).decode(errors="replace")
            self.at += 1
            return text
        if form == _BLOCK or form in _BLOCKS:
            block = self.take(self.number(_BLOCKS[form]) if form in _BLOCKS else self.leb())
            return _SectionReader(block, 1).leb() if block[:1] == bytes([_PLUS]) else -1
        return self.leb()
