"""gemv: few rows times weights in 16, 8 and 4 bits, with scales of each kind."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.gallery import gemv
from dotcu.gallery.gemv.op import ANY, E4M3, _choose, dequantized
from helpers.quick_cases import quick, quick_pairs

BF16, F16 = torch.bfloat16, torch.float16
SHAPES = [(1, 1, 1), (2, 17, 37), (9, 20, 40), (17, 5, 24), (64, 130, 8)]
QUICK = {("e4m3", F16), ("int8 32", BF16), ("int4 64", BF16)}


def weights(kind: str, n: int, k: int, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Weights and their scale: `int4 32` has groups of 32, `int8` a scale for each row."""
    name, *group = kind.split()
    if name == "same":
        return torch.randn(n, k).to(dtype), None
    scale = torch.rand(n, k // int(group[0])) if group else torch.rand(n)
    made = {
        "e4m3": torch.randn(n, k).to(E4M3),
        "int8": torch.randint(-128, 128, (n, k), dtype=torch.int8),
        "int4": torch.randint(0, 256, (n, k // 2), dtype=torch.uint8),
    }
    return made[name], scale


def close(got: Tensor, x: Tensor, weight: Tensor, scale: Tensor | None) -> None:
    """Compare with a product in float64."""
    expected = x.double() @ dequantized(weight, scale, torch.float64).T
    size = float(expected.abs().max())
    torch.testing.assert_close(got, expected.to(x.dtype), rtol=1e-2, atol=1e-3 * size)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    quick_pairs(QUICK, ["same", "e4m3", "int8", "int8 32", "int4 32", "int4 64", "int4 128"], [BF16, F16]),
)
def test_weights_of_each_format_are_multiplied(kind: str, dtype: torch.dtype, device: torch.device) -> None:
    weight, scale = weights(kind, 18, 128, dtype)
    x, weight = torch.randn(3, 128).to(device, dtype), weight.to(device)
    scale = None if scale is None else scale.to(device)
    with dotcu.simulate():
        close(gemv(x, weight, scale), x, weight, scale)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rows"), [("same", 3), ("same", 64), ("e4m3", 8), ("int4 128", 8)])
def test_tiles_for_many_rows_of_weights_are_right(kind: str, rows: int, device: torch.device) -> None:
    weight, scale = weights(kind, 4200, 256, BF16)
    x, weight = torch.randn(rows, 256).to(device, BF16), weight.to(device)
    scale = None if scale is None else scale.to(device)
    with dotcu.simulate():
        close(gemv(x, weight, scale), x, weight, scale)


@pytest.mark.parametrize("shape", quick([(2, 17, 37), (64, 130, 8)], SHAPES), ids=str)
def test_any_shape_is_right(shape: tuple[int, int, int], device: torch.device) -> None:
    m, n, k = shape
    x, weight = torch.randn(m, k, device=device).to(BF16), torch.randn(n, k, device=device).to(BF16)
    with dotcu.simulate():
        close(gemv(x, weight), x, weight, None)


def test_every_e4m3_and_every_int4_is_exact(device: torch.device) -> None:
    x = torch.eye(8, 256, device=device).to(F16)
    every = torch.arange(256, device=device).to(torch.uint8)
    finite = torch.where(every % 128 == 127, 0, every).to(torch.uint8).view(32, 8).repeat(1, 32).view(E4M3)
    pairs = every.view(64, 4).repeat(1, 32)
    with dotcu.simulate():
        assert torch.equal(gemv(x, finite, torch.ones(1, device=device)), finite[:, :8].T.to(F16))
        got = gemv(x, pairs, torch.ones(64, 2, device=device))
        assert torch.equal(got, dequantized(pairs, None, F16)[:, :8].T)


def test_nan_stays_in_its_row_of_weights(device: torch.device) -> None:
    weight = torch.ones(4, 16, device=device)
    weight[2, 3] = torch.nan
    with dotcu.simulate():
        got = gemv(torch.ones(1, 16, device=device).to(BF16), weight.to(E4M3), torch.ones(1, device=device))
    assert got.isnan().tolist() == [[False, False, True, False]]


def test_blocks_of_a_cluster_share_a_long_row(device: torch.device) -> None:
    x, weight = torch.randn(2, 2048, device=device).to(BF16), torch.randn(16, 2048, device=device).to(BF16)
    with dotcu.simulate(arch="sm_90"):
        close(gemv(x, weight), x, weight, None)


STREAMED = [
    ("int4 128", 1, 512),
    ("e4m3", 8, 272),
    ("int8 32", 2, 1152),
    ("int4 64", 5, 1280),
]


@pytest.mark.parametrize("case", quick([STREAMED[-1]], STREAMED), ids=str)
def test_hopper_copies_weights_by_lines(
    case: tuple[str, int, int], monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    tiles = tuple((bits, ANY, (2, 2, 3)) for bits in (8, 4))
    monkeypatch.setattr(importlib.import_module("dotcu.gallery.gemv.op"), "STREAMS", tiles)
    _choose.forget()
    kind, rows, k = case
    weight, scale = weights(kind, 70, k, BF16)
    x, weight = torch.randn(rows, k).to(device, BF16), weight.to(device)
    scale = None if scale is None else scale.to(device)
    with dotcu.simulate(arch="sm_90a"):
        close(gemv(x, weight, scale), x, weight, scale)


@pytest.mark.parametrize(
    "shape", quick([(33, 70, 264)], [(33, 70, 264), (9, 1100, 200), (64, 130, 72)]), ids=str
)
def test_hopper_takes_many_rows_as_columns_of_a_warpgroup(
    shape: tuple[int, int, int], device: torch.device
) -> None:
    m, n, k = shape
    x, weight, bias = (torch.randn(size).to(device, BF16) for size in ((m, k), (n, k), (n,)))
    with dotcu.simulate(arch="sm_90a"):
        close(gemv(x, weight, None, bias) - bias, x, weight, None)


@pytest.mark.parametrize("k", [8, 0])
def test_gradients_are_those_of_a_product(k: int, device: torch.device) -> None:
    tensors = [torch.randn(shape, device=device).to(BF16) for shape in ((3, k), (4, k), (4,))]
    x, weight, bias = (tensor.requires_grad_() for tensor in tensors)
    got = torch.autograd.grad(gemv(x, weight, None, bias).sum(), (x, weight, bias))
    wanted = torch.autograd.grad(torch.nn.functional.linear(x, weight, bias).sum(), (x, weight, bias))
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize(
    ("shape", "scale", "says"),
    [((65, 8), None, "at most 64 rows"), ((2, 9), None, "weights .N, K."), ((2, 8), (), "none with others")],
)
def test_what_it_does_not_take_is_refused(shape: tuple[int, ...], scale: Any, says: str) -> None:
    scales = None if scale is None else torch.ones(scale)
    with pytest.raises(ValueError, match=says):
        gemv(torch.ones(shape).to(BF16), torch.ones(4, 8).to(BF16), scales)


def test_groups_that_are_no_power_of_two_are_refused() -> None:
    with pytest.raises(ValueError, match=r"a power of two from 32 on .got .4, 2. for K = 96"):
        gemv(torch.ones(1, 96).to(BF16), torch.ones(4, 96, dtype=torch.int8), torch.ones(4, 2))
