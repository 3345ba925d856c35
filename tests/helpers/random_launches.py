"""Random launches, right and wrong, for the roads that must agree: native code's and Python's."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import dotcu

SOURCE = """
#include <cuda_fp16.h>
#include "dotcu/tensor.cuh"
struct Pair { int first; float second; };
template <typename T> __device__ void put(unsigned char* out, int& at, T value) {
    memcpy(out + at, &value, sizeof value);
    at += sizeof value;
}
// Writes what it was given, addresses as whether they are null.
extern "C" __global__ void echo(unsigned char* out, const float* a, float* b, const float4* v,
                                const int* i, void* any, dotcu::tensor<const float, 2> t, int n,
                                unsigned char c, long long big, unsigned long long u, bool flag,
                                float x, double d, __half h, Pair pair) {
    if (threadIdx.x + blockIdx.x + blockIdx.y + blockIdx.z) return;
    int at = 0;
    put(out, at, a != nullptr);
    put(out, at, b != nullptr);
    put(out, at, v != nullptr);
    put(out, at, i != nullptr);
    put(out, at, any != nullptr);
    put(out, at, t.data != nullptr);
    put(out, at, t.sizes[0]);
    put(out, at, t.strides[1]);
    put(out, at, n);
    put(out, at, c);
    put(out, at, big);
    put(out, at, u);
    put(out, at, flag);
    put(out, at, x);
    put(out, at, d);
    put(out, at, h);
    put(out, at, pair.first);
    put(out, at, pair.second);
    put(out, at, gridDim.x);
    put(out, at, gridDim.y);
    put(out, at, blockDim.x);
}
extern "C" __global__ void rows(unsigned char* out, const float* x, long long row, int column, int n) {
    if (threadIdx.x + blockIdx.x) return;
    int at = 0;
    put(out, at, x != nullptr);
    put(out, at, row);
    put(out, at, column);
    put(out, at, n);
}
"""

ECHO_BYTES = 256


class Named(Tensor):
    """A subclass that adds no meaning."""


class _Pair(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int), ("second", ctypes.c_float))


class Drawer:
    """Draws launches from a seed.

    Args:
        device: Where right tensors are.
    """

    def __init__(self, seed: int, device: str) -> None:
        self.random = random.Random(seed)
        self.device = device
        generator = torch.Generator().manual_seed(seed)
        memory = torch.randn(64, generator=generator).to(device)
        ints = torch.arange(32, dtype=torch.int32, device=device)
        complex_ = torch.randn(4, dtype=torch.complex64, generator=generator).to(device)
        with torch.inference_mode():
            inference = torch.ones(8, device=device)
        self.floats: list[Tensor] = [
            memory,
            memory[4:],
            memory.view(8, 8),
            torch.nn.Parameter(memory.clone(), requires_grad=False),
            inference,
            memory[:0],
        ]
        self.matrices: list[Tensor] = [memory.view(8, 8), memory.view(8, 8).t(), memory.view(8, 8)[1:, ::2]]
        self.others: list[Any] = [
            memory[1:],
            memory.view(8, 8).t(),
            memory[:1].expand(16),
            memory.double(),
            memory.to(torch.bfloat16),
            ints,
            ints.long(),
            ints.bool(),
            complex_.conj(),
            complex_.conj().imag,
            torch.ones(4, device=device, requires_grad=True),
            memory.clone().as_subclass(Named),
            torch.empty(4, device="meta"),
            FakeTensorMode().from_tensor(torch.ones(4)),
            torch.ones(4).to_sparse().to(device),
            torch._efficientzerotensor(4, device=device),
            torch.ones(()).to(device),
            dotcu.strided(memory.view(8, 8).t()),
            dotcu.strided(memory),
            dotcu.strided(3),
        ]
        if device != "cpu":
            self.others.append(torch.ones(4))
        self.ints: list[Any] = [
            sign * (1 << bits) + by
            for bits in (0, 7, 8, 31, 32, 63, 64)
            for sign in (-1, 1)
            for by in (-1, 0, 1)
        ]
        self.numbers: list[Any] = [
            *(
                0.0,
                -0.0,
                1.5,
                float("nan"),
                float("inf"),
                1e39,
                -1e300,
                65519.0,
                65520.0,
                10**400,
                True,
                False,
            ),
            *(np.int32(-3), np.uint8(200), np.int64(1 << 40), np.float32(1.5), np.float64(2.5)),
            *(np.bool_(True), 1j),
        ]
        self.odd: list[Any] = [None, "text", b"12345678", bytes(8), object(), [1], (1, 2), {}, range(3)]
        self.odd += [_Pair(1, 2.0)]
        self.all = [self.floats, self.matrices, self.others, self.ints, self.numbers, self.odd]

    def one(self, values: list[Any]) -> Any:
        return self.random.choice(values)

    def arguments(self, out: Tensor) -> list[Any]:
        """Arguments of `echo`, most of which fit."""
        ints = [0, 1, 7, 255]
        right: list[Callable[[], Any]] = [
            lambda: out,
            lambda: self.one([*self.floats, None]),
            lambda: self.one([*self.floats, None]),
            lambda: self.one([*self.floats, None]),
            lambda: self.one([self.others[5], None]),
            lambda: self.one([*self.floats, *self.others[3:7], None]),
            lambda: self.one([*self.matrices, None]),
            lambda: self.one([*ints, -5, np.int32(4)]),
            lambda: self.one(ints),
            lambda: self.one([*ints, -(1 << 63), (1 << 63) - 1]),
            lambda: self.one([*ints, (1 << 64) - 1]),
            lambda: self.one([True, False, np.bool_(True)]),
            lambda: self.one([1.5, 3, -1e30, float("nan"), np.float64(0.5), np.float32(0.1)]),
            lambda: self.one([1.5, 3, 1e300, float("inf")]),
            lambda: self.one([1.5, 3, 65504.0]),
            lambda: self.one([_Pair(3, 4.0), bytes(8)]),
        ]
        found = [draw() for draw in right]
        while self.random.random() < 0.4:
            found[self.random.randrange(1, len(found))] = self.any()
        while self.random.random() < 0.05:
            if self.random.random() < 0.5 and len(found) > 1:
                found.pop()
            else:
                found.append(self.any())
        return found

    def any(self) -> Any:
        return self.one(
            self.one([self.floats, self.matrices, self.others, self.ints, self.numbers, self.odd])
        )

    def config(self) -> dict[str, Any]:
        """Grid, block and the rest, most of which fit."""
        config: dict[str, Any] = {
            "grid": self.one([1, 2, (3, 2), (1, 1, 1), [2], np.int64(2), 0]),
            "block": self.one([32, 64, (16, 2), (8, 2, 2)]),
        }
        if self.random.random() < 0.15:
            config["grid"] = self.one(
                [-1, 1 << 31, (1, 65536), (1, 2, 3, 4), (), 1.5, True, None, "2", (0, 3), 1 << 70]
            )
        if self.random.random() < 0.1:
            config["block"] = self.one([0, -1, 1025, (32, 33), True, 2.0, (), np.int32(32), [32, 2], None])
        if self.random.random() < 0.2:
            config["smem_bytes"] = self.one(
                [0, 16, 4096, 49152, 232448, 232449, -1, 1 << 20, 1.0, None, True, np.int64(8)]
            )
        if self.random.random() < 0.1:
            config["cluster"] = self.one([None, 1, (1, 1, 1), 17, 0, (0, 0, 0), (0, 1, 1), 3, "1", 1.5])
        if self.random.random() < 0.1:
            config["cooperative"] = self.one([False, True, 0, 1])
        if self.random.random() < 0.1:
            config["programmatic"] = self.one([False, True, 0])
        if self.random.random() < 0.1:
            config["device"] = self.one([None, self.device, "meta", "cuda:99", 7, "nonsense"])
        if self.random.random() < 0.02:
            config["threads"] = 3
        return config


def outcome(launch: Callable[..., Any], args: list[Any], config: dict[str, Any]) -> Any:
    """What a launch came to: nothing to say, or the error's type and text."""
    try:
        launch(*args, **config)
    except Exception as error:
        return type(error), str(error)
    return None
