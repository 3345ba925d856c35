"""The operators over several GPUs, as ranks in the simulator: sums, graph-safe state, failed calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.gallery import all_reduce, all_reduce_, all_reduce_add_rms_norm, reduce_scatter
from helpers.quick_cases import quick

RANKS = quick([2], [2, 3, 4, 8])
DTYPES = quick([torch.bfloat16], [torch.float32, torch.float64, torch.float16, torch.bfloat16])


@pytest.fixture(autouse=True)
def _small_workspaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(all_reduce.body.__globals__, "MAIL_BYTES", 2**11)


def ranks(count: int, call: Callable[[int], Any], seed: int | None = None) -> list[Any]:
    return dotcu.simulate_ranks(count, call, seed=seed)


def inputs(count: int, *shape: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape).to(dtype) for _ in range(count)]


def close(got: Tensor, wanted: Tensor) -> None:
    places = 4 * torch.finfo(got.dtype).eps
    torch.testing.assert_close(got.double(), wanted.double(), rtol=places, atol=places * 4)


@pytest.mark.parametrize("seed", quick([1], [None, 1]))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", RANKS)
def test_every_rank_has_the_same_sum_by_mail_and_in_place(
    count: int, dtype: torch.dtype, seed: int | None
) -> None:
    shapes = (3, 41), (5, 64), (1,)
    xs = [inputs(count, *shape, dtype=dtype) for shape in shapes]

    def call(rank: int) -> list[Tensor]:
        given = [each[rank] for each in xs]
        by_mail = [all_reduce(x) for x in given]
        for x in given:
            all_reduce_(x)
        return [*by_mail, *given]

    wanted = 2 * [torch.stack(each).double().sum(0) for each in xs]
    results = ranks(count, call, seed)
    for result in results:
        for got, total, of_first in zip(result, wanted, results[0], strict=True):
            close(got, total)
            assert torch.equal(got, of_first)


@pytest.mark.parametrize("count", RANKS)
def test_a_large_sum_comes_from_the_memory_of_peers(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(all_reduce.body.__globals__, "MAIL_BYTES", 64)
    xs = inputs(count, 3, 41)
    for got in ranks(count, lambda rank: all_reduce(xs[rank])):
        close(got, torch.stack(xs).double().sum(0))


@pytest.mark.parametrize("n", [123, 128])
@pytest.mark.parametrize("count", RANKS)
def test_a_large_sum_of_any_memory_and_the_gradient_go_by_copies(
    count: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(all_reduce.body.__globals__, "MAIL_BYTES", 64)
    monkeypatch.setitem(all_reduce.body.__globals__, "COPY_BYTES", 64)  # in several turns
    xs, grads = inputs(count, n + 1), inputs(count, n)

    def call(rank: int) -> tuple[Tensor, Tensor]:
        x = xs[rank].requires_grad_()
        total = all_reduce(x[rank % 2 :][:n], "", False)  # which are aligned in another way on each rank
        total.backward(grads[rank])
        assert x.grad is not None
        return total.detach(), x.grad[rank % 2 :][:n]

    results = ranks(count, call)
    wanted = torch.stack([x.detach()[rank % 2 :][:n] for rank, x in enumerate(xs)]).double().sum(0)
    for got, grad in results:
        close(got, wanted)
        assert torch.equal(got, results[0][0])
        close(grad, torch.stack(grads).double().sum(0))


@pytest.mark.parametrize("seed", quick([1], [None, 1]))
@pytest.mark.parametrize("count", RANKS)
def test_each_rank_gets_its_part(count: int, seed: int | None) -> None:
    xs = inputs(count, 2 * count, 33)
    total = torch.stack(xs).double().sum(0)
    parts = ranks(count, lambda rank: reduce_scatter(xs[rank], count), seed)
    for part, wanted in zip(parts, total.chunk(count), strict=True):
        close(part, wanted)


@pytest.mark.parametrize("seed", quick([1], [None, 1]))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", RANKS)
def test_the_norm_is_of_the_sum_and_the_residual(count: int, dtype: torch.dtype, seed: int | None) -> None:
    xs, (residual,) = inputs(count, 3, 70, dtype=dtype), inputs(1, 3, 70, dtype=dtype)
    weight = torch.rand(70).to(dtype)

    def call(rank: int) -> tuple[Tensor, Tensor]:
        all_reduce_add_rms_norm(xs[rank], residual, weight)
        return all_reduce_add_rms_norm(xs[rank][:2], residual[:2], weight)

    wanted = (torch.stack(xs).double().sum(0) + residual.double())[:2]
    for out, sum in ranks(count, call, seed):
        close(sum, wanted)
        close(out, torch.nn.functional.rms_norm(sum.double(), (70,), weight.double(), 1e-6))


def test_eps_of_a_double_is_no_float() -> None:
    x, weight = torch.full((1, 8), 1e-4, dtype=torch.float64), torch.ones(8, dtype=torch.float64)
    (got,) = ranks(1, lambda rank: all_reduce_add_rms_norm(x, torch.zeros_like(x), weight, 0.1)[0])
    close(got, torch.nn.functional.rms_norm(x, (8,), weight, 0.1))


def test_a_rank_whose_call_failed_can_call_again() -> None:
    xs = inputs(2, 40)

    def call(rank: int) -> Tensor:
        if rank:
            with pytest.raises(TypeError, match="int32"):
                all_reduce_(xs[rank].int())
        all_reduce_(xs[rank])
        return all_reduce(xs[rank])

    total = torch.stack(xs).sum(0)
    for got in ranks(2, call):
        close(got, 2 * total)


def test_what_ranks_cannot_share_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(3, 4\) and 2 ranks"):
        ranks(2, lambda rank: reduce_scatter(torch.ones(3, 4), 2))
    with pytest.raises(ValueError, match="group_size=2, and the group has 4"):
        ranks(4, lambda rank: reduce_scatter(torch.ones(4, 4), 2))
    with pytest.raises(ValueError, match=r"\(20, 16384\)"):
        ranks(1, lambda rank: all_reduce_add_rms_norm(*[torch.ones(20, 16384)] * 2, torch.ones(16384)))
    with pytest.raises(ValueError, match=r"on rank 0 and .*\(11,\).* on rank 1"):
        ranks(2, lambda rank: all_reduce_(torch.ones(10 + rank)))


def test_the_sum_has_the_gradient_that_all_ranks_have_added_up() -> None:
    def call(rank: int) -> Tensor:
        x = torch.full((5,), 1.0 + rank, requires_grad=True)
        (all_reduce(x) * (1 + rank)).sum().backward()
        assert x.grad is not None
        return x.grad

    for grad in ranks(2, call):
        assert torch.equal(grad, torch.full((5,), 3.0))
