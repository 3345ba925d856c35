"""dotcu/tma.cuh and dotcu.tensor_map: boxes of a tensor, on the GPU and, the same, in the simulator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import dotcu
from dotcu import process
from dotcu.errors import SimulationError, SourceError

INCLUDE = Path(dotcu.__file__).parent / "include"
PAGE = Path(__file__).parent / "tma.cu"

kernels = dotcu.load(PAGE)


@pytest.fixture(autouse=True)
def _where_there_is_tma() -> Iterator[None]:
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("TMA needs compute capability 9.0")
    with dotcu.simulate(arch="sm_90"):
        yield


def padded(at: tuple[int, ...]) -> tuple[int, ...]:
    return (*at, 0, 0, 0, 0, 0)[:5]


def dumped(
    x: torch.Tensor,
    box: tuple[int, ...],
    at: tuple[int, ...],
    *,
    copied: tuple[int, ...] = (),
    **given: object,
) -> torch.Tensor:
    """What a load of a box leaves in shared memory, in the order of its addresses."""
    count = torch.Size(copied or box).numel()
    out = torch.full((count,), 7, device=x.device).to(x.dtype)
    made = dotcu.tensor_map(x, box=box, **given)  # type: ignore[arg-type]
    kernels.dump[x.dtype, count, x.dim()](made, out, *padded(at), grid=1, block=64)
    return out.view(copied or box)


def cut(
    x: torch.Tensor, box: tuple[int, ...], at: tuple[int, ...], steps: tuple[int, ...] = (1,) * 5
) -> torch.Tensor:
    """The same, element by element, with zeros outside the tensor."""
    indices = [range(first, first + size, step) for first, size, step in zip(at, box, steps, strict=False)]
    host = x.cpu()
    values = [
        host[index].item() if all(0 <= i < n for i, n in zip(index, x.shape, strict=True)) else 0
        for index in itertools.product(*indices)
    ]
    return torch.tensor(values, dtype=x.dtype, device=x.device).view([len(index) for index in indices])


def swizzled(tile: torch.Tensor, span: int) -> torch.Tensor:
    """A tile at an address divisible by 1024 with its 16-byte chunks exchanged, as the hardware does.

    Source: CUDA Programming Guide, "TMA Swizzle".
    """
    chunks = tile.contiguous().view(torch.uint8).view(-1, 16)
    line = torch.arange(len(chunks), device=tile.device) // 8
    place = torch.arange(len(chunks), device=tile.device) ^ line % (span // 16)
    result = torch.empty_like(chunks)
    result[place] = chunks
    return result.view(-1).view(tile.dtype).view(tile.shape)


SHAPES = [
    ((100,), (64,), (20,)),
    ((40, 64), (8, 32), (3, 12)),
    ((6, 10, 32), (2, 3, 16), (1, 4, 8)),
    ((3, 4, 5, 16), (2, 1, 3, 8), (1, 2, 0, 4)),
    ((2, 3, 4, 3, 16), (2, 2, 1, 3, 8), (0, 1, 2, 0, 8)),
]


def beyond(shape: tuple[int, ...], past: int) -> tuple[int, ...]:
    """Coordinates some elements from the tensor's end, the innermost a multiple of four floats."""
    return (*(n + past for n in shape[:-1]), (shape[-1] + past) // 4 * 4)


@pytest.mark.parametrize(("shape", "box", "at"), SHAPES)
def test_a_box_is_loaded_in_the_tensors_order(
    device: torch.device, shape: tuple[int, ...], box: tuple[int, ...], at: tuple[int, ...]
) -> None:
    x = torch.randn(shape, device=device)
    assert torch.equal(dumped(x, box, at), cut(x, box, at))


@pytest.mark.parametrize(("shape", "box", "at"), SHAPES)
def test_what_lies_outside_is_zero(
    device: torch.device, shape: tuple[int, ...], box: tuple[int, ...], at: tuple[int, ...]
) -> None:
    x = torch.randn(shape, device=device)
    for shifted in ((*(-1 for _ in at[1:]), -4), beyond(shape, -2), beyond(shape, 9)):
        assert torch.equal(dumped(x, box, shifted), cut(x, box, shifted))


@pytest.mark.parametrize(("shape", "box", "at"), SHAPES)
def test_a_box_is_stored_but_for_what_lies_outside(
    device: torch.device, shape: tuple[int, ...], box: tuple[int, ...], at: tuple[int, ...]
) -> None:
    tile = torch.randn(box, device=device)
    for shifted in (at, beyond(shape, -2), beyond(shape, 9)):
        out = torch.full(shape, 7.0, device=device)
        made = dotcu.tensor_map(out, box=box)
        kernels.fill[torch.float32, tile.numel(), out.dim()](tile, made, *padded(shifted), grid=1, block=64)
        inside = cut(torch.ones(shape, device=device), box, shifted) == 1
        assert torch.equal(cut(out, box, shifted)[inside], tile[inside])
        assert out.ne(7).sum().item() == inside.sum().item()


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.bool, torch.uint16,
        torch.int64, torch.float8_e4m3fn,
    ],
)  # fmt: skip
def test_every_element_type_is_copied(device: torch.device, dtype: torch.dtype) -> None:
    bits = torch.randint(0, 2 if dtype == torch.bool else 127, (12, 256), dtype=torch.uint8, device=device)
    x = bits.view(dtype)
    columns = 16 // dtype.itemsize
    tile = dumped(x, (8, columns), (2, columns))
    assert torch.equal(tile.view(torch.uint8), x[2:10, columns : 2 * columns].contiguous().view(torch.uint8))


@pytest.mark.parametrize("span", [32, 64, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_swizzle_exchanges_chunks_of_a_row_by_their_address(
    device: torch.device, span: int, dtype: torch.dtype
) -> None:
    columns = span // dtype.itemsize
    x = torch.randn(64, 3 * columns, device=device).to(dtype)
    at, box = (5, columns), (24, columns)
    assert torch.equal(dumped(x, box, at, swizzle=span), swizzled(cut(x, box, at), span))


@pytest.mark.parametrize("span", [32, 64, 128])
def test_a_swizzled_store_takes_the_chunks_from_where_a_load_puts_them(
    device: torch.device, span: int
) -> None:
    columns = span // 4
    tile, out = torch.randn(24, columns, device=device), torch.zeros(40, columns, device=device)
    made = dotcu.tensor_map(out, box=(24, columns), swizzle=span)
    kernels.fill[torch.float32, 24 * columns, 2](
        swizzled(tile, span), made, *padded((8, 0)), grid=1, block=64
    )
    assert torch.equal(out[8:32], tile)


def test_a_strided_tensor_is_read_by_its_strides(device: torch.device) -> None:
    x = torch.randn(10, 6, 40, device=device).transpose(0, 1)[1::2, :, 4:36]
    box, at = (2, 4, 8), (1, 5, 8)
    assert torch.equal(dumped(x, box, at), cut(x, box, at))


def test_tiles_go_through_two_buffers(device: torch.device) -> None:
    x = torch.randn(70, 200, device=device)
    out = torch.zeros(70, 200, device=device)
    box = (16, 32)
    grid, tiles = dotcu.cdiv(70, 16), dotcu.cdiv(200, 32)
    kernels.twice(dotcu.tensor_map(x, box=box), dotcu.tensor_map(out, box=box), tiles, grid=grid, block=128)
    assert torch.equal(out, 2 * x)


def test_only_a_tensor_that_is_stored_to_counts_as_written(device: torch.device) -> None:
    x, out = torch.zeros(16, 32, device=device), torch.zeros(16, 32, device=device)
    maps = (dotcu.tensor_map(x, box=(16, 32)), dotcu.tensor_map(out, box=(16, 32)))
    kernels.twice(*maps, 1, grid=1, block=128)
    assert (x._version, out._version) == (0, 1)


def test_an_empty_tensor_is_launched_on_an_empty_grid(device: torch.device) -> None:
    x, out = torch.zeros(0, 32, device=device), torch.zeros(0, 32, device=device)
    maps = (dotcu.tensor_map(x, box=(16, 32)), dotcu.tensor_map(out, box=(16, 32)))
    kernels.twice(*maps, 1, grid=0, block=128)


def test_a_map_without_grid_constant_is_refused_with_what_to_declare(device: torch.device) -> None:
    module = dotcu.load_inline("""
#include <dotcu/tma.cuh>
__global__ void k(const CUtensorMap x) {
    __shared__ alignas(128) float tile[64];
    __shared__ dotcu::mbarrier arrived;
    dotcu::tma_load(tile, x, arrived, 0);
}
""")
    x = torch.zeros(64, device=device)
    with pytest.raises(SourceError, match="Declare it: const __grid_constant__ CUtensorMap x"):
        module.k(dotcu.tensor_map(x, box=64), grid=1, block=1)


def spread(tile: torch.Tensor, span: int) -> torch.Tensor:
    """A tile of floats with rows shorter than the swizzle, as it lies there, and sevens between them."""
    rows = torch.full((len(tile), span // 4), 7.0, device=tile.device)
    rows[:, : tile.shape[1]] = tile
    return swizzled(rows, span)


def short_rows_dumped(x: torch.Tensor, box: tuple[int, int], span: int) -> torch.Tensor:
    """What a load of a box at (0, 4) leaves in shared memory that held sevens."""
    out = torch.full((box[0], span // 4), 7.0, device=x.device)
    made = dotcu.tensor_map(x, box=box, swizzle=span)
    kernels.dump_short_rows[out.numel()](made, out, box[0] * box[1] * 4, 0, 4, grid=1, block=64)
    return out


def test_a_row_that_is_shorter_than_the_swizzle_takes_as_many_bytes(device: torch.device) -> None:
    x = torch.randn(32, 16, device=device)
    found = short_rows_dumped(x, (32, 8), 128)
    assert torch.equal(found, spread(x[:, 4:12], 128))


# Of these tests/gpu/test_tensor_map_rules.py asks the hardware, where a copy that never ends harms no other
# test.


@pytest.mark.parametrize("span", [32, 64])
def test_the_same_with_the_other_swizzles(span: int) -> None:
    x = torch.randn(32, 16)
    assert torch.equal(short_rows_dumped(x, (32, 4), span), spread(x[:, 4:8], span))


@pytest.mark.parametrize(("span", "columns"), [(32, 4), (64, 4), (128, 8)])
def test_a_store_takes_short_rows_from_where_a_load_puts_them(span: int, columns: int) -> None:
    tile, out = torch.randn(32, columns), torch.zeros(32, 16)
    made = dotcu.tensor_map(out, box=(32, columns), swizzle=span)
    kernels.fill[torch.float32, 8 * span, 2](spread(tile, span), made, *padded((0, 4)), grid=1, block=64)
    assert torch.equal(out[:, 4 : 4 + columns], tile)
    assert out.count_nonzero() == tile.count_nonzero()


def test_steps_leave_elements_out(device: torch.device) -> None:
    x = torch.randn(30, 20, 8, device=device)
    box, at, steps = (6, 9, 8), (3, 1, 0), (2, 3, 1)
    found = dumped(x, box, at, copied=(3, 3, 8), element_strides=steps)
    assert torch.equal(found, cut(x, box, at, steps))


def test_the_simulator_fills_with_zeros_alone() -> None:
    with pytest.raises(SimulationError, match='fill="nan"'):
        dumped(torch.zeros(64), (64,), (0,), fill="nan")


@pytest.mark.slow
def test_the_same_file_compiles_under_nvcc(tmp_path: Path) -> None:
    nvcc = process.find("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed: it shows that the same file serves both compilers")
    command = [nvcc, "-c", "-std=c++17", "-arch=sm_90", f"-I{INCLUDE}", PAGE, "-o", tmp_path / "page.o"]
    finished = process.run(command, timeout_s=120)
    assert finished.status == 0, finished.stderr
