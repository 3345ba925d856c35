"""Kernel parameters that are indexed, or reached by a pointer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dotcu.errors import FindingError

SOURCE = r"""
struct Table { int values[8]; double scale; };
extern "C" __global__ void k(const __grid_constant__ Table t, int shift, int* out) {
    int i = threadIdx.x;
    const int* base = t.values;
    out[i] = t.values[(i * 3 + shift) & 7] + 1000 * base[i & 7] + (int)t.scale;
}"""
TABLE = np.zeros(1, [("values", "i4", 8), ("scale", "f8")])
TABLE["values"] = [[3, 1, 4, 1, 5, 9, 2, 6]]
TABLE["scale"] = 1e6


@pytest.mark.parametrize("arch", ["compute_80", "compute_90"])
def test_a_struct_by_value_is_indexed_by_each_lane(run_kernel: Any, arch: str) -> None:
    out = np.zeros(50, "i4")
    run_kernel(SOURCE, {"t": TABLE.tobytes(), "shift": np.int32(2), "out": out}, block=50, arch=arch)
    values = TABLE["values"][0].tolist()
    want = [values[(i * 3 + 2) & 7] + 1000 * values[i & 7] + 10**6 for i in range(50)]
    assert out.tolist() == want


POINTER = ".reg .b64 %p<4>; mov.b64 %p1, k_param_0; mul.wide.u32 %p2, %a, 4;"
FORMS = [
    "add.u64 %p1, %p1, %p2; ld.param.b32 %r0, [%p1];",
    "add.u64 %p1, %p1, %p2; ld.param::entry.b32 %r0, [%p1+0];",
    "cvta.param.u64 %p3, %p1; add.u64 %p3, %p3, %p2; ld.b32 %r0, [%p3];",
    "cvta.param.u64 %p3, %p1; cvta.to.param.u64 %p1, %p3; add.u64 %p1, %p1, %p2; ld.param.b32 %r0, [%p1];",
]


@pytest.mark.parametrize("form", FORMS)
def test_every_way_to_a_parameter_gives_its_bytes(execute: Any, form: str) -> None:
    # The first parameter of the harness is an address: each lane loads one of its two words.
    a = np.array([0, 1] * 20, "u4")
    text = f"{POINTER} {form} ld.param.b32 %r1, [k_param_0]; ld.param.b32 %r2, [k_param_0+4];"
    got, low, high = execute(text, a, results=["u4", "u4", "u4"])
    assert low[0] != high[0]
    assert got.tolist() == np.where(a == 1, high, low).tolist()


def test_whether_a_pointer_is_one_to_parameters_is_reported(execute: Any) -> None:
    text = f"{POINTER} cvta.param.u64 %p3, %p1; isspacep.param %r0, %p3;"
    assert execute(text, np.zeros(4, "u4"), result="b1").all()


WRITES = r"""
struct Table { int values[8]; };
extern "C" __global__ void k(const __grid_constant__ Table t) {
    asm volatile("st.u32 [%0], %1;" :: "l"(t.values), "r"(5) : "memory");
}"""


def test_a_write_to_a_parameter_is_found(run_kernel: Any) -> None:
    with pytest.raises(FindingError, match="at a parameter of the kernel"):
        run_kernel(WRITES, {"t": bytes(32)})


def test_an_index_behind_all_parameters_is_found(run_kernel: Any) -> None:
    out = np.zeros(32, "i4")
    source = SOURCE.replace("& 7] + 1000", "+ 100000] + 1000")
    arguments = {"t": TABLE.tobytes(), "shift": np.int32(2), "out": out}
    result = run_kernel(source, arguments, block=32, collect=True)
    (finding,) = result.findings
    assert finding.kind == "out-of-bounds"
    assert "parameter memory" in finding.message
