"""Helpers that several examples share: dtypes, vectors and alignment, checks of arguments.

An example that is copied into a project takes what it uses of this file along.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.testing import make_tensor

import dotcu

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
REAL = FLOATS + INTEGERS

VECTOR_BYTES = 16
"""The widest access that the hardware has."""


class PlannedLaunch(NamedTuple):
    """A kernel, the numbers that it takes beside its tensors, and the configuration of a launch."""

    kernel: dotcu.Kernel
    numbers: tuple[Any, ...]
    grid: Any  # an int, or two of them
    block: Any
    smem_bytes: int = 0
    cluster: Any = None


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type that elements of a dtype are added up in."""
    if dtype in INTEGERS:
        return torch.int64
    return torch.float64 if dtype == torch.float64 else torch.float32


def is_multiple(n: int | torch.SymInt, of: int) -> bool:
    """Return whether a number is a multiple of another; of a symbol, for which nothing is launched, False."""
    return isinstance(n, int) and n % of == 0


def vector_lanes(tensors: tuple[Tensor, ...], block_size: int, vector_bytes: int = VECTOR_BYTES) -> int:
    """Return the elements of the widest vector at whose multiples all tensors, of one dtype, start.

    Args:
        block_size: Threads of a block, the most that share a vector's rest.
        vector_bytes: The bytes of a vector at most.
    """
    size = tensors[0].element_size()
    lanes = max(1, vector_bytes // size)
    while lanes > 1 and not (
        lanes <= block_size and all(dotcu.is_aligned(tensor, lanes * size) for tensor in tensors)
    ):
        lanes //= 2
    return lanes


def vector_width(most: int, numbers: tuple[int, ...], *tensors: Tensor | None) -> int:
    """Return the elements of the widest vector that divides some numbers, and at which all tensors start.

    Args:
        most: Elements at most, a power of two.
        numbers: Elements of a row, or strides.
        *tensors: Tensors, read or written by vectors of at most 16 bytes; None for one that is left out.
    """
    width = most
    while width > 1 and not (
        all(number % width == 0 for number in numbers)
        and all(
            t is None or dotcu.is_aligned(t, min(VECTOR_BYTES, width * t.element_size())) for t in tensors
        )
    ):
        width //= 2
    return width


ALIGNED, ALIKE, APART = "dotcu::aligned", "dotcu::alike", "dotcu::apart"
"""How rows lie, for kernels: `row_way` of dotcu/row.cuh."""

LEAST_RAGGED_BYTES = 96
"""Bytes of a row that has edges beside its vectors, at least; shorter ones are read by narrower vectors."""


def row_vectors(n: int, *tensors: Tensor) -> tuple[str, int]:
    """Return how the rows of some contiguous tensors lie, and the elements of their vectors.

    Args:
        n: Elements of a row.
        *tensors: Of one dtype, inputs and results of at most 16 bytes an element.
    """
    size = tensors[0].element_size()
    most = VECTOR_BYTES // size
    width = vector_width(most, (n,), *tensors)
    if width == most or n * size < LEAST_RAGGED_BYTES:
        return ALIGNED, width
    return ALIKE if all(dotcu.is_aligned(tensor, VECTOR_BYTES) for tensor in tensors) else APART, most


FEW_ROWS = 4
"""Rows for each multiprocessor at most that count as few. Source: on an H100, which has 132, more threads for
a row pay with 528 rows, and cost up to a fifth with 1056; the README of layer_norm tells."""


def has_few_rows(x: Tensor, rows: int) -> bool:
    """Return whether so many rows of x are few for its GPU."""
    return bool(rows <= FEW_ROWS * dotcu.sm_count(x))


def result_type(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of a sum, as torch has it."""
    return torch.int64 if dtype in INTEGERS else dtype


def random_tensors(device: torch.device, dtype: torch.dtype, low: int, high: int) -> Callable[..., Tensor]:
    """Return a function that makes a tensor of a shape, for samples: `random(4, 1024)`."""
    return functools.partial(make_tensor, device=device, dtype=dtype, low=low, high=high)


def require_dtype(name: str, dtype: torch.dtype, taken: tuple[torch.dtype, ...]) -> None:
    """Raise for a dtype that an operator does not take."""
    if dtype not in taken:
        names = ", ".join(str(each).removeprefix("torch.") for each in taken)
        raise TypeError(f"{name} takes {names} (got {dtype}).\nConvert the tensor first: x.to(torch.float32)")


def require_block(block_size: int, example: str) -> int:
    """Return a block size as an int; vectors depend on it, so torch.compile must know it too."""
    if not 1 <= block_size <= 1024:
        raise ValueError(f"a block has 1 to 1024 threads (got {block_size}).\nType: {example}")
    return int(block_size)


def require_out(out: Tensor, result: Tensor) -> None:
    """Raise for `out=` of another shape or dtype than the result's."""
    if out.dtype != result.dtype or out.shape != result.shape:
        raise ValueError(
            f"out= must have the result's shape {tuple(result.shape)} and dtype {result.dtype} "
            f"(got {tuple(out.shape)}, {out.dtype}).\n"
            f"Allocate it so: torch.empty({tuple(result.shape)}, dtype={result.dtype})"
        )


def contiguous_like(out: Tensor) -> Tensor:
    """Return memory for a kernel to write: `out` itself if it is contiguous."""
    return out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)


def require_operands(name: str, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return two tensors of one dtype out of `REAL`, broadcast and contiguous."""
    if a.dtype != b.dtype:
        raise TypeError(
            f"{name} takes two tensors of one dtype (got {a.dtype} and {b.dtype}).\n"
            f"Convert one of them: {name}(a, b.to(a.dtype))"
        )
    require_dtype(name, a.dtype, REAL)
    a, b = torch.broadcast_tensors(a, b)
    return a.contiguous(), b.contiguous()
