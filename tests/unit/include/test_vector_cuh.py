"""dotcu/vector.cuh: elements moved by one instruction, and rounded as torch rounds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

import dotcu
from dotcu.errors import FindingError

PAGE = Path(__file__).parent / "vectors.cu"

kernels = dotcu.load(PAGE)

DTYPES = (torch.int8, torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.fixture(autouse=True)
def _simulated(device: torch.device) -> Iterator[None]:
    with nullcontext() if device.type == "cuda" else dotcu.simulate():
        yield


def widths(dtype: torch.dtype) -> list[int]:
    return [n for n in (1, 2, 4, 8, 16) if n * dtype.itemsize <= 16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_vectors_of_every_width_arrive_whole(dtype: torch.dtype, device: torch.device) -> None:
    x = torch.arange(-64, 64, device=device).to(dtype)
    for n in widths(dtype):
        out = torch.zeros_like(x)
        kernels.copy_vectors[dtype, n](x, out, len(x) // n, grid=2, block=32)
        assert torch.equal(out, x), n


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_floats_are_rounded_as_torch_rounds_them(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(0)
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 1e-40, 65520.0, 3.4e38, 1 + 2**-9])
    ties = 1 + torch.arange(0, 248) * 2.0**-12
    x = torch.cat([special, ties, torch.randn(768) * 10.0 ** torch.randint(-8, 8, (768,))]).to(device)
    for n in (1, 4):
        out = torch.zeros(len(x), dtype=dtype, device=device)
        kernels.round_to[dtype, n](x, out, len(x) // n, grid=4, block=64)
        assert torch.equal(out, x.to(dtype)), n


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU the fault ends the process's context")
def test_a_vector_at_another_address_is_reported_by_its_line() -> None:
    x, out = torch.ones(12), torch.zeros(8)
    with pytest.raises(FindingError, match=r"vectors\.cu:12: misaligned read of 16 bytes"):
        kernels.copy_vectors[torch.float32, 4](x[1:], out, 2, grid=1, block=32)
