"""What of the driver's part needs no driver; the rest is in tests/gpu/test_launch_cuda.py."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from dotcu.kernel import cuda
from dotcu.kernel.config import read_config


def test_parameters_lie_aligned_in_one_block_that_the_pointers_lead_into() -> None:
    parameters = [b"\1", b"abcdefgh", bytes(range(40)), b"xy"]
    block, pointers = cuda.parameter_block(parameters)
    base = ctypes.addressof(block)
    assert [ctypes.string_at(p, len(q)) for p, q in zip(pointers, parameters, strict=True)] == parameters
    assert [(p - base) % 16 for p in pointers] == [0, 0, 0, 0]


def test_a_kernel_without_parameters_has_a_block_too() -> None:
    _, pointers = cuda.parameter_block([])
    assert list(pointers) == [None]


def test_a_configuration_is_handed_to_the_driver_in_blocks() -> None:
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    config = read_config(
        "k", grid=(8, 2), block=64, smem_bytes=100, cluster=4, cooperative=True, programmatic=True
    )
    native = cuda.native_config(config, driver.CUstream(0))
    assert (native.gridDimX, native.gridDimY, native.gridDimZ) == (8, 2, 1)
    assert (native.blockDimX, native.sharedMemBytes, native.numAttrs) == (64, 100, 3)
    cluster, cooperative, programmatic = native.attrs
    assert (cluster.value.clusterDim.x, cluster.value.clusterDim.y) == (4, 1)
    assert cooperative.value.cooperative == 1
    assert programmatic.value.programmaticStreamSerializationAllowed == 1
    assert cuda.native_config(read_config("k", grid=1, block=1), driver.CUstream(0)).numAttrs == 0


def test_neither_import_nor_load_touches_the_driver() -> None:
    script = (
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "import dotcu.kernel as kernel\n"
        "kernel.load_inline('__global__ void k() {}').k\n"
        "assert not any(name.startswith('cuda') for name in set(sys.modules) - before)\n"
        "assert not torch.cuda.is_initialized()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
