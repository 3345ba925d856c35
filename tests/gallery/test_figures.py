"""The READMEs tell of speed what was measured and nothing else: their tables are those of the run."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from dotcu import gallery
from rivals import pages

UNMEASURED = {
    "all_reduce",
    "all_reduce_",
    "all_reduce_add_rms_norm",
    "reduce_scatter",
    "attention",
    "attention_decode",
    "attention_varlen",
    "matmul",
    "matmul_fp8",
    "grouped_matmul",
    "matmul_swiglu",
    "gemv",
    "reverse_cumsum",
    "matmul_tile",
    "matmul_swiglu_tile",
    "attention_tile",
    "softmax_tile",
}
"""A lesson; the other direction of what was measured; what benchmarks/tile.py, attention.py, matmul.py
and several_gpus.py measure; what has a file of its own."""


@pytest.fixture(scope="module")
def figures() -> Any:
    return json.loads(pages.RESULTS.read_text(encoding="utf-8"))


def test_every_operator_was_measured(figures: Any) -> None:
    measured = {case["op"] for case in figures["cases"] if case["rows"][0]["status"] == "measured"}
    public = {name for name in gallery.__all__ if not name.endswith("_backward")}
    assert measured == public - UNMEASURED


def test_the_pages_of_the_gallery_have_the_tables_of_all_runs(figures: Any) -> None:
    runs = figures, *(json.loads(path.read_text(encoding="utf-8")) for path in (pages.GRID, pages.GEMV))
    for folder in sorted({pages.home(case["op"]) for run in runs for case in run["cases"]}):
        page = (pages.FOLDERS / folder / "README.md").read_text(encoding="utf-8")
        assert page == pages.filled(page, pages.of_folder(folder, *runs)), folder


def test_the_page_of_attention_has_the_tables_of_its_run() -> None:
    (run,) = pages.RESULTS.parent.glob("attention_*.json")
    page = (pages.FOLDERS / "attention" / "README.md").read_text(encoding="utf-8")
    tables = pages.of_rows(json.loads(run.read_text(encoding="utf-8")))
    assert page == pages.filled(page, tables, "attention")


def test_the_page_of_matmul_has_the_table_of_its_run() -> None:
    here, elsewhere = (json.loads(path.read_text(encoding="utf-8")) for path in pages.PRODUCTS)
    page = (pages.FOLDERS / "matmul" / "README.md").read_text(encoding="utf-8")
    written = pages.filled(page, pages.of_products(here, elsewhere), "matmul")
    assert page == written, "type: python benchmarks/matmul.py --write"
    (rates,) = (row["tflops"] for row in here["rows"] if row["case"].startswith("ladder"))
    for name, rate in rates.items():
        assert re.search(rf"^\|.* `?{name}`? \|(.*\|)? {rate:.0f} \|$", page, re.MULTILINE), (name, rate)


def test_the_main_page_has_the_table_of_the_run(figures: Any) -> None:
    page = pages.README.read_text(encoding="utf-8")
    assert page == pages.filled(page, pages.in_short(figures))


def test_a_changed_figure_shows_in_the_tables(figures: Any) -> None:
    changed = json.loads(json.dumps(figures))
    for case in changed["cases"]:
        case["rows"][0]["percent"] = 12.5
    assert pages.in_short(changed) != pages.in_short(figures)
    assert pages.of_folder("add", changed) != pages.of_folder("add", figures)
