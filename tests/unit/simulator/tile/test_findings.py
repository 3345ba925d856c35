"""Findings of tile kernels, by line, tensor and tile block; races.py has those between tile blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dotcu.simulator import Finding, Run
from helpers.tile_launches import SOURCE, launched, line_of


def only(run: Run) -> Finding:
    (finding,) = run.findings
    return finding


def zeros(n: int, dtype: type = np.float32) -> np.ndarray:
    return np.zeros(n, dtype)


def test_a_tile_that_leaves_its_tensor_without_a_mask() -> None:
    a, b, c = np.ones(300, np.float32), np.ones(300, np.float32), zeros(300)
    run = launched("add_unmasked", 3, a=a, b=b, c=c, n=300)
    assert [finding.kind for finding in run.findings] == ["out-of-bounds"]
    finding = run.findings[0]
    assert (finding.block, finding.address_of) == ((2, 0, 0), "a")
    assert finding.line == line_of("row(c, n).store(row(a, n).load(i) + row(b, n).load(i), i);")
    assert "read of 4 bytes at tile (2) of `a`: of its 128 elements in dimension 0, 44 lie" in finding.message
    np.testing.assert_array_equal(c, a + b)


def test_an_extent_that_is_too_large() -> None:
    run = launched("add_too_far", 3, a=zeros(300), c=zeros(300), n=300)
    finding = only(run)
    assert (finding.kind, finding.lanes) == ("out-of-bounds", 1)
    assert "read of 4 bytes at `a`[300] (just past its end)" in finding.message
    assert "Make the view with the sizes of the tensor: dotcu.extents(t) passes them." in finding.message
    assert "by 1 element; first: tile block (2,0,0)" in str(finding)


def test_an_extent_below_zero() -> None:
    finding = only(launched("add", 1, a=zeros(30), b=zeros(30), c=zeros(30), n=-5))
    assert (finding.kind, finding.address_of) == ("out-of-bounds", "a")
    assert "a view of `a` has the extent -5 in dimension 0, which is no size" in finding.message


def test_pointers_past_the_end() -> None:
    run = launched("scale_unmasked", 3, x=np.ones(300, np.float32), y=zeros(300), by=np.float32(2))
    assert [finding.address_of for finding in run.findings] == ["x"]
    assert run.findings[0].lanes == 84  # of the load, and as many of the store at the same line


def test_a_null_pointer() -> None:
    run = launched("scale", 1, x=np.int64(0), y=zeros(128), n=128, by=np.float32(1))
    assert only(run).kind == "null-pointer"


def test_a_pointer_that_is_not_aligned() -> None:
    data = np.zeros(129, np.float32).view(np.uint8)[1:513]
    run = launched("scale", 1, x=data, y=zeros(128), n=128, by=np.float32(1))
    assert only(run).kind == "misaligned"


def test_memory_that_nothing_has_written() -> None:
    run = launched("scale", 1, unwritten=("x",), x=zeros(128), y=zeros(128), n=100, by=np.float32(1))
    finding = only(run)
    assert (finding.kind, finding.lanes, finding.address_of) == ("uninitialized-read", 100, "x")
    assert "read of 4 bytes at `x`[0], which nothing has written" in finding.message


def test_what_a_tile_block_stores_counts_as_written() -> None:
    run = launched("shifted", 1, unwritten=(), y=zeros(128), n=128)
    assert run.findings == []
    run = launched(
        "handed_over", 4, unwritten=("parts",), parts=zeros(4), total=zeros(1), arrived=zeros(1, np.int32)
    )
    assert run.findings == []


def test_a_store_to_a_pointer_to_const() -> None:
    run = launched("same_tile", 1, read_only=("y",), y=zeros(128), n=128)
    assert only(run).kind == "read-only"


def test_two_blocks_that_store_to_one_tile() -> None:
    finding = only(launched("same_tile", 2, y=zeros(128), n=128))
    assert (finding.kind, finding.lanes, finding.block) == ("race", 128, (1, 0, 0))
    line = line_of("row(y, n).store(ct::full")
    assert finding.line == line
    assert f"this line writes `y`[0], which tile block (0,0,0) writes at line {line}" in finding.message


def test_a_block_that_reads_what_another_stores() -> None:
    finding = only(launched("shifted", 3, y=zeros(384), n=384))
    assert finding.kind == "race"
    assert "this line reads `y`[0], which tile block (0,0,0) writes" in finding.message


def test_a_plain_read_of_what_others_change_atomically() -> None:
    run = launched("impatient", 2, bins=zeros(1, np.int32), out=zeros(2, np.int32))
    assert [(finding.kind, finding.line) for finding in run.findings] == [
        ("race", line_of("ct::atomic_add<ct::memory_order::relaxed>(bins, 1);")),
        ("race", line_of("out[ct::bid().x] = bins[0];")),
    ]


def test_a_counter_that_releases_and_acquires_orders_blocks() -> None:
    total = zeros(1)
    run = launched("handed_over", 4, parts=zeros(4), total=total, arrived=zeros(1, np.int32))
    assert run.findings == []
    assert total[0] == 10


def test_a_relaxed_counter_orders_nothing() -> None:
    run = launched("handed_over_relaxed", 4, parts=zeros(4), total=zeros(1), arrived=zeros(1, np.int32))
    finding = only(run)
    assert (finding.kind, finding.line) == ("race", max(_lines("sum += parts[i]")))


def _lines(text: str) -> list[int]:
    return [number for number, line in enumerate(SOURCE.splitlines(), 1) if text in line]


@pytest.mark.parametrize(
    ("n", "said"),
    [
        (100, "`n_` is 100, and the kernel promises a multiple of 8"),
        (-8, "`n_` is -8, and the kernel promises at least 0"),
        (100_008, "`n_` is 100008, and the kernel promises at least 0 and at most 100000"),
    ],
)
def test_a_broken_promise_of_a_number(n: int, said: str) -> None:
    finding, *_ = launched("promised", 1, x_=zeros(128), y=zeros(128), n_=n).findings
    assert finding.kind == "broken-promise"
    assert said in finding.message
    assert finding.line == line_of("int n = ct::assume_bounded")


def test_a_broken_promise_of_a_pointer() -> None:
    x = zeros(130)
    start = 1 + (-x.ctypes.data // 4) % 4  # one element past a multiple of 16 bytes
    finding = only(launched("promised", 1, x_=x[start : start + 128], y=zeros(128), n_=120))
    assert finding.kind == "broken-promise"
    assert "`x_` begins at a multiple of 4 bytes, and the kernel promises a multiple of 16" in finding.message


def test_promises_that_are_kept() -> None:
    x = zeros(132)
    start = (-x.ctypes.data // 4) % 4
    assert launched("promised", 1, x_=x[start : start + 128], y=zeros(128), n_=128).findings == []


def test_an_assertion_that_fails() -> None:
    finding = only(launched("said", 1, x=zeros(1, np.int32), n=3))
    assert finding.kind == "trap"
    assert "too few" in finding.message


CHECKED: dict[str, tuple[str, dict[str, Any]]] = {
    "race": ("same_tile", {"y": np.zeros(128, np.float32), "n": 128}),
    "bounds": ("add_too_far", {"a": np.zeros(255, np.float32), "c": np.zeros(256, np.float32), "n": 255}),
}


@pytest.mark.parametrize("check", CHECKED)
def test_a_check_that_is_off_reports_nothing(check: str) -> None:
    kernel, arguments = CHECKED[check]
    assert launched(kernel, 2, **arguments).findings != []
    run = Run(on_finding="collect", checks=frozenset({"bounds", "init", "race"} - {check}))
    assert launched(kernel, 2, run=run, **arguments).findings == []


def test_a_grid_with_an_axis_that_the_kernel_does_not_ask_for() -> None:
    finding = only(launched("add", (1, 2, 1), a=zeros(128), b=zeros(128), c=zeros(128), n=128))
    assert finding.kind == "race"
    assert "The kernel does not ask for bid().y: launch one tile block along y." in finding.message


def test_elements_of_one_tile_that_are_stored_to_one_place() -> None:
    x, to = np.arange(128, dtype=np.float32), np.arange(128, dtype=np.int32)
    assert launched("scatter", 1, x=x, to=to, y=zeros(128)).findings == []
    to[5] = 4
    finding = only(launched("scatter", 1, x=x, to=to, y=zeros(128)))
    assert finding.kind == "race"
    assert "several elements of a tile are stored to `y`[4], with different values" in finding.message
    to[9] = 128
    both = launched("scatter", 1, x=x, to=to, y=zeros(128)).findings
    assert [finding.kind for finding in both] == ["out-of-bounds", "race"]
    assert "Mask the access by the size." in both[0].message
    to[9] = 9
    x[5] = x[4]  # the same value: whichever is the last
    assert launched("scatter", 1, x=x, to=to, y=zeros(128)).findings == []


def test_a_view_that_runs_into_the_next_tensor_of_one_storage() -> None:
    whole = np.zeros(512, np.float32)
    first, second = whole[:256], whole[256:]
    storage = (whole.ctypes.data, whole.nbytes)
    run = launched("add_too_far", 2, storage=storage, a=first, c=zeros(256), n=255)
    assert run.findings == []
    run = launched("add", 3, storage=storage, a=first, b=second, c=zeros(300), n=300)
    finding = run.findings[0]
    assert (finding.kind, finding.address_of, finding.lanes) == ("out-of-bounds", "a", 44)
    assert "at `a`[256] (just past its end, in `b`)" in finding.message
