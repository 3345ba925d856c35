"""The process under ncu: what it is asked, what its end means. A program stands for ncu."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

import ncu_pages
from dotcu.errors import OperatorError, ToolchainError, UsageError
from dotcu.profiling import running
from dotcu.profiling.order import Answer, Order, command
from dotcu.profiling.running import Refusal, refusal_of, under_ncu

ANSWER = Answer(
    operator="mylib::square", case="float32-1000", sample="Sample(float32[1000])", gpu="NVIDIA H200",
    kernels=("square<float32>",), files={"/dotcu/kernel.cu": "/home/me/kernel.cu"},
)  # fmt: skip


@pytest.fixture
def order(tmp_path: Path) -> Order:
    return Order(
        target="ops.py:square", shapes="", dtype="", device="cuda:0", seed=0, how="counters",
        answer=str(tmp_path / "answer.json"),
    )  # fmt: skip


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return tmp_path / "draft.ncu-rep"


def test_only_what_is_between_start_and_stop_is_profiled_and_clocks_are_left_alone(order: Order) -> None:
    words = under_ncu(Path("/opt/ncu"), Path("x.ncu-rep"), command(order))
    pairs = list(pairwise(words))
    assert ("--profile-from-start", "off") in pairs
    assert ("--clock-control", "none") in pairs
    assert ("--section", "SpeedOfLight") in pairs
    assert ("--section", "SourceCounters") in pairs
    assert ("--export", "x.ncu-rep") in pairs
    assert words[-len(command(order)) :] == command(order)
    assert words[-1].split(os.pathsep)
    assert Order.from_json(words[-2]) == order


def test_a_call_with_a_report_is_answered(tmp_path: Path, order: Order, report: Path) -> None:
    ncu, log = ncu_pages.program(tmp_path, ANSWER.to_json())
    assert running.collect(ncu, report, order) == ANSWER
    assert report.read_bytes() == b"report"
    assert "--clock-control" in json.loads(log.read_text())


@pytest.mark.parametrize("answer", [ANSWER.to_json(), None, {"raise": ["OperatorError", "LaunchFailed"]}])
def test_a_refusal_is_a_value_whatever_became_of_the_call(
    tmp_path: Path, order: Order, report: Path, answer: object
) -> None:
    ncu, _ = ncu_pages.program(tmp_path, answer, said=ncu_pages.REFUSED)
    found = running.collect(ncu, report, order)
    assert isinstance(found, Refusal)
    assert found.why == "refused"


def test_another_trouble_of_ncus_is_told_in_its_words() -> None:
    found = refusal_of("==PROF== Connected\n==ERROR== Failed to create lock file /tmp/lock.\nhello\n")
    assert (found.why, found.what) == ("failed", "Failed to create lock file /tmp/lock.")
    assert "no report" in refusal_of("").what
    assert refusal_of("one\nlast words").what.endswith("last words")


def test_what_the_call_raises_is_raised(tmp_path: Path, order: Order, report: Path) -> None:
    ncu, _ = ncu_pages.program(tmp_path, {"raise": ["UsageError", "has no dtype"]})
    with pytest.raises(UsageError, match="has no dtype"):
        running.collect(ncu, report, order)


def test_a_call_that_ends_its_process_is_told_with_its_last_words(
    tmp_path: Path, order: Order, report: Path
) -> None:
    ncu, _ = ncu_pages.program(
        tmp_path, None, said="==PROF== Connected\nFatal Python error: Segmentation fault\n"
    )
    with pytest.raises(OperatorError, match=r"died.\n    Fatal Python error(.|\n)*dotcu check ops.py:square"):
        running.collect(ncu, report, order)


def test_a_call_without_kernels_is_told(tmp_path: Path, order: Order, report: Path) -> None:
    ncu, _ = ncu_pages.program(tmp_path, ANSWER.to_json(), said="==WARNING== No kernels were profiled.\n")
    with pytest.raises(OperatorError, match="mylib::square launches no kernel on Sample"):
        running.collect(ncu, report, order)


def test_a_call_that_takes_too_long_is_ended(
    tmp_path: Path, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LIMIT_S", 0.3)
    monkeypatch.setattr(running, "command", lambda order: ["sleep", "30"])
    with pytest.raises(OperatorError, match=r"did not end within 0.3 s"):
        running.alone(order)


def test_pages_are_read(tmp_path: Path, report: Path) -> None:
    ncu, _ = ncu_pages.program(tmp_path, None)
    assert [each.name for each in running.raw(ncu, report)] == [ncu_pages.SQUARE]
    assert [len(each.instructions) for each in running.source(ncu, report)] == [4]


def test_a_page_that_ncu_does_not_print_is_an_error_for_figures_and_nothing_for_lines(report: Path) -> None:
    with pytest.raises(ToolchainError, match="ended with status 1"):
        running.raw(Path("/bin/false"), report)
    assert running.source(Path("/bin/false"), report) == []
