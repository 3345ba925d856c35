"""What a call allocates and launches, in numbers: as a body did it, or as a plan says it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class Made:
    """Memory that is allocated; strides in elements."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    zeroed: bool


@dataclass(frozen=True, kw_only=True)
class Address:
    """A parameter that is an address.

    Attributes:
        offset: Where it is among the parameters.
        argument: Whether it is of an argument's memory, else of an allocation's.
        source: Of which; -1 for the null of a tensor without elements.
        bytes: From the first element of that.
    """

    offset: int
    argument: bool
    source: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A launch; `parameters` has zeros where addresses go."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    smem_bytes: int
    cluster: tuple[int, ...] | None
    cooperative: bool
    programmatic: bool
    parameters: bytes
    addresses: tuple[Address, ...]


@dataclass(frozen=True, kw_only=True)
class Effects:
    """What a call does. `results` are indices of allocations."""

    allocations: tuple[Made, ...]
    launches: tuple[Ran, ...]
    results: tuple[int, ...]


_PARTS = {"allocations": "allocation", "launches": "launch", "results": "result"}


def compare(prepared: Effects, seen: Effects) -> str | None:
    """The first difference between what a plan says and what the body did; None where there is none."""
    for what, one in _PARTS.items():
        planned, real = getattr(prepared, what), getattr(seen, what)
        if len(planned) != len(real):
            return f"the plan has {len(planned)} {what}, the body {len(real)}"
        for index, (a, b) in enumerate(zip(planned, real, strict=True)):
            if a != b:
                return f"{one} {index}: {_difference(a, b)}"
    return None


def _difference(planned: Any, real: Any) -> str:
    if isinstance(planned, int):
        return f"the plan says {planned}, the body {real}"
    name = next(f.name for f in fields(planned) if getattr(planned, f.name) != getattr(real, f.name))
    return f"{name} is {getattr(planned, name)!r} in the plan, {getattr(real, name)!r} in the body"
