"""Each kind of finding: right kind, line, block, thread, count and name. Also those of unwritten.py."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from dotcu.errors import FindingError

i32 = np.int32


def only(result: Any) -> Any:
    assert len(result.findings) == 1, [str(f) for f in result.findings]
    return result.findings[0]


SCALE = """extern "C" __global__ void k(const float* a, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n)
        out[i] =
            a[i] * 2;
}"""


def test_read_past_the_end_names_argument_line_and_thread(run_kernel: Any) -> None:
    a, out = np.ones(512, "f4"), np.zeros(513, "f4")
    with pytest.raises(FindingError) as caught:
        run_kernel(SCALE, {"a": a, "out": out, "n": i32(512)}, grid=3, block=256)
    finding = caught.value.finding
    assert (finding.kind, finding.line, finding.address_of) == ("out-of-bounds", 5, "a")
    assert (finding.block, finding.thread, finding.lanes) == ((2, 0, 0), (0, 0, 0), 1)
    text = str(finding)
    assert text.startswith("kernel.cu:5: out-of-bounds read of 4 bytes at `a`[512] (just past its end)")
    assert "512 elements" in text
    assert "by thread (0,0,0) of block (2,0,0)" in text


def test_collected_faults_are_suppressed_and_the_run_goes_on(run_kernel: Any) -> None:
    a, out = np.ones(60, "f4"), np.zeros(100, "f4")
    result = run_kernel(SCALE, {"a": a, "out": out, "n": i32(99)}, grid=2, block=64, collect=True)
    finding = only(result)
    assert finding.lanes == 40
    assert finding.thread == (60, 0, 0)
    assert out.tolist() == [2.0] * 60 + [0.0] * 40


def test_write_before_the_beginning(run_kernel: Any) -> None:
    source = 'extern "C" __global__ void k(int* x) {\n  x[(int)threadIdx.x - 2] = 1;\n}'
    x = np.zeros(32, "i4")
    finding = only(run_kernel(source, {"x": x}, collect=True))
    assert (finding.kind, finding.lanes, finding.line) == ("out-of-bounds", 2, 2)
    assert "write of 4 bytes at `x`[-2] (8 bytes before its first byte)" in str(finding)
    assert x.tolist() == [1] * 30 + [0, 0]


def test_an_index_far_off_is_still_named(run_kernel: Any) -> None:
    source = 'extern "C" __global__ void k(double* x, int* y) { x[threadIdx.x * 100000ll] = y[0]; }'
    finding = only(run_kernel(source, {"x": np.zeros(1), "y": np.zeros(1, "i4")}, collect=True))
    assert (finding.address_of, finding.lanes, finding.thread) == ("x", 31, (1, 0, 0))


def test_a_vector_that_straddles_the_end(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(float4* x, float* s) {
      float4 v = x[threadIdx.x]; s[threadIdx.x] = v.x + v.w; }"""
    s = np.zeros(32, "f4")
    finding = only(run_kernel(source, {"x": np.ones(126, "f4"), "s": s}, collect=True))
    assert (finding.kind, finding.lanes, finding.thread) == ("out-of-bounds", 1, (31, 0, 0))
    assert s.tolist() == [2.0] * 31 + [0.0]


def test_null_pointer(run_kernel: Any) -> None:
    source = (
        'extern "C" __global__ void k(int* x, const int* p) {\n x[threadIdx.x] = 1 +\n  p[threadIdx.x];\n}'
    )
    x = np.zeros(32, "i4")
    finding = only(run_kernel(source, {"x": x, "p": np.int64(0)}, collect=True))
    assert (finding.kind, finding.line, finding.lanes) == ("null-pointer", 3, 32)
    assert x.tolist() == [1] * 32


def test_pointer_to_nothing(run_kernel: Any) -> None:
    source = 'extern "C" __global__ void k(int* x, const int* p) { x[threadIdx.x] = *p; }'
    arguments = {"x": np.zeros(32, "i4"), "p": np.int64(0x123456789AB0)}
    finding = only(run_kernel(source, arguments, collect=True))
    assert (finding.kind, finding.lanes) == ("out-of-bounds", 32)


def test_misaligned_vector(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(const float* x, float* out) {
      float2 v = *(const float2*)(x + 1 + 2 * threadIdx.x);
      out[threadIdx.x] = v.x + v.y;
    }"""
    result = run_kernel(source, {"x": np.ones(80, "f4"), "out": np.ones(32, "f4")}, collect=True)
    finding = only(result)
    assert (finding.kind, finding.line, finding.address_of) == ("misaligned", 2, "x")
    assert "needs a multiple of 8" in str(finding)
    assert finding.lanes == 32
    assert result.arrays["out"].tolist() == [0.0] * 32


def test_read_of_what_nothing_wrote(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(float* out, int n) {
      int i = threadIdx.x;
      if (i != 7) out[i] = i;
      __syncthreads();
      if (i == 0) out[n] = out[7] + 1;
    }"""
    arguments = {"out": np.zeros(40, "f4"), "n": i32(33)}
    finding = only(run_kernel(source, arguments, collect=True, unwritten=["out"]))
    assert (finding.kind, finding.line, finding.address_of) == ("uninitialized-read", 5, "out")
    assert "`out`[7]" in str(finding)
    assert (finding.thread, finding.lanes) == ((0, 0, 0), 1)


def test_uninitialized_shared_and_local_memory(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(int* out, int n) {
      __shared__ int tile[64];
      int local[16];
      for (int j = 0; j < n; ++j) local[j] = j;
      if (threadIdx.x < 30) tile[threadIdx.x] = 1;
      __syncthreads();
      out[threadIdx.x] = tile[threadIdx.x];
      out[threadIdx.x] += local[n + (threadIdx.x & 1)];
    }"""
    findings = run_kernel(source, {"out": np.zeros(32, "i4"), "n": i32(5)}, collect=True).findings
    findings = sorted(findings, key=lambda f: f.line)  # the compiler may exchange the two loads
    assert [(f.kind, f.line, f.lanes) for f in findings] == [
        ("uninitialized-read", 7, 2),
        ("uninitialized-read", 8, 32),
    ]
    assert findings[0].address_of == "tile"
    assert findings[0].thread == (30, 0, 0)
    assert "local memory" in str(findings[1])


ROWS = """extern "C" __global__ void k(float* x, float* out, int n) {
      for (int i = threadIdx.x; i < n; i += 32) x[i] = i + 1;
      __syncwarp();
      float sum = 0, most = -1;
      for (int c = 4 * threadIdx.x; c < n; c += 128) {
        float4 v = *(const float4*)(x + c);
        float a[4] = {v.x, v.y, v.z, v.w};
        for (int j = 0; j < 4; ++j) { USE }
      }
      out[threadIdx.x] = sum + most;
    }"""


@pytest.mark.parametrize(
    "use",
    [
        "if (c + j < n) sum += a[j] * a[j];",
        "if (c + j < n) out[c + j + 32] = a[j];",
        "most = fmaxf(most, c + j < n ? a[j] : -1);",
        "if (c + j < n && a[j] > most) most = a[j];",
        "sum += c + j < n ? expf(a[j]) / (1 + a[j]) : 0;",
    ],
)
def test_padding_that_a_wide_load_reads_and_drops_is_no_fault(run_kernel: Any, use: str) -> None:
    arguments = {"x": np.zeros(144, "f4"), "out": np.zeros(180, "f4"), "n": i32(141)}
    result = run_kernel(ROWS.replace("USE", use), arguments, collect=True, unwritten=["x"])
    assert not result.findings


@pytest.mark.parametrize(
    "use",
    [
        "sum += a[j] * a[j];",
        "most = fmaxf(most, a[j]);",
        "if (a[j] > most) most = a[j];",
        "out[c + j + 32] = a[j];",
        "sum += out[int(a[j])];",
        "sum += __shfl_sync(~0u, a[j], 31);",
    ],
)
def test_padding_that_a_wide_load_reads_and_uses_is_a_fault(run_kernel: Any, use: str) -> None:
    arguments = {"x": np.zeros(128, "f4"), "out": np.zeros(180, "f4"), "n": i32(125)}
    result = run_kernel(ROWS.replace("USE", use), arguments, collect=True, unwritten=["x"])
    faults = [f for f in result.findings if f.kind == "uninitialized-read"]
    assert [f.address_of for f in faults] == ["x"]


def test_a_vector_of_which_nothing_is_written_is_a_fault_if_its_use_depends_on_a_branch(
    run_kernel: Any,
) -> None:
    source = ROWS.replace("USE", "if (c + j < n) sum += a[j];").replace("x[i] = i + 1", "out[i] = i + 1")
    arguments = {"x": np.zeros(128, "f4"), "out": np.zeros(180, "f4"), "n": i32(125)}
    finding = only(run_kernel(source, arguments, collect=True, unwritten=["x"]))
    assert (finding.kind, finding.line, finding.lanes) == ("uninitialized-read", 6, 125)


def test_out_of_bounds_in_shared_memory(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(int* out) {
      __shared__ int tile[32];
      tile[threadIdx.x + 8] = 1;
      __syncthreads();
      out[threadIdx.x] = tile[31 - threadIdx.x % 16];
    }"""
    finding = only(run_kernel(source, {"out": np.zeros(32, "i4")}, collect=True))
    assert (finding.kind, finding.line, finding.address_of) == ("out-of-bounds", 3, "tile")
    assert (finding.thread, finding.lanes) == ((24, 0, 0), 8)
    assert "128 bytes" in str(finding)


@pytest.mark.parametrize(
    ("index", "place"),
    [("+ 1", "`s`[128] (just past its end)"), ("- 1", "`s`[-1] (4 bytes before its first byte)")],
)
def test_a_shared_array_is_named_by_element(run_kernel: Any, index: str, place: str) -> None:
    source = """extern "C" __global__ void k(float* out) {
      __shared__ float s[128];
      s[threadIdx.x] = 1;
      __syncthreads();
      out[threadIdx.x] = s[(int)threadIdx.x INDEX];
    }""".replace("INDEX", index)
    finding = only(run_kernel(source, {"out": np.zeros(128, "f4")}, block=128, collect=True))
    assert f"out-of-bounds read of 4 bytes at {place}" in str(finding)
    assert "`s` has 512 bytes of shared memory, 128 elements of 4" in str(finding)


def test_a_race_and_an_unwritten_element_of_a_shared_array_are_named_by_element(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(float* out) {
      __shared__ float s[128];
      if (threadIdx.x < 64) s[threadIdx.x] = 1;
      out[threadIdx.x] = s[threadIdx.x ^ 33];
    }"""
    result = run_kernel(source, {"out": np.zeros(128, "f4")}, block=128, collect=True)
    said = {finding.kind: str(finding) for finding in result.findings}
    assert "reads `s`[33] in shared memory" in said["race"]
    assert (
        "read of 4 bytes at `s`[97] in shared memory, which nothing has written" in said["uninitialized-read"]
    )


def test_out_of_bounds_in_local_memory(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(int* out, int n) {
      int local[8] = {0};
      for (int j = 0; j < 8; ++j) local[j] = j * n;
      local[n + threadIdx.x] = 3;
      out[threadIdx.x] = local[n & 7];
    }"""
    finding = only(run_kernel(source, {"out": np.zeros(32, "i4"), "n": i32(4)}, collect=True))
    assert (finding.kind, finding.line, finding.thread, finding.lanes) == ("out-of-bounds", 4, (4, 0, 0), 28)


def test_write_to_what_was_promised_unwritten(run_kernel: Any) -> None:
    source = 'extern "C" __global__ void k(const int* x) { ((int*)x)[threadIdx.x] = 1; }'
    x = np.zeros(32, "i4")
    finding = only(run_kernel(source, {"x": x}, collect=True, read_only=["x"]))
    assert (finding.kind, finding.address_of, finding.lanes) == ("read-only", "x", 32)
    assert not x.any()


def test_atomic_out_of_bounds(run_kernel: Any) -> None:
    source = 'extern "C" __global__ void k(int* x) { atomicAdd(&x[threadIdx.x / 8], 1); }'
    x = np.zeros(3, "i4")
    finding = only(run_kernel(source, {"x": x}, collect=True))
    assert "atomic on 4 bytes at `x`[3]" in str(finding)
    assert x.tolist() == [8, 8, 8]


_TWO_PLACES = """extern "C" __global__ void k(int* out, int n) {
  __shared__ int tile[64];
  tile[threadIdx.x] = threadIdx.x;
  if (threadIdx.x < n) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = tile[63 - threadIdx.x];
}"""


def test_warps_may_meet_at_two_barriers(run_kernel: Any) -> None:
    out = np.zeros(64, "i4")
    run_kernel(_TWO_PLACES, {"out": out, "n": i32(32)}, block=64)
    assert out.tolist() == list(range(63, -1, -1))


def test_a_warp_that_is_at_two_barriers(run_kernel: Any) -> None:
    source = _TWO_PLACES.replace("{\n    __", "{\n    out[threadIdx.x] = 1;\n    __", 1)  # else one barrier
    finding = only(run_kernel(source, {"out": np.zeros(64, "i4"), "n": i32(16)}, block=64, collect=True))
    assert (finding.kind, finding.lanes) == ("barrier", 16)
    assert "threads of one warp" in str(finding)
    assert {str(finding.line), *re.findall(r"at line (\d)", str(finding))} == {"6", "8"}


def test_threads_that_returned_before_a_barrier_are_not_waited_for(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(int* out, int n) {
      if (threadIdx.x >= n) return;
      out[threadIdx.x] = 1;
      __syncthreads();
      out[threadIdx.x] += 1;
    }"""
    out = np.zeros(128, "i4")
    run_kernel(source, {"out": out, "n": i32(50)}, block=128)
    assert out.tolist() == [2] * 50 + [0] * 78


def test_a_barrier_in_a_branch_that_some_warps_do_not_take(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(int* out) {
      out[threadIdx.x] = 1;
      if (threadIdx.x < 32)
        __syncthreads();
      out[threadIdx.x] = 2;
      __syncthreads();
    }"""
    finding = only(run_kernel(source, {"out": np.zeros(64, "i4")}, block=64, collect=True))
    assert (finding.kind, finding.line, finding.lanes) == ("barrier", 4, 32)
    assert "1 and 2 barriers in all" in str(finding)
    assert "at line 6" in str(finding)
    assert "take it out of the condition" in str(finding)


def test_a_warp_that_leaves_after_its_last_barrier(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(int* out) {
      __shared__ int tile[2][32];
      int lane = threadIdx.x % 32, sum = 0;
      if (threadIdx.x >= 32) {
        for (int i = 0; i < 4; ++i) { tile[i % 2][lane] = i; __syncthreads(); }
        return;
      }
      for (int i = 0; i < 4; ++i) { __syncthreads(); sum += tile[i % 2][31 - lane]; }
      tile[0][lane] = sum;
      __syncthreads();
      out[lane] = tile[0][31 - lane];
    }"""
    out = np.zeros(32, "i4")
    run_kernel(source, {"out": out}, block=64, checks=frozenset({"barrier"}))
    assert out.tolist() == [6] * 32


def test_mask_that_does_not_name_the_caller(run_kernel: Any) -> None:
    source = (
        'extern "C" __global__ void k(int* out) {\n out[threadIdx.x] = __shfl_sync(0xffu, threadIdx.x, 0);\n}'
    )
    finding = only(run_kernel(source, {"out": np.zeros(32, "i4")}, collect=True))
    assert (finding.kind, finding.line, finding.thread, finding.lanes) == ("barrier", 2, (8, 0, 0), 24)


_SUM = """
  if (EXIT) return;
  int v = x[threadIdx.x];
  for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  x[threadIdx.x] = v;"""


@pytest.mark.parametrize(
    ("body", "lanes", "who"),
    [
        (_SUM.replace("EXIT", "threadIdx.x >= 40"), 8, "names lanes 8 to 31, which have exited"),
        ("int v = __shfl_down_sync(~0u, x[threadIdx.x], 4);\n\nx[threadIdx.x] = v;", 4, "the block does not"),
        ("if (threadIdx.x % 2) return;\n\nx[threadIdx.x] = __ballot_sync(~0u, 1);", 16, "1, 3, 5"),
        ("if (threadIdx.x == 9) return;\n\nx[0] = __any_sync(~0u, x[threadIdx.x]);", 31, "lanes 9, which"),
        ("if (threadIdx.x == 9) return;\n\nx[threadIdx.x] = __match_any_sync(~0u, 1);", 31, "lanes 9, which"),
        (
            "if (threadIdx.x == 9) return;\n\nx[threadIdx.x] = __reduce_add_sync(~0u, 1);",
            31,
            "lanes 9, which",
        ),
    ],
)
def test_a_mask_that_names_lanes_which_are_not_there(
    run_kernel: Any, body: str, lanes: int, who: str
) -> None:
    source = 'extern "C" __global__ void k(int* x) {\n' + body + "\n}"
    block = 64 if "40" in body else 32 if "return" in body else 40
    result = run_kernel(source, {"x": np.zeros(64, "i4")}, block=block, collect=True)
    finding = result.findings[0]
    assert (finding.kind, finding.lanes >= lanes) == ("barrier", True), str(finding)
    assert "_sync(" in source.splitlines()[finding.line - 1]
    assert "the mask 0xffffffff names lanes" in str(finding)
    assert who in str(finding)
    assert "__ballot_sync(0xffffffff, condition)" in str(finding)


@pytest.mark.parametrize(
    "body",
    [
        "if (threadIdx.x >= 40) return; x[threadIdx.x] = 1; __syncwarp(); x[threadIdx.x] += 1;",
        """unsigned m = __ballot_sync(~0u, threadIdx.x < 40); if (threadIdx.x >= 40) return;
        x[threadIdx.x] = __shfl_sync(m, threadIdx.x, 7) + __popc(__ballot_sync(m, 1));""",
        "if (threadIdx.x >= 40) return; x[threadIdx.x] = __shfl_down_sync(~0u, threadIdx.x, 4, 8);",
        "if (threadIdx.x >= 40) return; x[threadIdx.x] = __ballot_sync(__activemask(), 1);",
        """if (threadIdx.x >= 40) return; int v = x[threadIdx.x];
        for (int o = 16; o; o /= 2) { int t = __shfl_down_sync(~0u, v, o); if (threadIdx.x + o < 40) v += t; }
        x[threadIdx.x] = v;""",
        """if (threadIdx.x >= 40) return; int t = __shfl_down_sync(~0u, x[threadIdx.x], 4);
        if (threadIdx.x + 4 < 40) x[threadIdx.x] = t;""",
    ],
)
def test_a_mask_of_lanes_that_are_there_is_right(run_kernel: Any, body: str) -> None:
    run_kernel(f'extern "C" __global__ void k(int* x) {{ {body} }}', {"x": np.zeros(64, "i4")}, block=64)


def test_a_shuffle_from_a_lane_outside_of_the_mask(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(int* x) {
      unsigned mask = threadIdx.x < 16 ? 0xffffu : 0xffff0000u;
      x[threadIdx.x] = __shfl_xor_sync(mask, threadIdx.x, 16);
    }"""
    finding = only(run_kernel(source, {"x": np.zeros(32, "i4")}, collect=True))
    assert (finding.kind, finding.line, finding.lanes) == ("barrier", 3, 32)


def test_a_barrier_that_never_fills_is_a_deadlock(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(int* out) {
      if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;" ::: "memory");
      else asm volatile("bar.sync 2, 64;" ::: "memory");
      out[threadIdx.x] = 1;
    }"""
    result = run_kernel(source, {"out": np.zeros(64, "i4")}, block=64, collect=True)
    finding = only(result)
    assert (finding.kind, finding.lanes) == ("deadlock", 64)
    assert "32 threads at line 2" in str(finding)
    assert "32 threads at line 3" in str(finding)


def test_a_mask_that_names_threads_elsewhere_is_a_deadlock(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(int* out) {
      if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(~0u, threadIdx.x, 0);
      else { __syncthreads(); out[threadIdx.x] = 1; }
    }"""
    finding = only(run_kernel(source, {"out": np.zeros(32, "i4")}, collect=True))
    assert (finding.kind, finding.lanes) == ("deadlock", 32)


def test_endless_loop_ends_as_a_finding(run_kernel: Any) -> None:
    source = 'extern "C" __global__ void k(volatile int* x) {\n  while (x[0] == 0) { x[1] = 1; }\n}'
    finding = only(run_kernel(source, {"x": np.zeros(2, "i4")}, collect=True, step_limit=5000))
    assert (finding.kind, finding.line) == ("step-limit", 2)


def test_assertion_and_trap(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(int* x) {
      assert(threadIdx.x < 30);
      if (threadIdx.x == 5) __trap();
      x[threadIdx.x] = 1;
    }"""
    x = np.zeros(32, "i4")
    findings = run_kernel(source, {"x": x}, collect=True).findings
    assert [(f.kind, f.line, f.thread, f.lanes) for f in findings] == [
        ("trap", 2, (30, 0, 0), 2),
        ("trap", 3, (5, 0, 0), 1),
    ]
    assert "threadIdx.x < 30" in str(findings[0])
    assert x.sum() == 29


def test_an_inlined_function_is_reported_where_the_kernel_s_file_has_it(run_kernel: Any) -> None:
    source = """#include <cuda_fp16.h>
__device__ float pick(const float* p, int i) {
  return p[i];
}
extern "C" __global__ void k(const float* a, const __half2* h, float* out) {
  out[threadIdx.x] = pick(a, threadIdx.x);
  __half2 v =
      h[threadIdx.x];
  out[threadIdx.x] += __low2float(v);
}"""
    a, h, out = np.ones(31, "f4"), np.ones(62, "f2"), np.zeros(32, "f4")
    findings = run_kernel(source, {"a": a, "h": h, "out": out}, collect=True).findings
    assert [(f.file, f.line, f.address_of) for f in findings] == [
        ("kernel.cu", 3, "a"),
        ("kernel.cu", 8, "h"),
    ]


def test_index_error_of_a_tensor_names_it(run_kernel: Any) -> None:
    source = """extern "C" __device__ void __dotcu_index_error(int, long long, long long, const void*);
struct View { const float* data; long long size;
  __device__ float operator()(long long i) const {
    if (i < 0 || i >= size) { __dotcu_index_error(1, i, size, data); return 0; }
    return data[i]; } };
extern "C" __global__ void k(View v, float* out) {
  out[threadIdx.x] = v((int)threadIdx.x - 1);
}"""
    # The struct holds the address that the buffer gets; map it first to learn it.
    from dotcu.simulator import Buffer, Memory, Program, Run, launch

    compiled = run_kernel.__globals__["compile_ptx"](source)
    data, out = np.ones(8, "f4"), np.zeros(32, "f4")
    memory, run = Memory(), Run(on_finding="collect")
    address = memory.map(Buffer(name="v", data=data.view("u1"), itemsize=4))
    target = memory.map(Buffer(name="out", data=out.view("u1")))
    view = address.to_bytes(8, "little") + np.int64(8).tobytes()
    launch(
        Program.parse(compiled, {"/dotcu/kernel.cu": "kernel.cu"}),
        "k",
        params=[view, target.to_bytes(8, "little")],
        memory=memory,
        grid=(1, 1, 1),
        block=(32, 1, 1),
        smem_bytes=0,
        run=run,
        kernel="k",
    )
    finding = run.findings[0]
    assert (finding.kind, finding.address_of, finding.lanes) == ("out-of-bounds", "v", 24)
    assert "index -1 leaves dimension 1 of `v`, which has 8 elements" in str(finding)
    assert out.tolist() == [0.0] + [1.0] * 8 + [0.0] * 23


def test_the_source_line_is_shown(run_kernel: Any, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernel.cu").write_text(SCALE)
    a, out = np.ones(4, "f4"), np.zeros(9, "f4")
    result = run_kernel(SCALE, {"a": a, "out": out, "n": i32(8)}, collect=True)
    assert "5 | a[i] * 2;" in str(result.findings[0])


WIDER = """extern "C" __global__ void k(float* out) {
  __shared__ float4 cells[32];
  float* cell = &cells[threadIdx.x % 32].x;
  if (threadIdx.x >= 32) { cell[3] = threadIdx.x; return; }
  cell[0] = 1, cell[1] = 2, cell[2] = 4;
  float x, y, z, w;
  unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(cell));
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x), "=f"(y), "=f"(z), "=f"(w) : "r"(address));
  out[threadIdx.x] = x + y + z USED;
}"""


@pytest.mark.parametrize(("block", "kind"), [(32, "uninitialized-read"), (64, "race")])
def test_an_element_of_a_vector_counts_as_read_if_something_uses_it(
    run_kernel: Any, block: int, kind: str
) -> None:
    out = np.zeros(32, "f4")
    run_kernel(WIDER.replace("USED", ""), {"out": out}, block=block)
    assert out.tolist() == [7] * 32
    result = run_kernel(WIDER.replace("USED", "+ w"), {"out": out}, block=block, collect=True)
    assert kind in {finding.kind for finding in result.findings}
