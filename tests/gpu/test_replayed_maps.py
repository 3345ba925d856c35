"""Calls that pass tensor maps: replayed, they give the body's bits, at any address and on any stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.gallery.attention.op import attention, attention_backward
from dotcu.gallery.matmul.op import matmul, matmul_fp8, matmul_swiglu
from dotcu.kernel.driver.errors import recent_launches

pytestmark = pytest.mark.gpu

BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def _hopper() -> None:
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("these kernels are Hopper's")


def random(*sizes: int) -> Tensor:
    return torch.randn(sizes, device="cuda", dtype=BF16)


def is_replayed(op: Any) -> bool:
    """Return True if the last launch is of an operator, from its call cache."""
    last = recent_launches()[0]
    return last.operator == op.qualified_name and "from the call cache" in str(last.config)


def results(value: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (value,) if isinstance(value, Tensor) else value


def require_the_bodys_bits(op: Any, *args: Any, replayed: bool = True, **options: Any) -> None:
    """Call until a call is recorded, then compare one with the body."""
    for _ in range(3):
        op(*args, **options)
    found = results(op(*args, **options))
    assert is_replayed(op) is replayed, str(op.call_cache)
    with dotcu.settings.override(replay=False):
        wanted = results(op(*args, **options))
        assert not is_replayed(op)
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()


def heads(b: int, t: int, h: int, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v as views of one projection."""
    q, k, v = random(b, t, 3, h, d).permute(2, 0, 3, 1, 4)
    return q, k, v


@pytest.mark.parametrize(
    ("m", "n", "k"), [(256, 256, 256), (512, 1000, 264), (4096, 768, 768), (8, 128, 4096)]
)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_a_product(m: int, n: int, k: int, layout: str) -> None:
    for _ in range(2):  # at other addresses
        a = random(m, k) if layout[0] == "n" else random(k, m).mT
        b = random(k, n) if layout[1] == "n" else random(n, k).mT
        require_the_bodys_bits(matmul, a, b)
        torch.testing.assert_close(matmul(a, b).float(), (a.float() @ b.float()), rtol=2e-2, atol=0.5)


def test_products_with_epilogues_batches_and_other_types() -> None:
    a, b = random(256, 512), random(512, 384)
    require_the_bodys_bits(matmul, a, b, random(384), random(256, 384), activation="gelu")
    require_the_bodys_bits(matmul, random(3, 64, 72), random(3, 72, 136))
    require_the_bodys_bits(matmul_swiglu, a, b, random(512, 384))
    eights = a.to(torch.float8_e4m3fn), b.mT.to(torch.float8_e4m3fn).contiguous().mT
    require_the_bodys_bits(matmul_fp8, *eights, *torch.ones(2, 1, device="cuda"))


def test_an_unaligned_matrix_after_an_aligned_one() -> None:
    m, k, b = 256, 128, random(128, 192)
    memory = random(m * k + 8)
    for first in (0, 1, 8, 4):
        a = memory[first : first + m * k].view(m, k)
        require_the_bodys_bits(matmul, a, b)
        torch.testing.assert_close(matmul(a, b).float(), (a.float() @ b.float()), rtol=2e-2, atol=0.5)
    q = memory[1 : 1 + 4 * 64 * 64].view(1, 4, 64, 64)
    require_the_bodys_bits(attention, q.clone(), q.clone(), q.clone())
    require_the_bodys_bits(attention, q, q.clone(), q.clone(), replayed=False)  # which copies it


def test_a_product_into_memory_that_is_there() -> None:
    a, b, out = random(256, 96), random(96, 200), random(256, 200)
    for to in (out, out.clone(), random(200, 256).T):
        for _ in range(3):
            assert matmul(a, b, out=to) is to
        assert is_replayed(matmul.overloads["out"]) is to.is_contiguous()
        assert torch.equal(to, matmul(a, b))
    for _ in range(3):
        square = random(96, 96)
        expected = matmul(a, square)
        matmul(a, square, out=a)
        assert torch.equal(a, expected)


@pytest.mark.parametrize("make", [heads, lambda b, t, h, d: [random(b, h, t, d) for _ in range(3)]])
@pytest.mark.parametrize(("t", "d", "causal"), [(256, 64, True), (513, 128, True), (300, 256, False)])
def test_attention_and_its_gradients(make: Callable[..., Any], t: int, d: int, causal: bool) -> None:
    for _ in range(2):
        q, k, v = make(2, t, 4, d)
        require_the_bodys_bits(attention, q, k, v, causal)
        out, lse = attention(q, k, v, causal)
        more = (torch.randn_like(out), q, k, v, out, lse, causal, None, None, 0.0)
        require_the_bodys_bits(attention_backward, *more, True)
        for one, other in zip(attention_backward(*more, False), attention_backward(*more, True), strict=True):
            torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)
        assert is_replayed(attention_backward)


def test_a_graph_has_the_maps_of_its_own_memory() -> None:
    a, b, (q, k, v) = random(256, 256), random(256, 256), heads(1, 256, 4, 64)
    require_the_bodys_bits(matmul, matmul(a, b), b)
    require_the_bodys_bits(attention, q, k, v, True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product = matmul(matmul(a, b), b)
        attended, _ = attention(q, k, v, True)
    assert is_replayed(attention)
    a.copy_(random(256, 256) / 16)
    q.copy_(random(1, 4, 256, 64))
    graph.replay()
    assert torch.equal(product, matmul(matmul(a, b), b))
    assert torch.equal(attended, attention(q, k, v, True)[0])


def test_a_side_stream_has_its_own_order() -> None:
    a, b = random(512, 512), random(512, 512)
    require_the_bodys_bits(matmul, a, b)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        a.fill_(0.5)
        product = matmul(a, b)
        assert is_replayed(matmul)
    torch.cuda.current_stream().wait_stream(side)
    assert torch.equal(product, matmul(a, b))
