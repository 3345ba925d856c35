"""The native part: what it reads of torch, and what is said where it cannot be used."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import dotcu
from dotcu import settings
from dotcu.errors import PerformanceWarning
from dotcu.kernel import native
from helpers.fake_gpu import Driver, configured

PACKED = dotcu.load_inline("""
#include "dotcu/tensor.cuh"
__global__ void take(void* x, int n) {}
__global__ void view(dotcu::tensor<float, 2> x) { x.data[0] = 1; }
""")


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    with configured(made.functions):
        yield made


@pytest.fixture
def unprepared() -> Iterator[None]:
    """The native part as in a new process."""
    before = dict(native._prepared)
    native._prepared.clear()
    yield
    native._prepared.clear()
    native._prepared.update(before)


def key_of(tensor: Tensor) -> np.ndarray | None:
    """What native code reads of a tensor: see layout_key_of in native/module.c."""
    key = native.library().layout_key(tensor)
    return None if key is None else np.frombuffer(key, np.int64)


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("dtype", native._CODES, ids=str)
def test_a_dtype_has_the_code_that_torch_gives_it(dtype: torch.dtype) -> None:
    key = key_of(torch.zeros(4, dtype=dtype))
    assert key is not None
    assert key[1] & 0xFFFFFF == native.dtype_code(dtype)


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(24.0).view(2, 3, 4).transpose(0, 2)[1:, ::2],
        lambda: torch.ones(()),
        lambda: torch.ones(1, 3).expand(5, 3),
        lambda: torch.ones([1] * 63 + [2]),
        lambda: torch.empty_strided((1, 4), (100, 1)),
        lambda: torch.nn.Parameter(torch.ones(3)),
    ],
    ids=["strided", "of no dimension", "expanded", "of 64 dimensions", "odd strides", "a parameter"],
)
def test_sizes_and_strides_are_the_tensors_own(make: Callable[[], Tensor]) -> None:
    tensor = make().detach()
    key = key_of(tensor)
    assert key is not None
    assert key[3] == tensor.dim()
    assert tuple(key[4:]) == (*tensor.shape, *tensor.stride())


class Exports(Tensor):
    """A subclass that says something else of its memory."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a subclass is never asked")


def wrapped(within: Callable[[Callable[[Tensor], Tensor]], Any]) -> Tensor:
    """The tensor that a transform of torch.func hands to a function."""
    seen: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        seen.append(x)
        return x.sum()

    within(keep)
    return seen[0]


ODD: dict[str, Callable[[], Any]] = {
    "on meta": lambda: torch.empty(4, device="meta"),
    "fake": lambda: FakeTensorMode().from_tensor(torch.ones(4)),
    "of vmap": lambda: wrapped(lambda f: torch.func.vmap(f)(torch.ones(2, 4))),
    "of grad": lambda: wrapped(lambda f: torch.func.grad(f)(torch.ones(4))),
    "functional": lambda: wrapped(lambda f: torch.func.functionalize(f)(torch.ones(4))),
    "sparse": lambda: torch.ones(4).to_sparse(),
    "of rows": lambda: torch.ones(4, 4).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "for MKL": lambda: torch.ones(4).to_mkldnn(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8),
    "conjugated": lambda: torch.ones(4, dtype=torch.complex64).conj(),
    "negated": lambda: torch.ones(4, dtype=torch.complex64).conj().imag,
    "zeros alone": lambda: torch._efficientzerotensor(4),
    "a subclass": lambda: torch.ones(4).as_subclass(Exports),
    "no tensor": lambda: object(),
}


@pytest.mark.filterwarnings("ignore:.*(in beta|prototype|Sparse|deprecated)")
@pytest.mark.parametrize("kind", ODD)
def test_what_is_not_plain_memory_is_left_to_python(driver: Driver, kind: str) -> None:
    if kind == "for MKL" and not torch.backends.mkldnn.is_available():
        pytest.skip("this torch is built without MKL-DNN")
    value = ODD[kind]()
    assert kind in ("conjugated", "negated") or native.library().layout_key(value) is None
    kernel = PACKED.take
    with pytest.raises((dotcu.errors.DotcuError, RuntimeError)) as caught:
        kernel(value, 4, grid=1, block=32)
    assert str(caught.value)
    assert not driver.launches


class _Header(ctypes.Structure):
    _fields_ = (("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p))


class _Api(ctypes.Structure):
    _fields_ = (("header", _Header), ("functions", ctypes.c_void_p * 5))


_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
NAME = b"dlpack_exchange_api"
KEPT: list[Any] = []
"""What capsules point to, for the whole of the test run."""


def exchange_api(major: int, previous: Any = None, functions: tuple[int | None, ...] = (None,) * 5) -> Any:
    """An exchange API of a major version, whose `prev_api` is that of another capsule."""
    before = None if previous is None else _pointer(previous, NAME)
    made = _Api(_Header(major, 0, before), (ctypes.c_void_p * 5)(*functions))
    KEPT.append(made)
    return _capsule(ctypes.addressof(made), NAME, None)


def test_an_older_exchange_api_is_found_behind_a_newer_one() -> None:
    newer = exchange_api(2, previous=torch.Tensor.__dlpack_c_exchange_api__)
    with configured({}, exchange_api=newer):
        assert key_of(torch.ones(4)) is not None


@pytest.mark.usefixtures("unprepared")
@pytest.mark.parametrize(
    ("api", "why"),
    [
        (exchange_api(2), "DLPack's C exchange API in version 2.0; dotcu knows version 1"),
        (None, "this torch has no C exchange API of DLPack"),
        ("not a capsule", "this torch has no C exchange API of DLPack"),
    ],
    ids=["newer", "missing", "something else"],
)
def test_a_torch_without_the_exchange_api_is_named_once(
    monkeypatch: pytest.MonkeyPatch, api: Any, why: str
) -> None:
    if reason := native.missing():
        pytest.skip(reason)
    given = native.torch_values(native.CPU) | {"exchange_api": api}
    monkeypatch.setattr(native, "torch_values", lambda device_type: given)
    with pytest.warns(PerformanceWarning, match="goes through Python") as told:
        assert why in native.prepare(native.CPU)
    assert "pip install --upgrade dotcu" in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert why in native.prepare(native.CPU), "the second time it says nothing"
    assert why in native.reason_for_python()


LOOK = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64))
STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)


def exporter(look: Callable[[Any], int]) -> Any:
    """An exchange API whose look at a tensor is a function on the eight-byte words of a DLTensor."""
    functions = LOOK(lambda tensor, into: look(into)), STREAM(lambda kind, index, into: 0)
    KEPT.append(functions)
    addresses = [ctypes.cast(each, ctypes.c_void_p).value for each in functions]
    return exchange_api(1, functions=(None, None, None, *addresses))


def _says(dimensions: int, sizes: int = 0) -> Callable[[Any], int]:
    def look(into: Any) -> int:
        into[0], into[1], into[2] = 4096, 1, dimensions | 2 << 32 | 32 << 40 | 1 << 48
        into[3], into[4], into[5] = sizes, 0, 0
        return 0

    return look


@pytest.mark.parametrize(
    "look",
    [lambda into: -1, _says(-1), _says(65), _says(1 << 30), _says(2), _says(2, sizes=4096)],
    ids=["fails", "of less than no dimension", "of 65", "of a billion", "without sizes", "without strides"],
)
def test_a_broken_exporter_is_left_to_python(look: Callable[[Any], int]) -> None:
    made = Driver()
    with configured(made.functions, exchange_api=exporter(look)):
        assert native.library().layout_key(torch.ones(4)) is None
    assert not made.launches


@pytest.mark.usefixtures("unprepared")
def test_without_the_library_it_says_so_and_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        native, "missing", lambda: "dotcu's native part is missing: no compiler\nInstall a wheel"
    )
    with pytest.warns(PerformanceWarning, match="no compiler\nInstall a wheel"):
        assert native.prepare().startswith("dotcu's native part is missing")
    assert native.reason_for_python().startswith("dotcu's native part is missing")


def test_it_can_be_turned_off_in_silence() -> None:
    with settings.override(native=False):
        assert native.prepare() == "DOTCU_NATIVE=0: the native part is not used"
        assert native.reason_for_python() == "DOTCU_NATIVE=0: the native part is not used"
        assert not native.is_ready()


@pytest.mark.usefixtures("driver")
def test_a_storage_that_was_freed_has_no_address() -> None:
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(0)
    assert key_of(tensor) is None
