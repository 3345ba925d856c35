"""Tensor maps as the GPU reads them, encoded by the driver.

The driver writes a map to an address divisible by 64. The bindings keep theirs inside a Python
object, whose memory is aligned to 16 bytes, so the function is called by its address.

Source: NVIDIA/cuda-python pull request 1692.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

from dotcu.errors import LaunchConfigError, LaunchError
from dotcu.kernel import cuda
from dotcu.kernel.tensor_maps import BYTES, DTYPES, Tiled

_ALIGNMENT = 64

# cuda.h, of CUDA 12.0 and later: CUtensorMapDataType, ...Swizzle, ...L2promotion, ...FloatOOBfill.
_TYPE_NUMBERS = {
    "UINT8": 0, "UINT16": 1, "UINT32": 2, "INT32": 3, "UINT64": 4, "INT64": 5, "FLOAT16": 6, "FLOAT32": 7,
    "FLOAT64": 8, "BFLOAT16": 9,
}  # fmt: skip
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}
_FILLS = {"zeros": 0, "nan": 1}
_NO_INTERLEAVE = 0

_Encode = Callable[..., int]


def encode(tiled: Tiled, address: int, index: int) -> bytes:
    """The 128 bytes that a kernel on a GPU takes for a map.

    Raises:
        LaunchConfigError: The GPU has no TMA.
        LaunchError: The driver refused what passed every check.
    """
    _require_tma(cuda.capability(index), index)
    function = _function()
    storage = ctypes.create_string_buffer(BYTES + _ALIGNMENT)
    target = -(-ctypes.addressof(storage) // _ALIGNMENT) * _ALIGNMENT
    with cuda.entered(index):
        dtype, rank, *rest = _arguments(tiled)
        status = function(target, dtype, rank, address, *rest)
    if status:
        raise LaunchError(
            f"Encoding {tiled} at {address:#x} on cuda:{index} failed: cuTensorMapEncodeTiled gave error "
            f"{status}.\n"
            "It keeps every limit that the driver documents.\nSee what fits together: dotcu doctor"
        )
    return ctypes.string_at(target, BYTES)


def _require_tma(capability: tuple[int, int], index: int) -> None:
    if capability < (9, 0):
        name = f"sm_{capability[0]}{capability[1]}"
        raise LaunchConfigError(
            f"A tensor map was passed to a kernel on cuda:{index}, which is {name}.\n"
            "TMA begins with sm_90.\nPass the tensor for a pointer, to a kernel that loads it by itself."
        )


@functools.lru_cache(maxsize=256)
def _arguments(tiled: Tiled) -> tuple[Any, ...]:
    """What cuTensorMapEncodeTiled takes, and only reads, but for the addresses of map and tensor."""
    return (
        _TYPE_NUMBERS[DTYPES[tiled.dtype]],
        len(tiled.sizes),
        _array(ctypes.c_uint64, tiled.sizes),
        _array(ctypes.c_uint64, tiled.strides_bytes),
        _array(ctypes.c_uint32, tiled.box),
        _array(ctypes.c_uint32, tiled.element_strides),
        _NO_INTERLEAVE,
        _SWIZZLES[tiled.swizzle],
        _PROMOTIONS[tiled.l2_promotion],
        _FILLS[tiled.fill],
    )


def _array(kind: Any, values: Sequence[int]) -> Any:
    return (kind * max(1, len(values)))(*values)


@functools.cache
def _function() -> _Encode:
    pointer, number = ctypes.c_void_p, ctypes.c_uint
    takes = (pointer, number, number, pointer, pointer, pointer, pointer, pointer, *[number] * 4)
    return ctypes.CFUNCTYPE(number, *takes)(cuda.address_of("cuTensorMapEncodeTiled"))
