from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import bodies
import dotcu
from dotcu.call_cache.evaluate import Effects, compare, evaluate
from dotcu.call_cache.trace import Trace, trace

kernels = bodies.kernels

VIEWS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "itself": lambda x, n: x,
    "t": lambda x, n: x.t(),
    "T": lambda x, n: x.T,
    "mT": lambda x, n: x.mT,
    "transpose": lambda x, n: x.transpose(0, -1),
    "permute": lambda x, n: torch.permute(x, (1, 0)),
    "expand": lambda x, n: x[:1].expand(n, -1),
    "expand from one": lambda x, n: x[0, 0].expand(2, n),
    "expand_as": lambda x, n: x[:, :1].expand_as(x),
    "broadcast_to": lambda x, n: torch.broadcast_to(x[0], (n, x.size(1))),
    "broadcast": lambda x, n: torch.broadcast_tensors(x, x[0], x[:, :1])[2],
    "view": lambda x, n: x.contiguous().view(x.shape[1], -1),
    "reshape": lambda x, n: x.reshape(-1, 2),
    "reshape_as": lambda x, n: x.reshape_as(x.T),
    "flatten": lambda x, n: x.unsqueeze(1).flatten(0, 1),
    "flatten all": lambda x, n: torch.flatten(x)[None],
    "unsqueeze": lambda x, n: x[0].unsqueeze(-1),
    "unsqueeze in front": lambda x, n: torch.unsqueeze(x[:, 0], 0),
    "squeeze": lambda x, n: x[None].squeeze(0),
    "squeeze what is not one": lambda x, n: x.unsqueeze(0).squeeze(1).squeeze(0),
    "select": lambda x, n: x.select(0, n)[None],
    "select from the end": lambda x, n: torch.select(x, 1, -1)[:, None],
    "narrow": lambda x, n: x.narrow(0, 1, n),
    "unbind": lambda x, n: x.unbind(1)[0][None],
    "slice": lambda x, n: x[n:, : -n or None],
    "slice by steps": lambda x, n: x[1::2, ::3],
    "slice far": lambda x, n: x[-100:100, 3:2],
    "index and ellipsis": lambda x, n: x[..., n, None],
    "index both": lambda x, n: x[-n, 1][None, None],
    "none": lambda x, n: x[:, None, 0],
    "detach": lambda x, n: x.detach(),
    "to": lambda x, n: x.to(torch.float32).to(x.device).to(x).float().type_as(x),
    "part of a part": lambda x, n: x[1:].T[1:, : x.shape[0] // 2],
    "part of new memory": lambda x, n: x.new_empty(n + 3, 4)[2:, 1:3],
}

QUERIES: dict[str, Callable[[Tensor, int], Any]] = {
    "size": lambda x, n: x.size(0) * 100 + x.size(-1),
    "shape": lambda x, n: x.shape[0] + x.shape[1:][0] * 100 + len(x.shape),
    "shape.numel": lambda x, n: x.shape.numel(),
    "stride": lambda x, n: x.stride(0) * 1000 + x.stride()[1],
    "numel": lambda x, n: x.numel() + torch.numel(x) + x.nelement(),
    "nbytes": lambda x, n: x.nbytes,
    "len": lambda x, n: len(x),
    "offset": lambda x, n: x.storage_offset() * 10 + x[1:].storage_offset(),
    "offset of new memory": lambda x, n: x.new_empty(n + 1, 3)[:, 1:].storage_offset(),
    "is_contiguous": lambda x, n: 1 if x.is_contiguous() else 2,
    "is_contiguous of a view": lambda x, n: 1 if x[:, :n].is_contiguous() else 2,
    "is_contiguous of a row": lambda x, n: 1 if x[:1].T.is_contiguous() else 2,
    "dtype": lambda x, n: 1 if x.dtype.is_floating_point and x.is_floating_point() else 2,
    "element_size": lambda x, n: x.element_size() + x.itemsize + x.dim() + x.ndim,
    "device": lambda x, n: 1 if x.device.type == "cpu" and not x.is_cuda else 2,
    "sym": lambda x, n: torch.sym_min(x.numel(), n) * 100 + torch.sym_max(n, 3),
    "result_type": lambda x, n: 1 if torch.result_type(x, n) == torch.float32 else 2,
    "promote": lambda x, n: 1 if torch.promote_types(x.dtype, torch.int32) == x.dtype else 2,
    "finfo": lambda x, n: int(torch.finfo(x.dtype).bits),
    "broadcast_shapes": lambda x, n: torch.broadcast_shapes(x.shape, (1,), (n, 1, 1))[0],
    "aligned": lambda x, n: 1 if dotcu.is_aligned(x[n:], 8) else 2,
    "multiprocessors": lambda x, n: dotcu.sm_count(x),
    "capability": lambda x, n: 1 if dotcu.capability(x) >= (8, 0) else 2,
    "sum of sizes": lambda x, n: sum(x.shape) + max(x.shape) * min(x.size(0), 3),
}

ALLOCATIONS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "empty": lambda x, n: torch.empty(n, x.size(0), dtype=torch.int32, device=x.device),
    "empty with defaults by name": lambda x, n: torch.empty(
        n, dtype=x.dtype, device=x.device, layout=torch.strided, memory_format=torch.contiguous_format
    ),
    "empty of a tuple": lambda x, n: torch.empty((n, 3), dtype=x.dtype, device="cpu"),
    "empty_like": lambda x, n: torch.empty_like(x),
    "empty_like in another dtype": lambda x, n: torch.empty_like(x, dtype=torch.int8),
    "empty_like in order": lambda x, n: torch.empty_like(x, memory_format=torch.contiguous_format),
    "empty_strided": lambda x, n: torch.empty_strided((n, 2), (3, 1), dtype=x.dtype, device=x.device),
    "new_empty": lambda x, n: x.new_empty(n, x.numel()),
    "new_empty_strided": lambda x, n: x.new_empty_strided(x.shape, (1, x.size(0))),
    "zeros": lambda x, n: torch.zeros(x.shape, dtype=torch.int64, device=x.device),
    "zeros_like": lambda x, n: torch.zeros_like(x),
    "new_zeros": lambda x, n: x.new_zeros((n,), dtype=torch.int64),
}


def traced(body: Callable[..., Tensor], x: Tensor, n: int) -> Trace | None:
    try:
        return trace(body, {"x": x, "n": n}, keyword_only=(), writes=())
    except (RuntimeError, IndexError, ValueError, dotcu.errors.DotcuError):
        return None


def laid_out(rows: int, columns: int, layout: str) -> Tensor:
    if layout == "transposed":
        return torch.ones(columns, rows).T
    if layout == "part":
        return torch.ones(rows + 2, columns + 1)[2:, 1:]
    return torch.ones(rows, columns)


sizes = st.integers(0, 6)
layouts = st.sampled_from(["in order", "in order", "transposed", "part"])
calls = st.tuples(st.builds(laid_out, sizes, sizes, layouts), st.integers(0, 5))


@st.composite
def parts(draw: st.DrawFn) -> Tensor:
    """Every element, or every second one, of three dimensions of any order, some of one element."""
    small, order = st.integers(0, 3), draw(st.permutations(range(3)))
    whole = torch.ones([draw(small) for _ in range(3)]).permute(order)
    return whole[tuple(slice(None, None, draw(st.integers(1, 2))) for _ in range(3))]


def check(body: Callable[..., Tensor], first: tuple[Tensor, int], second: tuple[Tensor, int]) -> bool:
    """Whether the plan of one call fits another; it is then what the body does there."""
    made = traced(body, *first)
    if made is None or made.recorded is None:
        return False
    said = evaluate(made.recorded, second)
    if said is None:
        return False
    real = traced(body, *second)
    assert real is not None, "the plan fits a call that the body refuses"
    assert isinstance(real.effects, Effects), real.reason
    assert compare(said, real.effects) is None
    return True


def passing_view(view: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    def body(x: Tensor, n: int) -> Tensor:
        out = torch.empty(1, dtype=torch.float32, device=x.device)
        kernels.matrix(view(x, n), out, grid=1, block=1)
        return out

    return body


def passing_number(query: Callable[[Tensor, int], Any]) -> Callable[..., Tensor]:
    def body(x: Tensor, n: int) -> Tensor:
        out = torch.empty(1, dtype=torch.float32, device=x.device)
        kernels.rows(None, query(x, n), 0, out, 0, 0, grid=1, block=1)
        return out

    return body


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@settings(max_examples=6, deadline=None)
@given(calls, calls)
def test_a_view_lies_where_torch_puts_it(
    view: Callable[[Tensor, int], Tensor], first: tuple[Tensor, int], second: tuple[Tensor, int]
) -> None:
    check(passing_view(view), first, second)


def test_a_scalar_is_transposed_by_dimensions_that_it_has() -> None:
    body = passing_view(lambda x, n: x.transpose(n, -1).expand(1, 1))
    first = traced(body, torch.ones(()), 0)
    assert first is not None
    assert first.recorded is not None
    assert evaluate(first.recorded, (torch.ones(()), 0)) is not None
    assert evaluate(first.recorded, (torch.ones(()), -2)) is None, "torch refuses it"


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
@settings(max_examples=6, deadline=None)
@given(calls, calls)
def test_a_query_gives_what_torch_says(
    query: Callable[[Tensor, int], Any], first: tuple[Tensor, int], second: tuple[Tensor, int]
) -> None:
    check(passing_number(query), first, second)


@pytest.mark.parametrize("allocate", ALLOCATIONS.values(), ids=ALLOCATIONS)
@settings(max_examples=6, deadline=None)
@given(calls, calls)
def test_new_memory_is_laid_out_as_torch_does(
    allocate: Callable[[Tensor, int], Tensor], first: tuple[Tensor, int], second: tuple[Tensor, int]
) -> None:
    check(allocate, first, second)


# A plan that fits nothing else would pass the tests above.


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_has_a_plan_that_fits_other_sizes(view: Callable[[Tensor, int], Tensor]) -> None:
    other = (torch.ones(8, 6), 3) if view is not VIEWS["unbind"] else (torch.ones(8, 4), 3)
    assert check(passing_view(view), (torch.ones(6, 4), 2), other)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_query_has_a_plan_that_fits_other_sizes(query: Callable[[Tensor, int], Any]) -> None:
    pinned = query in (QUERIES["shape.numel"], QUERIES["len"], QUERIES["is_contiguous of a view"])
    other = (torch.ones(6, 4), 4) if pinned else (torch.ones(8, 7), 4)
    assert check(passing_number(query), (torch.ones(6, 4), 4), other)


@pytest.mark.parametrize("allocate", ALLOCATIONS.values(), ids=ALLOCATIONS)
def test_new_memory_has_a_plan_that_fits_other_sizes(allocate: Callable[[Tensor, int], Tensor]) -> None:
    assert check(allocate, (torch.ones(6, 4), 2), (torch.ones(8, 7), 5))


def test_memory_like_a_permuted_tensor_is_permuted() -> None:
    first, second = torch.ones(2, 3, 4).permute(2, 0, 1), torch.ones(5, 6, 7).permute(2, 0, 1)
    assert check(ALLOCATIONS["empty_like"], (first, 1), (second, 1))
    assert not check(ALLOCATIONS["empty_like"], (first, 1), (torch.ones(7, 5, 6), 1))


def test_memory_like_a_part_is_dense_in_the_order_of_its_strides() -> None:
    first, second = (
        torch.ones(b, t, 3, h, 8).permute(2, 0, 3, 1, 4)[1] for b, t, h in ((2, 5, 4), (3, 9, 2))
    )
    assert check(ALLOCATIONS["empty_like"], (first, 1), (second, 1))
    assert not check(ALLOCATIONS["empty_like"], (first, 1), (torch.ones(2, 4, 5, 9)[..., :8], 1))


@settings(max_examples=30, deadline=None)
@given(parts(), parts())
def test_memory_like_any_part_is_laid_out_as_torch_does(first: Tensor, second: Tensor) -> None:
    check(ALLOCATIONS["empty_like"], (first, 1), (second, 1))


def of_the_default_dtype(whole: Tensor) -> Tensor:
    return whole.new_empty(2, dtype=torch.result_type(whole, 2.5))


ENDS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "like what is expanded": lambda x, n: torch.empty_like(x[:, :1].expand(-1, 3)),
    "channels last": lambda x, n: torch.empty(
        3, 3, 3, 3, dtype=x.dtype, device="cpu", memory_format=torch.channels_last
    ),
    "ones": lambda x, n: torch.ones_like(x),
    "clone": lambda x, n: x.clone(),
    "another dtype": lambda x, n: torch.empty_like(x.double()),
    "a copy": lambda x, n: torch.empty_like(x.to(torch.float32, copy=True)),
    "as another dtype": lambda x, n: torch.empty_like(x.view(torch.int32)),
    "an index of tensors": lambda x, n: torch.empty_like(x[torch.tensor([0, 1])]),
    "an index of lists": lambda x, n: torch.empty_like(x[[0, 1]]),
    "a reshape that copies": lambda x, n: torch.empty_like(x.T.reshape(-1)),
    "the default dtype": lambda x, n: of_the_default_dtype(x.new_empty(n, dtype=torch.int32)),
}


@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
def test_what_no_rule_says_has_no_plan(ends: Callable[..., Tensor]) -> None:
    made = traced(ends, torch.ones(4, 5), 2)
    assert made is not None
    assert made.recorded is None
