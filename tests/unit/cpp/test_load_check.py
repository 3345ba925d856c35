"""The death of a worker that tried a library becomes an error that says what to correct."""

from __future__ import annotations

from pathlib import Path

import pytest

from dotcu.cpp.load_check import require_loadable
from dotcu.errors import CompileError
from dotcu.workers import Worker, WorkerCrash

THROWN = """\
terminate called after throwing an instance of 'c10::Error'
  what():  Only a single TORCH_LIBRARY can be used to register the namespace own
Exception raised from registerLibrary at Dispatcher.cpp:212 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x9d (0x7f3ed0d79b8d in libc10.so)
Fatal Python error: Aborted
  File "/usr/lib/python3.11/ctypes/__init__.py", line 376 in __init__
"""


class Dying(Worker):
    """A worker that dies after some replies."""

    def __init__(self, replies: int, evidence: str) -> None:
        super().__init__("none:none")
        self.replies, self.evidence = replies, evidence

    def send(self, request: object) -> None:
        self.request = request

    def receive(self, timeout_s: float | None = None) -> object:
        if not self.replies:
            raise WorkerCrash("the process died: SIGABRT", self.evidence)
        self.replies -= 1
        return ["aten"]


def refusal(tmp_path: Path, text: str, evidence: str) -> str:
    (tmp_path / "a.cpp").write_text(text)
    with pytest.raises(CompileError) as caught:
        require_loadable(Dying(1, evidence), tmp_path / "a.so", [tmp_path / "a.cpp"])
    return str(caught.value)


def test_the_message_of_the_exception_is_shown_without_frames(tmp_path: Path) -> None:
    assert refusal(tmp_path, "", THROWN).splitlines()[:-1] == [
        "a.so compiles, but Python crashes when it loads it: the process died: SIGABRT.",
        "Only a single TORCH_LIBRARY can be used to register the namespace own",
    ]


def test_a_death_without_a_word_shows_what_the_source_registers_wrongly(tmp_path: Path) -> None:
    text = "TORCH_LIBRARY(aten, m) {}\n"
    text += "TORCH_LIBRARY_IMPL(aten, Cuda, m) {}\nTORCH_LIBRARY_IMPL(own, CPU, m) {}\n"
    crash = '  File "/usr/lib/python3.11/ctypes/__init__.py", line 376 in __init__\n'
    key, namespace = refusal(tmp_path, text, crash).splitlines()[1:-1]
    assert key.startswith("Cuda is no dispatch key of torch. Near it: CUDA")
    assert namespace.startswith("The namespace aten has operators already")


def test_a_worker_that_dies_of_another_library_refuses_none(tmp_path: Path) -> None:
    require_loadable(Dying(0, ""), tmp_path / "a.so", [])
