"""The loop of `dotcu watch`: saves of all kinds, and workers that hang or end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dotcu.errors import JitDisabled, UsageError
from dotcu.tracebacks import file_line
from dotcu.watching import watcher
from dotcu.watching.watcher import WatchEvent, WatchState, watch

Step = tuple[WatchEvent, WatchState]

pytest.importorskip("watchfiles")


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "ENTRY", "helpers.fake_workers:watched")
    monkeypatch.setattr(watcher, "GRACE_S", 0.1)


@pytest.fixture
def ops(tmp_path: Path) -> Path:
    """A target that holds, in a folder with another for its kernels."""
    (tmp_path / "kernels").mkdir()
    path = tmp_path / "ops.py"
    path.write_text("one")
    return path


@pytest.fixture
def steps(ops: Path) -> Iterator[Iterator[Step]]:
    """What happens, from the start on; the first version has come to its end."""
    with closing(watch(str(ops))) as steps:
        assert settled(steps).passed
        yield steps


def until(steps: Iterator[Step], wanted: Callable[[Step], bool]) -> WatchState:
    for _ in range(40):
        step = next(steps)
        if wanted(step):
            return step[1]
    raise AssertionError("it never came to that")


def settled(steps: Iterator[Step]) -> WatchState:
    return until(steps, lambda step: step[1].is_settled)


def test_a_save_is_tried(ops: Path, steps: Iterator[Step]) -> None:
    ops.write_text("two")
    state = settled(steps)
    assert state.passed
    assert state.first == "ns::op/call/two"
    assert 0 < state.first_s < 5
    assert state.saved is not None
    assert state.saved["files"][0].endswith("ops.py")


def test_a_file_that_an_editor_renames_into_place_is_a_save(ops: Path, steps: Iterator[Step]) -> None:
    written = ops.with_suffix(".tmp")
    written.write_text("renamed")
    written.rename(ops)
    state = settled(steps)
    assert state.first == "ns::op/call/renamed"


def test_a_file_that_is_deleted_and_written_anew_is_tried(ops: Path, steps: Iterator[Step]) -> None:
    ops.unlink()
    ops.write_text("anew")
    state = until(steps, lambda step: "anew" in step[1].first)
    assert state.saved is not None


def test_a_save_in_a_folder_that_the_worker_named_is_tried(ops: Path, steps: Iterator[Step]) -> None:
    (ops.parent / "kernels" / "scale.cu").write_text("__global__ void f() {}")
    state = settled(steps)
    assert state.saved is not None
    assert state.saved["files"][0].endswith("scale.cu")


def test_a_save_in_a_folder_that_did_not_exist_is_tried(tmp_path: Path) -> None:
    ops = tmp_path / "ops.py"
    ops.write_text("one")
    with closing(watch(str(ops))) as steps:
        assert settled(steps).passed
        (tmp_path / "kernels").mkdir()
        (tmp_path / "kernels" / "scale.cu").write_text("__global__ void f() {}")
        state = settled(steps)
        assert state.saved is not None
        assert state.saved["files"][0].endswith("scale.cu")


def test_a_file_that_is_deleted_is_reported_as_gone(ops: Path, steps: Iterator[Step]) -> None:
    beside = ops.with_name("helper.py")
    beside.write_text("x")
    settled(steps)
    beside.unlink()
    state = settled(steps)
    assert state.saved is not None
    assert [Path(file).name for file in state.saved["gone"]] == ["helper.py"]


def test_a_touch_and_a_save_of_another_kind_are_no_reason(ops: Path, steps: Iterator[Step]) -> None:
    os.utime(ops)
    (ops.parent / "notes.txt").write_text("x")
    ops.write_text("two")
    saved = settled(steps).saved
    assert saved is not None
    assert saved["files"] == [file_line(str(ops), None)]
    assert saved["at"] == pytest.approx(ops.stat().st_mtime)


def test_of_two_quick_saves_the_last_is_tried_to_its_end(ops: Path, steps: Iterator[Step]) -> None:
    ops.write_text("two")
    until(steps, lambda step: step[0]["event"] == "saved")
    ops.write_text("three")
    state = until(steps, lambda step: "three" in step[1].first)
    assert settled(steps).passed
    assert state.trials == 1


def test_a_save_takes_the_place_of_a_version_that_hangs(ops: Path, steps: Iterator[Step]) -> None:
    ops.write_text("hang")
    until(steps, lambda step: step[1].trying == "hanging")
    ops.write_text("right again")
    state = settled(steps)
    assert state.passed
    assert state.first == "ns::op/call/right again"


def test_a_process_that_dies_is_reported_and_the_next_save_tried(ops: Path, steps: Iterator[Step]) -> None:
    ops.write_text("die")
    state = settled(steps)
    assert not state.passed
    assert state.trouble.splitlines()[:2] == ["the process died: SIGSEGV", "    the last words"]
    ops.write_text("right again")
    assert settled(steps).passed


def test_a_process_whose_end_is_heard_after_the_next_save_is_not_left_running(ops: Path) -> None:
    one = watcher.Watcher(str(ops), None, 0)
    with closing(one.run([ops.parent])) as steps:
        assert settled(steps).passed
        ended = one._worker
        ended.kill()
        while not ended.closed:
            time.sleep(0.01)
        ops.write_text("two")
        messages = [one._inbox.get() for _ in range(one._inbox.qsize())]
        for message in (None, *filter(None, messages)):  # the save first
            one._inbox.put(message)
        assert settled(steps).passed
        assert one._worker is not ended
        assert ended._child is None


def test_an_error_of_the_worker_itself_ends_the_command(ops: Path, steps: Iterator[Step]) -> None:
    ops.write_text("refuse")
    with pytest.raises(JitDisabled, match="no code is there"):
        settled(steps)


def test_what_cannot_be_loaded_is_tried_in_a_fresh_process_before_it_is_reported(
    ops: Path, steps: Iterator[Step]
) -> None:
    ops.write_text("broken")
    first = settled(steps).trouble
    assert first.startswith("broken in process")
    ops.write_text("broken still")
    assert settled(steps).trouble != first


def test_a_file_that_is_not_there_is_a_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file"):
        next(watch(str(tmp_path / "nosuch.py")))


def test_a_file_of_kernels_is_a_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text("")
    with pytest.raises(UsageError, match=r"not a Python file"):
        next(watch(str(tmp_path / "a.cu")))
