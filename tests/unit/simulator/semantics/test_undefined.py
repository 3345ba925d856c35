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
    assert "which holds a copy of memory that nothing has written" in found.message


def test_two_values_that_went_into_one_are_both_reported(run_kernel: Any) -> None:
    found = findings_of(run_kernel, "int w =\n  kept[lane]; out[lane] = v + w;")
    assert {(f.line, f.lanes) for f in found} == {(6, 12), (8, 32)}


UNSET = {
    "stored": "int v; if (t < 10) v = a[t]; out[t] = v;",
    "branch": "int v; if (t < 10) v = a[t]; if (v > 3) out[t] = 1;",
    "address": "int v; if (t < 10) v = 1; out[v & 63] = 1;",
    "atomic": "int v; if (t < 10) v = 4; atomicAdd(out, v);",
    "switch without default": "int v; switch (a[t] & 3) { case 0: v = 1; break; case 1: v = 2; } out[t] = v;",
    "one branch of three": "int v; if (t < 10) v = 1; else if (t > 12) v = 2; out[t] = v;",
    "sum that never began": "int s; for (int i = 0; i < 4; ++i) s += a[(t + i) & 63]; out[t] = s;",
    "flag": "bool f; for (int i = 0; i < 4; ++i) if (a[t + i] == 99) f = true; if (f) out[t] = 1;",
    "bound": "int n; if (t < 40) n = 3; int s = 0; for (int i = 0; i < n && i < 9; ++i) s += i; out[t] = s;",
    "floating point": "double d; if (t < 10) d = 1; out[t] = (int)(d * 2);",
    "pointer": "const int* p; if (t < 32) p = a; out[t] = *p;",
    "shared memory": "__shared__ int s[64]; int v; if (t < 9) v = 4; s[t] = v; __syncthreads();"
    "out[t] = s[t];",
    "shuffle": "int v; if (t < 10) v = 4; out[t] = __shfl_sync(~0u, v, 20);",
    "result of a function": "auto f = [](int k) -> int { int r; if (k < 30) r = k; return r; };"
    "out[t] = f(t);",
}

SET = {
    "in both branches": "int v; if (t < 10) v = 1; else v = 2; out[t] = v;",
    "where it is used": "int v; if (t < 10) v = a[t]; if (t < 10 && v > 3) out[t] = v;",
    "copies": "int v, w = 1; if (t < 10) v = 1; int u = v; v = w; w = u; out[t] = v;",
    "arguments": "auto f = [](int k, int v) { return k < 10 ? v : k; }; int v; if (t < 10) v = 1;"
    "out[t] = f(t, v);",
    "bits": "unsigned v; out[t] = v & 0;",
    "member": "struct P { int x, y; } p, q; p.x = t; q = p; out[t] = q.x;",
    "shuffle": "int v; if (t % 32 < 10) v = 4; out[t] = __shfl_sync(~0u, v, 3);",
    "one round later": "int last; for (int i = 0; i < 3; ++i) { if (i) out[t] = last; last = i; }",
    "barrier that counts": "int n; n = __syncthreads_count(t < 5); out[t] = n;",
}


def findings_in_variables(run_kernel: Any, body: str) -> list[tuple[str, int]]:
    arguments = {"a": np.arange(128, dtype="i4") % 9, "out": np.zeros(64, "i4")}
    source = f'extern "C" __global__ void k(const int* a, int* out) {{ int t = threadIdx.x;\n{body}\n}}'
    result = run_kernel(source, arguments, block=64, collect=True, debug=True)
    return [(finding.kind, finding.line) for finding in result.findings]


@pytest.mark.parametrize("body", UNSET.values(), ids=list(UNSET))
def test_a_variable_that_some_threads_do_not_set_is_reported_where_it_matters(
    run_kernel: Any, body: str
) -> None:
    assert ("uninitialized-read", 2) in findings_in_variables(run_kernel, body)


@pytest.mark.parametrize("body", SET.values(), ids=list(SET))
def test_a_variable_is_not_reported_where_nothing_depends_on_it(run_kernel: Any, body: str) -> None:
    assert findings_in_variables(run_kernel, body) == []
