"""`make demo` does what it says: the race is found, the operators pass, and the bound is printed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "examples" / "demo" / "demo.py"


def test_the_forgotten_barrier_is_found_and_named_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("demo", SCRIPT)
    assert spec
    assert spec.loader
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    assert demo.show_the_race()
    printed = capsys.readouterr().out
    assert "row_sum.cu:23: race" in printed
    assert "sums[threadIdx.x] += sums[threadIdx.x + half]" in printed


@pytest.mark.slow
def test_the_whole_demo_succeeds() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("row_sum.cu:23: race", "dotcu::square", "bound", "dotcu new mylib"):
        assert words in done.stdout
