"""The layout of structs: members, offsets and types, from the debug information of a compile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dotcu.kernel.arguments.signature import CType, shown_name
from dotcu.ptx.debug_info import TypeRow


@dataclass(frozen=True)
class TypeLayout:
    """A type as the compiler lays it out: a row of `parameter_types`."""

    rows: Sequence[TypeRow]
    number: int

    @property
    def row(self) -> TypeRow:
        return self.rows[self.number]

    @property
    def size(self) -> int:
        """In bytes."""
        if self.row["tag"] == "array":
            return int(self.row["length"] * self.target.size)
        return int(self.row["size"]) or 8 * ("to" in self.row)

    @property
    def ptx_type(self) -> str:
        """As a parameter's: "b8" for a struct, a union or an array."""
        return "b8" if self.row["tag"] in ("struct", "union", "array") else f"u{8 * self.size}"

    @property
    def target(self) -> TypeLayout:
        """The type that a pointer leads to, or an array's element."""
        return TypeLayout(self.rows, self.row["to"])

    @property
    def ctype(self) -> CType:
        """The type without its members."""
        row, const = self.row, bool(self.row["const"])
        if row["tag"] == "array":
            return CType(kind="array", target=self.target.ctype, length=row["length"], const=const)
        if "to" in row:
            return CType(kind="pointer", target=self.target.ctype, const=const)
        kind = {"builtin": "builtin", "void": "builtin", "function type": "function"}.get(row["tag"], "named")
        target = CType(kind="builtin", name="void") if kind == "function" else None
        name = shown_name(row["name"])  # some are mangled; those of unnamed types no source can write
        name = f"an unnamed {row['tag']}" if not name or name.startswith(("_Z", "__C")) else name
        return CType(kind=kind, name=name, target=target, const=const)

    def members(self) -> Iterator[Member]:
        """The members of a struct or a union."""
        for name, offset, is_bits, number in self.row.get("members", ()):
            yield Member(name=name, offset=offset, is_bits=is_bits, layout=TypeLayout(self.rows, number))


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member of a struct.

    Attributes:
        offset: In bytes, from the start of the struct.
        is_bits: It is a bit-field.
    """

    name: str
    offset: int
    is_bits: bool
    layout: TypeLayout
