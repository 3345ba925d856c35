"""The names that an object file takes from elsewhere, from its ELF symbol table."""

from __future__ import annotations

import struct
from collections.abc import Iterator

# Source: System V ABI, "Object Files": ELF-64, little-endian.
_SECTIONS = struct.Struct("<40xQ10xHHH")  # e_shoff; e_shentsize, e_shnum, e_shstrndx
_SECTION = struct.Struct("<4xI16xQQI12xQ")  # sh_type, sh_offset, sh_size, sh_link, sh_entsize
_SYMBOL = struct.Struct("<IBxH16x")  # st_name, st_info, st_shndx
_SYMBOL_TABLE, _UNDEFINED = 2, 0


def undefined(data: bytes) -> Iterator[str]:
    """The symbols that an object file uses and does not define."""
    start, size, count, _ = _SECTIONS.unpack_from(data)
    sections = [_SECTION.unpack_from(data, start + index * size) for index in range(count)]
    for kind, offset, length, link, entry in sections:
        if kind == _SYMBOL_TABLE:
            _, names, extent, _, _ = sections[link]
            strings = data[names : names + extent]
            for at in range(offset, offset + length, entry):
                name, _, section = _SYMBOL.unpack_from(data, at)
                if section == _UNDEFINED and name:
                    yield strings[name : strings.index(b"\0", name)].decode("utf-8", "replace")
