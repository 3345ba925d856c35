"""`make demo` does what it says: the race is found, the operator passes, and the bound is printed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / "examples" / "demo" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> Any:
    spec = importlib.util.spec_from_file_location("demo", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_forgotten_barrier_is_found_and_named_by_line(
    demo: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.show_the_race()
    printed = capsys.readouterr().out
    assert "row_sum.cu:23: race" in printed
    assert "sums[threadIdx.x] += sums[threadIdx.x + half]" in printed


def test_where_the_shell_does_not_find_dotcu_the_demo_says_how_it_does(
    demo: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(Path.cwd() / ".venv"))
    demo.say_what_is_next()
    assert "    . .venv/bin/activate         so that your shell finds dotcu\n" in capsys.readouterr().out
    (tmp_path / "dotcu").touch(0o755)
    demo.say_what_is_next()
    assert "activate" not in capsys.readouterr().out


@pytest.mark.slow
def test_the_whole_demo_succeeds() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("row_sum.cu:23: race", "passed: 1 overload", "bound", "dotcu new mylib"):
        assert words in done.stdout
