"""benchmarks/import_count.py: what a launch on a GPU does without."""

from __future__ import annotations

import pytest

import import_count

NEEDLESS = (
    "dotcu.benchmark",
    "dotcu.checking",
    "dotcu.cli",
    "dotcu.compile.diagnostics",
    "dotcu.compile.host_split.parse",
    "dotcu.operator",
    "dotcu.simulator.device",
    "dotcu.simulator.machine",
    "dotcu.simulator.program",
    "dotcu.simulator.sanitizers",
    "dotcu.simulator.semantics",
    "ml_dtypes",
    "rich",
    "tree_sitter",
    "typer",
)


@pytest.mark.slow
def test_a_launch_imports_nothing_that_it_has_no_use_for() -> None:
    found = import_count.counted(cold=True)
    assert "dotcu.kernel.compiled" in found
    assert [name for name in found if name.startswith(NEEDLESS)] == []
