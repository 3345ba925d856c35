"""Races: what orders two accesses (races.py, shadow.py), and what a report says (race_reports.py)."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

HEAD = 'extern "C" __global__ void k(int* a, int* out) { int t = threadIdx.x;\n'


def kinds(run_kernel: Any, body: str, *, grid: int = 1, block: int = 64, checks: Any = None) -> list[str]:
    arguments = {"a": np.zeros(4096, "i4"), "out": np.zeros(4096, "i4")}
    more = {} if checks is None else {"checks": checks}
    result = run_kernel(HEAD + body + "\n}", arguments, grid=grid, block=block, collect=True, **more)
    return [f.kind for f in result.findings]


SHARED = "__shared__ int s[64]; s[t] = t;\n"

ORDERED = {
    "barrier": SHARED + "__syncthreads(); out[t] = s[63 - t];",
    "own place": SHARED + "out[t] = s[t];",
    "named barrier of all": SHARED + 'asm volatile("bar.sync 3, 64;" ::: "memory"); out[t] = s[63 - t];',
    "arrive and sync": """__shared__ int s[32];
      if (t < 32) { s[t] = t; asm volatile("bar.arrive 1, 64;" ::: "memory"); }
      else { asm volatile("bar.sync 1, 64;" ::: "memory"); out[t] = s[63 - t]; }""",
    "barrier that votes": SHARED + "if (__syncthreads_or(t == 3)) out[t] = s[63 - t];",
    "warp barrier": SHARED + "__syncwarp(); out[t] = s[t ^ 31];",
    "barriers of subgroups": SHARED + "__syncwarp(0xffu << (t % 32 / 8 * 8)); out[t] = s[t ^ 7];",
    "atomics": "atomicAdd(a, t); out[t] = atomicAdd(a + 1, 1);",
    "same value": "a[0] = 7;",
    "volatile both": "volatile int* v = a; if (t == 0) v[0] = 1; out[t] = v[0];",
    "volatile with warp barriers": "__shared__ volatile int s[64]; s[t] = t; __syncwarp(); int o = s[t ^ 1];"
    "__syncwarp(); s[t] = o;",
    "volatile flag of a lane": "__shared__ volatile int f, d; if (t == 0) f = 0; __syncthreads();"
    "if (t == 9) { d = 7; __threadfence_block(); f = 1; } while (f == 0) {}"
    "__threadfence_block(); out[t] = d;",
    "volatile flags of two lanes": "__shared__ volatile int f, g; if (t == 0) f = g = 0; __syncthreads();"
    "if (t == 9) f = 1; if (t == 8) g = 1; while (!(f | g)) {} out[t] = 1;",
    "volatile value that is waited for": "__shared__ volatile int f; if (t == 0) f = 0; __syncthreads();"
    "if (t == 9) f = 5; int m; while ((m = f) == 0) {} out[t] = m;",
    "different bytes": "reinterpret_cast<char*>(a)[t] = t;",
    "guess before a swap": "int old = a[0], seen;"
    "do { seen = old; old = atomicCAS(a, seen, seen + t); } while (old != seen);",
    "guess past L1 before a swap": "for (int h = out[t] & 7;; h = (h + 1) & 7) { int seen = __ldcg(a + h);"
    "if (seen >= 7 || seen == atomicCAS(a + h, seen, seen + 1)) return; }",
}

RACES = {
    "no barrier": SHARED + "out[t] = s[63 - t];",
    "shuffles order nothing": SHARED + "__shfl_sync(~0u, t, 0); out[t] = s[t ^ 31];",
    "barrier of half the warp": SHARED + "__syncwarp(0xffffu << (t & 16)); out[t] = s[t ^ 31];",
    "named barrier of each warp": SHARED
    + 'asm volatile("bar.sync %0, 32;" :: "r"(t / 32) : "memory"); out[t] = s[63 - t];',
    "arrives where it should wait": SHARED
    + """if (t < 32) asm volatile("bar.arrive 1, 64;" ::: "memory");
         else asm volatile("bar.sync 1, 64;" ::: "memory");
         out[t] = s[63 - t];""",
    "plain beside atomic": "if (t == 40) a[0] = 1; else atomicAdd(a, 1);",
    "plain read of a volatile flag": "volatile int* v = a; if (t == 0) v[0] = 1; out[t] = a[0];",
    "values differ": "a[0] = t;",
    "word beside its byte": "if (t == 0) a[0] = 5; if (t == 33) reinterpret_cast<char*>(a)[3] = 1;",
    "plain write beside a read past L1": "if (t == 0) a[0] = 1; out[t] = __ldcg(a);",
    "warp in step through volatile": "__shared__ volatile int s[64]; s[t] = t; s[t] = s[t] + s[t ^ 1];"
    "out[t] = s[t];",
    "second reader": SHARED + "__syncthreads(); out[t] = s[0]; if (t == 63) s[0] = 1;",
}

BETWEEN_BLOCKS = {
    "neighbour": ("a[blockIdx.x * 64 + t] = a[(blockIdx.x + 1) * 64 + t] + 1;", ["race"]),
    "barrier of a block": ("a[t] = blockIdx.x; __syncthreads();", ["race"]),
    "own part": ("a[blockIdx.x * 64 + t] += 1;", []),
    "atomics of the block": ("atomicAdd_block(a, 1);", ["race"]),
    "atomics": ("atomicAdd(a, 1);", []),
}


@pytest.mark.parametrize("body", ORDERED.values(), ids=list(ORDERED))
def test_ordered_accesses_are_no_race(run_kernel: Any, body: str) -> None:
    assert kinds(run_kernel, body) == []


@pytest.mark.parametrize("body", RACES.values(), ids=list(RACES))
def test_unordered_accesses_are_a_race(run_kernel: Any, body: str) -> None:
    assert set(kinds(run_kernel, body)) == {"race"}


@pytest.mark.parametrize(("body", "found"), BETWEEN_BLOCKS.values(), ids=list(BETWEEN_BLOCKS))
def test_races_between_blocks(run_kernel: Any, body: str, found: list[str]) -> None:
    assert kinds(run_kernel, body, grid=4) == found


def test_a_race_names_both_threads_and_lines_and_what_to_do(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(int* out) {
      __shared__ int tile[64];
      tile[threadIdx.x] = 1;
      out[threadIdx.x] = tile[63 - threadIdx.x];
    }"""
    (finding,) = run_kernel(source, {"out": np.zeros(64, "i4")}, block=64, collect=True).findings
    assert (finding.kind, finding.line, finding.lanes, finding.address_of) == ("race", 4, 64, "tile")
    assert "reads `tile`[63] in shared memory" in finding.message
    assert "thread (63,0,0) of block (0,0,0) writes at line 3" in finding.message
    assert "__syncthreads()" in finding.message


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ("for (int h = 32; h > 0; h /= 2) if (t < h) s[t] += s[t + h];", " in another pass of the loop"),
        (
            "for (int h = *a + 32; h > 0; h /= 2) if (t < h) s[t] += s[t + h];",
            " in another pass of the loop",
        ),
        ("if (t < 48) s[t] += s[t + 16];", ""),
    ],
    ids=["unrolled", "loop", "no loop"],
)
def test_a_race_at_one_line_says_whether_it_is_between_passes(run_kernel: Any, steps: str, told: str) -> None:
    body = f"{HEAD}{SHARED}__syncthreads();\n{steps}\n__syncthreads(); out[t] = s[t]; }}"
    arguments = {"a": np.zeros(64, "i4"), "out": np.zeros(64, "i4")}
    message = run_kernel(body, arguments, block=64, collect=True).findings[0].message
    assert f"at the same line{told}, and nothing orders the two" in message


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_the_last_to_count_may_reset_the_counter(run_kernel: Any, seed: int | None) -> None:
    source = HEAD + "__threadfence(); if (t == 0 && atomicAdd(a, 1) == gridDim.x - 1) a[0] = 0; }"
    arguments = {"a": np.zeros(1, "i4"), "out": np.zeros(1, "i4")}
    assert run_kernel(source, arguments, grid=50, block=32, seed=seed).findings == []


@pytest.mark.parametrize("seed", [None, 0, 1, 2, 3, 4])
def test_a_barrier_settles_the_reads_of_its_own_block_alone(run_kernel: Any, seed: int | None) -> None:
    """Blocks that pass a barrier between read and write are right; of those that do not, each has a race."""
    body = """__shared__ int s[64]; s[t] = t; __syncthreads();
      for (int i = 0; i < 4; ++i) {
        int got = s[63 - t];
        if (blockIdx.x != ODD || i != 2) __syncthreads();
        s[t] = got + i;
        __syncthreads();
      }
      out[blockIdx.x * 64 + t] = s[t];"""
    for odd, found in (("9", set()), ("5", {(5, 0, 0)})):
        arguments = {"a": np.zeros(1, "i4"), "out": np.zeros(512, "i4")}
        source = HEAD + body.replace("ODD", odd) + "}"
        result = run_kernel(source, arguments, grid=8, block=64, seed=seed, collect=True)
        assert {finding.kind for finding in result.findings} == ({"race"} if found else set())
        assert {finding.block for finding in result.findings} == found


def test_a_fence_on_both_sides_publishes(run_kernel: Any) -> None:
    body = """volatile int* flag = a + 64;
      if (t == 0 && blockIdx.x == 0) { a[0] = 5; FENCE *flag = 1; }
      if (t == 0 && blockIdx.x == 1) { while (*flag == 0) {} SEEN out[0] = a[0]; }"""
    fence = "__threadfence();"
    assert kinds(run_kernel, body.replace("FENCE", fence).replace("SEEN", fence), grid=2) == []
    assert kinds(run_kernel, body.replace("FENCE", "").replace("SEEN", fence), grid=2) == ["race"]
    assert kinds(run_kernel, body.replace("FENCE", fence).replace("SEEN", ""), grid=2) == ["race"]
    narrow = body.replace("FENCE", "__threadfence_block();").replace("SEEN", fence)
    assert kinds(run_kernel, narrow, grid=2) == ["race"]


@pytest.mark.parametrize(
    ("check", "body"),
    [
        ("race", SHARED + "out[t] = s[63 - t];"),
        ("init", "__shared__ int s[64]; if (t > 70) s[t] = 1; __syncthreads(); out[t] = s[t];"),
        ("bounds", "out[t] = a[t + 5000];"),
        ("barrier", "if (t > 40) __syncthreads(); out[t] = 1; __syncthreads();"),
    ],
)
def test_each_check_can_be_turned_off(run_kernel: Any, check: str, body: str) -> None:
    every = frozenset({"race", "init", "bounds", "barrier"})
    assert kinds(run_kernel, body, checks=every) != []
    assert kinds(run_kernel, body, checks=every - {check}) == []
    assert kinds(run_kernel, body, checks=frozenset({check})) != []


def test_a_race_of_all_threads_is_found_in_little_time(run_kernel: Any) -> None:
    body = """__shared__ int s[256]; int v = 0;
      for (int r = 0; r < 32; ++r) { s[t] = r; BARRIER v += s[255 - t]; __syncthreads(); }
      out[blockIdx.x * 256 + t] = v;"""

    def run(barrier: str) -> tuple[float, list[str]]:
        arguments = {"a": np.zeros(1, "i4"), "out": np.zeros(1 << 17, "i4")}
        source = HEAD + body.replace("BARRIER", barrier) + "}"
        began = time.perf_counter()
        result = run_kernel(source, arguments, grid=1 << 9, block=256, collect=True)
        return time.perf_counter() - began, [finding.kind for finding in result.findings]

    for barrier in ("__syncthreads();", ""):
        run(barrier)  # compiles
    right, wrong = (min(run(barrier) for _ in range(3)) for barrier in ("__syncthreads();", ""))
    assert right[1] == []
    assert wrong[1] == ["race"]
    assert wrong[0] < 5 * right[0]


def test_a_race_of_many_threads_says_that_there_may_be_more(run_kernel: Any) -> None:
    body = "__shared__ int s[256]; s[t] = t; out[blockIdx.x * 256 + t] = s[255 - t];"
    for grid, count in ((15, "by 3840 threads;"), (16, "by at least 4096 threads;")):
        arguments = {"a": np.zeros(1, "i4"), "out": np.zeros(4096, "i4")}
        result = run_kernel(HEAD + body + "}", arguments, grid=grid, block=256, collect=True)
        (finding,) = result.findings
        assert count in str(finding)
