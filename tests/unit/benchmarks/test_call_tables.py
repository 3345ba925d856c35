"""The README's and the docs' figures of calls are those of the committed results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import call_tables

CUSTOM_OP = "torch.library custom_op, around cuda.core"


@pytest.mark.parametrize(("path", "short"), call_tables.PAGES, ids=lambda value: getattr(value, "name", ""))
def test_a_page_has_the_figures_of_the_committed_results(path: Path, short: bool) -> None:
    now, wanted = call_tables.page(path, short=short)
    assert now == wanted, "type: python benchmarks/call_tables.py"
    assert call_tables.BEGIN in now


# A page, a text of it, and the contenders whose medians it has to hold, in the order of the text.
TIMES = (
    (
        "README.md",
        r"an operator's call, on the host \|(.*)\|",
        ("dotcu, torch.ops", "C++ TORCH_LIBRARY", CUSTOM_OP, "CuPy RawKernel", "Triton", "tvm-ffi"),
    ),
    (
        "docs/coming_from/torch_library.md",
        r"a `custom_op` call costs the host (.*)\|",
        (CUSTOM_OP, "C++ TORCH_LIBRARY", "dotcu, torch.ops"),
    ),
    (
        "docs/coming_from/own_jit.md",
        r"a call with its allocation \|(.*)\|",
        ("dotcu, torch.ops", "CuPy RawKernel", "tvm-ffi"),
    ),
    (
        "docs/coming_from/own_jit.md",
        r"a bare launch \|(.*)\|",
        ("dotcu, bare launch", "CuPy RawKernel, bare launch on raw pointers"),
    ),
    ("docs/coming_from/triton.md", r"A call that takes the host (.*)", ("dotcu, torch.ops", "Triton")),
    (
        "docs/coming_from/index.md",
        r"On the host of an H200, a cached call takes (.*)",
        ("dotcu, torch.ops", "C++ TORCH_LIBRARY"),
    ),
)


@pytest.mark.parametrize(("page", "text", "contenders"), TIMES)
def test_a_comparison_has_the_figures_of_the_committed_results(
    page: str, text: str, contenders: tuple[str, ...]
) -> None:
    rows = call_tables.read("call_overhead_h200.json")
    found = re.search(text, (call_tables.ROOT / page).read_text(encoding="utf-8"))
    assert found, f"{page} no longer has the text {text!r}"
    times = [float(time) for time in re.findall(r"([\d.]+) µs", found[1])]
    assert times == [round(rows[name]["us"]["median"], 1) for name in contenders]
