"""Calls of followed bodies: arguments to draw, and how a body is followed with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

import bodies
import dotcu
from dotcu.call_cache.trace import Trace, trace
from dotcu.gallery.add.op import add
from dotcu.gallery.fast_add.op import fast_add
from dotcu.gallery.matmul.op import matmul
from dotcu.gallery.square.op import square
from dotcu.gallery.sum.op import sum as total


def traced(body: Callable[..., Any], *args: Any, writes: tuple[str, ...] = (), **kwargs: Any) -> Trace:
    """Follow a body with arguments as a call has them."""
    bound = inspect.signature(body).bind(*args, **kwargs)
    bound.apply_defaults()
    keyword_only = [p.name for p in inspect.signature(body).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return trace(body, bound.arguments, keyword_only=keyword_only, writes=writes)


def values(body: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
    bound = inspect.signature(body).bind(*args, **kwargs)
    bound.apply_defaults()
    return list(bound.arguments.values())


def attempt(body: Callable[..., Any], call: dict[str, Any]) -> Trace | None:
    """A body followed; None where it raises."""
    try:
        with dotcu.simulate(on_finding="collect", checks=()):
            return traced(body, writes=("out",) if "out" in call else (), **call)
    except (ValueError, TypeError, ArithmeticError, RuntimeError, dotcu.errors.DotcuError):
        return None


LAYOUTS = ("transposed", "every second", "from the second", "expanded")
SIZES = st.integers(0, 9) | st.sampled_from([1, 32, 40])


def laid_out(shape: list[int], layout: str, dtype: torch.dtype) -> Tensor:
    rank = len(shape)
    if layout == "transposed":
        return torch.ones(shape[::-1], dtype=dtype).permute(tuple(reversed(range(rank))))
    if layout == "every second" and rank:
        return torch.ones([*shape[:-1], 2 * shape[-1]], dtype=dtype)[..., ::2]
    if layout == "from the second" and rank:
        return torch.ones([shape[0] + 1, *shape[1:]], dtype=dtype)[1:]
    if layout == "expanded" and rank:
        return torch.ones([1, *shape[1:]], dtype=dtype).expand(shape)
    return torch.ones(shape, dtype=dtype)


@st.composite
def tensors(
    draw: st.DrawFn, *names: str, rank: int | None = None, dtypes: tuple[torch.dtype, ...] = (torch.float32,)
) -> dict[str, Tensor]:
    """Tensors that broadcast, mostly of one shape."""
    shape = draw(st.lists(SIZES, min_size=rank or 0, max_size=3 if rank is None else rank))
    dtype = draw(st.sampled_from(dtypes))
    found = {}
    for name in names:
        own = [1 if draw(st.integers(0, 9)) == 0 else size for size in shape]
        layout = draw(st.sampled_from(["plain", "plain", "plain", *LAYOUTS]))
        found[name] = laid_out(own, layout, dtype)
    return found


@st.composite
def calls(draw: st.DrawFn, found: st.SearchStrategy[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {**draw(found), **{name: draw(strategy) for name, strategy in more.items()}}


whole = st.integers(-40, 40) | st.sampled_from([0, 1, 2**31, -(2**40), 2**63 - 1, -(2**63)])
real = st.floats(width=64) | st.sampled_from([0.5, -2.0, 1e39])
three = (torch.float32, torch.float64, torch.int32)

CALLS: dict[Callable[..., Any], st.SearchStrategy[dict[str, Any]]] = {
    bodies.broadcast_add: calls(tensors("a", "b", dtypes=three), block_size=st.sampled_from([32, 64])),
    bodies.branching: calls(tensors("x")),
    bodies.strided_rows: calls(tensors("x", rank=2)),
    bodies.corner: calls(tensors("x", rank=2), start=st.integers(-5, 10)),
    bodies.boxes: calls(tensors("x", "y", rank=2)),
    bodies.optional: calls(tensors("x", "other"), flag=st.booleans(), code=st.integers(-200, 200))
    | calls(tensors("x"), other=st.none(), flag=st.booleans(), code=st.integers(-200, 200)),
    bodies.two_launches: calls(tensors("x"), alpha=real, beta=real),
    bodies.numbers: calls(tensors("x", rank=1), n=whole, m=whole),
    bodies.shaped: calls(tensors("x", "y", rank=2)),
    bodies.written: calls(tensors("x", "out")),
    add.body: calls(tensors("a", "b", dtypes=three), block_size=st.just(64)),
    add.overloads["Scalar"].body: calls(tensors("a", dtypes=three), b=whole | real, block_size=st.just(64)),
    fast_add.body: calls(tensors("a", "b"), block_size=st.just(64), grid_size=st.sampled_from([-1, 2])),
    square.body: calls(tensors("x", dtypes=three), block_size=st.just(64)),
    matmul.body: calls(
        tensors("a", "b", rank=2), algorithm=st.sampled_from(["naive", "tiled"]), block_size=st.just(4)
    ),
    total.body: calls(
        tensors("x", dtypes=three),
        dim=st.none() | st.integers(-3, 2),
        keepdim=st.booleans(),
        block_size=st.just(32),
    ),
}


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]:
    body = draw(st.sampled_from(list(CALLS)))
    first, second = draw(CALLS[body]), draw(CALLS[body])
    return body, first, second
