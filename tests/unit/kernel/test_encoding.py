"""How the driver is asked to encode a map; what it makes of it is in tests/gpu/test_tensor_map_cuda.py."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

import pytest
import torch

from dotcu.errors import LaunchConfigError, LaunchError
from dotcu.kernel import cuda, encoding
from dotcu.kernel.tensor_maps import tensor_map, tiled


class Driver:
    """cuTensorMapEncodeTiled as the driver has it, and what it was called with."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.target = 0
        self.values: tuple[Any, ...] = ()
        self.inside: list[int] = []

    def __call__(self, target: int, *args: Any) -> int:
        self.target = target
        self.values = tuple(list(arg) if isinstance(arg, ctypes.Array) else arg for arg in args)
        ctypes.memmove(target, bytes(range(128)), 128)
        return self.status

    @contextlib.contextmanager
    def entered(self, index: int) -> Any:
        self.inside.append(index)
        yield


def test_the_function_is_called_as_c_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a real function pointer, whose arguments are then read back as C would read them."""
    u32, pointer = ctypes.c_uint32, ctypes.c_void_p
    seen: list[Any] = []

    def stand_in(*args: Any) -> int:
        target, dtype, rank, address, sizes, strides, box, steps, *rest = args
        ctypes.memset(target, 5, 128)
        words = [(ctypes.c_uint64 * 3).from_address(sizes), (ctypes.c_uint64 * 2).from_address(strides)]
        words += [(u32 * 3).from_address(box), (u32 * 3).from_address(steps)]
        seen.extend([target % 64, dtype, rank, address, *map(list, words), *rest])
        return 0

    kind = ctypes.CFUNCTYPE(u32, pointer, u32, u32, *[pointer] * 5, *[u32] * 4)
    kept = kind(stand_in)
    made = Driver()
    monkeypatch.setattr(cuda, "address_of", lambda name: ctypes.cast(kept, pointer).value)
    monkeypatch.setattr(cuda, "entered", made.entered)
    monkeypatch.setattr(cuda, "capability", lambda index: (9, 0))
    encoding._function.cache_clear()
    try:
        x = torch.zeros(3, 8, 64, dtype=torch.bfloat16)
        checked = tiled(tensor_map(x, box=(1, 4, 32), swizzle=64))
        assert encoding.encode(checked, (1 << 47) + 16, 0) == b"\5" * 128
    finally:
        encoding._function.cache_clear()
    sizes, strides, box = [64, 8, 3], [128, 1024], [32, 4, 1]
    assert seen == [0, 9, 3, (1 << 47) + 16, sizes, strides, box, [1, 1, 1], 0, 2, 0, 0]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(encoding, "_function", lambda: made)
    monkeypatch.setattr(cuda, "entered", made.entered)
    monkeypatch.setattr(cuda, "capability", lambda index: (9, 0))
    return made


def encoded(x: torch.Tensor, index: int = 0, **given: Any) -> bytes:
    return encoding.encode(tiled(tensor_map(x, **given)), 4096, index)


def test_the_driver_writes_the_map_to_an_address_divisible_by_64(driver: Driver) -> None:
    x = torch.zeros(8, 64, dtype=torch.bfloat16)
    assert [encoded(x, box=(8, 64)) for _ in range(20)] == [bytes(range(128))] * 20
    assert driver.target % 64 == 0


def test_every_argument_has_its_place(driver: Driver) -> None:
    x = torch.zeros(3, 8, 64, dtype=torch.bfloat16)
    encoded(x, 1, box=(1, 4, 32), element_strides=(1, 2, 1), swizzle=64, l2_promotion=256, fill="nan")
    assert driver.values == (
        9, 3, 4096, [64, 8, 3], [128, 1024], [32, 4, 1], [1, 2, 1], 0, 2, 3, 1
    )  # fmt: skip
    assert driver.inside == [1]


def test_one_dimension_has_no_strides_to_tell(driver: Driver) -> None:
    encoded(torch.zeros(64), box=64)
    assert driver.values[1] == 1


def test_numbers_are_those_of_the_bindings() -> None:
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    types, swizzles = driver.CUtensorMapDataType, driver.CUtensorMapSwizzle
    promotions = driver.CUtensorMapL2promotion
    for name, number in encoding._TYPE_NUMBERS.items():
        assert int(getattr(types, f"CU_TENSOR_MAP_DATA_TYPE_{name}")) == number
    for span, number in encoding._SWIZZLES.items():
        name = f"{span}B" if span else "NONE"
        assert int(getattr(swizzles, f"CU_TENSOR_MAP_SWIZZLE_{name}")) == number
    for span, number in encoding._PROMOTIONS.items():
        name = f"L2_{span}B" if span else "NONE"
        assert int(getattr(promotions, f"CU_TENSOR_MAP_L2_PROMOTION_{name}")) == number


def test_an_older_gpu_is_refused_by_name(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "capability", lambda index: (8, 0))
    with pytest.raises(LaunchConfigError, match=r"cuda:0, which is sm_80\.\nTMA begins with sm_90"):
        encoded(torch.zeros(64), box=64)


def test_what_the_driver_refuses_names_the_map(driver: Driver) -> None:
    driver.status = 1
    with pytest.raises(LaunchError, match=r"sizes=\(64,\).* at 0x1000 on cuda:0 failed: .* gave error 1\."):
        encoded(torch.zeros(64), box=64)
