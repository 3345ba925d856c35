"""cumsum: running sums, by lanes, blocks, clusters and tiles, along any dimension and in both directions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import make_tensor

import dotcu
from dotcu.gallery import cumsum
from dotcu.gallery.cumsum import op as module
from dotcu.gallery.cumsum.op import reverse_cumsum
from helpers.quick_cases import quick, quick_pairs

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [dtype for dtype in cumsum.dtypes if dtype not in FLOATS]
EPS = {torch.float32: 4e-7, torch.float64: 1e-14, torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.int64: 0}


def positive(device: torch.device, dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.rand(shape, device=device).to(dtype)


def from_end(x: Tensor, dim: int) -> Tensor:
    return x.flip(dim).cumsum(dim).flip(dim)


def assert_exact_but_for_rounding(got: Tensor, exact: Tensor) -> None:
    assert (got.double() - exact).abs().le(EPS[got.dtype] * exact.abs()).all()


LENGTHS = [1, 3, 4, 5, 31, 32, 127, 129, 255, 1023, 1025, 4095, 4097, 8193, 20_000]


@pytest.mark.parametrize("n", quick([4097], LENGTHS))
def test_every_length_around_a_vector_a_warp_and_a_block_is_right(n: int, device: torch.device) -> None:
    x = positive(device, torch.float32, n)
    assert_exact_but_for_rounding(cumsum(x), x.double().cumsum(0))
    assert_exact_but_for_rounding(reverse_cumsum(x), from_end(x.double(), 0))


ROWS = [(70, 9), (3, 2050), (2, 20_001), (300, 1)]
QUICK_ROWS = {(torch.bfloat16, ROWS[1]), (torch.float16, ROWS[3])}


@pytest.mark.parametrize(("dtype", "shape"), quick_pairs(QUICK_ROWS, FLOATS, ROWS))
def test_rows_are_summed_each_for_itself(
    dtype: torch.dtype, shape: tuple[int, ...], device: torch.device
) -> None:
    x = positive(device, dtype, *shape)
    assert_exact_but_for_rounding(cumsum(x), x.double().cumsum(1))
    assert_exact_but_for_rounding(reverse_cumsum(x), from_end(x.double(), 1))


COLUMNS = [
    (2, 3, 5), (1, 7, 300), (3, 40, 8), (2, 130, 64), (1, 3000, 33), (2, 9000, 2), (1, 600, 70), (4, 1, 3),
]  # fmt: skip
QUICK_COLUMNS = {(torch.bfloat16, COLUMNS[3])}


@pytest.mark.parametrize(
    ("dtype", "shape"), quick_pairs(QUICK_COLUMNS, [torch.float32, torch.bfloat16], COLUMNS)
)
def test_columns_are_summed_each_for_itself(
    dtype: torch.dtype, shape: tuple[int, ...], device: torch.device
) -> None:
    x = positive(device, dtype, *shape)
    assert_exact_but_for_rounding(cumsum(x, 1), x.double().cumsum(1))
    assert_exact_but_for_rounding(reverse_cumsum(x, 1), from_end(x.double(), 1))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", quick([torch.float32], [torch.float32, torch.int16]), ids=str)
def test_tiles_beyond_the_conductors_first_round_are_right(dtype: torch.dtype, device: torch.device) -> None:
    """Its 8 warps hear 256 tiles; of 1024 elements each, where a vector is one of them."""
    x = make_tensor((1024 * 300 + 5,), device=device, dtype=dtype, low=0, high=9)[1:]
    exact = x.double().cumsum(0)
    assert_exact_but_for_rounding(cumsum(x), exact)


@pytest.fixture
def other_tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Sets what launches are chosen by; kept choices are forgotten before and after."""
    module._choose.forget()
    yield monkeypatch
    module._choose.forget()


@pytest.mark.parametrize("dtype", quick([torch.int64], [torch.float64, torch.int64]), ids=str)
@pytest.mark.parametrize(
    "fits", [pytest.param(0, id="by 32", marks=pytest.mark.slow), pytest.param(10**6, id="in order")]
)
def test_tiles_of_several_rows_are_right(
    dtype: torch.dtype, fits: int, device: torch.device, other_tables: pytest.MonkeyPatch
) -> None:
    """With blocks of 5 warps, of which a round is 160 tiles; and where it is said that fewer than 33 fit."""
    other_tables.setattr(module, "TILES", ((2**63, 160, 1),))
    other_tables.setattr(module, "CLUSTERS", ())
    other_tables.setattr(module, "SPREAD_CLUSTERS", ())
    other_tables.setattr(module, "TOGETHER", fits)
    x = make_tensor((2, 320 * 165 + 2), device=device, dtype=dtype, low=0, high=9).floor()
    assert torch.equal(cumsum(x), x.cumsum(1))


@pytest.mark.slow
def test_tiles_of_columns_beyond_their_first_group_are_right(device: torch.device) -> None:
    """Of 8 vectors of 4 beside each other, 64 tiles of 256 rows are a group."""
    x = positive(device, torch.float32, 256 * 65 + 1, 32)
    assert_exact_but_for_rounding(cumsum(x, 0), x.double().cumsum(0))


RAGGED = [(520, 33), (1200, 261), (300, 1001)]


@pytest.mark.parametrize(
    ("dtype", "shape"),
    quick_pairs({(torch.bfloat16, RAGGED[0])}, [torch.float32, torch.float16, torch.bfloat16], RAGGED),
)
def test_tiles_of_columns_that_begin_anywhere_are_right(
    dtype: torch.dtype, shape: tuple[int, int], device: torch.device, other_tables: pytest.MonkeyPatch
) -> None:
    """Of several slices of rows, of more tiles than a group has, and of several tiles side by side."""
    other_tables.setattr(module, "RAGGED_TILES", 1)
    other_tables.setattr(module, "RAGGED_BELOW", 1)
    x = positive(device, dtype, *shape)
    assert_exact_but_for_rounding(cumsum(x, 0), x.double().cumsum(0))
    assert_exact_but_for_rounding(reverse_cumsum(x, 0), from_end(x.double(), 0))


@pytest.mark.parametrize("dtype", quick([torch.int8], INTEGERS), ids=str)
def test_integers_add_up_in_64_bits(dtype: torch.dtype, device: torch.device) -> None:
    x = make_tensor((5000,), device=device, dtype=dtype)
    assert cumsum(x).dtype == torch.int64
    assert torch.equal(cumsum(x), x.cumsum(0))
    assert torch.equal(cumsum(x.view(1000, 5), 0), x.view(1000, 5).cumsum(0))


@pytest.mark.slow
def test_64_bit_sums_wrap_around_from_tile_to_tile(device: torch.device) -> None:
    x = torch.full((5000,), 2**62 + 12345, device=device)
    assert torch.equal(cumsum(x), x.cumsum(0))


@pytest.mark.parametrize("dtype", quick([torch.bfloat16], [torch.float16, torch.bfloat16]), ids=str)
def test_half_types_add_up_in_float32(dtype: torch.dtype, device: torch.device) -> None:
    x = torch.ones(9000, dtype=dtype, device=device)
    assert torch.equal(cumsum(x), torch.arange(1.0, 9001, device=device).to(dtype))


@pytest.mark.slow
def test_a_long_row_of_floats_loses_no_more_than_a_short_one(device: torch.device) -> None:
    x = torch.full((100_000,), 0.1, device=device)
    exact = x.double().cumsum(0)
    assert ((cumsum(x) - exact) / exact).abs().max() < 2 * torch.finfo(torch.float32).eps


@pytest.mark.slow
@pytest.mark.parametrize("offset", range(1, 8))
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_view_that_starts_anywhere_is_right(dtype: torch.dtype, offset: int, device: torch.device) -> None:
    x = positive(device, dtype, 5000)[offset:]
    assert_exact_but_for_rounding(cumsum(x), x.double().cumsum(0))


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_strides_are_followed(dim: int, device: torch.device) -> None:
    x = positive(device, torch.float64, 6, 10, 7)[::2].transpose(0, 2)
    torch.testing.assert_close(cumsum(x, dim), x.cumsum(dim))


def test_zero_and_no_dimensions(device: torch.device) -> None:
    assert cumsum(torch.tensor(3.0, device=device), 0).item() == 3
    assert cumsum(torch.tensor(3, device=device)).dtype == torch.int64
    for shape, dim in (((0,), 0), ((4, 0), 0), ((4, 0), 1), ((0, 3, 2), 1)):
        assert cumsum(torch.ones(shape, device=device), dim).shape == shape


def test_nothing_before_an_infinity_or_a_nan_is_touched(device: torch.device) -> None:
    x = torch.ones(6000, device=device)
    x[3000], x[5000] = torch.inf, torch.nan
    got = cumsum(x)
    assert torch.equal(got[:3000], torch.arange(1.0, 3001, device=device))
    assert (got[3000:5000] == torch.inf).all()
    assert got[5000:].isnan().all()


@pytest.mark.slow
def test_sums_of_zero_are_reported_too(device: torch.device) -> None:
    """A word that is zero says that nothing was told."""
    for x in (torch.zeros(9000, device=device), torch.zeros(9000, device=device, dtype=torch.int64)):
        assert torch.equal(cumsum(x), x)
    x = torch.full((9000,), -0.0, device=device)
    assert torch.equal(cumsum(x), x)


def test_every_order_of_warps_gives_the_same_bits(device: torch.device) -> None:
    x = positive(device, torch.float32, 50_000)
    first = cumsum(x)
    for seed in range(3):
        if device.type == "cuda":
            again = cumsum(x)
        else:
            with dotcu.simulate(seed=seed):
                again = cumsum(x)
        assert torch.equal(again, first)


@pytest.mark.slow
def test_the_gradient_adds_up_from_the_end(device: torch.device) -> None:
    x = torch.randn(3, 4, device=device, requires_grad=True)
    cumsum(x, 1).sum().backward()
    assert torch.equal(x.grad, torch.tensor([4.0, 3.0, 2.0, 1.0], device=device).expand(3, 4))
    x = torch.randn(2, 3, 2, device=device, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: cumsum(t, 1), x)


@pytest.mark.slow
def test_second_gradients_of_the_reverse_are_right(device: torch.device) -> None:
    x = torch.randn(2, 3, 2, device=device, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(reverse_cumsum, x)


def test_a_dimension_that_is_not_there_is_refused(device: torch.device) -> None:
    with pytest.raises(ValueError, match=r"-2 to 1 .got 2 for 2 dimensions"):
        cumsum(torch.ones(2, 3, device=device), 2)


def test_a_batch_is_summed_along_its_own_dimension(device: torch.device) -> None:
    x = positive(device, torch.float32, 3, 5, 4)
    torch.testing.assert_close(torch.func.vmap(cumsum, in_dims=1, out_dims=1)(x), x.cumsum(2))
    torch.testing.assert_close(torch.func.vmap(lambda t: cumsum(t, 0))(x), x.cumsum(1))
    assert torch.equal(torch.func.vmap(cumsum)(x[0, 0]), x[0, 0])


def test_every_file_of_the_kernel_is_one_page() -> None:
    for path in Path(module.__file__).parent.glob("*.cu*"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 100, path.name


@pytest.mark.gpu
def test_calls_on_many_streams_do_not_disturb_each_other() -> None:
    x = torch.rand(2**22, device="cuda")
    expected = cumsum(x)
    torch.cuda.synchronize()
    results = []
    for stream in [torch.cuda.Stream() for _ in range(4)] * 8:
        with torch.cuda.stream(stream):
            results.append(cumsum(x))
    torch.cuda.synchronize()
    assert all(torch.equal(result, expected) for result in results)


@pytest.mark.gpu
def test_a_graph_gives_the_sums_of_what_stands_there_when_it_is_replayed() -> None:
    x = torch.rand(2**22, device="cuda")
    cumsum(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = cumsum(x)
    for _ in range(3):
        x.copy_(torch.rand_like(x))
        graph.replay()
        assert torch.equal(y, cumsum(x))


@pytest.mark.gpu
@pytest.mark.parametrize("log2", range(8, 27, 2))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_size_is_right_on_the_gpu(dtype: torch.dtype, log2: int) -> None:
    for n in (2**log2, 2**log2 + 3):
        x = torch.rand(n, device="cuda").to(dtype)
        assert_exact_but_for_rounding(cumsum(x), x.double().cumsum(0))
        assert_exact_but_for_rounding(reverse_cumsum(x), from_end(x.double(), 0))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(10_007, 4097), (1_000_003, 37), (300_007, 101)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_many_rows_that_begin_anywhere_are_right_on_the_gpu(
    dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    x = torch.rand(shape, device="cuda").to(dtype)
    got = cumsum(x, 0)
    assert_exact_but_for_rounding(got, x.double().cumsum(0))
    assert torch.equal(cumsum(x, 0), got)
    assert_exact_but_for_rounding(reverse_cumsum(x, 0), from_end(x.double(), 0))
