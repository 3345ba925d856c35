"""quantize_fp8: bit for bit what the definition says, for every kind of row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.gallery import quantize_fp8
from helpers.quick_cases import quick, quick_pairs

FLOATS = [torch.float32, torch.float16, torch.bfloat16]
NAN, INF = float("nan"), float("inf")


def defined(x: Tensor) -> tuple[Tensor, Tensor]:
    """The definition, on the CPU: quotients of float32 as IEEE 754 has them."""
    wide = x.cpu().float()
    scales = wide.abs().amax(-1, keepdim=True) / 448
    scales[scales == 0] = 1
    return (wide / scales).clamp(-448, 448).to(torch.float8_e4m3fn), scales


def assert_as_defined(x: Tensor) -> None:
    values, scales = (result.cpu() for result in quantize_fp8(x))
    expected, expected_scales = defined(x)
    torch.testing.assert_close(scales, expected_scales, rtol=0, atol=0, equal_nan=True)
    number = ~expected.float().isnan()
    assert torch.equal(number, ~values.float().isnan())
    assert torch.equal(values.view(torch.uint8)[number], expected.view(torch.uint8)[number])


LENGTHS = [1, 7, 8, 32, 100, 257, 1024, 4100, 9000]
QUICK = {(n, FLOATS[index % len(FLOATS)]) for index, n in enumerate(LENGTHS) if n in (8, 100, 1024)}


@pytest.mark.parametrize(("n", "dtype"), quick_pairs(QUICK, LENGTHS, FLOATS))
def test_rows_of_every_length_are_as_defined(n: int, dtype: torch.dtype, device: torch.device) -> None:
    assert_as_defined(torch.randn(5, n, device=device).to(dtype))


@pytest.mark.parametrize("n", quick([16_384], [16_384, 65_536, 66_000, 66_001]))
def test_rows_that_a_block_can_hardly_hold_are_as_defined(n: int, device: torch.device) -> None:
    assert_as_defined(torch.randn(2, n, device=device))
    assert_as_defined(torch.randn(1, n, device=device).to(torch.bfloat16))


@pytest.mark.parametrize("exponent", quick([-149, -125, -5, 115], range(-149, 120, 12)))
def test_every_magnitude_is_as_defined(exponent: int, device: torch.device) -> None:
    x = torch.randn(4, 512, dtype=torch.float64, device=device) * 2.0**exponent
    assert_as_defined(x.float())


def test_quotients_next_to_a_tie_are_rounded_as_the_division_is(device: torch.device) -> None:
    """A product with the inverse of the scale alone is wrong in one of twenty of these."""
    most = torch.rand(64, 1) + 1
    ties = torch.arange(17, 32, 2) / 16 * 2.0 ** torch.arange(-6, 8)[:, None]
    bits = (most / 448 * ties.flatten()).view(torch.int32)
    x = torch.cat([most, *((bits + step).view(torch.float32) for step in (-2, -1, 0, 1, 2))], dim=1)
    assert_as_defined(x.to(device))


def test_a_row_of_zeros_has_the_scale_one(device: torch.device) -> None:
    x = torch.zeros(3, 40, device=device)
    x[1] = -0.0
    values, scales = quantize_fp8(x)
    assert scales.flatten().tolist() == [1, 1, 1]
    assert values.view(torch.uint8).cpu().unique().tolist() == [0, 128]
    assert_as_defined(x)


def test_a_row_too_small_for_a_scale_has_the_scale_one(device: torch.device) -> None:
    x = torch.full((1, 9), 1e-44, device=device)
    values, scales = quantize_fp8(x)
    assert scales.item() == 1
    assert (values.float() == 0).all()


def test_nan_and_infinity_stay_in_their_row(device: torch.device) -> None:
    x = torch.ones(3, 64, device=device)
    x[0, 5], x[1, 7] = NAN, -INF
    values, scales = quantize_fp8(x)
    assert values[0].float().isnan().all()
    assert scales[0].isnan()
    assert values[1].float().isnan().nonzero().flatten().tolist() == [7]
    assert values[1, :7].float().count_nonzero() == 0
    assert scales[1].item() == INF
    assert (values[2].float() == 448).all()


def test_the_largest_element_is_the_largest_value(device: torch.device) -> None:
    values, scales = quantize_fp8(torch.tensor([[1.0, -3.5, 2.0]], device=device))
    assert values.float().flatten().tolist() == [128, -448, 256]
    assert scales.item() == 3.5 / 448


@pytest.mark.parametrize("dtype", quick([torch.bfloat16], FLOATS), ids=str)
def test_values_times_scales_are_near_the_tensor(dtype: torch.dtype, device: torch.device) -> None:
    x = torch.randn(20, 300, device=device).to(dtype)
    values, scales = quantize_fp8(x)
    most = x.float().abs().amax(-1, keepdim=True)
    error = (values.float() * scales - x.float()).abs()
    assert (error <= x.float().abs() / 16 + most * 2.0**-18).all()


@pytest.mark.slow
def test_strides_and_offsets_are_followed(device: torch.device) -> None:
    x = torch.randn(40, 130, device=device).to(torch.bfloat16)
    for cut in (x[:, 1:], x[:, :128], x[1::2, 2:50], x.T, x[:1].expand(7, -1), x.view(8, 5, 130)[:, 1:, ::2]):
        assert_as_defined(cut)


@pytest.mark.parametrize("shape", [(1,), (3, 1), (0, 8), (8, 0), (0,), (2, 0, 3)])
def test_small_and_empty_shapes_have_their_scales(shape: tuple[int, ...], device: torch.device) -> None:
    values, scales = quantize_fp8(torch.ones(shape, device=device))
    assert values.shape == shape
    assert values.dtype == torch.float8_e4m3fn
    assert scales.shape == (*shape[:-1], 1)
    assert (scales == (1 if shape[-1] == 0 else 1 / 448)).all()


def test_the_instruction_and_the_portable_conversion_give_the_same_bits(device: torch.device) -> None:
    if device.type == "cuda":
        pytest.skip("compares two architectures in the simulator")
    x = torch.randn(30, 256)
    x[:, 0] = 448
    x[:, 1:] *= 2.0 ** torch.randint(-12, 9, (30, 255))
    with dotcu.simulate(arch="sm_90"):
        by_instruction, _ = quantize_fp8(x)
    with dotcu.simulate(arch="sm_80"):
        portable, _ = quantize_fp8(x)
    assert torch.equal(by_instruction.view(torch.uint8), portable.view(torch.uint8))


def test_a_tensor_without_rows_is_refused(device: torch.device) -> None:
    with pytest.raises(ValueError, match=r"at least one dimension"):
        quantize_fp8(torch.tensor(1.0, device=device))


def test_float64_is_refused_by_name(device: torch.device) -> None:
    with pytest.raises(TypeError, match=r"float32, float16, bfloat16 \(got torch.float64\)"):
        quantize_fp8(torch.ones(3, dtype=torch.float64, device=device))


def test_it_has_no_gradient_and_says_so(device: torch.device) -> None:
    x = torch.randn(3, 8, device=device, requires_grad=True)
    _, scales = quantize_fp8(x)
    with pytest.raises(dotcu.errors.GradientError, match="quantize_fp8"):
        scales.sum().backward()


def test_vmap_quantizes_each_row_by_itself(device: torch.device) -> None:
    x = torch.randn(4, 6, 32, device=device)
    values, scales = torch.func.vmap(quantize_fp8, in_dims=1)(x)
    assert torch.equal(values.view(torch.uint8), quantize_fp8(x.transpose(0, 1))[0].view(torch.uint8))
    assert scales.shape == (6, 4, 1)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("n", [16_384, 20_000, 32_768, 65_536, 131_072, 262_144, 300_000])
def test_rows_that_clusters_share_are_as_defined(n: int, dtype: torch.dtype) -> None:
    assert_as_defined(torch.randn(300, n, device="cuda").to(dtype))
    assert_as_defined(torch.randn(2, n, device="cuda").to(dtype))


@pytest.mark.gpu
def test_the_reference_gives_the_same_on_a_gpu() -> None:
    x = torch.randn(100, 4096, device="cuda")
    values, scales = quantize_fp8(x)
    expected, expected_scales = quantize_fp8.reference_function(x)
    assert torch.equal(scales, expected_scales)
    assert torch.equal(values.view(torch.uint8), expected.view(torch.uint8))
