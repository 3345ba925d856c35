"""Who runs when: waiting ends, in a block, in a chunk and across chunks; what cannot end is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dotcu.simulator.machine import schedule
from helpers.quick_cases import quick

i32 = np.int32
SEEDS = (None, 0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2)))
by_seed = pytest.mark.parametrize("seed", SEEDS)
LANES_OF_A_CHUNK = 1 << 16


@by_seed
@pytest.mark.parametrize("loop", ["while (atomicCAS(lock, 0, 1) != 0) {} BODY", "RETRY"])
def test_a_lock_is_taken_by_every_thread_in_turn(run_kernel: Any, loop: str, seed: int | None) -> None:
    body = "__threadfence(); *sum = *sum + 1; __threadfence(); atomicExch(lock, 0);"
    retry = f"for (bool done = false; !done;) if (atomicCAS(lock, 0, 1) == 0) {{ {body} done = true; }}"
    text = retry if loop == "RETRY" else loop.replace("BODY", body)
    source = f'extern "C" __global__ void k(int* lock, int* sum) {{ {text} }}'
    total = np.zeros(1, "i4")
    run_kernel(source, {"lock": np.zeros(1, "i4"), "sum": total}, grid=2, block=40, seed=seed)
    assert total[0] == 2 * 40


@by_seed
def test_an_early_block_waits_for_a_later_chunk(run_kernel: Any, seed: int | None) -> None:
    source = """extern "C" __global__ void k(volatile int* flag, int* data) {
      if (threadIdx.x) return;
      if (blockIdx.x == 0) { while (*flag == 0) {} __threadfence(); data[0] = data[1] + 1; }
      if (blockIdx.x == gridDim.x - 1) { data[1] = 6; __threadfence(); *flag = 1; }
    }"""
    data = np.zeros(2, "i4")
    blocks = 2 * LANES_OF_A_CHUNK // 1024 + 1
    run_kernel(source, {"flag": np.zeros(1, "i4"), "data": data}, grid=blocks, block=1024, seed=seed)
    assert data.tolist() == [7, 6]


_TURNS = """extern "C" __global__ void k(volatile int* turn, int* data) {
  int now = 0, mine = UP ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
  while (__syncthreads_and(now != mine)) if (threadIdx.x == 0) now = *turn;
  __threadfence();
  data[threadIdx.x] = 3 * data[threadIdx.x] + mine;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) *turn = mine + 1;
}"""


@pytest.mark.parametrize("seed", quick([None], [None, 0, 1, 2]))
@pytest.mark.parametrize(
    ("grid", "block", "up"),
    [(4, 64, True), (4, 64, False), (LANES_OF_A_CHUNK // 1024 + 2, 1024, True)],
)
def test_a_whole_block_that_spins_through_a_barrier_lets_others_run(
    run_kernel: Any, grid: int, block: int, up: bool, seed: int | None
) -> None:
    data, want = np.zeros(block, "i4"), 0
    for mine in range(grid):
        want = (3 * want + mine) % (1 << 32)
    source = _TURNS.replace("UP", "true" if up else "false")
    arguments = {"turn": np.zeros(1, "i4"), "data": data}
    run_kernel(source, arguments, grid=grid, block=block, seed=seed, step_limit=200_000)
    assert (data == np.uint32(want).astype("i4")).all()


@by_seed
def test_a_block_that_spins_through_a_barrier_for_ever_is_a_deadlock(
    run_kernel: Any, seed: int | None
) -> None:
    arguments = {"turn": np.full(1, 99, "i4"), "data": np.zeros(64, "i4")}
    source = _TURNS.replace("UP", "true").replace("now = 0", "now = 99")
    result = run_kernel(source, arguments, grid=2, block=64, seed=seed, collect=True, step_limit=200_000)
    (finding,) = result.findings
    assert (finding.kind, finding.lanes) == ("deadlock", 128)
    assert "at line 3" in finding.message


@pytest.mark.parametrize("seed", quick([None], [None, 0, 1, 2]))
def test_threads_that_count_between_barriers_are_not_at_a_standstill(
    run_kernel: Any, seed: int | None
) -> None:
    source = """extern "C" __global__ void k(volatile int* flag, int* out) {
      int rounds = 0;
      while (__syncthreads_and(*flag == 0 && rounds < 1500)) if (threadIdx.x >= 32) ++rounds;
      out[threadIdx.x] = rounds;
    }"""
    out = np.zeros(64, "i4")
    run_kernel(source, {"flag": np.zeros(1, "i4"), "out": out}, block=64, seed=seed)
    assert out.tolist() == [0] * 32 + [1500] * 32


def test_a_long_wait_without_a_flag_is_no_deadlock(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(volatile int* x, int* out) {
      int sum = 0;
      for (int i = 0; i < 1500; ++i) sum += x[i % 32];
      out[threadIdx.x] = sum;
    }"""
    x, out = np.arange(32, dtype="i4"), np.zeros(32, "i4")
    run_kernel(source, {"x": x, "out": out})
    assert out.tolist() == [int(np.resize(x, 1500).sum())] * 32


def test_backing_off_does_not_hide_a_deadlock(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(volatile int* flag) {
      unsigned wait = 8;
      while (*flag == 0) { __nanosleep(wait); if (wait < 256) wait *= 2; }
    }"""
    (finding,) = run_kernel(source, {"flag": np.zeros(1, "i4")}, collect=True).findings
    assert (finding.kind, finding.line, finding.lanes) == ("deadlock", 3, 32)
    assert "32 threads at line 3 spin in `ld.volatile" in finding.message


def test_a_deadlock_across_chunks_counts_all_who_wait(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(volatile int* flag) {
      if (threadIdx.x == 0) while (*flag == 0) {}
      __syncthreads();
    }"""
    blocks = LANES_OF_A_CHUNK // 1024 + 1
    (finding,) = run_kernel(
        source, {"flag": np.zeros(1, "i4")}, grid=blocks, block=1024, collect=True
    ).findings
    assert finding.kind == "deadlock"
    assert finding.lanes == blocks * 1024
    assert f"{blocks} threads at line 2 spin" in finding.message
    assert f"{blocks * 1023} threads at line 3 wait" in finding.message


_TURNS_OF_ONE_THREAD = """extern "C" __global__ void k(unsigned* x, int n) {
  unsigned v = threadIdx.x;
  for (int i = 0; i < n * (1 + threadIdx.x); ++i) v = v * 1664525u + i;
  x[threadIdx.x] = v;
}"""


def test_a_kernel_whose_threads_end_may_take_any_number_of_steps(
    run_kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "PATIENCE_STEPS", 30_000)
    x = np.zeros(32, "u4")
    run = run_kernel(_TURNS_OF_ONE_THREAD, {"x": x, "n": i32(2000)}).run
    assert run.findings == []
    assert run.counters.steps > 3 * 30_000
    (finding,) = run_kernel(_TURNS_OF_ONE_THREAD, {"x": x, "n": i32(100_000)}, collect=True).findings
    assert (finding.kind, finding.line) == ("step-limit", 3)
    assert "dotcu.simulate(step_limit=300000)" in finding.message


def test_a_wait_that_counts_ends_at_the_step_limit(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(volatile int* x) {
      for (unsigned i = 0; *x == 0; ++i) if (i == 4000000000u) return;
    }"""
    result = run_kernel(source, {"x": np.zeros(1, "i4")}, collect=True, step_limit=20_000)
    (finding,) = result.findings
    assert finding.kind == "step-limit"
    assert "20000 steps" in finding.message


@pytest.mark.slow
def test_a_wait_that_counts_and_lets_others_run_ends_at_the_limit(
    run_kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "PATIENCE_STEPS", 20_000)
    source = """extern "C" __global__ void k(volatile int* flag, int* out) {
      int tries = 0;
      while (*flag == 0) ++tries;
      *out = tries;
    }"""
    arguments = {"flag": np.zeros(1, "i4"), "out": np.zeros(1, "i4")}
    (finding,) = run_kernel(source, arguments, collect=True).findings
    assert (finding.kind, finding.line) == ("step-limit", 3)


@pytest.mark.parametrize("seed", range(4))
def test_lanes_that_ran_apart_keep_the_signs_of_their_zeros(run_kernel: Any, seed: int) -> None:
    source = """extern "C" __global__ void k(const float* x, float* out, int n) {
      float v = x[threadIdx.x];
      int sum = 0;
      for (int i = 0; i < n; ++i) { sum += out[128] != i; __syncwarp(); }
      out[threadIdx.x] = sum == n ? v : 1.0f / v;
    }"""
    x, out = np.zeros(128, "f4"), np.zeros(129, "f4")
    x[1:127] = -0.0
    out[128] = 5000
    run_kernel(source, {"x": x, "out": out, "n": i32(300)}, block=128, seed=seed)
    assert np.signbit(out[:128]).tolist() == np.signbit(x).tolist()


def test_a_seed_gives_the_same_findings_again(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(int* out) {
      __shared__ int s[256];
      s[threadIdx.x] = threadIdx.x;
      out[threadIdx.x] = s[255 - threadIdx.x];
    }"""

    def findings(seed: int) -> list[str]:
        out = np.zeros(256, "i4")
        found = run_kernel(source, {"out": out}, block=256, collect=True, seed=seed).findings
        return [str(f) for f in found] + [str(out.tolist())]

    assert findings(3) == findings(3)
    assert len({tuple(findings(seed)) for seed in range(4)}) > 1


def test_a_seed_shows_the_wrong_answer_that_lockstep_hides(run_kernel: Any) -> None:
    source = """extern "C" __global__ void k(int* out) {
      __shared__ int s[128];
      s[threadIdx.x] = threadIdx.x + 1;
      out[threadIdx.x] = s[127 - threadIdx.x];
    }"""
    in_step, shuffled = np.zeros(128, "i4"), np.zeros(128, "i4")
    run_kernel(source, {"out": in_step}, block=128, collect=True)
    run_kernel(source, {"out": shuffled}, block=128, collect=True, seed=0)
    assert in_step.tolist() == list(range(128, 0, -1))
    assert shuffled.tolist() != in_step.tolist()


@pytest.mark.parametrize(
    ("body", "grid"),
    [
        ("out[blockIdx.x * 64 + t] = atomicAdd(count, 1);", 4),
        ("int at = 0; if (t % 32 == 0) at = atomicAdd(count, 1); out[blockIdx.x * 64 + t] = at;", 4),
        ("__syncthreads(); out[blockIdx.x * 64 + t] = atomicAdd(count, 1);", 2),
        (
            "__shared__ int n; if (!t) n = atomicAdd(count, 1); __syncthreads(); out[blockIdx.x * 64] = n;",
            9,
        ),
    ],
)
def test_a_seed_reverses_the_order_without_one(run_kernel: Any, body: str, grid: int) -> None:
    source = f'extern "C" __global__ void k(int* count, int* out) {{ int t = threadIdx.x; {body} }}'

    def order(seed: int | None) -> list[int]:
        arguments = {"count": np.zeros(1, "i4"), "out": np.zeros(64 * grid, "i4")}
        return list(run_kernel(source, arguments, grid=grid, block=64, seed=seed).arrays["out"])

    plain, turned = order(None), order(-1)
    firsts = [at for at in range(64 * grid) if plain[at] or at == 0]
    assert [max(plain) - plain[at] for at in firsts] == [turned[at] for at in firsts]


def test_a_seed_lets_a_reader_see_one_round_before_the_next(run_kernel: Any) -> None:
    """The writer does not wait for who reads; without a seed it is through before the other has looked."""
    source = """extern "C" __global__ void k(int* data, int* flag, int* out) {
      int t = threadIdx.x;
      for (int r = 0; r < 3; ++r) {
        if (blockIdx.x == 0) {
          data[t] = r;
          __syncthreads();
          if (t == 0) { __threadfence(); atomicExch(flag, r + 1); }
        } else {
          if (t == 0) { while (atomicAdd(flag, 0) <= r) {} __threadfence(); }
          __syncthreads();
          out[r * 32 + t] = data[31 - t];
        }
        __syncthreads();
      }
    }"""
    found = set()
    for seed in range(6):
        arguments = {"data": np.zeros(32, "i4"), "flag": np.zeros(1, "i4"), "out": np.zeros(96, "i4")}
        result = run_kernel(source, arguments, grid=2, seed=seed, collect=True)
        found |= {(finding.kind, finding.line) for finding in result.findings}
    assert found <= {("race", 5), ("race", 11)}
    assert found
