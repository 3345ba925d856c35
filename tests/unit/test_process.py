"""Programs are found and run; what they print and how they end comes back as a value."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dotcu import process
from dotcu.cpp import build
from dotcu.errors import ToolchainError


def test_a_program_that_ran_gives_status_and_both_outputs() -> None:
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(4)"
    done = process.run([sys.executable, "-c", script])
    assert (done.status, done.stdout, done.stderr) == (4, "out\n", "err\n")


def test_the_command_comes_back_as_a_line_to_paste() -> None:
    done = process.run([sys.executable, "-c", "print('a b')"])
    assert done.line.endswith("""-c 'print('"'"'a b'"'"')'""")


def test_a_module_that_is_run_finds_no_module_in_the_working_directory(tmp_path: Path) -> None:
    for name in ("argparse", "json", "runpy"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('this is not {name}')\n")
    done = process.run([*process.module_command("json.tool"), "--help"], folder=tmp_path)
    assert (done.status, done.stderr) == (0, "")
    assert done.line == f"{sys.executable} -m json.tool --help"


def test_bytes_that_are_no_text_do_not_stop_the_reader() -> None:
    done = process.run([sys.executable, "-c", r"import sys; sys.stdout.buffer.write(b'\xff')"])
    assert done.stdout == "\N{REPLACEMENT CHARACTER}"


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(ToolchainError, match="no-such-program could not be started"):
        process.run(["no-such-program"])


def test_a_program_that_does_not_end_is_stopped_and_named() -> None:
    with pytest.raises(ToolchainError, match=r"did not end within 0\.2 s"):
        process.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.2)


class Stopped(BaseException):
    """What the handler of a test raises, as that of Ctrl-C does."""


@contextlib.contextmanager
def stopped_once(file: Path) -> Iterator[None]:
    """Have a signal's handler raise in this thread once a file is there and its program is waited for."""

    def stop(*_: object) -> None:
        raise Stopped

    def watch() -> None:
        while not file.exists() or not file.read_text() or not process._running:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        threading.Thread(target=watch).start()
        with pytest.raises(Stopped):
            yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_interrupt_ends_a_program_and_what_it_has_started(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with stopped_once(file):
        process.run(["/bin/sh", "-c", f"sleep 600 & echo $! > {file}; wait"])
    assert not is_running(int(file.read_text()))


def test_an_interrupt_of_jobs_ends_the_programs_that_threads_wait_for(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with stopped_once(file):
        build.run_jobs(lambda path: process.run(["/bin/sh", "-c", f"echo $$ > {path}; sleep 600"]), [file])
    assert not is_running(int(file.read_text()))


def test_named_folders_are_searched_in_order_and_before_the_path(tmp_path: Path) -> None:
    folders = [tmp_path / "empty", tmp_path / "first", tmp_path / "second"]
    for folder in folders[1:]:
        folder.mkdir()
        (folder / "sh").write_text("")
        (folder / "sh").chmod(0o755)
    assert process.find("sh", folders) == tmp_path / "first" / "sh"
    assert process.find("sh") not in (None, tmp_path / "first" / "sh")


def test_a_program_that_is_nowhere_is_none() -> None:
    assert process.find("no-such-program") is None


ECHO = "import sys\nfor line in sys.stdin: print('heard', line.strip(), flush=True)"


def test_a_started_program_is_talked_with_by_lines() -> None:
    with process.started([sys.executable, "-c", ECHO]) as child:
        for word in ("one", "two"):
            child.write_line(word)
            assert child.read_line(20) == f"heard {word}"
        child.close_stdin()
        assert child.read_line(20) is None
        assert child.read_line(20) is None, "it stays ended"
        assert child.status() == 0


def test_a_line_that_does_not_come_is_waited_for_no_longer_than_said() -> None:
    with process.started([sys.executable, "-c", ECHO]) as child, pytest.raises(TimeoutError, match=r"0\.1 s"):
        child.read_line(0.1)


def test_how_a_program_died_and_what_it_said_last_is_known() -> None:
    script = "import os, sys; print('oh', file=sys.stderr, flush=True); os.kill(os.getpid(), 11)"
    with process.started([sys.executable, "-c", script]) as child:
        assert child.read_line(20) is None
        assert child.status() == -11
        assert child.stderr_tail() == "oh"
        child.write_line("too late")  # is no error


def test_what_holds_the_output_open_does_not_keep_its_parents_death_a_secret() -> None:
    script = "import os, time\nif os.fork() == 0: time.sleep(60)\nos._exit(3)"
    with process.started([sys.executable, "-c", script]) as child:
        assert child.read_line(20) is None
        assert child.status() == 3


def test_at_the_blocks_end_a_program_and_what_it_has_started_are_gone() -> None:
    script = "import os, time\npid = os.fork()\nif pid: print(pid, flush=True)\ntime.sleep(60)"
    with process.started([sys.executable, "-c", script]) as child:
        grandchild = child.read_line(20)
    assert grandchild is not None
    assert not is_running(int(grandchild))
    assert child.status() == -9


def is_running(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    for _ in range(50):
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return False
        time.sleep(0.1)
    return True


def test_a_program_to_talk_with_that_is_not_there_is_named() -> None:
    with pytest.raises(ToolchainError, match="no-such-program could not be started"):
        process.started(["no-such-program"]).__enter__()


@pytest.mark.parametrize(("script", "expected"), [("exit 7", 7), ("kill -9 $$", 128 + 9)])
def test_a_program_that_is_handed_over_to_reports_how_it_ended(script: str, expected: int) -> None:
    assert process.hand_over(["/bin/sh", "-c", script]) == expected


def test_what_cannot_be_handed_over_to_is_an_error() -> None:
    with pytest.raises(ToolchainError, match="could not be started"):
        process.hand_over(["/nowhere/program"])


@pytest.mark.parametrize(("imported", "frozen"), [("ast", True), ("triton._C.libtriton", False)])
def test_a_process_leaves_its_garbage_to_its_end_unless_triton_would_report_it(
    monkeypatch: pytest.MonkeyPatch, imported: str, frozen: bool
) -> None:
    monkeypatch.delitem(sys.modules, "triton._C.libtriton", raising=False)
    monkeypatch.setitem(sys.modules, imported, sys.modules.get(imported))
    calls: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(True))
    with process.collecting_rarely():
        pass
    assert bool(calls) == frozen


def test_a_command_that_has_imported_triton_ends_in_silence() -> None:
    pytest.importorskip("triton._C.libtriton", reason="this torch has no Triton")
    script = "from dotcu import process\nwith process.collecting_rarely(): import triton._C.libtriton"
    done = process.run([sys.executable, "-c", script])
    assert (done.status, done.stderr) == (0, "")


END = "import os, sys; from dotcu import process; descriptor = int(os.environ['CHANNEL']); "


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("process.say_end(descriptor, 0)", (0, True)),
        ("process.say_end(descriptor, 3); sys.exit(3)", (3, True)),
        ("process.say_end(descriptor, 3); os._exit(0)", (3, True)),
        ("os._exit(0)", (0, False)),
        ("os.kill(os.getpid(), 9)", (-9, False)),
        ("process.adopt_channel('CHANNEL', descriptor); os.execv('/bin/true', ['true'])", (0, False)),
        ("process.adopt_channel('CHANNEL', descriptor); sys.exit('CHANNEL' in os.environ)", (0, False)),
    ],
)
def test_an_end_of_its_own_is_told_from_one_by_the_code_that_it_runs(
    text: str, result: tuple[int, bool]
) -> None:
    assert process.supervise([sys.executable, "-c", END + text], "CHANNEL") == result


@pytest.mark.parametrize(
    ("end", "result"),
    [
        ("os.abort()", "(143, True)"),
        ("os._exit(0)", "(143, True)"),
        ("process.say_end(int(os.environ['CHANNEL']), 3); os.abort()", "(3, True)"),
    ],
)
def test_a_crash_of_a_program_that_was_asked_to_end_is_no_crash(end: str, result: str) -> None:
    program = (
        "import os, signal, time; from dotcu import process\n"
        f"def stop(*_): {end}\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        "time.sleep(60)"
    )
    command = f"[sys.executable, '-c', {program!r}]"
    script = f"import sys; from dotcu import process; print(process.supervise({command}, 'CHANNEL'))"
    done = process.run([sys.executable, "-c", script])
    assert done.stdout.strip() == result, done.stderr


def test_an_interrupt_without_a_terminal_goes_to_the_program_that_is_supervised() -> None:
    program = (
        "import sys, time\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)"
    )
    script = (
        "import signal, sys; from dotcu import process\n"
        "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"  # which a shell's job in the background ignores
        f"print(process.supervise([sys.executable, '-c', {program!r}], 'CHANNEL'))"
    )
    asking = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert asking.stdout is not None
    assert asking.stdout.readline() == "ready\n"
    asking.send_signal(signal.SIGINT)
    said, _ = asking.communicate(timeout=50)
    assert said == "interrupted\n(130, True)\n"
