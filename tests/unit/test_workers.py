"""Worker processes: requests, replies, ends of all kinds, and several workers at once."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

import dotcu
from dotcu.errors import JitDisabled
from dotcu.workers import Worker, WorkerCrash, ending, relevant_output, run_pool, started_early

ECHO = "helpers.fake_workers:echo"


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker(ECHO)
    yield worker
    worker.close()


def replies(worker: Worker, *words: str, timeout_s: float = 30.0) -> list[tuple[str, int]]:
    """The words that come back, with the process that each comes from."""
    worker.send(words)
    found = []
    while (reply := worker.receive(timeout_s)) is not None:
        word, pid, read = reply
        assert read == "", "stdin is not for what runs in a worker"
        found.append((word, pid))
    return found


def test_one_process_answers_request_after_request(worker: Worker) -> None:
    first, second = replies(worker, "a", "b"), replies(worker, "c")
    assert [word for word, _ in first + second] == ["a", "b", "c"]
    assert len({pid for _, pid in first + second}) == 1
    assert first[0][1] != os.getpid()


@pytest.mark.parametrize(
    ("how", "reason", "evidence"),
    [
        ("segfault", "the process died: SIGSEGV", "the last words"),
        ("exit", "the process died: exit status 0", ""),
        ("unusable", "the kernel left the GPU unusable", "a kernel trapped"),
    ],
)
def test_a_process_that_ends_is_reported_and_replaced(
    worker: Worker, how: str, reason: str, evidence: str
) -> None:
    with pytest.raises(WorkerCrash) as crash:
        replies(worker, "fine", how)
    assert crash.value.reason == reason
    assert evidence in crash.value.evidence
    assert [word for word, _ in replies(worker, "again")] == ["again"]


def test_a_process_that_hangs_is_killed(worker: Worker) -> None:
    replies(worker, "ready")
    with pytest.raises(WorkerCrash) as crash:
        replies(worker, "hang", timeout_s=0.2)
    assert crash.value.reason == "it did not end within 0.2 s"


def test_an_error_of_dotcus_is_raised_here_and_the_process_goes_on(worker: Worker) -> None:
    ((_, before),) = replies(worker, "a")
    with pytest.raises(JitDisabled, match="no code is there"):
        replies(worker, "raise")
    assert replies(worker, "b") == [("b", before)]


def test_a_worker_that_is_closed_is_not_started_again(worker: Worker) -> None:
    replies(worker, "a")
    worker.close()
    with pytest.raises(WorkerCrash):
        worker.send(["b"])


def test_lines_of_a_tool_are_passed_on(tmp_path: Path) -> None:
    tool, lines = tmp_path / "tool", []
    tool.write_text('#!/bin/sh\necho "== begins"\n"$@"\necho "== ends"\n')
    tool.chmod(0o755)
    worker = Worker(ECHO, tool=[str(tool)], on_output=lines.append)
    assert [word for word, _ in replies(worker, "a")] == ["a"]
    worker.finish(10.0)
    assert lines == ["== begins", "== ends"]


def test_lines_of_a_tool_do_not_extend_the_limit(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text('#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8 9; do echo "== busy"; sleep 0.15; done\n')
    tool.chmod(0o755)
    worker = Worker(ECHO, tool=[str(tool)])
    with pytest.raises(WorkerCrash) as crash:
        replies(worker, "a", timeout_s=0.5)
    assert crash.value.reason == "it did not end within 0.5 s"


def test_a_request_can_be_superseded() -> None:
    worker = Worker("helpers.fake_workers:until_superseded")
    worker.send("wait")
    assert worker.receive(30.0) == "wait"
    worker.send("next")
    assert [worker.receive(30.0) for _ in range(3)] == [None, "next", None]
    worker.close()


def test_a_process_that_was_started_early_is_used_by_the_first_worker(worker: Worker) -> None:
    from dotcu import workers

    with started_early(ECHO):
        child = workers._early[ECHO]
        replies(worker, "a")
        assert worker._child is child
        worker.close()
    with started_early(ECHO):
        unused = workers._early[ECHO]
    assert unused.status() == -9


def test_a_pool_does_each_task_once() -> None:
    def run(worker: Worker, task: str) -> Iterator[tuple[str, int]]:
        yield from replies(worker, task)

    tasks = [str(number) for number in range(8)]
    found = list(run_pool([Worker(ECHO), Worker(ECHO)], tasks, run))
    assert sorted(word for word, _ in found) == tasks
    assert os.getpid() not in {pid for _, pid in found}


def test_an_error_in_a_pool_is_raised_and_ends_it() -> None:
    def run(worker: Worker, task: str) -> Iterator[tuple[str, int]]:
        yield from replies(worker, task)

    both = [Worker(ECHO), Worker(ECHO)]
    with pytest.raises(JitDisabled):
        list(run_pool(both, ["raise", "hang"], run))
    assert all(worker.closed for worker in both)


@pytest.mark.parametrize(
    ("status", "text"),
    [(None, "it closed its output"), (3, "exit status 3"), (-11, "SIGSEGV"), (-99, "signal 99")],
)
def test_the_end_of_a_process_has_a_name(status: int | None, text: str) -> None:
    assert ending(status) == text


CRASH = f"""from the first trial
-- dotcu: step a::b/call/x
printed by the body
Fatal Python error: Segmentation fault

Thread 0x00007f6c8817c6c0 (most recent call first):
  File "{sysconfig.get_path("stdlib")}/threading.py", line 982 in run

Current thread 0x00007f6caba8bb80 (most recent call first):
  File "{sysconfig.get_path("stdlib")}/ctypes/__init__.py", line 519 in string_at
  File "/home/me/ops.py", line 27 in dies
  File "{Path(dotcu.__file__).parent}/operator/execution.py", line 80 in compute
  File "{sysconfig.get_path("purelib")}/torch/_ops.py", line 875 in __call__
  File "<string>", line 1 in <module>

Extension modules: numpy._core._multiarray_umath, torch._C (total: 30)"""


def test_a_crash_report_has_the_users_frames_and_the_last_step_alone() -> None:
    assert relevant_output(CRASH).splitlines() == [
        "printed by the body",
        "Fatal Python error: Segmentation fault",
        '  File "/home/me/ops.py", line 27 in dies',
    ]
    assert relevant_output("one\ntwo") == "one\ntwo"


def test_a_crash_outside_of_the_users_code_has_its_innermost_frames() -> None:
    frames = [f'  File "{sysconfig.get_path("purelib")}/torch/x.py", line {n} in f' for n in range(9)]
    report = CRASH.replace('  File "/home/me/ops.py", line 27 in dies\n', "")
    head = "Current thread 0x00007f6caba8bb80 (most recent call first):\n"
    report = report.replace(head, head + "\n".join([*frames, ""]))
    assert relevant_output(report).splitlines() == [
        "printed by the body",
        "Fatal Python error: Segmentation fault",
        *frames[:5],
    ]
    hung = "Timeout (0:02:00)!\n" + report.partition("fault\n\n")[2].replace("Current thread", "Thread")
    assert relevant_output(hung).splitlines() == ["Timeout (0:02:00)!", *frames[:5]]
