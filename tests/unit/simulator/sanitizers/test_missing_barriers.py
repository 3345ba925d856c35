"""Barriers and fences that a compiler left out: each fault is found by kind and line, its repair is silent.

The shapes are those that authors of tile compilers have reported of generated code.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dotcu

FULL_BARRIER = "__syncthreads();"

PARTIAL = """
extern "C" __global__ void k(const float* x, float* out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = 0;
    __syncthreads();
    if (t < 48) {
        s[t] = x[t];  // FAULT
        %s
        out[t] = s[47 - t];  // FAULT
    }
}
"""
"""48 threads of 64 exchange values: a partial barrier of no whole warps was left out."""

LOOP = """
extern "C" __global__ void k(const float* x, float* out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = 0;
    __syncthreads();
    for (int i = 0; i < 4; i++) {
        if (t %% 4 == 0) s[t] = x[t] + i;  // FAULT
        %s
        if (t %% 4 == 0) out[t] = s[(t + 4) %% 64];  // FAULT
        %s
    }
}
"""
"""A barrier inside of a condition on the thread was moved before the condition, out of the loop."""

REUSED = """
extern "C" __global__ void k(const float* x, float* out) {
    __shared__ float a[256];
    int t = threadIdx.x;
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        a[t] = x[t] * i;  // FAULT
        __syncthreads();
        sum += t < 128 ? a[255 - t] : a[t - 128];  // FAULT
        %s
    }
    out[t] = sum;
}
"""
"""Both warpgroups read a tile that the next turn of the loop loads anew, without a wait for them."""

FILLED = """
extern "C" __global__ void k(const float* x, float* out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];  // FAULT
    %s
    if (t < 6) s[t + 10] = -1;  // FAULT
    __syncthreads();
    out[t] = s[t];
}
"""
"""Part of a tile is filled after the copy into it, by other threads than those that copied."""

CLEARED = """
extern "C" __global__ void k(const float* x, float* out) {
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    float v = s[127 - t];  // FAULT
    %s
    if (t == 0) for (int i = 0; i < 128; i++) s[i] = 0;  // FAULT
    __syncthreads();
    out[t] = v + s[t];
}
"""
"""One thread clears a tile in bulk, of which others still read."""

FILLED_AFTER_CLEARING = """
extern "C" __global__ void k(const float* x, float* out) {
    __shared__ float s[128];
    int t = threadIdx.x;
    if (t == 0) for (int i = 0; i < 128; i++) s[i] = 0;  // FAULT
    %s
    s[t] = x[t];  // FAULT
    __syncthreads();
    out[t] = s[127 - t];
}
"""
"""One thread clears a tile in bulk, which all fill at once."""

OTHER_BRANCH = """
extern "C" __global__ void k(const float* x, float* out) {
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = 0;
    __syncthreads();
    if (t == 0 || t >= 33) {
        out[t] = 0;
    } else {
        s[t] = x[t];  // FAULT
        %s
        out[t] = s[33 - t];  // FAULT
    }
}
"""
"""The barrier of an else branch was taken away with that of the other."""

CASES: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "partial barrier": (PARTIAL, 64, ('asm volatile("barrier.sync 1, 48;" ::: "memory");',)),
    "barrier in a loop": (LOOP, 64, (FULL_BARRIER, FULL_BARRIER)),
    "barrier at the end of a loop": (REUSED, 256, (FULL_BARRIER,)),
    "barrier before a fill": (FILLED, 64, (FULL_BARRIER,)),
    "barrier before a bulk clear": (CLEARED, 128, (FULL_BARRIER,)),
    "barrier after a bulk clear": (FILLED_AFTER_CLEARING, 128, (FULL_BARRIER,)),
    "barrier of the other branch": (
        OTHER_BRANCH,
        128,
        ('asm volatile("barrier.sync 1, 32;" ::: "memory");',),
    ),
}


def findings(text: str, threads: int, seed: int | None) -> list[Any]:
    kernel = dotcu.load_inline(text).k
    with dotcu.simulate(arch="sm_90", on_finding="collect", seed=seed) as run:
        kernel(torch.rand(256), torch.zeros(256), grid=1, block=threads)
    return list(run.findings)


@pytest.mark.parametrize("name", CASES)
def test_missing_barrier_is_found(name: str) -> None:
    text, threads, barriers = CASES[name]
    faulty = text % (("",) * len(barriers))
    marked = {n for n, line in enumerate(faulty.splitlines(), 1) if "// FAULT" in line}
    for seed in (None, 0, 1):
        found = findings(faulty, threads, seed)
        assert {f.kind for f in found} == {"race"}
        assert {f.line for f in found} <= marked
        assert findings(text % barriers, threads, seed) == []
