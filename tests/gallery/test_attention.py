"""Attention on Hopper's tensor cores: values at every edge of its tiles, gradients, refusals."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import accumulate, pairwise

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.gallery import (
    attention,
    attention_backward,
    attention_decode,
    attention_varlen,
    attention_varlen_backward,
)
from dotcu.gallery.attention import op
from dotcu.gallery.attention.op import InPlaceOfSdpa


def normal(device: torch.device, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Random normal numbers, the same ones on every device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype).to(device)


def close(got: Tensor, expected: Tensor, rounds: float) -> None:
    """Compare with a result in double precision, for some roundings to got's dtype."""
    bound = rounds * torch.finfo(got.dtype).eps
    # Where terms of size 1 cancel, as a query's gradient with one key, their float32 rounding stays.
    scale = max(float(expected.abs().max()) if expected.numel() else 0.0, 1e-3)
    torch.testing.assert_close(got.double(), expected.double(), rtol=bound, atol=bound * scale / 8)


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Attention in double precision, and the log-sum-exp."""
    group = q.shape[1] // k.shape[1]
    q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
    scores = q @ k.mT * (scale or 1 / math.sqrt(q.shape[-1]))
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    i, j = torch.arange(q.shape[2], device=q.device)[:, None], torch.arange(k.shape[2], device=q.device)
    if causal:
        scores = scores.masked_fill(j > i, -math.inf)
    if window is not None:
        scores = scores.masked_fill((j - i).abs() > window, -math.inf)
    return torch.softmax(scores, -1).nan_to_num(0.0) @ v, torch.logsumexp(scores, -1)


def agree(q: Tensor, k: Tensor, v: Tensor, *settings: object) -> None:
    """Compare the result, the log-sum-exp and, where there is a backward, the gradients."""
    ours, theirs = ([x.detach().to(t).requires_grad_() for x in (q, k, v)] for t in (q.dtype, torch.float64))
    out, lse = attention(*ours, *settings)
    expected, logs = reference(*theirs, *settings)  # type: ignore[arg-type]
    close(out.detach(), expected.detach(), 4)
    torch.testing.assert_close(lse.double(), logs.detach(), rtol=1e-5, atol=1e-5)
    grad = normal(q.device, *q.shape, dtype=q.dtype)
    got = torch.autograd.grad(out, ours, grad)
    for mine, yours in zip(got, torch.autograd.grad(expected, theirs, grad.double()), strict=True):
        close(mine, yours, 16)


def tensors(device: torch.device, b: int, h: int, of_k: int, s: int, t: int, d: int) -> list[Tensor]:
    """q, k and v."""
    return [normal(device, b, h, s, d), normal(device, b, of_k, t, d), normal(device, b, of_k, t, d) / 2]


@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        pytest.param((1, 2, 1, 130, 200, 128), (True,), marks=pytest.mark.slow),
        pytest.param((2, 1, 1, 65, 129, 64), (False, None, 0.2), marks=pytest.mark.slow),
        pytest.param((1, 2, 2, 200, 140, 128), (False, 30), marks=pytest.mark.slow),
        pytest.param((1, 2, 1, 300, 300, 64), (True, 50, None, 1.5), marks=pytest.mark.slow),
        pytest.param((1, 1, 1, 300, 400, 96), (), marks=pytest.mark.slow),
        pytest.param((2, 1, 1, 1, 260, 40), (), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_values_and_gradients_agree(
    shape: tuple[int, ...], settings: tuple[object, ...], device: torch.device
) -> None:
    agree(*tensors(device, *shape), *settings)


@pytest.mark.slow
@pytest.mark.parametrize("d", [64, 96, 128, 192, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_every_head_dimension_agrees(d: int, causal: bool, device: torch.device) -> None:
    agree(*tensors(device, 1, 1, 1, 200, 250, d), causal)


@pytest.mark.slow
@pytest.mark.parametrize("d", [64, 128])
def test_deterministic_gradients_agree(d: int, device: torch.device) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        agree(*tensors(device, 1, 2, 1, 200, 150, d), True)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("d", [64, 128])
def test_other_orders_of_warps_give_the_same(seed: int, d: int, device: torch.device) -> None:
    q, k, v = tensors(torch.device("cpu"), 1, 1, 1, 150, 300, d)
    grad = normal(torch.device("cpu"), 1, 1, 150, d)
    with dotcu.simulate():
        out, lse = attention(q, k, v, True)
        expected = attention_backward(grad, q, k, v, out, lse, True)
    with dotcu.simulate(seed=seed):
        again, logs = attention(q, k, v, True)
        gradients = attention_backward(grad, q, k, v, out, lse, True)
    assert torch.equal(again, out)
    assert torch.equal(logs, lse)
    for one, other in zip(gradients, expected, strict=True):
        close(one, other.double(), 2)


def starts(device: torch.device, lengths: tuple[int, ...]) -> Tensor:
    """The first row of each sequence, and the number of all."""
    return torch.tensor((0, *accumulate(lengths)), dtype=torch.int32, device=device)


def each_sequence(q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, *settings: object) -> Tensor:
    """Attention of packed sequences, one after the other, in double precision."""
    results = []
    for i, j in zip(pairwise(cu_q.tolist()), pairwise(cu_k.tolist()), strict=True):
        one = (x[slice(*of)].double().transpose(0, 1)[None] for x, of in ((q, i), (k, j), (v, j)))
        results.append(reference(*one, *settings)[0][0].transpose(0, 1))  # type: ignore[arg-type]
    return torch.cat(results)


@pytest.mark.parametrize(
    ("lengths", "of_keys", "d", "settings"),
    [
        ((30, 0, 1, 40), (30, 5, 0, 50), 64, (True,)),
        pytest.param((1,), (1,), 64, (True,), marks=pytest.mark.slow),
        pytest.param((0, 0, 65), (3, 7, 129), 96, (True, None, None, 2.0), marks=pytest.mark.slow),
        pytest.param((130, 1, 0, 200), (130, 1, 0, 200), 128, (True,), marks=pytest.mark.slow),
        pytest.param((130, 3), (70, 140), 128, (False, 60), marks=pytest.mark.slow),
        pytest.param((70, 30), (90, 129), 256, (), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_packed_sequences_agree_with_each_alone(
    lengths: tuple[int, ...],
    of_keys: tuple[int, ...],
    d: int,
    settings: tuple[object, ...],
    device: torch.device,
) -> None:
    cu, most = (starts(device, lengths), starts(device, of_keys)), (max(lengths), max(of_keys))
    shapes = (sum(lengths), 2, d), (sum(of_keys), 1, d), (sum(of_keys), 1, d)
    ours = [normal(device, *shape).requires_grad_() for shape in shapes]
    theirs = [x.detach().double().requires_grad_() for x in ours]
    out, _ = attention_varlen(*ours, *cu, *most, *settings)
    expected = each_sequence(*theirs, *cu, *settings)
    close(out.detach(), expected.detach(), 4)
    grad = normal(device, *out.shape)
    got = torch.autograd.grad(out, ours, grad)
    for mine, yours in zip(got, torch.autograd.grad(expected, theirs, grad.double()), strict=True):
        close(mine, yours.nan_to_num(0.0), 16)


@pytest.mark.parametrize("spoil", [math.nan, pytest.param(math.inf, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("d", "length", "deterministic", "softcap"),
    [
        (64, 9, False, 5.0),
        (64, 9, True, 0.0),
        pytest.param(64, 140, True, 5.0, marks=pytest.mark.slow),
        pytest.param(128, 140, False, 0.0, marks=pytest.mark.slow),
        pytest.param(192, 9, False, 0.0, marks=pytest.mark.slow),
    ],
)
def test_nothing_of_the_next_sequence_reaches_a_sequence(
    d: int, length: int, deterministic: bool, softcap: float, spoil: float, device: torch.device
) -> None:
    """Its last tile has rows of the next one."""
    cu, settings = starts(device, (length, 4)), (length, length, True, None, None, softcap)
    grad, q, k, v = packed = [normal(device, length + 4, 1, d) + i for i in range(4)]

    def results() -> tuple[Tensor, ...]:
        out, lse = attention_varlen(q, k, v, cu, cu, *settings)
        gradients = attention_varlen_backward(grad, q, k, v, out, lse, cu, cu, *settings, deterministic)
        return out[:length], lse[:, :length], *(x[:length] for x in gradients)

    expected = results()
    for x in packed:
        x[length:] = spoil
    for got, before in zip(results(), expected, strict=True):
        close(got, before.double(), 4)


@pytest.mark.slow
@pytest.mark.parametrize("longest", [3, 2000], ids=["few queries", "many"])
def test_far_scores_of_several_steps_keep_their_weights(longest: int, device: torch.device) -> None:
    """What the rounding of 1.2e7 is off by is no small part of a power."""
    q, k, v = normal(device, 3, 1, 64), normal(device, 300, 1, 64), normal(device, 300, 1, 64)
    q[..., 2:] = 0
    q[..., 0], q[..., 1], k[..., 0] = 4096, 1, 2992
    k[:, 0, 1] = torch.arange(299, -1, -1, device=device) // 128
    cu, cu_k = starts(device, (3,)), starts(device, (300,))
    out, _ = attention_varlen(q, k, v, cu, cu_k, longest, 300, scale=1.0)
    close(out, each_sequence(q, k, v, cu, cu_k, False, None, 1.0), 4)


def test_the_reference_lets_no_nan_behind_a_sequence_reach_it() -> None:
    """On CPU tensors it is what a user calls."""
    q, k, v = (normal(torch.device("cpu"), 9, 1, 64) for _ in range(3))
    cu = starts(torch.device("cpu"), (4, 3))  # two rows at the end are nobody's
    v[5], v[8] = math.inf, math.nan
    out, _ = op._varlen(q, k, v, cu, cu, 4, 4)
    assert out[:4].isfinite().all()


def test_a_batch_without_keys_gives_what_each_sequence_without_keys_does(device: torch.device) -> None:
    cu, q = starts(device, (3, 0, 2)), normal(device, 5, 2, 64).requires_grad_()
    k, v = (normal(device, 0, 1, 64).requires_grad_() for _ in range(2))
    out, lse = attention_varlen(q, k, v, cu, cu * 0, 3, 0, True)
    assert torch.equal(out, torch.zeros_like(out))
    assert bool((lse == -math.inf).all())
    by_q, by_k, by_v = torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
    assert torch.equal(by_q, torch.zeros_like(q))
    assert by_k.shape == by_v.shape == k.shape


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_packed_sequences_have_no_race(seed: int, deterministic: bool, device: torch.device) -> None:
    cu, cpu = starts(torch.device("cpu"), (70, 0, 1, 130)), torch.device("cpu")
    q, k, v, grad = (normal(cpu, 201, heads, 64) for heads in (2, 1, 1, 2))
    with dotcu.simulate(seed=seed):
        out, lse = attention_varlen(q, k, v, cu, cu, 130, 130, True)
        gradients = attention_varlen_backward(
            grad, q, k, v, out, lse, cu, cu, 130, 130, True, None, None, 0.0, deterministic
        )
    close(out, each_sequence(q, k, v, cu, cu, True), 4)
    assert all(bool(x.isfinite().all()) for x in gradients)


def last_queries(q: Tensor, cache: tuple[Tensor, Tensor], table: Tensor, length: int, cap: float) -> Tensor:
    """Attention of a sequence's last queries (S, H, D) in double precision; `table` has its blocks."""
    tokens, h, d = q.shape
    k, v = (x[table.long()].flatten(0, 1)[:length].double() for x in cache)
    k, v = (x.repeat_interleave(h // x.shape[1], 1).transpose(0, 1) for x in (k, v))
    scores = q.double().transpose(0, 1) @ k.mT / math.sqrt(d)
    scores = cap * torch.tanh(scores / cap) if cap else scores
    at = torch.arange(length - tokens, length, device=q.device)[:, None]
    scores = scores.masked_fill(torch.arange(length, device=q.device) > at, -math.inf)
    return (torch.softmax(scores, -1).nan_to_num(0.0) @ v).transpose(0, 1)


@pytest.mark.parametrize(
    ("lengths", "tokens", "heads", "d", "page", "cap"),
    [
        ((70, 1, 0), 1, (4, 2), 64, 16, 0.0),
        pytest.param((2, 300, 1030), 8, (8, 1), 128, 16, 0.0, marks=pytest.mark.slow),
        pytest.param((2, 300, 600), 4, (8, 1), 256, 64, 2.0, marks=pytest.mark.slow),
        pytest.param((2, 300), 8, (16, 1), 96, 5, 0.0, marks=pytest.mark.slow),
        pytest.param((7, 300), 1, (3, 1), 192, 1, 0.0, marks=pytest.mark.slow),
        pytest.param((300,), 2, (2, 2), 40, 16, 0.0, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("seed", [None, pytest.param(0, marks=pytest.mark.slow)])
def test_queries_see_the_blocks_of_their_sequence(
    lengths: tuple[int, ...],
    tokens: int,
    heads: tuple[int, int],
    d: int,
    page: int,
    cap: float,
    seed: int | None,
    device: torch.device,
) -> None:
    most = max(-(-length // page) for length in lengths)
    cache = normal(device, 40, page, heads[1], d), normal(device, 40, page, heads[1], d) / 2
    cache = tuple(x.repeat(len(lengths) * most // 40 + 1, 1, 1, 1) for x in cache)  # type: ignore[assignment]
    for x in cache:
        x[0] = math.nan  # of no sequence
    table = torch.randperm(len(cache[0]) - 1)[: len(lengths) * most].int().add(1).view(-1, most).to(device)
    for i, length in enumerate(lengths):  # pages are stale behind a sequence's end
        stale = torch.arange(most * page, device=device).view(most, page, 1, 1) >= length
        for x in cache:
            x[table[i].long()] = x[table[i].long()].masked_fill(stale, math.nan)
    q, counts = normal(device, len(lengths), tokens, heads[0], d), torch.tensor(lengths).int().to(device)
    with dotcu.simulate(seed=seed):
        out, lse = attention_decode(q, *cache, table, counts, softcap=cap)
    for i, length in enumerate(lengths):
        close(out[i], last_queries(q[i], cache, table[i], length, cap), 4)
    assert bool((lse.isfinite().sum(-1).amin(-1).cpu() == torch.tensor(lengths).clamp(max=tokens)).all())


def test_strided_layouts_need_no_copy_and_are_kept(device: torch.device) -> None:
    q, k, v = (normal(device, 1, 40, 2, 64).transpose(1, 2) for _ in range(3))
    out, _ = attention(q, k, v)
    assert out.stride() == q.stride()
    close(out, reference(q, k, v)[0], 4)
    odd = normal(device, 1, 2, 40, 67)[..., 3:]  # not at a multiple of 16 bytes
    close(attention(odd, k, v)[0], reference(odd, k, v)[0], 4)


@pytest.mark.slow
def test_queries_that_see_no_key_have_the_result_zero(device: torch.device) -> None:
    q, k, v = tensors(device, 1, 1, 1, 70, 20, 64)
    out, lse = attention(q, k, v, False, 10)
    assert torch.equal(out[0, 0, 30:], torch.zeros_like(out[0, 0, 30:]))
    assert bool((lse[0, 0, 30:] == -math.inf).all())
    assert bool(lse[0, 0, :30].isfinite().all())


def test_torch_calls_attention_where_it_can(device: torch.device) -> None:
    q, k, v = tensors(device, 1, 2, 1, 20, 30, 64)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    with InPlaceOfSdpa():
        out = sdpa(q, k, v, is_causal=True, enable_gqa=True)
        wide = sdpa(q.float(), q.float(), q.float())
    assert torch.equal(out, attention(q, k, v, True)[0])
    torch.testing.assert_close(wide, sdpa(q.float(), q.float(), q.float()))


def test_refusals_say_what_to_type(device: torch.device) -> None:
    q, k, v = tensors(device, 1, 2, 2, 16, 16, 64)
    cu, cache = starts(device, (1, 1)), [x.transpose(1, 2) for x in (k, v)]
    calls: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: attention(q.double(), k, v), TypeError, "bfloat16"),
        (lambda: attention(q[..., :60], k[..., :60], v[..., :60]), ValueError, "multiples of 8"),
        (lambda: attention(q, k, v, scale=-1.0), ValueError, "attention(-q"),
        (lambda: attention(q, k, v, window=-1), ValueError, "not negative"),
        (lambda: attention(q, k[:, :, :0], v[:, :, :0]), ValueError, "at least one key"),
        (lambda: attention_varlen(q, k, v, cu, cu, 16, 16), ValueError, "torch.cat"),
        (
            lambda: attention_decode(q.transpose(1, 2), *cache, cu[None], cu[:1]),
            ValueError,
            "attention_varlen",
        ),
        (lambda: attention_decode(q, k, v, cu, cu[:1]), ValueError, "block_table.int()"),
        (lambda: attention_varlen(q[0], k[0], v[0], cu.long(), cu, 16, 16), ValueError, "cumsum"),
    ]
    for call, error, words in calls:
        with pytest.raises(error, match=re.escape(words)):
            call()


@pytest.mark.parametrize("d", op.HEAD_DIMS)
def test_a_configuration_is_tried_where_a_block_holds_it(d: int) -> None:
    """Not with samples of larger heads: those rejected the default of 64, whose tiles they cannot have."""
    tunable, (groups, *steps) = attention.tunable, op.FORWARD[op.HEAD_DIMS.index(d)]
    assert tunable is not None
    for keys in steps:
        assert tunable.fits(
            op.AttentionTile(groups, keys), (torch.bfloat16, d, 1024, 1024, 16, op.ALL, False)
        )
    assert tunable.fits(op.AttentionTile(2, 128), (torch.bfloat16, d)) == (d <= 128)


@pytest.mark.parametrize(
    ("shape", "causal", "expected"),
    [
        ((1, 16, 1024, 64), False, op.AttentionTile(2, 128)),
        ((4, 16, 1024, 64), False, op.AttentionTile(3, 128)),  # three rounds of tiles, in place of four
        ((64, 16, 512, 64), False, op.AttentionTile(2, 128)),  # not tried
        ((1, 16, 2048, 64), False, op.AttentionTile(2, 128)),  # two rounds in any case
        ((1, 16, 3072, 64), False, op.AttentionTile(3, 128)),
        ((1, 16, 1024, 64), True, op.AttentionTile(2, 128)),
        ((1, 16, 2048, 64), True, op.AttentionTile(3, 128)),
        ((1, 16, 1024, 128), False, op.AttentionTile(2, 128)),
        ((1, 16, 2048, 128), False, op.AttentionTile(2, 176)),
        ((1, 16, 2048, 128), True, op.AttentionTile(2, 128)),
        ((1, 16, 3072, 128), True, op.AttentionTile(2, 176)),
    ],
    ids=str,
)
def test_tiles_are_those_that_trials_of_132_multiprocessors_found(
    shape: tuple[int, ...], causal: bool, expected: op.AttentionTile
) -> None:
    q = torch.empty(1, 1, 1, shape[3], dtype=torch.bfloat16).expand(shape)
    with dotcu.simulate(arch="sm_90a"):
        assert dotcu.sm_count(q) == 132
        _, rows, columns, *_ = op._choose(q, q, 0, shape[2], shape[2], causal, None, False)
    assert op.AttentionTile(rows // 64, columns) == expected
