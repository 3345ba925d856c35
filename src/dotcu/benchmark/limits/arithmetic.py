"""How fast this GPU computes: products of matrices by torch, and multiply-adds in registers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from dotcu.benchmark.limits.rates import Rate
from dotcu.benchmark.limits.streams import THREADS, Time, kernels
from dotcu.errors import DotcuError
from dotcu.kernel import sm_count

SIZES = (2048, 4096, 8192)
"""Sides of the matrices; a larger one is left out where it would take too long."""

MOST_US = 50_000.0
"""What one product may take, by the time that the smaller one took."""

CHAINS = 8
"""Values of a thread of multiply_add; kernels.cu has the same number."""

FIRST_ROUNDS = 1 << 10
LEAST_US = 500.0
"""multiply_add does more rounds until it takes so long."""

Product = Callable[[], Any]
Products = Callable[[int, torch.device], Generator[Product, None, None]]


def measure(rate: Rate, device: torch.device, time: Time) -> float | None:
    """A rate in TFLOP/s, the highest that was reached; None where this GPU, or torch, does not have it."""
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        if rate.kind == "plain":
            return _plain(getattr(torch, rate.name), device, time)
        return _matrix(PRODUCTS[rate.name], device, time) if rate.name in PRODUCTS else None


def _matrix(products: Products, device: torch.device, time: Time) -> float | None:
    best, least_us = 0.0, 0.0
    for size in SIZES:
        if 8 * least_us > MOST_US:
            break
        taken = [us for us in _times(products, size, device, time) if us > 0]
        if not taken:
            break
        least_us = min(taken)
        best = max(best, 2 * size**3 / least_us / 1e6)
    return best or None


def _times(products: Products, size: int, device: torch.device, time: Time) -> list[float]:
    """The times of a size's products, of those that can be made."""
    found = []
    with closing(products(size, device)) as made:
        while True:
            try:
                product = next(made)
                product()
                found.append(time(product))
            except StopIteration:
                return found
            except (RuntimeError, NotImplementedError, TypeError):
                continue  # types that this GPU or this torch lacks, or too little memory


def _normal(size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Random normal values: what values are decides how much power the arithmetic takes."""
    values = torch.empty(size, size, device=device, dtype=torch.float32).normal_()
    if dtype == torch.int8:
        return values.mul_(32).clamp_(-127, 127).to(dtype)
    return values.to(dtype)


def _plain_products(dtype: torch.dtype, size: int, device: torch.device) -> Generator[Product, None, None]:
    """As they lie, and with the second transposed: which is faster hangs on the type."""
    a, b = _normal(size, device, dtype), _normal(size, device, dtype)
    out = torch.empty_like(a)
    yield functools.partial(torch.mm, a, b, out=out)
    yield functools.partial(torch.mm, a, b.T, out=out)


def _tf32_products(size: int, device: torch.device) -> Generator[Product, None, None]:
    with _tf32():
        yield from _plain_products(torch.float32, size, device)


@contextmanager
def _tf32() -> Iterator[None]:
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        yield
    finally:
        matmul.fp32_precision = before


def _int8_products(size: int, device: torch.device) -> Generator[Product, None, None]:
    a, b = _normal(size, device, torch.int8), _normal(size, device, torch.int8)
    yield functools.partial(torch._int_mm, a, b.T)  # the only layout that every GPU has it for
    yield functools.partial(torch._int_mm, a, b)


def _float8_products(size: int, device: torch.device) -> Generator[Product, None, None]:
    dtype = torch.float8_e4m3fn
    a, b = _normal(size, device, dtype), _normal(size, device, dtype)
    one = torch.ones((), device=device)
    for fast in (True, False):
        yield functools.partial(
            torch._scaled_mm, a, b.T, one, one, out_dtype=torch.bfloat16, use_fast_accum=fast
        )


PRODUCTS: Mapping[str, Products] = MappingProxyType(
    {
        "float64": functools.partial(_plain_products, torch.float64),
        "tf32": _tf32_products,
        "float16": functools.partial(_plain_products, torch.float16),
        "bfloat16": functools.partial(_plain_products, torch.bfloat16),
        "float8": _float8_products,
        "int8": _int8_products,
    }
)
"""By the name of a matrix rate, the products that show it."""


def _plain(dtype: torch.dtype, device: torch.device, time: Time) -> float | None:
    """Multiply-adds in registers, by as many threads as the GPU holds."""
    try:
        kernel = kernels().multiply_add[dtype]
        like = torch.empty(0, device=device)
        grid = kernel.occupancy(THREADS) * sm_count(like)
        start = torch.empty(grid * THREADS, device=device, dtype=dtype).normal_()
        out, rounds = torch.empty_like(start), FIRST_ROUNDS
        kernel(start, out, 0.999, 0.5, 1, grid=grid, block=THREADS)  # loads it, which no capture could
        while True:
            run = functools.partial(kernel, start, out, 0.999, 0.5, rounds, grid=grid, block=THREADS)
            taken_us = time(run)
            if taken_us >= LEAST_US or rounds >= 1 << 20:
                return 2 * CHAINS * rounds * start.numel() / taken_us / 1e6
            rounds *= 4
    except (DotcuError, RuntimeError):  # no compiler, say
        return None
