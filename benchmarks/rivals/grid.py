"""The grid: sixty shapes at which a kernel of whole vectors stumbles.

Rows of odd and prime lengths and off by one from a power of two, tall and flat matrices, tensors that begin
one element off every alignment, and the vocabularies of GPT-2 (50257) and Llama (32000, 128256).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import dotcu
from rivals.cases import BF16, F32, Case, random

LEAST = 0.95
"""The others' time over dotcu's, at least."""

PERCENT, LARGE_BYTES = 75.0, 64 << 20
"""The share of the limit that is the goal for calls that move so many bytes, or more."""

OFF = "off by one element"

BACKWARD_MOVES = {"softmax": 3, "rms_norm": 3, "layer_norm": 3, "swiglu": 5, "cross_entropy": 2}
"""Tensors of the first one's size that differentiating moves."""

BACKWARD: dict[str, Any] = {"backward": True}
UNALIGNED: dict[str, Any] = {"off": True}
NORM_ROWS: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((32768, 257), {}),
    ((8192, 4097), {}),
    ((10007, 5119), {}),
    ((4096, 12289), {}),
    ((8192, 4096), UNALIGNED),
    ((32768, 257), BACKWARD),
    ((8192, 4097), BACKWARD),
)

SHAPES: dict[str, tuple[tuple[tuple[int, ...], dict[str, Any]], ...]] = {
    "softmax": (
        ((3000, 50257), {}),
        ((4096, 32000), {}),
        ((2048, 128256), {}),
        ((32768, 257), {}),
        ((10007, 4097), {}),
        ((131072, 63), {}),
        ((7, 1000003), {}),
        ((8192, 4096), UNALIGNED),
        ((3000, 50257), BACKWARD),
        ((2048, 128256), BACKWARD),
        ((32768, 257), BACKWARD),
        ((7, 1000003), BACKWARD),
    ),
    "rms_norm": NORM_ROWS,
    "layer_norm": NORM_ROWS,
    "add_rms_norm": (((8192, 4097), {}),),
    "cross_entropy": (
        ((3000, 50257), {}),
        ((4096, 32000), {}),
        ((2048, 128256), {}),
        ((32768, 1001), {}),
        ((3000, 50257), BACKWARD),
        ((2048, 128256), BACKWARD),
    ),
    "swiglu": (((4099, 11007), {}), ((4099, 11007), BACKWARD), ((4096, 11008), UNALIGNED)),
    "quantize_fp8": (((32768, 257), {}), ((8192, 4097), {}), ((4099, 11007), {}), ((8192, 4096), UNALIGNED)),
    "add": (((2**27 + 1,), {}), ((2**27,), UNALIGNED)),
    "fast_add": (((2**27 + 1,), {}), ((2**27,), UNALIGNED)),
    "square": (((2**27 + 1,), {}), ((2**27,), UNALIGNED)),
    "sum": (
        ((2**27 + 1,), {}),
        ((2**27 + 1,), {"dtype": F32}),
        ((2**27,), UNALIGNED),
        ((10007, 9001), {"dim": -1}),
        ((10007, 9001), {"dim": 0}),
        ((32768, 257), {"dim": -1}),
    ),
    "cumsum": (
        ((2**27 - 1,), {}),
        ((2**27,), UNALIGNED),
        ((10007, 4097), {"dim": -1}),
        ((10007, 4097), {"dim": 0}),
    ),
    "transpose": (
        ((10007, 9001), {}),
        ((10007, 9001), {"dtype": F32}),
        ((10007, 9001), {"dtype": torch.float8_e4m3fn}),
        ((1000003, 13), {}),
        ((13, 1000003), {}),
        ((8192, 8192), UNALIGNED),
    ),
    "permute_copy": (((63, 1023, 33, 65), {"dims": [0, 2, 1, 3]}),),
}

ROWS = {"add": 2, "fast_add": 2, "swiglu": 2, "add_rms_norm": 2}
"""Tensors of that shape that a call takes, if more than one."""

WEIGHTS = {"rms_norm": 1, "add_rms_norm": 1, "layer_norm": 2}
"""And those of the length of a row."""


def grid() -> Iterator[Case]:
    """All of them, operator by operator."""
    for op, shapes in SHAPES.items():
        for shape, options in shapes:
            yield _case(op, shape, **options)


def _case(
    op: str, shape: tuple[int, ...], *, dtype: torch.dtype = BF16, off: bool = False, backward: bool = False,
    **arguments: Any,
) -> Case:  # fmt: skip
    """A call.

    Args:
        op: The operator's name.
        shape: Of its tensors; weights have the length of a row.
        dtype: Of all of them.
        off: The tensors begin one element after an address that is a multiple of 16 bytes.
        backward: Differentiate it.
        **arguments: What it takes by keyword.
    """

    def tensor(*size: int) -> Tensor:
        made = random(math.prod(size) + off).to(dtype)
        return made[int(off) :].view(size)

    def make() -> dotcu.Sample:
        rows = [tensor(*shape) for _ in range(ROWS.get(op, 1))]
        if op == "cross_entropy":
            return dotcu.Sample(*rows, torch.randint(shape[1], shape[:1], device="cuda"))
        return dotcu.Sample(
            *rows, *(random(shape[1], dtype=dtype) for _ in range(WEIGHTS.get(op, 0))), **arguments
        )

    words = [OFF] if off else [f"{name}={_told(value)}" for name, value in arguments.items()]
    tensor_bytes = math.prod(shape) * dtype.itemsize
    return Case(
        op=op,
        shape=shape,
        dtype=dtype,
        make=make,
        note=" ".join(words),
        backward=backward,
        least=LEAST,
        moved=BACKWARD_MOVES[op] * tensor_bytes if backward else 0,
        plain=torch.nn.functional.cross_entropy if op == "cross_entropy" else None,
        percent=PERCENT if tensor_bytes >= LARGE_BYTES else None,
    )


def _told(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)
