"""The command as a user meets it: exit codes, messages instead of tracebacks, and nothing heavy at start."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import pytest
import typer

import dotcu
from dotcu import errors, settings
from dotcu.cli import console, main
from dotcu.tracebacks import as_user_error
from helpers import forked_scripts
from helpers.quick_cases import quick


def verbs(name: str, command: Callable[..., None]) -> list[main.Verb]:
    """A command, and another, for there are several."""
    return [(name, command, "It is tried."), ("hold", lambda: None, "Hold.")]


def end_of(failure: BaseException, *words: str) -> int | str | None:
    """The exit code of a command in which `failure` was raised."""

    def fail(as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
        raise failure

    with pytest.raises(SystemExit) as caught:
        main.main(["fail", *words], verbs("fail", fail))
    return caught.value.code


def test_version_is_shown() -> None:
    done = subprocess.run([sys.executable, "-m", "dotcu", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"dotcu {dotcu.__version__}\n")


def test_help_names_every_verb_on_a_line_that_is_not_cut() -> None:
    done = forked_scripts.here("--help")
    assert done.returncode == 0
    lines = {line.split()[0]: line for line in done.stdout.partition("Commands:")[2].splitlines() if line}
    assert set(lines) == {
        "check",
        "sanitize",
        "bench",
        "inspect",
        "profile",
        "tune",
        "watch",
        "new",
        "new-op",
        "build",
        "run",
        "doctor",
        "cache",
    }
    assert not any(line.endswith("...") for line in lines.values())


@pytest.mark.parametrize(
    "words", [("nope",), ("doctor", "--nope"), ("check",), ("cache", "--list", "--clear")]
)
def test_wrong_usage_exits_with_2_and_says_why_on_stderr(words: tuple[str, ...]) -> None:
    done = forked_scripts.here(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "rror: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("DOTCU_CACHE_BYTES", "1GB", "type: export DOTCU_CACHE_BYTES=1073741824"),
        ("DOTCU_JIT", "maybe", "Type: export DOTCU_JIT=allow, or for the default: unset DOTCU_JIT"),
        ("DOTCU_CACHE_BYTES", "much", "error: DOTCU_CACHE_BYTES='much'"),
    ],
)
def test_a_wrong_setting_is_answered_with_the_line_to_type(variable: str, value: str, line: str) -> None:
    done = forked_scripts.command("cache", **{variable: value})
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr


@pytest.mark.parametrize(
    ("words", "kind"), [(("doctor", "--nope"), "UsageError"), (("cache", "--list", "--clear"), "UsageError")]
)
def test_an_error_is_printed_as_json_where_that_is_asked_for(words: tuple[str, ...], kind: str) -> None:
    done = forked_scripts.here(*words, "--json")
    shown = json.loads(done.stdout)
    assert (done.returncode, shown["version"], shown["error"]["type"]) == (2, 1, kind)
    assert shown["error"]["message"] in done.stderr


def test_an_error_that_was_not_expected_is_printed_as_json_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    end_of(ZeroDivisionError("by zero"), "--json")
    shown = json.loads(capsys.readouterr().out)
    assert shown == {"version": 1, "error": {"type": "ZeroDivisionError", "message": "by zero"}}


def test_a_full_folder_of_temporary_files_is_not_taken_for_the_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "hang_up", lambda: None)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    assert end_of(OSError(errno.ENOSPC, "No space left on device")) == 3
    said = capsys.readouterr().err
    assert f"{tempfile.gettempdir()}, the folder of temporary files, is full" in said
    assert "export TMPDIR=FOLDER" in said


PRINTING = quick(
    [("--help",), ("cache", "--json")], [("--help",), ("cache",), ("cache", "--json"), ("doctor",)]
)


@pytest.mark.parametrize("words", PRINTING)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_said_in_one_line(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dotcu", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert done.stderr == "error: the output could not be written: No space left on device.\n"


@pytest.mark.parametrize("words", PRINTING)
def test_a_pipe_whose_reader_has_left_ends_the_command_quietly(words: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "dotcu", *words],
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, "")


def test_a_device_that_is_none_is_wrong_usage() -> None:
    done = forked_scripts.here("check", "dotcu.gallery:square", "--device", "bogus")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: device='bogus': give 'cuda' or 'simulator'.\n"


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (errors.CompileError("k.cu:3: no"), 1),
        (errors.UsageError("no"), 2),
        (errors.ToolchainError("no NVRTC"), 3),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exit_code_of(failure: BaseException, code: int) -> None:
    assert end_of(failure) == code


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_that_ends_the_command_lets_it_clear_up_first(
    number: signal.Signals,
    code: int,
) -> None:
    cleared = []

    def wait() -> None:
        with (
            contextlib.closing(SimpleNamespace(close=lambda: cleared.append("the cursor is back"))),
            as_user_error(
                errors.UsageError, "ops.py cannot be imported", ""
            ),  # nor is it the user's sys.exit
        ):
            signal.raise_signal(number)

    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as caught:
            main.main(["wait"], verbs("wait", wait))
    finally:
        signal.signal(number, before)
    assert (caught.value.code, cleared) == (code, ["the cursor is back"])


def test_a_signal_that_is_lost_in_a_library_ends_the_command_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wait() -> None:
        for _ in range(2):
            with contextlib.suppress(BaseException):  # as a callback of weakref's does, or C without a check
                signal.raise_signal(signal.SIGTERM)
            monkeypatch.setattr(signal, "raise_signal", lambda number: time.sleep(0.2))
        for _ in range(1000):
            time.sleep(0.01)

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    monkeypatch.setattr(main, "_INSIST_S", 0.05)
    try:
        with pytest.raises(SystemExit) as caught:
            main.main(["wait"], verbs("wait", wait))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught.value.code == 143


def test_a_message_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    message = "a [bold]line[/bold] of " + "x" * 300 + "\n    and the line to type"
    end_of(errors.ArgumentError(message))
    assert capsys.readouterr().err == f"error: {message}\n"


def test_an_unexpected_error_shows_no_traceback_and_says_how_to_get_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert end_of(ZeroDivisionError("by zero")) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("error: ZeroDivisionError: by zero\n")
    assert "DOTCU_DEBUG=1" in shown
    assert "Traceback" not in shown


def test_a_command_that_needs_torch_gives_the_line_to_type_where_there_is_none() -> None:
    script = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['dotcu', 'check', 'dotcu.gallery']\n"
        "from dotcu.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: This command needs torch, which is not installed.\n")
    assert "\n    pip install torch\n" in done.stderr


def test_debugging_lets_the_error_through() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with settings.override(debug=True), pytest.raises(ZeroDivisionError):
        main.main(["fail"], verbs("fail", fail))


def test_starting_the_command_loads_no_torch_and_no_numpy() -> None:
    script = "import sys, dotcu.cli.main; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"torch", "numpy", "cuda"}.isdisjoint(done.stdout.split())


ENDING = ["bench", "tune", "inspect", "profile", "cache plan", "cache pack"]


@pytest.mark.slow
@pytest.mark.parametrize("verb", ENDING)
def test_a_module_that_ends_the_process_is_no_command_that_passed(verb: str, tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text("import os\nos._exit(0)\n")
    command = [sys.executable, "-m", "dotcu", *verb.split(), "ops.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"ended `dotcu {verb.split()[0]}` (exit status 0) before its work was done" in done.stderr
    assert "python -X faulthandler" in done.stderr


def test_a_script_that_ends_the_process_is_no_command_that_passed(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import os\nos._exit(0)\n")
    command = [sys.executable, "-m", "dotcu", "sanitize", "script.py", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ended `dotcu sanitize` (exit status 0) before its work was done" in done.stderr


@pytest.mark.slow
def test_a_project_that_ends_the_process_is_no_wheel_that_was_built(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\n[tool.dotcu]\nmodules = ["p"]\narchitectures = ["9.0"]\n'
    )
    (tmp_path / "p.py").write_text("import os\nos._exit(0)\n")
    command = [sys.executable, "-m", "dotcu", "build", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done
    assert json.loads(done.stdout)["error"]["type"] == "ProcessEnded"


def test_a_command_within_code_that_a_command_runs_is_one_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(
        "import subprocess, sys\n"
        "command = [sys.executable, '-m', 'dotcu', '--version']\n"
        "done = subprocess.run(command, capture_output=True, text=True)\n"
        "sys.exit(done.stdout + done.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "dotcu", "bench", "ops.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert f"dotcu {dotcu.__version__}" in done.stderr
    assert "not expect" not in done.stderr


def test_files_of_the_working_directory_take_the_place_of_no_module(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "dotcu").write_text("from dotcu.cli.main import main\nmain()\n")
    for name in ("random", "types", "runpy", "profile", "dotcu"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('this is not {name}')\n")
    (tmp_path / "ops.py").write_text("value = 1\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "bin/dotcu", "bench", "ops.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "ops.py defines no operator" in done.stderr


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        ("-v check ops.py", "check"),
        ("bench package.module:f", "bench"),
        ("tune ops.py --show", "tune"),
        ("cache pack ops.py", "cache"),
        ("inspect ops.py:f", "inspect"),
        ("inspect package.module", "inspect"),
        ("inspect ops.py --diff old.cu", "inspect"),
        ("inspect kernels.cu --html page.html", ""),
        ("inspect lib.so", ""),
        ("cache --clear", ""),
        ("bench --help", ""),
        ("doctor", ""),
        ("", ""),
    ],
)
def test_only_commands_that_run_python_of_the_users_run_apart(words: str, verb: str) -> None:
    assert main._verb_with_code(words.split()) == verb


def test_an_interrupt_while_the_command_is_imported_leaves_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "dotcu", "--version"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
