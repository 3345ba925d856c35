"""compute-sanitizer without the tool: which calls it watches, what it prints, and what that is taken for."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

import dotcu
from dotcu.checking import compute_sanitizer
from dotcu.checking.catalogue import TOOLS
from dotcu.checking.compute_sanitizer import is_warning, parse, trouble
from dotcu.checking.results import CheckResult, Failed, Passed, Skipped, Trial, TrialId
from dotcu.checking.subject import Subject
from dotcu.checking.target import TrialRequest
from dotcu.checking.trials.gpu import packed
from dotcu.compile import toolchain
from helpers.check_reports import bare, named

kernels = dotcu.load_inline("""
template <typename T>
__global__ void twice(const T* x, T* out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * x[i];
}
""")
_names = (f"trials_sanitizer_test::op{i}" for i in itertools.count())


@dotcu.op(next(_names))
def twice(x: Tensor) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    kernels.twice[x.dtype](x, out, x.numel(), grid=2, block=32)
    return out


@twice.samples
def _(device: torch.device, dtype: torch.dtype) -> list[dotcu.Sample]:
    big = torch.randn(9, 9, device=device, dtype=dtype)
    return [dotcu.Sample(big), dotcu.Sample(big[2:5, 1::2]), dotcu.Sample(big[:0])]


def request_for(name: str) -> TrialRequest:
    return TrialRequest(target="x", overload=name, device="cuda:0", level=2, seed=0, trials=(), threads=1)


class FakeRun:
    """Finds fault with the overloads whose name has the tool's in it."""

    def __init__(self, tool: str, options: Sequence[str], path: Path, number: int) -> None:
        self.tool = tool

    def results(self, requests: Sequence[TrialRequest]) -> list[CheckResult]:
        return [
            named(
                self.tool,
                Failed(reason="seen") if self.tool in request.overload else Passed(),
                f"{request.overload}/{self.tool}",
            )
            for request in requests
        ]

    def close(self) -> None:
        pass


def trials_of(*names: str) -> list[Trial]:
    return [
        Trial(id=TrialId(overload=name, kind=tool), checks=(tool,), run=lambda: ())
        for name in names
        for tool in TOOLS
    ]


def test_every_tool_is_run_once_for_all_its_overloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_sanitizer, "ToolRun", FakeRun)
    monkeypatch.setattr(toolchain, "find_tool", lambda name: Path("/somewhere") / name)
    names = ("a::racecheck", "a::good")
    found = compute_sanitizer.run({name: request_for(name) for name in names}, trials_of(*names))
    outcomes = {str(result.trial): (result.check, bare(result)) for result in found}
    assert len(outcomes) == 8
    assert outcomes["a::racecheck/racecheck"] == ("racecheck", Failed(reason="seen"))
    assert sum(outcome == Passed() for _, outcome in outcomes.values()) == 7


def test_without_the_tool_the_line_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: None)
    found = list(compute_sanitizer.run({"a::b": request_for("a::b")}, trials_of("a::b")))
    assert len(found) == 4
    for result in found:
        assert isinstance(result, Skipped)
        assert "pip install nvidia-cuda-sanitizer-api" in result.reason


def test_nobody_is_asked_where_no_trial_needs_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_tool", lambda name: pytest.fail("it was looked for"))
    assert list(compute_sanitizer.run({}, [])) == []


def test_an_operator_that_no_other_process_finds_is_not_looked_at() -> None:
    @dotcu.op(next(_names))
    def local(x: Tensor) -> Tensor:
        return x.clone()

    subject = Subject(overload=local, device=torch.device("cuda", 0))
    outcome = compute_sanitizer.alone(subject, "memcheck")
    assert outcome == Skipped(reason=compute_sanitizer.NOT_ELSEWHERE)


def test_the_bare_call_is_the_smallest_one_in_memory_of_its_own() -> None:
    subject = Subject(overload=twice, device=torch.device("cpu"))
    (trial,) = compute_sanitizer.bare(subject)
    assert trial.id.case == "float32-s1"
    strided = subject.given(torch.float32)[1].sample.tensors[0]
    made = packed(strided, torch.device("cpu"))
    assert torch.equal(made, strided)
    assert made.stride() == strided.stride()
    assert made.untyped_storage().nbytes() == 4 * (2 * 9 + 3 * 2 + 1), "nothing lies beside it"
    if torch.cuda.is_available():
        (trial,) = compute_sanitizer.bare(Subject(overload=twice, device=torch.device("cuda", 0)))
        assert list(trial.run()) == [Passed()]
        assert compute_sanitizer.launched(twice.qualified_name) == ["twice"]


# ---------------------------------------------------------------- a worker under a tool

TOOL = """#!{python}
import json, os, sys, time
assert os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
assert sys.argv[1:3] == ["--tool", "memcheck"] and sys.argv[3] == "--some-option"

def say(*lines):
    for line in lines: print("=========", line, flush=True)

def tell(**answer): print(json.dumps(answer if "done" in answer else {{"reply": answer}}), flush=True)

def result(kind, **values):
    tell(result={{"check": "memcheck", "seconds": 0, "outcome": kind, **values}})

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
    if what == "fails": result("failed", reason="it raises", evidence="ValueError: no", reproduce="")
    else: result("passed", note="", ratio=None)
    tell(end=what, kernels=[f"kernel_of_{{what}}"])
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
    monkeypatch.setattr(compute_sanitizer, "SETTLE_S", 0.0)
    return path


def outcomes(tool: Path, *names: str) -> Mapping[str, CheckResult]:
    requests = [
        TrialRequest(target="x", overload=name, device="cuda:0", level=2, seed=0, trials=(), threads=1)
        for name in names
    ]
    found = compute_sanitizer.ToolRun("memcheck", ("--some-option",), tool, 0).results(requests)
    assert {result.check for result in found} == {"memcheck"}
    return {result.trial.overload: bare(result) for result in found}


def test_reports_are_of_the_call_that_they_came_in(tool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_sanitizer, "SETTLE_S", 0.4)
    found = outcomes(tool, "bad", "slow", "late", "fine")
    assert [type(outcome) for outcome in found.values()] == [Failed, Failed, Failed, Passed]
    bad, slow, late = found["bad"], found["slow"], found["late"]
    assert isinstance(bad, Failed)
    assert bad.reason == "memcheck: Invalid __global__ write of size 4 bytes, and 1 more such reports"
    assert "kernel_of_bad()+0x90 in ops.cu:4" in bad.evidence
    assert isinstance(slow, Failed)
    assert "Uninitialized" in slow.reason
    assert isinstance(late, Failed)
    assert "Barrier error" in late.reason


def test_a_worker_that_ends_costs_only_its_own_call(tool: Path) -> None:
    found = outcomes(tool, "good", "dies", "bad", "fine")
    assert [type(outcome) for outcome in found.values()] == [Passed, Skipped, Failed, Passed]


def test_a_call_that_fails_or_is_not_made_is_said_not_to_be_looked_at(tool: Path) -> None:
    found = outcomes(tool, "fails", "empty")
    assert found["fails"] == Skipped(reason="the call fails: it raises: ValueError: no")
    assert found["empty"] == Skipped(reason="no sample without empty tensors")


def test_a_tool_that_takes_too_long_is_stopped(tool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_sanitizer, "LIMIT_S", 2.0)
    found = outcomes(tool, "good", "hangs", "bad")
    assert [type(outcome) for outcome in found.values()] == [Passed, Skipped, Skipped]
    assert "2 s" in str(found["hangs"])
    assert "2 s" in str(found["bad"])


# ---------------------------------------------------------------- what a tool prints

MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at scale(const float *, float *, long long)+0x90 in ops.cu:4
=========     by thread (99,0,0) in block (0,0,0)
=========     Address 0x7f6510c00190 is out of bounds
=========
========= Program hit cudaErrorNotReady (error 600) due to "device not ready" on CUDA API call.
=========     Saved host backtrace up to driver entry point at error
=========
========= Invalid __global__ read of size 4 bytes
=========     at scale(const float *, float *, long long)+0x50 in ops.cu:4
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at reverse(int *)+0x90 in ops.cu:41
=========     and Read access at reverse(int *)+0x100 in ops.cu:51 [508 hazards]
=========
========= Warning: Race reported between Write access at within_a_warp(int *)+0x90 in ops.cu:61
=========     and Read access at within_a_warp(int *)+0x100 in ops.cu:62 [8 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
REFUSED = """========= COMPUTE-SANITIZER
========= Error: Device not supported. Please refer to the "Supported Devices" section of the manual
=========     or use another device
========= Error: process didn't terminate successfully
========= Target application returned an error
========= ERROR SUMMARY: 0 errors
"""


def test_each_report_is_a_record_with_its_place() -> None:
    write, read = parse(MEMCHECK.splitlines())
    assert write.splitlines()[0] == "Invalid __global__ write of size 4 bytes"
    assert write.splitlines()[1:] == [
        "    at scale(const float *, float *, long long)+0x90 in ops.cu:4",
        "    by thread (99,0,0) in block (0,0,0)",
        "    Address 0x7f6510c00190 is out of bounds",
    ]
    assert read.splitlines()[0] == "Invalid __global__ read of size 4 bytes"
    assert not is_warning(write)


def test_a_race_is_an_error_or_a_warning_as_the_tool_says() -> None:
    error, warning = parse(RACECHECK.splitlines())
    assert "reverse" in error
    assert [is_warning(error), is_warning(warning)] == [False, True]


def test_what_a_tool_says_of_itself_is_no_record_but_trouble() -> None:
    assert parse(REFUSED.splitlines()) == []
    assert trouble(REFUSED.splitlines()).startswith("Error: Device not supported")
    assert trouble(MEMCHECK.splitlines()) == ""
    assert trouble(RACECHECK.splitlines()) == ""
