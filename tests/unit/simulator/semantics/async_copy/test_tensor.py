"""cp.async.bulk.tensor: what goes wrong; what goes right is in tests/unit/include/test_tma_cuh.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dotcu
from dotcu.errors import UnsupportedInstruction

HEAD = """
#include <dotcu/tma.cuh>
__global__ void k(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap out, float* p) {
    __shared__ alignas(128) float tile[8][32];
    __shared__ dotcu::mbarrier arrived;
    int t = threadIdx.x;
    if (t == 0) arrived.init(1);
    __syncthreads();
"""
LOAD = "if (t == 0) { arrived.arrive_expect(sizeof(tile));\ndotcu::tma_load(tile, x, arrived, 0, 0); }\n"
STORE = "if (t == 0) { dotcu::tma_store(out, tile, 0, 0);\ndotcu::tma_commit(); }\n"


def source(body: str) -> str:
    return HEAD + body + "\n}\n"


def line_of(text: str, part: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if part in line)


def maps(**tensors: torch.Tensor) -> list[Any]:
    given = {"x": torch.ones(8, 32), "out": torch.zeros(8, 32), **tensors}
    return [dotcu.tensor_map(t, box=(8, 32)) for t in given.values()]


def findings(text: str, *args: Any, block: int = 32) -> list[Any]:
    with dotcu.simulate(arch="sm_90", on_finding="collect") as run:
        dotcu.load_inline(text).k(*(args or (*maps(), torch.zeros(32))), grid=1, block=block)
    return run.findings


def only(text: str, *args: Any) -> Any:
    found = findings(text, *args)
    assert len(found) == 1, [str(f) for f in found]
    return found[0]


def test_what_keeps_the_rules_has_no_findings() -> None:
    text = source(LOAD + "arrived.wait(0); tile[0][t] += 1; dotcu::tma_fence(); __syncthreads();\n" + STORE)
    assert findings(text) == []


def test_reading_before_the_mbarrier_is_found() -> None:
    text = source(LOAD + "__syncthreads();\np[t] = tile[0][t];")
    finding = only(text)
    assert (finding.kind, finding.line, finding.lanes) == ("proxy-fence", line_of(text, "p[t] ="), 32)
    assert finding.address_of == "tile"
    assert "mbarrier.try_wait" in finding.message


def test_writing_over_a_box_that_is_still_stored_is_found() -> None:
    fill = "for (int i = 0; i < 8; ++i) tile[i][t] = 1;\ndotcu::tma_fence(); __syncthreads();\n"
    text = source(fill + STORE + "__syncthreads();\ntile[7][t] = 2;")
    finding = only(text)
    assert (finding.kind, finding.line) == ("proxy-fence", line_of(text, "= 2"))
    assert "cp.async.bulk.wait_group" in finding.message


def test_a_tensor_that_is_stored_to_while_another_thread_writes_it_is_a_race() -> None:
    out = torch.zeros(8, 32)
    text = source(
        "for (int i = 0; i < 8; ++i) tile[i][t] = 1;\ndotcu::tma_fence(); __syncthreads();\n"
        + STORE
        + "p[t] = 3;"
    )
    finding = only(text, *maps(out=out), out.view(-1))
    assert finding.kind == "race"


def test_a_box_at_a_misaligned_place_is_found() -> None:
    text = source("if (t == 0) dotcu::tma_load(&tile[0][4], x, arrived, 0, 0);")
    finding = only(text)
    assert finding.kind == "misaligned"
    assert finding.address_of == "tile"
    assert "TMA needs a multiple of 128" in finding.message


@pytest.mark.parametrize("column", [-1, 1, 2, 5, 33])
@pytest.mark.parametrize(
    "copy", ["dotcu::tma_load(tile, x, arrived, 0, {});", "dotcu::tma_store(out, tile, 0, {});"]
)
def test_an_innermost_coordinate_that_is_no_multiple_of_16_bytes_is_found(copy: str, column: int) -> None:
    text = source(f"tile[0][t] = 1;\nif (t == 0) {copy.format(column)}")
    finding = only(text)
    assert (finding.kind, finding.line, finding.lanes) == (
        "misaligned",
        line_of(text, "if (t == 0) dotcu"),
        1,
    )
    assert finding.address_of == ("x" if "load" in copy else "out")
    assert f"coordinate is {column}, {4 * column} bytes" in finding.message
    assert "a multiple of 4 elements" in finding.message


@pytest.mark.parametrize(("row", "column"), [(8, 0), (0, 32), (0, 36), (100, 100)])
def test_a_box_wholly_outside_the_tensor_stores_nothing(row: int, column: int) -> None:
    fill = "for (int i = 0; i < 8; ++i) tile[i][t] = 1;\ndotcu::tma_fence(); __syncthreads();\n"
    text = source(fill + STORE.replace("0, 0", f"{row}, {column}") + "dotcu::tma_wait<0>();")
    out = torch.zeros(8, 32)
    assert findings(text, *maps(out=out), torch.zeros(32)) == []
    assert not out.any()


@pytest.mark.parametrize(
    ("row", "column", "what"),
    [
        (-1, 0, "dimension 0 is -1"),
        (0, -4, "dimension 1 is -4"),
        (-9, 64, "dimension 0 is -9"),
        (100, -32, "dimension 1 is -32"),
    ],
)
def test_a_store_that_begins_before_the_tensor_is_found(row: int, column: int, what: str) -> None:
    fill = "for (int i = 0; i < 8; ++i) tile[i][t] = 1;\ndotcu::tma_fence(); __syncthreads();\n"
    text = source(fill + STORE.replace("0, 0", f"{row}, {column}") + "dotcu::tma_wait<0>();")
    out = torch.zeros(8, 32)
    finding = only(text, *maps(out=out), torch.zeros(32))
    assert (finding.kind, finding.line, finding.lanes) == ("out-of-bounds", line_of(text, "tma_store"), 1)
    assert finding.address_of == "out"
    assert f"a box at ({row}, {column}): its coordinate in {what}" in finding.message
    assert "Begin at 0 or later" in finding.message
    assert not out.any()


def test_a_load_may_begin_before_the_tensor() -> None:
    load = LOAD.replace("0, 0", "-1, -4")
    text = source(load + "arrived.wait(0);\nfor (int i = 0; i < 8; ++i) p[i * 32 + t] = tile[i][t];")
    p = torch.full((8, 32), 7.0)
    assert findings(text, *maps(), p) == []
    assert p.sum() == 7 * 28


def test_short_rows_that_need_more_of_shared_memory_for_their_swizzle_are_found() -> None:
    text = source("if (t == 0) dotcu::tma_load(tile, x, arrived, 0, 0);")
    x = dotcu.tensor_map(torch.ones(32, 32), box=(32, 8), swizzle=128)
    finding = only(text, x, maps()[1], torch.zeros(1))
    assert (finding.kind, finding.address_of) == ("out-of-bounds", "tile")


def test_a_box_that_is_larger_than_shared_memory_is_found() -> None:
    text = source("if (t == 0) dotcu::tma_load(tile[4], x, arrived, 0, 0);")
    assert only(text).kind == "out-of-bounds"


def test_a_tile_that_nothing_wrote_is_found() -> None:
    text = source("tile[0][t] = 1; dotcu::tma_fence(); __syncthreads();\n" + STORE)
    assert [f.kind for f in findings(text)] == ["uninitialized-read"]


def test_a_tensor_that_nothing_wrote_is_found() -> None:
    @dotcu.op("test_tensor_copies::first_row")
    def first_row(x: torch.Tensor) -> torch.Tensor:
        unwritten, out = torch.empty(8, 32), torch.zeros(32)
        module.k(*maps(x=unwritten), out, grid=1, block=32)
        return out

    module = dotcu.load_inline(source(LOAD + "arrived.wait(0);\np[t] = tile[0][t];"))
    with dotcu.simulate(arch="sm_90", on_finding="collect") as run:
        first_row(torch.zeros(1))
    assert [(f.kind, f.address_of) for f in run.findings] == [("uninitialized-read", "x")]


def test_a_map_of_other_dimensions_than_the_copy_is_found() -> None:
    line = dotcu.tensor_map(torch.ones(256), box=256)
    finding = only(source(LOAD), line, maps()[1], torch.zeros(1))
    assert finding.kind == "trap"
    assert "has 2 coordinates, and the tensor of its map 1 dimensions" in finding.message


def test_the_map_of_an_empty_tensor_is_found_where_it_is_used() -> None:
    finding = only(source(LOAD), *maps(x=torch.ones(0, 32)), torch.zeros(1))
    assert finding.kind == "null-pointer"


def test_bytes_that_are_no_map_are_found() -> None:
    finding = only(source(LOAD), b"\1" * 128, maps()[1], torch.zeros(1))
    assert finding.kind == "trap"
    assert "Pass dotcu.tensor_map" in finding.message


def test_several_lanes_copy_each_a_box() -> None:
    text = source(
        "if (t == 0) arrived.arrive_expect(8 * 128);\n"
        "if (t < 8) dotcu::tma_load(tile[t], x, arrived, 7 - t, 0);\n"
        "arrived.wait(0);\nfor (int i = 0; i < 8; ++i) p[i * 32 + t] = tile[i][t];"
    )
    x, p = torch.randn(8, 32), torch.zeros(8, 32)
    assert findings(text, dotcu.tensor_map(x, box=(1, 32)), maps()[1], p) == []
    assert torch.equal(p, x.flip(0))


def test_a_box_of_a_view_whose_storage_other_arguments_share_is_copied() -> None:
    storage = torch.randn(9, 64)
    text = source(LOAD + "arrived.wait(0);\nfor (int i = 0; i < 8; ++i) p[i * 32 + t] += tile[i][t];")
    x, p = storage[:8, :32], torch.zeros(8, 32)
    assert findings(text, dotcu.tensor_map(x, box=(8, 32)), dotcu.tensor_map(storage, box=(8, 32)), p) == []
    assert torch.equal(p, x)


FILL = "for (int i = 0; i < 8; ++i) tile[i][t] = i + t;\ndotcu::tma_fence(); __syncthreads();\n"
REDUCE = """if (t == 0) {
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.OP.tile.bulk_group [%0, {%1, %2}], [%3];"
                 :: "l"(&out), "r"(0), "r"(0), "r"(dotcu::shared_address(tile)) : "memory");
    dotcu::tma_commit(); dotcu::tma_wait<0>(); }"""


def test_a_box_is_added_to_a_tensor_by_each_block() -> None:
    out = torch.arange(256.0).view(8, 32)
    with dotcu.simulate(arch="sm_90"):
        args = *maps(out=out), torch.zeros(32)
        dotcu.load_inline(source(FILL + REDUCE.replace("OP", "add"))).k(*args, grid=3, block=32)
    added = torch.arange(8.0)[:, None] + torch.arange(32.0)
    assert torch.equal(out, torch.arange(256.0).view(8, 32) + 3 * added)


@pytest.mark.parametrize("op", ["min", "inc", "xor"])
def test_an_operation_that_tma_lacks_for_a_type_is_found(op: str) -> None:
    finding = only(source(FILL + REDUCE.replace("OP", op)))
    assert finding.kind == "trap"
    assert f"by a map of f32 elements: TMA's {op} is of u32" in finding.message


def test_a_prefetch_of_a_box_is_a_hint() -> None:
    text = source(
        'asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %1}];" :: "l"(&x), "r"(0));'
    )
    assert findings(text) == []


IM2COL = "cp.async.bulk.tensor.3d.shared::cluster.global.im2col::w.mbarrier::complete_tx::bytes"
GATHER = "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes"


@pytest.mark.parametrize(
    "copy",
    [
        f"{IM2COL} [%0], [%1, {{%2, %2, %2}}], [%0], {{%3}};",
        f"{GATHER} [%0], [%1, {{%2, %2, %2, %2, %2}}], [%0];",
    ],
)
def test_what_is_not_executed_is_refused_by_name_and_line(copy: str) -> None:
    operands = '"r"(dotcu::shared_address(tile)), "l"(&x), "r"(0), "h"((short)1)'
    text = source(f'asm volatile("{copy}" :: {operands});')
    line, name = line_of(text, "asm volatile"), copy.split()[0].replace(".", r"\.")
    with pytest.raises(UnsupportedInstruction, match=rf"inline\.cu:{line}: {name}"):
        findings(text)
