"""Barriers (barriers.py) that not all threads of a block reach together: reported on request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dotcu.simulator import CHECKS, ON_REQUEST

KERNEL = """extern "C" __global__ void k(int* out, int n) {
      int i = threadIdx.x;
      BODY
      out[i] = 1;
    }"""


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("if (i % 2 == 0) { __syncthreads(); out[i] = 2; }", 3),
        ("if (i < n % 64)\n __syncthreads();", 4),
        ("if (i < 32) __syncthreads();\n else { out[i] = 3; __syncthreads(); }", None),
        ("if (i >= 40) return;\n __syncthreads();", 4),
    ],
)
def test_a_barrier_that_a_part_of_a_warp_reaches_is_reported_on_request(
    run_kernel: Any, body: str, line: int | None
) -> None:
    arguments = {"out": np.zeros(64, "i4"), "n": np.int32(1000)}
    source = KERNEL.replace("BODY", body)
    assert not run_kernel(source, arguments, block=64, collect=True).findings
    result = run_kernel(source, arguments, block=64, collect=True, checks=CHECKS | ON_REQUEST)
    assert {f.kind for f in result.findings} == {"divergent-barrier"}
    assert line is None or {f.line for f in result.findings} == {line}


@pytest.mark.parametrize("body", ["__syncthreads();", "if (i >= 32) return;\n __syncthreads();"])
def test_whole_warps_are_no_part_of_one(run_kernel: Any, body: str) -> None:
    arguments = {"out": np.zeros(64, "i4"), "n": np.int32(1000)}
    source = KERNEL.replace("BODY", body)
    assert not run_kernel(source, arguments, block=64, collect=True, checks=CHECKS | ON_REQUEST).findings
