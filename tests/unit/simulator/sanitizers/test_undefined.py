"""What nothing wrote is reported where something depends on it, and only there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

i32 = np.int32

KERNEL = """extern "C" __global__ void k(const int* x, int* out, int n) {
      __shared__ int cells[32], kept[32];
      int lane = threadIdx.x;
      if (lane < n) cells[lane] = lane;
      __syncwarp();
      int v = cells[lane];
      USE
    }"""


def findings_of(run_kernel: Any, use: str) -> list[Any]:
    arguments = {"x": np.arange(64, dtype="i4"), "out": np.zeros(32, "i4"), "n": i32(20)}
    return list(run_kernel(KERNEL.replace("USE", use), arguments, collect=True).findings)


@pytest.mark.parametrize(
    "use",
    [
        "out[lane] = v;",
        "if (v > 3) out[lane] = 1;",
        "out[lane] = x[v & 31];",
        "atomicAdd(out, v);",
        "atomicAdd(out + (v & 1), 1);",
        "out[lane] = v > 3 ? 2 : 1;",
        "out[lane] = __shfl_xor_sync(~0u, v, 1);",
        "out[lane] = __shfl_sync(~0u, v, 25);",
        "int w = __shfl_sync(~0u, v, 25); if (lane < n) out[lane] = w;",
        "out[lane] = __popc(__ballot_sync(~0u, v > 3));",
        "out[lane] = v & 255;",
        "float f = v; out[lane] = int(f * 2);",
    ],
)
def test_a_value_that_nothing_wrote_is_reported_where_it_was_read(run_kernel: Any, use: str) -> None:
    found = findings_of(run_kernel, use)
    assert {(f.kind, f.line, f.address_of) for f in found} == {("uninitialized-read", 6, "cells")}
    assert found[0].thread == (20, 0, 0)
    assert "at `cells`[" in found[0].message


@pytest.mark.parametrize(
    "use",
    [
        "if (lane < n) out[lane] = v;",
        "out[lane] = lane < n ? v : 0;",
        "if (lane < n && v > 3) out[lane] = 1;",
        "kept[lane] = v; __syncwarp(); if (lane < n) out[lane] = kept[lane];",
        "v = __shfl_xor_sync(~0u, v, 1); if ((lane ^ 1) < n) out[lane] = v;",
        "out[lane] = __popc(__ballot_sync(~0u, lane < n && v > 3));",
        "out[lane] = (v & 0) + 1;",
        "int most = __reduce_max_sync(~0u, lane < n ? v : 0); out[lane] = most;",
    ],
)
def test_a_value_that_the_kernel_drops_is_no_fault(run_kernel: Any, use: str) -> None:
    assert not findings_of(run_kernel, use)


PADDED = """struct P { double v; int i; };
    extern "C" __global__ void k(P* p, P* q, int* o, int n) {
      int t = threadIdx.x;
      if (t < n) { p[t].v = t; p[t].i = t; }
      __syncthreads();
      if (t < n) q[t] = p[n - 1 - t];
      __syncthreads();
      if (t < n) o[t] = q[t].i;
    }"""


def test_scratch_memory_of_structs_with_padding_is_copied(run_kernel: Any) -> None:
    arguments = {"p": np.zeros(512, "u1"), "q": np.zeros(512, "u1"), "o": np.zeros(32, "i4"), "n": i32(32)}
    result = run_kernel(PADDED, arguments, collect=True, unwritten=["p", "q"])
    assert not [str(f) for f in result.findings]
    assert result.arrays["o"].tolist() == list(range(31, -1, -1))


def test_a_copy_is_reported_as_that(run_kernel: Any) -> None:
    (found,) = findings_of(run_kernel, "kept[lane] = v; __syncwarp();\n out[lane] = kept[lane] * 2;")
    assert (found.line, found.address_of, found.lanes) == (8, "kept", 12)
    assert "which holds a copy of what nothing has written" in found.message


def test_two_values_that_went_into_one_are_both_reported(run_kernel: Any) -> None:
    found = findings_of(run_kernel, "int w =\n  kept[lane]; out[lane] = v + w;")
    assert {(f.line, f.lanes) for f in found} == {(6, 12), (8, 32)}
