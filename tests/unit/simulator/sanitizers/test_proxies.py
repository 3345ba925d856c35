"""Fences between the generic and the async proxy: which of them joins which accesses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dotcu

HEAD = """#include <dotcu/tma.cuh>
#define FENCE(space) asm volatile("fence.proxy.async" space ";" ::: "memory")
#define WAIT(read) asm volatile("cp.async.bulk.wait_group" read " 0;" ::: "memory")
__global__ void k(const __grid_constant__ CUtensorMap map, float* x, float* out) {
    __shared__ alignas(128) float tile[8][32];
    __shared__ dotcu::mbarrier arrived;
    int t = threadIdx.x;
    if (t == 0) arrived.init(1);
    __syncthreads();
"""
FILL = "if (t < 32) for (int i = 0; i < 8; ++i) tile[i][t] = i;\n"
STORE = "dotcu::tma_store(map, tile, 0, 0); dotcu::tma_commit();"
LOAD = "arrived.arrive_expect(sizeof(tile)); dotcu::tma_load(tile, map, arrived, 0, 0);"
SYNC = "__syncthreads();\n"


def kinds(*body: str, block: int = 96, grid: int = 1) -> list[tuple[str, str]]:
    """The kind and the text of the line of each finding; `x` is the mapped tensor."""
    text = HEAD + "\n".join(body) + "\n}\n"
    x, out = torch.ones(8, 32), torch.zeros(256)
    with dotcu.simulate(arch="sm_90", on_finding="collect") as run:
        made = dotcu.tensor_map(x, box=(8, 32))
        dotcu.load_inline(text).k(made, x, out, grid=grid, block=block)
    return [(f.kind, f.source.strip()) for f in run.findings]


STORED = f'if (t == 64) {{ {STORE} WAIT(".read"); }}'
FOUND = [("proxy-fence", STORED)]


@pytest.mark.parametrize("space", ['""', '".shared::cta"', '".shared::cluster"'])
def test_a_fence_of_shared_memory_or_of_all_joins(space: str) -> None:
    assert kinds(FILL, f"FENCE({space});", SYNC, STORED) == []


@pytest.mark.parametrize(
    "fence", ["", "__threadfence();", 'FENCE(".global");', 'asm volatile("fence.proxy.alias;");']
)
def test_another_fence_does_not_join(fence: str) -> None:
    assert kinds(FILL, fence, SYNC, STORED) == FOUND


@pytest.mark.parametrize("who", ["t < 32", "t == 64", "t == 40"])
def test_the_writers_the_copying_thread_or_a_third_one_between_two_barriers_may_fence(who: str) -> None:
    fence = f'if ({who}) FENCE("");'
    assert kinds(FILL, SYNC, fence, SYNC, STORED) == []
    assert kinds(FILL, fence, SYNC, STORED) == ([] if who == "t < 32" else FOUND)


def test_a_write_after_the_fence_is_not_joined() -> None:
    again = "if (t < 32) tile[3][t] = 5;\n"
    assert kinds(FILL, 'FENCE("");', again, SYNC, STORED) == FOUND
    assert kinds(FILL, again, 'FENCE("");', SYNC, STORED) == []


def test_a_fence_of_another_round_does_not_join() -> None:
    loop = "for (int round = 0; round < 3; ++round) {\n"
    rounds = (loop, FILL, 'if (round != 1) FENCE("");', SYNC, STORED, SYNC, "}")
    assert kinds(*rounds) == FOUND
    assert kinds(*(part.replace("if (round != 1)", "") for part in rounds)) == []


def test_what_was_only_read_needs_no_fence_before_a_load_over_it() -> None:
    first = f"if (t == 0) {{ {LOAD} }}"
    read = "arrived.wait(0); float sum = tile[t % 8][t % 32];\n"
    assert kinds(first, read, SYNC, first, "arrived.wait(1); out[t] = sum + tile[0][t % 32];") == []


LOADED = f"if (t == 64) {{ {LOAD} }}"


def test_global_memory_that_the_kernel_wrote_needs_a_fence_before_a_load() -> None:
    wrote, read = "x[t] = t;", "arrived.wait(0); out[t] = tile[0][t % 32];"
    assert kinds(wrote, SYNC, LOADED, read) == [("proxy-fence", LOADED)]
    assert kinds(wrote, 'FENCE(".shared::cta");', SYNC, LOADED, read) == [("proxy-fence", LOADED)]
    assert kinds(wrote, 'FENCE(".global");', SYNC, LOADED, read) == []


def stored(wait: str) -> str:
    """The store, with another wait."""
    return STORED.replace('WAIT(".read");', wait)


@pytest.mark.parametrize("use", ["out[t] = x[t];", "x[t] = 1;"])
def test_what_a_copy_stored_is_used_once_its_thread_has_waited_for_the_writes(use: str) -> None:
    store = (FILL, 'FENCE("");', SYNC)
    assert kinds(*store, stored('WAIT("");'), SYNC, use) == []
    assert kinds(*store, stored('WAIT(".read");'), SYNC, use) == [("proxy-fence", use)]
    assert kinds(*store, stored('WAIT(".read");'), SYNC, 'if (t == 64) WAIT("");', SYNC, use) == []
    assert kinds(*store, stored(""), 'if (t != 64) WAIT("");', SYNC, use) == [("proxy-fence", use)]


def test_a_mbarrier_needs_no_fence_of_the_async_proxy() -> None:
    """TMA accesses it by the generic proxy: PTX ISA 9.3, cp.async.bulk."""
    init = "__shared__ unsigned long long plain; unsigned at = dotcu::shared_address(&plain);\n"
    init += 'if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at) : "memory");\n'
    load = LOADED.replace("arrived", "(reinterpret_cast<dotcu::mbarrier&>(plain))")
    wait = "reinterpret_cast<dotcu::mbarrier&>(plain).wait(0);"
    assert kinds(init, SYNC, load, wait, "out[t] = tile[t % 8][t % 32];") == []


def test_findings_name_both_threads_and_lines() -> None:
    text: list[Any] = []
    with dotcu.simulate(arch="sm_90", on_finding="collect") as run:
        made = dotcu.tensor_map(torch.ones(8, 32), box=(8, 32))
        module = dotcu.load_inline(HEAD + FILL + SYNC + STORED + "\n}\n")
        module.k(made, torch.ones(1), torch.ones(1), grid=1, block=96)
        text += run.findings
    (finding,) = text
    assert finding.thread == (64, 0, 0)
    assert finding.address_of == "tile"
    assert "this bulk copy reads `tile`[0] in shared memory, which thread (0,0,0)" in finding.message
    assert "writes at line 10" in finding.message
    assert "fence.proxy.async.shared::cta" in finding.message
