"""A worker under one of compute-sanitizer's tools: what that prints is said of the call that it came in."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dotcu.checking import watch
from dotcu.checking.outcome import FellShort, Held, Outcome, Skipped
from dotcu.checking.protocol import Request
from dotcu.checking.watch import Watch

TOOL = """#!{python}
import json, os, sys, time
assert os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
assert sys.argv[1:3] == ["--tool", "memcheck"] and sys.argv[3] == "--some-option"

def say(*lines):
    for line in lines: print("=========", line, flush=True)

def tell(**answer): print(json.dumps(answer), flush=True)

def result(kind, **values):
    tell(result={{"overload": "", "check": "memcheck", "trial": "", "seconds": 0, "outcome": kind, **values}})

say("COMPUTE-SANITIZER")
late = []
for line in sys.stdin:
    request = json.loads(line)
    assert request["bare"]
    what = request["overload"]
    if what == "empty":
        tell(done=True)
        continue
    tell(begin=what)
    if what == "bad":
        say("Invalid __global__ write of size 4 bytes", "    at kernel_of_bad()+0x90 in ops.cu:4", "")
        say("Invalid __global__ write of size 4 bytes", "    at kernel_of_bad()+0x90 in ops.cu:4", "")
    if what == "dies": sys.exit(1)
    if what == "hangs": time.sleep(60)
    if what == "fails": result("FellShort", reason="it raises", evidence="ValueError: no", reproduce="")
    else: result("Held", note=f"kernel_of_{{what}}", ratio=None)
    tell(end=what)
    tell(done=True)
    if what == "slow":
        time.sleep(0.1)
        say("Uninitialized __global__ memory read of size 4 bytes")
    if what == "late": late.append("Barrier error detected at kernel_of_late()+0x3")
say(*late, "ERROR SUMMARY: 3 errors")
"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "compute-sanitizer"
    path.write_text(TOOL.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.setattr(watch, "SETTLE_S", 0.4)
    return path


def outcomes(tool: Path, *names: str) -> Mapping[str, Outcome]:
    requests = [
        Request(target="x", overload=name, device="cuda:0", level=2, seed=0, trials=(), threads=1)
        for name in names
    ]
    return dict(Watch("memcheck", ("--some-option",), tool, 0).outcomes(requests))


def test_reports_are_of_the_call_that_they_came_in(tool: Path) -> None:
    found = outcomes(tool, "good", "bad", "slow", "late", "fine")
    assert [type(outcome) for outcome in found.values()] == [Held, FellShort, FellShort, FellShort, Held]
    bad, slow, late = found["bad"], found["slow"], found["late"]
    assert isinstance(bad, FellShort)
    assert bad.reason == "memcheck: Invalid __global__ write of size 4 bytes, and 1 more such reports"
    assert "kernel_of_bad()+0x90 in ops.cu:4" in bad.evidence
    assert isinstance(slow, FellShort)
    assert "Uninitialized" in slow.reason
    assert isinstance(late, FellShort)
    assert "Barrier error" in late.reason


def test_a_worker_that_ends_costs_only_its_own_call(tool: Path) -> None:
    found = outcomes(tool, "good", "dies", "bad", "fine")
    assert [type(outcome) for outcome in found.values()] == [Held, Skipped, FellShort, Held]


def test_a_call_that_fails_or_is_not_made_is_said_not_to_be_looked_at(tool: Path) -> None:
    found = outcomes(tool, "fails", "empty")
    assert found["fails"] == Skipped(why="the call fails: it raises: ValueError: no")
    assert found["empty"] == Skipped(why="no sample without empty tensors")


def test_a_tool_that_takes_too_long_is_stopped(tool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LIMIT_S", 2.0)
    found = outcomes(tool, "good", "hangs", "bad")
    assert [type(outcome) for outcome in found.values()] == [Held, Skipped, Skipped]
    assert "2 s" in str(found["hangs"])
    assert "2 s" in str(found["bad"])
