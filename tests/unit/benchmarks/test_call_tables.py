"""The README's and the docs' figures of calls are those of the committed results."""

from __future__ import annotations

from pathlib import Path

import pytest

import call_tables


@pytest.mark.parametrize(("path", "short"), call_tables.PAGES, ids=lambda value: getattr(value, "name", ""))
def test_a_page_has_the_figures_of_the_committed_results(path: Path, short: bool) -> None:
    now, wanted = call_tables.page(path, short=short)
    assert now == wanted, "type: python benchmarks/call_tables.py"
    assert call_tables.BEGIN in now
