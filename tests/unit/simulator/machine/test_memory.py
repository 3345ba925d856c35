"""Addresses: fresh, aligned, aliasing where the bytes do, far from each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from dotcu.simulator import Buffer, Memory


def buffer(name: str, data: np.ndarray[Any, Any], **more: Any) -> Buffer:
    return Buffer(name=name, data=data.reshape(-1).view(np.uint8), **more)


def test_addresses_are_aligned_and_never_used_twice() -> None:
    seen = set()
    for _ in range(3):
        memory = Memory()
        for n in range(3):
            data = np.zeros(100, "u1")
            seen.add(memory.map(buffer(str(n), data)))
    assert len(seen) == 9
    assert all(a % 256 == 0 for a in seen)
    assert min(b - a for a, b in zip(sorted(seen), sorted(seen)[1:], strict=False)) > 1 << 30


def test_an_offset_view_keeps_its_misalignment() -> None:
    data = np.zeros(64, "f4")
    assert Memory().map(buffer("v", data[3:])) % 16 == data[3:].__array_interface__["data"][0] % 16


def test_the_same_bytes_and_overlapping_views_alias() -> None:
    data = np.zeros(100, "f4")
    memory = Memory()
    whole = memory.map(buffer("whole", data))
    assert memory.map(buffer("again", data)) == whole
    assert memory.map(buffer("part", data[10:20])) == whole + 40


def test_views_of_one_storage_alias_even_if_they_do_not_overlap() -> None:
    data = np.zeros(100, "f4")
    storage = (data.ctypes.data, data.nbytes)
    memory = Memory()
    left = memory.map(buffer("left", data[:40], storage=storage))
    right = memory.map(buffer("right", data[60:], storage=storage))
    assert right - left == 240
    assert memory.map(buffer("all", data, storage=storage)) == left


def test_find_names_the_region_and_nearest_the_one_that_was_missed() -> None:
    memory = Memory()
    a = memory.map(buffer("a", np.zeros(10, "u1")))
    b = memory.map(buffer("b", np.zeros(10, "u1")))
    region = memory.find(a + 9)
    assert region is not None
    assert region.name == "a"
    assert memory.find(a + 10) is None
    near = memory.nearest(b - 100)
    assert near is not None
    assert near.name == "b"


def test_a_store_marks_every_view_of_the_bytes_as_written(run_kernel: Any) -> None:
    source = 'extern "C" __global__ void k(int* x, int* y) { x[threadIdx.x] = 1; y[threadIdx.x] += 1; }'
    data = np.zeros(32, "i4")
    result = run_kernel(source, {"x": data, "y": data}, unwritten=["x", "y"])
    assert result.findings == []
    assert data.tolist() == [2] * 32


def test_bytes_at_odd_host_addresses_work(run_kernel: Any) -> None:
    raw = np.zeros(4 * 32 + 1, "u1")
    odd = raw[1:].view("i4")
    source = 'extern "C" __global__ void k(char* x) { x[threadIdx.x * 4] = 5; }'
    run_kernel(source, {"x": odd})
    assert odd.tolist() == [5] * 32


def test_empty_buffers_have_addresses() -> None:
    memory = Memory()
    first = memory.map(buffer("a", np.zeros(0, "u1")))
    second = memory.map(buffer("b", np.zeros(0, "u1")))
    assert first != second
    assert memory.find(first) is None


def test_a_generic_address_is_of_one_space(run_kernel: Any) -> None:
    source = """__constant__ int table[2] = {1, 2};
    __device__ int counter;
    __device__ __noinline__ int space(const void* p) {
        return __isGlobal(p) + 2 * __isShared(p) + 4 * __isLocal(p) + 8 * __isConstant(p); }
    extern "C" __global__ void k(int* out) {
        __shared__ int tile[32];
        int i = threadIdx.x, mine[2] = {i, 2 * i};
        tile[i] = 3;
        const void* where[5] = {out + i, &counter, &tile[i], &mine[i & 1], &table[i & 1]};
        out[i] = space(where[i % 5]); }"""
    out = np.zeros(32, "i4")
    run_kernel(source, {"out": out}, block=32)
    assert out.tolist() == [[1, 1, 2, 4, 8][i % 5] for i in range(32)]
