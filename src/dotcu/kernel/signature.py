"""A kernel's parameter list, from the signature probe and the PTX entry.

The probe's mangled name has every type; the `.param` lines of the entry have the sizes and
alignments, which a struct's name alone does not tell; the source has the names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dotcu.errors import SourceError
from dotcu.kernel.mangling import CType, parameter_types, spell


class EntryParameter(Protocol):
    """What is needed of a `.param` line."""

    @property
    def size(self) -> int: ...
    @property
    def align(self) -> int: ...
    @property
    def ptx_type(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter. `str()` gives its declaration.

    Attributes:
        ptx_type: The type of its `.param`; "b8" for a struct, which is an array of bytes.
        offset: Where it lies in the parameter block, in bytes.
    """

    index: int
    name: str
    ctype: CType
    size: int
    alignment: int
    offset: int
    ptx_type: str

    def __str__(self) -> str:
        return spell(self.ctype, f" {self.name}" if self.name else "")

    @property
    def label(self) -> str:
        """Its name, or its position where the source gives it none."""
        return self.name or f"parameter {self.index + 1}"


@dataclass(frozen=True, kw_only=True)
class Signature:
    """A kernel's name and parameters. `str()` gives its declaration."""

    kernel: str
    parameters: tuple[Parameter, ...]

    def __str__(self) -> str:
        return f"{self.kernel}({', '.join(map(str, self.parameters))})"


def signature(kernel: str, *, probe: str, names: Sequence[str], entry: Sequence[EntryParameter]) -> Signature:
    """Join what probe, source and entry say of a kernel.

    Args:
        kernel: The name shown in messages.
        probe: The mangled name of the signature probe's instantiation.
        names: The parameters' names as in the source; may be empty or too short.
        entry: The `.param` lines of the kernel's PTX entry.

    Raises:
        SourceError: Probe and entry disagree, so that no argument could be placed safely.
    """
    types = parameter_types(probe)
    if len(types) != len(entry):
        raise SourceError(
            f"{kernel} has {len(types)} parameters by its type and {len(entry)} by its PTX entry, so its "
            "arguments cannot be placed.\nGive every parameter a type of known, nonzero size."
        )
    padded = [*names, *([""] * len(types))] if len(names) <= len(types) else [""] * len(types)
    parameters, offset = [], 0
    for index, (ctype, param) in enumerate(zip(types, entry, strict=True)):
        offset = -(-offset // param.align) * param.align
        parameters.append(
            Parameter(
                index=index,
                name=padded[index],
                ctype=ctype,
                size=param.size,
                alignment=param.align,
                offset=offset,
                ptx_type=param.ptx_type.lstrip("."),
            )
        )
        offset += param.size
    return Signature(kernel=kernel, parameters=tuple(parameters))
