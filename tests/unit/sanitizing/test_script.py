"""A script that this process runs: what it leaves behind, its progress, and its report."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dotcu.errors import UsageError
from dotcu.sanitizing import run_script
from dotcu.sanitizing.report import SanitizeReport

KERNEL = """
import dotcu, sys, torch
module = dotcu.load_inline(\"\"\"
extern "C" __global__ void twice(const float* x, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    %s out[i] = 2 * x[i];
}\"\"\")
x, out = torch.rand(100%s), torch.empty(100%s)
module.twice(x, out, 100, grid=%s, block=64)
"""
FAULTY = KERNEL % ("", "", "", 2)
RIGHT = KERNEL % ("if (i < n)", "", "", 2)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_afterwards_sys_is_as_before(folder: Path) -> None:
    before = sys.argv, sys.path, sys.modules["__main__"]
    (folder / "script.py").write_text("import sys\nsys.argv, sys.path = [], [*sys.path, 'x']\n")
    assert run_script("script.py").status == 0
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before


def test_progress_counts_blocks_to_their_end(folder: Path) -> None:
    (folder / "script.py").write_text(RIGHT)
    told: list[tuple[str, int, int]] = []
    report = run_script("script.py", progress=lambda *row: told.append(row))
    assert (told[0], told[-1]) == (("twice", 0, 2), ("twice", 2, 2))
    assert dict(report.launches) == {"twice": 1}


def test_there_is_no_such_script() -> None:
    with pytest.raises(UsageError, match=r"There is no script nowhere\.py"):
        run_script("nowhere.py")


def test_a_report_counts_findings_by_kind_and_names_the_kernels(folder: Path) -> None:
    (folder / "script.py").write_text(FAULTY)
    report = run_script("script.py")
    assert isinstance(report, SanitizeReport)
    assert (report.counts, report.exit_code) == ({"out-of-bounds": 1}, 1)
    assert report.summary.startswith("1 finding: 1 out-of-bounds. 1 launch of twice, simulated for sm_80 in ")
    (row,) = report.to_json()["findings"]
    assert row["text"] == str(report.findings[0])
