"""Which array an address is meant to lie in: what is told apart, and what is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

i32 = np.int32

TWO_ARRAYS = """extern "C" __global__ void k(int* out, int shift, int pick) {
  __shared__ int a[32];
  __shared__ int b[32];
  int i = threadIdx.x;
  a[i] = 1;
  b[i] = 2;
  __syncthreads();
  %s
}"""


def two_arrays(run_kernel: Any, body: str, *, shift: int = 0, pick: int = 0) -> Any:
    arguments = {"out": np.zeros(32, "i4"), "shift": i32(shift), "pick": i32(pick)}
    return run_kernel(TWO_ARRAYS % body, arguments, collect=True)


@pytest.mark.parametrize(
    ("shift", "threads", "where"),
    [(4, 4, "at `a`[32] (just past its end, in `b`)"), (32, 32, "at `a`[32] (just past its end, in `b`)")],
)
def test_a_read_that_runs_into_the_next_array(run_kernel: Any, shift: int, threads: int, where: str) -> None:
    result = two_arrays(run_kernel, "out[i] = a[i + shift] + b[i];", shift=shift)
    (finding,) = result.findings
    assert (finding.kind, finding.line, finding.address_of) == ("out-of-bounds", 8, "a")
    assert finding.lanes == threads
    assert where in str(finding)


def test_a_write_before_an_array_spares_the_array_before_it(run_kernel: Any) -> None:
    result = two_arrays(run_kernel, "b[i - shift] = 7; __syncthreads(); out[i] = a[i] + b[i];", shift=2)
    (finding,) = result.findings
    assert (finding.kind, finding.address_of, finding.lanes) == ("out-of-bounds", "b", 2)
    assert "at `b`[-2] (8 bytes before its first byte, in `a`)" in str(finding)
    assert result.arrays["out"].tolist() == [8] * 30 + [3] * 2


def test_a_pointer_that_goes_round_a_loop_keeps_its_array(run_kernel: Any) -> None:
    body = """int sum = 0;
      for (const int* p = a + i; p < a + shift; p += 16) sum += *p;
      out[i] = sum + b[i];"""
    assert two_arrays(run_kernel, body, shift=32).findings == []
    (finding,) = two_arrays(run_kernel, body, shift=40).findings
    assert (finding.address_of, finding.lanes) == ("a", 16)  # 0 to 7 and 16 to 23


@pytest.mark.parametrize("pick", [0, 1])
def test_a_pointer_to_either_array_may_point_to_both(run_kernel: Any, pick: int) -> None:
    result = two_arrays(run_kernel, "const int* p = pick ? a : b; out[i] = p[i];", pick=pick)
    assert result.findings == []
    assert result.arrays["out"].tolist() == [1 if pick else 2] * 32


def test_the_distance_between_arrays_leads_from_one_to_the_other(run_kernel: Any) -> None:
    body = """auto distance = reinterpret_cast<char*>(b) - reinterpret_cast<char*>(a);
      if (pick) distance /= 2;
      out[i] = *reinterpret_cast<int*>(reinterpret_cast<char*>(a + i) + distance);"""
    result = two_arrays(run_kernel, body)
    assert result.findings == []
    assert result.arrays["out"].tolist() == [2] * 32


def test_a_pointer_kept_in_local_memory_is_left_alone(run_kernel: Any) -> None:
    body = """int* both[2] = {a, b};
      out[i] = both[(i + pick) % 2][i];"""
    result = two_arrays(run_kernel, body)
    assert result.findings == []
    assert result.arrays["out"].tolist() == [1, 2] * 16


DYNAMIC = """extern "C" __global__ void k(int* out, int shift) {
  __shared__ int fixed[32];
  extern __shared__ int rest[];
  int* second = rest + 32;
  int i = threadIdx.x;
  fixed[i] = 1;
  rest[i] = 2;
  second[i] = 3;
  __syncthreads();
  out[i] = rest[i + shift] + fixed[i];
}"""


def test_dynamic_shared_memory_runs_to_the_end(run_kernel: Any) -> None:
    arguments = {"out": np.zeros(32, "i4"), "shift": i32(32)}
    assert run_kernel(DYNAMIC, arguments, smem_bytes=256, collect=True).findings == []
    (finding,) = run_kernel(DYNAMIC, arguments, smem_bytes=252, collect=True).findings[1:]
    assert (finding.address_of, finding.lanes) == ("rest", 1)
    assert "ask for more by smem_bytes" in str(finding)


def test_dynamic_shared_memory_begins_behind_the_static_arrays(run_kernel: Any) -> None:
    arguments = {"out": np.zeros(32, "i4"), "shift": i32(-1)}
    (finding,) = run_kernel(DYNAMIC, arguments, smem_bytes=256, collect=True).findings
    assert (finding.address_of, finding.thread, finding.lanes) == ("rest", (0, 0, 0), 1)


SHIFTED = """extern "C" __global__ void k(const int* a, int* b, long long shift) {
  b[threadIdx.x] = a[threadIdx.x + shift] + 1;
}"""


def test_a_tensor_that_begins_where_another_does_is_as_long_as_the_longer(run_kernel: Any) -> None:
    whole = np.arange(64, dtype="i4")
    result = run_kernel(SHIFTED, {"a": whole[:32], "b": whole, "shift": np.int64(32)}, collect=True)
    assert result.findings == []


def test_a_number_is_no_tensor(run_kernel: Any) -> None:
    a = np.arange(40, dtype="i4")
    result = run_kernel(SHIFTED, {"a": a, "b": np.zeros(32, "i4"), "shift": np.int64(9)}, collect=True)
    (finding,) = result.findings
    assert (finding.address_of, finding.lanes) == ("a", 1)


def test_tensors_reached_through_a_called_function_are_left_alone(run_kernel: Any) -> None:
    source = """__device__ __noinline__ int read(const int* p, int i) { return p[i]; }
    extern "C" __global__ void k(const int* a, const int* b, int* out) {
      int i = threadIdx.x;
      out[i] = read(a, i) + read(b, 31 - i);
    }"""
    a, b, out = np.arange(32, dtype="i4"), np.arange(32, dtype="i4") * 100, np.zeros(32, "i4")
    assert run_kernel(source, {"a": a, "b": b, "out": out}, collect=True).findings == []
    assert out.tolist() == (a + b[::-1]).tolist()
