from __future__ import annotations

from typing import Any

import pytest
import torch

from dotcu.inspection.code.measured import of_counts
from dotcu.inspection.code.places import Place
from dotcu.inspection.code.remarks import Remark
from dotcu.inspection.code.sass import Instruction
from dotcu.kernel import load_inline, simulate
from dotcu.simulator import Counters, Line

AT = Place("k.cu", 5)
COALESCED = Line(
    lane_instructions=3200, warp_instructions=100, global_requests=100, global_sectors=400, ideal_sectors=400,
    global_bytes=12800,
)  # fmt: skip


def load(modifiers: tuple[str, ...] = ("E",), opcode: str = "LDG") -> Instruction:
    return Instruction(
        address=0, text="", predicate="", opcode=opcode, modifiers=modifiers, operands=(), line=AT
    )


def kinds(line: Line, sass: tuple[Instruction, ...] = (), total: Line | None = None) -> list[str]:
    return [remark.kind for remark in of_counts(total or line, {AT: line}, sass, "k.cu")]


def changed(**values: Any) -> Line:
    return Line(**{**vars(COALESCED), **values})


def test_neighbours_in_neighbouring_words_are_fine() -> None:
    assert kinds(COALESCED, (load(("E", "128")),)) == []


def test_scattered_accesses_are_told_with_both_numbers() -> None:
    (remark,) = of_counts(COALESCED, {AT: changed(global_sectors=3200)}, (), "k.cu")
    assert remark.kind == "uncoalesced"
    assert "32.0 sectors a request, where 4.0 would hold the same bytes (12% of" in remark.message


def test_a_few_requests_prove_nothing() -> None:
    assert kinds(changed(global_requests=4, global_sectors=128, ideal_sectors=16)) == []


def test_bank_conflicts_are_told() -> None:
    conflicts = Line(shared_requests=100, shared_wavefronts=3200, ideal_wavefronts=100)
    assert kinds(conflicts) == ["bank conflicts"]
    assert kinds(Line(shared_requests=100, shared_wavefronts=100, ideal_wavefronts=100)) == []


def test_idle_lanes_are_told_where_much_is_issued() -> None:
    few = Line(lane_instructions=100, warp_instructions=100)
    assert kinds(few) == ["idle lanes"]
    assert kinds(few, total=Line(warp_instructions=10_000)) == []


@pytest.mark.parametrize(
    ("modifiers", "times"), [(("E", "U8"), 16), (("E", "U16"), 8), (("E",), 4), (("E", "64"), 2)]
)
def test_narrow_accesses_side_by_side_are_told(modifiers: tuple[str, ...], times: int) -> None:
    (remark,) = of_counts(COALESCED, {AT: COALESCED}, [load(modifiers)], "k.cu")
    assert remark.kind == "narrow access"
    assert f"{times} times fewer accesses" in remark.message


def test_narrow_accesses_are_not_told_where_lanes_share_words() -> None:
    broadcast = changed(global_sectors=100, ideal_sectors=100)
    assert kinds(broadcast, (load(),)) == []


def test_narrow_accesses_are_not_told_where_some_are_wide() -> None:
    assert kinds(COALESCED, (load(), load(("E", "128")))) == []


def test_narrow_accesses_are_not_told_of_atomics_or_without_sass() -> None:
    assert kinds(changed(atomics=3200), (load(),)) == []
    assert kinds(COALESCED) == []


SOURCE = """
__global__ void strided(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[(i * 33) % n];
}
__global__ void transposed(float* y) {
    __shared__ float tile[32][32];
    tile[threadIdx.x][threadIdx.y] = threadIdx.x;
    __syncthreads();
    y[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.y][threadIdx.x];
}
"""


def counted(kernel: str, *args: Any, **shape: Any) -> Counters:
    with simulate(on_finding="collect", checks=()) as run:
        load_inline(SOURCE).kernels[kernel](*args, **shape)
    return run.counters


def of(counters: Counters) -> list[Remark]:
    lines = {Place(*place): line for place, line in counters.lines.items()}
    return list(of_counts(counters, lines, (), "inline.cu"))


def test_a_strided_kernel_is_seen_by_the_simulators_counts() -> None:
    found = of(counted("strided", torch.zeros(4096), torch.zeros(4096), 4096, grid=16, block=256))
    assert [(remark.kind, remark.place) for remark in found] == [("uncoalesced", Place("inline.cu", 4))]


def test_a_column_of_shared_memory_is_seen_by_the_simulators_counts() -> None:
    found = of(counted("transposed", torch.zeros(1024), grid=1, block=(32, 32)))
    assert [(remark.kind, remark.place) for remark in found] == [("bank conflicts", Place("inline.cu", 8))]
    assert "32.0 times the wavefronts" in found[0].message
