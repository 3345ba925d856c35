"""`dotcu watch` from the outside: a process, saves, lines in a pipe, and Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dotcu import process
from helpers import forked_scripts

pytest.importorskip("watchfiles")
COMMAND = [sys.executable, "-c", "from dotcu.cli.main import main; main()", "watch"]

OPS = """
import torch
from torch import Tensor
import dotcu

kernels = dotcu.load("scale.cu")


@dotcu.op("watched_by_command::scale")
def scale(x: Tensor) -> Tensor:
    x = x.contiguous()
    out, n = torch.empty_like(x), x.numel()
    kernels.scale(x, out, n, grid=dotcu.cdiv(n, 64), block=64)
    return out


scale.reference(lambda x: 2 * x)
scale.samples(lambda device, dtype: [dotcu.Sample(torch.randn(100, device=device, dtype=dtype))])
"""
KERNEL = """
__global__ void scale(const float* x, float* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
"""


@contextmanager
def watching(folder: Path, *options: str) -> Iterator[process.Child]:
    (folder / "ops.py").write_text(OPS)
    (folder / "scale.cu").write_text(KERNEL)
    with process.started([*COMMAND, str(folder / "ops.py"), "--device", "simulator", *options]) as child:
        yield child


def until(child: process.Child, words: str) -> list[str]:
    found: list[str] = []
    for _ in range(400):
        line = child.read_line(120)
        assert line is not None, (found, child.stderr_tail())
        found.append(line)
        if words in line:
            return found
    raise AssertionError(found)


@pytest.mark.slow
def test_saves_are_reported_by_lines_until_ctrl_c(tmp_path: Path) -> None:
    with watching(tmp_path) as child:
        until(child, "quick check passed")
        (tmp_path / "scale.cu").write_text(KERNEL.replace("2 * x[i]", "2 * y[i]"))
        told = until(child, "quick check FAILED")
        assert any("scale.cu:4:" in line and 'identifier "y" is undefined' in line for line in told)
        (tmp_path / "scale.cu").write_text(KERNEL.replace("i < n", "i <= n"))
        assert "out-of-bounds" in "".join(until(child, "quick check FAILED"))
        (tmp_path / "ops.py").write_text(OPS.replace("def scale(", "def scale(("))
        assert "SyntaxError" in "".join(until(child, "Error:"))
        (tmp_path / "ops.py").write_text(OPS)
        (tmp_path / "scale.cu").write_text(KERNEL)
        assert "scale/call/float32-s0 passed" in "".join(until(child, "quick check passed"))
        child._process.send_signal(signal.SIGINT)
        assert child.status() == 130


@pytest.mark.slow
def test_ctrl_c_again_and_again_ends_all_that_was_started(tmp_path: Path) -> None:
    with watching(tmp_path) as child:
        until(child, "quick check passed")
        own = child._process.pid
        started = [pid for pid in _processes() if _parent(pid) == own]
        assert started
        for _ in range(4):
            child._process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        assert child.status() == 130
        assert not set(started) & set(_processes())
        assert child.stderr_tail() == ""


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return 0


@pytest.mark.slow
def test_a_module_that_is_not_there_is_reported_once() -> None:
    words = [*COMMAND, "no_such_module_to_watch"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: there is no file and no importable module")


@pytest.mark.slow
def test_json_is_an_event_a_line(tmp_path: Path) -> None:
    with watching(tmp_path, "--json") as child:
        found = [json.loads(line) for line in until(child, '"done"')]
    assert {event["version"] for event in found} == {3}
    assert [event["event"] for event in found][-1] == "done"
    (checked,) = [event for event in found if event["event"] == "checked"]
    assert checked["passed"] is True


def test_a_target_that_is_not_there_is_a_wrong_use(tmp_path: Path) -> None:
    done = forked_scripts.here("watch", str(tmp_path / "no.py"))
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no file")
