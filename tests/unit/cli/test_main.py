"""The command as a user meets it: exit codes, messages instead of tracebacks, and nothing heavy at start."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import dotcu
from dotcu import errors, settings
from dotcu.cli import main


def dotcu_command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dotcu", *words],
        capture_output=True,
        text=True,
        env=dict(os.environ) | environment,
        check=False,
    )


def end_of(failure: BaseException, monkeypatch: pytest.MonkeyPatch) -> int | str | None:
    """The exit code of a command in which `failure` was raised."""

    def fail() -> None:
        raise failure

    monkeypatch.setattr(main, "_VERBS", (("fail", fail, "Fail."), ("hold", lambda: None, "Hold.")))
    monkeypatch.setattr(sys, "argv", ["dotcu", "fail"])
    with pytest.raises(SystemExit) as caught:
        main.main()
    return caught.value.code


def test_version_is_shown() -> None:
    done = dotcu_command("--version")
    assert (done.returncode, done.stdout) == (0, f"dotcu {dotcu.__version__}\n")


def test_help_names_every_verb_on_a_line_that_is_not_cut() -> None:
    done = dotcu_command("--help")
    assert done.returncode == 0
    lines = {line.split()[0]: line for line in done.stdout.partition("Commands:")[2].splitlines() if line}
    assert set(lines) == {"check", "doctor", "cache"}
    assert not any(line.endswith("...") for line in lines.values())


@pytest.mark.parametrize(
    "words", [("nope",), ("doctor", "--nope"), ("check",), ("cache", "--list", "--clear")]
)
def test_wrong_usage_exits_with_2_and_says_why_on_stderr(words: tuple[str, ...]) -> None:
    done = dotcu_command(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "rror: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_setting_of_the_wrong_type_is_wrong_usage() -> None:
    done = dotcu_command("cache", DOTCU_CACHE_BYTES="much")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: DOTCU_CACHE_BYTES='much'")


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
def test_exit_code_of(failure: BaseException, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert end_of(failure, monkeypatch) == code


def test_a_message_is_printed_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    message = "a [bold]line[/bold] of " + "x" * 300 + "\n    and the line to type"
    end_of(errors.ArgumentError(message), monkeypatch)
    assert capsys.readouterr().err == f"error: {message}\n"


def test_an_unexpected_error_shows_no_traceback_and_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert end_of(ZeroDivisionError("by zero"), monkeypatch) == 1
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


def test_debugging_lets_the_error_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(main, "_VERBS", (("fail", fail, "Fail."), ("hold", lambda: None, "Hold.")))
    monkeypatch.setattr(sys, "argv", ["dotcu", "fail"])
    with settings.override(debug=True), pytest.raises(ZeroDivisionError):
        main.main()


def test_starting_the_command_loads_no_torch_and_no_numpy() -> None:
    script = "import sys, dotcu.cli.main; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"torch", "numpy", "cuda"}.isdisjoint(done.stdout.split())
