"""C++ element types and torch dtypes: which tensor fits which pointer, and how C++ spells a dtype.

Sources: CUDA 13.0 vector_types.h (sizes and alignment of the vector types), cuda_fp16.h,
cuda_bf16.h, cuda_fp8.h; `long` is 64 bits wide, since Linux is what a kernel is compiled for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dotcu.compile import Declaration
from dotcu.errors import ArgumentError
from dotcu.kernel import templates


@dataclass(frozen=True, kw_only=True)
class Element:
    """What a pointer leads to.

    Attributes:
        name: The C++ type.
        dtypes: The torch dtypes whose memory it reads rightly.
        scalar: The C++ type of one lane.
        lanes: How many elements of the tensor one C++ object covers.
    """

    name: str
    dtypes: tuple[torch.dtype, ...]
    scalar: str
    lanes: int
    size: int
    alignment: int


_INTS = {8: (torch.int8, torch.uint8), 16: (torch.int16, torch.uint16)}
_INTS |= {32: (torch.int32, torch.uint32), 64: (torch.int64, torch.uint64)}

_SCALARS: dict[str, tuple[torch.dtype, ...]] = {
    "bool": (torch.bool,),
    "char": _INTS[8],
    "signed char": _INTS[8],
    "unsigned char": (torch.uint8, torch.int8),
    "short": _INTS[16],
    "unsigned short": (torch.uint16, torch.int16),
    "int": _INTS[32],
    "unsigned int": (torch.uint32, torch.int32),
    "long": _INTS[64],
    "unsigned long": (torch.uint64, torch.int64),
    "long long": _INTS[64],
    "unsigned long long": (torch.uint64, torch.int64),
    "float": (torch.float32,),
    "double": (torch.float64,),
    "__half": (torch.float16,),
    "__nv_bfloat16": (torch.bfloat16,),
    "__nv_fp8_e4m3": (torch.float8_e4m3fn,),
    "__nv_fp8_e5m2": (torch.float8_e5m2,),
    "__nv_fp8_e8m0": (torch.float8_e8m0fnu,),
}

# The stem of a vector type: the type of its lanes, the widest alignment of two and of four lanes.
_VECTOR_STEMS = {
    "char": ("signed char", 2, 4), "uchar": ("unsigned char", 2, 4),
    "short": ("short", 4, 8), "ushort": ("unsigned short", 4, 8),
    "int": ("int", 8, 16), "uint": ("unsigned int", 8, 16),
    "long": ("long", 16, 16), "ulong": ("unsigned long", 16, 16),
    "longlong": ("long long", 16, 16), "ulonglong": ("unsigned long long", 16, 16),
    "float": ("float", 8, 16), "double": ("double", 16, 16),
}  # fmt: skip
_WIDE_STEMS = ("long", "ulong", "longlong", "ulonglong", "double")  # have float64x4 as _16a and _32a
_PACKED = {
    "__half2": ("__half", 2), "__nv_bfloat162": ("__nv_bfloat16", 2),
    "__nv_fp8x2_e4m3": ("__nv_fp8_e4m3", 2), "__nv_fp8x4_e4m3": ("__nv_fp8_e4m3", 4),
    "__nv_fp8x2_e5m2": ("__nv_fp8_e5m2", 2), "__nv_fp8x4_e5m2": ("__nv_fp8_e5m2", 4),
}  # fmt: skip


def _scalar(name: str) -> Element:
    size = _SCALARS[name][0].itemsize
    return Element(name=name, dtypes=_SCALARS[name], scalar=name, lanes=1, size=size, alignment=size)


def _vector(name: str, scalar: str, lanes: int, alignment: int) -> Element:
    size = _SCALARS[scalar][0].itemsize * lanes
    return Element(
        name=name, dtypes=_SCALARS[scalar], scalar=scalar, lanes=lanes, size=size, alignment=alignment
    )


def _table() -> dict[str, Element]:
    rows = [_scalar(name) for name in _SCALARS]
    for stem, (scalar, of_two, of_four) in _VECTOR_STEMS.items():
        own = _SCALARS[scalar][0].itemsize
        for lanes, alignment in ((1, own), (2, of_two), (3, own), (4, of_four)):
            rows.append(_vector(f"{stem}{lanes}", scalar, lanes, alignment))
        if stem in _WIDE_STEMS:
            rows.append(_vector(f"{stem}4_16a", scalar, 4, 16))
            rows.append(_vector(f"{stem}4_32a", scalar, 4, 32))
    for name, (scalar, lanes) in _PACKED.items():
        rows.append(_vector(name, scalar, lanes, _SCALARS[scalar][0].itemsize * lanes))
    return {row.name: row for row in rows}


ELEMENTS = _table()
"""Every element type that dotcu knows, by its C++ name. A pointer to any other takes any tensor."""

ADDRESS = Element(
    name="a pointer", dtypes=(torch.int64, torch.uint64), scalar="unsigned long", lanes=1, size=8, alignment=8
)

SPELLINGS: dict[torch.dtype, str] = {getattr(torch, name): text for name, text in templates.TYPES.items()}


def spelling(dtype: torch.dtype) -> str:
    """The C++ type of a torch dtype.

    Raises:
        ArgumentError: C++ has no type for it; names those that can be given.
    """
    if dtype in SPELLINGS:
        return SPELLINGS[dtype]
    if dtype.is_complex:
        part = str(dtype.to_real()).removeprefix("torch.")
        remedy = f'Pass torch.view_as_real(t) to a kernel of {part}, or name a C++ type: ["float2"].'
    else:
        remedy = f"Use one of {', '.join(str(d) for d in SPELLINGS)}, or name a C++ type as a str."
    raise ArgumentError(f"{dtype} has no C++ type that a template can be instantiated with.\n{remedy}")


def spell_arguments(declaration: Declaration, values: Sequence[Any]) -> tuple[str, ...]:
    """Template arguments as C++ text.

    Raises:
        ArgumentError: Too few or too many, or of a kind that C++ has no text for.
    """
    templates.require_count(declaration, values)
    return tuple(_spell(declaration, value) for value in values)


def _spell(declaration: Declaration, value: Any) -> str:
    if isinstance(value, torch.dtype):
        return spelling(value)
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, str) and value.strip():
        return " ".join(value.split())
    raise ArgumentError(
        f"{declaration.name}: a template argument is a torch dtype, an int, a bool or C++ text as a str, "
        f"got {type(value).__name__} {value!r}.\n{templates.how(declaration)}"
    )


def dtype_names(dtypes: tuple[torch.dtype, ...]) -> str:
    """ "float32" or "int32 or uint32"."""
    return " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
