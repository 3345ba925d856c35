"""The first call: its phases, its report, and the processes that make it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, get_args

import pytest

from dotcu.benchmark import first_call as module
from dotcu.benchmark.first_call import AVOID, PHASES, FirstCall, first_call
from dotcu.errors import JitDisabled, OperatorError
from dotcu.telemetry import TimedStep
from dotcu.workers import WorkerCrash
from helpers.first_call_reports import CACHED, COMPILED, report, run, stage


def test_every_step_of_the_stopwatch_has_a_phase() -> None:
    assert set(get_args(TimedStep)) <= PHASES.keys()
    assert PHASES.keys() >= AVOID.keys()


def test_no_two_phases_have_one_label() -> None:
    labels = [label for label, _ in PHASES.values()]
    assert len(set(labels)) == len(labels)


# ------------------------------------------------------------------ the report


def test_the_stages_and_the_remainder_add_up_to_the_whole() -> None:
    one = run("empty", COMPILED)
    assert one["start_ms"] == 2010.0
    assert one["call_ms"] == pytest.approx(988.04)
    assert one["remainder_ms"] == pytest.approx(0.5)
    assert one["start_ms"] + one["call_ms"] + one["remainder_ms"] == pytest.approx(one["whole_ms"])


def test_a_phase_is_found_in_the_stage_that_it_came_in() -> None:
    one = run("empty", COMPILED, compile=7.0)
    assert (stage(one, "start")["compile"], stage(one, "call")["compile"]) == (7.0, 80.0)
    assert "launch" not in stage(one, "start")


def test_the_json_has_every_phase_with_what_takes_the_time_and_what_saves_it() -> None:
    plain = json.loads(json.dumps(report().to_json(), allow_nan=False))
    assert (plain["version"], plain["operator"]) == (2, "mylib::scale_add")
    assert [one["cache"] for one in plain["runs"]] == ["empty", "filled"]
    first = plain["runs"][0]
    names = [phase["name"] for phase in first["phases"]]
    assert names == ["interpreter", "torch", *COMPILED]
    compiled = first["phases"][names.index("compile")]
    assert (compiled["stage"], compiled["ms"], compiled["times"]) == ("call", 80.0, 2)
    assert "DOTCU_CACHE_DIR" in compiled["avoid"]
    assert first["phases"][0]["avoid"] == "a process that stays pays for it once"
    total = first["start_ms"] + first["call_ms"] + first["remainder_ms"]
    assert total == pytest.approx(first["whole_ms"])
    assert first["later_ms"][:2] == [1.5, 0.02]
    assert first["imported"] == ["torch._dynamo"]
    assert {phase["name"] for phase in plain["runs"][1]["phases"]} == {"interpreter", "torch", *CACHED}


# ------------------------------------------------------------------ the table


def line(found: FirstCall, label: str) -> list[str]:
    """The cells of the line of a label."""
    lines = [text for text in str(found).splitlines() if text.strip().startswith(label)]
    assert len(lines) == 1, str(found)
    return lines[0].strip().removeprefix(label).split(maxsplit=2)


def test_the_head_says_what_was_called_and_where() -> None:
    head = str(report(note="the first of 2 operators there: a, b")).splitlines()
    assert head[0] == "mylib::scale_add, called for the first time in a new process, on NVIDIA H200 (cuda:0)"
    assert head[1:3] == [
        "    Sample(float32[1]); torch 2.11.0",
        "    the first of 2 operators there: a, b",
    ]


def test_a_phase_has_its_time_in_both_processes_and_a_reason() -> None:
    assert line(report(), "launch")[:2] == ["0.04", "0.04"]
    assert line(report(), "import torch")[2].startswith("its libraries are linked")


def test_what_a_filled_cache_saves_has_no_time_there() -> None:
    *times, words = line(report(), "compile x2")
    assert times == ["80.00", "-"]
    assert words.endswith("a filled cache saves it: keep or ship DOTCU_CACHE_DIR")


def test_sums_and_the_remainder_have_rows() -> None:
    found = report()
    assert line(found, "before the call")[:2] == ["2010.00", "2010.00"]
    assert line(found, "the first call")[:2] == ["988.04", "903.54"]
    assert str(found).count("op.warm() does it earlier") == 1, "of all of the call, where its sum is"
    assert line(found, "not attributed")[:2] == ["0.500", "0.500"]
    assert line(found, "in all")[:2] == ["2998.540", "2914.040"]


def test_what_was_compiled_before_the_call_stands_before_it() -> None:
    found = report(runs=(run("empty", CACHED, compile=7.0),))
    order = [text.split("  ")[1] for text in str(found).splitlines() if text.startswith("    ")]
    lines = str(found).splitlines()
    assert any("compile" in text and "7.00" in text for text in lines), order
    assert next(i for i, text in enumerate(lines) if "compile x2" in text) < next(
        i for i, text in enumerate(lines) if "before the call" in text
    )


def test_the_modules_that_the_call_imported_are_named() -> None:
    assert line(report(), "imports")[2].endswith("needed: torch._dynamo")


def test_later_calls_are_described() -> None:
    assert line(report(), "second call")[:2] == ["1.500", "1.500"]
    assert line(report(), "a later call") == ["0.012", "0.012", "the median of 3 more, each waited for"]


# ------------------------------------------------------------------ the processes

FACTS = {
    "operator": "a::b", "sample": "Sample()", "device": "simulator", "versions": {},
    "note": "", "imported": ["x"], "later_ms": [2.0, 1.0, 1.0],
}  # fmt: skip
FIRST = {"start": {"interpreter": (3.0, 1)}, "call": {"call": (4.0, 1)}}


class FakeWorker:
    """A worker that replies from a list; an exception in it is raised."""

    replies: tuple[Any, ...] = (FIRST, FACTS)
    requests: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, entry: str, *, prelude: str) -> None:
        assert "import torch" in prelude
        self._replies = iter(self.replies)

    def send(self, request: dict[str, Any]) -> None:
        assert Path(request["folder"]).is_dir()
        self.requests.append(request)

    def receive(self, timeout_s: float) -> Any:
        reply = next(self._replies)
        if isinstance(reply, Exception):
            raise reply
        return dict(reply)

    def close(self) -> None:
        self.requests.append({"closed": True})


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> type[FakeWorker]:
    monkeypatch.setattr(FakeWorker, "requests", [])
    monkeypatch.setattr(FakeWorker, "replies", FakeWorker.replies)
    monkeypatch.setattr(module, "Worker", FakeWorker)
    return FakeWorker


def test_two_processes_share_a_folder_that_is_gone_afterwards(worker: type[FakeWorker]) -> None:
    found = first_call("ops.py:a", "b")
    assert [run["cache"] for run in found.runs] == ["empty", "filled"]
    first, closed, second, _ = worker.requests
    assert first["target"] == second["target"] == "ops.py:b"
    assert first["folder"] == second["folder"]
    assert closed == {"closed": True}
    assert not Path(first["folder"]).exists()
    assert found.operator == "a::b"
    assert (found.runs[0]["later_ms"], found.runs[0]["imported"]) == ([2.0, 1.0, 1.0], ["x"])
    assert found.runs[0]["remainder_ms"] == pytest.approx(found.runs[0]["whole_ms"] - 7.0)


def test_the_error_of_the_process_is_raised(worker: type[FakeWorker]) -> None:
    worker.replies = (JitDisabled("no code is there"),)
    with pytest.raises(JitDisabled, match="no code is there"):
        first_call("ops.py")
    assert worker.requests[-1] == {"closed": True}


def test_a_crash_of_the_process_is_an_error_with_its_last_output(worker: type[FakeWorker]) -> None:
    worker.replies = (FIRST, WorkerCrash("the process died: SIGSEGV", "its last output"))
    with pytest.raises(OperatorError, match=r"ops\.py:b failed: the process died") as caught:
        first_call("ops.py", "b")
    assert "\n    its last output\n" in str(caught.value)
    assert str(caught.value).endswith("dotcu check ops.py:b")
