"""The tile operators of the gallery: values at every edge of their tiles, gradients, refusals."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import dotcu
from dotcu import gallery
from dotcu.gallery import (
    attention_tile,
    attention_tile_backward,
    matmul_swiglu_tile,
    matmul_tile,
    softmax_tile,
    softmax_tile_backward,
)
from dotcu.gallery.matmul_tile import op as products
from helpers.quick_cases import quick, quick_pairs

INF = math.inf
FOLDERS = Path(gallery.__file__).parent


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def normal(device: torch.device, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Random normal numbers, the same ones on every device."""
    return torch.randn(*shape).to(dtype).to(device)


def close(got: Tensor, expected: Tensor, rounds: float = 1.0) -> None:
    """Compare with a result in double precision, for one rounding to got's dtype."""
    eps = torch.finfo(got.dtype).eps
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(
        got.double(), expected.double(), rtol=rounds * eps, atol=rounds * eps * scale / 8
    )


PRODUCTS = [(64, 64, 64), (65, 40, 136), (33, 41, 17), (1, 200, 70)]
QUICK_PRODUCTS = {("nn", PRODUCTS[0]), ("nt", PRODUCTS[1]), ("tn", PRODUCTS[2]), ("tt", PRODUCTS[3])}


@pytest.mark.parametrize(("layout", "sizes"), quick_pairs(QUICK_PRODUCTS, ["nn", "nt", "tn", "tt"], PRODUCTS))
def test_products_of_any_size_and_layout_agree(
    layout: str, sizes: tuple[int, int, int], device: torch.device
) -> None:
    m, n, k = sizes
    a = normal(device, m, k) if layout[0] == "n" else normal(device, k, m).T
    b = normal(device, k, n) if layout[1] == "n" else normal(device, n, k).T
    close(matmul_tile(a, b), a.double() @ b.double())


@pytest.mark.parametrize(
    ("arch", "clusters"), [("sm_80", False), ("sm_89", False), ("sm_90", True), ("sm_120", True)]
)
def test_products_use_clusters_on_gpus_that_have_them(arch: str, clusters: bool) -> None:
    chosen = set()
    with dotcu.simulate(arch=arch):
        for size in range(512, 8193, 512):
            x = torch.empty(size, size, dtype=torch.bfloat16, device="meta")
            kernel, _ = products._choose(x, x, x, None, None, size, False, False, 0)
            chosen.add(tuple(kernel.name.split(", ")[1:3]))
    assert (("256", "256") in chosen) == clusters


@pytest.mark.slow
def test_epilogues_come_after_each_other(device: torch.device) -> None:
    a, b = normal(device, 40, 72), normal(device, 72, 88) / 8
    bias, residual = normal(device, 88), normal(device, 40, 88)
    for with_bias, gelu, adds in itertools.product((False, True), repeat=3):
        expected = a.double() @ b.double() + (bias.double() if with_bias else 0)
        expected = (F.gelu(expected) if gelu else expected) + (residual.double() if adds else 0)
        got = matmul_tile(a, b, bias if with_bias else None, residual if adds else None, gelu=gelu)
        close(got, expected)


def test_gelu_is_exact_to_a_rounding_far_from_zero(device: torch.device) -> None:
    x = torch.linspace(-12, 12, 512, dtype=torch.float64).to(torch.float16).to(device)
    got = matmul_tile(x[:, None], torch.ones(1, 8, dtype=torch.float16, device=device), gelu=True)[:, 0]
    torch.testing.assert_close(got.double(), F.gelu(x.double()), rtol=1e-3, atol=4e-6)


@pytest.mark.parametrize("n", quick([41], [72, 41]))
def test_swiglu_multiplies_both_products(n: int, device: torch.device) -> None:
    a, gate, up = normal(device, 70, 64), normal(device, n, 64) / 8, normal(device, n, 64) / 8
    expected = F.silu(a.double() @ gate.double().T) * (a.double() @ up.double().T)
    close(matmul_swiglu_tile(a, gate.T, up.T), expected, 2)
    close(matmul_swiglu_tile(a, gate.T, up.T.contiguous()), expected, 2)


def test_gradients_of_products_agree(device: torch.device) -> None:
    inputs = [normal(device, *shape) for shape in ((40, 24), (56, 24), (56,), (40, 56))]
    ours = [x.detach().requires_grad_() for x in inputs]
    theirs = [x.detach().double().requires_grad_() for x in inputs]
    x, w, bias, residual = ours
    matmul_tile(x, w.T, bias, residual, gelu=True).backward(torch.ones_like(residual))
    x, w, bias, residual = theirs
    (F.gelu(x @ w.T + bias) + residual).sum().backward()
    for mine, yours in zip(ours, theirs, strict=True):
        assert mine.grad is not None
        assert yours.grad is not None
        close(mine.grad, yours.grad, 8)


def reference(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Attention in double precision, with torch's meaning of causal and of grouped heads."""
    group = q.shape[1] // k.shape[1]
    q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores[0, 0]).triu(1).bool(), -INF)
    return torch.softmax(scores, -1) @ v


HEADS = [(1, 2, 2, 128, 128, 64), (2, 4, 2, 33, 70, 64), (1, 2, 1, 150, 150, 128), (1, 1, 1, 40, 65, 256)]
QUICK_HEADS = {(HEADS[1], True)}


@pytest.mark.parametrize(("shape", "causal"), quick_pairs(QUICK_HEADS, HEADS, [False, True]))
def test_attention_of_any_length_agrees(shape: tuple[int, ...], causal: bool, device: torch.device) -> None:
    b, h, of_k, s, t, d = shape
    q, k, v = normal(device, b, h, s, d), normal(device, b, of_k, t, d), normal(device, b, of_k, t, d)
    out, lse = attention_tile(q, k, v, causal)
    close(out, reference(q, k, v, causal), 4)
    ours, theirs = (
        [x.detach().clone().to(kind).requires_grad_() for x in (q, k, v)] for kind in (q.dtype, torch.float64)
    )
    grad = normal(device, b, h, s, d)
    attention_tile(ours[0], ours[1], ours[2], causal)[0].backward(grad)
    reference(theirs[0], theirs[1], theirs[2], causal).backward(grad.double())
    for mine, yours in zip(ours, theirs, strict=True):
        assert mine.grad is not None
        assert yours.grad is not None
        close(mine.grad, yours.grad, 16)
    assert lse.shape == (b, h, s)


def test_large_scores_do_not_overflow(device: torch.device) -> None:
    q, k, v = (
        30 * normal(device, 1, 1, 70, 64),
        30 * normal(device, 1, 1, 71, 64),
        normal(device, 1, 1, 71, 64),
    )
    out, _ = attention_tile(q, k, v)
    close(out, reference(q, k, v, False), 4)


ROW_LENGTHS = [1, 31, 256, 257, 1000, 1024, 2049, 4096]
QUICK_ROWS = {(257, torch.float32), (1000, torch.bfloat16)}


@pytest.mark.parametrize(
    ("n", "dtype"), quick_pairs(QUICK_ROWS, ROW_LENGTHS, [torch.float32, torch.bfloat16])
)
def test_rows_of_every_length_agree(n: int, dtype: torch.dtype, device: torch.device) -> None:
    x, grad = 3 * normal(device, 5, n, dtype=dtype), normal(device, 5, n, dtype=dtype)
    expected = torch.softmax(x.double(), -1)
    tolerance: dict[str, Any] = {"rtol": 4 * torch.finfo(dtype).eps, "atol": 1e-7}
    torch.testing.assert_close(softmax_tile(x).double(), expected, **tolerance)
    y = expected.to(dtype)
    wanted = y.double() * (grad.double() - (grad.double() * y.double()).sum(-1, keepdim=True))
    torch.testing.assert_close(softmax_tile_backward(grad, y).double(), wanted, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("n", quick([1, 9, 201], [1, 3, 5, 7, 9, 15, 201, 255]))
def test_odd_rows_begin_at_each_element_of_a_group(n: int, device: torch.device) -> None:
    x, grad = 3 * normal(device, 9, n), normal(device, 9, n)
    y = torch.softmax(x.double(), -1)
    torch.testing.assert_close(softmax_tile(x).double(), y, rtol=1e-2, atol=1e-7)
    y = y.to(x.dtype)
    wanted = y.double() * (grad.double() - (grad.double() * y.double()).sum(-1, keepdim=True))
    torch.testing.assert_close(softmax_tile_backward(grad, y).double(), wanted, rtol=1e-2, atol=1e-6)


@pytest.mark.slow
def test_rows_that_no_tile_holds_agree(device: torch.device) -> None:
    x, grad = 3 * normal(device, 2, 40_003), normal(device, 2, 40_003)
    y = torch.softmax(x.double(), -1)
    torch.testing.assert_close(softmax_tile(x).double(), y, rtol=1e-2, atol=1e-7)
    y = y.to(x.dtype)
    wanted = y.double() * (grad.double() - (grad.double() * y.double()).sum(-1, keepdim=True))
    torch.testing.assert_close(softmax_tile_backward(grad, y).double(), wanted, rtol=1e-2, atol=1e-7)


@pytest.mark.parametrize("n", quick([9, 400], [4, 9, 400, 401, 33_000]))
def test_infinities_and_nan_come_out_as_in_torch(n: int, device: torch.device) -> None:
    starts = [[-INF, -INF], [INF, 1], [-INF, 2], [math.nan, 1], [INF, math.nan], [0, -200]]
    x = torch.full((len(starts) + 1, n), -INF)
    x[:-1, :2] = torch.tensor(starts)
    x[-1, -1] = 3
    x = x.to(device)
    torch.testing.assert_close(softmax_tile(x), torch.softmax(x, -1), equal_nan=True)


def test_empty_tensors_launch_nothing(device: torch.device) -> None:
    assert matmul_tile(normal(device, 0, 8), normal(device, 8, 16)).shape == (0, 16)
    assert matmul_tile(normal(device, 4, 0), normal(device, 0, 16)).eq(0).all()
    assert softmax_tile(normal(device, 3, 0)).shape == (3, 0)
    q, k = normal(device, 1, 2, 0, 64), normal(device, 1, 2, 5, 64)
    assert attention_tile(q, k, k)[0].shape == q.shape


def test_what_is_not_taken_is_refused_with_what_is(device: torch.device) -> None:
    a = normal(device, 8, 8)
    with pytest.raises(TypeError, match="bfloat16, float16"):
        matmul_tile(a.float(), a.float())
    with pytest.raises(ValueError, match=r"\(8, 8\) and \(16, 4\)"):
        matmul_tile(a, normal(device, 16, 4))
    with pytest.raises(ValueError, match="bias has the shape"):
        matmul_tile(a, a, normal(device, 7))
    q = normal(device, 1, 2, 8, 64)
    with pytest.raises(ValueError, match="64, 128 and 256"):
        attention_tile(q[..., :40], q[..., :40], q[..., :40])
    with pytest.raises(ValueError, match="above 0"):
        attention_tile(q, q, q, scale=-1.0)
    with pytest.raises(ValueError, match="grad has the shape"):
        attention_tile_backward(q[:, :1], q, q, q, q, q[..., 0].float())


@pytest.mark.parametrize(
    ("folder", "most"), [("matmul_tile", 60), ("attention_tile", 120), ("softmax_tile", 80)]
)
def test_a_kernel_is_short_enough_to_be_read_at_once(folder: str, most: int) -> None:
    lines = [
        line
        for path in (FOLDERS / folder).iterdir()
        if path.name in ("kernel.cu", "rows.cuh")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    assert sum(1 for line in lines if line.strip() and not line.lstrip().startswith("//")) <= most
