"""The process under ncu: what it is asked, what its end means. A program stands for ncu."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from dotcu import serialize
from dotcu.errors import OperatorError, ToolchainError, UsageError
from dotcu.profiling import ncu
from dotcu.profiling.ncu import MissingCounters, failure_of
from dotcu.profiling.worker import ProfiledCall, ProfileRequest, command
from helpers import ncu_reports

CALL = ProfiledCall(
    operator="mylib::square", case="float32-1000", sample="Sample(float32[1000])", gpu="NVIDIA H200",
    kernels=("square<float32>",), files={"/dotcu/kernel.cu": "/home/me/kernel.cu"},
)  # fmt: skip


@pytest.fixture
def call_request(tmp_path: Path) -> ProfileRequest:
    return ProfileRequest(
        target="ops.py:square", shapes="", dtype="", device="cuda:0", seed=0, mode="counters",
        reply=str(tmp_path / "reply.json"),
    )  # fmt: skip


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return tmp_path / "draft.ncu-rep"


def test_only_what_is_between_start_and_stop_is_profiled_and_clocks_are_left_alone(
    tmp_path: Path, call_request: ProfileRequest, report: Path
) -> None:
    program, log = ncu_reports.program(tmp_path, serialize.plain(CALL))
    assert ncu.collect(program, report, call_request) == CALL
    assert report.read_bytes() == b"report"
    words = json.loads(log.read_text())
    pairs = list(pairwise(words))
    assert ("--profile-from-start", "off") in pairs
    assert ("--clock-control", "none") in pairs
    assert ("--section", "SpeedOfLight") in pairs
    assert ("--section", "SourceCounters") in pairs
    assert ("--export", str(report)) in pairs
    assert words[-len(command(call_request)) :] == command(call_request)
    assert words[-1].split(os.pathsep)
    assert serialize.from_json(ProfileRequest, words[-2]) == call_request


@pytest.mark.parametrize(
    "answer", [serialize.plain(CALL), None, {"raise": ["OperatorError", "LaunchFailed"]}]
)
def test_a_refusal_is_a_value_whatever_became_of_the_call(
    tmp_path: Path, call_request: ProfileRequest, report: Path, answer: object
) -> None:
    program, _ = ncu_reports.program(tmp_path, answer, said=ncu_reports.REFUSED)
    found = ncu.collect(program, report, call_request)
    assert isinstance(found, MissingCounters)
    assert found.kind == "refused"


def test_another_trouble_of_ncus_is_reported_in_its_words() -> None:
    found = failure_of("==PROF== Connected\n==ERROR== Failed to create lock file /tmp/lock.\nhello\n")
    assert (found.kind, found.reason) == ("failed", "Failed to create lock file /tmp/lock.")
    assert "no report" in failure_of("").reason
    assert failure_of("one\nlast words").reason.endswith("last words")


def test_what_the_call_raises_is_raised(tmp_path: Path, call_request: ProfileRequest, report: Path) -> None:
    program, _ = ncu_reports.program(tmp_path, {"raise": ["UsageError", "has no dtype"]})
    with pytest.raises(UsageError, match="has no dtype"):
        ncu.collect(program, report, call_request)


def test_a_call_that_ends_its_process_is_reported_with_its_last_output(
    tmp_path: Path, call_request: ProfileRequest, report: Path
) -> None:
    program, _ = ncu_reports.program(
        tmp_path, None, said="==PROF== Connected\nFatal Python error: Segmentation fault\n"
    )
    with pytest.raises(OperatorError, match=r"died.\n    Fatal Python error(.|\n)*dotcu check ops.py:square"):
        ncu.collect(program, report, call_request)


def test_a_call_without_kernels_is_reported(
    tmp_path: Path, call_request: ProfileRequest, report: Path
) -> None:
    program, _ = ncu_reports.program(
        tmp_path, serialize.plain(CALL), said="==WARNING== No kernels were profiled.\n"
    )
    with pytest.raises(OperatorError, match="mylib::square launches no kernel on Sample"):
        ncu.collect(program, report, call_request)


def test_a_call_that_takes_too_long_is_ended(
    tmp_path: Path, call_request: ProfileRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ncu, "LIMIT_S", 0.3)
    monkeypatch.setattr(ncu, "command", lambda call_request: ["sleep", "30"])
    with pytest.raises(OperatorError, match=r"did not end within 0.3 s"):
        ncu.run_without_ncu(call_request)


def test_pages_are_read(tmp_path: Path, report: Path) -> None:
    program, _ = ncu_reports.program(tmp_path, None)
    assert [each.name for each in ncu.launches(program, report)] == [ncu_reports.SQUARE]
    assert [len(some) for _, some in ncu.instructions(program, report)] == [4]


def test_a_page_that_ncu_does_not_print_is_an_error_for_figures_and_nothing_for_lines(report: Path) -> None:
    with pytest.raises(ToolchainError, match="ended with status 1"):
        ncu.launches(Path("/bin/false"), report)
    assert ncu.instructions(Path("/bin/false"), report) == []
