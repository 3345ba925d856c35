"""The docs' sizes of the code are those that benchmarks/counts.py finds, within a tenth."""

from __future__ import annotations

import re

import counts


def test_the_page_of_decisions_has_the_sizes_of_parts() -> None:
    page = (counts.ROOT / "docs" / "explanation" / "decisions.md").read_text(encoding="utf-8")
    lines = counts.lines_by_part()
    rows = re.findall(r"^\| ((?:`\w+/`[, ]*)+)\| [\d.]+ \| ([\d.]+) \|", page, re.MULTILINE)
    assert len(rows) == 6
    for parts, thousands in [*rows, ("", "89")]:
        now = sum(lines[part] for part in re.findall(r"`(\w+/)`", parts)) if parts else sum(lines.values())
        assert 0.9 < now / 1000 / float(thousands) < 1.1, (parts, now)
