"""Calls that pass tensor maps: the gallery's matmul and attention beside torch's, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from calls.work import Call, Contender, Inputs
from dotcu import gallery

PRODUCTS = (256, 4096)
HEADS = ((1, 4, 256, 64), (4, 12, 1024, 64))
"""B, H, positions and head dimension."""

OWN = "dotcu, tensor maps"

Make = Callable[[], tuple[Tensor, ...]]


def random(*sizes: int) -> Tensor:
    generator = torch.Generator(device="cuda").manual_seed(len(sizes))
    return torch.randn(sizes, generator=generator, device="cuda", dtype=torch.bfloat16)


def factors(n: int) -> tuple[Tensor, ...]:
    return random(n, n), random(n, n)


def heads(sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
    q, k, v = random(3, *sizes)
    return q, k, v


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention, without the log-sum-exp."""
    result: Tensor = gallery.attention(q, k, v, True)[0]
    return result


def torch_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def forward(function: Callable[..., Tensor], make: Make, inputs: Inputs) -> Call:
    """A call without gradients."""
    args = make()
    return lambda: function(*args)


def backward(function: Callable[..., Tensor], make: Make, inputs: Inputs) -> Call:
    """A call forward and backward, which gives the last gradient: attention's first one has no fixed bits."""
    args = [tensor.requires_grad_() for tensor in make()]
    grad = torch.ones_like(function(*args))
    return lambda: torch.autograd.grad(function(*args), args, grad)[-1]


def first(way: Callable[..., Call], function: Callable[..., Tensor], make: Make, inputs: Inputs) -> Tensor:
    """The result of a first call, whose bits later calls must have."""
    return way(function, make, inputs)()


def contenders() -> Iterator[Contender]:
    """Yield dotcu's and torch's, forward and with gradients."""
    rows: list[tuple[str, Make, Any, Any]] = [
        (f"matmul {n}^3 bf16", partial(factors, n), gallery.matmul, torch.matmul) for n in PRODUCTS
    ]
    rows += [
        (f"attention {'x'.join(map(str, sizes))} bf16", partial(heads, sizes), attention, torch_attention)
        for sizes in HEADS
    ]
    for what, make, own, eager in rows:
        for way, more, launches in ((forward, "", 1), (backward, ", with gradients", 4)):
            base = f"torch, {what}{more}"
            for name, function in ((base, eager), (f"{OWN}, {what}{more}", own)):
                yield Contender(
                    name=name,
                    make=partial(way, function, make),
                    want=partial(first, way, function, make),
                    base=base,
                    launches=launches,
                )


CONTENDERS = tuple(contenders())
