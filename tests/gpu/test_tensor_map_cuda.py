"""Tensor maps as the driver encodes them; the rest is in tests/unit/include/test_tma_cuh.py."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from dotcu.kernel import Module, cuda, load, load_inline, tensor_map
from dotcu.kernel.arguments.tensor_map import DTYPES, tiled

pytestmark = pytest.mark.gpu

PAGE = Path(__file__).parents[1] / "unit" / "include" / "tma.cu"


@pytest.fixture(scope="module")
def module() -> Module:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("TMA needs compute capability 9.0")
    return load(PAGE)


def dumped(module: Module, x: Any, rank: int, count: int, at: tuple[int, ...]) -> torch.Tensor:
    out = torch.full((count,), 7.0, device="cuda")
    module.dump[torch.float32, count, rank](x, out, *(*at, 0, 0, 0, 0)[:5], grid=1, block=64)
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("l2_promotion", [0, 64, 128, 256])
def test_the_driver_takes_every_element_type(module: Module, dtype: torch.dtype, l2_promotion: int) -> None:
    x = torch.zeros(64, 256, dtype=torch.uint8, device="cuda").view(dtype)
    made = tensor_map(x, box=(8, 128 // dtype.itemsize), swizzle=128, l2_promotion=l2_promotion)
    assert cuda.encode_tensor_map(tiled(made), x.data_ptr(), 0) != bytes(128)


def test_the_driver_takes_what_is_just_within_the_limits(module: Module) -> None:
    x = torch.zeros(256, 64, device="cuda")
    for given in (
        {"box": (256, 4)},
        {"box": (256, 32), "swizzle": 128},
        {"box": (64, 4), "element_strides": (8, 1)},
        {"box": (256, 4), "fill": "nan"},
    ):
        cuda.encode_tensor_map(tiled(tensor_map(x, **given)), x.data_ptr(), 0)  # type: ignore[arg-type]
    row = x[:1, :7].as_strided((1, 1, 7), (3, 5, 1))
    cuda.encode_tensor_map(tiled(tensor_map(row, box=(1, 1, 4))), x.data_ptr(), 0)
    line = torch.zeros(1000, device="cuda")
    cuda.encode_tensor_map(tiled(tensor_map(line, box=256)), line.data_ptr(), 0)


def test_what_lies_outside_can_be_nan(module: Module) -> None:
    x = torch.zeros(64, device="cuda")
    out = dumped(module, tensor_map(x, box=64, fill="nan"), 1, 64, (32,))
    assert out[:32].eq(0).all()
    assert out[32:].isnan().all()


@pytest.mark.parametrize("l2_promotion", [64, 128, 256])
def test_what_l2_fetches_changes_no_value(module: Module, l2_promotion: int) -> None:
    x = torch.randn(64, 64, device="cuda")
    made = tensor_map(x, box=(8, 32), l2_promotion=l2_promotion)
    assert torch.equal(dumped(module, made, 2, 256, (8, 32)).view(8, 32), x[8:16, 32:])


def test_bytes_that_the_caller_encoded_are_a_map_too(module: Module) -> None:
    x = torch.randn(64, device="cuda")
    own = cuda.encode_tensor_map(tiled(tensor_map(x, box=64)), x.data_ptr(), 0)
    assert torch.equal(dumped(module, own, 1, 64, (0,)), x)


def test_a_launch_with_maps_can_be_captured_and_replayed(module: Module) -> None:
    module.warm()
    x, out = torch.zeros(70, 200, device="cuda"), torch.zeros(70, 200, device="cuda")
    maps = (tensor_map(x, box=(16, 32)), tensor_map(out, box=(16, 32)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module.twice(*maps, 7, grid=5, block=128)
    x.normal_()
    graph.replay()
    assert torch.equal(out, 2 * x)


def test_maps_behind_a_pointer_and_in_a_struct_are_read_by_the_hardware() -> None:
    held = load_inline("""
        #include <dotcu/tma.cuh>
        struct Both { CUtensorMap x; CUtensorMap out; };
        __device__ void copy(const CUtensorMap& x, const CUtensorMap& out) {
            __shared__ alignas(128) float tile[8][16];
            __shared__ dotcu::mbarrier arrived;
            if (threadIdx.x) return;
            arrived.init(1);
            arrived.arrive_expect(sizeof(tile));
            dotcu::tma_load(tile, x, arrived, 0, 0);
            arrived.wait(0);
            dotcu::tma_fence();
            dotcu::tma_store(out, tile, 0, 0);
            dotcu::tma_commit();
            dotcu::tma_wait<0>();
        }
        __global__ void within(const __grid_constant__ Both both) { copy(both.x, both.out); }
        __global__ void behind(const CUtensorMap* maps) { copy(maps[0], maps[1]); }
    """)
    for _ in range(3):
        for place in (lambda x, out: {"x": x, "out": out}, lambda x, out: [x, out]):
            x, out = torch.randn(8, 16, device="cuda"), torch.zeros(8, 16, device="cuda")
            maps = place(tensor_map(x, box=(8, 16)), tensor_map(out, box=(8, 16)))
            kernel = held.within if isinstance(maps, dict) else held.behind
            kernel(maps, grid=1, block=32)
            assert torch.equal(out, x)


def test_a_thread_that_is_new_to_cuda_can_encode(module: Module) -> None:
    x = torch.randn(64, device="cuda")
    results: list[Any] = []

    def work() -> None:
        try:
            results.append(dumped(module, tensor_map(x, box=64), 1, 64, (0,)))
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert isinstance(results[0], torch.Tensor), results[0]
    assert torch.equal(results[0], x)


def test_maps_on_another_device_are_encoded_there(module: Module) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    x, out = torch.randn(64, 64, device="cuda:1"), torch.zeros(64, 64, device="cuda:1")
    module.twice(tensor_map(x, box=(16, 32)), tensor_map(out, box=(16, 32)), 2, grid=4, block=128)
    assert torch.equal(out, 2 * x)
